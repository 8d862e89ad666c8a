"""Finds gaps in the lineage that Airflow sends, although each event is valid."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import JobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowTroubles:
    """The tasks of a lineage and their problems; all sorted.

    `silent` tasks declare assets but send no dataset; `timeless` tasks have completed runs, none of
    them with an interval or a key; `shared` are URIs of several assets.
    """

    tasks: tuple[JobRef, ...]
    silent: tuple[JobRef, ...]
    timeless: tuple[JobRef, ...]
    shared: tuple[str, ...]


def airflow_troubles(
    snapshot: LineageSnapshot, has_edges: Callable[[JobRef], object]
) -> AirflowTroubles:
    """Return the problems of Airflow's tasks; `has_edges` also knows declared edges."""
    nodes = [node for node in snapshot.jobs.values() if node.airflow]
    timed, ran = set[JobRef](), set[JobRef]()
    for run in snapshot.history:
        if run.state == "COMPLETE":
            ran.add(run.job)
            if run.nominal_end or run.partition_key or run.written:
                timed.add(run.job)
    shared = {uri for node in nodes if node.airflow for uri in node.airflow.inactive}
    return AirflowTroubles(
        tasks=_refs(nodes),
        silent=_refs([node for node in nodes if _declares(node) and not has_edges(node.ref)]),
        timeless=_refs([node for node in nodes if node.ref in ran - timed]),
        shared=tuple(sorted(shared | _named_twice(nodes))),
    )


def _declares(node: JobNode) -> bool:
    return node.airflow is not None and bool(node.airflow.inlets or node.airflow.outlets)


def _refs(nodes: Collection[JobNode]) -> tuple[JobRef, ...]:
    return tuple(sorted(node.ref for node in nodes))


def _named_twice(nodes: Collection[JobNode]) -> set[str]:
    """Return the URIs of assets that have several names in timetables."""
    names: dict[str, set[str]] = {}
    for node in nodes:
        timetable = node.airflow and node.airflow.timetable
        for name, uri in _assets((timetable or {}).get("asset_condition")):
            names.setdefault(uri, set()).add(name)
    return {uri for uri, found in names.items() if len(found) > 1}


def _assets(condition: Any, depth: int = 20) -> Iterator[tuple[str, str]]:
    """Yield name and URI of each asset in a condition, which may be nested."""
    if not isinstance(condition, dict) or not depth:
        return
    name, uri = condition.get("name"), condition.get("uri")
    if isinstance(name, str) and isinstance(uri, str):
        yield name, uri
    within = condition.get("objects")
    for one in within if isinstance(within, list) else ():
        yield from _assets(one, depth - 1)
