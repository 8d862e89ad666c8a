"""The tail: runs for keys that became complete while a backfill ran.

Such keys may have read data that was not repaired yet. Pure: compares the plans so far with a new
one for the same roots, and returns the runs that only the new one has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from lineage_backfill.model import JobRef
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Plan, PlannedJob, PlannedRun
from lineage_backfill.plans.request import ChangedDataset, ChangedJob, Request, request_from_dict
from lineage_backfill.runs.cutoff import without


def same_roots(plan: Plan, resolver: Resolver) -> Request:
    """Return the request of a plan with the roots of that time.

    `resolver` has the keys that existed then: `2024-03-01..` meant up to the newest of these.
    """
    request = request_from_dict(plan.request, "the plan")

    def fixed(asked: ChangedJob) -> ChangedJob:
        calendar = resolver.job(asked.job).calendar
        if calendar is None or asked.keys is None:
            return asked
        return replace(asked, keys=render(calendar, calendar.clip(parse(calendar, asked.keys))))

    return replace(
        request,
        changed=tuple(
            ChangedDataset(dataset=part.dataset, keys=part.keys) for part in plan.changed
        ),
        jobs=tuple(map(fixed, request.jobs)),
        allow=request.allow | {"max-runs"},  # most of them have already run
    )


def tail_of(plans: Sequence[Plan], fresh: Plan, resolver: Resolver) -> Plan | None:
    """Return a plan of the runs that only `fresh` has, not the earlier plans; None for nothing.

    `resolver` is that of the fresh plan. What the runs wait for in the earlier plans has succeeded.
    """
    left = _left(plans, fresh, resolver)
    if not left:
        return None
    ids: dict[str, str] = {}
    runs: list[PlannedRun] = []
    for run in fresh.runs or ():
        calendar = resolver.job(run.job).calendar
        assert calendar is not None
        done = parse(calendar, run.partitions) - left.get(run.job, NOTHING)
        if len(done) < run.count:
            kept = without(resolver, run, render(calendar, done))
            ids[run.id] = run.id if kept is run else run_id(kept)
            waits = tuple(ids[up] for up in run.upstream if up in ids)
            runs.append(structs.replace(kept, id=ids[run.id], upstream=waits))
    jobs = tuple(_job(job, left[job.job], resolver) for job in fresh.jobs if job.job in left)
    partitions = sum(job.count for job in jobs)
    totals = {"jobs": len(jobs), "runs": len(runs), "partitions": partitions}
    return replace(fresh, totals=totals).detailed(jobs=jobs, runs=tuple(runs))


def _left(plans: Sequence[Plan], fresh: Plan, resolver: Resolver) -> dict[JobRef, PartitionSet]:
    """Return the keys of each job that only the fresh plan has."""
    done: dict[JobRef, PartitionSet] = {}
    for job in (job for plan in plans for job in plan.jobs if job.partitions):
        calendar = resolver.job(job.job).calendar
        if calendar is not None:
            done[job.job] = done.get(job.job, NOTHING) | parse(calendar, job.partitions)
    found = {}
    for job in fresh.jobs:
        calendar = resolver.job(job.job).calendar
        if job.partitions and calendar is not None:
            keys = parse(calendar, job.partitions) - done.get(job.job, NOTHING)
            if keys:
                found[job.job] = keys
    return found


def _job(job: PlannedJob, keys: PartitionSet, resolver: Resolver) -> PlannedJob:
    calendar = resolver.job(job.job).calendar
    assert calendar is not None
    return structs.replace(job, partitions=render(calendar, keys), count=len(keys))


def run_id(run: PlannedRun) -> str:
    """Return the id of a run that has other keys than planned first."""
    name = f"{run.id} {run.partitions!r}"
    return "r-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
