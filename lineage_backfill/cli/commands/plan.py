"""`plan`: shows saved plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lineage_backfill.cli import planning, terminal
from lineage_backfill.cli.options import JsonOption, ListOptions, takes_options
from lineage_backfill.cli.output import plan_forms
from lineage_backfill.plans.document import plan_members
from lineage_backfill.show import documents

plan = typer.Typer(help="Plans saved with `impact --out`.", no_args_is_help=True)


@plan.command("show")
@takes_options
def show(
    listing: ListOptions,
    file: Annotated[
        Path, typer.Argument(help="The saved plan.", metavar="PLAN.json", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Show a saved plan as `impact` does."""
    saved = planning.load_plan(file)
    if as_json:
        documents.emit(plan_members(saved))
    else:
        plan_forms.show(saved, terminal.out(), listing=listing)
