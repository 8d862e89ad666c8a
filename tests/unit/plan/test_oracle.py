"""The planner against the obvious definition over single keys, on random graphs."""

from __future__ import annotations

import pytest

from lineage_backfill.plan.planner import build_plan
from tests.oracle.definition import solve, waits
from tests.oracle.worlds import NOW, labels, make_world, planner_input, run_waits

CHUNK = 100


def check(seed: int) -> None:
    """Hold one random world's plan to the definition: keys, left stale keys, and who waits."""
    world = make_world(seed)
    answer = solve(world)
    plan = build_plan(*planner_input(world), now=NOW)
    cals = {job.name: job.run for job in world.jobs}
    planned = {job.job.name: labels(cals[job.job.name], job.partitions) for job in plan.jobs}
    left = {job.job.name: labels(cals[job.job.name], job.left_stale) for job in plan.jobs}
    for name, cal in cals.items():
        assert planned.get(name, set()) == {cal.label(k) for k in answer.planned[name]}, (
            f"seed {seed}: planned keys of {name}"
        )
        assert left.get(name, set()) == {cal.label(k) for k in answer.left[name]}, (
            f"seed {seed}: left stale keys of {name}"
        )
    wanted = {
        (job, cals[job].label(key)): {(name, cals[name].label(other)) for name, other in needs}
        for (job, key), needs in waits(world, answer).items()
    }
    assert run_waits(world, plan) == wanted, f"seed {seed}: what runs wait for"
    assert plan.runs is not None
    place = {run.id: number for number, run in enumerate(plan.runs)}
    assert all(place[up] < place[run.id] for run in plan.runs for up in run.upstream)


@pytest.mark.parametrize("first", range(0, 2_000, CHUNK))
def test_plans_equal_the_definition(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check(seed)
