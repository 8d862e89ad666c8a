"""`lineage`: shows the lineage that plans use, and saves snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import (
    JsonOption,
    NamespaceOption,
    SourceOptions,
    takes_options,
)
from lineage_backfill.cli.output import views
from lineage_backfill.cli.output.grid import table
from lineage_backfill.lineage.identity.families import Family
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.planning.edges import Edges
from lineage_backfill.show import documents
from lineage_backfill.show import lineage as presentation
from lineage_backfill.show.names import Names
from lineage_backfill.show.text import counted
from lineage_backfill.show.words import age, of_project
from lineage_backfill.workspace.named import NameLookup

lineage = typer.Typer(help="The lineage that plans use.", no_args_is_help=True)


@lineage.command("show")
@takes_options
def show(
    source: SourceOptions,
    name: Annotated[
        str | None,
        typer.Argument(
            help="A job or a dataset to show in full.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    namespace: NamespaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs with their inputs and outputs, or show one name in full."""
    workspace = source.open()
    snapshot, edges = workspace.snapshot, workspace.resolver.edges
    ref = None
    if name is not None:
        ref = NameLookup(workspace.resolver, namespace).dataset_or_job(name)
    if as_json:
        documents.emit(presentation.document(snapshot, edges, workspace.resolver.families, ref))
    elif ref is not None:
        terminal.out().print(views.page(ref, edges))
    else:
        _print(edges, workspace.resolver.families)


@lineage.command("pull")
@takes_options
def pull(
    source: SourceOptions,
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="FILE")] = Path(
        "lineage.json.gz"
    ),
    as_json: JsonOption = False,
) -> None:
    """Save the lineage as a snapshot, to plan offline with --snapshot FILE."""
    snapshot = source.open().lineage.save(out)
    for warning in snapshot.warnings:
        terminal.say(f"warning: {warning}", style="yellow")
    size = out.stat().st_size
    counts = {
        "jobs": len(snapshot.jobs),
        "datasets": len(snapshot.datasets),
        "runs": len(snapshot.history),
    }
    if as_json:
        documents.emit(
            {
                "schema_version": 1,
                "kind": "lineage_pull",
                "file": str(out),
                "bytes": size,
                **presentation.origin(snapshot),
                **counts,
                "warnings": list(snapshot.warnings),
            }
        )
    else:
        parts = ", ".join(counted(number, what[:-1]) for what, number in counts.items())
        source_and_size = f"{snapshot.source}; {counted(size, 'byte')}"
        terminal.out().print(f"{out}: {parts} from {source_and_size}")


def _where(snapshot: LineageSnapshot) -> str:
    """Return the origin of the lineage, and its age if it was saved."""
    if snapshot.source == "project":
        return of_project(snapshot.taken_at)
    if snapshot.source != "snapshot" or snapshot.taken_at is None:
        return snapshot.source
    old = age(datetime.now(UTC) - snapshot.taken_at)
    return f"a snapshot of {terminal.moment(snapshot.taken_at)}, {old}"


def _print(edges: Edges, families: Sequence[Family]) -> None:
    snapshot = edges.shown
    names = Names([*snapshot.jobs, *snapshot.datasets])
    rows = (
        [Text("\n".join(one)) for one in ([names(job.ref)], *presentation.sides(job, edges, names))]
        for job in snapshot.jobs.values()
    )
    console = terminal.out()
    console.print(table("Job", "Reads", "Writes", rows=rows))
    written = {ref for job in snapshot.jobs.values() for ref in job.writes}
    console.print(
        f"{counted(len(snapshot.jobs), 'job')}, {counted(len(snapshot.datasets), 'dataset')},"
        f" {len(snapshot.datasets.keys() - written)} of them written by no job;"
        f" from {_where(snapshot)}"
    )
    for warning in snapshot.warnings:
        terminal.say(f"warning: {warning}", style="yellow")
    if families:
        members = counted(sum(len(one.members) for one in families), "name")
        terminal.say(f"warning: {members} look like partitions; declare them with:", style="yellow")
    for line in (line for family in families for line in family.lines):
        terminal.say(f"    {line}")
