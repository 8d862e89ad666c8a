"""`demo`: the whole journey on real flights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lineage_backfill.cli import terminal
from lineage_backfill.demo.story import run_demo


def demo(
    folder: Annotated[
        Path, typer.Argument(help="Where to build it; begun afresh each time.")
    ] = Path("lineage-backfill-demo"),
    year: Annotated[bool, typer.Option("--year", help="All of 2013 instead of its March.")] = False,
) -> None:
    """Break a feed of real flights, fix it, and see exactly what it broke re-run on Spark."""
    code = run_demo(folder, year=year, console=terminal.out())
    if code:
        raise typer.Exit(code)
