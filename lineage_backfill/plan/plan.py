"""The plan: what will run, for which partitions, in which order, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet

JobStatus = Literal["planned", "blocked", "left_stale", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPartitions:
    """Partitions of one dataset; `keys` is None where a run reads the dataset whole."""

    dataset: DatasetRef
    keys: KeySet | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run of one job over one set of its run keys."""

    id: str  # stable: made from the job and the keys
    job: JobRef
    partitions: KeySet
    count: int
    wave: int
    upstream: tuple[str, ...]  # ids of the runs whose partitions it reads
    engine: str | None
    reads: tuple[DatasetPartitions, ...]
    writes: tuple[DatasetPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """What the plan says of one job that is reached from the change."""

    job: JobRef
    status: JobStatus
    level: int
    partitions: KeySet
    count: int
    left_stale: KeySet
    reason: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A whole plan; `plan.document.plan_to_dict` gives the document of `impact --json`.

    `now` is an ISO instant in UTC. `runs` is None where there are more than the limit.
    """

    now: str
    request: Mapping[str, Any]
    lineage: Mapping[str, Any]
    changed: tuple[DatasetPartitions, ...]
    jobs: tuple[PlannedJob, ...]
    runs: tuple[PlannedRun, ...] | None
    totals: Mapping[str, int]
    warnings: tuple[str, ...] = field(default=())

    @cached_property
    def id(self) -> str:
        """`sha256:…` over everything in the plan; worked out when it is first asked for."""
        from lineage_backfill.plan.document import content_id

        return content_id(self)
