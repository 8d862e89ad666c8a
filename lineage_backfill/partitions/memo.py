"""Caches results of mappings and calendars."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import Final, TypeVar

from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.closure import OwnEdge, closure
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import KeySet, render

K = TypeVar("K")
V = TypeVar("V")
_MOST: Final = 1 << 16
_Asked = tuple[EdgeMapping, PartitionSet]


class Bounded(dict[K, V]):
    """Values found on first lookup; cleared once it holds many thousand."""

    def __init__(self, find: Callable[[K], V]) -> None:
        self._find = find

    def __missing__(self, key: K) -> V:
        if len(self) >= _MOST:
            self.clear()
        found = self[key] = self._find(key)
        return found


class KeyMemo:
    """Results of mappings on sets of keys, and their text.

    Equal sets come back as one object, which compares at once.
    """

    def __init__(self) -> None:
        sets: Bounded[PartitionSet, PartitionSet] = Bounded(lambda keys: keys)
        #: The mappings by which keys would be stale that do not exist yet.
        self.beyond: set[EdgeMapping] = set()
        beyond = self.beyond

        def reach(asked: _Asked) -> tuple[PartitionSet, OrdinalSet]:
            keys, late = asked[0].reach(asked[1])
            if late:
                beyond.add(asked[0])
            return sets[keys], late

        self._sets = sets
        self._unions: Bounded[tuple[PartitionSet, PartitionSet], PartitionSet]
        self._unions = Bounded(lambda pair: sets[pair[0] | pair[1]])
        self._reach = Bounded(reach)
        self._required: Bounded[_Asked, PartitionSet]
        self._required = Bounded(lambda asked: sets[asked[0].required(asked[1])])
        self._read: Bounded[_Asked, PartitionSet]
        self._read = Bounded(lambda asked: sets[asked[0].read(asked[1])])
        self._closures: Bounded[
            tuple[tuple[OwnEdge, ...], tuple[PartitionSet, ...]], tuple[PartitionSet, ...]
        ] = Bounded(lambda asked: tuple([sets[keys] for keys in closure(*asked)]))
        self._texts: Bounded[tuple[Calendar, PartitionSet], KeySet]
        self._texts = Bounded(lambda asked: render(*asked))

    def __len__(self) -> int:
        """Return how many results it holds."""
        held: tuple[Sized, ...] = (self._sets, self._unions, self._reach, self._required)
        return sum(map(len, (*held, self._read, self._closures, self._texts)))

    def intern(self, keys: PartitionSet) -> PartitionSet:
        """Return the one object for equal sets."""
        return self._sets[keys]

    def unite(self, one: PartitionSet, other: PartitionSet) -> PartitionSet:
        """Return the union of two sets."""
        return other if one is other or not one.boxes else self._unions[one, other]

    def late(self, mapping: EdgeMapping, changed: PartitionSet) -> OrdinalSet:
        """Return the run keys that would be stale but do not exist yet."""
        return self._reach[mapping, changed][1]

    def affected(self, mapping: EdgeMapping, changed: PartitionSet) -> PartitionSet:
        """Return the existing run keys that read any of the changed partitions."""
        return self._reach[mapping, changed][0]

    def required(self, mapping: EdgeMapping, keys: PartitionSet) -> PartitionSet:
        """Return the existing partitions of the input that the run keys read."""
        return self._required[mapping, keys]

    def read(self, mapping: EdgeMapping, keys: PartitionSet) -> PartitionSet:
        """Return the partitions of the input that runs of these keys read."""
        return self._read[mapping, keys]

    def closure(
        self, own: Sequence[OwnEdge], sets: Sequence[PartitionSet]
    ) -> Sequence[PartitionSet]:
        """Return the run keys of each group with everything they make stale, transitively."""
        return self._closures[tuple(own), tuple(sets)]

    def render(self, calendar: Calendar, keys: PartitionSet) -> KeySet:
        """Return the set as text."""
        return self._texts[calendar, keys]
