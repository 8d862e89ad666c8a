"""A planner that serves many requests holds no more than what it knows of jobs and datasets."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import timedelta

import pytest

from lineage_backfill.planning import lookup as resolver
from lineage_backfill.planning.planner import Planner
from lineage_backfill.plans.document import plan_to_dict
from tests.sampling import a_part
from tests.unit.planning.world import NOW, declarations, lineage, request

TOML = """dataset = [
  { name = "h*", grain = "hour" }, { name = "d*", grain = "day" }, { name = "m*", grain = "month" },
  { name = "s*", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us", "fr"] } ] },
]
job = [{ name = "self", reads = [{ dataset = "d3", mapping = "offset", by = -1 }] },
  { name = "window", reads = [{ dataset = "d1", mapping = "window", before = 6 }] }]
"""
EDGES = """
h0 > a > h1
h1 > b > d1
d1 > window > d2
d1, d3 > self > d3
d2 > split > s1
s1, h1 > month > m1
"""
#: Jobs that are planned alike, and so add next to nothing to what is found for a request.
ALIKE = [f"h0, d1 > j{number} > h{number + 2}\n" for number in range(120)]


def held_after(planner: Planner, first: int, last: int) -> int:
    """Return the bytes held after the requests of those numbers, each over other keys."""
    for number in range(first, last):
        begin = NOW - timedelta(hours=5 * number + 30)
        begin_hour, day = f"{begin:%Y-%m-%dT%H}", f"{begin:%Y-%m-%d}"
        changed = {"h0": f"{begin_hour},{begin - timedelta(hours=number % 7 + 2):%Y-%m-%dT%H}"}
        if number % 2:
            changed["s1"] = f"day={day}/region={('eu', 'us', 'fr')[number % 3]}"
        plan_to_dict(planner.plan(request(changed)))
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.slow
@pytest.mark.parametrize("alike", a_part([120, 1], every=2))
def test_a_planner_does_not_grow_with_the_requests_that_it_serves(alike: int) -> None:
    snapshot = lineage(EDGES + "".join(ALIKE[:alike]))
    declared = declarations(TOML, max_runs=20)
    gc.collect()
    tracemalloc.start()
    try:
        planner = Planner(snapshot, declared, now=NOW)
        few = held_after(planner, 0, 10)
        most = max(held_after(planner, first, first + 10) for first in range(10, 400, 10))
    finally:
        tracemalloc.stop()
    assert most < 2 * few


def test_a_planner_that_has_served_others_gives_the_plan_of_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot, declared = lineage(EDGES + "".join(ALIKE)), declarations(TOML, max_runs=20)
    asked = [
        request(
            {name: ",".join(f"{NOW - timedelta(hours=step * one):%Y-%m-%dT%H}" for one in ones)}
        )
        for name in ("h0", "h1")
        for step, ones in ((3, (1, 2)), (1, (0, 1, 2)), (24, (1, 30)), (3, (1, 2, 300)))
    ]
    wanted = [plan_to_dict(Planner(snapshot, declared, now=NOW).plan(one)) for one in asked]
    for most in ((0, 0), (1, 1), (16, 16)):  # results are thrown away always, often, hardly ever
        monkeypatch.setattr(resolver, "_MOST_RESULTS", most)
        planner = Planner(snapshot, declared, now=NOW)
        assert [plan_to_dict(planner.plan(one)) for one in asked * 2] == wanted * 2
