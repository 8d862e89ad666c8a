"""`lineage`: what the lineage says, as plans see it; snapshots of it, and what has changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lineage_backfill.cli.completion import complete_nodes
from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lineage_backfill.lineage.families import Family
    from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot

lineage = typer.Typer(help="The lineage that plans are made from.", no_args_is_help=True)


@lineage.callback()
def _group() -> None:
    """The lineage that plans are made from."""


@lineage.command("show")
@takes_options
def show(
    source: SourceOptions,
    name: Annotated[
        str | None,
        typer.Argument(
            help="A job or a dataset, of which all is told.",
            metavar="NAME",
            show_default=False,
            autocompletion=complete_nodes,
        ),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="Namespace of the name.", metavar="NAME")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs with what they read and write, or all that is told of one name."""
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal, views
    from lineage_backfill.presentation import documents
    from lineage_backfill.presentation import lineage as told

    project = source.open()
    snapshot = app.read_lineage(project)
    jobs, datasets = list(snapshot.jobs.values()), list(snapshot.datasets.values())
    if name is not None:
        from lineage_backfill.cli.requests import Names

        ref = Names(snapshot, project.declarations, namespace).dataset_or_job(name)
        if not as_json:
            terminal.out().print(views.page(ref, snapshot))
            return
        jobs, datasets = told.around(snapshot, ref)
    families = app.families(project, snapshot)
    if as_json:
        documents.emit(told.document(snapshot, jobs, datasets, families))
    else:
        _print(snapshot, jobs, families)


@lineage.command("pull")
@takes_options
def pull(
    source: SourceOptions,
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="FILE")] = Path(
        "lineage.json.gz"
    ),
    as_json: JsonOption = False,
) -> None:
    """Save the lineage as a snapshot, from which plans are made offline: --snapshot FILE."""
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal

    snapshot = app.pull_lineage(source.open(), out)
    for warning in snapshot.warnings:
        terminal.say(f"warning: {warning}", style="yellow")
    if as_json:
        from lineage_backfill.presentation import documents

        documents.emit(_pulled(snapshot, out))
    else:
        from lineage_backfill.presentation.text import counted

        parts = (
            counted(len(snapshot.jobs), "job"),
            counted(len(snapshot.datasets), "dataset"),
            counted(len(snapshot.history), "run"),
        )
        size = counted(out.stat().st_size, "byte")
        terminal.out().print(f"{out}: {', '.join(parts)} from {snapshot.source}; {size}")


def _pulled(snapshot: LineageSnapshot, file: Path) -> dict[str, Any]:
    from lineage_backfill.presentation import documents

    return {
        "schema_version": 1,
        "kind": "lineage_pull",
        "file": str(file),
        "bytes": file.stat().st_size,
        **documents.origin(snapshot),
        "jobs": len(snapshot.jobs),
        "datasets": len(snapshot.datasets),
        "runs": len(snapshot.history),
        "warnings": list(snapshot.warnings),
    }


@lineage.command("diff")
@takes_options
def diff(
    source: SourceOptions,
    before: Annotated[
        Path, typer.Argument(help="The earlier snapshot.", metavar="A", show_default=False)
    ],
    after: Annotated[
        Path | None,
        typer.Argument(help="The later one; else the lineage as it is.", metavar="B"),
    ] = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 where they differ.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what differs between two snapshots, or between one and the lineage as it is."""
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import differences
    from lineage_backfill.lineage.compare import compare

    project = source.open()
    old = app.read_snapshot(project, before)
    new = app.read_lineage(project) if after is None else app.read_snapshot(project, after)
    found = compare(old, new)
    if as_json:
        from lineage_backfill.presentation import documents

        documents.emit(differences.document(old, new, found))
    else:
        from lineage_backfill.cli import terminal

        terminal.out().print(differences.shown(found))
    if detailed_exitcode and found:
        raise typer.Exit(2)


def _where(snapshot: LineageSnapshot) -> str:
    """Return where the lineage is from, and how old it is if it was saved."""
    from datetime import UTC, datetime

    from lineage_backfill.presentation.words import age

    if snapshot.source != "snapshot" or snapshot.taken_at is None:
        return snapshot.source
    old = age(datetime.now(UTC) - snapshot.taken_at)
    return f"a snapshot of {snapshot.taken_at:%FT%T}Z, {old}"


def _print(snapshot: LineageSnapshot, jobs: list[JobNode], families: Sequence[Family]) -> None:
    from rich.text import Text

    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.render import table
    from lineage_backfill.presentation.names import Names
    from lineage_backfill.presentation.text import counted

    names = Names([*snapshot.jobs, *snapshot.datasets])
    rows = table("Job", "Reads", "Writes")
    for job in jobs:
        rows.add_row(
            Text(names(job.ref)),
            Text("\n".join(map(names, job.reads))),
            Text("\n".join(map(names, job.writes))),
        )
    console = terminal.out()
    console.print(rows)
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
        terminal.say(f"warning: {members} look like partitions; declare them so:", style="yellow")
    for line in (line for family in families for line in family.lines):
        terminal.say(f"    {line}")
