"""What a plan says of its jobs that the edges do not tell."""

from __future__ import annotations

from datetime import UTC, datetime

from lineage_backfill.critic.advice import advice, former_only, left_out
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.planner import build_plan
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
)

RAW, CLEAN, PAGE = (DatasetRef("n", name) for name in ("raw", "clean", "page"))
DAG, TASK, REPORT, MAIL = (JobRef("n", name) for name in ("etl", "etl.clean", "report", "mail"))
JOBS = [
    JobNode(ref=DAG),
    JobNode(ref=TASK, reads=(RAW,), writes=(CLEAN,), parent=DAG),
    JobNode(ref=REPORT, reads=(CLEAN,), writes=(PAGE,)),
    JobNode(ref=MAIL),
]


def said(*changed: JobNode) -> list[str]:
    """Return the advice where these jobs take the place of their namesakes."""
    made = planned(*changed)
    return [*advice(*made), *(one.text for one in left_out(*made) if one.kind == "inner")]


def planned(*changed: JobNode, include_former: bool = False) -> tuple[Plan, LineageSnapshot]:
    """Return the plan and the lineage where these jobs take the place of their namesakes."""
    jobs = {node.ref: node for node in [*JOBS, *changed]}
    snapshot = LineageSnapshot.of(jobs.values())
    every = DatasetDeclaration(
        name="*", calendar=CalendarDeclaration(grain="day", start="2024-01-01")
    )
    plan = build_plan(
        Request(
            changed=(ChangedDataset(dataset=RAW, keys=("2024-01-02",)),),
            include_former=include_former,
        ),
        snapshot,
        Declarations(namespace="n", datasets=(every,)),
        now=datetime(2024, 1, 5, tzinfo=UTC),
    )
    return plan, snapshot


def test_nothing_told_is_nothing_said() -> None:
    assert said() == []


def test_what_only_older_runs_have_read_or_written_is_missed_aloud() -> None:
    old = DatasetRef("n", "old")
    for jobs in (
        [JobNode(ref=MAIL, former_reads=(RAW,))],  # what changed
        [JobNode(ref=MAIL, former_reads=(CLEAN,))],  # what a planned job writes
        [JobNode(ref=TASK, reads=(RAW,), writes=(CLEAN,), former_writes=(old,))]
        + [JobNode(ref=MAIL, reads=(old,))],  # what it wrote
    ):
        assert former_only(*planned(*jobs)) == [MAIL]
        assert said(*jobs) == [], "it is a decision of the plan, not a warning as well"
        assert former_only(*planned(*jobs, include_former=True)) == []
    elsewhere = JobNode(ref=MAIL, former_reads=(old,))
    assert former_only(*planned(elsewhere)) == []
    known = JobNode(ref=REPORT, reads=(CLEAN,), writes=(PAGE,), former_reads=(RAW,))
    assert former_only(*planned(known)) == []


def test_what_a_job_reads_within_itself_alone_is_missed_aloud() -> None:
    for inner in (RAW, CLEAN):  # what changed, what a planned job writes
        (text,) = said(JobNode(ref=MAIL, inner=(inner,)))
        assert text.startswith("not planned: they read changed data only where their own parts")
        assert text.endswith(": n:mail")
    assert said(JobNode(ref=MAIL, inner=(DatasetRef("n", "far"),))) == []
    assert said(JobNode(ref=REPORT, reads=(CLEAN,), writes=(PAGE,), inner=(PAGE,))) == []


def test_streams_are_planned_aloud() -> None:
    stream = JobNode(ref=REPORT, reads=(CLEAN,), writes=(PAGE,), processing="STREAM")
    (text,) = said(stream)
    assert text == "planned, but streaming jobs, which have no runs by partition: n:report"
