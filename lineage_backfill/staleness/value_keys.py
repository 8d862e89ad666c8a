"""Converts spans of values in files of a table to keys: of tables not partitioned by their keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.calendar import Calendar, StaticAxis, TimeAxis
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.ordinals import POINT
from lineage_backfill.partitions.zones import Zone

_NUMBERS = ("byte", "short", "integer", "long")


@dataclass(frozen=True, kw_only=True)
class ValueKeys:
    """Reads spans of the values of a column, of this type, as keys of a calendar."""

    dataset: DatasetRef
    calendar: Calendar
    column: str
    kind: str

    def find(
        self, partitions: Iterable[Mapping[str, str | None]]
    ) -> tuple[PartitionSet, tuple[str, ...]]:
        """Return the keys that the spans overlap, and the spans without an existing key.

        Raises DeclarationError if these are all keys of a calendar without a start.
        """
        keys, strange = [], []
        for span in partitions:
            found, _ = self._keys(span)
            keys.append(found)
            if not found:
                strange.append(f"{self.column}={span['first'] or ''}..{span['last'] or ''}")
        return PartitionSet.union(keys), tuple(strange)

    def held(self, partitions: Iterable[Mapping[str, str | None]]) -> PartitionSet:
        """Return the keys that surely have rows in the spans: those of their ends."""
        return PartitionSet.union(self._keys(span)[1] for span in partitions)

    def is_exact(self, partitions: Iterable[Mapping[str, str | None]]) -> bool:
        """Whether each span lies in one key: those of our commits, and of small files."""
        return all(len(self._keys(span)[0]) <= 1 for span in partitions)

    def _keys(self, span: Mapping[str, str | None]) -> tuple[PartitionSet, PartitionSet]:
        """Return the keys that a span overlaps, and those of its ends."""
        axis, first, last = self.calendar.time, span["first"], span["last"]
        if axis is None:
            return self._static(self.calendar.statics[0], first, last)
        if first is None and axis.first is None:
            raise DeclarationError(
                f"the log has no bounds of {self.column!r} in a changed file of {self.dataset}, "
                "and its keys have no first one",
                hint="Declare its `start`, or name the keys, with --from and --to or --partitions.",
            )
        return self._dated(axis, first, last)

    def _dated(
        self, axis: TimeAxis, first: str | None, last: str | None
    ) -> tuple[PartitionSet, PartitionSet]:
        grid = axis.grid
        if axis.first is None:
            low = int(datetime(grid.first_year, 1, 2, tzinfo=UTC).timestamp())
        else:
            low = grid.start(axis.first)
        start = low if first is None else math.floor(min(_instants(first, grid.zone)))
        end = grid.end(axis.begun)
        if last is not None:
            end = min(end, math.ceil(max(_instants(last, grid.zone))))
        if max(start, low) >= end:
            return NOTHING, NOTHING
        one, other = grid.touching(max(start, low), end)
        if one > other:
            return NOTHING, NOTHING
        ends = [one] if first is not None and start >= low else []
        if last is not None and grid.end(other) >= end:
            ends.append(other)
        held = PartitionSet.union(PartitionSet.range(each, each) for each in ends)
        return PartitionSet.range(one, other), held

    def _static(
        self, axis: StaticAxis, first: str | None, last: str | None
    ) -> tuple[PartitionSet, PartitionSet]:
        ends = [None if end is None else self._value(end) for end in (first, last)]
        values = {position: self._value(key) for key, position in axis.index.items()}
        found = [place for place, value in values.items() if _lies(value, ends)]
        held = [place for place in found if values[place] in ends]
        return self._at(found), self._at(held)

    def _at(self, places: Iterable[int]) -> PartitionSet:
        mask = sum(1 << place for place in places)
        return PartitionSet.of([(POINT, self.calendar.combine([mask]))]) if mask else NOTHING

    def _value(self, text: str) -> str | int:
        """Return a value that is ordered as in the table."""
        return int(text) if self.kind in _NUMBERS else text


def _lies(value: str | int, ends: Sequence[str | int | None]) -> bool:
    first, last = ends
    above = first is None or first <= value  # type: ignore[operator]  # of one type
    return above and (last is None or value <= last)  # type: ignore[operator]


def _instants(text: str, zone: Zone) -> list[float]:
    """Return the instants that a time may mean: two, where clocks go back."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is not None:
        return [at.timestamp()]
    whole = at.replace(microsecond=0)
    return [zone.instant(whole, fold) + at.microsecond / 1e6 for fold in (0, 1)]
