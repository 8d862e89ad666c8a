"""Holds the planner to the definition on one random graph."""

from __future__ import annotations

from lineage_backfill.planning.planner import build_plan
from tests.oracle.definition import solve, waits
from tests.oracle.worlds import NOW, labels, make_world, planner_input, run_waits


def check(seed: int) -> None:
    """Compare planned keys, left stale keys, who waits for whom, and the order of the runs."""
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
    assert plan.runs is not None, f"seed {seed}: too many runs"
    place = {run.id: number for number, run in enumerate(plan.runs)}
    assert all(place[up] < place[run.id] for run in plan.runs for up in run.upstream), (
        f"seed {seed}: the order of the runs"
    )
