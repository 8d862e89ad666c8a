"""Caches results of mappings and calendars during one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.closure import OwnEdge, closure
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping
from lineage_backfill.partitions.text import KeySet, render

K = TypeVar("K")
V = TypeVar("V")
_MOST: Final = 1 << 16


class Bounded(dict[K, V]):
    """A memo that is cleared once it holds many thousand values."""

    def keep(self, key: K, value: V) -> V:
        """Store and return the value."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = value
        return value


class KeyMemo:
    """Results of mappings on sets of keys, and their text, for one request.

    Equal sets come back as one object, which compares at once.
    """

    def __init__(self) -> None:
        self._sets: Bounded[PartitionSet, PartitionSet] = Bounded()
        self._unions: Bounded[tuple[PartitionSet, PartitionSet], PartitionSet] = Bounded()
        self._reach: Bounded[tuple[EdgeMapping, PartitionSet], tuple[PartitionSet, int | None]]
        self._reach = Bounded()
        self._required: Bounded[tuple[EdgeMapping, PartitionSet], PartitionSet] = Bounded()
        self._read: Bounded[tuple[EdgeMapping, PartitionSet], PartitionSet] = Bounded()
        self._closures: Bounded[object, tuple[PartitionSet, ...]] = Bounded()
        self._texts: Bounded[tuple[Calendar, PartitionSet], KeySet] = Bounded()
        #: The mappings by which keys would be stale that do not exist yet.
        self.beyond: set[EdgeMapping] = set()

    def intern(self, keys: PartitionSet) -> PartitionSet:
        """Return the one object for equal sets."""
        found = self._sets.get(keys)
        return self._sets.keep(keys, keys) if found is None else found

    def unite(self, one: PartitionSet, other: PartitionSet) -> PartitionSet:
        """Return the union of two sets."""
        if one is other or not one.boxes:
            return other
        found = self._unions.get((one, other))
        if found is None:
            found = self._unions.keep((one, other), self.intern(one | other))
        return found

    def reach(self, mapping: EdgeMapping, changed: PartitionSet) -> tuple[PartitionSet, int | None]:
        """Return what `EdgeMapping.reach` does."""
        found = self._reach.get((mapping, changed))
        if found is None:
            keys, newest = mapping.reach(changed)
            if newest is not None:
                self.beyond.add(mapping)
            found = self._reach.keep((mapping, changed), (self.intern(keys), newest))
        return found

    def affected(self, mapping: EdgeMapping, changed: PartitionSet) -> PartitionSet:
        """Return the existing run keys that read any of the changed partitions."""
        return self.reach(mapping, changed)[0]

    def required(self, mapping: EdgeMapping, keys: PartitionSet) -> PartitionSet:
        """Return the existing partitions of the input that the run keys read."""
        found = self._required.get((mapping, keys))
        if found is None:
            found = self._required.keep((mapping, keys), self.intern(mapping.required(keys)))
        return found

    def read(self, mapping: EdgeMapping, keys: PartitionSet) -> PartitionSet:
        """Return the partitions of the input that runs of these keys read."""
        found = self._read.get((mapping, keys))
        if found is None:
            found = self._read.keep((mapping, keys), self.intern(mapping.read(keys)))
        return found

    def closure(
        self, own: Sequence[OwnEdge], sets: Sequence[PartitionSet]
    ) -> Sequence[PartitionSet]:
        """Return the run keys of each group with everything they make stale, transitively."""
        asked = tuple(own), tuple(sets)
        found = self._closures.get(asked)
        if found is None:
            found = self._closures.keep(asked, tuple(map(self.intern, closure(own, sets))))
        return found

    def render(self, calendar: Calendar, keys: PartitionSet) -> KeySet:
        """Return the set as text."""
        found = self._texts.get((calendar, keys))
        if found is None:
            found = self._texts.keep((calendar, keys), render(calendar, keys))
        return found
