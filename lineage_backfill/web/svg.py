"""A drawing of jobs and datasets as SVG; text from the lineage is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from lineage_backfill.show.draw import COLOURS, Drawing, Edge, Node
from lineage_backfill.show.text import safe
from lineage_backfill.web.layout import Point, lay_out

_LETTER, _LINE, _PAD = 6.7, 15, 8  # pixels: a letter's width, a line's height, room around text
_SMALL_LETTER = 5.5  # of a label
_ACROSS, _BETWEEN, _MARGIN = 70, 14, 20
_STYLE = """
text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }
.title { font-weight: bold } .edge { fill: none; stroke: #8c959f } .faint { stroke-dasharray: 4 3 }
.title, .label { fill: #57606a } .label { font-size: 9px }
@media (prefers-color-scheme: dark) { .title, .label { fill: #b1bac4 } }"""

_ARROW = """\
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0L8 4L0 8z" fill="#8c959f"/></marker></defs>"""


#: Returns the address and the class of a node.
Links = Callable[[Node], tuple[str, str]]


def svg(drawing: Drawing, links: Links | None = None) -> str:
    """Return the drawing as SVG: data flows from left to right.

    With `links` it is a part of a page: its nodes are links, and the page has its styles.
    """
    sizes = [_size(node) for node in drawing.nodes]
    number = drawing.numbered()
    edges = {(number[edge.source], number[edge.target]): edge for edge in drawing.known_edges()}
    longest = max((len(safe(edge.label)) for edge in edges.values()), default=0)
    across = max(_ACROSS, longest * _SMALL_LETTER + 2 * _PAD)  # so that labels stand between nodes
    layout = lay_out(sizes, edges, across=across, between=_BETWEEN)
    places = list(map(_shifted, layout.nodes))
    ends: dict[float, float] = {}  # right edge of each layer, by its middle
    for (x, _), (wide, _) in zip(places, sizes, strict=True):
        ends[x] = max(ends.get(x, 0.0), x + wide / 2)
    width = max(layout.width, len(drawing.title) * _LETTER) + 2 * _MARGIN
    height = layout.height + 3 * _MARGIN
    title = escape(safe(drawing.title))
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    role = "img" if links is None else "group"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="{role}" aria-label="{title}">',
        _ARROW,
    ]
    if links is None:
        parts += [f"<title>{title}</title>", f"<style>{_STYLE}</style>"]
        parts += [f'<text class="title" x="{_MARGIN}" y="{_MARGIN}">{title}</text>']
    for (one, other), edge in edges.items():
        side = 0.5 if places[one][0] <= places[other][0] else -0.5
        start = (places[one][0] + side * sizes[one][0], places[one][1])
        end = (places[other][0] - side * sizes[other][0], places[other][1])
        bends = map(_shifted, layout.ways[one, other])
        middle = ends[places[one][0]] + across / 2 if side > 0 else (start[0] + end[0]) / 2
        parts.append(_curve(edge, [start, *bends, end], middle))
    for node, place, size_of in zip(drawing.nodes, places, sizes, strict=True):
        shape = _shape(node, place, size_of)
        if links is not None:
            address, kind = links(node)
            shape = f'<a href="{escape(address)}" class="{escape(kind)}">{shape}</a>'
        parts.append(shape)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _size(node: Node) -> tuple[float, float]:
    longest = max((len(safe(line)) for line in node.lines), default=1)
    return longest * _LETTER + 4 * _PAD, len(node.lines) * _LINE + 2 * _PAD


def _shifted(point: Point) -> Point:
    """Return the position of a layout point in the picture, below the title."""
    return point[0] + _MARGIN, point[1] + 2 * _MARGIN


def _shape(node: Node, place: Point, size: tuple[float, float]) -> str:
    fill, border = COLOURS[node.mark]
    x, (width, height) = place[0], size
    left, top = x - width / 2, place[1] - height / 2
    radius = height / 2 if node.kind == "dataset" else 3
    lines = "".join(
        f'<text x="{x:.1f}" y="{top + _PAD + _LINE * (row + 0.75):.1f}"'
        f' text-anchor="middle">{escape(safe(line))}</text>'
        for row, line in enumerate(node.lines)
    )
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' rx="{radius:.1f}" fill="{fill}" stroke="{border}"/>{lines}'
    )


def _curve(edge: Edge, points: Sequence[Point], middle: float) -> str:
    """Return an edge through its points, level at each; its label stands around `middle`."""
    (x, y), *rest = points
    path = f"M{x:.1f} {y:.1f}"
    for to_x, to_y in rest:
        half = (x + to_x) / 2
        path += f"C{half:.1f} {y:.1f} {half:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        x, y = to_x, to_y
    (_, y1), (_, y2) = points[:2]
    return _drawn(edge, path, f'x="{middle:.1f}" y="{(y1 + y2) / 2 - 3:.1f}" text-anchor="middle"')


def _drawn(edge: Edge, path: str, at: str) -> str:
    """Return an edge along a path, its label at a place."""
    faint = " faint" if edge.faint else ""
    label = f'<text class="label" {at}>{escape(safe(edge.label))}</text>' if edge.label else ""
    return f'<path class="edge{faint}" marker-end="url(#tip)" d="{path}"/>{label}'
