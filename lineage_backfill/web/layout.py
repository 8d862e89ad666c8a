"""Places the nodes of a graph in layers along the data, with few crossings.

An edge across several layers bends where it passes one. Each layer is ordered by the mean position
of the neighbours of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from lineage_backfill.lineage.view import layers, without_cycles

#: Passes of ordering the layers, back and forth.
_SWEEPS: Final = 8

Edge = tuple[int, int]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The middle of each node, and the bends of each edge between its ends."""

    nodes: tuple[Point, ...]
    ways: Mapping[Edge, tuple[Point, ...]]
    width: float
    height: float


def lay_out(
    sizes: Sequence[tuple[float, float]], edges: Iterable[Edge], *, across: float, between: float
) -> Layout:
    """Return a place for nodes 0, 1, … of the given widths and heights; data flows to the right.

    `across` is the room between two layers, `between` that between two nodes of one layer.
    """
    known = dict.fromkeys((one, other) for one, other in edges if one != other)
    layer = layers(len(sizes), known)
    chains: dict[Edge, list[int]] = {}
    for one, other in without_cycles(len(sizes), known):
        passed = range(layer[one] + 1, layer[other])
        chains[one, other] = [one, *range(len(layer), len(layer) + len(passed)), other]
        layer += passed
    rows = _ordered(layer, chains.values())
    heights = [height for _, height in sizes] + [0.0] * (len(layer) - len(sizes))
    tall = [sum(heights[node] + between for node in row) - between for row in rows]
    bottom = max(tall, default=0.0)
    points: dict[int, Point] = {}
    x = 0.0
    for row, height in zip(rows, tall, strict=True):
        wide = max((sizes[node][0] for node in row if node < len(sizes)), default=0.0)
        y = (bottom - height) / 2
        for node in row:
            points[node] = (x + wide / 2, y + heights[node] / 2)
            y += heights[node] + between
        x += wide + across
    ways = {}
    for edge in known:
        way = chains[edge] if edge in chains else chains[edge[::-1]][::-1]
        ways[edge] = tuple(points[node] for node in way[1:-1])
    nodes = tuple(points[node] for node in range(len(sizes)))
    return Layout(nodes=nodes, ways=ways, width=max(0.0, x - across), height=bottom)


def _ordered(layer: Sequence[int], chains: Iterable[Sequence[int]]) -> list[list[int]]:
    """Return the nodes of each layer, each near its neighbours in the layers beside it."""
    above: list[list[int]] = [[] for _ in layer]
    below: list[list[int]] = [[] for _ in layer]
    for chain in chains:
        for one, other in pairwise(chain):
            below[one].append(other)
            above[other].append(one)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, at in enumerate(layer):
        rows[at].append(node)
    place = {node: float(at) for row in rows for at, node in enumerate(row)}
    for sweep in range(_SWEEPS):
        near, ordered = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in ordered:
            means = {
                node: sum(place[one] for one in near[node]) / len(near[node])
                for node in row
                if near[node]
            }
            row.sort(key=lambda node: means.get(node, place[node]))
            place.update((node, float(at)) for at, node in enumerate(row))
    return rows
