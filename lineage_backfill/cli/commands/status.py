"""`status`, `report` and `history`: shows backfills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import (
    BackfillOptions,
    JsonOption,
    ListOptions,
    SourceOptions,
    takes_options,
)
from lineage_backfill.cli.output.tables import history_table, report_table, rows_table, status_table
from lineage_backfill.errors import UnknownNameError, UsageError
from lineage_backfill.lineage.names import resolve
from lineage_backfill.model import JobRef, RunState
from lineage_backfill.show.names import keys_on_a_line
from lineage_backfill.show.text import counted, safe
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.rows import compare_rows

Document = dict[str, Any]
#: Most logs that are printed without --all, and how many bytes of each.
_SHOWN_LOGS, _LOG_END = 10, 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions:
    """Which runs of a backfill are listed."""

    state: Annotated[
        list[RunState] | None,
        typer.Option(help="Only runs in this state; repeatable.", metavar="STATE"),
    ] = None
    job: Annotated[
        list[str] | None, typer.Option(help="Only runs of this job; repeatable.", metavar="JOB")
    ] = None
    failed: Annotated[bool, typer.Option("--failed", help="Only failed runs.")] = False
    log: Annotated[
        bool, typer.Option("--log", help="Also print the end of the log of each run listed.")
    ] = False

    def of(self, runs: Sequence[Document]) -> list[Document]:
        """Return the runs to list; raises UnknownNameError for an unknown job."""
        jobs = [JobRef(**run["job"]) for run in runs]
        named = {resolve(one, set(jobs), kind="job of this backfill") for one in self.job or ()}
        states = {*(self.state or ()), *[RunState.FAILED] * self.failed} or set(RunState)
        chosen = zip(runs, jobs, strict=True)
        return [
            run for run, job in chosen if run["state"] in states and (not named or job in named)
        ]


@takes_options
def status(which: BackfillOptions, runs: RunsOptions, listing: ListOptions) -> None:
    """Show the state of a backfill and its runs."""
    if runs.log and which.as_json:
        raise UsageError("--log prints text, not JSON", hint="Drop --json or --log.")
    backfills = Backfills(which.open(code=False))
    document = backfills.status(which.backfill)
    document["runs"] = runs.of(document["runs"])
    terminal.show(document, partial(status_table, listing=listing), as_json=which.as_json)
    if runs.log:
        _print_logs(backfills, document, listing)


def _print_logs(backfills: Backfills, document: Document, listing: ListOptions) -> None:
    ran = [run for run in document["runs"] if run["attempt"]]
    shown = ran if listing.every else ran[:_SHOWN_LOGS]
    for run in shown:
        what = f"{run['job']['name']} {keys_on_a_line(tuple(run['partitions']))}"
        try:
            log = backfills.attempt_log(document["id"], run["id"], run["attempt"], most=_LOG_END)
        except UnknownNameError as error:
            log = f"{error}\n"
        lines = "".join(f"{safe(line)}\n" for line in log.splitlines())
        terminal.give(f"\n== {safe(what)}, attempt {run['attempt']}\n{lines}")
    if len(ran) > len(shown):
        terminal.say(f"and {counted(len(ran) - len(shown), 'more log')}; --all prints them")


@takes_options
def report(
    which: BackfillOptions,
    listing: ListOptions,
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
        found = compare_rows(which.open(), which.backfill, rows)
        terminal.show(found, rows_table, as_json=which.as_json)
        return
    document = Backfills(which.open()).report(which.backfill)
    terminal.show(document, partial(report_table, listing=listing), as_json=which.as_json)


@takes_options
def history(
    source: SourceOptions,
    hidden: Annotated[bool, typer.Option("--all", help="Also those that were deleted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the backfills of this project, newest first."""
    found = Backfills(source.open(code=False)).history(hidden=hidden)
    terminal.show(found, history_table, as_json=as_json)
