"""Compact sets of ordinals: one bit each, with operations on whole sets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_ONES: Final = re.compile("1+")
#: Python hashes integers modulo 2**61 - 1, where powers of two repeat after 61 of them: thousands
#: of ranges with one start would share a hash. Modulo this prime they do not.
_PRIME: Final = 2**61 - 31


class OrdinalSet:
    """An immutable set of integers: a lowest member and a bit mask counted from it.

    Canonical: bit 0 of a non-empty mask is set, so equal sets have equal parts. Ten years of hours
    take 11 kB whatever their pattern; union, intersection and shifts run at the speed of big
    integers.
    """

    __slots__ = ("_hash", "bits", "lo")

    lo: int
    bits: int

    def __init__(self, lo: int, bits: int) -> None:
        if not bits:
            lo = 0
        elif not bits & 1:
            zeros = (bits & -bits).bit_length() - 1
            lo, bits = lo + zeros, bits >> zeros
        self.lo = lo
        self.bits = bits
        self._hash: int | None = None

    @classmethod
    def range(cls, first: int, last: int) -> OrdinalSet:
        """Return first..last, both included; empty where last is before first."""
        return cls(first, (1 << (last - first + 1)) - 1) if last >= first else EMPTY

    @classmethod
    def of_mask(cls, mask: int) -> OrdinalSet:
        """Return the positions of the bits that are set."""
        return cls(0, mask)

    @classmethod
    def of_runs(cls, runs: Iterable[tuple[int, int]]) -> OrdinalSet:
        """Return the union of (first, last) runs, both ends included, in any order."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(runs):
            if merged and first <= merged[-1][1] + 1:
                if last > merged[-1][1]:
                    merged[-1] = (merged[-1][0], last)
            else:
                merged.append((first, last))
        if not merged:
            return EMPTY
        lo = merged[0][0]
        if len(merged) < 8:
            bits = 0
            for first, last in merged:
                bits |= ((1 << (last - first + 1)) - 1) << (first - lo)
            return cls(lo, bits)
        # Linear in the span, where shifting each run into place would be quadratic.
        pieces: list[str] = []
        end = lo
        for first, last in merged:
            pieces += ("0" * (first - end), "1" * (last - first + 1))
            end = last + 1
        return cls(lo, int("".join(pieces)[::-1], 2))

    @classmethod
    def of(cls, ordinals: Iterable[int]) -> OrdinalSet:
        """Return the set of the given ordinals."""
        return cls.of_runs((ordinal, ordinal) for ordinal in ordinals)

    @property
    def hi(self) -> int:
        """The highest member; lo - 1 where the set is empty."""
        return self.lo + self.bits.bit_length() - 1

    @property
    def is_range(self) -> bool:
        """Whether the members are consecutive (an empty set's are)."""
        return not self.bits & (self.bits + 1)

    def runs(self) -> list[tuple[int, int]]:
        """Return the maximal runs as (first, last), both ends included, ascending."""
        lo = self.lo
        if self.is_range:
            return [(lo, self.hi)] if self.bits else []
        text = bin(self.bits)[:1:-1]
        return [(lo + run.start(), lo + run.end() - 1) for run in _ONES.finditer(text)]

    def shift(self, by: int) -> OrdinalSet:
        """Return the set shifted by `by` ordinals."""
        return OrdinalSet(self.lo + by, self.bits) if by and self.bits else self

    def dilate(self, back: int, ahead: int) -> OrdinalSet:
        """Return all of m-back .. m+ahead for every member m; back + ahead is not negative."""
        bits, covered, width = self.bits, 1, back + ahead + 1
        if not bits or not (back or ahead):
            return self
        while covered < width:
            step = min(covered, width - covered)
            bits |= bits << step
            covered += step
        return OrdinalSet(self.lo - back, bits)

    def clip(self, first: int | None, last: int) -> OrdinalSet:
        """Return the members from first (None: no lower bound) to last, both included."""
        lo, bits = self.lo, self.bits
        if first is not None and first > lo:
            lo, bits = first, bits >> (first - lo)
        if bits and lo + bits.bit_length() - 1 > last:
            bits &= (1 << (last - lo + 1)) - 1 if last >= lo else 0
        return self if bits == self.bits and lo == self.lo else OrdinalSet(lo, bits)

    def __or__(self, other: OrdinalSet) -> OrdinalSet:
        if not other.bits or self is other:
            return self
        if not self.bits:
            return other
        low, high = (self, other) if self.lo <= other.lo else (other, self)
        bits = low.bits | high.bits << (high.lo - low.lo)
        return low if bits == low.bits else OrdinalSet(low.lo, bits)

    def __and__(self, other: OrdinalSet) -> OrdinalSet:
        if self is other:
            return self
        low, high = (self, other) if self.lo <= other.lo else (other, self)
        bits = low.bits >> (high.lo - low.lo) & high.bits
        return high if bits == high.bits else OrdinalSet(high.lo, bits)

    def __sub__(self, other: OrdinalSet) -> OrdinalSet:
        gap = other.lo - self.lo
        mask = other.bits << gap if gap >= 0 else other.bits >> -gap
        common = self.bits & mask
        return OrdinalSet(self.lo, self.bits ^ common) if common else self

    def __contains__(self, ordinal: int) -> bool:
        return ordinal >= self.lo and bool(self.bits >> (ordinal - self.lo) & 1)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.runs():
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return bool(self.bits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OrdinalSet):
            return NotImplemented
        return self is other or (self.lo == other.lo and self.bits == other.bits)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.lo, self.bits % _PRIME))
        return self._hash

    def __repr__(self) -> str:
        return "OrdinalSet(" + ", ".join(f"{a}..{b}" for a, b in self.runs()) + ")"


EMPTY: Final = OrdinalSet(0, 0)
#: The set of the one ordinal of a calendar without a time dimension.
POINT: Final = OrdinalSet(0, 1)
