"""`graph`: draws the lineage that plans use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import (
    JsonOption,
    NamespaceOption,
    SourceOptions,
    takes_options,
)
from lineage_backfill.cli.output import views
from lineage_backfill.errors import UsageError
from lineage_backfill.lineage import view
from lineage_backfill.lineage.select import select as select_jobs
from lineage_backfill.show import documents, draw
from lineage_backfill.show import views as graphs
from lineage_backfill.workspace.named import NameLookup
from lineage_backfill.workspace.workspace import Workspace


class Form(StrEnum):
    """How a graph is shown."""

    TABLE = "table"
    MERMAID = "mermaid"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """The part of the graph that is shown, and its format."""

    form: Annotated[Form, typer.Option("--format", help="Output format.")] = Form.TABLE
    up: Annotated[bool, typer.Option("--up", help="Show upstream.")] = False
    down: Annotated[bool, typer.Option("--down", help="Show downstream; the default.")] = False
    depth: Annotated[
        int | None, typer.Option(help="Stop after N jobs in a row.", min=0, metavar="N")
    ] = None
    select: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these jobs: x+, +x, tag:…, ns:…, owner:…, globs.",
            metavar="SELECTOR",
        ),
    ] = None
    namespace: NamespaceOption = None
    as_json: JsonOption = False


@takes_options
def graph(
    source: SourceOptions,
    how: GraphOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Datasets and jobs to start from; by default all.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Draw the lineage as plans use it."""
    if not names and (how.up or how.down or how.depth is not None):
        raise UsageError(
            "--up, --down and --depth need a starting point", hint="Name a dataset or a job."
        )
    if names and how.select:
        raise UsageError(
            "names and --select both set the starting points", hint="Drop one of them."
        )
    workspace = source.open()
    found = _part(workspace, names or (), how)
    if how.as_json:
        documents.emit(graphs.document(found, workspace.snapshot))
    elif how.form is Form.MERMAID:
        terminal.give(draw.mermaid(graphs.drawing(found)))
    else:
        terminal.out().print(views.rows(found))


def _part(workspace: Workspace, names: Sequence[str], how: GraphOptions) -> view.View:
    edges = workspace.graph
    if names:
        lookup = NameLookup(workspace.resolver, how.namespace)
        starts = [lookup.dataset_or_job(name) for name in names]
        down = how.down or not how.up
        return view.around(edges, starts, up=how.up, down=down, depth=how.depth)
    if how.select:
        return view.among(edges, select_jobs(how.select, edges))
    return view.whole(edges)
