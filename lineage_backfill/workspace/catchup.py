"""What is stale in a project, and the plan that repairs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lineage_backfill.model import DatasetRef, named
from lineage_backfill.partitions.text import render
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import Request
from lineage_backfill.runs.reports import instant
from lineage_backfill.staleness.staleness import Staleness
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace

_NOTHING = {"jobs": 0, "partitions": 0, "runs": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """What is stale, why other tables are unknown, and the plan that repairs it, None for none."""

    workspace: Workspace = field(repr=False)
    jobs: tuple[Staleness, ...]
    silent: Mapping[DatasetRef, str]
    plan: Plan | None

    @property
    def is_unknown(self) -> bool:
        """Whether nothing could be judged."""
        return bool(self.jobs) and all(one.is_unknown for one in self.jobs)

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
            "stale": sum(len(one.stale) for one in self.jobs),
            "to_run": dict(_NOTHING if self.plan is None else self.plan.totals),
        }


def find_stale(workspace: Workspace, request: Request, *, since: datetime | None = None) -> Stale:
    """Return what is stale of the jobs that a request selects, with the rest of the request.

    Keys older than `since` are left out. Raises TableLogError if no log can be read.
    """
    planning = Planning(workspace)
    jobs, silent = planning.find_stale(select=request.select, exclude=request.exclude, since=since)
    jobs, plan = _planned(planning, request, jobs)
    return Stale(workspace=workspace, jobs=jobs, silent=silent, plan=plan)


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
