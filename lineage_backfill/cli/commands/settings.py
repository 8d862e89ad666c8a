"""`config`: shows the settings and their origin, and checks them against the lineage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options
from lineage_backfill.cli.output.grid import table
from lineage_backfill.critic.review import Finding
from lineage_backfill.errors import UsageError
from lineage_backfill.model import named
from lineage_backfill.show import documents, settings
from lineage_backfill.show.text import counted, safe
from lineage_backfill.workspace.planning import Planning

_MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "dim")}

config = typer.Typer(help="The settings of this project.", no_args_is_help=True)


@config.command("show")
@takes_options
def show(
    source: SourceOptions,
    name: Annotated[
        str, typer.Argument(help="Show what is in force of this job or dataset, and from where.")
    ] = "",
    sources: Annotated[
        bool, typer.Option("--sources", help="Show where each value comes from.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every setting in effect; secrets are masked."""
    if name:
        _show_in_force(source, name, as_json=as_json)
        return
    project = source.load()
    if as_json:
        documents.emit(settings.document(project))
        return
    rows = (
        (safe(one.name), safe(_near(one.origin)) if sources else "", safe(one.shown))
        for one in project.settings
    )
    terminal.out().print(table("Setting", "From", "Value", rows=rows))


def _near(origin: str) -> str:
    """Return a path below the current folder relative to it, and any other origin as it is."""
    path, here = Path(origin), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else origin


def _show_in_force(source: SourceOptions, name: str, *, as_json: bool) -> None:
    workspace = source.open()
    ref, attributes = Planning(workspace).in_force(name)
    if as_json:
        documents.emit(
            {
                "schema_version": 1,
                "kind": "config_in_force",
                "of": ref.kind,
                **named(ref),
                "attributes": [asdict(one) for one in attributes],
            }
        )
        return
    rows = (
        [Text(safe(str(cell))) for cell in (one.edge or ref.kind, one.name, one.value, one.place)]
        for one in attributes
    )
    terminal.out().print(table("Of", "Attribute", "Value", "From", rows=rows))


@config.command("check")
@takes_options
def check(
    source: SourceOptions,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Project files, in place of --config.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the project file with the lineage; exits with 64 if something is wrong."""
    bad = ("error", "warning") if strict else ("error",)
    sources = [replace(source, config=file) for file in files or ()] or [source]
    if as_json and len(sources) > 1:
        raise UsageError("--json describes one project file", hint="Check one file at a time.")
    fits = [_fits(one, bad, as_json=as_json) for one in sources]
    if not all(fits):
        raise typer.Exit(UsageError.exit_code)


def _fits(source: SourceOptions, bad: Container[str], *, as_json: bool) -> bool:
    """Print the findings about one project file; returns whether none is bad."""
    workspace = source.open()
    found = Planning(workspace).findings()
    ok = not any(one.level in bad for one in found)
    if as_json:
        file = workspace.project.file
        documents.emit(
            {
                "schema_version": 1,
                "kind": "config_check",
                "file": file and str(file),
                "ok": ok,
                "findings": [asdict(one) for one in found],
            }
        )
    else:
        terminal.out().print(_findings(found))
    return ok


def _findings(found: Sequence[Finding]) -> RenderableType:
    if not found:
        return Text("The project file fits the lineage.", style="green")
    rows = Table.grid(padding=(0, 1, 0, 0))
    for one in found:
        text = Text.assemble((safe(one.place), "bold"), f": {safe(one.text)}")
        if one.hint:
            text.append(f"\n{safe(one.hint)}", style="dim")
        rows.add_row(Text(*_MARKS[one.level]), text)
    levels = Counter[str](one.level for one in found)
    counts = ", ".join(counted(levels[level], level) for level in _MARKS if levels[level])
    return Group(rows, Text(), Text(counts, style="bold"))
