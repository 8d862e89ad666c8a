"""What is left of a backfill whose engine starts more than once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.cli.output.remaining import Remaining
from lineage_backfill.model import JobRef, RunState
from lineage_backfill.ports import Start
from lineage_backfill.runs.simulate import Estimate, JobTime, Spread

JOB, OTHER = JobRef("n", "job"), JobRef("n", "other")
USUAL = Spread(p50=40, p90=60)


def hundred(start: Spread | None = USUAL, *, unknown: int = 0) -> Remaining:
    """A hundred runs of a second each, and some of a job that is not known."""
    before = start or Spread(p50=0, p90=0)
    every = [JobTime(job=JOB, runs=100, partitions=100, busy=Spread(p50=100, p90=100), past=9)]
    if unknown:
        every.append(JobTime(job=OTHER, runs=unknown, partitions=unknown, busy=None, past=0))
    whole = Spread(p50=before.p50 + 100, p90=before.p90 + 100)
    return Remaining(Estimate(makespan=whole, critical_path=(), jobs=tuple(every), start=start))


def under_way(seconds: float, number: int = 1, *, alone: bool = True) -> Start:
    return Start(what="x", seconds=seconds, id=number, is_alone=alone)


def over(seconds: float, number: int = 1, *, alone: bool = True, failed: bool = False) -> Start:
    ends = {"is_over": True, "has_failed": failed}
    return Start(what="x", seconds=seconds, id=number, is_alone=alone, **ends)


def end(remaining: Remaining, runs: int, state: RunState = RunState.SUCCEEDED) -> None:
    for _ in range(runs):
        remaining.ended(JOB, state)


def left(remaining: Remaining, now: float) -> tuple[float, float] | None:
    found = remaining.left(now)
    return None if found is None else (round(found.p50, 6), round(found.p90, 6))


def test_starts_at_once_take_their_time_once() -> None:
    remaining = hundred()
    for second in (20, 39):
        for slot in range(4):
            remaining.starting(under_way(second, slot), second)
    for slot in range(4):
        remaining.starting(over(40, slot, alone=not slot), 40)
    end(remaining, 12)
    assert left(remaining, 55) == (110, 110)  # 15 s of work for 12 of 100 runs
    assert remaining.in_words(55) == "about 1.8 min left"


def test_a_start_after_the_only_application_has_died_counts_as_the_first_did() -> None:
    remaining = hundred()
    remaining.starting(over(40), 40)
    end(remaining, 99)
    assert remaining.in_words(139) == "about 1 s left"
    remaining.starting(under_way(1, 2), 140)
    assert left(remaining, 140) == (40, 60)
    assert remaining.in_words(140) == "about 40 s to 1 min left"
    remaining.starting(under_way(31, 2), 170)
    assert left(remaining, 175) == (5, 25)
    remaining.starting(under_way(71, 2), 210)
    assert left(remaining, 210) == (2, 2)  # it may end any second
    remaining.starting(over(80, 2), 219)
    assert left(remaining, 219) == (1, 1)
    end(remaining, 1)
    assert remaining.in_words(220) == ""


def test_work_can_begin_once_the_first_of_several_starts_is_over() -> None:
    remaining = hundred()
    remaining.starting(under_way(30, 1), 30)
    remaining.starting(under_way(10, 2), 30)
    assert left(remaining, 30) == (110, 130)
    remaining.starting(under_way(25, 1), 45)  # in no order
    remaining.starting(under_way(35, 2), 45)
    assert left(remaining, 45) == (105, 125)


def test_while_another_works_time_is_that_of_work_and_a_run_waits_for_the_start() -> None:
    remaining = hundred()
    remaining.starting(over(40), 40)
    for second in (50, 60):
        remaining.starting(under_way(second - 45, 2, alone=False), second)
    end(remaining, 20)
    assert left(remaining, 60) == (80, 80)  # 20 s of work for 20 runs; longer than the start
    end(remaining, 75)
    assert left(remaining, 60) == (25, 45)
    remaining.starting(over(33, 2, alone=False), 78)
    assert left(remaining, 78) == (2, 2)  # 38 s of work for 95 runs


def test_the_other_one_may_die_meanwhile() -> None:
    remaining = hundred()
    remaining.starting(over(40), 40)
    end(remaining, 50)
    for second, alone in ((80, False), (90, False), (91, True), (100, True)):
        remaining.starting(under_way(second - 80, 2, alone=alone), second)
    assert left(remaining, 100) == (51 + 20, 51 + 40)  # worked from 40 to 91


def test_a_start_that_fails_is_no_work_and_another_is_needed() -> None:
    remaining = hundred()
    remaining.starting(under_way(25), 25)
    remaining.starting(over(30, failed=True), 30)
    assert left(remaining, 30) == (140, 160)
    end(remaining, 1, RunState.FAILED)
    assert left(remaining, 30) == (139, 159)
    remaining.starting(under_way(10, 2), 40)
    assert left(remaining, 40) == (129, 149)
    remaining.starting(over(40, 2), 70)
    end(remaining, 19)
    assert left(remaining, 90) == (80, 80)  # 20 s of work for 20 runs


def test_of_a_failed_start_beside_a_warm_one_nothing_is_left() -> None:
    remaining = hundred()
    remaining.starting(over(40), 40)
    remaining.starting(under_way(5, 2, alone=False), 50)
    remaining.starting(over(9, 2, alone=False, failed=True), 54)
    assert left(remaining, 54) == (100, 100)


def test_before_any_start_is_known_the_time_is_a_bound_and_then_the_first_tells() -> None:
    remaining = hundred(None)
    assert remaining.in_words(0) == "about 1.7 min left"
    remaining.starting(under_way(5), 5)
    assert left(remaining, 5) == (101, 101)
    assert remaining.in_words(5) == "at least 1.7 min left"
    remaining.starting(over(30), 30)
    end(remaining, 99)
    remaining.starting(under_way(0, 2), 129)
    assert left(remaining, 129) == (31, 31)
    assert remaining.in_words(129) == "about 31 s left"


def test_where_only_runs_of_an_unknown_time_are_left_the_start_is_known() -> None:
    remaining = hundred(unknown=1)
    remaining.starting(over(40), 40)
    end(remaining, 100)
    assert remaining.in_words(140) == ""
    remaining.starting(under_way(10, 2), 150)
    assert remaining.in_words(150) == "at least 30 s to 50 s left"
    remaining.starting(over(30, 2), 170)
    remaining.ended(OTHER, RunState.SUCCEEDED)
    assert remaining.in_words(170) == ""


def test_no_time_is_left_where_no_run_is() -> None:
    remaining = hundred()
    end(remaining, 100, RunState.BLOCKED)
    assert remaining.in_words(3) == ""


#: Of each start: when it begins, how long it takes, and how long it is ready then.
LIVES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=5
)


@given(LIVES)
def test_the_pace_is_that_of_the_time_in_which_something_could_work(
    lives: list[tuple[int, int, int]],
) -> None:
    remaining, held_up, end_of_all = hundred(), 0, 80
    is_cold = True
    end(remaining, 50, RunState.FAILED)
    for now in range(end_of_all + 1):
        going_on, warm, told = [], False, []
        for number, (begin, takes, lasts) in enumerate(lives):
            ready = begin + takes
            others = [one for at, one in enumerate(lives) if at != number]
            if now == ready:  # what fails is never ready
                alone = not any(b + s < now <= b + s + life for b, s, life in others)
                told.append((over(takes, number, alone=alone, failed=not lasts), now))
                is_cold = alone and not lasts
            elif begin <= now < ready:
                alone = not any(b + s <= now < b + s + life for b, s, life in others)
                going_on.append((under_way(now - begin, number, alone=alone), now))
            warm |= ready <= now < ready + lasts
        held_up += now < end_of_all and bool(going_on) and not warm
        for start, at in told + going_on:
            remaining.starting(start, at)
        found = left(remaining, now)
        assert found is not None
        rests = [USUAL.p50 - start.seconds for start, _ in going_on]
        assert found[0] >= max(rests, default=0)
        assert warm or not rests or found[0] > min(rests)
    found = left(remaining, end_of_all)
    worked = end_of_all - held_up  # for one half of the runs, and so for the other
    assert found is not None
    assert found[0] == worked + (USUAL.p50 if is_cold else 0)
