"""The plan of the demo is the same on any day it is run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from examples.demo.folder import EXAMPLE, prepare
from examples.demo.period import MARCH
from examples.demo.story import FAULT
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.workspace.configuration import load_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace
from spark_runtime.job.decorator import load_job
from tests.days import TURNS, WEEK


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], Plan]:
    """What plans the fix of the demo as of an instant, from what its jobs declare."""
    project = load_project(prepare(tmp_path / "demo", MARCH), environ={}, user_file=tmp_path)
    space = project.declarations.namespace or ""
    monkeypatch.syspath_prepend(EXAMPLE)
    jobs = [(one.name, load_job(one.entrypoint or "")) for one in project.declarations.jobs]
    for name in [name for name in sys.modules if name.partition(".")[0] == "pipeline"]:
        del sys.modules[name]
    lineage = LineageSnapshot.of(
        JobNode(
            ref=JobRef(space, name),
            reads=tuple(DatasetRef(space, str(edge.dataset)) for edge in job.reads),
            writes=tuple(DatasetRef(space, str(edge.dataset)) for edge in job.writes),
        )
        for name, job in jobs
    )
    fixed = ChangedDataset(
        dataset=DatasetRef(space, "flights_hourly"), keys=(f"{FAULT[0]}..{FAULT[-1]}",)
    )

    def planned(now: datetime) -> Plan:
        workspace = Workspace(project, as_of=now, read=lambda: lineage)
        return Planning(workspace).plan(Request(changed=(fixed,)))

    return planned


def test_the_fix_makes_the_same_runs_on_any_day(plan: Callable[[datetime], Plan]) -> None:
    runs = [
        [(run.job.name, run.partitions) for run in plan(now).runs or ()] for now in (*WEEK, *TURNS)
    ]
    assert len(runs[0]) > 12
    assert runs == [runs[0]] * len(runs)
