"""`demo`: a complete backfill of real flights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.demo.story import run_demo


def demo(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder to build it in; the folder of an earlier demo is emptied."),
    ] = Path("lineage-backfill-demo"),
    year: Annotated[bool, typer.Option("--year", help="All of 2013 instead of its March.")] = False,
) -> None:
    """Break a feed of real flights, fix it, and re-run exactly what it broke on Spark."""
    code = run_demo(folder, year=year, console=terminal.out())
    if code:
        raise typer.Exit(code)
