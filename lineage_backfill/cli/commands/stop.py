"""`pause`, `cancel` and `delete`: stop or hide a backfill."""

from __future__ import annotations

from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import (
    BackfillOptions,
    JsonOption,
    SourceOptions,
    TakeoverOptions,
    takes_options,
)
from lineage_backfill.cli.output.progress import progress
from lineage_backfill.model import BackfillState
from lineage_backfill.show import documents
from lineage_backfill.workspace.actions import Actions, at_command_line
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.runner import DriveOptions

_INTERRUPTED = 130
_REQUESTED = "Requested; follow it to its end: {watch}"
_CANCELLED = {
    BackfillState.SCHEDULED: _REQUESTED,
    BackfillState.RUNNING: _REQUESTED,
    BackfillState.CANCELLED: "To run what was cancelled: {retry}",
    BackfillState.INTERRUPTED: "Interrupted before everything was cancelled; repeat: {cancel}",
}


@takes_options
def pause(which: BackfillOptions) -> None:
    """Start no more runs of a backfill; running ones end. `resume` continues it."""
    workspace = which.open(code=False)
    paused = Actions(workspace, at_command_line()).pause(which.backfill)
    if paused.state.is_under_way:
        text = f"No new runs are started; resume it with: {which.command('resume', paused.id)}"
    else:
        text = f"{paused.id} is {paused.state}: nothing to pause."
    _finish(Backfills(workspace), paused.id, text, as_json=which.as_json)


@takes_options
def cancel(
    which: BackfillOptions,
    takeover: TakeoverOptions,
    kill: Annotated[bool, typer.Option("--kill", help="Also stop the running runs.")] = False,
) -> None:
    """Cancel the runs that a backfill has not started; the data it wrote stays."""
    workspace = which.open(code=False)
    reporter = progress(terminal.talk())
    with reporter.showing():
        options = DriveOptions(gone=takeover.gone)
        acting = Actions(workspace, at_command_line(), reporter=reporter, options=options)
        outcome = acting.cancel(which.backfill, kill=kill)
    ended = "{id} has ended ({state}): nothing to cancel."
    text = _CANCELLED.get(outcome.state, ended).format(
        id=outcome.id, state=outcome.state, **which.commands(outcome.id)
    )
    _finish(Backfills(workspace), outcome.id, text, as_json=which.as_json)
    if outcome.state is BackfillState.INTERRUPTED:
        raise typer.Exit(_INTERRUPTED)


@takes_options
def delete(
    source: SourceOptions,
    backfill: Annotated[
        str,
        typer.Argument(
            help="Backfill id, or its beginning.",
            metavar="BACKFILL",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Hide a backfill from lists; the data it wrote stays, and its full id still works."""
    workspace = source.open(code=False)
    deleted = Actions(workspace, at_command_line()).delete(backfill).id
    text = f"{deleted} is deleted; to undo what it wrote: {source.command('undo', deleted)}"
    _finish(Backfills(workspace), deleted, text, as_json=as_json)


def _finish(backfills: Backfills, id_: str, text: str, *, as_json: bool) -> None:
    if as_json:
        documents.emit(backfills.status(id_))
    terminal.say(text)
