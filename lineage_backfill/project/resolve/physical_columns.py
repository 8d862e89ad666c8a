"""Converts keys to the physical partition columns of a table."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import chain
from typing import Final

from lineage_backfill.partitions.calendar import EVERY, Calendar
from lineage_backfill.partitions.grid import Grid
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import Key
from lineage_backfill.partitions.zones import Zone
from lineage_backfill.project.declarations import DatasetDeclaration

#: The format of the local start (None: the key's label) and the dimension, of each column.
PhysicalColumns = Mapping[str, tuple[str | None, str | None]]

#: How far around the newest key no two keys may be alike, in seconds; and how many are compared.
_AHEAD: Final = 12 * 366 * 86_400
_BEFORE: Final = 40 * 366 * 86_400  # of a calendar without a start
_MOST_COMPARED: Final = 100_000
_DAY: Final = 86_400

#: Directives of strftime that name a date, or an hour, together; and those that name a minute.
_DATES: Final = tuple(map(set, ("Ymd", "Ybd", "YBd", "Yj", "F", "GVu", "GVa", "GVA")))
_HOURS: Final = tuple(map(set, ("H", "Ip", "R", "T")))
_MINUTES: Final = set("MRT")
_DIRECTIVE = re.compile(r"%([A-Za-z%])")


def unplaced(declared: DatasetDeclaration | None, calendar: Calendar | None) -> str:
    """Return the missing setting that a run spec needs: location, column or ""."""
    if declared is None or (declared.location is None and declared.table is None):
        return "location"
    is_keyed = calendar is not None and not calendar.is_whole
    return "column" if is_keyed and not physical_columns(declared) else ""


def physical_columns(declared: DatasetDeclaration) -> PhysicalColumns:
    """Return the physical partition columns that are declared."""
    if declared.named_columns:
        return {column: (form, None) for column, form in declared.named_columns.items()}
    return {d.column: (None, d.name) for d in declared.dimensions if d.column is not None}


def physical_values(key: Key, columns: PhysicalColumns) -> dict[str, str]:
    """Return the text of each physical column of a key.

    A column whose key is `*` is left out: it stands for every present and future value.
    """
    values = {}
    for column, (form, dimension) in columns.items():
        if EVERY in (key.label, key.statics.get(dimension or column)):
            continue
        if form is not None and key.local is not None:
            values[column] = key.local.strftime(form)
        elif (dimension or column) in key.statics:
            values[column] = key.statics[dimension or column]
        elif key.time_label is not None:
            values[column] = key.time_label
        else:
            values[column] = str(key.label)
    return values


def interval(key: Key, zone: Zone) -> str:
    """Return the interval of a key for a column of times: two instants, with the local time each.

    >>> from lineage_backfill.partitions.zones import zone
    >>> begin, end = datetime(2024, 3, 10, 5, tzinfo=UTC), datetime(2024, 3, 11, 4, tzinfo=UTC)
    >>> key = Key(label="2024-03-10", start=begin, end=end, statics={})
    >>> interval(key, zone("America/New_York"))
    '2024-03-10T00:00:00-05:00/2024-03-11T00:00:00-04:00'
    """
    ends = [one for one in (key.start, key.end) if one is not None]
    return "/".join(_with_wall_clock(int(one.timestamp()), zone) for one in ends)


def _with_wall_clock(instant: int, zone: Zone) -> str:
    """Return an instant as its local time; where that jumps, as the one that it jumps from."""
    local = min(zone.local(instant), zone.local(instant - 1) + timedelta(seconds=1))
    offset = local - datetime.fromtimestamp(instant, UTC).replace(tzinfo=None)
    return local.replace(tzinfo=timezone(offset)).isoformat()


def indistinct_keys(calendar: Calendar, columns: PhysicalColumns) -> tuple[str, str] | None:
    """Return two keys with the same values in the table's columns; None if there are none.

    Replacing the partition of one would clear the other. Keys of the next twelve years count, too.
    For hours that the clock shows twice see `repeated`.
    """
    named = {
        dimension or column
        for column, (form, dimension) in columns.items()
        if form is None or calendar.time is None
    }
    for static in calendar.statics if calendar.order else ():
        if static.name not in named and (len(static.keys) > 1 or static.runtime):
            key, other_key = (*static.keys, EVERY, EVERY)[:2]
            return f"{static.name}={key}", f"{static.name}={other_key}"
    forms = _time_forms(calendar, columns)
    axis = calendar.time
    if axis is None or None in forms or _is_exact(axis.grid, forms):
        return None
    grid, last = axis.grid, axis.last
    start = grid.at(grid.start(last) - _BEFORE) if axis.first is None else axis.first
    end = grid.at(grid.start(last) + _AHEAD)
    seen: dict[tuple[str, ...], int] = {}
    earlier = range(last, max(start, last - _MOST_COMPARED) - 1, -1)
    for one in chain(earlier, range(last + 1, min(end, last + _MOST_COMPARED) + 1)):
        other = seen.setdefault(_texts(grid, forms, one), one)
        if other != one and grid.local_start(other) != grid.local_start(one):
            return grid.label(min(one, other)), grid.label(max(one, other))
    return None


def distinct_form(declared: DatasetDeclaration | None) -> str:
    """Return the hint that names columns in which no two keys are alike."""
    forms = {} if declared is None else declared.columns
    week = [form for form in forms.values() if form and "%V" in form]
    if week and any(form and "%Y" in form for form in forms.values()):
        return "Write %G, the year of the ISO week, beside %V: %Y is the year of its Monday."
    column = next(iter(forms), "key")
    return f"Store the key itself, column = {column!r}, or add columns in which all keys differ."


def repeated(
    calendar: Calendar, columns: PhysicalColumns, keys: PartitionSet
) -> tuple[str, str] | None:
    """Return a key and another one with the same column values, where clocks go back."""
    forms = _time_forms(calendar, columns)
    if calendar.time is None or not forms or None in forms or calendar.time.grid.zone.fixed:
        return None
    grid = calendar.time.grid
    for ordinals, _ in keys.boxes:
        for one in ordinals & _near_repeats(grid, ordinals):
            readings = map(grid.at, grid.zone.readings(grid.local_start(one)))
            for other in (one - 1, one + 1, *readings):
                is_other = other != one and grid.start(other) < grid.end(other)
                if is_other and _texts(grid, forms, one) == _texts(grid, forms, other):
                    return grid.label(one), grid.label(other)
    return None


def _near_repeats(grid: Grid, ordinals: OrdinalSet) -> OrdinalSet:
    """Return the keys around each moment at which clocks go back."""
    if not ordinals:
        return ordinals
    first, last = ordinals.runs()[0][0], ordinals.runs()[-1][1]
    begin, end = grid.start(first) - _DAY, grid.end(last) + _DAY
    return OrdinalSet.of_runs(
        (grid.at(instant - before + after) - 1, grid.at(instant + before - after) + 1)
        for instant, before, after in grid.zone.changes()
        if after < before and begin <= instant <= end
    )


def on_the_clock(declared: DatasetDeclaration) -> PhysicalColumns:
    """Return how a table tells keys apart, if times in it are local ones."""
    if declared.time_column is None:
        return physical_columns(declared)
    return {declared.time_column: (declared.time_format or "%F %T", None)}


def beside(calendar: Calendar, columns: PhysicalColumns, keys: PartitionSet) -> PartitionSet:
    """Return existing keys near these that may have the same column values; not these."""
    near = calendar.full(keys.ordinals)
    if calendar.time is not None and None not in _time_forms(calendar, columns):
        grid = calendar.time.grid
        ends = {end for run in keys.ordinals.runs() for end in run}
        others = OrdinalSet.of({other for end in ends for other in _others(grid, end)})
        near = calendar.full(keys.ordinals | others)
    return calendar.clip(near, begun=True) - keys


def _time_forms(calendar: Calendar, columns: PhysicalColumns) -> tuple[str | None, ...]:
    """Return the formats of the time columns; None means the key itself."""
    statics = {one.name for one in calendar.statics}
    return tuple(
        form
        for column, (form, dimension) in columns.items()
        if form is not None or (dimension or column) not in statics
    )


def _texts(grid: Grid, forms: Iterable[str | None], ordinal: int) -> tuple[str, ...]:
    local = grid.local_start(ordinal)
    return tuple(local.strftime(form) for form in forms if form is not None)


def _is_exact(grid: Grid, forms: Iterable[str | None]) -> bool:
    """Whether the formats hold the whole start of a key, so that no two keys are alike."""
    parts = {part for form in forms for part in _DIRECTIVE.findall(form or "")}
    family, *step = grid.family
    if not any(each <= parts for each in _DATES):
        return False
    if family in ("day", "week", "month", "quarter", "year"):
        return True
    minutes = family == "hour" or bool(parts & _MINUTES)
    seconds = family != "every" or int(step[0]) % 60 == 0 or bool(parts & {"S", "T"})
    return minutes and seconds and any(each <= parts for each in _HOURS)


def _others(grid: Grid, one: int) -> Iterator[int]:
    """Yield keys that differ from one in each of the units that a format may leave out."""
    yield one - 1
    yield one + 1
    local = grid.local_start(one)
    for near in _other_times(local):
        other = grid.at(grid.zone.instant(near, 0))
        if other != one:
            yield other


def _other_times(local: datetime) -> Iterator[datetime]:
    """Yield times that differ in each of the units that a format may leave out."""
    for sign in (1, -1):
        yield local + sign * timedelta(hours=12)
        yield local + sign * timedelta(days=1)
        yield local + sign * timedelta(days=7)
        months = local.year * 12 + local.month - 1
        for distance in (1, 12, 2, 48):  # two months later the day exists, and after four years
            year, month = divmod(months + sign * distance, 12)
            if date.min.year < year < date.max.year:
                last = monthrange(year, month + 1)[1]
                yield local.replace(year=year, month=month + 1, day=min(local.day, last))
