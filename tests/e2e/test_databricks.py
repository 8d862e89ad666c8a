"""docs/databricks.md, line by line: what replaces each definition and command of dbxdec."""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest
from databricks.sdk.service.jobs import TerminationCodeCode as Code
from databricks.sdk.service.jobs import TerminationTypeType as Type

from lineage_backfill.cli.main import main
from spark_runtime.job.context import RunContext
from tests.events import event, write_events
from tests.fake_databricks import GOOD, VOLUME, Ends, FakeRun, FakeWorkspace, serve

PAGE = (Path(__file__).parents[2] / "docs" / "databricks.md").read_text(encoding="utf-8")
NOON = "2024-06-17T12:00:00Z"
PROJECT = """
[project]
namespace = "shop"
[lineage]
events = ["lineage.ndjson"]
[run]
retries = 0
[limits]
max_parallel = 1
[engines.databricks]
kind = "databricks"
host = "{url}"
token = "env:WORKSPACE_TOKEN"
poll = 0.01
[target.dev.engines.databricks]
development = true
[[dataset]]
name = "raw"
grain = "day"
start = "2024-06-01"
[[dataset]]
name = "orders"
grain = "day"
start = "2024-06-01"
end = "2024-06-06"
[[job]]
name = "daily"
engine = "databricks"
[[job.reads]]
dataset = "raw"
[[job.writes]]
dataset = "orders"
"""


def past(
    job: str, day: int, reads: list[str], writes: list[str], state: str = "COMPLETE"
) -> dict[str, Any]:
    """An event of a past run of a job for a day of June."""
    nominal = {
        "nominalStartTime": f"2024-06-{day:02}T00:00:00Z",
        "nominalEndTime": f"2024-06-{day + 1:02}T00:00:00Z",
    }
    run = {"runId": str(uuid5(NAMESPACE_URL, f"{job} {day}")), "facets": {"nominalTime": nominal}}
    ended = {"eventType": state, "eventTime": f"2024-06-{day + 1:02}T03:00:00Z", "run": run}
    return event(job, reads, writes) | ended


ENTRY = 'entrypoint = "pipeline.jobs:daily"\nbatch = "key"\n'
RUNS = [
    *(past("load", day, [], ["raw"]) for day in range(1, 17)),
    *(past("daily", day, ["raw"], ["orders"]) for day in range(1, 4)),
    past("daily", 4, ["raw"], ["orders"], "FAIL"),
]


def rows(heading: str) -> Iterator[list[str]]:
    """Yield the cells of a table of the page, by the first cell of its heading."""
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        lines = [
            [cell.strip() for cell in line.strip("|\n").split(" | ")] for line in block.splitlines()
        ]
        if lines[0][0].strip("| ") == heading:
            yield from ([cell.strip("| ") for cell in line] for line in lines[2:])


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWorkspace]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKSPACE_TOKEN", "dapi-1")
    fake = FakeWorkspace(tmp_path)
    fake.job("daily", "backfill_key")
    fake.job("[dev ana_maria] daily", "backfill_key")
    with serve(fake) as url:
        Path("lineage-backfill.toml").write_text(PROJECT.format(url=url))
        write_events(tmp_path / "lineage.ndjson", *RUNS)
        yield fake


@pytest.mark.parametrize(("definition", "here", "keys"), [*rows("definition")])
def test_each_definition_has_the_keys_that_the_page_names(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    definition: str,
    here: str,
    keys: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "\n".join(re.findall(r"`([^`]+)`", here))
    assert len(tomllib.loads(lines)) >= 1
    Path("lineage-backfill.toml").write_text(
        f'[project]\nnamespace = "shop"\n[[dataset]]\nname = "orders"\n{lines}\n'
        '[[job]]\nname = "daily"\n[[job.writes]]\ndataset = "orders"\n'
    )
    first, last = keys.split(" … ")
    static = first == "eu"
    asked = ["--partitions", "*"] if static else ["--from", first]
    found = main(["impact", "--job", "daily", *asked, "--now", NOON, "--json"])
    assert found == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    shown = job["partitions"]
    assert shown == (["eu", "jp", "us"] if static else [f"{first}..{last}"])


@pytest.mark.parametrize(("command", "here", "runs"), [*rows("command")])
def test_each_command_runs_the_keys_that_the_page_names_in_its_order(
    workspace: FakeWorkspace, capsys: pytest.CaptureFixture[str], command: str, here: str, runs: str
) -> None:
    asked = here.strip("`").split()
    more = [] if asked[0] in ("impact", "stale") else ["--yes"]
    assert main([*asked, *more, "--now", NOON]) == 0, capsys.readouterr()
    name = "[dev ana_maria] daily" if "dev" in asked else "daily"
    done = [run.parameters["backfill_key"] for run in workspace.started(name)]
    assert (", ".join(done) or "none") == runs
    assert len(workspace.runs) == len(done)


@pytest.mark.parametrize(("feature", "here", "planned"), [*rows("feature")])
def test_each_feature_plans_what_the_page_names(
    workspace: FakeWorkspace,
    capsys: pytest.CaptureFixture[str],
    feature: str,
    here: str,
    planned: str,
) -> None:
    words = re.findall(r"`([^`]+)`", here)
    for name in re.findall(r"context\.(\w+)", here):
        assert hasattr(RunContext, name)
    if words[0].startswith("[["):
        project = Path("lineage-backfill.toml").read_text()
        head, table, rest = project.rpartition(words[0])
        line, _, below = rest.partition("\n")
        settings = "\n".join(word for word in words if " = " in word)
        Path("lineage-backfill.toml").write_text(f"{head}{table}{line}\n{settings}\n{below}")
    exact = ["--exact"] if "impact --exact" in words else []
    asked = ["impact", "raw", "--partitions", "2024-06-05", *exact, "--now", NOON, "--json"]
    assert main(asked) == 0, capsys.readouterr()
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["partitions"] == [planned]


def test_doctor_names_the_login_and_a_job_that_was_never_deployed(
    workspace: FakeWorkspace, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor"])
    said = " ".join(capsys.readouterr().out.split())
    assert "answers and accepts this account; it has 1 job" in said
    workspace.jobs.clear()
    assert main(["doctor"]) != 0
    assert "Databricks has no job daily" in " ".join(capsys.readouterr().out.split())


def test_catch_up_on_a_job_that_was_never_deployed_says_so(
    workspace: FakeWorkspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.jobs.clear()
    assert main(["catchup", "--select", "daily", "--yes", "--now", NOON]) == 64
    assert "Databricks has no job daily" in " ".join("".join(capsys.readouterr()).split())
    assert not workspace.runs


def test_an_active_run_of_others_on_a_key_is_refused_before_anything_starts(
    workspace: FakeWorkspace, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path("lineage-backfill.toml")
    file.write_text(file.read_text().replace("[run]", '[run]\nlive_runs = "refuse"'))
    (number,) = (one for one, job in workspace.jobs.items() if job.name == "daily")
    workspace.does["daily"] = lambda run: None if run.id == 1 else GOOD
    workspace.runs[1] = FakeRun(1, None, number, {"backfill_key": "2024-06-04"}, [])
    asked = ["run", "--job", "daily", "--yes", "--now", NOON, "--partitions"]
    assert main([*asked, "2024-06-04"]) == 6
    assert len(workspace.runs) == 1
    assert main([*asked, "2024-06-05"]) == 0
    assert len(workspace.runs) == 2


def test_a_run_that_fails_ends_the_command_with_3(
    workspace: FakeWorkspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.does["daily"] = lambda _run: (Code.RUN_EXECUTION_ERROR, Type.CLIENT_ERROR, "boom")
    asked = ["run", "--job", "daily", "--partitions", "2024-06-04", "--yes", "--now", NOON]
    assert main(asked) == 3
    assert "RUN_EXECUTION_ERROR: boom" in "".join(capsys.readouterr())


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_repaired_run_is_as_old_as_its_first_try(
    workspace: FakeWorkspace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    is_changed: bool,
) -> None:
    file = Path("lineage-backfill.toml")
    jobs = '[engines.databricks.jobs]\ndaily = { job = "daily", repair = true }\n[target'
    file.write_text(file.read_text().replace("[target", jobs))
    bad = (Code.RUN_EXECUTION_ERROR, Type.CLIENT_ERROR, "boom")
    workspace.does["daily"] = lambda run: GOOD if run.repairs else bad
    asked = ["run", "--job", "daily", "--partitions", "2024-06-04", "--yes", "--now", NOON]
    assert main(asked) == 3
    if is_changed:
        time.sleep(0.01)  # the instants of events have milliseconds
        now = {"eventTime": datetime.now(UTC).isoformat()}
        again = past("load", 4, [], ["raw"]) | now
        write_events(tmp_path / "lineage.ndjson", *RUNS, again)
    assert main(["retry"]) == 0, capsys.readouterr()
    (run,) = workspace.runs.values()
    assert len(run.repairs) == 1
    capsys.readouterr()
    main(["stale", "--select", "daily", "--json"])
    (found,) = json.loads(capsys.readouterr().out)["jobs"]
    older = [key for one in found["older"] for key in one["partitions"]]
    assert ("2024-06-04" in older) == is_changed


def test_jobs_that_are_not_in_the_workspace_are_one_run_for_all_that_is_ready(
    workspace: FakeWorkspace, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path("lineage-backfill.toml")
    engine = f'lists = true\nvolume = "{VOLUME}"\ncluster = {{ existing_cluster_id = "c-1" }}\n'
    table = 'table = "main.shop.orders"\ncolumn = "day"\n[[job]]'
    project = file.read_text().replace("poll = 0.01\n", f"poll = 0.01\n{engine}")
    project = project.replace("max_parallel = 1", "max_parallel = 10").replace("[[job]]", table)
    file.write_text(project.replace('engine = "databricks"\n', f'engine = "databricks"\n{ENTRY}'))
    done: list[list[str]] = []

    def task(spec: Mapping[str, Any]) -> Ends:
        runs = spec.get("runs", [spec])
        done.append([key["key"] for run in runs for key in run["keys"]])
        for run in runs:
            result = {"token": run["token"], "state": "succeeded", "outputs": []}
            Path(run["result_path"]).write_text(json.dumps(result))
        return GOOD

    workspace.task = task
    asked = ["run", "--job", "daily", "--from", "2024-06-01", "--to", "2024-06-04", "--yes"]
    assert main([*asked, "--now", NOON]) == 0, capsys.readouterr()
    assert done == [["2024-06-01", "2024-06-02", "2024-06-03", "2024-06-04"]]
    assert len(workspace.runs) == 1
