"""The time left is the usual time of the runs left, shared by those that work at once."""

from __future__ import annotations

import pytest

from lineage_backfill.model import JobRef
from lineage_backfill.ports import PastRun
from lineage_backfill.runs.estimate import NEWEST, TimeLeft, time_left, usual_seconds

A, B = JobRef("n", "a"), JobRef("n", "b")


def past(job: JobRef, *seconds: float) -> list[PastRun]:
    return [PastRun(job=job, seconds=one) for one in seconds]


def test_the_usual_time_is_the_median_of_the_newest_runs() -> None:
    assert usual_seconds(past(A, 9, 1, 2)) == {A: 2}
    assert usual_seconds([*past(A, *[5] * NEWEST), *past(A, *[99] * NEWEST)]) == {A: 5}
    assert usual_seconds(past(A, 1, 2)) == {}


def test_runs_outside_of_the_store_count_for_a_job_with_few_in_it() -> None:
    known = past(A, 1, 1, 1)
    assert usual_seconds(known, past(A, 60, 60, 60, 60)) == {A: 1}
    assert usual_seconds(known[:2], past(A, 60)) == {A: 1}
    assert usual_seconds((), past(B, 7, 7, 7)) == {B: 7}


@pytest.mark.parametrize(
    ("runs", "parallel", "expected"),
    [
        ({A: 6}, 1, TimeLeft(seconds=60)),
        ({A: 6}, 3, TimeLeft(seconds=20)),
        ({A: 6}, 12, TimeLeft(seconds=10)),  # no run is faster than itself
        ({A: 6, B: 2}, 2, TimeLeft(seconds=30, unknown=(B,))),
        ({B: 2}, 2, TimeLeft(seconds=None, unknown=(B,))),
        ({A: 0, B: -1}, 2, TimeLeft(seconds=None)),
        ({}, 2, TimeLeft(seconds=None)),
    ],
)
def test_time_left(runs: dict[JobRef, int], parallel: int, expected: TimeLeft) -> None:
    assert time_left(runs, {A: 10.0}, parallel) == expected
