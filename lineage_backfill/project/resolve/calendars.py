"""Builds calendars from declarations; equal calendars are the same object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from lineage_backfill.errors import DeclarationError, UsageError
from lineage_backfill.model import listed
from lineage_backfill.partitions.calendar import EVERY, Calendar, TimeAxis
from lineage_backfill.partitions.grid import (
    Grid,
    cron_grid,
    every_grid,
    grain_grid,
    list_grid,
    zoned_grid,
)
from lineage_backfill.partitions.text import static_axis
from lineage_backfill.project.declarations import CalendarDeclaration, DimensionDeclaration


@contextmanager
def _prefixed(text: str) -> Iterator[None]:
    """Name in an error what it is about."""
    try:
        yield
    except UsageError as error:
        raise error.within(text) from error


def _find(grid: Grid, word: str, label: str | None) -> int | None:
    """Return the ordinal of the key at an end of a calendar; raises UsageError naming the end."""
    if label is None:
        return None
    with _prefixed(f"`{word}` "):
        return grid.find(label)


def _grid(declared: CalendarDeclaration, zone: str) -> Grid:
    if declared.cron is not None:
        return cron_grid(declared.cron, zone)
    if declared.every is not None:
        if declared.start is None:
            raise DeclarationError(
                "a calendar with `every` needs a start", hint="Set the start of its first slice."
            )
        return every_grid(declared.every, declared.start, zone)
    if isinstance(declared.boundaries, str):
        raise DeclarationError(
            f"`boundaries` names the file {declared.boundaries!r}, which is not here",
            hint="Only a project file may name a file; elsewhere, write its rows.",
        )
    if declared.boundaries is not None:
        return list_grid(declared.boundaries, zone)
    if declared.grain is not None:
        return grain_grid(declared.grain, zone)
    raise DeclarationError(
        "a calendar needs one of grain, cron, every, boundaries and keys", hint="Add one of them."
    )


_BY: Final = 'Write zone = { by = "region", eu = "Europe/Berlin", us = "America/New_York" }.'


class Calendars:
    """Resolves declared calendars at one time.

    `zone` is the default zone, `now` counts seconds since 1970 in UTC, `runtime_keys` gives the
    keys that are known now of a runtime dimension.
    """

    def __init__(self, zone: str, now: int, runtime_keys: Callable[[str], Iterable[str]]) -> None:
        self.zone = zone
        self.now = now
        self._runtime_keys = runtime_keys
        self._made: dict[object, Calendar] = {}
        self._shared: dict[frozenset[Calendar], Calendar | None] = {}

    def resolve(
        self,
        calendar: CalendarDeclaration | None,
        dimensions: tuple[DimensionDeclaration, ...],
        columns: tuple[str, ...],
        what: str,
    ) -> Calendar:
        """Return the calendar of a declaration; raises UsageError naming `what` it is of."""
        column = columns[0] if len(columns) == 1 else ""
        key = (calendar, dimensions, column if calendar and calendar.keys else "")
        found = self._made.get(key)
        if found is None:
            with _prefixed(f"{what}: "):
                found = self._make(calendar, dimensions, column)
            found = self._made[key] = self._intern(found)
        return found

    def _make(
        self,
        calendar: CalendarDeclaration | None,
        dimensions: tuple[DimensionDeclaration, ...],
        column: str,
    ) -> Calendar:
        if calendar is not None:
            zone = calendar.zone or self.zone
            if not isinstance(zone, str):
                raise DeclarationError("a zone for each key needs `dimensions`", hint=_BY)
            if calendar.grain == "none":
                return Calendar(zone=zone)
            if calendar.keys is not None:
                axis = static_axis(
                    column,
                    self._keys(calendar, column),
                    runtime=calendar.keys == "runtime",
                )
                return Calendar(statics=(axis,), zone=zone)
            return Calendar(time=self._time_axis("", calendar, zone), zone=zone)
        time: TimeAxis | None = None
        statics = []
        zone = self.zone
        by: tuple[str, CalendarDeclaration, Mapping[str, str]] | None = None
        for dimension in dimensions:
            part = dimension.calendar
            if part.keys is not None:
                keys = self._keys(part, dimension.name)
                statics.append(static_axis(dimension.name, keys, runtime=part.keys == "runtime"))
            elif time is not None:
                raise DeclarationError(
                    f"{time.name!r} and {dimension.name!r} are both time dimensions",
                    hint="A calendar can have only one.",
                )
            else:
                found = part.zone or zone
                if not isinstance(found, str):
                    by, found = (dimension.name, part, dict(found)), zone
                zone = found
                time = self._time_axis(dimension.name, part, zone)
        order = tuple(dimension.name for dimension in dimensions)
        if len(set(order)) < len(order):
            raise DeclarationError("two dimensions have the same name", hint="Rename one of them.")
        made = Calendar(time=time, statics=tuple(statics), order=order, zone=zone)
        return made if by is None else self._zoned(made, *by)

    def _zoned(
        self, whole: Calendar, name: str, declared: CalendarDeclaration, zones: Mapping[str, str]
    ) -> Calendar:
        """Return a product whose keys of one static dimension have zones of their own."""
        by = [axis for axis in whole.statics if axis.name == zones.get("by")]
        named = {key: zone for key, zone in zones.items() if key != "by"}
        if not by or by[0].runtime:
            names = listed([f"`{axis.name}`" for axis in whole.statics if not axis.runtime], 8)
            raise DeclarationError(
                "`zone` needs `by`, the name of a dimension that lists its keys",
                hint=f"Set by = {names}." if names else _BY,
            )
        if lacking := [key for key in by[0].keys if key not in named]:
            raise DeclarationError(f"`zone` has no zone for {listed(lacking, 8)}", hint=_BY)
        if unknown := [key for key in named if key not in by[0].keys]:
            raise DeclarationError(
                f"`zone` names {listed(unknown, 8)}, which `{by[0].name}` does not have",
                hint="Its keys are " + listed(by[0].keys, 8),
            )
        parts: dict[str, int] = {}
        for key, zone in sorted(named.items()):
            masks = [a.mask([key]) if a is by[0] else a.full for a in whole.statics]
            parts[zone] = parts.get(zone, 0) | whole.combine(masks)
        return _with_parts(
            whole,
            tuple((mask, self._time_axis(name, declared, zone)) for zone, mask in parts.items()),
        )

    def _time_axis(self, name: str, declared: CalendarDeclaration, zone: str) -> TimeAxis:
        grid = _grid(declared, zone)
        end = _find(grid, "end", declared.end)
        if declared.every is not None:
            first: int | None = 0
        else:
            first = _find(grid, "start", declared.start)
        if grid.size is not None:
            first, end = first or 0, grid.size - 1 if end is None else end
        if end is not None and first is not None and end < first:
            raise DeclarationError(
                f"the end {declared.end} lies before the start {declared.start}",
                hint="Both are keys, and both are included.",
            )
        begun, complete, lag = grid.at(self.now), grid.ended(self.now), declared.data_lag or 0
        # A lag of -1 adds the running period, which a gap in a list does not have.
        last = complete - lag if lag >= 0 else begun - 1 - lag

        def ending(ordinal: int) -> int:
            return ordinal if end is None else min(ordinal, end)

        return TimeAxis(
            name=name,
            grid=grid,
            first=first,
            last=ending(last),
            complete=ending(complete),
            begun=ending(begun),
            has_ended=end is not None and complete >= end,
        )

    def _keys(self, declared: CalendarDeclaration, name: str) -> tuple[str, ...]:
        if declared.keys is None or declared.keys == "runtime":
            return tuple(sorted(self._runtime_keys(name)))
        if not declared.keys:
            raise DeclarationError("a static calendar has no keys", hint="List them in `keys`.")
        if EVERY in declared.keys:
            raise DeclarationError(
                "`*` cannot be a static key: it stands for every key",
                hint='Leave it out, or set keys = "runtime" for keys that are not known before.',
            )
        return declared.keys

    def _intern(self, calendar: Calendar) -> Calendar:
        """Return the same object for equal calendars."""
        key = ("calendar", calendar.time, calendar.statics, calendar.order, calendar.zoned)
        return self._made.setdefault(key, calendar)

    def share(self, calendars: tuple[Calendar, ...]) -> Calendar | None:
        """Return the common calendar (earliest start, newest last key); None if they differ."""
        key = frozenset(calendars)
        if len(key) == 1:
            return calendars[0]
        if key not in self._shared:
            self._shared[key] = self._merge(calendars)
        return self._shared[key]

    def _merge(self, calendars: tuple[Calendar, ...]) -> Calendar | None:
        first = calendars[0]
        for other in calendars[1:]:
            if (
                (first.time is None) != (other.time is None)
                or first.statics != other.statics
                or (first.time and other.time and first.time.grid is not other.time.grid)
                or first.order != other.order
            ):
                return None
        times = [calendar.time for calendar in calendars if calendar.time is not None]
        if not times:
            return first
        if first.zoned:
            each = zip(*(one.zoned for one in calendars), strict=True)
            parts = tuple((part[0][0], _united([axis for _, axis in part])) for part in each)
            return self._intern(_with_parts(first, parts))
        return self._intern(replace(first, time=_united(times)))


def _with_parts(whole: Calendar, parts: tuple[tuple[int, TimeAxis], ...]) -> Calendar:
    """Return a calendar whose combinations of static keys have time axes of their own."""
    axes = [axis for _, axis in parts]
    time = replace(_united(axes), grid=zoned_grid(tuple(axis.grid for axis in axes)))
    return replace(whole, time=time, zoned=parts)


def _united(times: Sequence[TimeAxis]) -> TimeAxis:
    """Return an axis from the earliest start to the newest key."""
    starts = [axis.first for axis in times if axis.first is not None]
    return replace(
        times[0],
        first=min(starts) if len(starts) == len(times) else None,
        last=max(axis.last for axis in times),
        complete=max(axis.complete for axis in times),
        begun=max(axis.begun for axis in times),
        has_ended=all(axis.has_ended for axis in times),
    )
