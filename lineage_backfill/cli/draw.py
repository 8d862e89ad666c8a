"""Graphs of jobs and datasets as Mermaid, as Graphviz' DOT and as SVG.

A drawing is a value: what it shows is decided elsewhere, here it is only written down. Text from
the lineage is escaped for each language.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape

from lineage_backfill.cli.terminal import safe

Kind = Literal["dataset", "job"]
#: What a node is to the reader: it decides the colour.
Mark = Literal["", "changed", "planned", "blocked", "left_stale", "skipped"]

#: Fill and border of each mark, readable on light and on dark ground.
_COLOURS: Mapping[Mark, tuple[str, str]] = {
    "": ("#f6f8fa", "#8c959f"),
    "changed": ("#ddf4ff", "#0969da"),
    "planned": ("#dafbe1", "#1a7f37"),
    "blocked": ("#ffebe9", "#cf222e"),
    "left_stale": ("#fff8c5", "#9a6700"),
    "skipped": ("#f6f8fa", "#8c959f"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One dataset or job; `key` names it for the edges, `lines` are its text."""

    key: Hashable
    kind: Kind
    lines: tuple[str, ...]
    mark: Mark = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """From one node to another, along the data; a faint one is only for information."""

    source: Hashable
    target: Hashable
    label: str = ""
    faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A graph to be drawn; edges to nodes that it does not hold are left out."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()

    def numbered(self) -> dict[Hashable, int]:
        """Return a number for each node, in their order."""
        return {node.key: number for number, node in enumerate(self.nodes)}

    def known_edges(self) -> list[Edge]:
        """Return the edges between nodes of the drawing, each pair once."""
        keys = {node.key for node in self.nodes}
        found = {
            (edge.source, edge.target): edge
            for edge in self.edges
            if edge.source in keys and edge.target in keys
        }
        return list(found.values())


def mermaid(drawing: Drawing) -> str:
    """Return the drawing as Mermaid, as GitHub and GitLab show it in a comment."""
    number = drawing.numbered()
    lines = ["flowchart LR"]
    for node in drawing.nodes:
        opening, closing = ('(["', '"])') if node.kind == "dataset" else ('["', '"]')
        text = "<br/>".join(map(_mermaid_text, node.lines))
        mark = f":::{node.mark}" if node.mark else ""
        lines.append(f"  n{number[node.key]}{opening}{text}{closing}{mark}")
    for edge in drawing.known_edges():
        arrow = "-.->" if edge.faint else "-->"
        label = f'|"{_mermaid_text(edge.label)}"|' if edge.label else ""
        lines.append(f"  n{number[edge.source]} {arrow}{label} n{number[edge.target]}")
    for mark in sorted({node.mark for node in drawing.nodes if node.mark}):
        fill, border = _COLOURS[mark]
        lines.append(f"  classDef {mark} fill:{fill},stroke:{border},color:#1f2328")
    return "\n".join(lines) + "\n"


def dot(drawing: Drawing) -> str:
    """Return the drawing in the language of Graphviz."""
    number = drawing.numbered()
    lines = [
        "digraph lineage {",
        f"  graph [rankdir=LR, label={_dot_text(drawing.title)}, labelloc=t]",
        '  node [shape=box, style="filled,rounded", fontname="Helvetica", fontsize=11]',
        '  edge [fontname="Helvetica", fontsize=9]',
    ]
    for node in drawing.nodes:
        fill, border = _COLOURS[node.mark]
        shape = ", shape=cylinder, style=filled" if node.kind == "dataset" else ""
        text = _dot_text("\n".join(map(safe, node.lines)))
        colours = f'fillcolor="{fill}", color="{border}"'
        lines.append(f"  n{number[node.key]} [label={text}, {colours}{shape}]")
    for edge in drawing.known_edges():
        says = [f"label={_dot_text(safe(edge.label))}"] if edge.label else []
        says += ["style=dashed"] if edge.faint else []
        lines.append(
            f"  n{number[edge.source]} -> n{number[edge.target]}"
            + (f" [{', '.join(says)}]" if says else "")
        )
    return "\n".join([*lines, "}"]) + "\n"


def _mermaid_text(text: str) -> str:
    # Its own entities: a quote ends a label, and the other signs would be read as HTML.
    return "".join(f"#{ord(sign)};" if sign in '"#<>&`\\' else sign for sign in safe(text))


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# --- SVG ----------------------------------------------------------------------------------------

_LETTER, _LINE, _PAD = 6.7, 15, 8  # pixels: a letter's width, a line's height, room around text
_GAP_X, _GAP_Y, _MARGIN = 70, 14, 20
_SWEEPS = 4
_STYLE = """
text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }
.title { font-weight: bold } .edge { fill: none; stroke: #8c959f } .faint { stroke-dasharray: 4 3 }
.title, .label { fill: #57606a } .label { font-size: 9px }
@media (prefers-color-scheme: dark) { .title, .label { fill: #b1bac4 } }"""

_ARROW = """\
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0L8 4L0 8z" fill="#8c959f"/></marker></defs>"""


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float


def svg(drawing: Drawing) -> str:
    """Return the drawing as SVG: data flows from left to right."""
    boxes = _placed(drawing)
    width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN
    height = max((box.y + box.height for box in boxes.values()), default=_MARGIN) + _MARGIN
    width = max(width, len(drawing.title) * _LETTER + 2 * _MARGIN)
    title = escape(safe(drawing.title))
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        _ARROW,
        f'<text class="title" x="{_MARGIN}" y="{_MARGIN}">{title}</text>',
    ]
    parts += [_curve(edge, boxes) for edge in drawing.known_edges()]
    parts += [_shape(node, boxes[node.key]) for node in drawing.nodes]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _shape(node: Node, box: _Box) -> str:
    fill, border = _COLOURS[node.mark]
    radius = box.height / 2 if node.kind == "dataset" else 3
    lines = "".join(
        f'<text x="{box.x + box.width / 2:.1f}" y="{box.y + _PAD + _LINE * (row + 0.75):.1f}"'
        f' text-anchor="middle">{escape(safe(line))}</text>'
        for row, line in enumerate(node.lines)
    )
    return (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
        f' rx="{radius:.1f}" fill="{fill}" stroke="{border}"/>{lines}'
    )


def _curve(edge: Edge, boxes: Mapping[Hashable, _Box]) -> str:
    start, end = boxes[edge.source], boxes[edge.target]
    x1, y1 = start.x + start.width, start.y + start.height / 2
    x2, y2 = end.x, end.y + end.height / 2
    bend = max((x2 - x1) / 2, 40)
    faint = " faint" if edge.faint else ""
    label = (
        f'<text class="label" x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 - 3:.1f}"'
        f' text-anchor="middle">{escape(safe(edge.label))}</text>'
        if edge.label
        else ""
    )
    return (
        f'<path class="edge{faint}" marker-end="url(#tip)" d="M{x1:.1f} {y1:.1f}'
        f"C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        f'"/>{label}'
    )


def _placed(drawing: Drawing) -> dict[Hashable, _Box]:
    """Return where each node stands: its column by the longest way to it, its row by neighbours."""
    sizes = {
        node.key: (
            max((len(safe(line)) for line in node.lines), default=1) * _LETTER + 4 * _PAD,
            len(node.lines) * _LINE + 2 * _PAD,
        )
        for node in drawing.nodes
    }
    boxes: dict[Hashable, _Box] = {}
    x = float(_MARGIN)
    for column in _columns(drawing):
        width = max(sizes[key][0] for key in column)
        y = float(2 * _MARGIN)
        for key in column:
            own, height = sizes[key]
            boxes[key] = _Box(x + (width - own) / 2, y, own, height)
            y += height + _GAP_Y
        x += width + _GAP_X
    return boxes


def _columns(drawing: Drawing) -> list[list[Hashable]]:
    import networkx as nx

    graph: nx.DiGraph[Hashable] = nx.DiGraph()
    graph.add_nodes_from(node.key for node in drawing.nodes)
    graph.add_edges_from((edge.source, edge.target) for edge in drawing.known_edges())
    circles = nx.condensation(graph)
    order = drawing.numbered()
    columns = [
        sorted(
            (key for one in rank for key in circles.nodes[one]["members"]), key=order.__getitem__
        )
        for rank in nx.topological_generations(circles)
    ]
    for sweep in range(_SWEEPS):
        towards: Callable[[Hashable], Iterable[Hashable]] = (
            graph.predecessors if sweep % 2 == 0 else graph.successors
        )
        for column in columns if sweep % 2 == 0 else reversed(columns):
            _order_by_neighbours(column, columns, towards)
    return columns


def _order_by_neighbours(
    column: list[Hashable],
    columns: Sequence[Sequence[Hashable]],
    towards: Callable[[Hashable], Iterable[Hashable]],
) -> None:
    """Put each node of a column at the height of its neighbours, which keeps lines apart."""
    height = {key: row / max(len(other), 1) for other in columns for row, key in enumerate(other)}

    def middle(key: Hashable) -> float:
        near = [height[one] for one in towards(key)]
        return sum(near) / len(near) if near else height[key]

    column.sort(key=middle)
