"""What `impact`, `run` and `plan` have in common: how a plan is made, loaded and shown."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lineage_backfill.cli import formats, terminal
from lineage_backfill.cli.heatmap import heatmap
from lineage_backfill.cli.options import Format, RequestOptions, SourceOptions
from lineage_backfill.cli.render import NOTHING_BESIDE, Beside, preview
from lineage_backfill.cli.requests import NameLookup, asks_logs, read_request
from lineage_backfill.cli.values import read_instant, read_moment
from lineage_backfill.errors import StoreError, UsageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.planning.document import RunReader, plan_from_dict
from lineage_backfill.planning.explain import Explanation
from lineage_backfill.planning.plan import Plan
from lineage_backfill.planning.request import Request
from lineage_backfill.presentation import documents, draw
from lineage_backfill.presentation.plans import drawing
from lineage_backfill.runs.simulate import Estimate
from lineage_backfill.workspace.environment import log_time
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace

#: How many of the lineage's warnings are printed beside a plan.
_SHOWN_WARNINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """A plan and the workspace that it was made in."""

    plan: Plan
    workspace: Workspace


def make_plan(
    datasets: Sequence[str], options: RequestOptions, source: SourceOptions
) -> PlannedRequest:
    """Return the plan that the options ask for."""
    planning, request = _request(datasets, options, source)
    return PlannedRequest(plan=planning.plan(request), workspace=planning.workspace)


def explain(
    target: str,
    datasets: Sequence[str],
    options: RequestOptions,
    source: SourceOptions,
    *,
    why_not: bool,
) -> Explanation:
    """Return why the plan that the options ask for holds `target`, a JOB or JOB@SET, or not."""
    planning, request = _request(datasets, options, source)
    names = NameLookup(planning.workspace.resolver, options.namespace)
    job, keys = names.job_and_keys(target)
    return planning.explain(request, job, keys, why_not=why_not)


def _request(
    datasets: Sequence[str], options: RequestOptions, source: SourceOptions
) -> tuple[Planning, Request]:
    now = read_instant(options.now)
    workspace = source.open(as_of=now)
    _warn(workspace.snapshot)
    planning = Planning(workspace)
    request = read_request(datasets, options, workspace.resolver)
    if asks_logs(options):
        since = read_moment(options.changed_since, now)
        request = planning.with_changes(request, after=options.since_version, since=since)
    return planning, request


def _warn(snapshot: LineageSnapshot) -> None:
    """Print what the source of the lineage got wrong."""
    more = len(snapshot.warnings) - _SHOWN_WARNINGS
    for text in snapshot.warnings[:_SHOWN_WARNINGS]:
        terminal.say(f"lineage: {text}", style="yellow")
    if more > 0:
        terminal.say(f"lineage: {more:,} more warnings; `lineage-backfill lineage show` has all")


def load_plan(file: Path) -> Plan:
    """Return a saved plan; raises UsageError naming the file where it is none."""
    try:
        return plan_from_dict(documents.load(file, RunReader()))
    except UsageError as error:
        named = "" if str(file) in error.message else f"{file}: "
        raise UsageError(f"{named}{error}", hint=error.hint) from error


def estimate(planned: PlannedRequest, *, max_parallel: int | None = None) -> Estimate | None:
    """Return how long a plan will take; None where its runs or the run store cannot be read."""
    began = time.monotonic()
    try:
        found = Planning(planned.workspace).estimate(planned.plan, max_parallel=max_parallel)
    except StoreError as error:
        terminal.say(f"warning: how long it takes is not known: {error}", style="yellow")
        return None
    log_time(began, "estimate")
    return found


def show(
    plan: Plan,
    console: Console,
    *,
    snapshot: LineageSnapshot | None = None,
    estimate: Estimate | None = None,
) -> None:
    """Print the preview; with a snapshot also what the lineage tells beside the plan."""
    beside = NOTHING_BESIDE if snapshot is None else Beside.of(plan, snapshot, estimate)
    console.print(preview(plan, width=console.width, beside=beside))


def show_as(form: Format, planned: PlannedRequest, console: Console) -> None:
    """Print the plan in one of its forms."""
    plan, workspace, takes = planned.plan, planned.workspace, estimate(planned)
    beside = Beside.of(plan, workspace.snapshot, takes)
    match form:
        case Format.TABLE:
            show(plan, console, snapshot=workspace.snapshot, estimate=takes)
        case Format.TREE:
            console.print(formats.plan_tree(plan, beside))
        case Format.HEATMAP:
            spans = Planning(workspace).timeline(plan)
            zone, width = workspace.project.declarations.zone, console.width
            is_plain = not console.encoding.startswith("utf")
            console.print(heatmap(plan, spans, zone=zone, width=width, plain=is_plain))
        case Format.MARKDOWN:
            terminal.give(formats.markdown(plan, beside))
        case Format.MERMAID | Format.DOT | Format.SVG:
            terminal.give(draw.WRITERS[form](drawing(plan)))
