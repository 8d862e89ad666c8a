"""A plan in the forms that a person reads: a table, a tree, a heatmap, Markdown, a drawing."""

from __future__ import annotations

from rich.console import Console

from lineage_backfill.cli import formats, terminal
from lineage_backfill.cli.heatmap import heatmap
from lineage_backfill.cli.options import Format
from lineage_backfill.cli.planning import PlannedRequest, estimate
from lineage_backfill.cli.render import NOTHING_BESIDE, Beside, preview
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.planning.plan import Plan
from lineage_backfill.presentation import draw
from lineage_backfill.presentation.plans import drawing
from lineage_backfill.runs.simulate import Estimate
from lineage_backfill.workspace.planning import Planning


def show(
    plan: Plan,
    console: Console,
    *,
    snapshot: LineageSnapshot | None = None,
    takes: Estimate | None = None,
) -> None:
    """Print the preview; with a snapshot also what the lineage tells beside the plan."""
    beside = NOTHING_BESIDE if snapshot is None else Beside.of(plan, snapshot, takes)
    console.print(preview(plan, width=console.width, beside=beside))


def show_as(form: Format, planned: PlannedRequest, console: Console) -> None:
    """Print the plan in one of its forms."""
    plan, workspace, takes = planned.plan, planned.workspace, estimate(planned)
    beside = Beside.of(plan, workspace.snapshot, takes)
    match form:
        case Format.TABLE:
            show(plan, console, snapshot=workspace.snapshot, takes=takes)
        case Format.TREE:
            console.print(formats.plan_tree(plan, beside))
        case Format.HEATMAP:
            spans = Planning(workspace).timeline(plan)
            zone, width = workspace.project.declarations.zone, console.width
            is_plain = not console.encoding.startswith("utf")
            console.print(heatmap(plan, spans, zone=zone, width=width, plain=is_plain))
        case Format.MARKDOWN:
            terminal.give(formats.markdown(plan, beside))
        case Format.MERMAID | Format.DOT | Format.SVG:
            terminal.give(draw.WRITERS[form](drawing(plan)))
