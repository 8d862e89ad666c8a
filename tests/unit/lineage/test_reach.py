"""Which jobs have another downstream, and which tables other readers, by a naive definition."""

from __future__ import annotations

import random

import networkx as nx

from lineage_backfill.lineage.reach import Reach, changed_downstream, changed_readers
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef


def lineage(*edges: str) -> LineageSnapshot:
    """Build one of `job: reads > writes`, where each is a letter or more."""
    nodes = []
    for one in edges:
        job, _, rest = one.partition(":")
        reads, writes = (
            tuple(DatasetRef("n", x) for x in side.split()) for side in rest.split(">")
        )
        nodes.append(JobNode(ref=JobRef("n", job), reads=reads, writes=writes))
    return LineageSnapshot.of(nodes)


def jobs(names: str) -> tuple[JobRef, ...]:
    return tuple(JobRef("n", name) for name in names.split())


BEFORE = ("one: > a", "two: a > b", "three: b > c", "other: > x")


def test_a_new_reader_far_below_is_told_of_every_job_above_it() -> None:
    found = BEFORE, (*BEFORE[:3], "other: c > x")
    before, after = (lineage(*edges) for edges in found)
    assert changed_downstream(before, after) == tuple(
        Reach(ref=JobRef("n", name), added=jobs("other")) for name in ("one", "three", "two")
    )
    assert changed_readers(before, after) == (Reach(ref=DatasetRef("n", "c"), added=jobs("other")),)
    assert changed_downstream(after, before)[0].removed == jobs("other")


def test_another_way_to_the_same_jobs_changes_no_downstream() -> None:
    after = lineage(*BEFORE[:2], "three: a b > c", "other: > x")
    assert changed_downstream(lineage(*BEFORE), after) == ()
    assert changed_readers(lineage(*BEFORE), after) == (
        Reach(ref=DatasetRef("n", "a"), added=jobs("three")),
    )


def naive(before: LineageSnapshot, after: LineageSnapshot) -> tuple[Reach, ...]:
    found = []
    for ref in sorted(before.jobs.keys() & after.jobs.keys()):
        old, new = (
            {x for x in nx.descendants(one.graph(), ref) if isinstance(x, JobRef)}
            for one in (before, after)
        )
        if old != new:
            added, removed = (tuple(sorted(some)) for some in (new - old, old - new))
            found.append(Reach(ref=ref, added=added, removed=removed))
    return tuple(found)


def drawn(dice: random.Random) -> LineageSnapshot:
    def some() -> tuple[DatasetRef, ...]:
        return tuple(sorted({DatasetRef("n", dice.choice("abcdefg")) for _ in range(2)}))

    numbers = dice.sample(range(9), 7)
    nodes = [JobNode(ref=JobRef("n", f"j{n}"), reads=some(), writes=some()) for n in numbers]
    datasets = [DatasetNode(ref=DatasetRef("n", name)) for name in "abcdefg"]
    return LineageSnapshot.of(nodes, datasets)


def test_it_is_what_the_descendants_in_both_say_in_cycles_too() -> None:
    dice, differing = random.Random(4), 0
    for _ in range(300):
        before, after = drawn(dice), drawn(dice)
        expected = naive(before, after)
        assert changed_downstream(before, after) == expected
        differing += bool(expected)
    assert differing > 100
