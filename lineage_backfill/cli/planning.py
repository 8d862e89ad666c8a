"""Makes and loads plans for `impact`, `run` and `plan`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import RequestOptions, SourceOptions
from lineage_backfill.cli.requests import asks_logs, job_and_keys, load_request, read_request
from lineage_backfill.cli.values import read_moment, read_now
from lineage_backfill.critic.explain import Explanation
from lineage_backfill.errors import StoreError, UsageError
from lineage_backfill.plans.document import plan_from_dict
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import Request
from lineage_backfill.runs.estimate import Estimate
from lineage_backfill.show import documents
from lineage_backfill.workspace import rows
from lineage_backfill.workspace.environment import log_time
from lineage_backfill.workspace.named import NameLookup
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """A plan and its workspace."""

    plan: Plan
    workspace: Workspace


def make_plan(
    datasets: Sequence[str], options: RequestOptions, source: SourceOptions
) -> PlannedRequest:
    """Return the plan for the options."""
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
    """Return why a job (`target`: JOB or JOB@SET) is in the plan or not."""
    planning, request = _request(datasets, options, source)
    names = NameLookup(planning.workspace.resolver, preferred=options.namespace)
    job, keys = job_and_keys(names, target)
    return planning.explain(request, job, keys, why_not=why_not)


def dry_run(
    target: str, datasets: Sequence[str], options: RequestOptions, source: SourceOptions
) -> dict[str, Any]:
    """Return the rows that one run of the plan would change; `target`: JOB or JOB@KEY."""
    planning, request = _request(datasets, options, source)
    workspace = planning.workspace
    job, keys = job_and_keys(NameLookup(workspace.resolver, preferred=options.namespace), target)
    return rows.dry_run(workspace, planning.plan(request), job, keys)


def _request(
    datasets: Sequence[str], options: RequestOptions, source: SourceOptions
) -> tuple[Planning, Request]:
    now = read_now(options.now)
    loaded = load_request(datasets, options)
    workspace = source.open(as_of=now)
    if loaded is not None:
        _refuse_other_lineage(loaded, workspace)
    planning = Planning(workspace)
    request = read_request(datasets, options, workspace.resolver, loaded)
    if asks_logs(options):
        since = read_moment(options.changed_since, now)
        request = planning.with_changes(request, after=options.since_version, since=since)
    return planning, request


def _refuse_other_lineage(loaded: Request, workspace: Workspace) -> None:
    """Raise UsageError if a request file leaves out runs that the project file does not.

    Whatever runs or resumes the plan later reads the lineage by the project file.
    """
    others = set(loaded.ignored_runs) - set(workspace.project.lineage.ignore_runs)
    if others:
        raise UsageError(
            f"the request ignores runs that the project file does not: {', '.join(sorted(others))}",
            hint="Name them in `ignore_runs` of [lineage], so that each command leaves them out.",
        )


def load_plan(file: Path) -> Plan:
    """Return a saved plan; raises UsageError with the file if it is not one."""
    document = documents.load(file)
    try:
        return plan_from_dict(document)
    except UsageError as error:
        raise error.within(f"{file}: ") from error


def estimate(planned: PlannedRequest, *, max_parallel: int | None = None) -> Estimate | None:
    """Return how long a plan will take; None if its runs or the run store cannot be read."""
    began = time.monotonic()
    try:
        found = Planning(planned.workspace).estimate(planned.plan, max_parallel=max_parallel)
    except StoreError as error:
        terminal.say(f"warning: time not estimated: {error}", style="yellow")
        return None
    log_time(began, "estimate")
    return found
