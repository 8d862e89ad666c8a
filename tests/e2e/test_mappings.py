"""Mappings of the project file through the command line: what is planned, read and run."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.planner import build_plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.ports import Trace
from lineage_backfill.store.empty import EmptyRunStore
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.workspace import Workspace
from spark_runtime.configuration import load_project
from spark_runtime.job.decorator import load_job
from spark_runtime.job.scheduled import StartRequest, declare, run_specs

HEAD = '[project]\nnamespace = "w"\nzone = "UTC"\n'
NOW = "2024-04-01T12:00:00Z"


def impact(folder: Path, toml: str, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Return the plan that the command line prints for a project file."""
    (folder / "lineage-backfill.toml").write_text(HEAD + toml)
    config = ("--config", str(folder / "lineage-backfill.toml"))
    assert main(["impact", *words, *config, "--json", "--now", NOW]) == 0
    return json.loads(capsys.readouterr().out)


def planned(plan: Any, job: str) -> Any:
    (found,) = (one for one in plan["jobs"] if one["job"]["name"] == job)
    return found["partitions"]


def reads(plan: Any, key: str) -> dict[str, Any]:
    (run,) = (one for one in plan["runs"] if one["partitions"] == [key])
    return {part["dataset"]["name"]: part.get("partitions") for part in run["reads"]}


ATTRIBUTION = """
[[dataset]]
name = "*"
grain = "day"
start = "2024-01-01"
[[job]]
name = "attribute"
[[job.reads]]
dataset = "clicks"
mapping = "window"
before = 29
[[job.reads]]
dataset = "orders"
lookback = 7
[[job.writes]]
dataset = "credit"
"""


def test_a_lookback_of_one_input_widens_that_input_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = impact(tmp_path, ATTRIBUTION, capsys, "clicks", "--partitions", "2024-02-01")
    assert planned(plan, "attribute") == ["2024-02-01..2024-03-01"]
    assert reads(plan, "2024-02-01") == {
        "clicks": ["2024-01-03..2024-02-01"],
        "orders": ["2024-02-01..2024-02-08"],
    }
    plan = impact(tmp_path, ATTRIBUTION, capsys, "orders", "--partitions", "2024-02-10")
    assert planned(plan, "attribute") == ["2024-02-03..2024-02-10"]


RATES = """
[[dataset]]
name = "rates"
boundaries = [
    ["jan", "2024-01-01", "2024-01-08"], ["ill", "2024-01-08", "2024-01-20"],
    ["feb", "2024-01-25", "2024-02-10"],
]
[[dataset]]
name = "d*"
grain = "day"
start = "2024-01-01"
end = "2024-02-12"
[[job]]
name = "convert"
[[job.reads]]
dataset = "rates"
mapping = "{mapping}"
[[job.writes]]
dataset = "d_converted"
"""


def test_as_of_reads_the_key_that_is_valid_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = RATES.replace("{mapping}", "as_of")
    plan = impact(tmp_path, toml, capsys, "rates", "--partitions", "ill")
    assert planned(plan, "convert") == ["2024-01-08..2024-01-24"]
    assert reads(plan, "2024-01-22") == {"rates": ["ill"]}
    plan = impact(tmp_path, toml, capsys, "rates", "--partitions", "feb")
    assert planned(plan, "convert") == ["2024-01-25..2024-02-12"]


def test_last_reads_the_newest_key_and_infers_who_read_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = RATES.replace("{mapping}", "last")
    plan = impact(tmp_path, toml, capsys, "rates", "--partitions", "ill")
    assert planned(plan, "convert") == ["2024-01-08..2024-01-24"]
    assert reads(plan, "2024-01-22") == {"rates": ["feb"]}
    (one,) = plan["jobs"]
    assert one["reason"]["inputs"][0]["inferred"] is True


def test_last_knows_who_read_a_key_where_the_lineage_records_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = {"identifier": "i", "dimensions": {"key": "ill"}}
    subset = {"inputCondition": {"type": "partition", "partitions": [partition]}}
    event = {
        "eventType": "COMPLETE",
        "eventTime": "2024-02-11T00:00:00Z",
        "run": {
            "runId": "00000000-0000-4000-8000-000000000001",
            "facets": {"lineageBackfill_run": {"keys": ["2024-02-02..2024-02-03"]}},
        },
        "job": {"namespace": "w", "name": "convert"},
        "inputs": [{"namespace": "w", "name": "rates", "inputFacets": {"subset": subset}}],
        "outputs": [{"namespace": "w", "name": "d_converted"}],
    }
    (tmp_path / "events.ndjson").write_text(json.dumps(event))
    toml = '[lineage]\nevents = ["events.ndjson"]\n' + RATES.replace("{mapping}", "last")
    plan = impact(tmp_path, toml, capsys, "rates", "--partitions", "ill")
    assert planned(plan, "convert") == ["2024-01-08..2024-01-24", "2024-02-02..2024-02-03"]
    plan = impact(tmp_path, toml, capsys, "rates", "--partitions", "feb")
    assert planned(plan, "convert") == ["2024-01-25..2024-02-01", "2024-02-04..2024-02-12"]


class Recorded(EmptyRunStore):
    """A run store with one run, of two keys."""

    def traces(self, job: JobRef, keys: KeySet) -> tuple[Trace, ...]:
        reads = [{"dataset": ["w", "rates"], "keys": ["ill"], "digests": "", "version": 3}]
        ran = ("2024-02-02..2024-02-03",)
        return (Trace(job=job, keys=ran, contents={"reads": reads}, backfill_id="b", number=1),)


def test_last_knows_who_read_a_key_where_the_run_store_records_it(tmp_path: Path) -> None:
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(HEAD + RATES.replace("{mapping}", "last"))
    project = open_project(file)
    here = Workspace(project, as_of=datetime.fromisoformat(NOW), store=Recorded())
    rates = DatasetRef("w", "rates")
    found = []
    for key in ("ill", "feb"):
        asked = Request(changed=(ChangedDataset(dataset=rates, keys=(key,)),))
        (one,) = build_plan(asked, here.snapshot, project.declarations, now=here.now).jobs
        found.append(list(one.partitions))
    assert found == [
        ["2024-01-08..2024-01-24", "2024-02-02..2024-02-03"],
        ["2024-01-25..2024-02-01", "2024-02-04..2024-02-12"],
    ]


@pytest.mark.parametrize(
    ("mapping", "changed", "expected"),
    [
        ('mapping = "window"\nafter = "4h"', "2024-03-11T03", ["2024-03-10..2024-03-11"]),
        ('mapping = "window"\nafter = "4h"', "2024-03-11T04", ["2024-03-11"]),
        ('mapping = "window"\nbefore = "1d"', "2024-03-09T23", ["2024-03-09..2024-03-10"]),
        ('mapping = "offset"\nby = "-1d"', "2024-03-10T23", ["2024-03-11"]),
    ],
)
def test_a_window_and_an_offset_may_count_time(
    mapping: str, changed: str, expected: list[str], tmp_path: Path, capsys: Any
) -> None:
    toml = f"""
    [[dataset]]
    name = "hours"
    grain = "hour"
    zone = "America/New_York"
    start = "2024-01-01T00"
    [[dataset]]
    name = "days"
    grain = "day"
    zone = "America/New_York"
    start = "2024-01-01"
    [[job]]
    name = "sum"
    [[job.reads]]
    dataset = "hours"
    {mapping}
    [[job.writes]]
    dataset = "days"
    """
    plan = impact(tmp_path, toml, capsys, "hours", "--partitions", changed)
    assert planned(plan, "sum") == expected


SCD2 = """
[[dataset]]
name = "changes"
grain = "day"
start = "2024-03-20"
[[dataset]]
name = "customers"
grain = "none"
[[dataset]]
name = "report"
grain = "day"
start = "2024-03-30"
[[job]]
name = "merge"
grain = "day"
start = "2024-03-20"
depends_on_past = true
[[job.reads]]
dataset = "changes"
[[job.reads]]
dataset = "customers"
[[job.writes]]
dataset = "customers"
mode = "merge"
merge_on = ["id"]
[[job]]
name = "report"
[[job.reads]]
dataset = "customers"
[[job.writes]]
dataset = "report"
"""


def test_a_job_that_depends_on_its_past_continues_in_order_to_the_newest_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = impact(tmp_path, SCD2, capsys, "changes", "--partitions", "2024-03-28")
    assert planned(plan, "merge") == ["2024-03-28..2024-03-31"]
    assert planned(plan, "report") == ["2024-03-30..2024-03-31"]
    runs = {(one["job"]["name"], *one["partitions"]): one for one in plan["runs"]}
    merges = [runs["merge", f"2024-03-{day}"] for day in (28, 29, 30, 31)]
    assert [one["upstream"] for one in merges] == [[], *([one["id"]] for one in merges[:-1])]
    assert merges[-1]["id"] in runs["report", "2024-03-30"]["upstream"]


def test_a_job_without_time_cannot_depend_on_its_past(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = SCD2.replace('name = "merge"\ngrain = "day"\nstart = "2024-03-20"\n', 'name = "merge"\n')
    plan = impact(tmp_path, toml, capsys, "changes", "--partitions", "2024-03-28")
    found = {one["job"]["name"]: one for one in plan["jobs"]}
    assert found["merge"]["status"] == "blocked"
    assert "depends on its past" in found["merge"]["reason"]["text"]


@pytest.mark.parametrize(
    "words", [("impact", "days", "--partitions", "2024-03-01"), ("config", "check")]
)
def test_a_window_over_a_dataset_that_nothing_knows_is_refused(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = """
    [[dataset]]
    name = "days"
    grain = "day"
    start = "2024-01-01"
    [[dataset]]
    name = "made"
    grain = "day"
    start = "2024-01-01"
    [[job]]
    name = "make"
    [[job.reads]]
    dataset = "days"
    [[job.reads]]
    dataset = "mystery"
    mapping = "window"
    before = 3
    [[job.writes]]
    dataset = "made"
    """
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(HEAD + toml)
    assert main([*words, "--config", str(file)]) == 64
    shown = capsys.readouterr()
    assert "window over a dataset whose keys nothing" in " ".join((shown.out + shown.err).split())


CODE = """
from spark_runtime import Dataset, as_of, job, last, offset, overlap, window

A, B, C, D, E, OUT = (
    Dataset(name, location=name, grain="day", start="2024-01-01", column="ds")
    for name in ("a", "b", "c", "d", "e", "out")
)

@job(
    inputs={
        "a": last(A), "b": as_of(B), "c": window(C, before=2, after="4h"),
        "d": overlap(D, lookback=7), "e": offset(E, "-1d"),
    },
    output=OUT,
)
def make(a, b, c, d, e):
    return a
"""


def test_code_states_the_mappings_and_a_scheduled_run_reads_what_a_plan_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mapped_jobs.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    plan = impact(tmp_path, 'jobs = ["mapped_jobs"]\n', capsys, "d", "--partitions", "2024-03-10")
    assert planned(plan, "make") == ["2024-03-03..2024-03-10"]
    assert reads(plan, "2024-03-03") == {
        "a": ["2024-03-31"],
        "b": ["2024-03-03"],
        "c": ["2024-03-01..2024-03-04"],
        "d": ["2024-03-03..2024-03-10"],
        "e": ["2024-03-02"],
    }
    project, made = load_project(tmp_path), load_job("mapped_jobs:make")
    declared = declare(project, "make", reads=made.reads, writes=made.writes)
    asked = StartRequest(keys=["2024-03-03"], exact=True)
    (spec,) = run_specs(declared, project, asked, datetime.fromisoformat(NOW))
    for one in spec.inputs:
        (keys,) = reads(plan, "2024-03-03")[one.dataset.name]
        first, _, end = keys.partition("..")
        assert one.partitions is not None
        assert (one.partitions[0].key, one.partitions[-1].key) == (first, end or first)


FISCAL = """
from spark_runtime import Dataset, job

LISTED = {"boundaries": "fiscal.csv", "column": "period"}
SALES = Dataset("sales", location="sales", **LISTED)

@job(inputs={"sales": SALES}, output=Dataset("closed", location="closed", **LISTED))
def close(sales):
    return sales
"""


def test_a_list_of_the_code_is_relative_to_its_folder_wherever_a_run_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "src"
    code.mkdir()
    (code / "fiscal_jobs.py").write_text(FISCAL)
    (code / "fiscal.csv").write_text("key,start,end\nP01,2024-01-29,2024-02-26\n")
    monkeypatch.syspath_prepend(code)
    toml = 'code = "src"\njobs = ["fiscal_jobs"]\n'
    plan = impact(tmp_path, toml, capsys, "sales", "--partitions", "P01")
    assert planned(plan, "close") == ["P01"]
    project, made = load_project(tmp_path), load_job("fiscal_jobs:close")
    declared = declare(project, "close", reads=made.reads, writes=made.writes)
    (spec,) = run_specs(declared, project, StartRequest(), datetime.fromisoformat(NOW))
    assert [str(one.key) for one in spec.keys] == ["P01"]
