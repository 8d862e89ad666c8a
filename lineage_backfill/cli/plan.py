"""`plan`: saved plans, looked at and compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lineage_backfill.cli.options import JsonOption

if TYPE_CHECKING:
    from lineage_backfill.planning.plan import Plan

plan = typer.Typer(help="Plans that `impact --out` has saved.", no_args_is_help=True)


@plan.callback()
def _group() -> None:
    """Plans that `impact --out` has saved."""


@plan.command("show")
def show(
    file: Annotated[
        Path, typer.Argument(help="The saved plan.", metavar="PLAN.json", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Show a saved plan as `impact` has shown it."""
    from lineage_backfill.cli import planning, terminal
    from lineage_backfill.planning.document import plan_to_dict
    from lineage_backfill.presentation import documents

    saved = planning.load_plan(file)
    if as_json:
        documents.emit(plan_to_dict(saved))
    else:
        planning.show(saved, terminal.out())


@plan.command("diff")
def diff(
    before: Annotated[
        Path, typer.Argument(help="The earlier plan.", metavar="A.json", show_default=False)
    ],
    after: Annotated[
        Path, typer.Argument(help="The later plan.", metavar="B.json", show_default=False)
    ],
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 where they differ.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what differs between two saved plans, job by job, and what moved below them."""
    from lineage_backfill.cli.planning import load_plan
    from lineage_backfill.presentation import documents

    document = difference(load_plan(before), load_plan(after))
    if as_json:
        documents.emit(document)
    else:
        from lineage_backfill.cli import terminal
        from lineage_backfill.cli.tables import difference_table

        terminal.out().print(difference_table(document))
    if detailed_exitcode and document["differ"]:
        raise typer.Exit(2)


def difference(before: Plan, after: Plan) -> dict[str, Any]:
    """Return the document that says what differs between two plans."""
    from lineage_backfill.model import named
    from lineage_backfill.planning.diff import diff
    from lineage_backfill.planning.document import plan_to_dict

    found = diff(before, after)
    old, new = (
        {job.job: said for job, said in zip(plan.jobs, plan_to_dict(plan)["jobs"], strict=True)}
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
