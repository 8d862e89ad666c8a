"""`prune`: removes the records of old backfills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import JsonOption, SourceOptions, YesOption, takes_options
from lineage_backfill.cli.output.render import table
from lineage_backfill.cli.values import read_duration
from lineage_backfill.show import documents
from lineage_backfill.show.text import counted, safe
from lineage_backfill.workspace.backfills import Backfills


@takes_options
def prune(
    source: SourceOptions,
    older_than: Annotated[
        str, typer.Option(help="Minimum time since a backfill ended, such as 90d.", metavar="AGE")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the runs, logs and results of old backfills; the data they wrote stays."""
    age = read_duration(older_than)
    assert age is not None
    backfills = Backfills(source.open(code=False))
    found = backfills.prunable(backfills.now() - age)
    if dry_run:
        terminal.show(found, _table, as_json=as_json)
        return
    if found["backfills"] and not yes:
        terminal.refuse_unasked("remove these")
        terminal.err().print(_table(found))
        if not typer.confirm("Remove them? They can no longer be undone.", err=True):
            terminal.say("Nothing was removed.")
            raise typer.Abort
    done = backfills.prune(found)
    if as_json:
        documents.emit(done)
    else:
        terminal.out().print(_table(done))


def _table(document: Mapping[str, Any]) -> RenderableType:
    verb = "Removed" if document["removed"] else "To be removed"
    totals = document["totals"]
    size = f"{totals['bytes'] / 1_000_000:,.1f} MB"
    parts = (counted(totals[f"{one}s"], one) for one in ("backfill", "run", "file"))
    said: list[RenderableType] = [Text(f"{verb}: {', '.join(parts)}, {size}.")]
    if document["backfills"]:
        rows = (
            (
                safe(one["id"]),
                safe(one["state"]),
                safe(one["ended_at"][:19]),
                f"{one['runs']:,}",
                f"{one['files']:,}",
            )
            for one in document["backfills"]
        )
        said.append(table("Backfill", "State", "Ended", "Runs", "Files", rows=rows))
    said += [Text(f"Kept: {one['id']}: {safe(one['why'])}") for one in document["kept"]]
    return Group(*said)
