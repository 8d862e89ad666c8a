"""Sets of partition keys over any calendar, kept as boxes of time by static keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lineage_backfill.partitions.ordinals import POINT, OrdinalSet

Box = tuple[OrdinalSet, int]


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
        given = [box for box in boxes if box[0] and box[1]]
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


NO_ORDINALS: Final = OrdinalSet(0, 0)
NOTHING: Final = PartitionSet(())
#: The one partition of unpartitioned data.
WHOLE: Final = PartitionSet(((POINT, 1),))
