"""`init`: drafts a project file from the lineage."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from difflib import unified_diff
from importlib import resources
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import LineageOptions, takes_options
from lineage_backfill.critic.draft import Draft, draft, home_of
from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.project import FILE_NAME, LineageSetting, Project
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.show import documents
from lineage_backfill.show.text import counted
from lineage_backfill.workspace.code import declared_in_code
from lineage_backfill.workspace.configuration import find_file
from lineage_backfill.workspace.lineage import ProjectLineage

_TRY = "impact raw_orders --from 2024-03-10T22 --to 2024-03-11T00"


@takes_options
def init(
    lineage: LineageOptions,
    out: Annotated[
        Path, typer.Option(help="The file to write; - to print it.", metavar="FILE")
    ] = Path(FILE_NAME),
    code: Annotated[
        list[str] | None,
        typer.Option(
            help="Module or package of @job functions, or folder of SQL files; repeatable.",
            metavar="CODE",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Write a worked example that needs no lineage.")
    ] = False,
) -> None:
    """Draft a project file: partitions from lineage and code, and questions for the rest.

    A file that exists is kept: what it lacks is added.
    """
    printed = str(out) == "-"
    target = Path.cwd() / (FILE_NAME if printed else out)
    if example:
        _example(lineage, out, target, printed=printed, force=force)
        return
    given = lineage != LineageOptions()
    # The file to replace may name the lineage.
    there = target if target.exists() and not (given and (force or printed)) else None
    project = lineage.project(there, search=False, code=False)
    before = "" if there is None or force or printed else there.read_text(encoding="utf-8")
    entries = tuple(dict.fromkeys((*project.jobs, *(code or ()))))
    drafted = _drafted(replace(project, jobs=entries), target.parent, before)
    if printed:
        terminal.give(drafted.text)
    elif before:
        _add(before, drafted.text, out, target)
    else:
        hidden = find_file(target.parent)
        documents.write_whole([drafted.text], target, replace=force)
        terminal.say(f"Wrote {out}.")
        if target.name == FILE_NAME and hidden not in (None, target):
            terminal.say(f"warning: {hidden} is no longer used here.", style="yellow")
    known = "known" if entries or before else "known from the lineage"
    terminal.say(
        f"Partitioning {known}: {drafted.known} of"
        f" {counted(drafted.datasets, 'dataset')}; {counted(drafted.questions, 'question')} left,"
        " each marked `?`."
    )
    terminal.say("Answer the questions you need, then: lineage-backfill config check")


def _drafted(project: Project, folder: Path, before: str) -> Draft:
    """Return the draft of a project's file in the folder, with all of `before`."""
    kept = project.declarations if before else Declarations()
    alone = not project.lineage.parts
    snapshot = (
        LineageSnapshot.of([], source="code")
        if alone
        else ProjectLineage(project).read_to_draft(kept)
    )
    kept = replace(kept, namespace=kept.namespace or home_of(snapshot))
    kept = declared_in_code(replace(project, declarations=kept)).declarations
    if alone and not kept.jobs:
        ProjectLineage(project).read_source()  # raises: nothing names any job
    return draft(
        snapshot,
        None if "lineage" in tomllib.loads(before) else _source(project.lineage, folder),
        now=datetime.now(UTC),
        declarations=kept,
        code=project.jobs,
        text=before,
    )


def _add(before: str, text: str, out: Path, target: Path) -> None:
    """Write what a project file lacks, and show it."""
    if text == before:
        terminal.say(f"Nothing to add to {out}.")
        return
    old, new = before.splitlines(keepends=True), text.splitlines(keepends=True)
    terminal.give("".join(unified_diff(old, new, str(out), f"{out} with what it lacked")))
    documents.write_whole([text], target, replace=True)
    terminal.say(f"Added to {out}.")


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


def _source(lineage: LineageSetting, folder: Path) -> dict[str, str | list[str]] | None:
    """Return the [lineage] table for a project file in the folder, None if there is none.

    An empty one has an address with a password.
    """
    if lineage.events:
        return {"events": [_relative(path, folder) for path in lineage.events]}
    if lineage.snapshot:
        return {"snapshot": _relative(str(lineage.snapshot), folder)}
    if lineage.marquez:
        return {} if "@" in urlsplit(lineage.marquez).netloc else {"marquez": lineage.marquez}
    if lineage.parts:
        raise UsageError(
            "a new file would not name these sources",
            hint="Run `lineage-backfill init` alone: it adds to the file, and keeps its [lineage].",
        )
    return None


def _relative(path: str, folder: Path) -> str:
    """Return the path relative to the folder, or absolute if it is outside."""
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path
