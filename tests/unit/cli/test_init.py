"""`init` and `config check`: from lineage to a project file that fits it."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from tests.fake_marquez import FakeMarquez
from tests.unit.cli.documents import fits

EVENT = {
    "eventType": "COMPLETE",
    "eventTime": "2024-01-01T00:00:00Z",
    "run": {"runId": "00000000-0000-4000-8000-000000000001"},
    "job": {"namespace": "shop", "name": "daily"},
    "inputs": [{"namespace": "shop", "name": "feed"}],
    "outputs": [{"namespace": "shop", "name": "daily"}],
    "producer": "https://example.org/",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
}
FILE = "lineage-backfill.toml"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("LINEAGE_BACKFILL_")]:
        monkeypatch.delenv(name)
    (tmp_path / "events.ndjson").write_text(json.dumps(EVENT))
    return tmp_path


def answer(file: Path, *lines: str) -> None:
    """Take the mark off these questions, the first of each."""
    text = file.read_text()
    for line in lines:
        assert f"#? {line}" in text
        text = text.replace(f"#? {line}", line, 1)
    file.write_text(text)


def test_from_events_to_a_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--events", "events.ndjson"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "from the lineage: 0 of 2 datasets; 4 questions left" in said.err
    assert 'events = ["events.ndjson"]' in (here / FILE).read_text()

    assert main(["config", "check"]) == 0
    assert "partitioning unknown; this blocks daily" in capsys.readouterr().out
    answer(here / FILE, "[[dataset]]", 'name = "*"', 'grain = "day"', 'start = "2024-01-01"')
    assert main(["config", "check", "--strict"]) == 0
    capsys.readouterr()
    assert main(["impact", "feed", "--from", "2024-01-02", "--to", "2024-01-03", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["job"]["name"], job["partitions"]) == ("daily", ["2024-01-02..2024-01-03"])


def test_the_commands_of_the_page_on_marquez(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "marquez.md").read_text()
    block = page.partition("```toml\n")[2].partition("```")[0]
    lines = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    typed = [shlex.split(line, comments=True)[1:] for line in lines]
    assert [one[0] for one in typed] == ["doctor", "init", "impact"]
    (here / "events.ndjson").unlink()
    with FakeMarquez([EVENT]).serve() as address:
        (here / FILE).write_text(block.replace("http://localhost:5000", address))
        for command in typed[:2]:
            assert main(command) == 0
        answer(here / FILE, "[[dataset]]", 'name = "*"', 'grain = "day"', 'start = "2024-01-01"')
        values = iter(["feed", "2024-01-02", "2024-01-03"])
        given = [next(values) if word.isupper() else word for word in typed[2]]
        capsys.readouterr()
        assert main([*given, "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
    assert [job["partitions"] for job in plan["jobs"]] == [["2024-01-02..2024-01-03"]]


MINE = """# mine
[project]
namespace = "airflow_prod"   # kept

[limits]
max_runs = 7
"""


def test_a_file_that_is_there_is_added_to(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The jobs of Airflow have another namespace than the datasets of the lake."""
    event = {**EVENT, "job": {"namespace": "airflow_prod", "name": "daily"}}
    event["inputs"] = [{"namespace": "s3://lake", "name": "feed"}]
    event["outputs"] = [{"namespace": "s3://lake", "name": "daily"}]
    (here / "events.ndjson").write_text(json.dumps(event))
    (here / FILE).write_text(MINE)
    assert main(["init", "--events", "events.ndjson"]) == 0
    text = (here / FILE).read_text()
    assert text.startswith(MINE)
    assert "PASSWORD" not in text
    shown = capsys.readouterr().out.splitlines()
    added = text.removeprefix(MINE).splitlines()
    assert [line[1:] for line in shown if line[0] == "+" and line[:3] != "+++"] == added
    assert [line for line in shown if line[0] == "-"] == [f"--- {FILE}"]

    assert main(["init"]) == 0  # the file names the lineage now
    assert (here / FILE).read_text() == text
    assert f"Nothing to add to {FILE}." in capsys.readouterr().err

    every = ("[[dataset]]", 'name = "*"', 'namespace = "*"  # of all namespaces')
    answer(here / FILE, *every, 'grain = "day"', 'start = "2024-01-01"')
    assert main(["impact", "feed", "--partitions", "2024-01-02", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["job"]["name"], job["partitions"]) == ("daily", ["2024-01-02"])
    assert main(["init"]) == 0  # all is answered
    assert f"Nothing to add to {FILE}." in capsys.readouterr().err
    # What is replaced still says where the lineage is.
    assert main(["init", "--force"]) == 0
    assert "# mine" not in (here / FILE).read_text()
    assert sorted(path.name for path in here.iterdir()) == ["events.ndjson", FILE]


CODE = """
from spark_runtime import Dataset, job

@job(inputs={"feed": Dataset("feed", grain="day", start="2024-01-01")}, output="daily")
def daily(feed):
    return feed
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[project]\nnamespace = "default"  # the namespace of bare names\njobs = ["made"]\n'),
        ("[limits]\nmax_runs = 7\n", 'jobs = ["made"]\n'),
        (
            'limits.max_runs = 7\n[project]  # of mine\nzone = "UTC"\n',
            'limits.max_runs = 7\n[project]  # of mine\njobs = ["made"]\nzone = "UTC"\n',
        ),
    ],
)
def test_it_drafts_from_code(
    here: Path, capsys: pytest.CaptureFixture[str], before: str, after: str
) -> None:
    (here / "made.py").write_text(CODE)
    if before:
        (here / FILE).write_text(before)
    assert main(["init", "--code", "made"]) == 0
    text = (here / FILE).read_text()
    assert after in text
    assert '[[dataset]]\nname = "daily"\ngrain = "?"' in text
    assert 'name = "feed"' not in text  # the code declares it
    assert "Partitioning known: 1 of 2 datasets" in capsys.readouterr().err
    assert main(["init", "--code", "made"]) == 0
    assert f"Nothing to add to {FILE}." in capsys.readouterr().err
    (here / FILE).write_text(text.replace('"?"', '"day"'))
    assert main(["impact", "feed", "--partitions", "2024-01-02", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["job"]["name"], job["partitions"]) == ("daily", ["2024-01-02"])


def test_code_that_a_file_names_otherwise_is_left_to_its_author(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("made", "other"):
        (here / f"{name}.py").write_text(CODE.replace("daily", name))
    (here / FILE).write_text('[project]\njobs = ["other"]\n')
    assert main(["init", "--code", "made"]) == 64
    assert 'jobs = ["other", "made"]' in " ".join(capsys.readouterr().err.split())


def test_it_can_be_printed_or_put_elsewhere(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--events", "events.ndjson", "--out", "-"]) == 0
    assert capsys.readouterr().out.startswith("# The project file of lineage-backfill")
    assert not (here / FILE).exists()
    (here / "sub").mkdir()
    assert main(["init", "--events", "events.ndjson", "--out", f"sub/{FILE}"]) == 0
    assert f'events = ["{here}/events.ndjson"]' in (here / "sub" / FILE).read_text()
    assert main(["init", "--events", "events.ndjson", "--out", "nowhere/x.toml"]) == 64
    assert "cannot be written" in capsys.readouterr().err


def test_a_file_above_that_stops_counting_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / FILE).write_text("[project]\n")
    (here / "sub").mkdir()
    monkeypatch.chdir(here / "sub")
    assert main(["init", "--events", "../events.ndjson"]) == 0
    assert f"{here / FILE} is no longer used here" in capsys.readouterr().err


def test_without_lineage_it_says_how_to_name_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init"]) == 64
    assert "--events PATH" in capsys.readouterr().err
    assert not (here / FILE).exists()


CHECKS: list[tuple[str, int, int, list[str]]] = [
    ("", 0, 64, ["warning", "warning", "note"]),
    ('[[dataset]]\nname = "*"\ngrain = "day"', 0, 0, ["note"]),
    ('[[dataset]]\nname = "*"\ngrain = "day"\nstart = "x"', 64, 64, ["error", "note"]),
    (
        '[engines.x]\nkind = "nix"\n[[dataset]]\nname = "*"\ngrain = "day"',
        64,
        64,
        ["error", "note"],
    ),
]


@pytest.mark.parametrize(("toml", "code", "strict", "levels"), CHECKS)
def test_config_check(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    toml: str,
    code: int,
    strict: int,
    levels: list[str],
) -> None:
    (here / FILE).write_text(
        '[project]\nnamespace = "shop"\n[lineage]\nevents = ["events.ndjson"]\n' + toml
    )
    assert main(["config", "check", "--json"]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert fits(document, "config_check")
    assert document["ok"] is (code == 0)
    assert [one["level"] for one in document["findings"]] == levels
    assert main(["config", "check", "--strict"]) == strict


def test_a_mapping_function_that_cannot_be_loaded_is_a_finding(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / FILE).write_text(
        '[project]\nnamespace = "shop"\n[lineage]\nevents = ["events.ndjson"]\n'
        '[[dataset]]\nname = "*"\ngrain = "day"\n[[job]]\nname = "daily"\n'
        '[[job.reads]]\ndataset = "feed"\nmapping = "python"\nfunction = "nowhere_at_all:f"'
    )
    assert main(["config", "check"]) == 64
    assert "nowhere_at_all" in capsys.readouterr().out


def test_the_settings_and_the_lineage_are_documents(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "show", "--events", "events.ndjson", "--json"]) == 0
    assert fits(json.loads(capsys.readouterr().out), "config")
    assert main(["lineage", "show", "--events", "events.ndjson", "--json"]) == 0
    assert fits(json.loads(capsys.readouterr().out), "lineage")


def test_an_example_plans_and_runs_without_any_lineage(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "events.ndjson").unlink()
    assert main(["init", "--example"]) == 0
    said = capsys.readouterr()
    assert (said.out, "Try: lineage-backfill impact raw_orders --from" in said.err) == ("", True)
    assert main(["config", "check", "--strict"]) == 0
    fix = ["raw_orders", "--from", "2024-03-10T22", "--to", "2024-03-11T00"]
    assert main(["impact", *fix]) == 0
    shown = capsys.readouterr().out
    assert "4 jobs, 15 partitions" in shown
    assert "from the project file alone: no lineage is named" in shown
    assert main(["run", *fix, "--yes"]) == 0
    assert main(["init", "--example"]) == 64  # the file is there
    assert main(["init", "--example", "--out", "-"]) == 0
    assert capsys.readouterr().out == (here / FILE).read_text()
    assert main(["init", "--example", "--events", "e.ndjson", "--out", "-"]) == 64


def test_a_job_that_leaves_its_outputs_to_the_lineage_needs_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--example"]) == 0
    text = (here / FILE).read_text().replace('writes = [{ dataset = "sales_weekly" }]', "")
    (here / FILE).write_text(text)
    capsys.readouterr()
    assert main(["impact", "raw_orders", "--from", "2024-03-10T22"]) == 64
    assert "no lineage is named, and job weekly_sales declares no `writes`" in (
        capsys.readouterr().err
    )


UNITY = {
    "entity_type": "JOB",
    "entity_id": "1",
    "entity_run_id": "r",
    "source_table_full_name": "s.a",
    "target_table_full_name": "s.b",
    "event_time": "2024-06-01T00:00:00Z",
}
CLASS = """
from lineage_backfill import DatasetRef, JobNode, JobRef, LineageSnapshot

class Crm:
    def read(self):
        node = JobNode(ref=JobRef("crm", "load"), writes=(DatasetRef("crm", "s.b"),))
        return LineageSnapshot.of([node], source="crm")
"""
DBT = Path(__file__).parents[2] / "corpus" / "recorded" / "dbt_duckdb" / "manifest.json"


@pytest.mark.parametrize(
    ("source", "added"),
    [
        ('source = "unity", tables = "unity.jsonl"', 'name = "s.b"\ngrain = "?"'),
        ('source = "crm.py"', 'name = "s.b"\ngrain = "?"'),
        (f'source = "dbt", manifest = "{DBT}"', "shop.marts.orders_daily"),
    ],
)
def test_it_drafts_from_each_source_and_keeps_its_name(
    here: Path, capsys: pytest.CaptureFixture[str], source: str, added: str
) -> None:
    (here / "unity.jsonl").write_text(json.dumps(UNITY))
    (here / "crm.py").write_text(CLASS)
    named = f"[lineage]\nsources = [{{ {source} }}]\n"
    (here / FILE).write_text(named)
    assert main(["init"]) == 0
    text = (here / FILE).read_text()
    assert named in text
    assert added in text
    assert main(["init", "--force"]) == 64
    assert (here / FILE).read_text() == text
    assert "keeps its [lineage]" in capsys.readouterr().err


def test_the_engine_that_the_draft_asks_for_needs_no_lineage(here: Path) -> None:
    """A pattern of jobs declares no writes: it is no job."""
    (here / "made.py").write_text(
        CODE.replace('output="daily"', "output=OUT").replace(
            "@job", 'OUT = Dataset("daily", grain="day", start="2024-01-01")\n\n@job'
        )
    )
    assert main(["init", "--code", "made"]) == 0
    answer(here / FILE, "[[job]]", 'name = "*"', 'engine = "local"')
    assert main(["impact", "feed", "--partitions", "2024-01-02"]) == 0
