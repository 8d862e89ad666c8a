"""Merges several datasets or jobs of a lineage into one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Literal

from msgspec.structs import replace

from lineage_backfill.lineage.columns import Part, untold
from lineage_backfill.lineage.snapshot import ColumnEdge, DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef

_NEVER = datetime.min.replace(tzinfo=UTC)


def merge_datasets(
    snapshot: LineageSnapshot, into: Mapping[DatasetRef, DatasetRef]
) -> LineageSnapshot:
    """Return the lineage with every key of `into` merged into its value.

    Owners, tags and aliases are combined; columns and partitioning are those of the dataset itself
    if known, else of the last part in the order of `into` that has any.
    """
    if not into:
        return snapshot
    parts: dict[DatasetRef, list[DatasetNode]] = {}
    for ref, whole in into.items():
        if ref in snapshot.datasets:
            parts.setdefault(whole, []).append(snapshot.datasets[ref])
    datasets = [node for ref, node in snapshot.datasets.items() if ref not in into]
    untouched = [node for node in datasets if node.ref not in parts]
    merged = [
        _merged(whole, [*nodes, *filter(None, [snapshot.datasets.get(whole)])], into)
        for whole, nodes in parts.items()
    ]
    return _rebuilt(
        snapshot,
        (_renamed(node, into) for node in snapshot.jobs.values()),
        [*untouched, *merged],
        _columns(snapshot.column_edges, into),
    )


def rename_jobs(snapshot: LineageSnapshot, into: Mapping[JobRef, JobRef]) -> LineageSnapshot:
    """Return the lineage with renamed jobs; the new names must be unused."""
    if not into:
        return snapshot

    def named(ref: JobRef) -> JobRef:
        return into.get(ref, ref)

    jobs = [
        replace(
            node,
            ref=named(node.ref),
            parent=node.parent and named(node.parent),
        )
        for node in snapshot.jobs.values()
    ]
    edges = (replace(edge, job=named(edge.job)) for edge in snapshot.column_edges)
    made = _rebuilt(snapshot, jobs, snapshot.datasets.values(), sorted(edges))
    history = tuple(replace(run, job=named(run.job)) for run in snapshot.history)
    return dataclasses.replace(made, history=history)


def last_completed(snapshot: LineageSnapshot) -> dict[JobRef, datetime]:
    """Return when the last completed run of each job ended."""
    found: dict[JobRef, datetime] = {}
    for run in snapshot.history:
        if run.state == "COMPLETE" and run.ended_at is not None:
            found[run.job] = max(found.get(run.job, run.ended_at), run.ended_at)
    return found


def newest_of(jobs: Iterable[JobRef], ended: Mapping[JobRef, datetime]) -> JobRef:
    """Return the job whose last run completed last."""
    return max(jobs, key=lambda ref: (ended.get(ref, _NEVER), ref))


def merge_jobs(
    snapshot: LineageSnapshot, into: Mapping[JobRef, JobRef], preferred: Collection[JobRef] = ()
) -> LineageSnapshot:
    """Return the lineage with every key of `into` merged into its value, with all their runs.

    Edges are those of the job that ran last, or of a `preferred` one that is known; those of the
    others are former.
    """
    if not into:
        return snapshot
    ended = last_completed(snapshot)

    def named(ref: JobRef) -> JobRef:
        seen = {ref}
        while (after := into.get(ref)) and after not in seen:
            ref = after
            seen.add(ref)
        return ref

    groups: dict[JobRef, list[JobRef]] = {}
    for ref in snapshot.jobs:
        groups.setdefault(named(ref), []).append(ref)
    jobs, dropped = [], set[JobRef]()
    for whole, refs in groups.items():
        chosen = whole if whole in preferred and whole in refs else newest_of(refs, ended)
        dropped |= {ref for ref in refs if ref != chosen}
        jobs.append(
            _whole_job(whole, snapshot.jobs[chosen], [snapshot.jobs[r] for r in refs], named)
        )
    edges = (
        replace(edge, job=named(edge.job))
        for edge in snapshot.column_edges
        if edge.job not in dropped
    )
    made = _rebuilt(snapshot, jobs, snapshot.datasets.values(), sorted(set(edges)))
    history = tuple(
        run if run.job not in into else replace(run, job=named(run.job)) for run in snapshot.history
    )
    return dataclasses.replace(made, history=history)


def _whole_job(
    ref: JobRef, chosen: JobNode, nodes: Collection[JobNode], named: Callable[[JobRef], JobRef]
) -> JobNode:
    """Return one job for several: the chosen one, with the edges of the others as former."""
    reads = {d for one in nodes for d in (*one.reads, *one.former_reads)}.difference(chosen.reads)
    writes = {d for one in nodes for d in (*one.writes, *one.former_writes)}
    parent = chosen.parent and named(chosen.parent)
    return replace(
        chosen,
        ref=ref,
        parent=None if parent == ref else parent,
        former_reads=tuple(sorted(reads)),
        former_writes=tuple(sorted(writes.difference(chosen.writes))),
        past_reads=tuple(sorted(past for one in nodes for past in one.past_reads)),
    )


def fold_children(snapshot: LineageSnapshot, parents: Collection[JobRef]) -> LineageSnapshot:
    """Return the lineage with each of `parents` instead of its child jobs.

    For parents that run as a whole (an Airflow DAG, a Spark application): they take over the edges
    of their children, except edges between children.
    """
    folded: dict[JobRef, list[JobNode]] = {ref: [] for ref in parents}
    into: dict[JobRef, JobRef] = {}
    for node in snapshot.jobs.values():
        if node.ref in folded:
            continue
        parent = next((ref for ref in above(node.ref, snapshot.jobs) if ref in folded), None)
        if parent is not None:
            folded[parent].append(node)
            into[node.ref] = parent
    jobs = [node for ref, node in snapshot.jobs.items() if ref not in into and ref not in folded]
    sources = _inputs_of_columns(edge for edge in snapshot.column_edges if edge.job in into)
    blind: dict[JobRef, set[DatasetRef]] = {}
    for ref, children in folded.items():
        own = snapshot.jobs.get(ref) or JobNode(ref=ref)
        parts = [own, *children]
        outside = {
            ref
            for ref, writers in snapshot.writers.items()
            if any(into.get(job, job) != own.ref for job in writers)
        }
        node, handed = _united(own, parts, outside)
        jobs.append(node)
        blind[ref] = _blind(children, handed, sources)
    renamed = (replace(edge, job=into.get(edge.job, edge.job)) for edge in snapshot.column_edges)
    kept = (edge for edge in renamed if edge.input not in blind.get(edge.job, ()))
    return _rebuilt(snapshot, jobs, snapshot.datasets.values(), sorted(set(kept)))


def _inputs_of_columns(
    edges: Iterable[ColumnEdge],
) -> Mapping[JobRef, Mapping[DatasetRef, set[DatasetRef]]]:
    found: dict[JobRef, dict[DatasetRef, set[DatasetRef]]] = {}
    for edge in edges:
        found.setdefault(edge.job, {}).setdefault(edge.output, set()).add(edge.input)
    return found


def _blind(
    children: Collection[JobNode],
    handed: AbstractSet[DatasetRef],
    sources: Mapping[JobRef, Mapping[DatasetRef, set[DatasetRef]]],
) -> set[DatasetRef]:
    """Return the inputs whose columns are not followed within the whole: any may matter."""
    found = {d for one in children if not handed.isdisjoint(one.writes) for d in one.reads}
    if len(children) > 1:
        found |= untold(
            Part(set(one.reads), set(one.writes), sources.get(one.ref, {})) for one in children
        )
    return found


def above(ref: JobRef, jobs: Mapping[JobRef, JobNode]) -> Iterator[JobRef]:
    """Yield the parents of a job, the nearest first, each once."""
    seen = set[JobRef]()
    while (node := jobs.get(ref)) and node.parent and node.parent not in seen:
        ref = node.parent
        seen.add(ref)
        yield ref


def _united(
    own: JobNode, parts: Collection[JobNode], outside: AbstractSet[DatasetRef]
) -> tuple[JobNode, set[DatasetRef]]:
    """Return the node of a parent, and the datasets between its parts.

    They are inputs only where other jobs write them, too (`outside`).
    """
    now = [(set(part.reads), set(part.writes)) for part in parts]
    ever = [
        (reads.union(part.former_reads), writes.union(part.former_writes))
        for part, (reads, writes) in zip(parts, now, strict=True)
    ]
    handed = _handed(now)
    reads = _side(now, 0) - (handed - outside)
    writes = _side(now, 1)
    former_reads = _side(ever, 0) - _handed(ever) - handed - reads
    former_writes = _side(ever, 1) - writes
    node = replace(
        own,
        reads=tuple(sorted(reads)),
        writes=tuple(sorted(writes)),
        former_reads=tuple(sorted(former_reads)),
        former_writes=tuple(sorted(former_writes)),
        inner=tuple(sorted(handed)),
        parts=tuple(sorted(part.ref for part in parts if part.ref != own.ref)),
        from_columns=tuple(sorted({d for one in parts for d in one.from_columns} & reads)),
        covers=tuple(sorted({pair for one in parts for pair in one.covers if pair[1] in reads})),
        modes=tuple(sorted(_modes(parts).items())),
        edges_of=next((one.edges_of for one in parts if one.edges_of), None),
        names_nothing=any(one.names_nothing for one in parts),
        processing="STREAM" if any(one.processing == "STREAM" for one in parts) else own.processing,
    )
    return node, handed


def _modes(parts: Collection[JobNode]) -> dict[DatasetRef, str]:
    """Return how a parent writes, where all of its parts that write a dataset do it so."""
    sources = [dict(one.modes) for one in parts]
    found: dict[DatasetRef, set[str | None]] = {}
    for one, modes in zip(parts, sources, strict=True):
        for ref in one.writes:
            found.setdefault(ref, set()).add(modes.get(ref))
    return {ref: mode for ref, (mode, *more) in found.items() if mode and not more}


def _side(
    parts: Iterable[tuple[set[DatasetRef], set[DatasetRef]]], side: Literal[0, 1]
) -> set[DatasetRef]:
    return set[DatasetRef]().union(*(one[side] for one in parts))


def _handed(parts: Collection[tuple[set[DatasetRef], set[DatasetRef]]]) -> set[DatasetRef]:
    """Return what one part writes and another reads, except a part's own state."""
    return (_side(parts, 0) & _side(parts, 1)).difference(
        *(reads & writes for reads, writes in parts)
    )


def _rebuilt(
    snapshot: LineageSnapshot,
    jobs: Iterable[JobNode],
    datasets: Iterable[DatasetNode],
    column_edges: Iterable[ColumnEdge],
) -> LineageSnapshot:
    """Return the lineage with other jobs and datasets."""
    return LineageSnapshot.of(
        jobs,
        datasets,
        column_edges=tuple(column_edges),
        history=snapshot.history,
        source=snapshot.source,
        taken_at=snapshot.taken_at,
        notices=snapshot.notices,
    )


def _merged(
    whole: DatasetRef, nodes: list[DatasetNode], into: Mapping[DatasetRef, DatasetRef]
) -> DatasetNode:
    newest = list(reversed(nodes))
    return DatasetNode(
        ref=whole,
        fields=next((node.fields for node in newest if node.fields), ()),
        owners=tuple(sorted({owner for node in nodes for owner in node.owners})),
        tags=tuple(sorted({tag for node in nodes for tag in node.tags})),
        aliases=tuple(
            sorted({alias for node in nodes for alias in node.aliases if alias not in into})
        ),
        partitioning=next((n.partitioning for n in newest if n.partitioning is not None), None),
    )


def _renamed(node: JobNode, into: Mapping[DatasetRef, DatasetRef]) -> JobNode:
    edges = (node.reads, node.writes, node.former_reads, node.former_writes)
    past = (refs for _, refs in node.past_reads)
    if not any(ref in into for refs in (*edges, *past) for ref in refs):
        return node
    reads, writes, former_reads, former_writes = (
        {into.get(ref, ref) for ref in refs} for refs in edges
    )
    return replace(
        node,
        reads=tuple(sorted(reads)),
        writes=tuple(sorted(writes)),
        former_reads=tuple(sorted(former_reads - reads)),
        former_writes=tuple(sorted(former_writes - writes)),
        modes=tuple(sorted({into.get(ref, ref): mode for ref, mode in node.modes}.items())),
        covers=tuple(
            sorted(
                {
                    (into.get(a, a), into.get(b, b))
                    for a, b in node.covers
                    if into.get(a, a) != into.get(b, b)
                }
            )
        ),
        past_reads=tuple(
            (when, tuple(sorted({into.get(ref, ref) for ref in refs})))
            for when, refs in node.past_reads
        ),
    )


def _columns(
    edges: Iterable[ColumnEdge], into: Mapping[DatasetRef, DatasetRef]
) -> tuple[ColumnEdge, ...]:
    direct: dict[ColumnEdge, bool] = {}
    for edge in edges:
        renamed = replace(
            edge,
            input=into.get(edge.input, edge.input),
            output=into.get(edge.output, edge.output),
            direct=False,
        )
        direct[renamed] = direct.get(renamed, False) or edge.direct
    return tuple(replace(edge, direct=is_direct) for edge, is_direct in sorted(direct.items()))
