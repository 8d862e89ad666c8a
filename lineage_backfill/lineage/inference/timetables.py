"""Derives the partitions of Airflow tasks from the timetable of their DAG."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from lineage_backfill.errors import UsageError
from lineage_backfill.partitions.cron import normalise
from lineage_backfill.partitions.zones import zone
from lineage_backfill.project.declarations import CalendarDeclaration, Grain

#: The grains whose periods begin when these expressions fire.
_CRONS: Final[Mapping[str, Grain]] = {
    normalise("0 * * * *"): "hour",
    normalise("0 0 * * *"): "day",
    normalise("0 0 * * 1"): "week",
    normalise("0 0 1 * *"): "month",
    normalise("0 0 1 */3 *"): "quarter",
    normalise("0 0 1 1,4,7,10 *"): "quarter",
    normalise("0 0 1 1 *"): "year",
}
_FORMATS: Final[Mapping[str, Grain]] = {
    "%Y-%m-%dT%H": "hour",
    "%Y-%m-%d": "day",
    "%G-W%V": "week",
    "%Y-%m": "month",
    "%Y": "year",
}
_START: Final = re.compile(r"StartOf(Hour|Day|Week|Month|Quarter|Year)Mapper")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """The calendar of a timetable, if any; `evidence` is a sentence.

    With `keeps_keys` the keys are those of the input assets. An `odd` timetable relates keys in a
    way that no default does: other evidence must not be used either.
    """

    calendar: CalendarDeclaration | None = None
    evidence: str = ""
    keeps_keys: bool = False
    odd: bool = False


_NOTHING: Final = Timetable()
_ODD: Final = Timetable(odd=True)


def read_timetable(sent: Mapping[str, Any]) -> Timetable:
    """Return the calendar of a timetable from the facets `airflow` and `airflowDagRun`.

    A cron trigger without data intervals shows when runs begin, not which data they process.
    """
    try:
        if "default_partition_mapper" in sent:
            return _of_mapper(sent)
        if isinstance(sent.get("expression"), str) and "interval" not in sent:
            return _of_cron(sent)
    except (UsageError, AttributeError, KeyError, TypeError):
        return _ODD
    return _NOTHING


def slice_of(sent: Mapping[str, Any]) -> str | None:
    """Return the `slice` of a DAG's jobs from its timetable; None if unknown.

    >>> slice_of({"expression": "0 * * * *", "timezone": "UTC", "key_format": "%Y-%m-%dT%H"})
    'partition_key %Y-%m-%dT%H'
    >>> slice_of({"expression": "0 0 * * *", "timezone": "UTC"})
    'interval'
    """
    try:
        if "default_partition_mapper" in sent:
            mapper = sent["default_partition_mapper"]["__var"]
            form = mapper.get("upstream_mapper", {}).get("__var", mapper).get("output_format")
            is_one = form and not sent.get("partition_mapper_config")
            return f"partition_key {form}" if is_one else "partition_key"
        if "key_format" in sent:
            return f"partition_key {sent['key_format']}"
        is_cron = isinstance(sent.get("expression"), str) and "interval" not in sent
        return "interval" if is_cron else None
    except (AttributeError, KeyError, TypeError):
        return None


def _of_cron(sent: Mapping[str, Any]) -> Timetable:
    expression, name, keys = sent["expression"], sent.get("timezone"), sent.get("key_format")
    grain = _CRONS.get(normalise(expression))
    if grain is None or _FORMATS.get(keys or "", grain) != grain:
        return _NOTHING
    evidence = f"the timetable of its DAG is one {grain} in {name} (cron {expression})"
    return Timetable(calendar=_calendar(grain, name), evidence=evidence)


def _of_mapper(sent: Mapping[str, Any]) -> Timetable:
    if sent.get("partition_mapper_config"):  # a mapper for each asset
        return _ODD
    mapper = sent["default_partition_mapper"]
    name = _class(mapper)
    if name == "IdentityMapper":
        return Timetable(keeps_keys=True)
    window = None
    if name == "RollupMapper":
        window, mapper = mapper["__var"]["window"], mapper["__var"]["upstream_mapper"]
        name = _class(mapper)
    found = _START.fullmatch(name)
    if found is None:
        return _ODD
    if window is not None:
        direction = (window.get("__var") or {}).get("direction", "forward")
        if (_class(window), direction) != (f"{found[1]}Window", "forward"):
            return _ODD
    grain = cast(Grain, found[1].lower())
    place = mapper["__var"].get("timezone")
    of_what = "rolls up the keys" if window is not None else "maps keys to the beginning"
    evidence = f"the timetable of its DAG {of_what} of each {grain} in {place} ({name})"
    return Timetable(calendar=_calendar(grain, place), evidence=evidence)


def _class(sent: Any) -> str:
    return str(sent["__type"]).rpartition(".")[2]


def _calendar(grain: Grain, name: Any) -> CalendarDeclaration:
    if not isinstance(name, str):
        raise TypeError("a time zone without a name")
    zone(name)
    return CalendarDeclaration(grain=grain, zone=name)
