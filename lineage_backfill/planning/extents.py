"""Which partitions of which datasets: what planning looks into more than into anything else."""

from __future__ import annotations

from typing import Final

from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.project.resolver import DatasetFacts


class _Unknown:
    """Stands for dirty partitions of a dataset whose partitioning is unknown."""

    def __bool__(self) -> bool:
        return True


UNKNOWN: Final = _Unknown()
Dirty = PartitionSet | _Unknown


class Extents:
    """Partitions by dataset; of a dataset that is in it there are some.

    `by_number` holds them by the datasets' numbers, None for a dataset that is not in it: a list is
    looked into several times faster than a dictionary of many thousand datasets.
    """

    __slots__ = ("by_number",)

    def __init__(self) -> None:
        self.by_number: list[Dirty | None] = []

    def make_room(self, count: int) -> None:
        """Make room for the datasets whose numbers are less than the count."""
        self.by_number += [None] * (count - len(self.by_number))

    def add(self, data: DatasetFacts, extent: Dirty) -> None:
        """Add partitions of a dataset, if they are any."""
        if extent:
            self.make_room(data.number + 1)
            held = self.by_number[data.number]
            self.by_number[data.number] = extent if held is None else united(held, extent)

    def get(self, data: DatasetFacts) -> Dirty | None:
        """Return the partitions of a dataset; None where it has none."""
        number = data.number
        return self.by_number[number] if number < len(self.by_number) else None

    def __contains__(self, data: DatasetFacts) -> bool:
        return self.get(data) is not None

    def __getitem__(self, data: DatasetFacts) -> Dirty:
        found = self.by_number[data.number]
        assert found is not None
        return found


def united(one: Dirty, other: Dirty) -> Dirty:
    """Return what lies in either."""
    if isinstance(one, _Unknown) or isinstance(other, _Unknown):
        return UNKNOWN
    return one | other
