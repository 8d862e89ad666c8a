"""The partitions of a dataset as a strip of cells, one for each key or period."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from urllib.parse import quote

from lineage_backfill.errors import UsageError
from lineage_backfill.partitions.calendar import Calendar, TimeAxis
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.text import expand, parse, parse_partitions
from lineage_backfill.staleness.partitions import PartitionState, PartitionStates
from lineage_backfill.web.periods import Periods
from lineage_backfill.web.view_models import WORST

_CELLS = 60  # of a strip; where there are more keys, each shows a period
_STATIC = 200  # keys without time of each state
SIGNS = {
    PartitionState.STALE: "~",
    PartitionState.MISSING: "+",
    PartitionState.RUNNING: "▸",
    PartitionState.UNKNOWN: "?",
    PartitionState.FRESH: "✓",
    PartitionState.EXPIRED: "-",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One key or period: its keys as `--partitions` takes them, and how many are in each state."""

    label: str
    keys: str
    counts: Mapping[PartitionState, int]
    written: datetime | None
    is_period: bool

    @property
    def state(self) -> PartitionState:
        """The most important of its states."""
        return next(state for state in WORST if state in self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The cells of a span of keys, what each of them is, and the spans before and after it."""

    cells: Sequence[Cell]
    unit: str = "key"
    is_part: bool = False
    earlier: str = ""
    later: str = ""


def strip(found: PartitionStates, within: str) -> Strip:
    """Return the cells for the keys in a span, by default all; raises UsageError for a wrong one.

    Keys without time have a cell each.
    """
    calendar = found.calendar
    if calendar is None or calendar.is_whole or not found.states:
        return Strip(cells=())
    axis = calendar.time
    if axis is None:
        return Strip(cells=list(_static(found, calendar)))
    every = shown = PartitionSet.union(found.states.values()).ordinals
    if within:
        shown = parse(calendar, parse_partitions(within)).ordinals
        if not shown:
            raise UsageError(f"{within} has no key that exists", hint="Show all keys.")
    first, last = shown.lo, shown.hi
    size = last - first + 1
    unit, spans = "key", [(axis.grid.label(one), one, one) for one in range(first, last + 1)]
    if size > _CELLS:
        whole = axis.grid.start(first), axis.grid.end(last)
        periods = Periods.covering([whole], calendar.zone, most=_CELLS)
        unit, spans = periods.unit, list(_by_period(axis, periods, first, last))
    written = _written(found, [one for _, one, _ in spans], last)
    cells = [
        Cell(
            label=label,
            keys=_span(calendar, axis, one, other),
            counts=counts,
            written=written.get(at),
            is_period=one < other,
        )
        for at, (label, one, other) in enumerate(spans)
        if (counts := _counts(found, one, other))
    ]
    low, high = every.lo, every.hi
    return Strip(
        cells=cells,
        unit=unit,
        is_part=bool(within),
        earlier=_span(calendar, axis, max(low, first - size), first - 1) if first > low else "",
        later=_span(calendar, axis, last + 1, min(high, last + size)) if last < high else "",
    )


def _by_period(
    axis: TimeAxis, periods: Periods, first: int, last: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the label of each period, and the first and the last key that begin in it."""
    grid = axis.grid
    for label, start, end in periods.spans():
        one, other = grid.at(start), grid.at(end - 1)
        one = max(first, one + (grid.start(one) < start))
        if one <= (other := min(last, other)):
            yield label, one, other


def _counts(found: PartitionStates, first: int, last: int) -> Mapping[PartitionState, int]:
    """Return how many partitions of these times are in each state."""
    held = {
        state: keys.map_time(lambda ordinals: ordinals.clip(first, last))
        for state, keys in found.states.items()
    }
    return {state: len(keys) for state, keys in held.items() if keys}


def _written(found: PartitionStates, begins: Sequence[int], end: int) -> Mapping[int, datetime]:
    """Return the last write of each cell; they begin with these keys, up to the last one."""
    written: dict[int, datetime] = {}
    for change in found.table.changes if found.table is not None else ():
        for first, last in change.keys.ordinals.clip(begins[0], end).runs():
            cells = range(bisect_right(begins, first) - 1, bisect_right(begins, last))
            written |= dict.fromkeys(cells, change.at)
    return written


def _span(calendar: Calendar, axis: TimeAxis, first: int, last: int) -> str:
    label = axis.grid.label
    # A single key of a product names all its dimensions, a range only that of time.
    is_single = first == last and not calendar.order
    return label(first) if is_single else f"{label(first)}..{label(last)}"


def _static(found: PartitionStates, calendar: Calendar) -> Iterator[Cell]:
    """Yield a cell for each key; of a product, whose keys are paths."""
    for state, held in found.states.items():
        for key in islice(expand(calendar, held), _STATIC):
            parts = key.label
            if not isinstance(parts, str):
                parts = "/".join(f"{name}={quote(one, safe='')}" for name, one in parts.items())
            yield Cell(label=parts, keys=parts, counts={state: 1}, written=None, is_period=False)
