"""A part of the lineage as a tree, a table, or a graph to be drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.text import Text

from lineage_backfill.cli.render import table
from lineage_backfill.lineage.select import Ref
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.lineage.view import Edge, View
from lineage_backfill.presentation import lineage
from lineage_backfill.presentation.names import Names
from lineage_backfill.presentation.text import safe

_SHOWN = 20
_SHOWN_LINES = 2_000
_DEEPEST = 48
_COLOURS = {"dataset": "cyan", "job": "bold"}


def page(ref: Ref, snapshot: LineageSnapshot) -> RenderableType:
    """Return all that the lineage tells of one job or dataset, a line for each kind of thing."""
    names = Names([*snapshot.jobs, *snapshot.datasets])
    shown = table(ref.kind.capitalize(), names(ref))
    for title, says in lineage.lines(ref, snapshot, names):
        lines = [safe(line) for line in says[:_SHOWN]]
        if len(says) > _SHOWN:
            lines.append(f"and {len(says) - _SHOWN:,} more")
        if lines:
            shown.add_row(Text(title, style="dim"), Text("\n".join(lines)))
    return shown


def trees(seen: View, *, up: bool = False, down: bool = False) -> RenderableType:
    """Return the view as a tree: from its starts, or from what nothing feeds; `up`: against data.

    What stands in several places is followed in the first one only.
    """
    against = [(other, one) for one, other in seen.edges]
    if not (up and down):
        return _tree(seen, against if up else seen.edges)
    feeds, made = Text("Feeds", style="bold"), Text("Made of", style="bold")
    return Group(feeds, _tree(seen, seen.edges), Text(), made, _tree(seen, against))


def rows(seen: View) -> RenderableType:
    """Return the view as a table: the jobs, or the datasets where no job is seen, by layers."""
    names = Names(seen.nodes)
    kinds = sorted({ref.kind for ref in seen.nodes})
    headings = ("Reads", "Writes") if len(kinds) > 1 else ("After", "Before")
    shown = table(*(kind.capitalize() for kind in kinds[-1:] or ["job"]), *headings)
    above, below = _neighbours((b, a) for a, b in seen.edges), _neighbours(seen.edges)
    for _, ref in sorted(zip(seen.layers(), seen.nodes, strict=True), key=itemgetter(0)):
        if ref.kind == kinds[-1]:
            sides = (side.get(ref, ()) for side in (above, below))
            cells = (Text("\n".join(map(names, refs))) for refs in sides)
            shown.add_row(Text(names(ref), style=_COLOURS[ref.kind]), *cells)
    return shown


def _neighbours(edges: Iterable[Edge]) -> Mapping[Ref, list[Ref]]:
    found: dict[Ref, list[Ref]] = {}
    for one, other in edges:
        found.setdefault(one, []).append(other)
    return found


def _tree(seen: View, edges: Sequence[Edge]) -> RenderableType:
    fed = {other for one, other in edges if one != other}
    roots = seen.starts or [ref for ref in seen.nodes if ref not in fed]
    # A circle has no top: it is shown from its first node, as far as it is not shown yet.
    rest = () if seen.starts else seen.nodes
    found = _lines(Names(seen.nodes), _neighbours(edges), [*roots, *rest])
    lines = list(islice(found, _SHOWN_LINES))
    if next(found, None) is not None:
        lines.append(Text("and more; --json has all", style="dim"))
    return Text("\n").join(lines)


def _lines(
    names: Names, below: Mapping[Ref, Sequence[Ref]], roots: Iterable[Ref]
) -> Iterator[Text]:
    shown: set[Ref] = set()
    for root in roots:
        todo = [] if root in shown else [("", "", root)]
        while todo:
            guide, indent, ref = todo.pop()
            if len(guide) > _DEEPEST:  # its depth as a number, where guides would fill the line
                guide = f"({len(guide) // 2}) "
            line = Text.assemble((guide, "dim"), (names(ref), _COLOURS[ref.kind]))
            line.append("  job" if ref.kind == "job" else "", style="dim")
            line.append("  (see above)" if ref in shown and ref in below else "", style="dim")
            yield line
            if ref in shown:
                continue
            shown.add(ref)
            corner, side = "└ ", "  "
            for child in reversed(below.get(ref, ())):
                todo.append((indent + corner, indent + side, child))
                corner, side = "├ ", "│ "
