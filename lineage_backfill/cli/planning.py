"""What `impact`, `run` and `plan` have in common: how they come by a plan, and its preview."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lineage_backfill import workspace as app
from lineage_backfill.cli.options import Format, RequestOptions, SourceOptions
from lineage_backfill.cli.requests import Names, asks_logs, read_request
from lineage_backfill.cli.values import read_instant, read_moment
from lineage_backfill.errors import StoreError, UsageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.planning.document import plan_from_dict
from lineage_backfill.planning.plan import Plan
from lineage_backfill.planning.request import Request
from lineage_backfill.presentation import documents
from lineage_backfill.project import Project

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from lineage_backfill.planning.explain import Explanation
    from lineage_backfill.runs.simulate import Estimate


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
    request = _request(datasets, options, project, snapshot, now)
    plan = app.make_plan(project, snapshot, request, now=now)
    return Made(plan=plan, project=project, snapshot=snapshot)


def explain(
    target: str,
    datasets: Sequence[str],
    options: RequestOptions,
    source: SourceOptions,
    *,
    why_not: bool,
) -> Explanation:
    """Return why the plan that the options ask for holds `target`, a JOB or JOB@SET, or not."""
    now = read_instant(options.now)
    project = source.open()
    snapshot = _read_lineage(project)
    request = _request(datasets, options, project, snapshot, now)
    names = Names(snapshot, project.declarations, options.namespace)
    job, keys = names.job_and_keys(target)
    return app.explain(project, snapshot, request, job, keys, why_not=why_not, now=now)


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


def _request(
    datasets: Sequence[str],
    options: RequestOptions,
    project: Project,
    snapshot: LineageSnapshot,
    now: datetime,
) -> Request:
    request = read_request(datasets, options, snapshot, project.declarations)
    if not asks_logs(options):
        return request
    since, after = read_moment(options.changed_since, now), options.since_version
    return app.see_changes(project, snapshot, request, now=now, after=after, since=since)


def load_plan(file: Path) -> Plan:
    """Return a saved plan; raises UsageError naming the file where it is none."""
    try:
        return plan_from_dict(documents.load(file))
    except UsageError as error:
        named = "" if str(file) in error.message else f"{file}: "
        raise UsageError(f"{named}{error}", hint=error.hint) from error


def estimate(made: Made, *, max_parallel: int | None = None) -> Estimate | None:
    """Return how long a plan will take; None where its runs or the run store cannot be read."""
    from lineage_backfill.cli import terminal

    began = time.monotonic()
    try:
        found = app.estimate(made.project, made.snapshot, made.plan, max_parallel=max_parallel)
    except StoreError as error:
        terminal.say(f"warning: how long it takes is not known: {error}", style="yellow")
        return None
    app.log_time(began, "estimate")
    return found


def show(
    plan: Plan,
    console: Console,
    *,
    snapshot: LineageSnapshot | None = None,
    estimate: Estimate | None = None,
) -> None:
    """Print the preview; with a snapshot also what the lineage tells beside the plan."""
    from lineage_backfill.cli.render import NOTHING_BESIDE, Beside, preview

    beside = NOTHING_BESIDE if snapshot is None else Beside.of(plan, snapshot, estimate)
    console.print(preview(plan, width=console.width, beside=beside))


def show_as(form: Format, made: Made, console: Console) -> None:
    """Print the plan in one of its forms."""
    from lineage_backfill.cli import formats
    from lineage_backfill.cli.heatmap import heatmap
    from lineage_backfill.cli.render import Beside
    from lineage_backfill.presentation import draw
    from lineage_backfill.presentation.plans import drawing

    plan, takes = made.plan, estimate(made)
    beside = Beside.of(plan, made.snapshot, takes)
    match form:
        case Format.TABLE:
            show(plan, console, snapshot=made.snapshot, estimate=takes)
        case Format.TREE:
            console.print(formats.plan_tree(plan, beside))
        case Format.HEATMAP:
            spans = app.timeline(made.project, made.snapshot, plan)
            zone, width = made.project.declarations.zone, console.width
            is_plain = not console.encoding.startswith("utf")
            console.print(heatmap(plan, spans, zone=zone, width=width, plain=is_plain))
        case Format.MARKDOWN:
            typer.echo(formats.markdown(plan, beside), nl=False)
        case Format.MERMAID | Format.DOT | Format.SVG:
            write = {Format.MERMAID: draw.mermaid, Format.DOT: draw.dot, Format.SVG: draw.svg}
            typer.echo(write[form](drawing(plan)), nl=False)
