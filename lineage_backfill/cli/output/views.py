"""A part of the lineage as a tree or a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.output.render import table
from lineage_backfill.cli.terminal import moment
from lineage_backfill.lineage.select import Ref
from lineage_backfill.lineage.view import Edge, View
from lineage_backfill.planning.edges import Edges
from lineage_backfill.show import lineage
from lineage_backfill.show.names import Names
from lineage_backfill.show.text import safe

_SHOWN = 20
_SHOWN_LINES = 2_000
_DEEPEST = 48
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


def trees(view: View, *, up: bool = False, down: bool = False) -> RenderableType:
    """Return the view as a tree from its starts or sources; `up` goes upstream.

    A node that occurs several times is expanded only the first time.
    """
    against = [(other, one) for one, other in view.edges]
    if not (up and down):
        return _tree(view, against if up else view.edges)
    feeds, inputs = Text("Feeds", style="bold"), Text("Parts", style="bold")
    return Group(feeds, _tree(view, view.edges), Text(), inputs, _tree(view, against))


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


def _tree(view: View, edges: Sequence[Edge]) -> RenderableType:
    fed = {other for one, other in edges if one != other}
    roots = view.starts or [ref for ref in view.nodes if ref not in fed]
    # A cycle has no top: it is shown from its first node.
    rest = () if view.starts else view.nodes
    found = _lines(Names(view.nodes), _neighbours(edges), [*roots, *rest])
    lines = list(islice(found, _SHOWN_LINES))
    if next(found, None) is not None:
        lines.append(Text("and more; --json has all", style="dim"))
    return Text("\n").join(lines)


def _lines(
    names: Names, below: Mapping[Ref, Sequence[Ref]], roots: Iterable[Ref]
) -> Iterator[Text]:
    followed: set[Ref] = set()
    for root in roots:
        todo = [] if root in followed else [("", "", root)]
        while todo:
            guide, indent, ref = todo.pop()
            if len(guide) > _DEEPEST:  # depth as a number if guides would fill the line
                guide = f"({len(guide) // 2}) "
            line = Text.assemble((guide, "dim"), (names(ref), _COLOURS[ref.kind]))
            line.append("  job" if ref.kind == "job" else "", style="dim")
            line.append("  (see above)" if ref in followed and ref in below else "", style="dim")
            yield line
            if ref in followed:
                continue
            followed.add(ref)
            corner, side = "└ ", "  "
            for child in reversed(below.get(ref, ())):
                todo.append((indent + corner, indent + side, child))
                corner, side = "├ ", "│ "
