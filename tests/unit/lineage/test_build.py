"""Events become a snapshot by one rule, whatever their order and however often they arrive."""

from __future__ import annotations

import gc
import itertools
import weakref
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.events.build import RARE_RUN_FACETS, BuildLimits, LineageBuilder
from lineage_backfill.lineage.events.event import DatasetFacets, JobFacets, RunFacets
from lineage_backfill.lineage.events.folded import OF_DATASETS, OF_JOBS
from lineage_backfill.lineage.identity.merge import fold_children
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef

Event = dict[str, Any]
SIDES = ("reads", "writes")


def event(
    kind: str | None,
    minute: int,
    *,
    run: str | None = "r1",
    job: str = "etl",
    reads: str = "",
    writes: str = "",
    facets: dict[str, Any] | None = None,
    **more: Any,
) -> Event:
    """One event at 2024-01-01T00:minute; datasets are named by words."""
    made: Event = {
        "eventType": kind,
        "eventTime": f"2024-01-01T00:{minute:02d}:00Z",
        "job": {"namespace": "n", "name": job},
        "inputs": [{"namespace": "d", "name": name} for name in reads.split()],
        "outputs": [{"namespace": "d", "name": name} for name in writes.split()],
    }
    if run is not None:
        made["run"] = {"runId": run, "facets": facets or {}}
    return made | more


def build(*events: Event) -> LineageSnapshot:
    builder = LineageBuilder()
    for one in events:
        builder.add(one)
    return builder.snapshot()


def node(snapshot: LineageSnapshot, job: str = "etl") -> JobNode:
    return snapshot.jobs[JobRef("n", job)]


def words(refs: tuple[DatasetRef | JobRef, ...]) -> str:
    return " ".join(ref.name for ref in refs)


COMPLETE = event("COMPLETE", 10, reads="a b", writes="c")


@pytest.mark.parametrize(
    ("case", "events", "edges", "former"),
    [
        ("one run", [COMPLETE], "a b > c", ""),
        (
            "all events of a run are put together",
            [event("START", 1, reads="a"), event("RUNNING", 2, writes="c"), event("COMPLETE", 3)],
            "a > c",
            "",
        ),
        ("a START without datasets", [COMPLETE, event("START", 20, run="r2")], "a b > c", ""),
        ("a heartbeat without", [COMPLETE, event("RUNNING", 20, run="r2")], "a b > c", ""),
        (
            "a later unfinished run adds",
            [COMPLETE, event("START", 20, run="r2", reads="x")],
            "a b x > c",
            "",
        ),
        (
            "an unfinished run from before does not",
            [COMPLETE, event("START", 5, run="r2", reads="x")],
            "a b > c",
            "x >",
        ),
        (
            "a failed run takes nothing away",
            [COMPLETE, event("FAIL", 20, run="r2", reads="a")],
            "a b > c",
            "",
        ),
        (
            "an aborted run redefines nothing",
            [COMPLETE, event("ABORT", 20, run="r2", writes="tmp")],
            "a b > c",
            "> tmp",
        ),
        (
            "a newer completed run replaces",
            [COMPLETE, event("COMPLETE", 20, run="r2", reads="b", writes="c")],
            "b > c",
            "a >",
        ),
        (
            "an old run that arrives late does not",
            [event("COMPLETE", 20, run="r2", reads="b", writes="c"), COMPLETE],
            "b > c",
            "a >",
        ),
        ("a heartbeat after the end", [COMPLETE, event("RUNNING", 20)], "a b > c", ""),
        (
            "a retry under the same run id",
            [event("FAIL", 5), event("START", 6, reads="a"), event("COMPLETE", 7, writes="c")],
            "a > c",
            "",
        ),
        ("a first run that is not finished", [event("START", 1, reads="a")], "a >", ""),
        ("only ever failed", [event("FAIL", 1, reads="a", writes="c")], ">", "a > c"),
        ("no event type is no end", [event(None, 1, reads="a")], "a >", ""),
        ("a job event counts", [event(None, 1, run=None, reads="a", writes="c")], "a > c", ""),
        (
            "a START leaves a job event's edges",
            [event(None, 1, run=None, reads="a"), event("START", 2)],
            "a >",
            "",
        ),
        (
            "a later run replaces a job event",
            [event(None, 1, run=None, reads="a"), event("COMPLETE", 2, reads="b")],
            "b >",
            "a >",
        ),
        (
            "absent members may be null",
            [event("COMPLETE", 1, reads="a", outputs=None, producer=None)],
            "a >",
            "",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_the_edge_rule(case: str, events: list[Event], edges: str, former: str) -> None:
    etl = node(build(*events))
    assert f"{words(etl.reads)} > {words(etl.writes)}".strip() == edges
    was = f"{words(etl.former_reads)} > {words(etl.former_writes)}".strip()
    assert was == (former or ">")


def action(kind: str, minute: int, run: str, parent: str, **more: Any) -> Event:
    """An event of an action, as Spark's listener sends it: `run` is one of its application's."""
    names = {"job": {"namespace": "n", "name": "app"}, "run": {"runId": parent}}
    root = {"job": {"namespace": "n", "name": "dag"}, "run": {"runId": "root"}}
    return event(kind, minute, run=run, facets={"parent": {**names, "root": root}}, **more)


def sides(one: Event) -> list[tuple[str, str]]:
    """What an event names, with the side that names it."""
    members = (("reads", "inputs"), ("writes", "outputs"))
    return [(side, item["name"]) for side, member in members for item in one[member]]


def is_failed(own: list[Event]) -> bool:
    """Whether a run ended so, by its events in order."""
    return bool(own[-1]["eventType"] == "FAIL")


def application(kind: str, minute: int, run: str) -> Event:
    """An event of the application itself."""
    return event(kind, minute, run=run, job="app")


@pytest.mark.parametrize(
    ("case", "events", "edges", "former"),
    [
        (
            "another run of the application replaces",
            [
                action("COMPLETE", 1, "r1", "p1", reads="a", writes="t"),
                action("COMPLETE", 2, "r2", "p1", reads="b", writes="t"),
                action("COMPLETE", 3, "r3", "p2", reads="c", writes="t"),
                action("COMPLETE", 4, "r4", "p2", reads="a", writes="t"),
            ],
            "a c > t",
            "b >",
        ),
        (
            "an application that failed takes nothing away",
            [
                *(application("START", 0, "p1"), application("COMPLETE", 3, "p1")),
                action("COMPLETE", 1, "r1", "p1", reads="a", writes="t"),
                action("COMPLETE", 2, "r2", "p1", reads="b", writes="t"),
                *(application("START", 4, "p2"), application("FAIL", 6, "p2")),
                action("COMPLETE", 5, "r3", "p2", reads="a c", writes="t"),
            ],
            "a b c > t",
            "",
        ),
        (
            "an action that was tried again is whole",
            [
                action("COMPLETE", 1, "r1", "p1", reads="b", writes="t"),
                action("FAIL", 2, "r2", "p2", reads="a", writes="t"),
                action("COMPLETE", 3, "r3", "p2", reads="a", writes="t"),
            ],
            "a > t",
            "b >",
        ),
        (
            "a run that is the parent of others is one with them",
            [
                action("COMPLETE", 1, "r1", "p1", reads="a", writes="t"),
                event("COMPLETE", 2, run="p1"),
            ],
            "a > t",
            "",
        ),
        (
            "a job event later than all of them",
            [
                action("COMPLETE", 1, "r1", "p1", reads="a", writes="t"),
                action("COMPLETE", 2, "r2", "p1", reads="b", writes="t"),
                event(None, 3, run=None, reads="c"),
            ],
            "c >",
            "a b > t",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_runs_under_one_parent_run_are_one(
    case: str, events: list[Event], edges: str, former: str
) -> None:
    every = 1 if len(events) < 6 else 23
    for some in itertools.islice(itertools.permutations(events), 0, None, every):
        etl = node(build(*some))
        assert f"{words(etl.reads)} > {words(etl.writes)}".strip() == edges
        was = f"{words(etl.former_reads)} > {words(etl.former_writes)}".strip()
        assert was == (former or ">")


@pytest.mark.parametrize("run", [None, "x", [], {}, {"runId": None}, {"runId": ["x"]}])
def test_a_parent_without_a_run_id_unites_nothing(run: Any) -> None:
    facets = {"parent": {"job": {"namespace": "n", "name": "app"}, "run": run}}
    made = [event("COMPLETE", at, run=f"r{at}", reads=f"a{at}", facets=facets) for at in (1, 2)]
    assert words(node(build(*made)).reads) == "a2"


@settings(max_examples=400)
@given(st.data())
def test_edges_are_those_of_the_naive_definition(data: st.DataObject) -> None:
    """Put the events of a run together, then the runs under one parent, and look at the last."""
    parents = {run: data.draw(st.sampled_from(["p1", "p2", None])) for run in ("r1", "r2", "r3")}
    events = []
    for minute in range(data.draw(st.integers(1, 10))):
        run = data.draw(st.sampled_from(sorted(parents)))
        kind = data.draw(st.sampled_from(["START", "RUNNING", "COMPLETE", "FAIL"]))
        names: Event = {side: data.draw(st.sampled_from(["", "a", "b", "c"])) for side in SIDES}
        parent = parents[run]
        if parent is None:
            events.append(event(kind, minute, run=run, **names))
        else:
            events.append(action(kind, minute, run, parent, **names))
    kinds_of = {"p1": data.draw(st.sampled_from(["", "START", "START COMPLETE", "START FAIL"]))}
    kinds_of["p2"] = data.draw(st.sampled_from(["", "START COMPLETE"]))
    told = [
        application(kind, 20 + at, parent)
        for parent, kinds in kinds_of.items()
        for at, kind in enumerate(kinds.split())
    ]
    expected = {side: set[str]() for side in SIDES}
    groups: dict[str, list[list[Event]]] = {}
    for run in sorted({one["run"]["runId"] for one in events}):
        own = [one for one in events if one["run"]["runId"] == run]
        groups.setdefault(parents[run] or run, []).append(own)
    is_shared = any(len(runs) > 1 for runs in groups.values())

    def is_of(own: list[Event], kind: str) -> bool:
        return kind in [one["eventType"] for one in own]

    def named(runs: list[list[Event]]) -> set[tuple[str, str]]:
        items = ((side, item) for own in runs for one in own for side, item in sides(one))
        return set(items)

    def is_whole(group: str) -> bool:
        if is_shared and kinds_of.get(group):
            return "COMPLETE" in kinds_of[group]
        runs = groups[group]
        failed = [own for own in runs if not is_of(own, "COMPLETE") and is_failed(own)]
        return named(failed) <= named([own for own in runs if is_of(own, "COMPLETE")])

    def completed(group: str) -> str:
        ends = (one for own in groups[group] for one in own if one["eventType"] == "COMPLETE")
        return max((one["eventTime"] for one in ends), default="")

    whole = [group for group in groups if completed(group) and is_whole(group)]
    last = max(whole, key=completed, default="")
    ended = completed(last) if whole else ""
    for group, runs in groups.items():
        counted = [own for own in runs if is_of(own, "COMPLETE") or not is_failed(own)]
        is_later = any(
            own[-1]["eventTime"] > ended and not (is_of(own, "COMPLETE") and is_whole(group))
            for own in counted
        )
        if is_later or group == last:
            for side, name in named(counted):
                expected[side].add(name)
    events += told
    etl = node(build(*data.draw(st.permutations(events))))
    assert {side: set(words(getattr(etl, side)).split()) for side in SIDES} == expected
    ever = {item["name"] for one in events for item in one["inputs"]}
    assert set(words(etl.former_reads).split()) == ever - expected["reads"]


def test_columns_of_united_runs_are_united_unless_one_of_them_sends_none() -> None:
    def append(minute: int, reads: str, facets: dict[str, Any]) -> Event:
        made = action("COMPLETE", minute, f"r{minute}", "p", reads=reads, writes="t")
        made["outputs"][0]["facets"] = facets
        return made

    def inputs(*events: Event) -> set[str]:
        return {edge.input.name for edge in build(*events).column_edges}

    of_a, of_b = append(1, "a", lineage("a", "x")), append(2, "b", lineage("b", "x"))
    assert inputs(of_a, of_b) == {"a", "b"}
    # What is not told apart in one run may need any column: the reader is kept.
    assert inputs(of_a, append(2, "a b", lineage("b", "x"))) == {"b"}
    assert inputs(of_a, append(2, "a", {})) == set()
    assert inputs(of_a, append(2, "b", {})) == {"a"}


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ({"key": 5}, ("5",)),
        ({"key": "tier", "value": 1}, ("tier=1",)),
        ({"key": "gold", "value": True}, ("gold",)),
        ({"key": "gold", "value": False}, ("gold=false",)),
        ({"key": None}, ()),
        ({"key": ["x"]}, ()),
        ({"key": "x", "value": {"a": 1}}, ()),
    ],
)
def test_tags_that_are_no_texts_become_texts_or_are_reported(
    tag: dict[str, Any], expected: tuple[str, ...]
) -> None:
    made = event("COMPLETE", 1, writes="a")
    made["outputs"][0]["facets"] = {"tags": {"tags": [tag]}}
    snapshot = build(made)
    assert snapshot.datasets[DatasetRef("d", "a")].tags == expected
    said = () if expected else ("d:a: facet `tags` cannot be read; left out",)
    assert snapshot.warnings == said


def test_a_completed_run_without_datasets_clears_the_edges_and_is_reported() -> None:
    snapshot = build(COMPLETE, event("COMPLETE", 20, run="r2"))
    assert (node(snapshot).reads, words(node(snapshot).former_reads)) == ((), "a b")
    assert any("n:etl named no datasets" in warning for warning in snapshot.warnings)


def schema(*names: str) -> dict[str, Any]:
    return {"schema": {"fields": [{"name": name, "type": "INT"} for name in names]}}


def lineage(source: str, column: str, kind: str = "DIRECT") -> dict[str, Any]:
    item = {"namespace": "d", "name": source, "field": column}
    return {
        "columnLineage": {
            "fields": {column: {"inputFields": [item | {"transformations": [{"type": kind}]}]}}
        }
    }


RUN_FACETS: list[dict[str, Any]] = [
    {},
    {"nominalTime": {"nominalStartTime": "2024-01-01T00:00:00Z"}},
    {"nominalTime": {"nominalStartTime": "2024-01-02T00:00:00Z"}},
    {"parent": {"run": {}, "job": {"namespace": "n", "name": "load"}}},
    {"parent": {"run": {}, "job": {"namespace": "n", "name": "dag"}}},
    {"parent": {"run": {"runId": "p1"}, "job": {"namespace": "n", "name": "dag"}}},
    {"parent": {"run": {"runId": "p2"}, "job": {"namespace": "n", "name": "dag"}}},
    {"airflow": {"dagRun": {"partition_key": "k1"}}},
]


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    names = st.sampled_from(["", "a", "b", "a b", "c"])
    events = []
    for _ in range(draw(st.integers(1, 12))):
        made = event(
            draw(st.sampled_from(["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", None])),
            draw(st.integers(0, 4)),
            run=draw(st.sampled_from(["r1", "r2", "r3", None])),
            job=draw(st.sampled_from(["etl", "load"])),
            reads=draw(names),
            writes=draw(names),
            facets=draw(st.sampled_from(RUN_FACETS)),
        )
        for output in made["outputs"]:
            output["facets"] = draw(
                st.sampled_from(
                    [
                        {},
                        schema("x"),
                        schema("x", "y"),
                        lineage("a", "x"),
                        lineage("b", "x", "INDIRECT"),
                        {"symlinks": {"identifiers": [{"namespace": "d", "name": "alias"}]}},
                        {"symlinks": {"identifiers": [{"namespace": "d", "name": "a"}]}},
                    ]
                )
            )
        events.append(made)
    return events


@settings(max_examples=200)
@given(histories(), st.data())
def test_no_order_and_no_repetition_changes_the_snapshot(
    events: list[Event], data: st.DataObject
) -> None:
    again = data.draw(st.permutations(events + events[: len(events) // 2]))
    one, other = build(*events), build(*again)
    assert one.jobs == other.jobs
    assert one.datasets == other.datasets
    assert one.column_edges == other.column_edges
    assert one.history == other.history
    assert one.warnings == other.warnings
    assert one.content_hash == other.content_hash


def test_what_looks_equal_to_python_is_still_told_anew() -> None:
    def told(lag: float, minute: int) -> Event:
        made = event("COMPLETE", minute, run=f"r{minute}", writes="c")
        made["outputs"][0]["facets"] = {"lineageBackfill_partitioning": {"lag": lag}}
        return made

    builder = LineageBuilder()
    builder.add(told(1, 1))
    builder.add(told(1.0, 2))
    assert builder.snapshot().content_hash == build(told(1, 1), told(1.0, 2)).content_hash
    orders = build(told(1, 1), told(1.0, 1)), build(told(1.0, 1), told(1, 1))
    assert orders[0].content_hash == orders[1].content_hash


@pytest.mark.parametrize(
    "nothing", [{"fields": []}, {"_deleted": True}, {"fields": 3}, {"_producer": "p"}]
)
def test_of_two_facets_of_one_time_the_one_that_says_something_counts(nothing: Any) -> None:
    made = event("COMPLETE", 1, reads="a", writes="a")
    made["inputs"][0]["facets"], made["outputs"][0]["facets"] = {"schema": nothing}, schema("x")
    assert build(made).datasets[DatasetRef("d", "a")].fields == ("x",)
    made["inputs"], made["outputs"] = made["outputs"], made["inputs"]
    assert build(made).datasets[DatasetRef("d", "a")].fields == ("x",)


def test_what_was_folded_is_let_go_of_with_its_builder() -> None:
    builder = LineageBuilder()
    builder.add(event("COMPLETE", 1, reads="a", writes="c"))
    builder.snapshot()
    job = builder._jobs["n", "etl"]
    gone = weakref.ref(builder)
    gc.disable()
    try:
        del builder
        assert gone() is None
        assert len(gc.get_referrers(job)) == 0
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("facets", "names"),
    [
        (JobFacets, set(OF_JOBS)),
        (DatasetFacets, {*OF_DATASETS, "symlinks", "lifecycleStateChange", "columnLineage"}),
        (
            RunFacets,
            {
                *RARE_RUN_FACETS,
                *("errorMessage", "nominalTime", "processing_engine", "spark_version"),
            },
        ),
    ],
)
def test_no_facet_that_is_read_is_left_out_by_who_parses(facets: Any, names: set[str]) -> None:
    assert set(facets.__annotations__) == names


def test_facets_of_jobs_and_datasets_the_newest_wins() -> None:
    def job(**facets: Any) -> dict[str, Any]:
        return {"job": {"namespace": "n", "name": "etl", "facets": facets}}

    old = event("COMPLETE", 1, writes="c") | job(
        ownership={"owners": [{"name": "team:old"}]},
        jobType={"processingType": "STREAMING", "integration": "SPARK"},
        tags={"tags": [{"key": "gold", "value": "true"}, {"key": "tier", "value": "1"}]},
        sql={"query": " " + "x" * 30_000},
        lineageBackfill_partitioning={"_producer": "p", "run": {"grain": "day"}},
    )
    old["outputs"][0]["facets"] = schema("a", "b") | {
        "ownership": {"owners": [{"name": "o"}]},
        "tags": {"tags": [{"key": "pii", "value": "", "field": "a"}, {"key": "mart"}]},
        "lineageBackfill_partitioning": {"_producer": "p", "grain": "hour"},
    }
    new = event("COMPLETE", 2, writes="c") | job(ownership={"owners": [{"name": "team:new"}]})
    new["outputs"][0]["facets"] = schema("a", "b", "c") | {"ownership": {"_deleted": True}}
    snapshot = build(new, old)
    etl, dataset = node(snapshot), snapshot.datasets[DatasetRef("d", "c")]
    assert (etl.owners, etl.processing, etl.tags) == (("team:new",), "STREAM", ("gold", "tier=1"))
    assert (etl.partitioning, etl.query) == ({"run": {"grain": "day"}}, "x" * 20_000 + "…")
    assert (dataset.fields, dataset.owners, dataset.tags) == (("a", "b", "c"), (), ("mart",))
    assert dataset.partitioning == {"grain": "hour"}


def test_a_facet_that_is_null_takes_nothing_away() -> None:
    link = {"identifiers": [{"namespace": "n", "name": "other", "type": "TABLE"}]}
    builder = LineageBuilder()
    for second, facet in ((1, link), (2, None)):
        item = {"namespace": "n", "name": "table", "facets": {"symlinks": facet}}
        builder.add({"eventTime": f"2024-01-01T00:00:0{second}Z", "dataset": item})
    (node,) = builder.snapshot().datasets.values()
    assert {ref.name for ref in (node.ref, *node.aliases)} == {"table", "other"}


def test_a_dataset_event_speaks_of_a_dataset_alone() -> None:
    snapshot = build(
        {
            "eventTime": "2024-01-01T00:00:00Z",
            "dataset": {"namespace": "d", "name": "c", "facets": schema("x")},
        }
    )
    assert snapshot.datasets[DatasetRef("d", "c")].fields == ("x",)
    assert not snapshot.jobs


def test_a_facet_of_the_wrong_shape_is_reported_and_left_out() -> None:
    made = event("COMPLETE", 1, writes="c", reads="a")
    made["outputs"][0]["facets"] = {"schema": "none", "columnLineage": {"fields": {"x": 3}}}
    snapshot = build(made)
    assert snapshot.datasets[DatasetRef("d", "c")].fields == ()
    assert words(node(snapshot).reads) == "a"
    assert len(snapshot.warnings) == 2


def test_column_lineage_of_the_current_run_in_its_old_and_new_forms() -> None:
    def field(name: str, *kinds: str) -> dict[str, Any]:
        item: dict[str, Any] = {"namespace": "d", "name": "a", "field": name}
        told = [dict(zip(("type", "subtype"), kind.split(), strict=False)) for kind in kinds]
        return item | {"transformations": told} if kinds else item

    older = event("COMPLETE", 1, run="r0", reads="a", writes="c")
    older["outputs"][0]["facets"] = lineage("a", "gone")
    new = event("COMPLETE", 2, reads="a", writes="c")
    new["outputs"][0]["facets"] = {
        "columnLineage": {
            "fields": {
                "x": {"inputFields": [field("p"), field("q", "INDIRECT", "DIRECT")]},
                "y": {"inputFields": [field("r")], "transformationType": "INDIRECT"},
                "z": {
                    "inputFields": [
                        field("f", "INDIRECT FILTER"),
                        field("g", "INDIRECT GROUP_BY", "INDIRECT WINDOW"),
                        field("i", "INDIRECT CONDITIONAL"),
                        field("j", "INDIRECT JOIN"),
                    ]
                },
            },
            "dataset": [field("t", "INDIRECT SORT")],
        }
    }
    edges = build(older, new).column_edges
    assert [(e.input_column, e.output_column, e.direct) for e in edges] == [
        ("f", "*", False),
        ("g", "*", False),
        ("g", "z", False),
        ("i", "z", False),
        ("j", "*", False),
        ("p", "x", True),
        ("q", "*", False),
        ("q", "x", True),
        ("r", "*", False),
        ("t", "*", False),
    ]


def test_names_of_one_dataset_are_joined_also_when_the_link_comes_too_late() -> None:
    link = {"symlinks": {"identifiers": [{"namespace": "d", "name": "db.t", "type": "TABLE"}]}}
    reader = event("COMPLETE", 1, job="reader", reads="db.t")
    early = event("COMPLETE", 2, run="w0", job="writer", writes="path/t")
    late = event("COMPLETE", 3, run="w1", job="writer", writes="path/t")
    late["outputs"][0]["facets"] = link
    snapshot = build(reader, early, late)
    table = DatasetRef("d", "path/t")
    assert node(snapshot, "reader").reads == node(snapshot, "writer").writes == (table,)
    assert snapshot.datasets[table].aliases == (DatasetRef("d", "db.t"),)
    assert DatasetRef("d", "db.t") not in snapshot.datasets


@pytest.mark.parametrize(
    ("facets", "start", "key"),
    [
        ({"nominalTime": {"nominalStartTime": "2024-02-01T00:00Z[UTC]"}}, "2024-02-01", None),
        (
            {"nominalTime": {"nominalStartTime": "2024-02-01", "nominalEndTime": None}},
            "2024-02-01",
            None,
        ),
        ({"nominalTime": {"nominalStartTime": "soon"}}, None, None),
        (
            {"airflow": {"dagRun": {"data_interval_start": "2024-02-01T00:00:00+00:00"}}},
            "2024-02-01",
            None,
        ),
        ({"airflowDagRun": {"dagRun": {"partition_key": "eu"}}}, None, "eu"),
        ({"airflow": {"dagRun": {"partition_date": "2024-02-01"}}}, None, "2024-02-01"),
        (
            {"airflow": {"dagRun": {"run_type": "manual", "data_interval_start": "2024-02-01"}}},
            None,
            None,
        ),
        ({"lineageBackfill_run": {"keys": ["2024-02-01"]}}, None, "2024-02-01"),
        (
            {"lineageBackfill_run": {"keys": ["2024-02-01..2024-02-03", "2024-02-09"]}},
            None,
            "2024-02-01..2024-02-03,2024-02-09",
        ),
        (
            {
                "lineageBackfill_run": {
                    "keys": [{"day": ["2024-02-01..2024-02-03"], "at": ["a", "b,"]}]
                }
            },
            None,
            "day=2024-02-01..2024-02-03/at=a,day=2024-02-01..2024-02-03/at=b%2C",
        ),
        ({"lineageBackfill_run": {"keys": [{"day": "2024-02-01"}, 3]}}, None, None),
        ({"airflow": "?", "nominalTime": 3}, None, None),
    ],
)
def test_what_a_run_says_of_its_partition(
    facets: dict[str, Any], start: str | None, key: str | None
) -> None:
    snapshot = build(event("START", 1, facets=facets), event("COMPLETE", 5))
    (run,) = snapshot.history
    assert (run.state, run.run_id) == ("COMPLETE", "r1")
    assert run.started_at == datetime(2024, 1, 1, 0, 1, tzinfo=UTC)
    assert run.ended_at == datetime(2024, 1, 1, 0, 5, tzinfo=UTC)
    assert (run.nominal_start and run.nominal_start.date().isoformat()) == start
    assert run.partition_key == key


def test_history_names_every_state() -> None:
    runs = [event("START", 1, run="1")]
    runs += [event(kind, 2, run=kind) for kind in ("COMPLETE", "FAIL", "ABORT")]
    states = {run.run_id: (run.state, run.ended_at is None) for run in build(*runs).history}
    assert states == {
        "1": ("RUNNING", True),
        "COMPLETE": ("COMPLETE", False),
        "FAIL": ("FAIL", False),
        "ABORT": ("ABORT", False),
    }


@pytest.mark.parametrize(
    ("sentence", "first", "second", "state"),
    [
        ("a later try of the same slice", {"day": 1}, {"day": 1}, "ABORT"),
        ("a run of another slice", {"day": 1}, {"day": 2}, "RUNNING"),
        ("a later try in the same parent run", {"parent": "p"}, {"parent": "p"}, "ABORT"),
        ("a run of another parent run", {"parent": "p"}, {"parent": "q"}, "RUNNING"),
        ("another instance of a mapped task", {"day": 1, "n": 0}, {"day": 1, "n": 1}, "RUNNING"),
        ("a run that tells nothing of its slice", {}, {}, "RUNNING"),
    ],
)
def test_a_later_try_that_has_completed_ends_one_without_an_end(
    sentence: str, first: dict[str, Any], second: dict[str, Any], state: str
) -> None:
    def facets(day: int = 0, parent: str = "", n: int = -1) -> Any:
        job = {"namespace": "n", "name": "dag"}
        ends = {f"nominal{end}Time": f"2024-01-0{day or 1}T00:00:00Z" for end in ("Start", "End")}
        return {
            **({"nominalTime": ends} if day else {}),
            **({"parent": {"run": {"runId": parent}, "job": job}} if parent else {}),
            **({"airflow": {"taskInstance": {"map_index": n}}} if n >= 0 else {}),
        }

    start = event("START", 1, run="dead", facets=facets(**first))
    later = [event(kind, at, run="late", facets=facets(**second)) for kind, at in LATER_TRY]
    runs = {run.run_id: run for run in build(start, *later).history}
    assert runs["dead"].state == state, sentence
    assert (runs["dead"].ended_at == runs["late"].started_at) == (state == "ABORT")
    alive = event("RUNNING", 7, run="dead", facets=facets(**first))
    still = {run.run_id: run.state for run in build(start, *later, alive).history}
    assert still == {"dead": "RUNNING", "late": "COMPLETE"}, sentence


LATER_TRY = (("START", 5), ("COMPLETE", 6))


def child(job: str, parent: str, **more: Any) -> Event:
    facet = {"parent": {"run": {"runId": "p"}, "job": {"namespace": "n", "name": parent}}}
    return event("COMPLETE", 1, job=job, facets=facet, **more)


def test_children_keep_their_parent_and_a_ring_of_parents_is_cut() -> None:
    snapshot = build(child("dag.a", "dag", reads="x"), child("p", "q"), child("q", "p"))
    assert node(snapshot, "dag.a").parent == JobRef("n", "dag")
    assert node(snapshot, "dag") == JobNode(ref=JobRef("n", "dag"))
    assert (node(snapshot, "p").parent, node(snapshot, "q").parent) == (None, None)


def test_children_fold_into_the_parent_that_is_run() -> None:
    snapshot = build(
        child("dag.extract", "dag", reads="raw", writes="staged"),
        child("dag.load", "dag", reads="staged state", writes="mart state"),
        child("dag.load.app", "dag.load", writes="log"),
        event("COMPLETE", 1, job="other", reads="mart"),
    )
    folded = fold_children(snapshot, [JobRef("n", "dag")])
    dag = node(folded, "dag")
    # What one task hands to the next is no input of the whole; its own state is.
    assert (words(dag.reads), words(dag.writes)) == ("raw state", "log mart staged state")
    assert sorted(ref.name for ref in folded.jobs) == ["dag", "other"]
    assert words(dag.inner) == "staged"


def test_folding_keeps_former_edges() -> None:
    snapshot = build(
        child("dag.load", "dag", reads="old staged", writes="gone"),
        child("dag.load", "dag", reads="raw", writes="mart", eventTime="2024-01-01T00:02:00Z")
        | {"run": {"runId": "r2"}},
        child("dag.stage", "dag", writes="staged mart"),
    )
    dag = node(fold_children(snapshot, [JobRef("n", "dag")]), "dag")
    assert (words(dag.reads), words(dag.writes)) == ("raw", "mart staged")
    # What it read of its own before is no input either.
    assert (words(dag.former_reads), words(dag.former_writes)) == ("old", "gone")


def test_folding_keeps_columns_only_where_they_are_told_all_the_way() -> None:
    def step(job: str, reads: str, writes: str, source: str = "") -> Event:
        made = child(job, "dag", reads=reads, writes=writes)
        made["outputs"][0]["facets"] = lineage(source, "x") if source else {}
        return made

    def inputs(*events: Event) -> set[str]:
        folded = fold_children(build(*events), [JobRef("n", "dag")])
        return {edge.input.name for edge in folded.column_edges}

    assert inputs(step("dag.a", "a", "t", "a"), step("dag.b", "b", "u", "b")) == {"a", "b"}
    assert inputs(step("dag.a", "a", "t", "a"), step("dag.b", "a", "u")) == set()
    # `a` goes on into `u` by `t`, which is not followed.
    assert inputs(step("dag.a", "a", "t", "a"), step("dag.b", "t", "u", "t")) == {"t"}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (3, "not an OpenLineage event: it is not a JSON object"),
        ({}, "`eventTime` is missing"),
        ({"eventTime": "2024-01-01T00:00:00Z"}, "`dataset` is missing"),
        (
            event("START", 1) | {"eventTime": "yesterday"},
            "a value has an unknown form: .*yesterday",
        ),
        (event("START", 1, job=""), "a job without a name, in namespace 'n'"),
        (event("START", 1, job="x" * 10_000), "10000 characters"),
        (event("START", 1, job="a\x1b[31mb"), "control characters, in namespace 'n'"),
        (event("START", 1) | {"run": {}}, "`runId` is missing"),
        (event("START", 1) | {"run": {"runId": ["x"]}}, "unhashable"),
        (event("START", 1) | {"inputs": [{"name": "a"}]}, "namespace"),
        (event("START", 1) | {"inputs": {"namespace": "a"}}, "not an OpenLineage event"),
        (event("START", 1, reads=" ".join(f"d{i}" for i in range(10_001))), "10001 datasets"),
    ],
)
def test_what_is_no_event_is_refused(bad: Any, message: str) -> None:
    with pytest.raises(LineageError, match=message):
        LineageBuilder().add(bad)


def test_a_column_lineage_beyond_the_limit_is_left_out_and_reported() -> None:
    made = event("COMPLETE", 1, writes="c")
    made["outputs"][0]["facets"] = {
        "columnLineage": {
            "fields": {
                f"c{i}": {"inputFields": [{"namespace": "d", "name": "a", "field": "x"}]}
                for i in range(3)
            }
        }
    }
    builder = LineageBuilder(BuildLimits(columns=2))
    builder.add(made)
    snapshot = builder.snapshot()
    assert snapshot.column_edges == ()
    assert "column lineage" in snapshot.warnings[0]


def test_column_lineages_that_cannot_be_used_are_reported_in_the_order_of_their_names() -> None:
    made = event("COMPLETE", 1, writes=" ".join(f"t{i:02}" for i in range(40)))
    for output in made["outputs"]:
        output["facets"] = {"columnLineage": {"fields": []}}
    warnings = build(made).warnings
    assert len(warnings) == 40
    assert list(warnings) == sorted(warnings)


@settings(max_examples=300)
@given(st.data())
def test_a_mutated_event_is_folded_or_refused_and_nothing_else(data: st.DataObject) -> None:
    made = child("dag.a", "dag", reads="x", writes="y")
    made["outputs"][0]["facets"] = schema("x") | lineage("x", "x")
    junk: st.SearchStrategy[Any] = st.sampled_from(
        [None, 0, "", "x", [], [[]], {}, {"_deleted": 1}, True, 1e308, "\x00"]
    )
    target: Any = made
    while isinstance(target, dict | list) and target:
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()):
            target[key] = data.draw(junk)
            break
        target = target[key]
    builder = LineageBuilder()
    try:
        builder.add(made)
    except LineageError:
        return
    assert builder.snapshot().content_hash.startswith("sha256:")


def subset(side: str, *days: str) -> dict[str, Any]:
    partitions = [{"dimensions": {"ds": day}} for day in days]
    condition = {"type": "partition", "partitions": partitions}
    return {f"{side}Facets": {"subset": {f"{side}Condition": condition}}}


def test_what_runs_write_by_subset_facets() -> None:
    start = event("START", 1, reads="a", writes="c")
    start["outputs"][0] |= subset("output", "2024-01-03")
    end = event("COMPLETE", 2, reads="a b", writes="c")
    end["inputs"][0] |= subset("input", "2024-01-01")
    end["outputs"][0] |= subset("output", "2024-01-02")
    other = event("COMPLETE", 3, run="r2", reads="a", writes="c")
    asked = event("COMPLETE", 4, run="r3", facets={"lineageBackfill_run": {"keys": ["2024-W01"]}})
    history = build(start, end, other, asked).history
    assert {run.run_id: (run.partition_key, run.written) for run in history} == {
        "r1": (None, "2024-01-02,2024-01-03"),
        "r2": (None, None),
        "r3": ("2024-W01", None),
    }


def test_facets_of_another_shape_are_left_out_and_said() -> None:
    odd = event("COMPLETE", 1, reads="a")
    odd["outputs"] = [{"namespace": "d", "name": "c"} | subset("output")]
    odd["outputs"][0]["outputFacets"]["subset"]["outputCondition"] = {"type": "partition"}
    snapshot = build(odd)
    assert words(node(snapshot).reads) == "a"
    (said,) = snapshot.warnings
    assert said.startswith("1 facets `subset` cannot be read")


def renamed(second: int, old: str, new: str) -> dict[str, Any]:
    told = event("COMPLETE", second, job="mover", run=f"m{second}", writes=new)
    before = {"namespace": "d", "name": old}
    change = {"lifecycleStateChange": "RENAME", "previousIdentifier": before}
    told["outputs"][0]["facets"] = {"lifecycleStateChange": change}
    return told


def test_a_job_that_renames_a_dataset_reads_it() -> None:
    events = [event("COMPLETE", 1, job="w", run="w", writes="tmp")]
    events += [renamed(3, "tmp", "a"), renamed(4, "tmp", "b")]  # a staging table, used in turn
    for order in (events, events[::-1]):
        mover = node(build(*order), "mover")
        assert (words(mover.reads), words(mover.writes)) == ("tmp", "b")
        assert words(mover.former_writes) == "a"


@pytest.mark.parametrize("before", [None, 3, {}, {"namespace": "d"}, {"namespace": "d", "name": 1}])
def test_a_rename_that_names_nothing_before_it_reads_nothing(before: Any) -> None:
    told = renamed(3, "tmp", "t")
    told["outputs"][0]["facets"]["lifecycleStateChange"]["previousIdentifier"] = before
    assert words(node(build(told), "mover").reads) == ""


@pytest.mark.parametrize(
    "facets",
    [
        {"airflow": {"dagRun": {"run_type": "manual"}}},
        {"airflowDagRun": {"dagRun": {"run_type": "manual"}}},
        {"airflow_runArgs": {"externalTrigger": True}},
    ],
    ids=["provider, task", "provider, DAG", "the integration before"],
)
def test_the_interval_of_a_manual_run_is_a_moment_and_proves_nothing(facets: Any) -> None:
    nominal = {"nominalStartTime": "2024-02-01T03:04:05Z", "nominalEndTime": "2024-02-02T00:00:00Z"}
    (run,) = build(event("COMPLETE", 1, facets={"nominalTime": nominal} | facets)).history
    assert (run.nominal_start, run.nominal_end) == (None, None)
    scheduled = {"airflow": {"dagRun": {"run_type": "scheduled"}}}
    (run,) = build(event("COMPLETE", 1, facets={"nominalTime": nominal} | scheduled)).history
    assert run.nominal_end == datetime(2024, 2, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("date", "key"),
    [
        ("2024-06-15T00:00:00+00:00", "2024-06-15"),
        ("2024-06-15T05:00:00+02:00", "2024-06-15T05"),
        ("2024-06-15T05:30:00+00:00", None),
        ("soon", None),
        (5, None),
    ],
)
def test_an_airflow_partition_date_is_the_label_of_its_clock(date: Any, key: str | None) -> None:
    facets = {"airflow": {"dagRun": {"partition_date": date, "partition_key": None}}}
    (run,) = build(event("COMPLETE", 1, facets=facets)).history
    assert run.partition_key == key


def test_dataset_and_job_events_tell_as_much_as_those_of_runs() -> None:
    facets = {
        "schema": {"fields": [{"name": "a"}]},
        "tags": {"tags": [{"key": "pii"}]},
        "ownership": {"owners": [{"name": "data"}]},
        "lineageBackfill_partitioning": {"grain": "day"},
    }
    table = {"namespace": "d", "name": "t"}
    of_dataset = {"eventTime": "2024-01-01T00:00:00Z", "dataset": {**table, "facets": facets}}
    of_job = event(None, 1, run=None, reads="t", writes="u")
    of_job["job"]["facets"] = {"jobType": {"processingType": "STREAMING"}}
    of_job["outputs"][0]["facets"] = lineage("t", "a")
    snapshot = build(of_dataset, of_job)
    told = snapshot.datasets[DatasetRef("d", "t")]
    assert (told.fields, told.tags, told.owners) == (("a",), ("pii",), ("data",))
    assert told.partitioning == {"grain": "day"}
    assert node(snapshot).processing == "STREAM"
    assert [edge.input_column for edge in snapshot.column_edges] == ["a"]
