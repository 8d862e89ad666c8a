"""What differs between two lineages is told once, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lineage_backfill.lineage.compare import DatasetChange, Difference, JobChange, compare
from lineage_backfill.lineage.snapshot import (
    ColumnEdge,
    DatasetNode,
    JobNode,
    LineageSnapshot,
    ObservedRun,
)
from lineage_backfill.model import DatasetRef, JobRef

A, B, C = (DatasetRef("n", name) for name in "abc")
JOB, GONE, NEW = (JobRef("n", name) for name in ("job", "gone", "new"))


def edge(column: str, **more: Any) -> ColumnEdge:
    return ColumnEdge(job=JOB, input=A, input_column=column, output=B, output_column=column, **more)


OLD = LineageSnapshot.of(
    [
        JobNode(ref=JOB, reads=(A,), writes=(B,), owners=("me",), former_reads=(C,)),
        JobNode(ref=GONE, reads=(B,)),
    ],
    [DatasetNode(ref=A, fields=("x", "y"), tags=("t",))],
    column_edges=(edge("x"), edge("y")),
    history=(ObservedRun(job=JOB, run_id="1", state="COMPLETE"),),
)


def test_the_same_differs_in_nothing() -> None:
    assert not compare(OLD, OLD)
    later = replace(OLD, history=(), warnings=("w",), source="x")
    assert not compare(OLD, later), "runs, warnings and the source are not the lineage"


def test_all_that_differs() -> None:
    new = LineageSnapshot.of(
        [
            JobNode(
                ref=JOB,
                reads=(A, C),
                owners=("you",),
                partitioning={"grain": "day"},
                former_writes=(B,),
            ),
            JobNode(ref=NEW, writes=(C,)),
        ],
        [DatasetNode(ref=A, fields=("x", "z"), tags=())],
        column_edges=(edge("x", direct=False), edge("y")),
    )
    assert compare(OLD, new) == Difference(
        jobs_added=(NEW,),
        jobs_removed=(GONE,),
        jobs_changed=(
            JobChange(
                job=JOB,
                reads_added=(C,),
                writes_removed=(B,),
                columns_added=(edge("x", direct=False),),
                columns_removed=(edge("x"),),
                said=("owners", "partitioning"),
            ),
        ),
        datasets_added=(C,),
        datasets_removed=(B,),
        datasets_changed=(
            DatasetChange(dataset=A, columns_added=("z",), columns_removed=("y",), said=("tags",)),
        ),
    )
    back = compare(new, OLD)
    assert (back.jobs_added, back.jobs_removed) == ((GONE,), (NEW,))
    assert back.datasets_changed[0].columns_added == ("y",)
