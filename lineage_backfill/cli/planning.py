"""What `impact`, `run` and `plan` have in common: how they come by a plan, and its preview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lineage_backfill import app
from lineage_backfill.cli import documents
from lineage_backfill.cli.asking import Names, read_instant, read_request
from lineage_backfill.cli.options import RequestOptions, SourceOptions
from lineage_backfill.config import Project
from lineage_backfill.errors import UsageError
from lineage_backfill.graph.lineage import LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.plan.document import plan_from_dict
from lineage_backfill.plan.plan import Plan

if TYPE_CHECKING:
    from rich.console import Console

    from lineage_backfill.plan.explain import Explanation


#: How many of the lineage's warnings are said beside a plan.
_SHOWN_WARNINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A plan and what it was made from."""

    plan: Plan
    project: Project
    snapshot: LineageSnapshot


def make_plan(datasets: Sequence[str], options: RequestOptions, source: SourceOptions) -> Made:
    """Return the plan that the options ask for."""
    now = read_instant(options.now)
    project = source.open()
    snapshot = _read_lineage(project)
    request = read_request(datasets, options, snapshot, project.declarations)
    plan = app.make_plan(project, snapshot, request, now=now)
    return Made(plan=plan, project=project, snapshot=snapshot)


def explain(
    target: str, datasets: Sequence[str], options: RequestOptions, source: SourceOptions
) -> Explanation:
    """Return why the plan that the options ask for holds `target`, a JOB or JOB@SET, or not."""
    now = read_instant(options.now)
    project = source.open()
    snapshot = _read_lineage(project)
    request = read_request(datasets, options, snapshot, project.declarations)
    names = Names(snapshot, project.declarations, options.namespace)
    return app.explain(project, snapshot, request, *names.job_and_keys(target), now=now)


def _read_lineage(project: Project) -> LineageSnapshot:
    """Return the lineage; what its source got wrong is said first."""
    from lineage_backfill.cli import terminal

    snapshot = app.read_lineage(project)
    more = len(snapshot.warnings) - _SHOWN_WARNINGS
    for text in snapshot.warnings[:_SHOWN_WARNINGS]:
        terminal.say(f"lineage: {text}", style="yellow")
    if more > 0:
        terminal.say(f"lineage: {more:,} more warnings; `lineage-backfill lineage show` has all")
    return snapshot


def load_plan(file: Path) -> Plan:
    """Return a saved plan; raises UsageError naming the file where it is none."""
    try:
        return plan_from_dict(documents.load(file))
    except UsageError as error:
        named = "" if str(file) in error.message else f"{file}: "
        raise UsageError(f"{named}{error}", hint=error.hint) from error


def show(plan: Plan, console: Console, *, snapshot: LineageSnapshot | None = None) -> None:
    """Print the preview; with a snapshot also the jobs that the change does not reach."""
    from lineage_backfill.cli.render import preview

    untouched: list[JobRef] = []
    if snapshot is not None:
        reached = {job.job for job in plan.jobs}
        untouched = [ref for ref in snapshot.jobs if ref not in reached]
    console.print(preview(plan, width=console.width, untouched=untouched))
