"""Sets of partition keys over any calendar, kept as boxes of time by static keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Final

from lineage_backfill.partitions.ordinals import POINT, OrdinalSet

Box = tuple[OrdinalSet, int]
#: One partition: its time ordinal, and the index of its combination of static keys.
Point = tuple[int, int]


class PartitionSet:
    """An immutable set of the partitions of one calendar.

    A partition is a time ordinal (0 where the calendar has no time dimension) and the index of a
    combination of static keys (0 where it has none). The set is kept as boxes (ordinals, mask of
    indexes): masks are disjoint and ordinals differ, so equal sets have equal boxes and a product
    is never multiplied out.
    """

    __slots__ = ("_count", "_hash", "boxes")

    def __init__(self, boxes: tuple[Box, ...]) -> None:
        self.boxes = boxes
        self._hash: int | None = None
        self._count = -1

    @classmethod
    def of(cls, boxes: Iterable[Box]) -> PartitionSet:
        """Return the union of boxes, which may overlap."""
        given = [box for box in boxes if box[0].bits and box[1]]
        if len(given) == 1:
            return cls((given[0],))
        pieces: list[Box] = []
        for ordinals, mask in given:
            parts: list[Box] = []
            rest = mask
            for held, held_mask in pieces:
                both = held_mask & rest
                if both:
                    parts.append((held | ordinals, both))
                    rest ^= both
                if held_mask ^ both:
                    parts.append((held, held_mask ^ both))
            if rest:
                parts.append((ordinals, rest))
            pieces = parts
        merged: dict[OrdinalSet, int] = {}
        for ordinals, mask in pieces:
            merged[ordinals] = merged.get(ordinals, 0) | mask
        if not merged:
            return NOTHING
        return cls(tuple(sorted(merged.items(), key=lambda box: box[1] & -box[1])))

    @classmethod
    def union(cls, sets: Iterable[PartitionSet]) -> PartitionSet:
        """Return what lies in any of the sets."""
        return cls.of(box for one in sets for box in one.boxes)

    @classmethod
    def of_points(cls, points: Iterable[Point]) -> PartitionSet:
        """Return the set of single partitions."""
        ordinals: dict[int, list[int]] = {}
        for ordinal, index in points:
            ordinals.setdefault(index, []).append(ordinal)
        return cls.of((OrdinalSet.of(some), 1 << index) for index, some in ordinals.items())

    @classmethod
    def range(cls, first: int, last: int, mask: int = 1) -> PartitionSet:
        """Return the partitions of the ordinals first..last, both included."""
        return cls(((OrdinalSet.range(first, last), mask),))

    def points(self) -> Iterator[Point]:
        """Yield the partitions one by one, ascending in time and then by static key."""
        return merge(*map(_points, self.boxes))

    def singles(self) -> Iterator[PartitionSet]:
        """Yield each partition as a set of its own, ascending in time."""
        return (PartitionSet.range(o, o, 1 << index) for o, index in self.points())

    def ranges(self) -> Iterator[PartitionSet]:
        """Yield the maximal ranges of time, ascending."""
        if len(self.boxes) == 1 and self.boxes[0][0].is_range:
            yield self
            return
        for ordinals, mask in self.boxes:
            for first, last in ordinals.runs():
                yield PartitionSet.range(first, last, mask)

    def chunks(self, most: int) -> Iterator[PartitionSet]:
        """Yield sets of at most so many partitions; static keys of a time together if they fit."""
        for ordinals, mask in self.boxes:
            size = most // mask.bit_count()
            if size:
                members = list(ordinals)
                for start in range(0, len(members), size):
                    yield PartitionSet(((OrdinalSet.of(members[start : start + size]), mask),))
                continue
            indexes = list(OrdinalSet.of_mask(mask))
            parts = [
                sum(1 << index for index in indexes[start : start + most])
                for start in range(0, len(indexes), most)
            ]
            for ordinal in ordinals:
                for part in parts:
                    yield PartitionSet.range(ordinal, ordinal, part)

    def map_time(self, change: Callable[[OrdinalSet], OrdinalSet]) -> PartitionSet:
        """Return the set with the ordinals of each static key changed alike."""
        if len(self.boxes) == 1:  # by far the most
            ordinals, mask = self.boxes[0]
            found = change(ordinals)
            if found is ordinals:
                return self
            return PartitionSet(((found, mask),)) if found else NOTHING
        changed = [(change(ordinals), mask) for ordinals, mask in self.boxes]
        for (new, _), (old, _) in zip(changed, self.boxes, strict=True):
            if new is not old:
                return PartitionSet.of(changed)
        return self

    @property
    def ordinals(self) -> OrdinalSet:
        """The time ordinals of any static key."""
        result = self.boxes[0][0] if self.boxes else NO_ORDINALS
        for ordinals, _ in self.boxes[1:]:
            result |= ordinals
        return result

    def __or__(self, other: PartitionSet) -> PartitionSet:
        if self is other or not other.boxes:
            return self
        if not self.boxes:
            return other
        if len(self.boxes) == len(other.boxes) == 1:
            (mine, my_mask), (theirs, their_mask) = self.boxes[0], other.boxes[0]
            if my_mask == their_mask:
                union = mine | theirs
                return self if union is mine else PartitionSet(((union, my_mask),))
        return PartitionSet.of((*self.boxes, *other.boxes))

    def __and__(self, other: PartitionSet) -> PartitionSet:
        if self is other:
            return self
        return PartitionSet.of(
            (mine & theirs, my_mask & their_mask)
            for mine, my_mask in self.boxes
            for theirs, their_mask in other.boxes
            if my_mask & their_mask
        )

    def meets(self, other: PartitionSet) -> bool:
        """Return whether any partition is in both sets."""
        return any(
            my_mask & their_mask and (mine & theirs).bits
            for mine, my_mask in self.boxes
            for theirs, their_mask in other.boxes
        )

    def __sub__(self, other: PartitionSet) -> PartitionSet:
        if not self.boxes or not other.boxes:
            return self
        left = list(self.boxes)
        for theirs, their_mask in other.boxes:
            parts: list[Box] = []
            for mine, my_mask in left:
                both = my_mask & their_mask
                parts.append((mine, my_mask ^ both))
                if both:
                    parts.append((mine - theirs, both))
            left = parts
        return PartitionSet.of(left)

    def __contains__(self, point: Point) -> bool:
        ordinal, index = point
        return any(mask >> index & 1 and ordinal in ordinals for ordinals, mask in self.boxes)

    def __len__(self) -> int:
        if self._count < 0:
            self._count = sum(len(ordinals) * mask.bit_count() for ordinals, mask in self.boxes)
        return self._count

    def __bool__(self) -> bool:
        return bool(self.boxes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionSet):
            return NotImplemented
        return self is other or self.boxes == other.boxes

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.boxes)
        return self._hash

    def __repr__(self) -> str:
        return f"PartitionSet({', '.join(f'{o!r} x {m:b}' for o, m in self.boxes)})"


def _points(box: Box) -> Iterator[Point]:
    ordinals, mask = box
    indexes = list(OrdinalSet.of_mask(mask))
    return ((ordinal, index) for ordinal in ordinals for index in indexes)


NO_ORDINALS: Final = OrdinalSet(0, 0)
NOTHING: Final = PartitionSet(())
#: The one partition of unpartitioned data.
WHOLE: Final = PartitionSet(((POINT, 1),))
