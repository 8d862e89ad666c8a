"""`lineage`: what the lineage says, as plans see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options

if TYPE_CHECKING:
    from lineage_backfill.graph.lineage import JobNode, LineageSnapshot
    from lineage_backfill.model import DatasetRef, JobRef

_lineage = typer.Typer(help="The lineage that plans are made from.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the group of verbs."""
    app.add_typer(_lineage, name="lineage")


@_lineage.callback()
def _group() -> None:
    """The lineage that plans are made from."""


@_lineage.command("show")
@takes_options
def show(
    source: SourceOptions,
    dataset: Annotated[
        str | None, typer.Argument(help="Only the jobs that read or write it.", show_default=False)
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Namespace of the dataset.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs with what they read and write."""
    from lineage_backfill import app

    project = source.open()
    snapshot = app.read_lineage(project)
    jobs = list(snapshot.jobs.values())
    if dataset is not None:
        from lineage_backfill.cli.asking import Names

        ref = Names(snapshot, project.declarations, namespace).dataset(dataset)
        jobs = [job for job in jobs if ref in job.reads or ref in job.writes]
    if as_json:
        from lineage_backfill.cli import documents

        documents.emit(_document(snapshot, jobs))
    else:
        _print(snapshot, jobs)


def _document(snapshot: LineageSnapshot, jobs: list[JobNode]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "kind": "lineage",
        "source": snapshot.source,
        "hash": snapshot.content_hash,
        "taken_at": snapshot.taken_at and snapshot.taken_at.isoformat(),
        "jobs": [
            {
                "job": _ref(job.ref),
                "reads": [_ref(ref) for ref in job.reads],
                "writes": [_ref(ref) for ref in job.writes],
            }
            for job in jobs
        ],
        "warnings": list(snapshot.warnings),
    }


def _ref(ref: DatasetRef | JobRef) -> dict[str, str]:
    return {"namespace": ref.namespace, "name": ref.name}


def _print(snapshot: LineageSnapshot, jobs: list[JobNode]) -> None:
    from rich.text import Text

    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.render import Names, counted, table

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
        f" from {snapshot.source}"
    )
    for warning in snapshot.warnings:
        terminal.say(f"warning: {warning}", style="yellow")
