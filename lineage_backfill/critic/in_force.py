"""What is in force of a job or a dataset, attribute by attribute, and the place that states it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.declarations import (
    CALENDAR_KINDS,
    CalendarDeclaration,
    DatasetDeclaration,
    JobDeclaration,
    Partitioning,
    calendar_in_words,
)
from lineage_backfill.project.matching import edge_in_force
from lineage_backfill.project.merge import MAPPING, calendar, merged_edge, stated, with_counts
from lineage_backfill.typed import plain

#: A place, and what it states.
Layer = tuple[str, Any]
_DEFAULT: Final = "default"
_GUARD: Final = ("guard", _DEFAULT)
_SPARSE: Final = ("read", "default of a sparse input, once a later key was written")
_DATASET: Final = (
    *("columns", "time_column", "time_format", "key_column", "retention", "sparse"),
    *("format", "location", "table", "row_key", "mask"),
)
_JOB: Final = (
    "batch",
    "depends_on_past",
    "engine",
    "entrypoint",
    "pool",
    "priority",
    "protected",
    "idempotent",
)
_SCHEDULE: Final = ("schedule", "schedule_zone", "collect_schedule_gaps", "retired", "replaces")
_RULES: Final = ("timeout", "retries", "retry_wait", "retry_on", "only_between")
_WRITE: Final = {
    "mode": "overwrite",
    "on_empty": "clear",
    "on_drift": "fail",
    "lookback": 0,
    "merge_on": None,
    "delete_when": None,
    "delete_missing": None,
    "unsafe_overwrite": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute in force; `edge` names the input or output that it is of."""

    name: str
    value: Any
    place: str
    edge: str = ""


def attributes(resolver: Resolver, ref: DatasetRef | JobRef) -> list[Attribute]:
    """Return what is in force of a job, with its inputs and outputs, or of a dataset."""
    return of_job(resolver, ref) if isinstance(ref, JobRef) else of_dataset(resolver, ref)


def of_dataset(resolver: Resolver, ref: DatasetRef) -> list[Attribute]:
    """Return the attributes in force of a dataset."""
    facts = resolver.dataset(ref)
    layers: list[Layer] = _layers(resolver.layers(ref), "dataset")
    if (sent := resolver.sent_dataset(ref)) is not None:
        layers.append(("its facet", sent))
    found = list(_calendar(layers, resolver, facts.origin))
    in_force = facts.declaration
    for name in _DATASET:
        value = None if in_force is None else getattr(in_force, name)
        found += _one(name, value, layers)
    return found


def of_job(resolver: Resolver, ref: JobRef) -> list[Attribute]:
    """Return the attributes in force of a job, and of each of its edges."""
    facts = resolver.job(ref)
    layers: list[Layer] = _layers(resolver.layers(ref), "job")
    if (sent := resolver.sent_job(ref)) is not None:
        layers.append(("its facet", sent))
    found = list(_calendar(layers, resolver, facts.origin))
    declared = facts.declaration
    for name in (*_JOB, *_SCHEDULE):
        value = facts.batch if name == "batch" else getattr(declared, name, None)
        found += _one(name, value, layers)
    rules: list[Layer] = [(place, one.rules) for place, one in layers if hasattr(one, "rules")]
    for name in _RULES:
        source = _source(rules, name)
        if source is not None:
            found.append(Attribute(name=name, value=_plain(source[1], name), place=source[0]))
    home = resolver.declarations.namespace
    reads = [edge.dataset for edge in facts.inputs]
    for dataset in reads:
        edges = _edges(layers, "reads", dataset, reads, home)
        unstated = _SPARSE if resolver.dataset(dataset).is_sparse else _GUARD
        found += _read(edges, f"reads {dataset}", unstated)
    writes = [edge.dataset for edge in facts.outputs]
    for dataset in writes:
        edges = _edges(layers, "writes", dataset, writes, home)
        force = merged_edge([one for _, one in edges]) if edges else None
        for name, default in _WRITE.items():
            value = getattr(force, name, None)
            source = _source(edges, name) if value not in (None, ()) else None
            place = source[0] if source else _DEFAULT
            value = default if source is None else value
            if value is not None:
                edge = f"writes {dataset}"
                found.append(Attribute(name=name, value=plain(value), place=place, edge=edge))
    return found


def _layers(declared: Iterable[DatasetDeclaration | JobDeclaration], kind: str) -> list[Layer]:
    """Return the places that declare something, the most exact one first."""
    found: list[Layer] = []
    for one in declared:
        found += one.sources or ((f'[[{kind}]] "{one.name}"', one),)
    return found


def _edges(
    layers: Sequence[Layer],
    side: str,
    dataset: DatasetRef,
    refs: Sequence[DatasetRef],
    home: str | None,
) -> list[Layer]:
    found: list[Layer] = []
    counted = with_counts([one for _, one in layers])
    for (place, _), one in zip(layers, counted, strict=True):
        edge = edge_in_force(getattr(one, side), dataset, refs, home)
        if edge is not None:
            found.append((place, edge))
    return found


def _read(edges: Sequence[Layer], edge: str, unstated: tuple[str, str]) -> Iterable[Attribute]:
    yield from _mapping(edges, edge)
    for name in ("on_missing", "lookback"):
        source = _source(edges, name)
        if source or name == "on_missing":
            value, place = (getattr(source[1], name), source[0]) if source else unstated
            yield Attribute(name=name, value=value, place=place, edge=edge)


def _mapping(edges: Sequence[Layer], edge: str) -> Iterable[Attribute]:
    for place, one in edges:
        if any(stated(one, name) for name in MAPPING):
            values = {name: _plain(one, name) for name in MAPPING if stated(one, name)}
            name = values.pop("mapping", "")
            numbers = ", ".join(f"{key} = {value}" for key, value in values.items())
            text = f"{name}, {numbers}".strip(", ")
            yield Attribute(name="mapping", value=text, place=place, edge=edge)
            return
    yield Attribute(name="mapping", value="by the calendars", place=_DEFAULT, edge=edge)


def _calendar(
    layers: Sequence[Layer], resolver: Resolver, origin: str | None
) -> Iterable[Attribute]:
    stating = [one for _, one in layers if isinstance(one, Partitioning)]
    whole, dimensions = calendar(stating)
    zone = resolver.declarations.zone
    source = next((place for place, one in layers if one.has_kind), None)
    if source is None:
        value = {"inferred": "inferred", "outputs": "that of its outputs"}.get(origin or "")
        value = value or ("that of its inputs" if origin == "inputs" else "unknown")
        yield Attribute(name="calendar", value=value, place=origin or _DEFAULT)
        return
    kind = whole and CalendarDeclaration(**{k: getattr(whole, k) for k in CALENDAR_KINDS})
    if kind is not None and kind.has_time:
        kind_text = plain(kind)
        name, value = next(iter(kind_text.items()))
        yield Attribute(name=name, value=value, place=source)
        yield from _bounds(layers, whole, zone)
        return
    yield Attribute(name="calendar", value=calendar_in_words(whole, dimensions, zone), place=source)


def _bounds(
    layers: Sequence[Layer], whole: CalendarDeclaration | None, zone: str
) -> Iterable[Attribute]:
    """Yield zone, first and last key and lag of a calendar, each with its place."""
    parts = [(place, one.calendar) for place, one in layers if one.calendar is not None]
    for each in ("zone", "start", "end", "data_lag"):
        value = getattr(whole, each)
        found = next((p for p, one in parts if getattr(one, each) == value), None)
        if value is not None and found is not None:
            yield Attribute(name=each, value=value, place=found)
        elif each == "zone":
            yield Attribute(name="zone", value=zone, place="[project] zone")


def _one(name: str, value: Any, layers: Sequence[Layer]) -> Iterable[Attribute]:
    if value in (None, (), {}):
        return
    source = _source([layer for layer in layers if hasattr(layer[1], name)], name)
    place = source[0] if source is not None else _DEFAULT
    yield Attribute(name=name, value=plain(value), place=place)


def _source(layers: Iterable[Layer], name: str) -> Layer | None:
    return next((layer for layer in layers if stated(layer[1], name)), None)


def _plain(one: Any, name: str) -> Any:
    return plain(one).get(name)
