"""The planner against the obvious definition over single keys, on random graphs and schedules."""

from __future__ import annotations

import pytest

from tests.oracle.check import check
from tests.oracle.scheduled import check_scheduled
from tests.sampling import is_run

CHUNK = 100
#: Graphs in the tests of every change; the whole suite draws more, `--thorough` 2,000.
FIRST = 400


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.slow] if first >= FIRST else [])
        for first in range(0, 2_000, CHUNK)
        if first < FIRST or is_run(first // CHUNK, every=2)
    ],
)
def test_plans_equal_the_definition(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check(seed)


def test_a_key_that_only_follows_a_cycle_is_judged_by_what_it_requires() -> None:
    check(7_700_702)  # through columns that the change misses, so nothing stale leads there


def test_scheduled_runs_cover_the_keys_of_the_definition() -> None:
    for seed in range(300):
        check_scheduled(seed)
