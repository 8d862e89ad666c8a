"""Wires the adapters to the core, from configuration; nothing else names an adapter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from lineage_backfill.config import Project, load_project
from lineage_backfill.errors import ConfigError

if TYPE_CHECKING:
    from lineage_backfill.graph.lineage import LineageSnapshot
    from lineage_backfill.plan.plan import Plan
    from lineage_backfill.plan.request import Request


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
    if project.lineage.events:
        from lineage_backfill.sources.events import EventSource

        return EventSource(project.lineage.events).read()
    raise ConfigError(
        "No lineage is named that this version can read",
        hint="Name OpenLineage events with --events PATH, or `events` in [lineage];"
        " an export of a lineage service's events is one.",
    )


def make_plan(
    project: Project, snapshot: LineageSnapshot, request: Request, *, now: datetime
) -> Plan:
    """Return the plan for the request."""
    from lineage_backfill.plan.planner import build_plan

    return build_plan(request, snapshot, project.declarations, now=now)
