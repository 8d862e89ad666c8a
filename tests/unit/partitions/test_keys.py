"""PartitionSet against sets of pairs (time ordinal, index of a combination of static keys)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.partitions.calendar import Calendar, TimeAxis
from lineage_backfill.partitions.grid import grain_grid
from lineage_backfill.partitions.keys import NOTHING, WHOLE, PartitionSet
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import static_axis
from tests.unit.partitions.support import properties

Pair = tuple[int, int]
pair_sets = st.frozensets(st.tuples(st.integers(-3, 6), st.integers(0, 5)), max_size=16)
boxes = st.lists(
    st.tuples(st.frozensets(st.integers(-4, 8), max_size=5), st.integers(0, 63)), max_size=6
)


def of_pairs(pairs: frozenset[Pair]) -> PartitionSet:
    return PartitionSet.of((OrdinalSet.of([time]), 1 << index) for time, index in pairs)


def pairs_of(found: PartitionSet) -> frozenset[Pair]:
    return frozenset(
        (time, index)
        for times, mask in found.boxes
        for time in times
        for index in range(mask.bit_length())
        if mask >> index & 1
    )


def check(found: PartitionSet, wanted: frozenset[Pair]) -> None:
    """The set is the wanted one, in the one form that equal sets have."""
    assert pairs_of(found) == wanted
    assert len(found) == len(wanted)
    assert bool(found) == bool(wanted)
    same = of_pairs(wanted)
    assert found == same
    assert hash(found) == hash(same)
    assert found.boxes == same.boxes
    assert all(times and mask for times, mask in found.boxes)
    masks = [mask for _, mask in found.boxes]
    assert sum(masks) == _union(masks), "boxes share no combination of static keys"
    assert len({times for times, _ in found.boxes}) == len(masks), "equal times share a box"
    assert all(a & -a < b & -b for a, b in pairwise(masks)), "boxes stand in one order"
    assert found.ordinals == OrdinalSet.of(time for time, _ in wanted)


def _union(masks: list[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


@properties(80)
@given(pair_sets, pair_sets)
def test_algebra_is_that_of_sets(mine: frozenset[Pair], theirs: frozenset[Pair]) -> None:
    left, right = of_pairs(mine), of_pairs(theirs)
    check(left, mine)
    check(left | right, mine | theirs)
    check(left & right, mine & theirs)
    check(left - right, mine - theirs)
    assert (left == right) == (mine == theirs)
    assert left.meets(right) == bool(mine & theirs)


@properties(80)
@given(boxes)
def test_boxes_may_overlap_and_be_empty(given_boxes: list[tuple[frozenset[int], int]]) -> None:
    wanted = frozenset(
        (time, index)
        for times, mask in given_boxes
        for time in times
        for index in range(6)
        if mask >> index & 1
    )
    check(PartitionSet.of((OrdinalSet.of(times), mask) for times, mask in given_boxes), wanted)
    check(
        PartitionSet.of((OrdinalSet.of(times), mask) for times, mask in reversed(given_boxes)),
        wanted,
    )


def test_a_product_is_never_multiplied_out() -> None:
    days, regions = OrdinalSet.range(0, 3_652), (1 << 500) - 1
    everything = PartitionSet.of([(days, regions)])
    assert len(everything) == 3_653 * 500
    assert len(everything.boxes) == 1
    without = everything - PartitionSet.of([(OrdinalSet.range(7, 7), 1 << 3)])
    assert len(without) == 3_653 * 500 - 1
    assert len(without.boxes) == 2
    assert without | everything == everything


def test_nothing_and_the_whole() -> None:
    check(NOTHING, frozenset())
    check(WHOLE, frozenset({(0, 0)}))
    assert object() != NOTHING
    assert repr(WHOLE) == "PartitionSet(OrdinalSet(0..0) x 1)"


@properties(80)
@given(pair_sets, st.tuples(st.integers(-4, 7), st.integers(0, 6)), st.integers(1, 7))
def test_a_set_is_taken_apart_and_put_together(
    pairs: frozenset[Pair], point: Pair, most: int
) -> None:
    keys = of_pairs(pairs)
    points = list(keys.points())
    assert len(points) == len(pairs)
    assert points == sorted(points)
    assert (point in keys) == (point in pairs)
    check(PartitionSet.of_points(points), pairs)
    assert [list(one.points()) for one in keys.singles()] == [[one] for one in points]
    check(PartitionSet.union(keys.singles()), pairs)
    check(PartitionSet.union(keys.ranges()), pairs)
    for part in keys.ranges():
        assert part.ordinals.is_range
    chunks = list(keys.chunks(most))
    check(PartitionSet.union(chunks), pairs)
    assert sum(map(len, chunks)) == len(pairs)
    assert all(0 < len(one) <= most for one in chunks)
    check(keys.map_time(lambda times: times.dilate(1, 2)), _around(pairs, 1, 2))


def _around(pairs: frozenset[Pair], back: int, ahead: int) -> frozenset[Pair]:
    return frozenset((t + by, index) for t, index in pairs for by in range(-back, ahead + 1))


@properties(80)
@given(pair_sets, st.integers(0, 3), st.integers(-5, 4), st.integers(-1, 7))
def test_a_calendar_widens_within_its_keys(
    pairs: frozenset[Pair], by: int, first: int, last: int
) -> None:
    grid = grain_grid("day", "UTC")
    axis = TimeAxis(name="", grid=grid, first=first, last=last, complete=last, begun=last)
    calendar = Calendar(time=axis, statics=(static_axis("region", "abcdef"),))
    existing = frozenset((t, index) for t, index in pairs if first <= t <= last)
    keys = of_pairs(existing)
    for found, back, ahead in (
        (calendar.with_earlier(keys, by), by, 0),
        (calendar.dilate(keys, 0, by), 0, by),
    ):
        around = _around(existing, back, ahead)
        check(found, frozenset((t, index) for t, index in around if first <= t <= last))
