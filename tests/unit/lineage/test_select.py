"""Selectors: which jobs a text means."""

from __future__ import annotations

import pytest

from lineage_backfill.errors import UnknownNameError, UsageError
from lineage_backfill.lineage.select import select
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef


def node(name: str, reads: str, writes: str, **rest: tuple[str, ...]) -> JobNode:
    def refs(text: str) -> tuple[DatasetRef, ...]:
        return tuple(DatasetRef("w", one) for one in text.split())

    return JobNode(ref=JobRef("w", name), reads=refs(reads), writes=refs(writes), **rest)  # type: ignore[arg-type]


SNAPSHOT = LineageSnapshot.of(
    [
        node("load_a", "raw_a", "a", tags=("daily", "finance"), owners=("team:data",)),
        node("load_b", "raw_b", "b", owners=("team:sales",)),
        node("join", "a b", "joined", tags=("finance-eu",)),
        node("report", "joined", "report"),
        node("mail", "report", "", tags=("daily",)),
        JobNode(ref=JobRef("spark:prod", "a[1]+b"), reads=(DatasetRef("w", "raw_b"),)),
    ],
    # No job writes it, so that its tag selects none.
    [DatasetNode(ref=DatasetRef("w", "raw_a"), tags=("vendor",))],
)
GRAPH = SNAPSHOT.graph()

CASES = [
    ("a job", "join", "join"),
    ("a job in full", "w:join", "join"),
    ("a glob", "load_*", "load_a load_b"),
    ("a glob over namespaces", "w:lo*", "load_a load_b"),
    ("a dataset means the jobs that write it", "joined", "join"),
    ("a job and a dataset of one name", "report", "report"),
    ("everything downstream", "join+", "join report mail"),
    ("one job downstream", "join+1", "join report"),
    ("nothing downstream", "join+0", "join"),
    ("more jobs downstream than there are", "join+999999999", "join report mail"),
    ("everything upstream", "+report", "report join load_a load_b"),
    ("one job upstream", "1+report", "report join"),
    ("both ways", "1+join+1", "load_a load_b join report"),
    ("downstream of a dataset that no job writes", "raw_a+", "load_a join report mail"),
    ("two jobs downstream of such a dataset", "raw_a+2", "load_a join"),
    ("downstream of a glob of datasets", "raw_?+1", "load_a load_b a[1]+b"),
    ("a tag", "tag:daily", "load_a mail"),
    ("a glob of tags", "tag:finance*", "load_a join"),
    ("an owner with a colon", "owner:team:data", "load_a"),
    ("a namespace", "ns:spark*", "a[1]+b"),
    ("a tag and what is below it", "tag:finance-eu+", "join report mail"),
    ("space around it", "  join  ", "join"),
    ("a name in which a glob's signs stand, in full", "spark:prod:a[1]+b", "a[1]+b"),
]


@pytest.mark.parametrize(("says", "text", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_a_selector_means_these_jobs(says: str, text: str, wanted: str) -> None:
    assert {job.name for job in select([text], GRAPH)} == set(wanted.split())


def test_several_selectors_are_joined_and_none_mean_nothing() -> None:
    assert {j.name for j in select(["mail", "load_a"], GRAPH)} == {"mail", "load_a"}
    assert select([], GRAPH) == set()


@pytest.mark.parametrize("text", ["nobody", "nobody+", "tag:none", "ns:none", "raw_a", "+raw_a"])
def test_a_selector_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        select([text], GRAPH)
    assert repr(text) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("lod_a+2", "Did you mean load_a or load_b?"),
        ("+joind", "Did you mean joined or join?"),
        ("tag:dayly", "Did you mean tag:daily?"),
        ("tag:vendors", "`lineage-backfill lineage show` lists all names. Quote a glob."),
        ("owner:team:date", "Did you mean owner:team:data or owner:team:sales?"),
        ("ns:spark_prod", "Did you mean ns:spark:prod?"),
        ("raw_a", "No job writes it. Its readers, and all downstream, are raw_a+"),
        ("zzzzz", "`lineage-backfill lineage show` lists all names. Quote a glob."),
    ],
)
def test_the_hint_says_what_to_write_instead(text: str, hint: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        select([text], GRAPH)
    assert caught.value.hint == hint


@pytest.mark.parametrize("text", ["", "+", "++", "2+", "  "])
def test_an_empty_selector_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read the selector"):
        select([text], GRAPH)
