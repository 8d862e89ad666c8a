"""`run`, `resume` and `retry`: the verbs that change tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lineage_backfill.cli.options import (
    BackfillArgument,
    DatasetsArgument,
    JsonOption,
    ParallelOption,
    RequestOptions,
    SourceOptions,
    TimeoutOption,
    YesOption,
    takes_options,
)
from lineage_backfill.errors import GuardRailError, UsageError

if TYPE_CHECKING:
    from lineage_backfill.config import Project
    from lineage_backfill.plan.plan import Plan

#: The run ended, and some runs failed or are blocked.
_NOT_ALL = 3


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    for verb in (run, resume, retry):
        app.command()(verb)


@takes_options
def run(
    request: RequestOptions,
    source: SourceOptions,
    datasets: DatasetsArgument = None,
    yes: YesOption = False,
    max_parallel: ParallelOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a saved plan (PLAN.json), or plan and run what the same arguments of `impact` ask for."""
    from lineage_backfill import app
    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.asking import read_duration
    from lineage_backfill.cli.planning import make_plan, open_project, show

    limit = read_duration(timeout)
    saved = _saved(datasets or [], request)
    if saved is None:
        made = make_plan(datasets or [], request, source)
        plan, project, snapshot = made.plan, made.project, made.snapshot
    else:
        project = open_project(source)
        snapshot = app.read_lineage(project)
        plan = app.check_plan(project, snapshot, saved)
    show(plan, terminal.err(), snapshot=snapshot)
    app.check_runnable(project, plan)
    if plan.runs:
        _confirm(plan, yes)
