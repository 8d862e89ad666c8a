"""The periods of the columns of a heatmap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lineage_backfill.partitions.grid import Grid, grain_grid
from lineage_backfill.planning.timeline import Span

_UNITS = ("hour", "day", "week", "month", "quarter", "year")


class Periods:
    """Consecutive periods of one unit in a time zone."""

    def __init__(self, grid: Grid, first: int, last: int) -> None:
        self._grid = grid
        self._ordinals = range(first, last + 1)

    @classmethod
    def covering(cls, spans: Sequence[Span], zone: str, *, most: int) -> Periods:
        """Return the shortest periods such that at most this many cover the spans.

        There is at least one span.
        """
        start, end = min(one for one, _ in spans), max(one for _, one in spans)
        for unit in _UNITS:
            grid = grain_grid(unit, zone)
            first, last = grid.at(start), grid.at(end - 1)
            if last - first < most:
                break
        return cls(grid, first, last)

    def __len__(self) -> int:
        return len(self._ordinals)

    @property
    def unit(self) -> str:
        """What one period is: an hour, a day."""
        return self._grid.family[0]

    @property
    def zone(self) -> str:
        """The time zone of the periods."""
        return self._grid.zone.name

    def label(self, column: int) -> str:
        """Return the key of a period; -1 is the last one."""
        return self._grid.label(self._ordinals[column])

    def spans(self) -> Iterator[tuple[str, int, int]]:
        """Yield the key of each period, its start and its end."""
        grid = self._grid
        return ((grid.label(one), grid.start(one), grid.end(one)) for one in self._ordinals)

    def columns(self, span: Span) -> range:
        """Return the periods that a span overlaps."""
        begin, (start, end) = self._ordinals[0], span
        return range(self._grid.at(start) - begin, self._grid.at(end - 1) + 1 - begin)
