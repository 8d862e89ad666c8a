"""`impact`: what a change makes stale, and what would run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lineage_backfill.cli.completion import complete_jobs
from lineage_backfill.cli.options import (
    DatasetsArgument,
    Format,
    JsonOption,
    RequestOptions,
    SourceOptions,
    takes_options,
)
from lineage_backfill.errors import UsageError

if TYPE_CHECKING:
    from lineage_backfill.planning.explain import Explanation


@takes_options
def impact(
    request: RequestOptions,
    source: SourceOptions,
    datasets: DatasetsArgument = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 where there is work to do.")
    ] = False,
    as_json: JsonOption = False,
    out: Annotated[
        Path | None, typer.Option(help="Save the plan for `run`.", metavar="FILE")
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="With --json: add how long it takes (p50, p90)."),
    ] = False,
    form: Annotated[
        Format | None, typer.Option("--format", help="How to show it; else as a table.")
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(
            help="Say why this job (this key of it) would run: the way back to the change.",
            metavar="JOB[@KEY]",
            autocompletion=complete_jobs,
        ),
    ] = None,
    why_not: Annotated[
        str | None,
        typer.Option(
            help="Say why it would not run: where the ways from the change to it end.",
            metavar="JOB[@KEY]",
            autocompletion=complete_jobs,
        ),
    ] = None,
) -> None:
    """Show what a fix of these datasets broke downstream, why, and what would run."""
    from lineage_backfill.cli import planning
    from lineage_backfill.cli.planning import explain, make_plan, show_as
    from lineage_backfill.planning.document import plan_to_dict
    from lineage_backfill.presentation import documents

    target = why or why_not
    if target:
        if out or detailed_exitcode or form or (why and why_not):
            raise UsageError(
                "--why and --why-not explain a plan, one job of it, and make none",
                hint="Leave out --out, --format and --detailed-exitcode, and keep one of the two.",
            )
        found = explain(target, datasets or (), request, source, why_not=why is None)
        _explain(found, as_json=as_json)
        return
    if as_json and form:
        raise UsageError("--json and --format both say how to show it", hint="Keep one of them.")
    made = make_plan(datasets or (), request, source)
    document = plan_to_dict(made.plan)
    if out:
        documents.save(document, out)
    if as_json:
        if estimate:  # not in a saved plan, which says nothing of other runs
            takes = planning.estimate(made)
            document["estimate"] = takes and takes.to_dict()
        documents.emit(document)
    else:
        from lineage_backfill.cli import terminal

        show_as(form or Format.TABLE, made, terminal.out())
        if out:
            terminal.say(f"Saved; `lineage-backfill run {out}` executes exactly this.")
    if detailed_exitcode and made.plan.totals["runs"]:
        raise typer.Exit(2)


def _explain(explanation: Explanation, *, as_json: bool) -> None:
    if as_json:
        from lineage_backfill.planning.explain import explanation_to_dict
        from lineage_backfill.presentation import documents

        documents.emit(explanation_to_dict(explanation))
    else:
        from lineage_backfill.cli import terminal
        from lineage_backfill.cli.why import explained

        terminal.out().print(explained(explanation))
