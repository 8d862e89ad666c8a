"""What only a person can know is asked once, with the lines that answer it."""

from __future__ import annotations

from datetime import timedelta

from lineage_backfill.critic.questions import Question, questions
from lineage_backfill.lineage.snapshot import (
    DatasetNode,
    JobNode,
    LineageSnapshot,
    ObservedRun,
)
from lineage_backfill.model import DatasetRef
from lineage_backfill.project.declarations import (
    Declarations,
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
)
from tests.unit.planning.world import NOW, dataset, job, lineage


def asked(days: dict[str, tuple[int, int]], edges: str) -> list[Question]:
    """Return the questions on jobs that ran daily, from and to so many days ago."""
    history = tuple(
        ObservedRun(
            job=job(name),
            run_id=f"{name} {day}",
            state="COMPLETE",
            started_at=(at := NOW - timedelta(days=day)),
            ended_at=at + timedelta(minutes=1),
        )
        for name, (first, last) in days.items()
        for day in range(first, last - 1, -1)
    )
    return list(questions(lineage(edges, history=history), Declarations()))


def test_a_job_that_ended_before_one_with_its_edges_began_may_be_replaced_by_it() -> None:
    edges = "raw > load > clean\nraw > group.load > clean"
    (question,) = asked({"load": (9, 5), "group.load": (4, 1)}, edges)
    assert question.text == "does w:group.load replace w:load, which ran last before it began?"
    assert question.lines[2:] == ('name = "group.load"', 'replaces = "load"')
    assert asked({"load": (9, 3), "group.load": (4, 1)}, edges) == []
    other = "raw > load > clean\nrates > group.load > clean"
    assert asked({"load": (9, 5), "group.load": (4, 1)}, other) == []


def test_declared_edges_answer_what_the_lineage_lost() -> None:
    lost = LineageSnapshot.of(
        [
            JobNode(ref=job("upsert"), writes=(dataset("a"),), modes=((dataset("a"), "merge"),)),
            JobNode(ref=job("insert"), names_nothing=True),
            JobNode(ref=job("sink"), reads=(dataset("a"),), processing="STREAM"),
        ]
    )
    kinds = {one.jobs[0].name: one.kind for one in questions(lost, Declarations())}
    assert kinds == {"sink": "outputs", "upsert": "sources", "insert": "sources"}
    declared = [
        JobDeclaration(
            name="*", reads=(ReadDeclaration(dataset="b"),), writes=(WriteDeclaration(dataset="c"),)
        )
    ]
    assert not questions(lost, Declarations(jobs=tuple(declared)))


def test_a_table_is_asked_about_by_all_of_its_names() -> None:
    folder = DatasetRef("abfss://c@a.dfs.core.windows.net", "__unitystorage/tables/1f")
    read = DatasetRef("databricks://adb-1", "main.sales.orders")
    shown = LineageSnapshot.of(
        [JobNode(ref=job("load"), writes=(folder,)), JobNode(ref=job("sum"), reads=(read,))],
        [DatasetNode(ref=folder, aliases=(DatasetRef("unitycatalog://a", read.name),))],
    )
    (question,) = questions(shown, Declarations())
    assert question.written == (folder,)
