"""The lineage as tables: a part of it, or one name in full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter

from rich.console import RenderableType
from rich.text import Text

from lineage_backfill.cli.output.grid import table
from lineage_backfill.cli.terminal import moment
from lineage_backfill.lineage.select import Ref
from lineage_backfill.lineage.view import Edge, View
from lineage_backfill.planning.edges import Edges
from lineage_backfill.show import lineage
from lineage_backfill.show.names import Names
from lineage_backfill.show.text import safe

_SHOWN = 20
_COLOURS = {"dataset": "cyan", "job": "bold"}


def page(ref: Ref, edges: Edges) -> RenderableType:
    """Return everything known about one job or dataset, one line per kind."""
    names = Names([*edges.shown.jobs, *edges.shown.datasets])
    rows = []
    for title, lines in lineage.lines(ref, edges, names, moment):
        listed = [safe(line) for line in lines[:_SHOWN]]
        if len(lines) > _SHOWN:
            listed.append(f"and {len(lines) - _SHOWN:,} more")
        if listed:
            rows.append((Text(title, style="dim"), Text("\n".join(listed))))
    return table(ref.kind.capitalize(), names(ref), rows=rows)


def rows(view: View) -> RenderableType:
    """Return the view as a table by layers: jobs, or datasets if there are no jobs."""
    names = Names(view.nodes)
    kinds = sorted({ref.kind for ref in view.nodes})
    headings = ("Reads", "Writes") if len(kinds) > 1 else ("After", "Before")
    above, below = _neighbours((b, a) for a, b in view.edges), _neighbours(view.edges)
    by_layer = sorted(zip(view.layers(), view.nodes, strict=True), key=itemgetter(0))
    cells = (
        (
            Text(names(ref), style=_COLOURS[ref.kind]),
            *(Text("\n".join(map(names, side.get(ref, ())))) for side in (above, below)),
        )
        for _, ref in by_layer
        if ref.kind == kinds[-1]
    )
    return table(*(kind.capitalize() for kind in kinds[-1:] or ["job"]), *headings, rows=cells)


def _neighbours(edges: Iterable[Edge]) -> Mapping[Ref, list[Ref]]:
    found: dict[Ref, list[Ref]] = {}
    for one, other in edges:
        found.setdefault(one, []).append(other)
    return found
