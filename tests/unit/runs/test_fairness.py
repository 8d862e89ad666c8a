"""Backfills that are driven at once share what caps them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.model import JobRef
from lineage_backfill.ports import Use
from lineage_backfill.runs.drive.fairness import ALL, share, shares
from lineage_backfill.runs.drive.scheduler import JobLimits, Scheduler
from tests.fakes import planned_run

MANY = 1000


@pytest.mark.parametrize(
    ("sentence", "cap", "own", "others", "expected"),
    [
        ("alone, all of it", 4, Use(0, MANY), [], 4),
        ("two that want much have a half each", 4, Use(4, MANY), [Use(0, MANY)], 2),
        ("what one does not want the other may have", 4, Use(2, MANY), [Use(1, 1)], 3),
        ("what is still taken is not there yet", 4, Use(0, MANY), [Use(3, MANY)], 1),
        ("nobody starves though all is taken", 4, Use(0, MANY), [Use(4, MANY)], 1),
        ("nor where there are more backfills than places", 1, Use(0, MANY), [Use(1, 9)] * 5, 1),
        ("an odd place goes to somebody", 5, Use(0, MANY), [Use(0, MANY)], 2),
        ("a small demand is met first", 6, Use(0, 1), [Use(5, MANY)], 1),
        ("who waits for something else takes no place", 4, Use(4, MANY), [Use(0, 0)], 4),
    ],
)
def test_a_cap_is_shared(
    sentence: str, cap: int, own: Use, others: list[Use], expected: int
) -> None:
    assert share(cap, own, others) == expected


@given(st.integers(1, 9), st.lists(st.integers(0, 12), min_size=1, max_size=9))
def test_shares_fill_the_cap_and_no_more(cap: int, wanted: list[int]) -> None:
    uses = [Use(0, one) for one in wanted]
    given_ = [
        share(cap, use, uses[:number] + uses[number + 1 :]) for number, use in enumerate(uses)
    ]
    used = sum(min(one, use.wanted) for one, use in zip(given_, uses, strict=True))
    at_least_one = sum(use.wanted > 0 for use in uses)
    assert used <= max(cap, at_least_one)
    assert used >= min(cap, sum(wanted)) - len(uses)  # what does not divide evenly may be left


def test_pools_are_shared_as_well_as_the_whole() -> None:
    caps = {ALL: 8, "spark": 2}
    own = {ALL: Use(0, MANY), "spark": Use(0, MANY)}
    other = {ALL: Use(2, MANY), "spark": Use(1, MANY)}
    assert shares(caps, own, [other]) == {ALL: 4, "spark": 1}
    assert shares(caps, own, [{ALL: Use(2, MANY)}]) == {ALL: 4, "spark": 2}


def test_a_scheduler_tells_what_it_uses_and_keeps_to_other_caps() -> None:
    runs = [planned_run(f"a{n}", job="a") for n in range(4)]
    runs += [planned_run(f"b{n}", job="b") for n in range(4)]
    scheduler = Scheduler(
        runs,
        max_parallel=6,
        jobs={JobRef("n", "a"): JobLimits(pool="p"), JobRef("n", "b"): JobLimits(max_parallel=3)},
        pools={"p": 2},
    )
    assert scheduler.caps == {ALL: 6, "p": 2}
    assert scheduler.uses() == {ALL: Use(0, 7), "p": Use(0, 4)}
    scheduler.cap({ALL: 3, "p": 1})
    first = scheduler.ready()
    assert sorted(run.job.name for run in first) == ["a", "b", "b"]
    assert scheduler.uses() == {ALL: Use(3, 7), "p": Use(1, 4)}
    scheduler.cap({ALL: 1, "p": 1})
    scheduler.succeeded(first[0].id)
    assert scheduler.ready() == []  # two are under way still
    scheduler.cap({ALL: 6, "p": 2})
    assert len(scheduler.ready()) == 3
