"""Wires the adapters to the core, from configuration; nothing else names an adapter."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lineage_backfill.config import Project, load_project
from lineage_backfill.errors import (
    ConfigError,
    DeclarationError,
    GuardRailError,
    StalePlanError,
    UnknownNameError,
    UsageError,
)

if TYPE_CHECKING:
    from lineage_backfill.executor.loop import Executor
    from lineage_backfill.graph.lineage import LineageSnapshot
    from lineage_backfill.model import BackfillState
    from lineage_backfill.plan.plan import Plan
    from lineage_backfill.plan.request import Request
    from lineage_backfill.ports import Engine, Reporter, RunStore

_SQLITE = "sqlite:///"


def open_project(
    file: Path | None = None,
    *,
    events: Sequence[str] | None = None,
    marquez: str | None = None,
    snapshot: Path | None = None,
) -> Project:
    """Return the project of `file`, or the one found upward; the lineage given comes first.

    Raises ConfigError or DeclarationError.
    """
    flags = {
        "lineage.events": list(events) if events else None,
        "lineage.marquez": marquez,
        "lineage.snapshot": snapshot and str(snapshot),
    }
    return load_project(file=file, flags=flags)


def read_lineage(project: Project) -> LineageSnapshot:
    """Return the lineage that the project names; raises LineageError, or ConfigError for none."""
    lineage = project.lineage
    if lineage.events:
        from lineage_backfill.sources.events import EventSource

        return EventSource(lineage.events).read()
    if lineage.snapshot:
        from lineage_backfill.sources.snapshot import SnapshotSource

        return SnapshotSource(lineage.snapshot).read()
    if lineage.marquez:
        raise ConfigError(
            "this version does not ask Marquez itself",
            hint="Save its events (GET /api/v1/events/lineage) and name them with --events.",
        )
    raise ConfigError(
        "no lineage is named", hint="Name OpenLineage events: --events PATH, or [lineage] events."
    )


def make_plan(
    project: Project, snapshot: LineageSnapshot, request: Request, *, now: datetime
) -> Plan:
    """Return the plan for the request; raises UsageError where it cannot be planned."""
    from lineage_backfill.plan.planner import build_plan

    functions = _functions(project)
    return build_plan(request, snapshot, project.declarations, now=now, functions=functions)


def check_plan(project: Project, snapshot: LineageSnapshot, document: Mapping[str, Any]) -> Plan:
    """Return the plan of a document; raises StalePlanError if what it rests on has moved."""
    from lineage_backfill.plan.document import plan_from_dict

    plan = plan_from_dict(document)
    now = datetime.fromisoformat(plan.now)
    fresh = make_plan(project, snapshot, _request(plan.request), now=now)
    if fresh.lineage["hash"] != plan.lineage["hash"]:
        raise StalePlanError(
            f"the plan is stale: {_what_moved(plan, fresh)}",
            hint="Make it anew with `lineage-backfill impact … --out`, and look at it again.",
        )
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a drive of a backfill ended; `timed_out` where it was stopped for its time was up."""

    id: str
    state: BackfillState
    timed_out: bool


def start(project: Project, snapshot: LineageSnapshot, plan: Plan, **options: Any) -> Ended:
    """Run a plan; `options` are those of `Driver`.

    Raises UsageError for a job without an engine and GuardRailError for too many runs, both before
    anything is written; EnvironmentMissingError and ConflictError before anything is run.
    """
    with _driver(project, snapshot, plan, **options) as driver:
        backfill_id = driver.executor.start(plan, submitted_by=_user())
        return driver.drive(backfill_id, driver.executor.drive)


def resume(
    project: Project, snapshot: LineageSnapshot, backfill: str | None, **options: Any
) -> Ended:
    """Go on with a backfill; `options` are those of `Driver`."""
    return _again(project, snapshot, backfill, lambda executor: executor.resume, options)


def retry(
    project: Project, snapshot: LineageSnapshot, backfill: str | None, **options: Any
) -> Ended:
    """Run again what failed and what it blocked; `options` are those of `Driver`."""
    return _again(project, snapshot, backfill, lambda executor: executor.retry, options)
