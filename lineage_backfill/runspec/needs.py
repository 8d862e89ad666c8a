"""Which partitions of an input each key of a run needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import expand, parse
from lineage_backfill.project.declarations import OnMissing
from lineage_backfill.project.resolve.resolver import Input, JobFacts, read_by

#: Keys of an input read whole that a run spec lists only to warn of missing ones: years of days.
_LISTED = 5000
#: How many keys after those that a run reads of a sparse input are checked for a write.
_LATER = 366


@dataclass(frozen=True, slots=True)
class Needs:
    """What the keys of a run need of one input; `edge` is None where no declaration knows it."""

    facts: JobFacts
    edge: Input | None
    keys: PartitionSet

    @property
    def on_missing(self) -> OnMissing:
        """When the run fails because what it needs was never written."""
        return "guard" if self.edge is None else self.edge.on_missing

    @property
    def required(self) -> PartitionSet | None:
        """The keys that an input must have though it is read whole; None where any will do."""
        if self.edge is None or self.edge.mapping is None or self.edge.judged_whole:
            return None
        found = read_by(self.edge, self.keys)
        return None if self.on_missing != "fail" and len(found) > _LISTED else found

    def later(self, needed: PartitionSet) -> PartitionSet | None:
        """The next keys after the needed ones: once one is written, no key before is a gap."""
        calendar = None if self.edge is None else self.edge.data.calendar
        if self.edge is None or not self.edge.is_sparse or calendar is None or not needed:
            return None
        ordinals = needed.ordinals
        near = calendar.full(OrdinalSet.range(ordinals.lo, ordinals.hi + _LATER))
        return calendar.clip(near, begun=True) - needed

    def by_key(self, wanted: PartitionSet) -> tuple[tuple[tuple[int, int], ...], ...] | None:
        """Return the places in `wanted` that each run key needs; None where each needs them all."""
        edge, run = self.edge, self.facts.calendar
        if edge is None or edge.mapping is None or run is None:
            return None
        if self.on_missing != "guard" or len(self.keys) == 1:
            return None
        each = [read_by(edge, one) & wanted for one in _one_by_one(run, self.keys)]
        if all(one == wanted for one in each):
            return None
        places = _Places(edge.mapping.upstream, wanted)
        return tuple(tuple(places.of(one)) for one in each)


def _one_by_one(calendar: Calendar, keys: PartitionSet) -> Iterator[PartitionSet]:
    """Yield each key by itself, in the order in which `expand` yields them."""
    if not calendar.statics:
        return keys.singles()
    return (parse(calendar, (key.label,)) for key in expand(calendar, keys))


class _Places:
    """Where each partition of a set stands in what `expand` yields of it."""

    def __init__(self, calendar: Calendar, wanted: PartitionSet) -> None:
        self._calendar = calendar
        self._ordinals = wanted.ordinals
        every = expand(calendar, wanted) if calendar.statics else ()
        self._at = {str(key.label): place for place, key in enumerate(every)}

    def of(self, some: PartitionSet) -> list[tuple[int, int]]:
        """Return the places of partitions of the set as ranges, both ends included."""
        if self._calendar.statics:
            labels = (str(key.label) for key in expand(self._calendar, some))
            return OrdinalSet.of(self._at[label] for label in labels if label in self._at).runs()
        runs = some.ordinals.runs()
        ends = [(self._ordinals.clip(None, first - 1), last - first) for first, last in runs]
        return [(len(before), len(before) + more) for before, more in ends]
