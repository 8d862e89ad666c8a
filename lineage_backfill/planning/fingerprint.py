"""The hash of a plan's basis: edges and declarations of everything it reaches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

from lineage_backfill.lineage.snapshot import DatasetNode, JobNode
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.declarations import DatasetDeclaration, JobDeclaration
from lineage_backfill.project.resolve.resolver import JobFacts

#: Settings about when, where and how often runs happen, not which.
_OF_RUNNING: Final = frozenset(
    {"schedule", "schedule_zone", "collect_schedule_gaps", "rules", "row_key", "mask", "airflow"}
    | {"expected", "sources", "sparse"}
)


def fingerprint(
    resolver: Resolver, jobs: Iterable[JobFacts], roots: Iterable[DatasetRef]
) -> dict[str, Any]:
    """Return `hash` over jobs, datasets and roots, and `parts`, one hash for each.

    Run history, and jobs that the change does not reach, are not part of it. The parts are short
    hashes, so that a stale plan can name what changed; `calendars` are the keys of each dataset.
    """
    snapshot = resolver.snapshot
    lines = {"zone": repr(resolver.declarations.zone)}
    datasets = set(roots)
    reached = {facts.ref: facts for facts in sorted(jobs, key=lambda facts: facts.place)}
    for ref, facts in reached.items():
        reads = [edge.data.ref for edge in facts.inputs]
        writes = [edge.data.ref for edge in facts.outputs]
        datasets.update(reads, writes)
        edges = sorted(map(_line, reads)), sorted(map(_line, writes))
        sent = _sent(snapshot.jobs.get(ref))
        lines["job " + _line(ref)] = f"{edges} {_declared(facts.declaration)} {sent}"
    for dataset in sorted(datasets):
        sent = _sent(snapshot.datasets.get(dataset))
        declared = _declared(resolver.dataset(dataset).declaration)
        lines["dataset " + _line(dataset)] = f"{declared} {sent}"
    for edge in sorted(snapshot.column_edges):
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


@lru_cache(maxsize=4096)  # thousands of jobs share a declaration
def _declared(declared: DatasetDeclaration | JobDeclaration | None) -> str:
    """Return a declaration as text, without settings that do not affect plans."""
    if declared is None:
        return "None"
    held = (field.name for field in fields(declared) if field.name not in _OF_RUNNING)
    values = [f"{name}={getattr(declared, name)!r}" for name in held]
    reads = declared.reads if isinstance(declared, JobDeclaration) else ()
    values += [
        f"{one.dataset} {one.on_missing}" for one in reads if one.on_missing not in (None, "guard")
    ]
    return f"{type(declared).__name__}({', '.join(values)})"


def _sent(node: JobNode | DatasetNode | None) -> str:
    """Return the partitioning facet of a node as text, independent of member order."""
    facet = node.partitioning if node is not None else None
    return "" if facet is None else json.dumps(facet, sort_keys=True, default=str)


def _line(ref: DatasetRef | JobRef) -> str:
    return f"{ref.namespace}:{ref.name}"
