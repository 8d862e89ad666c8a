"""Places for a drawing: in layers along the data, nothing on top of anything else."""

from __future__ import annotations

from itertools import combinations, pairwise

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from lineage_backfill.lineage.view import layers
from lineage_backfill.web.layout import Layout, lay_out

Edges = list[tuple[int, int]]


def drawn(size: int, edges: Edges) -> Layout:
    return lay_out(
        [(10 + node % 3, 4 + node % 2) for node in range(size)], edges, across=7, between=2
    )


graphs = st.integers(1, 12).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=30),
    )
)


@settings(max_examples=200)
@given(graphs)
def test_nothing_overlaps_and_all_is_within(graph: tuple[int, Edges]) -> None:
    size, edges = graph
    made = drawn(size, edges)
    boxes = [
        (x - (10 + node % 3) / 2, y - (4 + node % 2) / 2, 10 + node % 3, 4 + node % 2)
        for node, (x, y) in enumerate(made.nodes)
    ]
    for (x, y, wide, high), (x2, y2, wide2, high2) in combinations(boxes, 2):
        assert x + wide <= x2 or x2 + wide2 <= x or y + high <= y2 + 1e-9 or y2 + high2 <= y + 1e-9
    for x, y, wide, high in boxes:
        assert -1e-9 <= x <= x + wide <= made.width + 1e-9
        assert -1e-9 <= y <= y + high <= made.height + 1e-9
    assert set(made.ways) == {edge for edge in edges if edge[0] != edge[1]}


@settings(max_examples=200)
@given(graphs)
def test_data_flows_to_the_right_but_on_a_circle(graph: tuple[int, Edges]) -> None:
    size, edges = graph
    made = drawn(size, edges)
    circles = nx.condensation(nx.DiGraph([*edges, *((node, node) for node in range(size))]))
    member = circles.graph["mapping"]
    for one, other in edges:
        if member[one] != member[other]:
            way = [made.nodes[one], *made.ways[one, other], made.nodes[other]]
            assert all(x < x2 for (x, _), (x2, _) in pairwise(way))


def test_a_long_edge_bends_round_the_layers_that_it_passes() -> None:
    made = drawn(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert layers(4, [(0, 1), (1, 2), (2, 3), (0, 3)]) == [0, 1, 2, 3]
    bends = made.ways[0, 3]
    assert len(bends) == 2
    assert all(bend[1] != made.nodes[1][1] for bend in bends)
    assert made.ways[0, 1] == ()


def test_what_feeds_only_a_late_one_stands_close_to_it() -> None:
    assert layers(5, [(0, 1), (1, 2), (2, 3), (4, 3)]) == [0, 1, 2, 3, 2]


def test_a_circle_is_cut_where_it_leads_back() -> None:
    assert layers(3, [(0, 1), (1, 2), (2, 0)]) == [0, 1, 2]
    assert layers(1, [(0, 0)]) == [0]
    assert layers(0, []) == []


def test_few_crossings() -> None:
    """Two combs whose teeth are given in the wrong order come out straight."""
    edges = [(node, 9 - node) for node in range(5)]
    made = drawn(10, edges)
    assert [y for _, y in made.nodes[:5]] == [made.nodes[9 - node][1] for node in range(5)]
