"""A part of the lineage to look at: what some jobs or datasets feed, or are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from lineage_backfill.lineage.select import Graph, Ref, within
from lineage_backfill.model import JobRef

Edge: TypeAlias = tuple[Ref, Ref]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Jobs, datasets and the edges between them, which point along the data; all sorted.

    `starts` are those that were asked for, empty where all were.
    """

    nodes: tuple[Ref, ...]
    edges: tuple[Edge, ...]
    starts: tuple[Ref, ...] = ()

    @classmethod
    def of(cls, nodes: Iterable[Ref], edges: Iterable[Edge], starts: Iterable[Ref] = ()) -> View:
        """Build a view; the ends of all edges are nodes of it."""
        pairs = sorted(set(edges), key=lambda edge: (_order(edge[0]), _order(edge[1])))
        found = {*nodes, *(ref for edge in pairs for ref in edge)}
        return cls(
            nodes=tuple(sorted(found, key=_order)),
            edges=tuple(pairs),
            starts=tuple(sorted(found.intersection(starts), key=_order)),
        )

    def numbered(self) -> list[tuple[int, int]]:
        """Return the edges by the places of their ends among the nodes."""
        number = {ref: at for at, ref in enumerate(self.nodes)}
        return [(number[one], number[other]) for one, other in self.edges]

    def layers(self) -> list[int]:
        """Return for each node how many lie before it on the longest way along the data."""
        return layers(len(self.nodes), self.numbered())


def whole(graph: Graph) -> View:
    """Return all of the graph, datasets without jobs among it."""
    return View.of(graph, graph.edges)


def around(
    graph: Graph,
    starts: Collection[Ref],
    *,
    up: bool = False,
    down: bool = True,
    depth: int | None = None,
) -> View:
    """Return what lies down and up the data from `starts`, at most `depth` jobs away from them."""
    edges: list[Edge] = []
    if down:
        edges += graph.subgraph(within(graph, starts, depth)).edges
    if up:
        edges += graph.subgraph(within(graph.reverse(copy=False), starts, depth)).edges
    return View.of(starts, edges, starts)


def between(graph: Graph, one: Ref, other: Ref) -> View:
    """Return all paths along the data from one job or dataset to another; no edges if none."""
    above = within(graph.reverse(copy=False), [other], None)
    on_the_way = within(graph, [one], None) & above
    return View.of([one, other], graph.subgraph(on_the_way).edges, [one, other])


def among(graph: Graph, jobs: Collection[JobRef]) -> View:
    """Return the jobs with all that they read and write."""
    return View.of(jobs, [*graph.in_edges(jobs), *graph.out_edges(jobs)])


def layers(size: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return for nodes 0, 1, … their distance along the longest path to each.

    A node without anything before it stands next to what it feeds.
    """
    import networkx as nx  # slow to import, and most commands draw nothing

    graph: nx.DiGraph[int] = nx.DiGraph(without_cycles(size, edges))
    graph.add_nodes_from(range(size))
    generations = enumerate(nx.topological_generations(graph))
    layer = {node: at for at, nodes in generations for node in nodes}
    for node, above in graph.in_degree():
        if not above and graph[node]:
            layer[node] = min(layer[other] for other in graph[node]) - 1
    return [layer[node] for node in range(size)]


def without_cycles(size: int, edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the edges between different nodes; those that lead back are reversed."""
    import networkx as nx

    known = [(one, other) for one, other in edges if one != other]
    has_above = {other for _, other in known}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(sorted(range(size), key=lambda node: node in has_above))
    graph.add_edges_from(known)
    entered: set[int] = set()
    found: dict[tuple[int, int], None] = {}
    for one, other, step in nx.dfs_labeled_edges(graph):
        if step == "reverse":
            entered.discard(other)
            continue
        if one != other:
            leads_back = step == "nontree" and other in entered
            found[(other, one) if leads_back else (one, other)] = None
        if step == "forward":
            entered.add(other)
    return list(found)


def _order(ref: Ref) -> tuple[str, str, str]:
    return (ref.namespace, ref.name, ref.kind)
