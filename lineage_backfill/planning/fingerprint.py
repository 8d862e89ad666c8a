"""The hash of a plan's basis: edges and declarations of everything it reaches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from lineage_backfill.lineage.snapshot import DatasetNode
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    JobDeclaration,
    ReadDeclaration,
)
from lineage_backfill.project.facets import dataset_facet
from lineage_backfill.project.resolve.resolver import JobFacts

#: Settings about when, where and how often runs happen, not which; and those that a facet may
#: state too, which count as they are in force.
_APART: Final = frozenset(
    {"schedule", "schedule_zone", "collect_schedule_gaps", "rules", "row_key", "mask", "airflow"}
    | {"expected", "sources", "sparse"}
    | {"calendar", "dimensions", "column", "columns"}
    | {"batch", "depends_on_past", "reads", "writes"}
)


def fingerprint(
    resolver: Resolver, jobs: Iterable[JobFacts], roots: Iterable[DatasetRef]
) -> dict[str, Any]:
    """Return `hash` over jobs, datasets and roots, and `parts`, one hash for each.

    Run history, and jobs that the change does not reach, are not part of it; nor is a facet that
    repeats what is declared. The parts are short hashes, so that a stale plan can name what
    changed; `calendars` are the keys of each dataset.
    """
    zone = resolver.declarations.zone
    lines = {"zone": repr(zone)}
    datasets = set(roots)
    reached = {facts.ref: facts for facts in sorted(jobs, key=lambda facts: facts.place)}
    for ref, facts in reached.items():
        datasets.update(edge.dataset for edge in facts.inputs)
        datasets.update(edge.dataset for edge in facts.outputs)
        lines["job " + _line(ref)] = (
            f"{_in_force(facts, resolver)} {_declared(facts.declaration, zone)}"
        )
    for dataset in sorted(datasets):
        declared = resolver.dataset(dataset).declaration
        known = declared is not None and declared.has_kind
        sent = "" if known else _sent(resolver.snapshot.datasets.get(dataset))
        lines["dataset " + _line(dataset)] = f"{_declared(declared, zone)} {sent}"
    for edge in sorted(resolver.snapshot.column_edges):
        if edge.job in reached:
            lines["job " + _line(edge.job)] += f" {edge!r}"
    whole = hashlib.sha256()
    parts = {}
    for name, line in lines.items():
        digest = hashlib.sha256(line.encode()).digest()
        whole.update(name.encode() + b"\n" + digest)
        parts[name] = digest[:6].hex()
    calendars = {_line(ref): _in_words(resolver.calendar(ref)) for ref in sorted(datasets)}
    return {"hash": "sha256:" + whole.hexdigest(), "parts": parts, "calendars": calendars}


def moved_calendars(basis: Mapping[str, Any], resolver: Resolver) -> list[str]:
    """Return which datasets of a plan's basis have other keys now, each as a clause."""
    now = {_line(ref): ref for ref in resolver.edges.datasets}
    return [
        f"{name} was by {before} and is by {after}"
        for name, before in (basis.get("calendars") or {}).items()
        if before != (after := _in_words(resolver.calendar(now[name]) if name in now else None))
    ]


def _in_words(calendar: Calendar | None) -> str:
    """Return what the keys of a calendar are, whatever its first and last key."""
    if calendar is None:
        return "unknown keys"
    times = dict.fromkeys(
        f"{' '.join(axis.grid.family)} in {axis.grid.zone.name}" for _, axis in calendar.parts
    )
    statics = [axis.name or "given keys" for axis in calendar.statics]
    return " and ".join([*times, *statics]) or "no keys"


def _in_force(facts: JobFacts, resolver: Resolver) -> str:
    """Return the edges of a job, how keys travel along them, and how its runs are grouped."""
    edges = [
        (_line(edge.dataset), _mapping(edge.read), edge.lookback, edge.on_missing)
        for edge in facts.inputs
    ]
    writes = [(_line(edge.dataset), edge.policy) for edge in facts.outputs]
    runs = {}
    if facts.origin in ("declared", "facet"):
        runs = dict(resolver.job_facet(facts))
    runs |= {"batch": facts.batch or "key", "depends_on_past": facts.past is not None}
    return f"{sorted(edges)} {sorted(writes, key=itemgetter(0))} {_canonical(runs)}"


def _mapping(read: ReadDeclaration | None) -> str:
    """Return how keys travel along an edge, as stated; empty where it is left to the calendars."""
    if read is None or not (read.mapping or read.dimensions):
        return ""
    numbers = (read.before, read.after, read.by)
    return f"{read.mapping} {numbers} {sorted(read.map.items())} {read.function} {read.dimensions}"


@lru_cache(maxsize=4096)  # thousands of jobs share a declaration
def _declared(declared: DatasetDeclaration | JobDeclaration | None, zone: str) -> str:
    """Return a declaration as text, without settings that do not affect plans."""
    if declared is None:
        return "None"
    held = (field.name for field in fields(declared) if field.name not in _APART)
    values = [f"{name}={getattr(declared, name)!r}" for name in held]
    if isinstance(declared, DatasetDeclaration) and declared.has_kind:
        values.append(_canonical(dataset_facet(declared, zone)))
    return f"{type(declared).__name__}({', '.join(values)})"


def _sent(node: DatasetNode | None) -> str:
    """Return the partitioning facet of a dataset as text."""
    facet = node.partitioning if node is not None else None
    return "" if facet is None else _canonical(facet)


def _canonical(facet: Mapping[str, Any]) -> str:
    """Return a facet as text, independent of member order."""
    return json.dumps(facet, sort_keys=True, default=str)


def _line(ref: DatasetRef | JobRef) -> str:
    return f"{ref.namespace}:{ref.name}"
