"""What a plan says of its jobs that the edges do not tell."""

from __future__ import annotations

from datetime import UTC, datetime

from lineage_backfill.graph.details import DetailedSnapshot, Details
from lineage_backfill.graph.lineage import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plan.advice import advice
from lineage_backfill.plan.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
)
from lineage_backfill.plan.planner import build_plan
from lineage_backfill.plan.request import ChangedDataset, Request

RAW, CLEAN, PAGE = (DatasetRef("n", name) for name in ("raw", "clean", "page"))
DAG, TASK, REPORT, MAIL = (JobRef("n", name) for name in ("etl", "etl.clean", "report", "mail"))
JOBS = [
    JobNode(ref=DAG),
    JobNode(ref=TASK, reads=(RAW,), writes=(CLEAN,), parent=DAG),
    JobNode(ref=REPORT, reads=(CLEAN,), writes=(PAGE,)),
    JobNode(ref=MAIL),
]


def said(details: Details | None = None, jobs: list[JobNode] | None = None) -> list[str]:
    snapshot: LineageSnapshot = LineageSnapshot.of(jobs or JOBS)
    if details:
        snapshot = DetailedSnapshot.of(jobs or JOBS, details=details)
    every = DatasetDeclaration(
        name="*", calendar=CalendarDeclaration(grain="day", start="2024-01-01")
    )
    plan = build_plan(
        Request(changed=(ChangedDataset(dataset=RAW, keys=("2024-01-02",)),)),
        snapshot,
        Declarations(namespace="n", datasets=(every,)),
        now=datetime(2024, 1, 5, tzinfo=UTC),
    )
    return list(advice(plan, snapshot))


def test_nothing_told_is_nothing_said() -> None:
    assert said() == []
    assert said(Details(after={REPORT: (TASK,)})) == [], "the data leads there as well"
    assert said(Details(after={MAIL: (JobRef("n", "other"),)})) == []


def test_what_an_orchestrator_starts_after_a_planned_job_is_missed_aloud() -> None:
    for waited_for in (REPORT, DAG, TASK):  # a DAG is its tasks
        (text,) = said(Details(after={MAIL: (waited_for,)}))
        assert text.startswith("not planned, for no data is known to lead there")
        assert text.endswith(": n:mail")


def test_streams_and_dropped_datasets_are_planned_aloud() -> None:
    stream = JobNode(ref=REPORT, reads=(CLEAN,), writes=(PAGE,), processing="STREAM")
    (text,) = said(jobs=[*JOBS[:2], stream])
    assert text == "planned although they are streams, which have no runs by partition: n:report"
    (text,) = said(Details(dropped=frozenset({PAGE, DatasetRef("n", "far")})))
    assert text == "read or written although they were dropped since: n:page"
