"""`pause`, `cancel` and `delete`: the verbs that stop a backfill, or put it away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lineage_backfill.cli.completion import complete_backfills
from lineage_backfill.cli.options import BackfillArgument, JsonOption, SourceOptions, takes_options
from lineage_backfill.model import BackfillState

if TYPE_CHECKING:
    from lineage_backfill.project import Project

_INTERRUPTED = 130


@takes_options
def pause(
    source: SourceOptions, backfill: BackfillArgument = None, as_json: JsonOption = False
) -> None:
    """Start no more runs of a backfill; those under way may end, and `resume` goes on."""
    from lineage_backfill import workspace as app

    project = source.open()
    asked = app.pause(project, backfill)
    if asked.state.is_under_way:
        said = "No more of its runs are started; go on with: lineage-backfill resume {id}"
    else:
        said = "{id} is not running, but {state}: there is nothing to pause."
    _tell(project, said.format(id=asked.id, state=asked.state), asked.id, as_json=as_json)


@takes_options
def cancel(
    source: SourceOptions,
    backfill: BackfillArgument = None,
    kill: Annotated[bool, typer.Option("--kill", help="Stop what is running, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Give up what a backfill has not started; what it has written stays as it is."""
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.progress import progress

    project = source.open()
    reporter = progress(terminal.talk())
    with reporter.showing():
        ended = app.cancel(project, backfill, kill=kill, reporter=reporter)
    if ended.state.is_under_way:
        said = "Whoever drives it has been asked to; see it end: lineage-backfill watch {id}"
    elif ended.state is BackfillState.CANCELLED:
        said = "To run what was given up: lineage-backfill retry {id}"
    elif ended.state is BackfillState.INTERRUPTED:
        said = "Not all was given up before this was interrupted: lineage-backfill cancel {id}"
    else:
        said = "{id} has ended, as {state}: there is nothing to give up."
    _tell(project, said.format(id=ended.id, state=ended.state), ended.id, as_json=as_json)
    if ended.state is BackfillState.INTERRUPTED:
        raise typer.Exit(_INTERRUPTED)


@takes_options
def delete(
    source: SourceOptions,
    backfill: Annotated[
        str,
        typer.Argument(
            help="Its id or the beginning of it.",
            metavar="BACKFILL",
            autocompletion=complete_backfills,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """List a backfill no more; what it has written stays, and its whole id still names it."""
    from lineage_backfill import workspace as app

    project = source.open()
    deleted = app.delete(project, backfill).id
    said = f"{deleted} is deleted; it can still be taken back: lineage-backfill undo {deleted}"
    _tell(project, said, deleted, as_json=as_json)


def _tell(project: Project, said: str, backfill: str, *, as_json: bool) -> None:
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal
    from lineage_backfill.presentation import documents

    if as_json:
        documents.emit(app.status(project, backfill))
    terminal.say(said)
