"""`impact`: what a change makes stale, and what would run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lineage_backfill.cli.options import (
    DatasetsArgument,
    JsonOption,
    RequestOptions,
    SourceOptions,
    takes_options,
)


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(impact)


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
) -> None:
    """Show what a fix of these datasets broke downstream, why, and what would run."""
    from lineage_backfill.cli import documents
    from lineage_backfill.cli.planning import make_plan, show
    from lineage_backfill.plan.document import plan_to_dict

    made = make_plan(datasets or (), request, source)
    document = plan_to_dict(made.plan)
    if out:
        documents.save(document, out)
    if as_json:
        documents.emit(document)
    else:
        from lineage_backfill.cli import terminal

        show(made.plan, terminal.out(), snapshot=made.snapshot)
        if out:
            terminal.say(f"Saved; `lineage-backfill run {out}` executes exactly this.")
    if detailed_exitcode and made.plan.totals["runs"]:
        raise typer.Exit(2)
