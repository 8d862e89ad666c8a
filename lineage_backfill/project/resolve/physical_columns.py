"""Converts keys to the physical partition columns of a table."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta

from lineage_backfill.partitions.calendar import EVERY, Calendar
from lineage_backfill.partitions.grid import Grid
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import Key
from lineage_backfill.project.declarations import DatasetDeclaration

#: The format of the local start (None: the key's label) and the dimension, of each column.
PhysicalColumns = Mapping[str, tuple[str | None, str | None]]

#: An ordinary day, far from any change of clocks and from the edges of month and year.
_SAMPLE = datetime(2023, 6, 14, 10)  # noqa: DTZ001 (a wall clock has no zone)


def unplaced(declared: DatasetDeclaration | None, calendar: Calendar | None) -> str:
    """Return the missing setting that a run spec needs: location, column or ""."""
    if declared is None or (declared.location is None and declared.table is None):
        return "location"
    is_keyed = calendar is not None and not calendar.is_whole
    return "column" if is_keyed and not physical_columns(declared) else ""


def physical_columns(declared: DatasetDeclaration) -> PhysicalColumns:
    """Return the physical partition columns that are declared."""
    if declared.columns:
        return {column: (form, None) for column, form in declared.columns.items()}
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


def not_told_apart(calendar: Calendar, columns: PhysicalColumns) -> tuple[str, str] | None:
    """Return two keys with the same values in the table's columns; None if there are none.

    Replacing the partition of one would clear the other. For hours that the clock shows twice see
    `repeated`.
    """
    named = {
        dimension or column
        for column, (form, dimension) in columns.items()
        if form is None or calendar.time is None
    }
    for static in calendar.statics if calendar.order else ():
        if static.name not in named and (len(static.keys) > 1 or static.runtime):
            first, other_key = (*static.keys, EVERY, EVERY)[:2]
            return f"{static.name}={first}", f"{static.name}={other_key}"
    forms = _time_forms(calendar, columns)
    if calendar.time is None or None in forms:
        return None
    grid = calendar.time.grid
    one = grid.at(grid.zone.instant(_SAMPLE, 0))
    for other in _others(grid, one):
        if _texts(grid, forms, one) == _texts(grid, forms, other):
            return grid.label(one), grid.label(other)
    return None


def repeated(
    calendar: Calendar, columns: PhysicalColumns, keys: PartitionSet
) -> tuple[str, str] | None:
    """Return a key and another one with the same column values, where clocks go back."""
    forms = _time_forms(calendar, columns)
    if calendar.time is None or not forms or None in forms or calendar.time.grid.zone.fixed:
        return None
    grid = calendar.time.grid
    for ordinals, _ in keys.boxes:
        for one in ordinals:
            for other in (one - 1, one + 1):
                if _texts(grid, forms, one) == _texts(grid, forms, other):
                    return grid.label(one), grid.label(other)
    return None


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


def _texts(grid: Grid, forms: Iterable[str | None], ordinal: int) -> list[str]:
    local = grid.local_start(ordinal)
    return [local.strftime(form) for form in forms if form is not None]


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
