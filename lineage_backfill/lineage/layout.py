"""Places the nodes of a directed graph in layers with few crossings.

The method is Sugiyama's: layers by the longest path, an order within each layer by the mean
position of the neighbours, then heights that align neighbours. Cycles are cut at an edge that
leads back, which is drawn all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

#: Passes of ordering the layers, back and forth.
_SWEEPS: Final = 8
#: Edges across many layers bend where they pass one, up to this many bends in all.
_MOST_BENDS: Final = 20_000

Edge = tuple[int, int]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The middle of each node and the route of each edge, in the units of the given sizes.

    Routes are the points between both ends; most have none.
    """

    nodes: tuple[Point, ...]
    ways: Mapping[Edge, tuple[Point, ...]]
    width: float
    height: float


def lay_out(
    sizes: Sequence[tuple[float, float]],
    edges: Iterable[Edge],
    *,
    across: float,
    between: float,
) -> Layout:
    """Return a place for nodes 0, 1, … of the given widths and heights; data flows to the right.

    `across` is the room between two layers, `between` that between two nodes of one layer.
    """
    known = dict.fromkeys((one, other) for one, other in edges if one != other)
    forward = _without_circles(len(sizes), known)
    layer = _layers(len(sizes), forward)
    chains, bends = _chains(forward, layer)
    layer += bends
    above: list[list[int]] = [[] for _ in layer]
    below: list[list[int]] = [[] for _ in layer]
    for chain in chains.values():
        for one, other in pairwise(chain):
            below[one].append(other)
            above[other].append(one)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node in _depth_first(above, below):
        rows[layer[node]].append(node)
    _put_in_order(rows, above, below)
    tall = [height for _, height in sizes] + [0.0] * len(bends)
    middles = _middles(rows, above, below, tall, between)
    columns, width = _columns(rows, sizes, across)
    points = [(columns[at], middles[node]) for node, at in enumerate(layer)]
    ways = {}
    for edge in known:
        way = chains[edge] if edge in chains else chains[edge[::-1]][::-1]
        ways[edge] = tuple(points[node] for node in way[1:-1])
    bottom = max((middles[node] + height / 2 for node, height in enumerate(tall)), default=0.0)
    return Layout(nodes=tuple(points[: len(sizes)]), ways=ways, width=width, height=bottom)


def layers(size: int, edges: Iterable[Edge]) -> list[int]:
    """Return for nodes 0, 1, … the length of the longest path that leads to each."""
    return _layers(size, _without_circles(size, edges))


def _without_circles(size: int, edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges, those that lead back turned round."""
    import networkx as nx  # slow to import, and most commands draw nothing

    known = [(one, other) for one, other in edges if one != other]
    has_above = {other for _, other in known}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(sorted(range(size), key=lambda node: node in has_above))
    graph.add_edges_from(known)
    on_the_way: set[int] = set()
    turned: dict[Edge, None] = {}
    for one, other, step in nx.dfs_labeled_edges(graph):
        if step == "reverse":
            on_the_way.discard(other)
            continue
        if one != other:
            leads_back = step == "nontree" and other in on_the_way
            turned[(other, one) if leads_back else (one, other)] = None
        if step == "forward":
            on_the_way.add(other)
    return list(turned)


def _layers(size: int, edges: Iterable[Edge]) -> list[int]:
    """Return the layer of each node: after all above it, and close to what is below it."""
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph(edges)
    graph.add_nodes_from(range(size))
    generations = enumerate(nx.topological_generations(graph))
    layer = {node: at for at, nodes in generations for node in nodes}
    for node, above in graph.in_degree():
        if not above and graph[node]:
            layer[node] = min(layer[other] for other in graph[node]) - 1
    return [layer[node] for node in range(size)]


def _chains(edges: Iterable[Edge], layer: Sequence[int]) -> tuple[dict[Edge, list[int]], list[int]]:
    """Return each edge as a chain through every layer it crosses, and the bends' layers."""
    chains = {}
    bends: list[int] = []
    for one, other in edges:
        passed = range(layer[one] + 1, layer[other])
        if len(bends) + len(passed) > _MOST_BENDS:
            passed = range(0)
        first = len(layer) + len(bends)
        chains[one, other] = [one, *range(first, first + len(passed)), other]
        bends += passed
    return chains, bends


def _depth_first(above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> list[int]:
    """Return all nodes with connected ones together."""
    seen: dict[int, None] = {}
    for start in sorted(range(len(above)), key=lambda node: bool(above[node])):
        todo = [start]
        while todo:
            node = todo.pop()
            if node not in seen:
                seen[node] = None
                todo += reversed(below[node])
    return list(seen)


def _put_in_order(
    rows: list[list[int]], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> None:
    place: dict[int, float] = {node: at for row in rows for at, node in enumerate(row)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for row in rows if down else reversed(rows):
            row.sort(key=lambda node: _mean(neighbours[node], place, place[node]))
            place.update((node, at) for at, node in enumerate(row))


def _mean(nodes: Sequence[int], place: Mapping[int, float], otherwise: float) -> float:
    return sum(place[node] for node in nodes) / len(nodes) if nodes else otherwise


def _middles(
    rows: list[list[int]],
    above: Sequence[Sequence[int]],
    below: Sequence[Sequence[int]],
    tall: Sequence[float],
    between: float,
) -> list[float]:
    """Return the height of each node: near its neighbours, and separate within a layer."""
    middle = dict.fromkeys(range(len(tall)), 0.0)
    offsets = []
    for row in rows:
        gaps = ((tall[one] + tall[other]) / 2 + between for one, other in pairwise(row))
        offsets.append(list(accumulate(gaps, initial=0.0)))
        middle.update(zip(row, offsets[-1], strict=False))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for row, offset in list(zip(rows, offsets, strict=True))[:: 1 if down else -1]:
            wanted = [_mean(near[node], middle, middle[node]) for node in row]
            middle.update(zip(row, _apart(wanted, offset), strict=True))
    top = min((middle[node] - height / 2 for node, height in enumerate(tall)), default=0.0)
    return [middle[node] - top for node in range(len(tall))]


def _apart(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return positions in that order, as near as possible to the wanted ones.

    They are at least as far apart as the offsets are. Neighbours that come too close share their
    mean, as in isotonic regression.
    """
    blocks: list[
        tuple[float, int]
    ] = []  # the sum of positions its members want for the first, and their number
    for value, offset in zip(wanted, offsets, strict=False):
        total, count = value - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    firsts = [total / count for total, count in blocks for _ in range(count)]
    return [first + offset for first, offset in zip(firsts, offsets, strict=False)]


def _columns(
    rows: list[list[int]], sizes: Sequence[tuple[float, float]], across: float
) -> tuple[list[float], float]:
    """Return the middle of every layer from the left, and the width of all."""
    middles, left = [], 0.0
    for row in rows:
        widest = max((sizes[node][0] for node in row if node < len(sizes)), default=0.0)
        middles.append(left + widest / 2)
        left += widest + across
    return middles, max(left - across, 0.0)
