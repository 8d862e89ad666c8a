"""OrdinalSet against Python's own sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.partitions.ordinals import EMPTY, POINT, OrdinalSet
from tests.unit.partitions.support import properties

#: Neighbours, negative ones, and ones with gaps of a hundred years of hours between them.
ordinals = st.one_of(st.integers(-20, 20), st.integers(-220, 220).map(lambda n: n * 4_096))
sets = st.one_of(
    st.frozensets(ordinals, max_size=12),
    st.tuples(st.integers(-300, 300), st.integers(0, 80)).map(
        lambda run: frozenset(range(run[0], run[0] + run[1]))
    ),
)


def check(found: OrdinalSet, wanted: frozenset[int] | set[int]) -> None:
    """The set is the wanted one in every way to look at it."""
    same = OrdinalSet.of(wanted)
    assert found == same
    assert hash(found) == hash(same)
    assert (found.lo, found.bits) == (same.lo, same.bits)
    assert list(found) == sorted(wanted)
    assert len(found) == len(wanted)
    assert bool(found) == bool(wanted)
    assert not found or (found.lo, found.hi) == (min(wanted), max(wanted))


@properties(60)
@given(sets, sets)
def test_algebra_is_that_of_sets(mine: frozenset[int], theirs: frozenset[int]) -> None:
    left, right = OrdinalSet.of(mine), OrdinalSet.of(theirs)
    check(left, mine)
    check(left | right, mine | theirs)
    check(left & right, mine & theirs)
    check(left - right, mine - theirs)
    assert (left == right) == (mine == theirs)
    check(left, mine)  # nothing was changed in place


@properties(60)
@given(sets, st.integers(-3, 70), st.integers(-3, 70), st.integers(-5_000, 5_000))
def test_shifts_and_dilations(members: frozenset[int], back: int, ahead: int, by: int) -> None:
    found = OrdinalSet.of(members)
    check(found.shift(by), {member + by for member in members})
    if back + ahead >= 0:
        wanted = {near for m in members for near in range(m - back, m + ahead + 1)}
        check(found.dilate(back, ahead), wanted)


@properties(60)
@given(sets, st.none() | ordinals, ordinals)
def test_clip_keeps_both_ends(members: frozenset[int], first: int | None, last: int) -> None:
    found = OrdinalSet.of(members)
    check(
        found.clip(first, last), {m for m in members if (first is None or first <= m) and m <= last}
    )
    assert found.clip(None, 10_000_000) is found


@properties(60)
@given(sets, ordinals)
def test_membership(members: frozenset[int], ordinal: int) -> None:
    found = OrdinalSet.of(members)
    assert (ordinal in found) == (ordinal in members)
    assert all(member in found for member in members)


@properties(40)
@given(st.lists(st.tuples(st.integers(-400, 400), st.integers(0, 30)), max_size=20))
def test_runs_are_maximal_and_come_back(given_runs: list[tuple[int, int]]) -> None:
    runs = [(first, first + more) for first, more in given_runs]
    wanted = {n for first, last in runs for n in range(first, last + 1)}
    found = OrdinalSet.of_runs(runs)
    check(found, wanted)
    again = found.runs()
    assert OrdinalSet.of_runs(again) == found
    assert all(b > a + 1 for (_, a), (b, _) in pairwise(again))
    assert {n for first, last in again for n in range(first, last + 1)} == wanted
    assert found.is_range == (len(again) <= 1)


def test_a_range_holds_both_ends() -> None:
    check(OrdinalSet.range(-2, 1), {-2, -1, 0, 1})
    check(OrdinalSet.range(5, 5), {5})
    check(OrdinalSet.range(5, 4), set())
    check(EMPTY, set())
    check(POINT, {0})
    assert EMPTY.runs() == []
    assert EMPTY.is_range


def test_ten_years_of_hours_take_eleven_kilobytes() -> None:
    every_other = OrdinalSet.of(range(400_000, 400_000 + 87_660, 2))
    assert len(every_other) == 43_830
    assert every_other.bits.bit_length() // 8 < 11_000
    assert repr(OrdinalSet.range(1, 3) | OrdinalSet.range(9, 9)) == "OrdinalSet(1..3, 9..9)"
    assert every_other != object()


def test_sets_that_differ_in_length_or_in_a_gap_have_hashes_of_their_own() -> None:
    whole = OrdinalSet.range(0, 2_000)
    grown = [OrdinalSet.range(0, last) for last in range(2_000)]
    holed = [whole - OrdinalSet.range(one, one) for one in range(1, 2_000)]
    assert len({hash(one) for one in (*grown, *holed)}) == len(grown) + len(holed)
