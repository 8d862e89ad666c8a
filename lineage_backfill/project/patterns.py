"""Derives a dataset's name and calendar from its name pattern."""

from __future__ import annotations

from dataclasses import replace
from typing import cast, get_args

from lineage_backfill.errors import DeclarationError
from lineage_backfill.partitions.patterns import NamePattern, tells_grain
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    DimensionDeclaration,
    Grain,
)

_GRAINS = tuple(grain for grain in get_args(Grain) if grain != "none")


def completed(declared: DatasetDeclaration) -> DatasetDeclaration:
    """Return the declaration with the name and calendar from its pattern.

    Raises DeclarationError if pattern and declared calendar contradict each other.
    """
    if declared.pattern is None:
        return declared
    pattern = NamePattern(declared.pattern)
    name = _name(pattern, declared.name)
    calendar, dimensions = declared.calendar, declared.dimensions
    if not dimensions and (calendar is None or not _has_kind(calendar)):
        rest = calendar or CalendarDeclaration()  # the zone, the start and so on
        stated = {one: _calendar(one, grain, rest) for one, grain in pattern.placeholders.items()}
        if not any(one.has_time for one in stated.values()):
            replace(rest, keys="runtime")  # refuses what only keys with a time have
        if len(stated) == 1:
            calendar = next(iter(stated.values()))
        else:
            calendar = None
            dimensions = tuple(
                DimensionDeclaration(name=one, calendar=part) for one, part in stated.items()
            )
    declared = replace(declared, name=name, calendar=calendar, dimensions=dimensions)
    _check(declared, pattern)
    return declared


def job_name(pattern: str, name: str | None) -> str:
    """Return the name of the job that a pattern makes of several.

    >>> job_name("deequ_agg_ds={day:%Y_%m_%d}", None)
    'deequ_agg'
    """
    return _name(NamePattern(pattern), name)


def _name(pattern: NamePattern, name: str | None) -> str:
    found = name or pattern.stem
    if not found:
        raise DeclarationError(
            f"nothing is left of `pattern` without its placeholders: {pattern.text}",
            hint="Give it a `name`.",
        )
    return found


def _has_kind(calendar: CalendarDeclaration) -> bool:
    return calendar.has_kind


def _calendar(
    placeholder: str, stated: str | None, rest: CalendarDeclaration
) -> CalendarDeclaration:
    """Return the calendar of a placeholder, from its name or format."""
    if stated == "":
        return CalendarDeclaration(keys="runtime")
    if placeholder in _GRAINS:
        return replace(rest, grain=cast(Grain, placeholder))
    if stated is None:
        raise DeclarationError(
            "`pattern` has times finer than an hour",
            hint="Declare the calendar in the same entry, with `cron` or `every`.",
        )
    return replace(rest, grain=cast(Grain, stated))


def _check(declared: DatasetDeclaration, pattern: NamePattern) -> None:
    """Refuse a pattern that does not determine a key of the calendar."""
    placeholders = dict(pattern.placeholders)
    if declared.calendar is not None:
        if len(placeholders) > 1:
            raise DeclarationError(
                f"`pattern` has {len(placeholders)} placeholders, the calendar one dimension",
                hint="Declare `dimensions` with the placeholders' names.",
            )
        calendars = dict.fromkeys(placeholders, declared.calendar)
    else:
        calendars = {one.name: one.calendar for one in declared.dimensions}
    times = [name for name, one in calendars.items() if one.keys is None]
    for name in [name for name in placeholders if name not in calendars]:
        raise DeclarationError(
            f"`pattern` has a placeholder {{{name}}} that is none of the `dimensions`",
            hint=f"They are {', '.join(calendars)}.",
        )
    for name in times:
        grain, stated = calendars[name].grain, placeholders.get(name, "")
        if stated == "" or (
            grain is not None and (grain == "none" or not tells_grain(stated, grain))
        ):
            raise DeclarationError(
                f"`pattern` does not contain the {grain or 'key'} of {{{name}}}: {pattern.text}",
                hint="Write its whole date, as in {day:%Y_%m_%d}.",
            )
    for name in placeholders.keys() - times:
        if placeholders[name] != "":
            raise DeclarationError(f"`pattern` has a format for {{{name}}}, whose keys are texts")
