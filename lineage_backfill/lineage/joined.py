"""Several lineages as one: the edges of a job are those of the source that saw it run last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from msgspec.structs import replace

from lineage_backfill.lineage.identity.merge import last_completed
from lineage_backfill.lineage.snapshot import (
    ColumnEdge,
    DatasetNode,
    JobNode,
    LineageSnapshot,
    ObservedRun,
)
from lineage_backfill.model import DatasetRef, JobRef

#: The members of a node that all sources add to; of the others, the first one counts.
_ADDED = frozenset(
    {
        *("reads", "writes", "former_reads", "former_writes", "past_reads", "modes"),
        *("owners", "tags", "aliases"),
    }
)


def joined(parts: Sequence[LineageSnapshot]) -> LineageSnapshot:
    """Return the lineage of several sources.

    A source that knows no run of a job adds its edges to those of the last run.
    """
    ended = [last_completed(part) for part in parts]
    newest: dict[JobRef, datetime] = {}
    for times in ended:
        newest |= {ref: max(time, newest.get(ref, time)) for ref, time in times.items()}
    jobs: dict[JobRef, list[tuple[JobNode, bool]]] = {}
    datasets: dict[DatasetRef, list[DatasetNode]] = {}
    columns: set[ColumnEdge] = set()
    for part, times in zip(parts, ended, strict=True):
        counts = {ref for ref in part.jobs if times.get(ref) in (None, newest.get(ref))}
        for ref, node in part.jobs.items():
            jobs.setdefault(ref, []).append((node, ref in counts))
        for dataset in part.datasets.values():
            datasets.setdefault(dataset.ref, []).append(dataset)
        columns.update(edge for edge in part.column_edges if edge.job in counts)
    return LineageSnapshot.of(
        map(_job, jobs.values()),
        map(_dataset, datasets.values()),
        column_edges=tuple(sorted(columns)),
        history=_history(chain.from_iterable(part.history for part in parts)),
        taken_at=max(filter(None, (one.taken_at for one in parts)), default=None),
        notices=tuple(dict.fromkeys(chain.from_iterable(one.notices for one in parts))),
    )


def _history(runs: Iterable[ObservedRun]) -> tuple[ObservedRun, ...]:
    """Return each run once, ended if a source saw its end."""
    found: dict[tuple[JobRef, str], ObservedRun] = {}
    for run in runs:
        key = (run.job, run.run_id)
        if key not in found or (run.ended_at and not found[key].ended_at):
            found[key] = run
    return tuple(found[key] for key in sorted(found))


def _job(nodes: Sequence[tuple[JobNode, bool]]) -> JobNode:
    first, *_ = ordered = [node for node, _ in sorted(nodes, key=lambda one: not one[1])]
    if len(ordered) == 1:
        return first
    current = [node for node, counts in nodes if counts]
    reads, writes = ({d for one in current for d in getattr(one, m)} for m in ("reads", "writes"))
    node: JobNode = _united(ordered)
    return replace(
        node,
        reads=tuple(sorted(reads)),
        writes=tuple(sorted(writes)),
        former_reads=tuple(sorted({*node.reads, *node.former_reads} - reads)),
        former_writes=tuple(sorted({*node.writes, *node.former_writes} - writes)),
        modes=tuple(sorted(dict(reversed(node.modes)).items())),
        names_nothing=node.names_nothing and not (reads or writes),
    )


def _dataset(nodes: Sequence[DatasetNode]) -> DatasetNode:
    node: DatasetNode = nodes[0] if len(nodes) == 1 else _united(nodes)
    return node


def _united(nodes: Sequence[Any]) -> Any:
    """Return one node for several, the most important one first."""
    return replace(nodes[0], **{name: _member(name, nodes) for name in nodes[0].__struct_fields__})


def _member(name: str, nodes: Iterable[Any]) -> Any:
    values = [getattr(node, name) for node in nodes]
    if name in _ADDED:
        return tuple(sorted({one for value in values for one in value}))
    return next((value for value in values if value), values[0])
