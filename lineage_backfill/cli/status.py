"""`status`, `report` and `history`: what is known of backfills."""

from __future__ import annotations

from typing import Annotated

import typer

from lineage_backfill.cli.options import BackfillArgument, JsonOption, SourceOptions, takes_options
from lineage_backfill.errors import UsageError


@takes_options
def status(
    source: SourceOptions, backfill: BackfillArgument = None, as_json: JsonOption = False
) -> None:
    """Show where a backfill and each of its runs stand."""
    from lineage_backfill import workspace as app

    document = app.status(source.open(), backfill)
    if as_json:
        from lineage_backfill.presentation import documents

        documents.emit(document)
    else:
        from lineage_backfill.cli import terminal
        from lineage_backfill.cli.tables import status_table

        terminal.out().print(status_table(document))


@takes_options
def report(
    source: SourceOptions,
    backfill: BackfillArgument = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print it as Markdown, for an incident's page.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a backfill has touched beside what it had planned, rows before and after."""
    from lineage_backfill import workspace as app

    if as_json and markdown:
        raise UsageError("--json and --markdown both say how to print it", hint="Keep one of them.")
    document = app.report(source.open(), backfill)
    if as_json:
        from lineage_backfill.presentation import documents

        documents.emit(document)
    elif markdown:
        from lineage_backfill.cli.report_markdown import report_markdown

        typer.echo(report_markdown(document), nl=False)
    else:
        from lineage_backfill.cli import terminal
        from lineage_backfill.cli.tables import report_table

        terminal.out().print(report_table(document))


@takes_options
def history(source: SourceOptions, as_json: JsonOption = False) -> None:
    """List the backfills of this project, the newest first."""
    from lineage_backfill import workspace as app

    document = app.history(source.open())
    if as_json:
        from lineage_backfill.presentation import documents

        documents.emit(document)
    else:
        from lineage_backfill.cli import terminal
        from lineage_backfill.cli.tables import history_table

        terminal.out().print(history_table(document))
