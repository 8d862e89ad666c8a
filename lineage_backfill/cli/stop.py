"""`pause` and `cancel`: the verbs that stop a backfill, also one that another terminal drives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lineage_backfill.cli.options import (
    BackfillArgument,
    JsonOption,
    SourceOptions,
    takes_options,
)
from lineage_backfill.model import BackfillState

if TYPE_CHECKING:
    from lineage_backfill.config import Project

_INTERRUPTED = 130


@takes_options
def pause(
    source: SourceOptions, backfill: BackfillArgument = None, as_json: JsonOption = False
) -> None:
    """Start no more runs of a backfill; those under way may end, and `resume` goes on."""
    from lineage_backfill import app

    project = source.open()
    asked = app.pause(project, backfill)
    if asked.state is BackfillState.RUNNING:
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
    from lineage_backfill import app
    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.progress import progress

    project = source.open()
    reporter = progress(terminal.talk())
    with reporter.showing():
        ended = app.cancel(project, backfill, kill=kill, reporter=reporter)
    if ended.state is BackfillState.RUNNING:
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


def _tell(project: Project, said: str, backfill: str, *, as_json: bool) -> None:
    from lineage_backfill import app
    from lineage_backfill.cli import documents, terminal

    if as_json:
        documents.emit(app.status(project, backfill))
    terminal.say(said)
