"""What is in force of several declarations of one dataset, job or edge: attribute by attribute.

Layers are in order, the most exact place first. Attributes that only make sense together are one
group: a mapping and its numbers, a calendar. A place that states another calendar gives no
attribute that counts in keys, as these would be other keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import reduce
from typing import Any, Final, TypeVar

from lineage_backfill.project.declarations import (
    CALENDAR_KINDS,
    CalendarDeclaration,
    DatasetDeclaration,
    DatasetPartitioning,
    DimensionDeclaration,
    DimensionMapping,
    JobDeclaration,
    JobPartitioning,
    Partitioning,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.run_rules import RunRules

Declared = TypeVar("Declared", DatasetDeclaration, JobDeclaration)
Edge = TypeVar("Edge", ReadDeclaration, WriteDeclaration)
Job = TypeVar("Job", bound=JobPartitioning)
#: Groups of attributes: the first place that states one of a group states all of it.
MAPPING: Final = ("mapping", "before", "after", "by", "map", "function", "dimensions")
_GROUPS: Final = {
    ReadDeclaration: (MAPPING,),
    WriteDeclaration: (),
    DatasetDeclaration: (("location", "table"),),
    JobDeclaration: (("schedule", "schedule_zone"),),
}
_COUNTED: Final = ("start", "end", "data_lag")
_COLUMNS: Final = ("columns", "time_column", "time_format", "key_column")
_NAMES: Final = ("name", "namespace", "dataset", "pattern", "sources")


def stated(one: Any, name: str) -> bool:
    """Whether a declaration states an attribute."""
    value = getattr(one, name)
    return value is not None and value not in ((), {}, "", RunRules())


def merged(layers: Sequence[Declared]) -> Declared:
    """Return the declaration in force of several ones of a dataset or a job."""
    first = layers[0]
    if len(layers) == 1:
        return first
    found = _attributes(layers)
    found["calendar"], found["dimensions"] = calendar(layers)
    if isinstance(first, JobDeclaration):
        jobs: Any = layers
        found["rules"] = reduce(
            lambda below, rules: rules.over(below), [one.rules for one in reversed(jobs)]
        )
        counted = with_counts(jobs)
        found["reads"] = _edges(edge for one in counted for edge in one.reads)
        found["writes"] = _edges(edge for one in counted for edge in one.writes)
        if not _has_time(found):
            found["collect_schedule_gaps"] = None
    else:
        keyed: Any = _keyed(layers)
        found["retention"] = _first(keyed, "retention") if _has_time(found) else None
        found |= _columns(keyed, found)
    return replace(first, **found)


def with_counts(layers: Sequence[Job]) -> list[Job]:
    """Return jobs' layers without numbers of keys of another calendar than the one in force."""
    keyed = {id(one) for one in _keyed(layers)}
    return [one if id(one) in keyed else _uncounted(one) for one in layers]


def _uncounted(job: Job) -> Job:
    reads = []
    for each in job.reads:
        if _counts(each):
            each = replace(each, mapping=None, before=None, after=None, by=None)  # noqa: PLW2901 (the same edge)
        kept = {name: one for name, one in each.dimensions.items() if not _counts(one)}
        reads.append(replace(each, dimensions=kept, lookback=None))
    writes = tuple(replace(each, lookback=None) for each in job.writes)
    return replace(job, reads=tuple(reads), writes=writes)


def _counts(travel: ReadDeclaration | DimensionMapping) -> bool:
    """Whether a mapping counts keys: a length of time holds for any calendar."""
    return any(isinstance(getattr(travel, name), int) for name in ("before", "after", "by"))


def _edges(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Return the edges of several layers, those of one name merged."""
    named: dict[tuple[str | None, str], list[Edge]] = {}
    for edge in edges:
        named.setdefault((edge.namespace, edge.dataset), []).append(edge)
    return tuple(merged_edge(layers) for layers in named.values())


def merged_edge(layers: Sequence[Edge]) -> Edge:
    """Return the declaration in force of several ones of an edge."""
    first = layers[0]
    if len(layers) == 1:
        return first
    found = _attributes(layers)
    if found.get("mode") not in ("merge", None):
        found |= {"delete_when": None, "delete_missing": None}
    return replace(first, **found)


def is_mapped_as(read: ReadDeclaration, other: ReadDeclaration) -> bool:
    """Whether two edges state the same mapping."""
    return all(getattr(read, name) == getattr(other, name) for name in MAPPING)


def with_facet(declared: DatasetDeclaration, sent: DatasetPartitioning) -> DatasetDeclaration:
    """Return a dataset's declaration over the facet that was sent of it."""
    facet = DatasetDeclaration(
        name=declared.name,
        calendar=sent.calendar,
        dimensions=sent.dimensions,
        **{name: getattr(sent, name) for name in _COLUMNS},
    )
    return merged((declared, facet))


def calendar(
    layers: Sequence[Partitioning],
) -> tuple[CalendarDeclaration | None, tuple[DimensionDeclaration, ...]]:
    """Return the calendar in force, or its dimensions."""
    source = next((one for one in layers if one.has_kind), None)
    keyed = [one for one in _keyed(layers) if one.calendar is not None]
    if source is not None and source.dimensions:
        return None, tuple(_dimension(one, _keyed(layers)) for one in source.dimensions)
    whole = source.calendar if source is not None else None
    values: dict[str, Any] = {name: getattr(whole, name, None) for name in CALENDAR_KINDS}
    if whole is None or whole.has_time:
        parts = [one.calendar for one in layers if one.calendar is not None]
        values["zone"] = _first(parts, "zone")
        values |= {name: _first([one.calendar for one in keyed], name) for name in _COUNTED}
    found = CalendarDeclaration(**values)
    return (None if found == CalendarDeclaration() else found), ()


def _calendars(layer: Partitioning, name: str) -> Iterable[CalendarDeclaration]:
    """Return what a layer states of a dimension in time, by its name or beside no dimensions."""
    if layer.dimensions:
        return [one.calendar for one in layer.dimensions if one.name == name]
    return [layer.calendar] if layer.calendar is not None else []


def _dimension(one: DimensionDeclaration, layers: Sequence[Partitioning]) -> DimensionDeclaration:
    """Return a dimension with what other layers of the same calendar state of it."""
    same = [part for layer in layers for part in layer.dimensions if part.name == one.name]
    values: dict[str, Any] = {name: getattr(one.calendar, name) for name in CALENDAR_KINDS}
    if one.calendar.has_time:
        names = ("zone", *_COUNTED)
        parts = [part for layer in layers for part in _calendars(layer, one.name)]
        values |= {name: _first(parts, name) for name in names}
    return replace(one, calendar=CalendarDeclaration(**values), column=_first(same, "column"))


def _kind(one: Partitioning) -> object:
    """Return what makes two calendars the same; None where none is stated."""
    if not one.has_kind:
        return None
    parts = [("", one.calendar)] if one.calendar else [(d.name, d.calendar) for d in one.dimensions]
    return [(name, *(getattr(part, kind) for kind in CALENDAR_KINDS)) for name, part in parts]


def _keyed(layers: Sequence[Any]) -> list[Any]:
    """Return the layers that state no other calendar than the one in force."""
    force = next((kind for one in layers if (kind := _kind(one)) is not None), None)
    return [one for one in layers if _kind(one) in (None, force)]


def _columns(keyed: Iterable[DatasetDeclaration], found: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of the first layer that states any, as far as the keys can have them."""
    layer = next((one for one in keyed if any(stated(one, name) for name in _COLUMNS)), None)
    columns: dict[str, Any] = {name: getattr(layer, name, None) for name in _COLUMNS}
    columns["columns"] = {} if layer is None else layer.columns
    whole = found["calendar"]
    if found["dimensions"] or (whole is not None and whole.keys == "runtime"):
        columns |= dict.fromkeys(_COLUMNS[1:])
    if _has_time(found):
        return columns | ({} if whole is None else {"key_column": None})
    texts = {name: None for name, form in columns["columns"].items() if form is None}
    return columns | {"columns": texts, "time_column": None, "time_format": None}


def _has_time(found: dict[str, Any]) -> bool:
    whole, dimensions = found["calendar"], found["dimensions"]
    parts = [one.calendar for one in dimensions] or ([] if whole is None else [whole])
    return not parts or any(one.has_time for one in parts)


def _first(layers: Iterable[Any], name: str) -> Any:
    return next((getattr(one, name) for one in layers if stated(one, name)), None)


def _attributes(layers: Sequence[Any]) -> dict[str, Any]:
    """Return each attribute from the first layer that states it, or one of its group."""
    kind = type(layers[0])
    group_of = {name: group for group in _GROUPS[kind] for name in group}
    found: dict[str, Any] = {}
    for one in fields(kind):
        if one.name in _NAMES or not one.init:
            continue
        group = group_of.get(one.name, (one.name,))
        source = next((each for each in layers if any(stated(each, n) for n in group)), layers[0])
        found[one.name] = getattr(source, one.name)
    return found
