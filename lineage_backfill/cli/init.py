"""`init`: a first project file, drafted from the lineage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lineage_backfill.cli.options import LineageOptions, takes_options
from lineage_backfill.errors import UsageError

_FILE = "lineage-backfill.toml"


@takes_options
def init(
    lineage: LineageOptions,
    out: Annotated[
        Path, typer.Option(help="The file to write; - prints it.", metavar="FILE")
    ] = Path(_FILE),
    force: Annotated[bool, typer.Option("--force", help="Replace the file that is there.")] = False,
) -> None:
    """Draft a project file: what the lineage tells of partitions, and questions for the rest."""
    from datetime import UTC, datetime

    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal
    from lineage_backfill.presentation import documents
    from lineage_backfill.presentation.text import counted
    from lineage_backfill.project import FILE_NAME
    from lineage_backfill.workspace.configuration import find_file

    printed = str(out) == "-"
    target = Path.cwd() / (FILE_NAME if printed else out)
    if target.exists() and not (force or printed):
        raise UsageError(
            f"{out} is there already", hint="Replace it with --force, or name another with --out."
        )
    # What is to be replaced may still say where the lineage is.
    old = target if target.exists() and lineage == LineageOptions() else None
    project = lineage.project(old, search=False)
    draft = app.draft_project(project, target.parent, now=datetime.now(UTC))
    if printed:
        typer.echo(draft.text, nl=False)
    else:
        hidden = find_file(target.parent)
        documents.write_whole(draft.text, target, replace=force)
        terminal.say(f"Wrote {out}.")
        if target.name == FILE_NAME and hidden not in (None, target):
            terminal.say(f"warning: {hidden} does not count here any more.", style="yellow")
    terminal.say(
        f"The lineage tells the partitioning of {draft.known} of"
        f" {counted(draft.datasets, 'dataset')}; {counted(draft.questions, 'question')} left, each"
        " marked `#?`."
    )
    terminal.say("Answer those you need, then: lineage-backfill config check")
