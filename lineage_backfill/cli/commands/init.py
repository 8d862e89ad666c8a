"""`init`: drafts a project file from the lineage."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import LineageOptions, takes_options
from lineage_backfill.critic.draft import draft
from lineage_backfill.errors import UsageError
from lineage_backfill.project import FILE_NAME, LineageSetting
from lineage_backfill.show import documents
from lineage_backfill.show.text import counted
from lineage_backfill.workspace.configuration import find_file
from lineage_backfill.workspace.lineage import ProjectLineage

_TRY = "impact raw_orders --from 2024-03-10T22 --to 2024-03-11T00"


@takes_options
def init(
    lineage: LineageOptions,
    out: Annotated[
        Path, typer.Option(help="The file to write; - to print it.", metavar="FILE")
    ] = Path(FILE_NAME),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Write a worked example that needs no lineage.")
    ] = False,
) -> None:
    """Draft a project file: partitions from the lineage, and questions for the rest."""
    printed = str(out) == "-"
    target = Path.cwd() / (FILE_NAME if printed else out)
    if target.exists() and not (force or printed):
        raise UsageError(
            f"{out} already exists", hint="Replace it with --force, or name another with --out."
        )
    if example:
        _example(lineage, out, target, printed=printed, force=force)
        return
    # The file to replace may name the lineage.
    old = target if target.exists() and lineage == LineageOptions() else None
    project = lineage.project(old, search=False)
    snapshot = ProjectLineage(project).read_to_draft()
    drafted = draft(snapshot, _source(project.lineage, target.parent), now=datetime.now(UTC))
    if printed:
        terminal.give(drafted.text)
    else:
        hidden = find_file(target.parent)
        documents.write_whole([drafted.text], target, replace=force)
        terminal.say(f"Wrote {out}.")
        if target.name == FILE_NAME and hidden not in (None, target):
            terminal.say(f"warning: {hidden} is no longer used here.", style="yellow")
    terminal.say(
        f"Partitioning known from the lineage: {drafted.known} of"
        f" {counted(drafted.datasets, 'dataset')}; {counted(drafted.questions, 'question')} left,"
        " each marked `?`."
    )
    terminal.say("Answer the questions you need, then: lineage-backfill config check")


def _example(
    lineage: LineageOptions, out: Path, target: Path, *, printed: bool, force: bool
) -> None:
    if lineage != LineageOptions():
        raise UsageError(
            "--example needs no lineage", hint="Leave out --example to draft from that lineage."
        )
    text = resources.files("lineage_backfill").joinpath("example/shop.toml").read_text("utf-8")
    if printed:
        terminal.give(text)
        return
    documents.write_whole([text], target, replace=force)
    terminal.say(f"Wrote {out}.")
    config = "" if target.name == FILE_NAME else f" --config {shlex.quote(str(out))}"
    terminal.say(f"Try: lineage-backfill {_TRY}{config}")


def _source(lineage: LineageSetting, folder: Path) -> dict[str, str | list[str]]:
    """Return the [lineage] table for a project file in the folder."""
    if lineage.events:
        return {"events": [_relative(path, folder) for path in lineage.events]}
    if lineage.snapshot:
        return {"snapshot": _relative(str(lineage.snapshot), folder)}
    if lineage.marquez and "@" not in urlsplit(lineage.marquez).netloc:
        return {"marquez": lineage.marquez}
    return {}


def _relative(path: str, folder: Path) -> str:
    """Return the path relative to the folder, or absolute if it is outside."""
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path
