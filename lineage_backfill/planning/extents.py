"""Sets of partitions by dataset, the most used structure of planning."""

from __future__ import annotations

from typing import Final

from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.project.resolve.resolver import DatasetFacts


class _Unknown:
    """Placeholder for dirty partitions of a dataset of unknown partitioning."""

    def __bool__(self) -> bool:
        return True


UNKNOWN: Final = _Unknown()
Dirty = PartitionSet | _Unknown


class Extents:
    """Non-empty sets of partitions by dataset.

    `by_number` holds them by the datasets' numbers, None for an absent dataset: a list is several
    times faster than a dictionary of many thousand datasets.
    """

    __slots__ = ("by_number",)

    def __init__(self) -> None:
        self.by_number: list[Dirty | None] = []

    def make_room(self, count: int) -> None:
        """Make room for datasets with numbers below the count."""
        self.by_number += [None] * (count - len(self.by_number))

    def add(self, data: DatasetFacts, extent: Dirty) -> None:
        """Add partitions of a dataset, if there are any."""
        if extent:
            self.make_room(data.number + 1)
            held = self.by_number[data.number]
            self.by_number[data.number] = extent if held is None else united(held, extent)

    def get(self, data: DatasetFacts) -> Dirty | None:
        """Return the partitions of a dataset; None if it has none."""
        number = data.number
        return self.by_number[number] if number < len(self.by_number) else None

    def __contains__(self, data: DatasetFacts) -> bool:
        return self.get(data) is not None

    def __getitem__(self, data: DatasetFacts) -> Dirty:
        found = self.by_number[data.number]
        assert found is not None
        return found


def united(one: Dirty, other: Dirty) -> Dirty:
    """Return the union."""
    if isinstance(one, _Unknown) or isinstance(other, _Unknown):
        return UNKNOWN
    return one | other
