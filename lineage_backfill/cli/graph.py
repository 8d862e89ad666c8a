"""`graph`: the lineage drawn, as plans see it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lineage_backfill.cli.completion import complete_jobs, complete_nodes
from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options
from lineage_backfill.errors import UsageError


class Form(StrEnum):
    """How a graph is shown."""

    TREE = "tree"
    TABLE = "table"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


@takes_options
def graph(
    source: SourceOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Datasets and jobs to start from; else all.",
            metavar="NAME",
            show_default=False,
            autocompletion=complete_nodes,
        ),
    ] = None,
    form: Annotated[
        Form,
        typer.Option("--format", help="tree, table, mermaid, dot or svg.", metavar="FORM"),
    ] = Form.TREE,
    up: Annotated[bool, typer.Option("--up", help="What they are made of.")] = False,
    down: Annotated[
        bool, typer.Option("--down", help="What they feed; so it is without --up.")
    ] = False,
    depth: Annotated[
        int | None, typer.Option(help="Stop after N jobs in a row.", min=0, metavar="N")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these jobs: x+, +x, tag:…, ns:…, owner:…, globs.",
            metavar="SELECTOR",
            autocompletion=complete_jobs,
        ),
    ] = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Only jobs, joined directly.")] = False,
    datasets: Annotated[
        bool, typer.Option("--datasets", help="Only datasets, joined directly.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option(help="Namespace of the names given.", metavar="NAME")
    ] = None,
    as_json: JsonOption = False,
    out: Annotated[Path | None, typer.Option(help="Write to a file.", metavar="FILE")] = None,
) -> None:
    """Draw what feeds what, as plans see it."""
    from lineage_backfill import workspace as app
    from lineage_backfill.cli import terminal, views
    from lineage_backfill.cli.requests import Names
    from lineage_backfill.lineage import view
    from lineage_backfill.lineage.select import select as choose
    from lineage_backfill.model import DatasetRef, JobRef
    from lineage_backfill.presentation import documents, draw
    from lineage_backfill.presentation import views as told

    if jobs and datasets:
        raise UsageError("--jobs and --datasets leave nothing", hint="Keep one of them.")
    if not names and (up or down or depth is not None):
        raise UsageError("--up, --down and --depth need a start", hint="Name a dataset or a job.")
    if names and select:
        raise UsageError("names and --select both say where to start", hint="Keep one of them.")
    project = source.open()
    snapshot = app.read_lineage(project)
    neighbours = app.neighbours(project, snapshot)
    if names:
        known = Names(snapshot, project.declarations, namespace)
        starts = [known.dataset_or_job(name) for name in names]
        seen = view.around(neighbours, starts, up=up, down=down or not up, depth=depth)
    elif select:
        seen = view.among(neighbours, choose(select, snapshot, neighbours))
    else:
        seen = view.whole(neighbours, snapshot.datasets)
    if jobs or datasets:
        seen = seen.without(DatasetRef if jobs else JobRef)
    if as_json:
        _give(documents.dump(told.document(seen, snapshot)), out)
    elif form not in (Form.TREE, Form.TABLE):
        write = {Form.MERMAID: draw.mermaid, Form.DOT: draw.dot, Form.SVG: draw.svg}[form]
        _give(write(told.drawing(seen)), out)
    else:
        shown = views.trees(seen, up=up, down=down) if form is Form.TREE else views.rows(seen)
        if out is None:
            terminal.out().print(shown)
        else:
            _give(terminal.plain(shown), out)


def _give(text: str, out: Path | None) -> None:
    from lineage_backfill.cli import terminal
    from lineage_backfill.presentation import documents

    if out is None:
        typer.echo(text, nl=False)
    else:
        documents.write_whole(text, out)
        terminal.say(f"Wrote {out}.")
