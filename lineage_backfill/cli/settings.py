"""`config`: what the settings are and where each comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from lineage_backfill.cli.options import JsonOption, SourceOptions, takes_options

_config = typer.Typer(help="The settings of this project.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the group of verbs."""
    app.add_typer(_config, name="config")


@_config.callback()
def _group() -> None:
    """The settings of this project."""


@_config.command("show")
@takes_options
def show(
    source: SourceOptions,
    sources: Annotated[
        bool, typer.Option("--sources", help="Say where each value comes from.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every setting as it holds here; secrets are masked."""

    project = source.open()
    if as_json:
        from lineage_backfill.cli import documents

        values = [
            {"name": one.name, "value": one.shown, "origin": one.origin} for one in project.settings
        ]
        documents.emit(
            {
                "schema_version": 1,
                "kind": "config",
                "file": project.file and str(project.file),
                "settings": values,
            }
        )
        return
    from rich.text import Text

    from lineage_backfill.cli import terminal
    from lineage_backfill.cli.render import table

    columns = ("Setting", "Value", "From")[: 3 if sources else 2]
    rows = table(*columns)
    for one in project.settings:
        cells = (one.name, one.shown, one.origin)[: len(columns)]
        rows.add_row(*(Text(terminal.safe(cell)) for cell in cells))
    terminal.out().print(rows)
