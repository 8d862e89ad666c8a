"""Compares two lineages: jobs, datasets, edges, columns and facets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from lineage_backfill.lineage.snapshot import ColumnEdge, DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef

#: Members of a job or dataset that are compared separately, that hold former edges, or that
#: differ in each run, such as a query that contains a date.
_EDGES: Final = frozenset(
    {"ref", "reads", "writes", "former_reads", "former_writes", "fields", "query", "arguments"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """The differences of a job in both lineages; `said` names members of `JobNode`."""

    job: JobRef
    reads_added: tuple[DatasetRef, ...] = ()
    reads_removed: tuple[DatasetRef, ...] = ()
    writes_added: tuple[DatasetRef, ...] = ()
    writes_removed: tuple[DatasetRef, ...] = ()
    columns_added: tuple[ColumnEdge, ...] = ()
    columns_removed: tuple[ColumnEdge, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetChange:
    """The differences of a dataset in both lineages; `said` names members of `DatasetNode`."""

    dataset: DatasetRef
    columns_added: tuple[str, ...] = ()
    columns_removed: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The differences between two lineages, without run history; everything is sorted."""

    jobs_added: tuple[JobRef, ...]
    jobs_removed: tuple[JobRef, ...]
    jobs_changed: tuple[JobChange, ...]
    datasets_added: tuple[DatasetRef, ...]
    datasets_removed: tuple[DatasetRef, ...]
    datasets_changed: tuple[DatasetChange, ...]

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self))


def compare(before: LineageSnapshot, after: LineageSnapshot) -> Difference:
    """Return the differences between two lineages."""
    old_columns, new_columns = _by_job(before.column_edges), _by_job(after.column_edges)
    jobs = (
        _job(before.jobs[ref], after.jobs[ref], old_columns.get(ref, ()), new_columns.get(ref, ()))
        for ref in sorted(before.jobs.keys() & after.jobs.keys())
    )
    datasets = (
        _dataset(before.datasets[ref], after.datasets[ref])
        for ref in sorted(before.datasets.keys() & after.datasets.keys())
    )
    return Difference(
        jobs_added=_lacking(after.jobs, before.jobs),
        jobs_removed=_lacking(before.jobs, after.jobs),
        jobs_changed=tuple(one for one in jobs if any(_differing(one))),
        datasets_added=_lacking(after.datasets, before.datasets),
        datasets_removed=_lacking(before.datasets, after.datasets),
        datasets_changed=tuple(
            one for one in datasets if one != DatasetChange(dataset=one.dataset)
        ),
    )


def _by_job(edges: Iterable[ColumnEdge]) -> Mapping[JobRef, list[ColumnEdge]]:
    found: dict[JobRef, list[ColumnEdge]] = {}
    for edge in edges:
        found.setdefault(edge.job, []).append(edge)
    return found


def _job(
    old: JobNode,
    new: JobNode,
    old_columns: Iterable[ColumnEdge],
    new_columns: Iterable[ColumnEdge],
) -> JobChange:
    return JobChange(
        job=old.ref,
        reads_added=_lacking(new.reads, old.reads),
        reads_removed=_lacking(old.reads, new.reads),
        writes_added=_lacking(new.writes, old.writes),
        writes_removed=_lacking(old.writes, new.writes),
        columns_added=_lacking(new_columns, old_columns),
        columns_removed=_lacking(old_columns, new_columns),
        said=_said(old, new),
    )


def _dataset(old: DatasetNode, new: DatasetNode) -> DatasetChange:
    return DatasetChange(
        dataset=old.ref,
        columns_added=_lacking(new.fields, old.fields),
        columns_removed=_lacking(old.fields, new.fields),
        said=_said(old, new),
    )


def _differing(change: JobChange | DatasetChange) -> Iterator[object]:
    """Yield all members of a change except the name."""
    return (getattr(change, one.name) for one in fields(change)[1:])


def _lacking(some: Iterable[Any], others: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(some) - set(others)))


def _said(old: JobNode | DatasetNode, new: JobNode | DatasetNode) -> tuple[str, ...]:
    names = (name for name in old.__struct_fields__ if name not in _EDGES)
    return tuple(name for name in names if getattr(old, name) != getattr(new, name))
