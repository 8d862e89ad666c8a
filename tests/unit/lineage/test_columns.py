"""Which edges a change of a few columns travels along."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lineage_backfill.lineage.columns import ALL, missed_edges
from lineage_backfill.lineage.snapshot import ColumnEdge, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef


def ref(name: str) -> DatasetRef:
    return DatasetRef("w", name)


def edges(text: str) -> list[ColumnEdge]:
    """Return the column edges of lines such as `job: a.x > b.y`; `~>` is an INDIRECT one."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        job, _, rest = line.partition(": ")
        direct = "~>" not in rest
        (up, up_column), (down, down_column) = (
            side.strip().split(".") for side in rest.replace("~>", ">").split(">")
        )
        found.append(
            ColumnEdge(
                job=JobRef("w", job),
                input=ref(up),
                input_column=up_column,
                output=ref(down),
                output_column=down_column,
                direct=direct,
            )
        )
    return found


def missed(graph: str, columns: str, changed: Mapping[str, set[str]]) -> tuple[set[str], set[str]]:
    """Return the paths that are missed and the edges kept for lack of column lineage."""
    nodes = []
    for line in filter(None, map(str.strip, graph.splitlines())):
        reads, job, writes = (part.split() for part in line.split(">"))
        nodes.append(
            JobNode(
                ref=JobRef("w", job[0]),
                reads=tuple(map(ref, reads)),
                writes=tuple(map(ref, writes)),
            )
        )
    snapshot = LineageSnapshot.of(nodes)
    lost, blind = missed_edges(
        {ref(name): names for name, names in changed.items()},
        edges(columns),
        readers=lambda dataset: snapshot.readers.get(dataset, ()),
        reads=lambda job: snapshot.jobs[job].reads,
        writes=lambda job: snapshot.jobs[job].writes,
    )

    return (
        {f"{source.name}>{job.name}>{output.name}" for job, source, output in lost},
        {f"{job.name}<{source.name}" for job, source in blind},
    )


def test_a_reader_of_other_columns_is_missed() -> None:
    assert missed("a > j > b\na > k > c", "j: a.x > b.x\nk: a.y > c.y", {"a": {"x"}}) == (
        {"a>k>c"},
        set(),
    )


def test_renames_are_followed_over_several_jobs() -> None:
    columns = "j: a.x > b.y\nk: b.y > c.z\nl: c.z > d.z\nm: c.y > e.y"
    graph = "a > j > b\nb > k > c\nc > l > d\nc > m > e"
    assert missed(graph, columns, {"a": {"x"}}) == ({"c>m>e"}, set())


def test_an_indirect_dependency_of_one_column_changes_that_column() -> None:
    columns = "j: a.x ~> b.n\nj: a.y > b.m\nk: b.n > c.n\nl: b.m > d.m"
    assert missed("a > j > b\nb > k > c\nb > l > d", columns, {"a": {"x"}}) == ({"b>l>d"}, set())


def test_an_indirect_dependency_of_the_whole_output_changes_all_of_it() -> None:
    columns = "j: a.x ~> b.*\nj: a.y > b.m\nl: b.m > d.m"
    assert missed("a > j > b\nb > l > d", columns, {"a": {"x"}}) == (set(), set())


@pytest.mark.parametrize(
    ("changed", "read", "reached"),
    [
        ("Price", "PRICE", True),
        ("address", "address.city", True),
        ("address.city", "address", True),
        ("address.city", "Address.City.Part", True),
        ("address.city", "address.zip", False),
        ("address", "address2", False),
    ],
)
def test_columns_in_any_case_and_with_what_they_hold(
    changed: str, read: str, reached: bool
) -> None:
    column = ColumnEdge(
        job=JobRef("w", "j"), input=ref("a"), input_column=read, output=ref("b"), output_column="B"
    )
    next_one = ColumnEdge(
        job=JobRef("w", "k"), input=ref("b"), input_column="b", output=ref("c"), output_column="c"
    )
    snapshot = LineageSnapshot.of(
        [
            JobNode(ref=JobRef("w", "j"), reads=(ref("a"),), writes=(ref("b"),)),
            JobNode(ref=JobRef("w", "k"), reads=(ref("b"),), writes=(ref("c"),)),
        ]
    )
    lost, _ = missed_edges(
        {ref("a"): {changed}},
        [column, next_one],
        readers=lambda dataset: snapshot.readers.get(dataset, ()),
        reads=lambda job: snapshot.jobs[job].reads,
        writes=lambda job: snapshot.jobs[job].writes,
    )
    assert lost == (set() if reached else {(JobRef("w", "j"), ref("a"), ref("b"))})


def test_without_column_lineage_everything_is_followed_and_said() -> None:
    assert missed("a > j > b\nb > k > c", "k: b.y > c.y", {"a": {"x"}}) == (set(), {"j<a"})


def test_column_lineage_of_one_output_tells_nothing_of_another() -> None:
    columns = "j: a.y > b.y\nk: b.y > d.y"
    assert missed("a > j > b c\nb > k > d\nc > l > e", columns, {"a": {"x"}}) == (
        {"a>j>b"},
        {"j<a"},
    )


def test_column_lineage_of_what_the_job_does_not_read_is_as_good_as_none() -> None:
    """It may well be its input under another name."""
    graph = "a > j > b c\nb > k > d\nc > l > e"
    columns = "j: other.x > b.x\nj: a.y > c.y\nk: b.x > d.x\nl: c.y > e.y"
    assert missed(graph, columns, {"a": {"x"}}) == ({"a>j>c"}, {"j<a"})
    # But what a merge keeps is its own output as it was.
    assert missed("a > j > b", "j: b.x > b.x\nj: a.y > b.y", {"a": {"x"}}) == ({"a>j>b"}, set())


def test_of_several_outputs_those_that_read_other_columns_are_missed() -> None:
    columns = "j: a.x > b.x\nj: a.y > c.y\nk: b.x > d.x\nl: c.y > e.y"
    graph = "a > j > b c\nb > k > d\nc > l > e"
    assert missed(graph, columns, {"a": {"x"}}) == ({"a>j>c"}, set())
    assert missed(graph, columns, {"a": {"z"}}) == ({"a>j>b", "a>j>c"}, set())


def test_an_input_without_column_lineage_is_kept_though_others_have_it() -> None:
    """Producers leave out columns that only filter or join."""
    assert missed("a b > j > c", "j: b.y > c.y", {"a": {"x"}}) == (set(), {"j<a"})
    assert missed("a b > j > c", "j: b.y > c.y", {"b": {"x"}}) == ({"b>j>c"}, set())


def test_a_job_without_outputs_is_always_reached() -> None:
    assert missed("a > j > ", "", {"a": {"x"}}) == (set(), {"j<a"})


def test_a_change_of_all_columns_misses_nothing_and_is_not_blind() -> None:
    assert missed("a > j > b", "j: a.y > b.y", {"a": {ALL}}) == (set(), set())


def test_an_edge_from_the_whole_input_carries_any_column() -> None:
    assert missed("a > j > b", "j: a.* > b.n\nj: a.y > b.y", {"a": {"x"}}) == (set(), set())


def test_columns_meet_where_two_ways_join() -> None:
    columns = "j: r.x > a.x\nk: r.x > b.x\nm: a.y > c.y\nm: b.x > c.x"
    graph = "r > j > a\nr > k > b\na b > m > c"
    assert missed(graph, columns, {"r": {"x"}}) == ({"a>m>c"}, set())


def test_a_cycle_of_columns_comes_to_an_end() -> None:
    columns = "j: a.x > b.x\nk: b.x > a.y\nj: a.y > b.y"
    assert missed("a > j > b\nb > k > a", columns, {"a": {"x"}}) == (set(), set())


def test_what_is_reached_later_adds_to_what_was() -> None:
    """The second round brings column y to k, which the first had missed."""
    columns = "j: a.x > b.x\nj2: c.x > b.y\ni: a.x > c.x\nk: b.y > d.y"
    graph = "a > j > b\na > i > c\nc > j2 > b\nb > k > d"
    assert missed(graph, columns, {"a": {"x"}}) == (set(), set())
