"""Compares the downstream jobs and the readers in two lineages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from lineage_backfill.lineage.select import Graph, Ref, within
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef

R = TypeVar("R", DatasetRef, JobRef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Jobs that only the later or only the earlier lineage has downstream of a name; sorted."""

    ref: Ref
    added: tuple[JobRef, ...] = ()
    removed: tuple[JobRef, ...] = ()


def changed_readers(before: LineageSnapshot, after: LineageSnapshot) -> tuple[Reach, ...]:
    """Return the datasets of both lineages whose readers differ, with the differences."""
    found = (
        _reach(ref, set(before.readers.get(ref, ())), set(after.readers.get(ref, ())))
        for ref in sorted(before.datasets.keys() & after.datasets.keys())
    )
    return tuple(one for one in found if one.added or one.removed)


def changed_downstream(before: LineageSnapshot, after: LineageSnapshot) -> tuple[Reach, ...]:
    """Return the jobs of both lineages whose downstream jobs differ, with the differences."""
    graphs = before.graph(), after.graph()
    changed = set(graphs[0].edges) ^ set(graphs[1].edges)
    if not changed:
        return ()
    above, below = set[Ref](), set[Ref]()
    for graph in graphs:
        above |= within(graph.reverse(copy=False), {tail for tail, _ in changed}, None)
        below |= within(graph, {head for _, head in changed}, None)
    # Only jobs downstream of a changed edge are gained or lost, and only by jobs upstream of one.
    jobs = sorted(ref for ref in below if isinstance(ref, JobRef))
    bits = {ref: 1 << number for number, ref in enumerate(jobs)}
    old, new = (_downstream(graph, bits) for graph in graphs)
    both = before.jobs.keys() & after.jobs.keys()
    found = []
    for ref in sorted(ref for ref in above if isinstance(ref, JobRef) and ref in both):
        apart = (old.get(ref, 0) ^ new.get(ref, 0)) & ~bits.get(ref, 0)
        if apart:
            differ = {job for job in jobs if apart & bits[job]}
            lost = {job for job in differ if old.get(ref, 0) & bits[job]}
            found.append(_reach(ref, lost, differ - lost))
    return tuple(found)


def _downstream(graph: Graph, bits: Mapping[JobRef, int]) -> dict[Ref, int]:
    """Return the bits of the jobs that can be reached from each node, over one edge or more."""
    import networkx as nx  # slow to import

    groups = nx.condensation(graph)
    reached: dict[int, int] = {}
    found: dict[Ref, int] = {}
    for group in reversed(list(nx.topological_sort(groups))):
        members = groups.nodes[group]["members"]
        own = sum(bits.get(ref, 0) for ref in members)
        behind = 0
        for other in groups[group]:
            behind |= reached[other]
        found.update(dict.fromkeys(members, behind | own if len(members) > 1 else behind))
        reached[group] = behind | own
    return found


def _reach(ref: R, before: set[JobRef], after: set[JobRef]) -> Reach:
    return Reach(
        ref=ref, added=tuple(sorted(after - before)), removed=tuple(sorted(before - after))
    )
