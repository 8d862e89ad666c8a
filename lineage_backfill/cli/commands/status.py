"""`status`, `report` and `history`: shows backfills."""

from __future__ import annotations

from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import BackfillOptions, JsonOption, SourceOptions, takes_options
from lineage_backfill.cli.output.tables import history_table, report_table, status_table
from lineage_backfill.workspace.backfills import Backfills


@takes_options
def status(which: BackfillOptions) -> None:
    """Show the state of a backfill and its runs."""
    document = Backfills(which.open(code=False)).status(which.backfill)
    terminal.show(document, status_table, as_json=which.as_json)


@takes_options
def report(which: BackfillOptions) -> None:
    """Show the partitions a backfill planned and rewrote, and rows before and after."""
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
