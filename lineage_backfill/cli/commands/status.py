"""`status`, `report` and `history`: shows backfills."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.completion import complete_datasets
from lineage_backfill.cli.options import BackfillOptions, JsonOption, SourceOptions, takes_options
from lineage_backfill.cli.output.report_markdown import report_markdown
from lineage_backfill.cli.output.tables import history_table, report_table, rows_table, status_table
from lineage_backfill.cli.values import read_moment
from lineage_backfill.errors import UsageError
from lineage_backfill.model import BackfillState
from lineage_backfill.workspace.backfills import Backfills, Wanted
from lineage_backfill.workspace.rows import compare_rows


@takes_options
def status(which: BackfillOptions) -> None:
    """Show the state of a backfill and its runs."""
    document = Backfills(which.open(code=False)).status(which.backfill)
    terminal.show(document, status_table, as_json=which.as_json)


@takes_options
def report(
    which: BackfillOptions,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for an incident page.")
    ] = False,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Show the rows added, removed and changed in one partition; needs Spark.",
            metavar="DATASET@KEY",
        ),
    ] = None,
) -> None:
    """Show the partitions a backfill planned and rewrote, and rows before and after."""
    if which.as_json and markdown:
        raise UsageError(
            "--json and --markdown both set the output format", hint="Drop one of them."
        )
    if rows is not None:
        if markdown:
            raise UsageError("--rows does not print Markdown", hint="Leave out --markdown.")
        found = compare_rows(which.open(code=False), which.backfill, rows)
        terminal.show(found, rows_table, as_json=which.as_json)
        return
    document = Backfills(which.open(code=False)).report(which.backfill)
    if markdown:
        terminal.give(report_markdown(document))
    else:
        terminal.show(document, report_table, as_json=which.as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filter:
    """Which backfills are listed."""

    state: Annotated[
        list[BackfillState] | None,
        typer.Option(help="Only backfills in this state; repeatable.", metavar="STATE"),
    ] = None
    owner: Annotated[
        str | None, typer.Option(help="Only backfills submitted by this account.", metavar="NAME")
    ] = None
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Only backfills for a change of this dataset or of this job.",
            metavar="NAME",
            autocompletion=complete_datasets,
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(help="Only backfills submitted since: 7d, a date or a time.", metavar="T"),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            help="Only backfills with this text in title, description or reason.", metavar="TEXT"
        ),
    ] = None
    hidden: Annotated[
        bool, typer.Option("--all", help="Also those that were deleted, or expired unfinished.")
    ] = False


@takes_options
def history(source: SourceOptions, which: _Filter, as_json: JsonOption = False) -> None:
    """List the backfills of this project, newest first."""
    wanted = Wanted(
        states=which.state or (),
        owner=which.owner,
        dataset=which.dataset,
        since=read_moment(which.since, datetime.now(UTC)),
        text=which.text,
    )
    found = Backfills(source.open(code=False)).history(wanted, hidden=which.hidden)
    terminal.show(found, partial(history_table, all_of_them=wanted == Wanted()), as_json=as_json)
