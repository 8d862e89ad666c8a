"""A planner that has planned before says what a fresh one says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.planning.planner import Planner, build_plan
from lineage_backfill.plans.request import Request
from tests.oracle.worlds import NOW, make_world, planner_input
from tests.unit.planning import world


@pytest.mark.parametrize("seed", range(3_000, 3_060))
def test_requests_on_one_planner_do_not_see_each_other(seed: int) -> None:
    request, snapshot, declarations = planner_input(make_world(seed))
    others = [
        replace(request, exact=not request.exact),
        replace(request, depth=1),
        replace(request, include_former=True),
        replace(request, changed=request.changed[:1], jobs=()),
        replace(request, reverse=True, allow=frozenset({"protected", "expired"})),
        request,
    ]
    planner = Planner(snapshot, declarations, now=NOW)
    for asked in (others * 2) if request.changed else [request]:
        fresh = build_plan(asked, snapshot, declarations, now=NOW)
        again = planner.plan(asked)
        assert again.id == fresh.id
        assert again == fresh


EDGES = """
    raw > copy > mart
    utc > shifted > local
    places > sell > sales
"""
DECLARED = """
    [[dataset]]
    name = "raw"
    grain = "day"
    start = "2024-03-01"
    [[dataset]]
    name = "mart"
    grain = "week"
    start = "2024-W09"
    [[dataset]]
    name = "utc"
    grain = "hour"
    start = "2024-03-01T00"
    [[dataset]]
    name = "local"
    grain = "hour"
    zone = "America/New_York"
    start = "2024-03-01T00"
    [[dataset]]
    name = "places"
    keys = "runtime"
    column = "place"
    [[dataset]]
    name = "sales"
    keys = "runtime"
    column = "place"
    [[job]]
    name = "shifted"
    reads = [{ dataset = "utc", mapping = "identity" }]
"""


def test_warnings_are_those_of_the_request_alone() -> None:
    planner = Planner(world.lineage(EDGES), world.declarations(DECLARED), now=world.NOW)
    lost = planner.plan(world.request({"utc": "2024-03-10T02"}))
    kept = planner.plan(world.request({"utc": "2024-03-11T02"}))
    newest = planner.plan(world.request({"raw": "2024-03-31"}))
    older = planner.plan(world.request({"raw": "2024-03-01"}))
    assert any("does not have the keys 2024-03-10T02" in text for text in lost.warnings)
    assert not any("lacks" in text for text in kept.warnings)
    assert not any("not complete" in text for text in older.warnings)
    assert newest.lineage["hash"] == older.lineage["hash"] != kept.lineage["hash"]


def test_runtime_keys_that_one_request_names_are_unknown_to_the_next() -> None:
    planner = Planner(world.lineage(EDGES), world.declarations(DECLARED), now=world.NOW)
    first = planner.plan(world.request({"places": "mars"}))
    second = planner.plan(world.request({"places": "venus"}))
    assert first.changed[0].keys == ("mars",)
    assert second.changed[0].keys == ("venus",)
    with pytest.raises(UsageError, match="no change is named"):
        planner.plan(Request())


def test_a_facet_that_cannot_be_read_is_a_warning_of_the_plans_that_meet_it() -> None:
    nodes = [
        JobNode(ref=world.job("odd"), reads=(world.dataset("raw"),), partitioning={"grain": "eon"}),
        JobNode(ref=world.job("even"), reads=(world.dataset("utc"),)),
    ]
    planner = Planner(LineageSnapshot.of(nodes), world.declarations(DECLARED), now=world.NOW)
    for _ in range(2):
        met = planner.plan(world.request({"raw": "2024-03-05"}))
        other = planner.plan(world.request({"utc": "2024-03-05T01"}))
        assert any("ignored" in text for text in met.warnings)
        assert not any("ignored" in text for text in other.warnings)
