"""What `status`, `report` and `stale` show of 10 to 5,000 jobs, pinned at three widths."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import RenderableType
from syrupy.assertion import SnapshotAssertion

from lineage_backfill import plan_to_dict
from lineage_backfill.cli.commands import stale
from lineage_backfill.cli.main import main
from lineage_backfill.cli.options import ListOptions
from lineage_backfill.cli.output.grid import table
from lineage_backfill.cli.output.render import SHORT
from lineage_backfill.cli.output.tables import report_table, status_table
from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.partitions.keys import NOTHING
from lineage_backfill.partitions.text import parse
from lineage_backfill.ports import RunRecord
from lineage_backfill.runs import reports
from lineage_backfill.show.text import UNKNOWN
from lineage_backfill.staleness.staleness import Older, Staleness
from tests.unit.cli import plans, reports_of
from tests.unit.cli.test_render import shown

SIZES, WIDTHS = (10, 40, 400, 5_000), (80, 120, 200)
_many = cache(plans.many)


def status(jobs: int, listing: ListOptions = SHORT) -> RenderableType:
    """The status of a backfill in which the job of every 90 fails, and blocks the next one."""
    plan = _many(jobs)
    names = [job.job for job in plan.jobs]
    states = dict.fromkeys(names, RunState.SUCCEEDED)
    states |= dict.fromkeys(names[4::90], RunState.FAILED)
    states |= dict.fromkeys(names[5::90], RunState.BLOCKED)
    errors = {RunState.FAILED: "ValueError: a bad row", RunState.BLOCKED: "t2 did not succeed"}
    runs = [
        RunRecord.of(
            run,
            state=states[run.job],
            attempt=int(states[run.job] is not RunState.BLOCKED),
            started_at=reports_of.BEGUN,
            ended_at=reports_of.BEGUN + timedelta(seconds=12),
            error=errors.get(states[run.job]),
        )
        for run in plan.runs or ()
    ]
    record = reports_of.record(BackfillState.FAILED)
    return status_table(reports.status(record, plan_to_dict(plan), runs), listing)


def report(jobs: int, listing: ListOptions = SHORT) -> RenderableType:
    """The report of a backfill in which every 90th table was not rewritten."""
    document: dict[str, Any] = reports_of.report_of_success()
    good, *_ = document["outputs"]
    outputs = [
        {
            **good,
            "job": {"namespace": "nyc", "name": job.job.name},
            "dataset": {"namespace": "nyc", "name": job.job.name.removeprefix("job_")},
            "emptied": {"count": 0, "partitions": []},
        }
        for job in _many(jobs).jobs
    ]
    for output in outputs[4::90]:
        output |= {"exact": False, "touched": {"count": 0}, "missing": output["planned"]}
        output |= {"changed": {"count": 0}}
    times = [{"job": one["job"], "seconds": 12.0, "runs": 1} for one in outputs]
    document |= {"outputs": outputs, "times": times, "touched_is_planned": False}
    return report_table(document, listing)


def stale_tables(jobs: int, listing: ListOptions = SHORT) -> RenderableType:
    """What is stale where inputs of each second job changed, and of each third nothing is known."""
    daily = reports_of.calendar_of(plans.dataset("daily"))
    keys = parse(daily, ("2013-03-10..2013-03-11",))
    found = [
        Staleness(
            job=job.job,
            calendar=daily,
            missing=keys if number % 2 else NOTHING,
            older=()
            if number % 2
            else (Older(dataset=plans.dataset("feed"), keys=keys, at=plans.NOW, version=7),),
            why=() if number % 3 else ("its log cannot be read: not a Delta table",),
        )
        for number, job in enumerate(_many(jobs).jobs)
    ]
    made = SimpleNamespace(jobs=tuple(found), silent={}, plan=_many(jobs))
    return stale.stale_tables(made, listing)  # type: ignore[arg-type]  # without a workspace


SCREENS = [status, report, stale_tables]
Screen = Callable[..., RenderableType]


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("jobs", SIZES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_screen_is_short_and_names_are_whole(
    screen: Screen, jobs: int, width: int, snapshot: SnapshotAssertion
) -> None:
    text = shown(screen(jobs), width)
    assert len(text.splitlines()) <= 60
    assert text == snapshot


@pytest.mark.parametrize("screen", SCREENS)
def test_all_lists_every_job_whole(screen: Screen) -> None:
    text = shown(screen(400, ListOptions(every=True)), 80)
    assert all(job.job.name.removeprefix("job_") in text for job in _many(400).jobs[:9])
    assert "--all lists" not in text


def test_a_long_word_stands_below_its_row_unbroken() -> None:
    path = "day=2024-03-10/region=eu-central-north"
    rows = [("x" * 30, "a reason of a few words that is folded"), ("y" * 30, path)]
    lines = shown(table("Job", "Why", rows=rows), 60).splitlines()
    assert lines[-2:] == ["y" * 30, f"    {path}"]
    assert lines[1].endswith("a reason of a few words that")


def test_a_column_that_holds_nothing_is_left_out() -> None:
    rows = [("a", "", "1"), ("b", UNKNOWN, "2")]
    assert shown(table("Job", "Owner", "Runs", rows=rows), 60) == "Job  Runs\na    1\nb    2"


def test_status_lists_what_was_asked_for_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--example"]) == 0
    project = Path("lineage-backfill.toml")
    project.write_text(project.read_text().replace('argv = ["echo"', 'argv = ["ls", "/no-disk"'))
    assert main(["run", "raw_orders", "--partitions", "2024-03-10T22", "--yes"]) == 3

    def lines(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(["status", *arguments]) == code
        return "".join(capsys.readouterr())

    failed = lines("--failed", "--log")
    assert "failed  clean_orders" in failed
    assert "blocked  " not in failed
    assert "== clean_orders 2024-03-10T22, attempt 1\n" in failed
    assert "/no-disk" in failed.partition("==")[2]
    assert "State    Job           Partitions" in lines("--state", "blocked")
    runs = json.loads(lines("--job", "daily_sales", "--json"))["runs"]
    assert [run["job"]["name"] for run in runs] == ["daily_sales"]
    assert "Did you mean daily_sales or" in lines("--job", "daily_sale", code=64)
    assert "Drop --json or --log." in lines("--log", "--json", code=64)
