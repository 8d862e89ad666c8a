"""Jobs that differ in names alone share what is found for the first: the same as each by itself."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from lineage_backfill.plans.plan import Plan
from lineage_backfill.project.declarations import Declarations
from tests.unit.planning.world import declarations, find, plan, request, shown

GRAINS = ("hour", "day", "month")
DATASETS = "".join(
    f'[[dataset]]\nname = "{grain}_*"\ngrain = "{grain}"\nstart = "{start}"\n'
    for grain, start in zip(GRAINS, ("2024-01-01T00", "2024-01-01", "2024-01-01"), strict=True)
)


def graph(seed: int) -> tuple[str, int]:
    """Return the edges of a random graph with datasets of two writers and one of no calendar."""
    rng = random.Random(seed)
    names, lines = ["hour_root", "day_other"], []
    jobs = rng.randint(8, 20)
    for number in range(jobs):
        made = [f"{rng.choice(GRAINS)}_{number}"]
        if rng.random() < 0.15:
            # A second writer, of the same calendar: the job's own stays what its outputs share.
            same = [one for one in names[2:] if one.split("_")[0] == made[0].split("_")[0]]
            made += same[-1:]
        if rng.random() < 0.05:
            made = [f"unknown_{number}"]
        reads = {rng.choice(names[-8:]) for _ in range(rng.randint(1, 3))} - set(made)
        if number < 3 or not reads:
            reads = {"hour_root", "day_other"} if number % 2 else {"hour_root"}
        lines.append(f"{', '.join(sorted(reads))} > j{number} > {', '.join(made)}")
        names += made[:1]
    if rng.random() < 0.3:
        lines.append(f"{names[-1]} > back > {names[4]}")
    return "\n".join(lines), jobs


def one_by_one(declared: Declarations, jobs: int) -> Declarations:
    """Return declarations in which every job has one of its own, which says the same."""
    (glob,) = declared.jobs
    names = ("back", *(f"j{number}" for number in range(jobs)))
    return replace(declared, jobs=tuple(replace(glob, name=name) for name in names))


@pytest.mark.parametrize("seed", range(24))
def test_jobs_alike_are_planned_as_each_by_itself(seed: int) -> None:
    edges, jobs = graph(seed)
    batch = ("", 'batch = "range"', "batch = 2")[seed % 3]
    declared = declarations(f'{DATASETS}[[job]]\nname = "*"\n{batch}', max_runs=100_000)
    asked = request(
        {"hour_root": "2024-03-09T22..2024-03-10T03", "day_other": "2024-03-20,2024-03-31"}
    )
    together = plan(asked, edges, declared)
    alone = plan(asked, edges, one_by_one(declared, jobs))
    assert _said(together) == _said(alone)
    assert together.runs is not None
    assert together.totals["runs"] == len(together.runs)


def _said(made: Plan) -> tuple[object, ...]:
    return made.jobs, made.runs, made.totals, made.warnings


@pytest.mark.parametrize("batch", ['"key"', '"range"', "2"])
def test_a_blocked_job_has_no_runs_however_it_is_batched(batch: str) -> None:
    made = plan(
        request({"day_root": "2024-03-10"}),
        "day_root > j > day_a\nday_root > k > unknown",
        f'{DATASETS}[[job]]\nname = "*"\nbatch = {batch}',
    )
    assert made.totals == {"jobs": 1, "runs": 1, "partitions": 1}
    assert find(made, "k").status == "blocked"


def test_what_nobody_repairs_is_left_below_and_not_beside() -> None:
    made = plan(
        request({"day_root": "2024-03-10"}),
        "day_root > a > day_a\nday_root > guarded > day_g\nday_g > b > day_b\nday_a > c > day_c",
        f'{DATASETS}[[job]]\nname = "guarded"\nprotected = true',
    )
    assert {name: find(made, name).status for name in "abc"} == {
        "a": "planned",
        "b": "left_stale",
        "c": "planned",
    }
    assert shown(find(made, "b").left_stale) == "2024-03-10"


def test_jobs_alike_with_other_batches_are_counted_by_their_own() -> None:
    made = plan(
        request({"day_root": "2024-03-10..2024-03-12"}),
        "day_root > a > day_a\nday_root > b > day_b",
        f'{DATASETS}[[job]]\nname = "a"\nbatch = "range"\n[[job]]\nname = "b"\nbatch = 2',
    )
    assert made.totals == {"jobs": 2, "runs": 3, "partitions": 6}
