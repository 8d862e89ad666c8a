"""Output formats of a plan: table, tree, Markdown, Mermaid."""

from __future__ import annotations

from rich.console import Console

from lineage_backfill.cli import terminal
from lineage_backfill.cli.options import Format, ListOptions
from lineage_backfill.cli.output import formats
from lineage_backfill.cli.output.render import NO_FACTS, SHORT, first, preview
from lineage_backfill.cli.planning import PlannedRequest, estimate
from lineage_backfill.plans.plan import Plan
from lineage_backfill.runs.estimate import Estimate
from lineage_backfill.show import draw
from lineage_backfill.show.plans import SHOWN_JOBS, PlanFacts, drawing
from lineage_backfill.workspace.workspace import Workspace


def show(
    plan: Plan,
    console: Console,
    *,
    workspace: Workspace | None = None,
    takes: Estimate | None = None,
    listing: ListOptions = SHORT,
) -> None:
    """Print the preview; with a workspace, also owners and jobs not affected."""
    facts = NO_FACTS
    if workspace is not None:
        facts = PlanFacts.of(plan, workspace.resolver_of(plan), takes)
    console.print(preview(plan, width=console.width, facts=facts, listing=listing))


def show_as(
    form: Format, planned: PlannedRequest, console: Console, listing: ListOptions = SHORT
) -> None:
    """Print the plan in one of the output formats."""
    plan, workspace, takes = planned.plan, planned.workspace, estimate(planned)
    facts = PlanFacts.of(plan, workspace.resolver_of(plan), takes)
    match form:
        case Format.TABLE:
            show(plan, console, workspace=workspace, takes=takes, listing=listing)
        case Format.TREE:
            console.print(formats.plan_tree(plan, facts, console.width, listing))
        case Format.MARKDOWN:
            terminal.give(formats.markdown(plan, facts, listing))
        case Format.MERMAID:
            terminal.give(draw.mermaid(drawing(plan, most=first(listing, SHOWN_JOBS))))
