"""PartitionSet against sets of pairs (time ordinal, index of a combination of static keys)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.partitions.keys import NOTHING, WHOLE, PartitionSet
from lineage_backfill.partitions.ordinals import OrdinalSet
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
