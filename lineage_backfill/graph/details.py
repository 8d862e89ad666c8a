"""What a lineage tells beside what plans are made from: which partitions runs touched, and more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lineage_backfill.graph.lineage import ColumnEdge, DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The partitions that one completed run read from, or wrote to, one dataset.

    `keys` are sorted, in the notation of users.
    """

    job: JobRef
    run_id: str
    dataset: DatasetRef
    keys: tuple[str, ...]
    written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the last run that told it has written to a dataset: rows, bytes and files; UTC."""

    at: datetime
    rows: int | None = None
    size: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What is told of jobs, runs and datasets for people and for inference.

    `after` holds the jobs that an orchestrator starts each job after, `dropped` the datasets whose
    last change was to be dropped.
    """

    after: Mapping[JobRef, tuple[JobRef, ...]] = field(default_factory=dict)
    touched: tuple[Touched, ...] = ()
    written: Mapping[DatasetRef, Written] = field(default_factory=dict)
    dropped: frozenset[DatasetRef] = frozenset()


NO_DETAILS = Details()


@dataclass(frozen=True, kw_only=True, eq=False)
class DetailedSnapshot(LineageSnapshot):
    """A lineage with its details; plans need none of them."""

    details: Details = NO_DETAILS


def details_of(snapshot: LineageSnapshot) -> Details:
    """Return the details of a lineage, empty where it has none."""
    return snapshot.details if isinstance(snapshot, DetailedSnapshot) else NO_DETAILS


def rebuilt(
    snapshot: LineageSnapshot,
    jobs: Iterable[JobNode],
    datasets: Iterable[DatasetNode],
    *,
    column_edges: tuple[ColumnEdge, ...],
    details: Details | None = None,
) -> LineageSnapshot:
    """Return a lineage of other jobs and datasets with the rest of the one given."""
    return DetailedSnapshot.of(
        jobs,
        datasets,
        column_edges=column_edges,
        history=snapshot.history,
        source=snapshot.source,
        taken_at=snapshot.taken_at,
        warnings=snapshot.warnings,
        details=details_of(snapshot) if details is None else details,
    )
