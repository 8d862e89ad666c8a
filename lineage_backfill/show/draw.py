"""Graphs of jobs and datasets, and their text in Mermaid; names are escaped."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal

from lineage_backfill.show.text import safe

Kind = Literal["dataset", "job"]
#: The role of a node, which decides its colour.
Mark = Literal["", "changed", "planned", "blocked", "left_stale", "skipped"]

#: Fill and border of each mark, readable on light and dark backgrounds.
COLOURS: Mapping[Mark, tuple[str, str]] = {
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
    """An edge along the data; a faint one is only for information."""

    source: Hashable
    target: Hashable
    label: str = ""
    faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A graph to draw; edges to nodes that it does not contain are left out."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()

    def numbered(self) -> dict[Hashable, int]:
        """Return a number for each node, in order."""
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
        fill, border = COLOURS[mark]
        lines.append(f"  classDef {mark} fill:{fill},stroke:{border},color:#1f2328")
    return "\n".join(lines) + "\n"


def _mermaid_text(text: str) -> str:
    # Mermaid's own entities: a quote ends a label, and other characters are read as HTML.
    return "".join(f"#{ord(sign)};" if sign in '"#<>&`\\' else sign for sign in safe(text))
