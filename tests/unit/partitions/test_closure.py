"""Closure over a job's own outputs, against hopping from key to key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.closure import OwnEdge, closure
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.mapping import MappingSpec, build
from lineage_backfill.partitions.text import render
from tests.unit.partitions.support import JUMPS, calendar, instant, keys, labels, properties
from tests.unit.partitions.support import product as boxed

DAY: dict[str, Any] = {"grain": "day", "start": "2024-01-01", "end": "2024-06-30"}
DAYS = calendar(**DAY)
REGIONS: dict[str, Any] = {"keys": ("eu", "us")}
SALES = boxed(day=DAY, region=REGIONS)
#: How a job may read its own output: some keys back, or all between two distances.
SPECS = st.tuples(st.integers(1, 4), st.integers(0, 4)).map(
    lambda few: MappingSpec(kind="window", before=few[0] + few[1], after=-few[0])
)


def own(output: Calendar, run: Calendar, spec: MappingSpec, **groups: Any) -> OwnEdge:
    return OwnEdge(reads=build(output, run, spec), writes=build(output, run), **groups)


def of_one(edges: list[OwnEdge], begin: PartitionSet) -> PartitionSet:
    return closure(edges, [begin])[0]


def hop_by_hop(edges: list[OwnEdge], sets: list[PartitionSet]) -> list[PartitionSet]:
    """The definition: what a key reads that a stale key makes, until nothing changes."""
    found = list(sets)
    while True:
        before = list(found)
        for edge in edges:
            for key in list(found[edge.of].singles()):
                for group in edge.to:
                    found[group] |= edge.reads.affected(edge.writes.required(key))
        if found == before:
            return found


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[OwnEdge], list[PartitionSet]]:
    """A job of up to three outputs, with grains, zones, bounds and dimensions of their own."""
    zone, moment = draw(st.sampled_from(JUMPS))
    grain = draw(st.sampled_from(("hour", "day", "week")))
    groups = draw(st.integers(1, 2))
    now = datetime.fromtimestamp(instant(moment), UTC) + timedelta(days=400)

    def some(name: str) -> Calendar:
        base = calendar(now, zone=zone, grain=name)
        assert base.time is not None
        first = base.time.grid.at(instant(moment)) + draw(st.integers(-3, 6))
        last = first + draw(st.integers(0, 25 if name == "hour" else 12))
        ends: dict[str, Any] = {
            "start": base.time.grid.label(first),
            "end": base.time.grid.label(last),
        }
        if draw(st.integers(0, 3)) == 0:
            return boxed(now, time={"grain": name, "zone": zone, **ends}, region=REGIONS)
        return calendar(now, zone=zone, grain=name, **ends)

    run = some(grain)
    finer = {"hour": "hour", "day": "hour", "week": "day"}[grain]
    edges = [
        own(
            some(draw(st.sampled_from((grain, grain, finer)))),
            run,
            draw(SPECS),
            of=draw(st.integers(0, groups - 1)),
            to=tuple(sorted(draw(st.sets(st.integers(0, groups - 1), min_size=1)))),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    singles = list(run.existing.singles())
    begin = draw(st.lists(st.sets(st.sampled_from(singles), max_size=3), min_size=groups))
    return edges, [PartitionSet.union(sorted(one, key=repr)) for one in begin[:groups]]


@properties(150)
@given(jobs())
def test_stale_keys_run_on_as_hop_by_hop(
    job: tuple[list[OwnEdge], list[PartitionSet]],
) -> None:
    edges, sets = job
    assert closure(edges, sets) == hop_by_hop(edges, sets)


def test_a_product_runs_on_in_each_region_by_itself() -> None:
    edge = own(SALES, SALES, MappingSpec(kind="offset", before=1, after=-1))
    found = of_one([edge], keys(SALES, "day=2024-06-28/region=eu,day=2024-06-30/region=us"))
    assert labels(SALES, found) == {
        "day=2024-06-28/region=eu",
        "day=2024-06-29/region=eu",
        "day=2024-06-30/region=eu",
        "day=2024-06-30/region=us",
    }


def test_two_own_outputs_make_stale_what_neither_does_alone() -> None:
    edges = [
        own(DAYS, DAYS, MappingSpec(kind="offset", before=back, after=-back)) for back in (2, 3)
    ]
    found = of_one(edges, keys(DAYS, "2024-06-20"))
    assert render(DAYS, found) == ("2024-06-20", "2024-06-22..2024-06-30")


def test_what_the_second_output_makes_stale_goes_back_to_the_first() -> None:
    late = calendar(grain="day", start="2024-06-25", end="2024-06-30")
    early = calendar(grain="day", start="2024-01-01", end="2024-06-24")
    edges = [
        own(output, DAYS, MappingSpec(kind="offset", before=back, after=-back))
        for output, back in ((late, 1), (early, 3))
    ]
    found = of_one(edges, keys(DAYS, "2024-06-20"))
    assert render(DAYS, found) == ("2024-06-20", "2024-06-23", "2024-06-26..2024-06-30")


def test_it_ends_with_the_output_that_is_read() -> None:
    short = calendar(grain="day", start="2024-02-01", end="2024-02-10")
    edge = own(short, DAYS, MappingSpec(kind="offset", before=1, after=-1))
    for begin, found in (
        ("2024-01-05", "2024-01-05"),
        ("2024-02-08", "2024-02-08..2024-02-11"),
        ("2024-02-11", "2024-02-11"),
        ("2024-01-31", "2024-01-31"),
    ):
        reached = of_one([edge], keys(DAYS, begin))
        assert render(DAYS, reached) == (found,)


def test_a_long_calendar_costs_a_dozen_steps() -> None:
    hours = calendar(grain="hour", start="1990-01-01T00")
    edge = own(hours, hours, MappingSpec(kind="offset", before=1, after=-1))
    found = of_one([edge], keys(hours, "1990-01-01T00"))
    assert found == hours.existing
    assert closure([], [NOTHING]) == [NOTHING]
