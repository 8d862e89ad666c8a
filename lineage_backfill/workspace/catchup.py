"""What is stale in a project, and the plan that repairs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lineage_backfill.model import DatasetRef, named
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.text import render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import Request
from lineage_backfill.project.access import WHOLE, Reach
from lineage_backfill.runs.reports import instant
from lineage_backfill.staleness.partitions import PartitionStates, partition_states
from lineage_backfill.staleness.record import TableRecord
from lineage_backfill.staleness.staleness import Staleness
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace

#: Newest writes of a dataset that are shown.
WRITES = 20
_NOTHING = {"jobs": 0, "partitions": 0, "runs": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """What is stale, why other tables are unknown, and the plan that repairs it, None for none."""

    workspace: Workspace = field(repr=False)
    jobs: tuple[Staleness, ...]
    silent: Mapping[DatasetRef, str]
    plan: Plan | None
    resolver: Resolver = field(repr=False)
    tables: Mapping[DatasetRef, TableRecord] = field(repr=False)

    @property
    def stale(self) -> int:
        """How many run keys are stale."""
        return sum(len(one.stale) for one in self.jobs)

    @property
    def doubtful(self) -> int:
        """How many jobs could not be judged in full."""
        return sum(bool(one.why) for one in self.jobs)

    @property
    def is_unknown(self) -> bool:
        """Whether nothing could be judged."""
        return bool(self.jobs) and all(one.is_unknown for one in self.jobs)

    def partitions(self, dataset: DatasetRef) -> PartitionStates:
        """Return the state of each partition of a dataset; all its writers were judged."""
        jobs = {one.job: one for one in self.jobs}
        found = partition_states(self.resolver, dataset, jobs, self.tables)
        why = self.silent.get(dataset)
        return replace(found, why=(*found.why, why)) if why and found.why else found

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `stale --json`."""
        return {
            "schema_version": 1,
            "kind": "stale",
            "now": instant(self.workspace.now),
            "jobs": list(map(_job, self.jobs)),
            "silent": [
                {"dataset": named(dataset), "why": why}
                for dataset, why in sorted(self.silent.items())
            ],
            "stale": self.stale,
            "to_run": dict(_NOTHING if self.plan is None else self.plan.totals),
        }


def find_stale(
    workspace: Workspace,
    request: Request,
    *,
    since: datetime | None = None,
    reach: Reach = WHOLE,
) -> Stale:
    """Return what is stale of the jobs that a request selects, with the rest of the request.

    Only jobs within the `reach` are looked at. Keys older than `since` are left out. Raises
    TableLogError if no log can be read.
    """
    planning = Planning(workspace, reach=reach)
    jobs, silent = planning.find_stale(select=request.select, exclude=request.exclude, since=since)
    jobs, plan = _planned(planning, request, jobs)
    assert planning.judged_by is not None
    resolver, tables = planning.judged_by
    return Stale(
        workspace=workspace,
        jobs=jobs,
        silent=silent,
        plan=plan,
        resolver=resolver,
        tables=tables,
    )


def _planned(
    planning: Planning, request: Request, jobs: tuple[Staleness, ...]
) -> tuple[tuple[Staleness, ...], Plan | None]:
    """Return the jobs with what waits, and the plan of what can run now (None if nothing)."""
    while roots := tuple(asked for one in jobs if (asked := one.asked()) is not None):
        plan = planning.plan(replace(request, jobs=roots))
        known, jobs = jobs, planning.without_waiting(jobs, plan)
        if jobs == known:
            return jobs, plan
    return jobs, None


def partitions_document(found: PartitionStates, looked_at: datetime) -> dict[str, Any]:
    """Return the document of the partitions of a dataset by state, with their newest writes."""

    def keys(partitions: PartitionSet) -> list[Any]:
        return list(render(found.calendar, partitions)) if found.calendar is not None else []

    return {
        "schema_version": 1,
        "kind": "partitions",
        "looked_at": instant(looked_at),
        "dataset": named(found.dataset),
        "states": [
            {"state": state, "partitions": keys(held), "count": len(held)}
            for state, held in found.states.items()
        ],
        "older": [
            {
                "dataset": named(one.dataset),
                "partitions": keys(one.keys),
                "changed_at": instant(one.at),
                "version": one.version,
            }
            for one in found.older
        ],
        "why": list(found.why),
        "writes": [
            {"version": one.version, "at": instant(one.at), "partitions": keys(one.keys)}
            for one in found.newest(WRITES)
        ],
    }


def keys_of(one: Staleness, keys: Any) -> list[Any]:
    """Return keys of a job as a document has them."""
    return list(render(one.calendar, keys)) if one.calendar is not None and keys else []


def _job(one: Staleness) -> dict[str, Any]:
    return {
        "job": named(one.job),
        "missing": keys_of(one, one.missing),
        "older": [
            {
                "dataset": named(older.dataset),
                "partitions": keys_of(one, older.keys),
                "changed_at": instant(older.at),
                "version": older.version,
            }
            for older in one.older
        ],
        "running": keys_of(one, one.running),
        "waiting": keys_of(one, one.waiting),
        "unjudged": keys_of(one, one.unjudged),
        "why": list(one.why),
        "missing_inputs": [
            {
                "dataset": named(lost.dataset),
                "partitions": list(render(lost.calendar, lost.keys)),
            }
            for lost in one.missing_inputs
        ],
    }
