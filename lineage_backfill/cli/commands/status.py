"""`status`, `report` and `history`: shows backfills."""

from __future__ import annotations

from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import BackfillOptions, JsonOption, SourceOptions, takes_options
from lineage_backfill.cli.output.tables import history_table, report_table, rows_table, status_table
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.rows import compare_rows


@takes_options
def status(which: BackfillOptions) -> None:
    """Show the state of a backfill and its runs."""
    document = Backfills(which.open(code=False)).status(which.backfill)
    terminal.show(document, status_table, as_json=which.as_json)


@takes_options
def report(
    which: BackfillOptions,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Show the rows added, removed and changed in one partition; needs Spark.",
            metavar="DATASET@KEY",
        ),
    ] = None,
) -> None:
    """Show the partitions a backfill planned and rewrote, and rows before and after."""
    if rows is not None:
        found = compare_rows(which.open(code=False), which.backfill, rows)
        terminal.show(found, rows_table, as_json=which.as_json)
        return
    document = Backfills(which.open(code=False)).report(which.backfill)
    terminal.show(document, report_table, as_json=which.as_json)


@takes_options
def history(
    source: SourceOptions,
    hidden: Annotated[bool, typer.Option("--all", help="Also those that were deleted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the backfills of this project, newest first."""
    found = Backfills(source.open(code=False)).history(hidden=hidden)
    terminal.show(found, history_table, as_json=as_json)
