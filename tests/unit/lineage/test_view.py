"""Which part of the lineage is seen from where."""

from __future__ import annotations

from typing import Any

import pytest

from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.lineage.view import View, among, around, whole
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.edges import Edges
from lineage_backfill.project.matching import DeclaredNames
from tests.unit.planning.world import declarations

#: a → j → b → k → c, and b → l → d; l reads its own d; x is nobody's.
JOBS = {"j": ("a", "b"), "k": ("b", "c"), "l": ("b d", "d")}


def ref(name: str) -> DatasetRef | JobRef:
    return JobRef("n", name) if name in JOBS else DatasetRef("n", name)


def refs(names: str) -> tuple[DatasetRef, ...]:
    return tuple(DatasetRef("n", name) for name in names.split())


SNAPSHOT = LineageSnapshot.of(
    (
        JobNode(ref=JobRef("n", name), reads=refs(reads), writes=refs(writes))
        for name, (reads, writes) in JOBS.items()
    ),
    [DatasetNode(ref=x) for x in refs("x")],
)
GRAPH = SNAPSHOT.graph()


def told(seen: View) -> str:
    joined = {name for one, other in seen.edges for name in (one.name, other.name)}
    alone = [node.name for node in seen.nodes if node.name not in joined]
    return " ".join([f"{one.name}{other.name}" for one, other in seen.edges] + alone)


@pytest.mark.parametrize(
    ("start", "how", "expected"),
    [
        ("a", {}, "aj bk bl dl jb kc ld"),
        ("a", {"depth": 0}, "a"),
        ("a", {"depth": 1}, "aj jb"),
        ("j", {"depth": 0}, "jb"),
        ("j", {"depth": 1}, "bk bl dl jb kc ld"),
        ("c", {}, "c"),
        ("c", {"up": True, "down": False}, "aj bk jb kc"),
        ("c", {"up": True, "down": False, "depth": 1}, "bk kc"),
        ("b", {"up": True}, "aj bk bl dl jb kc ld"),
        ("b", {"up": True, "depth": 1}, "aj bk bl dl jb kc ld"),
        ("d", {}, "dl ld"),
    ],
)
def test_what_lies_around(start: str, how: dict[str, Any], expected: str) -> None:
    seen = around(GRAPH, [ref(start)], **how)
    assert told(seen) == expected
    assert seen.starts == (ref(start),)


def test_all_of_it_and_only_some_jobs() -> None:
    assert told(whole(GRAPH)) == "aj bk bl dl jb kc ld x"
    assert told(among(GRAPH, [JobRef("n", "k")])) == "bk kc"


def test_the_graph_says_of_its_nodes_what_the_lineage_says() -> None:
    held = LineageSnapshot.of(
        [JobNode(ref=JobRef("n", "j"), reads=refs("a"), writes=refs("b"), tags=("daily",))],
        [DatasetNode(ref=x, owners=("team:x",), fields=("id",)) for x in refs("a")],
    )
    graph = held.graph()
    a, b, j = ref("a"), ref("b"), ref("j")
    assert list(graph.edges) == [(a, j), (j, b)]
    assert (graph.nodes[j]["kind"], graph.nodes[j]["tags"]) == ("job", ("daily",))
    assert graph.nodes[a]["owners"] == ("team:x",)
    assert (graph.nodes[b]["kind"], graph.nodes[b]["fields"]) == ("dataset", ())
    graph.clear()  # a graph of its own
    assert len(held.graph()) == 3


def test_the_graph_that_plans_see_has_declared_and_former_edges() -> None:
    node = JobNode(ref=JobRef("w", "j"), reads=(DatasetRef("w", "a"),), former_reads=refs("old"))
    declared = declarations('job = [{ name = "j", writes = [{ dataset = "made" }] }]')
    edges = {}
    for former in (False, True):
        seen = Edges(LineageSnapshot.of([node]), "w", DeclaredNames(declared), former=former)
        edges[former] = {(one.name, other.name) for one, other in seen.graph.edges}
        assert {kind for _, kind in seen.graph.nodes(data="kind")} == {"job", "dataset"}
    assert edges[False] == {("a", "j"), ("j", "made")}
    assert edges[True] == {*edges[False], ("old", "j")}
