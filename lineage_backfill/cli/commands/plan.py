"""`plan`: shows and compares saved plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lineage_backfill.cli import planning, terminal
from lineage_backfill.cli.options import JsonOption, ListOptions, takes_options
from lineage_backfill.cli.output import plan_forms
from lineage_backfill.cli.output.tables import difference_table
from lineage_backfill.model import named
from lineage_backfill.plans.diff import diff as compare
from lineage_backfill.plans.document import plan_members, plan_to_dict
from lineage_backfill.plans.plan import Plan
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


@plan.command("diff")
def diff(
    before: Annotated[
        Path, typer.Argument(help="The earlier plan.", metavar="A.json", show_default=False)
    ],
    after: Annotated[
        Path, typer.Argument(help="The later plan.", metavar="B.json", show_default=False)
    ],
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 if they differ.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the differences between two saved plans, job by job, and what caused them."""
    document = difference(planning.load_plan(before), planning.load_plan(after))
    terminal.show(document, difference_table, as_json=as_json)
    if detailed_exitcode and document["differ"]:
        raise typer.Exit(2)


def difference(before: Plan, after: Plan) -> dict[str, Any]:
    """Return the differences between two plans as a document."""
    found = compare(before, after)
    old, new = (
        dict(zip((job.job for job in plan.jobs), plan_to_dict(plan)["jobs"], strict=True))
        for plan in (before, after)
    )
    return {
        "schema_version": 1,
        "kind": "plan_diff",
        "before": before.id,
        "after": after.id,
        "differ": bool(found),
        "jobs": [
            {
                "job": named(one.job),
                "changes": list(one.changes),
                "before": old.get(one.job),
                "after": new.get(one.job),
            }
            for one in found.jobs
        ],
        "lineage_moved": found.lineage_moved,
        "moved": list(found.moved),
    }
