"""The scheduler agrees with the naive definition, under caps and in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.model import JobRef, RunState
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.runs.drive.scheduler import JobLimits, Scheduler
from tests.fakes import planned_run

OVER = (RunState.FAILED, RunState.CANCELLED)


def is_ready(run: PlannedRun, state: Mapping[str, RunState]) -> bool:
    """The definition; scheduler.py agrees with it, at the cost of the finished run's own edges."""
    return state[run.id] is RunState.PENDING and all(
        state[up] is RunState.SUCCEEDED for up in run.upstream
    )


def is_blocked(
    run: PlannedRun, runs: Mapping[str, PlannedRun], state: Mapping[str, RunState]
) -> bool:
    """Whether a run that failed stands somewhere above."""
    return any(state[up] in OVER or is_blocked(runs[up], runs, state) for up in run.upstream)


@st.composite
def plans(draw: st.DrawFn) -> list[PlannedRun]:
    count = draw(st.integers(1, 14))
    runs: list[PlannedRun] = []
    for number in range(count):
        upstream = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        wave = 1 + max((runs[up].wave for up in upstream), default=0)
        job = draw(st.sampled_from("abc"))
        ids = [f"r{up}" for up in sorted(upstream)]
        runs.append(planned_run(f"r{number}", *ids, job=job, wave=wave))
    return runs


@st.composite
def limits(draw: st.DrawFn) -> dict[JobRef, JobLimits]:
    return {
        JobRef("n", name): JobLimits(
            pool=draw(st.sampled_from([None, "p", "q"])),
            priority=draw(st.integers(0, 2)),
            max_parallel=draw(st.sampled_from([None, 1, 2])),
        )
        for name in "abc"
    }


@given(plans(), limits(), st.integers(1, 4), st.data())
def test_it_agrees_with_the_definition(
    runs: list[PlannedRun],
    jobs: dict[JobRef, JobLimits],
    max_parallel: int,
    data: st.DataObject,
) -> None:
    pools = {"p": 1, "q": 2}
    scheduler = Scheduler(runs, max_parallel=max_parallel, jobs=jobs, pools=pools)
    by_id = {run.id: run for run in runs}
    state = dict.fromkeys(by_id, RunState.PENDING)

    def below(run: PlannedRun) -> int:
        return max((1 + below(one) for one in runs if run.id in one.upstream), default=0)

    def rank(run: PlannedRun) -> tuple[int, ...]:
        turn = [one for one in runs if one.job == run.job].index(run)
        return (-jobs[run.job].priority, -below(run), turn, run.wave, runs.index(run))

    def has_room(run: PlannedRun) -> bool:
        active = [by_id[one] for one, is_in in state.items() if is_in is RunState.SUBMITTED]
        job, pool = jobs[run.job], jobs[run.job].pool
        return (
            len(active) < max_parallel
            and (pool is None or sum(jobs[one.job].pool == pool for one in active) < pools[pool])
            and (
                job.max_parallel is None
                or sum(one.job == run.job for one in active) < job.max_parallel
            )
        )

    while True:
        expected = []
        while candidates := [run for run in runs if is_ready(run, state) and has_room(run)]:
            run = min(candidates, key=rank)
            state[run.id] = RunState.SUBMITTED
            expected.append(run)
        assert scheduler.ready() == expected
        assert scheduler.states == state
        active = [one for one, is_in in state.items() if is_in is RunState.SUBMITTED]
        if not active:
            break
        run_id = data.draw(st.sampled_from(active))
        end = data.draw(st.sampled_from(["success", "success", "failure", "delay"]))
        if end == "success":
            state[run_id] = RunState.SUCCEEDED
            scheduler.succeeded(run_id)
        elif end == "delay":
            state[run_id] = RunState.PENDING
            scheduler.delayed(run_id)
            scheduler.offered(run_id)
        else:
            state[run_id] = RunState.FAILED
            blocked = {one.run.id: one.cause.id for one in scheduler.failed(run_id)}
            newly = {
                run.id
                for run in runs
                if state[run.id] is RunState.PENDING and is_blocked(run, by_id, state)
            }
            assert blocked == dict.fromkeys(newly, run_id)
            state.update(dict.fromkeys(newly, RunState.BLOCKED))
    assert not any(is_ready(run, state) for run in runs)
    assert RunState.PENDING not in state.values()


def test_a_day_starts_when_its_hours_are_done_not_when_the_month_is() -> None:
    hours = [planned_run(f"h{n}", job="hourly") for n in range(4)]
    days = [
        planned_run("d1", "h0", "h1", job="daily", wave=2),
        planned_run("d2", "h2", "h3", job="daily", wave=2),
    ]
    scheduler = Scheduler([*hours, *days], max_parallel=2)
    assert [run.id for run in scheduler.ready()] == ["h0", "h1"]
    scheduler.succeeded("h0")
    assert [run.id for run in scheduler.ready()] == ["h2"]
    scheduler.succeeded("h1")
    scheduler.succeeded("h2")
    assert [run.id for run in scheduler.ready()] == ["h3", "d1"]


def test_a_run_on_the_longest_way_does_not_wait_behind_many_of_another_job() -> None:
    many = [planned_run(f"m{n}", job="many") for n in range(46)]
    chain = [planned_run("a"), planned_run("b", "a", wave=2), planned_run("c", "b", wave=3)]
    scheduler = Scheduler([*many, *chain], max_parallel=2)
    assert [run.id for run in scheduler.ready()] == ["a", "m0"]
    scheduler.succeeded("a")
    assert [run.id for run in scheduler.ready()] == ["b"]


def test_it_takes_up_where_an_earlier_one_stopped() -> None:
    runs = [planned_run("a"), planned_run("b", "a"), planned_run("c", "b"), planned_run("d")]
    states = {"a": RunState.SUCCEEDED, "b": RunState.RUNNING, "d": RunState.PENDING}
    scheduler = Scheduler(runs, max_parallel=1, states=states)
    assert scheduler.ready() == []  # b is under way
    scheduler.succeeded("b")
    assert [run.id for run in scheduler.ready()] == ["c"]


def test_what_stands_below_an_old_failure_is_blocked_at_the_start() -> None:
    runs = [planned_run("a"), planned_run("b", "a"), planned_run("c", "b"), planned_run("d")]
    scheduler = Scheduler(runs, max_parallel=4, states={"a": RunState.FAILED})
    assert {(one.run.id, one.cause.id) for one in scheduler.doomed()} == {("b", "a"), ("c", "a")}
    assert [run.id for run in scheduler.ready()] == ["d"]


def test_cancelled_gives_up_what_has_not_started() -> None:
    scheduler = Scheduler([planned_run("a"), planned_run("b", "a")], max_parallel=1)
    scheduler.ready()
    assert [run.id for run in scheduler.cancelled()] == ["b"]
    scheduler.succeeded("a")
    assert scheduler.ready() == []


@pytest.mark.parametrize("count", [20_000])
def test_a_fan_in_costs_its_edges_once(count: int) -> None:
    """A chain of two wide levels joined in one run: quadratic work would take minutes."""
    first = [planned_run(f"a{n}", job="a") for n in range(count)]
    last = planned_run("z", *(run.id for run in first), wave=2)
    scheduler = Scheduler([*first, last], max_parallel=64)
    order: Counter[str] = Counter()
    while ready := scheduler.ready():
        for run in ready:
            order[run.job.name] += 1
            scheduler.succeeded(run.id)
    assert order == {"a": count, "z": 1}
