"""How long a plan will take, from the runs that the lineage and the run store tell of."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.ports import Move
from lineage_backfill.project import Project
from lineage_backfill.runs.estimate import Estimate
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace
from tests.fakes import NOW, backfill_record, planned_run

PROJECT = """
[project]
namespace = "n"
[lineage]
events = ["events.ndjson"]
[limits]
max_parallel = 1
[[dataset]]
name = "*"
grain = "day"
start = "2024-01-01"
[[job]]
name = "weekly"
batch = "range"
"""
START = datetime(2024, 1, 2, tzinfo=UTC)


def ran(job: str, days: int, seconds: int, number: int) -> list[dict[str, Any]]:
    """Return the events of a run over so many days."""
    end = START + timedelta(days=days)
    nominal = {"nominalStartTime": START.isoformat(), "nominalEndTime": end.isoformat()}
    run = {"runId": f"{job}-{number}", "facets": {"nominalTime": nominal}}
    begun = START + timedelta(days=30, hours=number)
    return [
        {
            "eventType": kind,
            "eventTime": at.isoformat(),
            "run": run,
            "job": {"namespace": "n", "name": job},
            "inputs": [{"namespace": "n", "name": "raw"}],
            "outputs": [{"namespace": "n", "name": f"{job}_out"}],
        }
        for kind, at in (("START", begun), ("COMPLETE", begun + timedelta(seconds=seconds)))
    ]


def project(folder: Path) -> Project:
    events = [
        event
        for number, days in enumerate((1, 2, 5))
        for event in [*ran("daily", 1, 10, number), *ran("weekly", days, 100 + days, number)]
    ]
    (folder / "events.ndjson").write_text("\n".join(map(json.dumps, events)))
    (folder / "lineage-backfill.toml").write_text(PROJECT)
    return open_project(folder / "lineage-backfill.toml")


def plan(opened: Project, **limits: Any) -> Plan:
    raw = ChangedDataset(dataset=DatasetRef("n", "raw"), keys=("2024-01-02..2024-01-04",))
    request = Request(changed=(raw,), **limits)
    return Planning(Workspace(opened, as_of=NOW)).plan(request)


def estimate(opened: Project, made: Plan, max_parallel: int | None = None) -> Estimate:
    found = Planning(Workspace(opened)).estimate(made, max_parallel=max_parallel)
    assert found is not None
    return found


def test_the_lineage_tells_how_long_a_run_takes(tmp_path: Path) -> None:
    opened = project(tmp_path)
    made = plan(opened)
    found = estimate(opened, made)
    assert {job.name: number for job, number in found.runs.items()} == {"daily": 3, "weekly": 1}
    assert found.left.seconds == 3 * 10 + 102  # one after the other, as the project says
    assert estimate(opened, made, max_parallel=4).left.seconds == 102


def test_what_the_run_store_tells_of_a_job_comes_first(tmp_path: Path) -> None:
    opened = project(tmp_path)
    made = plan(opened)
    runs = [planned_run(f"r{number}", job="daily") for number in range(3)]
    with Workspace(opened).open_store(create=True) as store:
        store.create(backfill_record(), {}, runs)
        lease = store.acquire("b-1", "me", now=NOW, ttl=timedelta(seconds=30))
        for run in runs:
            move = Move(run_id=run.id, state=RunState.SUBMITTED, attempt=1, token=run.id)
            store.record(lease, [move], now=NOW)
            done = Move(run_id=run.id, state=RunState.SUCCEEDED, attempt=1)
            store.record(lease, [done], now=NOW + timedelta(seconds=2))
        store.enter(lease, BackfillState.SUCCEEDED, now=NOW)
    usual = estimate(opened, made).usual
    assert usual[JobRef("n", "daily")] == 2
    assert usual[JobRef("n", "weekly")] == 102


def test_a_plan_without_its_runs_has_no_estimate(tmp_path: Path) -> None:
    opened = project(tmp_path)
    made = plan(opened).detailed(runs=None)
    assert Planning(Workspace(opened)).estimate(made) is None
