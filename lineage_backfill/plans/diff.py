"""Differences between two plans, job by job and key by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lineage_backfill.model import JobRef
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.plans.plan import Plan, PlannedJob

Change = Literal["added", "removed", "status", "partitions", "left_stale", "reason"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDifference:
    """One job before and after; None if a plan does not contain it."""

    job: JobRef
    changes: tuple[Change, ...]
    before: PlannedJob | None
    after: PlannedJob | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference:
    """The differences between two plans; empty if they would run the same."""

    jobs: tuple[JobDifference, ...]
    lineage_moved: bool
    moved: tuple[str, ...]  # jobs and datasets whose edges or declarations differ

    def __bool__(self) -> bool:
        return bool(self.jobs) or self.lineage_moved


def diff(before: Plan, after: Plan) -> PlanDifference:
    """Return what changed from one plan to the other."""
    old = {job.job: job for job in before.jobs}
    new = {job.job: job for job in after.jobs}
    jobs = []
    for ref in sorted({*old, *new}):
        was, now = old.get(ref), new.get(ref)
        changes = _changes(was, now)
        if changes:
            jobs.append(JobDifference(job=ref, changes=changes, before=was, after=now))
    names = moved(before.lineage, after.lineage)
    if before.request != after.request:
        # What only one of the two requests reaches has not changed.
        both = (before.lineage.get("parts") or {}).keys() & (
            after.lineage.get("parts") or {}
        ).keys()
        names = tuple(name for name in names if name in both)
    return PlanDifference(jobs=tuple(jobs), lineage_moved=bool(names), moved=names)


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of jobs and datasets whose edges or declarations differ, sorted."""
    old, new = before.get("parts") or {}, after.get("parts") or {}
    return tuple(sorted(name for name in {*old, *new} if old.get(name) != new.get(name)))


def _changes(was: PlannedJob | None, now: PlannedJob | None) -> tuple[Change, ...]:
    if was is None:
        return ("added",)
    if now is None:
        return ("removed",)
    changes: list[Change] = []
    if was.status != now.status:
        changes.append("status")
    if _keys(was.partitions) != _keys(now.partitions):
        changes.append("partitions")
    if _keys(was.left_stale) != _keys(now.left_stale):
        changes.append("left_stale")
    if was.reason != now.reason and not changes:
        changes.append("reason")
    return tuple(changes)


def _keys(keys: KeySet) -> list[Any]:
    return [key if isinstance(key, str) else {n: list(v) for n, v in key.items()} for key in keys]
