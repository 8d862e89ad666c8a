"""`impact`: shows what a change makes stale, and what would run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lineage_backfill.cli import planning, terminal
from lineage_backfill.cli.options import (
    DatasetsArgument,
    Format,
    JsonOption,
    ListOptions,
    RequestOptions,
    SourceOptions,
    takes_options,
)
from lineage_backfill.critic.explain import explanation_to_dict
from lineage_backfill.errors import UsageError
from lineage_backfill.plans.document import plan_members
from lineage_backfill.plans.plan import Plan
from lineage_backfill.show import documents


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """How a plan is shown, or one job of it explained."""

    detailed_exitcode: Annotated[
        bool,
        typer.Option(
            "--detailed-exitcode", help="Exit with 2 if there is work to do, 3 if all is blocked."
        ),
    ] = False
    as_json: JsonOption = False
    out: Annotated[Path | None, typer.Option(help="Save the plan for `run`.", metavar="FILE")] = (
        None
    )
    form: Annotated[
        Format | None,
        typer.Option("--format", help="Output format; a table by default."),
    ] = None
    why: Annotated[
        str | None,
        typer.Option(
            help="Show why this job, or one of its keys, would run: the path from the change.",
            metavar="JOB[@KEY]",
        ),
    ] = None
    why_not: Annotated[
        str | None,
        typer.Option(
            help="Show why this job would not run: where the path from the change stops.",
            metavar="JOB[@KEY]",
        ),
    ] = None
    dry_run_diff: Annotated[
        str | None,
        typer.Option(
            "--dry-run-diff",
            help="Run this key of this job on clones of its tables, and show the rows that change.",
            metavar="JOB[@KEY]",
        ),
    ] = None


@takes_options
def impact(
    request: RequestOptions,
    source: SourceOptions,
    how: ShowOptions,
    listing: ListOptions,
    datasets: DatasetsArgument = None,
) -> None:
    """Show what a fix of these datasets made stale downstream, and what would run."""
    if questions := [one for one in (how.why, how.why_not, how.dry_run_diff) if one]:
        if how.out or how.detailed_exitcode or how.form or len(questions) > 1:
            raise UsageError(
                "--why, --why-not and --dry-run-diff explain one job and print no plan",
                hint="Use one of them, without --out, --format and --detailed-exitcode.",
            )
        _answer(questions[0], request, source, how, datasets or ())
        return
    if how.as_json and how.form:
        raise UsageError("--json and --format both set the output format", hint="Drop one of them.")
    planned = planning.make_plan(datasets or (), request, source)
    if how.out:
        documents.save(plan_members(planned.plan), how.out)
    if how.as_json:
        documents.emit(plan_members(planned.plan))
    else:
        from lineage_backfill.cli.output import plan_forms

        plan_forms.show_as(how.form or Format.TABLE, planned, terminal.out(), listing)
        _say_how_to_run(planned.plan, how, source)
    if how.detailed_exitcode:
        raise typer.Exit(2 if planned.plan.has_work else 3 * planned.plan.is_blocked)


def _say_how_to_run(plan: Plan, how: ShowOptions, source: SourceOptions) -> None:
    if how.out:
        terminal.say(f"Saved. To run exactly this plan: {source.command('run', str(how.out))}")
    elif plan.totals["runs"] and not how.form and terminal.is_interactive():
        terminal.say("Nothing was run: `lineage-backfill run` takes the same arguments.")


def _answer(
    target: str,
    request: RequestOptions,
    source: SourceOptions,
    how: ShowOptions,
    datasets: Sequence[str],
) -> None:
    """Show why one job would run or not, or what one of its runs would change."""
    if how.dry_run_diff:
        made = planning.dry_run(target, datasets, request, source)
        if how.as_json:
            documents.emit(made)
        else:
            from lineage_backfill.cli.output import tables

            terminal.out().print(tables.rows_table(made))
        return
    found = planning.explain(target, datasets, request, source, why_not=how.why is None)
    if how.as_json:
        documents.emit(explanation_to_dict(found))
    else:
        from lineage_backfill.cli.output import why

        terminal.out().print(why.explained(found))
