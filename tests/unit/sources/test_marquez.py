"""What Marquez's catalogue adds to its events, and what people did to jobs there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.events.build import LISTENER
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources.marquez import MarquezSource, View, comparison
from tests.fake_marquez import FakeMarquez
from tests.unit.sources.marquez_reads import dataset, event, names, read

WHOLE: Any = {"inputs": [dataset("a")], "outputs": [dataset("b")]}


def ends(snapshot: LineageSnapshot, job: str) -> list[str]:
    node = snapshot.jobs[JobRef("n", job)]
    return [ref.name for ref in (*node.reads, *node.writes)]


def own_graph(snapshot: LineageSnapshot) -> list[str]:
    """The warnings that compare the two views."""
    return [said for said in snapshot.warnings if "own graph" in said]


def test_a_row_that_the_server_cannot_show_is_stepped_over() -> None:
    server = FakeMarquez([event(n) for n in range(20)])
    server.post(event(21, job={"namespace": "n", "name": ""}))
    snapshot = read(server)
    assert len(snapshot.jobs) == 20
    assert any("names no job; left out" in warning for warning in snapshot.warnings)
    assert any("row 0 of jobs cannot be read" in warning for warning in snapshot.warnings)


def test_a_hostile_event_is_an_error_that_names_it() -> None:
    server = FakeMarquez([event(1, outputs=[dataset("\x1b[2J")])])
    with pytest.raises(LineageError, match=r"00:00:01Z of n:j1: .*control characters") as caught:
        read(server)
    assert "--lineage-view graph" in caught.value.hint
    assert '`ignore_runs = ["r1"]`' in caught.value.hint
    with pytest.raises(LineageError, match=r"its catalogue shows is .*control") as caught:
        read(server, view="graph")
    assert "Delete it in Marquez" in caught.value.hint


@pytest.mark.parametrize("view", ["both", "events", "graph"])
def test_an_event_of_any_year_is_read(view: View) -> None:
    times = ("1971-01-01T00:00:00Z", "2024-01-01T00:00:00Z", "9998-01-01T00:00:00Z")
    server = FakeMarquez([event(n, eventTime=when) for n, when in enumerate(times)])
    assert names(read(server, view=view)) == ["j0", "j1", "j2"]


def test_a_child_is_known_under_the_name_with_its_parents() -> None:
    def child(number: int, name: str, parent: str) -> dict[str, Any]:
        facet = {"parent": {"run": {}, "job": {"namespace": "n", "name": parent}}}
        return event(
            number,
            run={"runId": f"r{number}", "facets": facet},
            job={"namespace": "n", "name": name},
        )

    server = FakeMarquez([child(1, "dag.load", "dag"), child(2, "app", "dag.load")])
    for stored, sent in (("dag", "dag.load"), ("dag.load.app", "app")):
        server.jobs["n", stored] = server.jobs["n", sent]
    del server.jobs["n", "app"]
    snapshot = read(server)
    assert names(snapshot) == ["app", "dag", "dag.load"]
    assert snapshot.jobs[JobRef("n", "app")].parent == JobRef("n", "dag.load")
    assert not [path for path, _ in server.asked if "/jobs/" in path], "no page is asked for"


@pytest.mark.parametrize("view", ["both", "events", "graph"])
def test_names_of_dots_are_read_as_any_other(view: View) -> None:
    told = [event(1, outputs=[dataset("..")]), event(3, job={"namespace": "n", "name": "."})]
    up = event(2, job={"namespace": "n", "name": ".."}, inputs=[dataset("..")])
    declared = {"eventTime": "2024-01-01T00:00:30Z", "dataset": dataset("..")}
    server = FakeMarquez([*told, up, declared])
    with server.serve() as address:
        snapshot = MarquezSource(address, view=view).read()
    assert names(snapshot) == [".", "..", "j1"]
    assert ends(snapshot, "..") == ["..", "d2"]
    assert "namespaces/n/jobs/%2E%2E" in [path for path, _ in server.asked]


def test_jobs_whose_events_are_gone_have_their_edges_from_the_catalogue() -> None:
    server = FakeMarquez([event(1, **WHOLE), event(2), event(3, 40)])
    server.purge("2024-01-01T00:00:30Z")
    snapshot = read(server)
    assert names(snapshot) == ["j1", "j2", "j3"]
    assert (ends(snapshot, "j1"), ends(snapshot, "j2")) == (["a", "b"], ["d2"])
    assert {run.run_id for run in snapshot.history} == {"r1", "r2", "r3"}


def test_what_only_pages_and_the_graph_show_is_read_too() -> None:
    server = FakeMarquez([event(1)])
    server.purge("2025-01-01T00:00:00Z")
    server.runs.clear()
    job = server.jobs["n", "j1"]
    job.runs.clear()
    job.facets = {"ownership": {"owners": [{"name": "team"}]}}
    server.datasets["n", "d1"]["fields"] = [{"name": "x"}]
    snapshot = read(server)
    assert ends(snapshot, "j1") == ["d1"]
    assert snapshot.jobs[JobRef("n", "j1")].owners == ("team",)
    assert snapshot.datasets[DatasetRef("n", "d1")].fields == ("x",)


@pytest.mark.parametrize("is_stream", [True, False])
def test_the_page_of_a_job_takes_nothing_from_a_run_that_goes_on(is_stream: bool) -> None:
    kind = {"jobType": {"processingType": "STREAMING", "integration": "FLINK", "jobType": "JOB"}}
    job = {"namespace": "n", "name": "j1", "facets": kind if is_stream else {}}
    parts = [
        {"eventType": "START", "inputs": [dataset("a")], "outputs": []},
        {"eventType": "RUNNING", "inputs": [dataset("b")], "outputs": []},
        {"eventType": "RUNNING", "inputs": [], "outputs": [dataset("c")]},
    ]
    server = FakeMarquez([event(1, n, job=job, **part) for n, part in enumerate(parts)])
    assert ends(read(server, view="graph"), "j1") == ["a", "b", "c"]
    server.purge("2025-01-01T00:00:00Z")
    assert ends(read(server), "j1") == ["a", "b", "c"]


def test_a_job_of_which_every_run_failed_has_no_edges_in_the_catalogue_either() -> None:
    start = event(1, 1, eventType="START", **WHOLE)
    server = FakeMarquez([start, event(1, 2, eventType="FAIL", **WHOLE)])
    for view in ("events", "graph"):
        snapshot = read(server, view=view)
        assert ends(snapshot, "j1") == []
        assert [ref.name for ref in snapshot.jobs[JobRef("n", "j1")].former_writes] == ["b"]


def test_a_run_that_told_of_its_end_alone_has_no_start() -> None:
    server = FakeMarquez([event(1)])
    (run,) = read(server, view="graph").history
    assert (run.state, run.started_at) == ("COMPLETE", None)


def test_nominal_times_and_arguments_of_runs_without_events_are_those_of_marquez() -> None:
    server = FakeMarquez([event(1)])
    server.purge("2025-01-01T00:00:00Z")

    def with_arguments(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if not path.endswith("/runs"):
            return None
        server.before_answer = lambda *_: None
        status, body = server.answer(path, query)
        server.before_answer = with_arguments
        given = {"region": "eu", "db.password": "pa55", "run_id": "above"}
        body["runs"][0]["args"] = {"nominal_start_time": "2022-12-31T00:00Z[UTC]", **given}
        return status, body

    server.before_answer = with_arguments
    snapshot = read(server)
    (run,) = snapshot.history
    assert (run.state, str(run.nominal_start)) == ("COMPLETE", "2022-12-31 00:00:00+00:00")
    (job,) = snapshot.jobs.values()
    assert job.arguments == {"db.password": "***", "region": "eu"}


#: What is left of job j1's events, after retention has taken older runs, and what it reads then.
LEFT: list[tuple[str, dict[str, Any]]] = [
    ("a bare start", {"eventType": "START", "outputs": []}),
    ("a start that names its input", {"eventType": "START", "inputs": [dataset("a")]}),
    ("a failed run that names half", {"eventType": "FAIL", "inputs": [dataset("a")]}),
]


@pytest.mark.parametrize(("left", "more"), LEFT, ids=[what for what, _ in LEFT])
def test_edges_of_good_runs_that_retention_took_are_asked_for(
    left: str, more: dict[str, Any]
) -> None:
    last = event(2, 50, job={"namespace": "n", "name": "j1"}, **({"outputs": []} | more))
    server = FakeMarquez([event(1, eventType="START", **WHOLE), event(1, 3, **WHOLE), last])
    server.purge("2024-01-01T00:00:30Z")
    assert ends(read(server), "j1") == ["a", "b"]


def test_a_run_that_lost_its_start_to_retention_keeps_the_edges_named_there() -> None:
    server = FakeMarquez([event(1, 1, eventType="START", **WHOLE)])
    server.purge("2024-01-01T00:00:30Z")
    server.post(event(1, 40, outputs=[]))
    assert ends(read(server), "j1") == ["a", "b"]


def test_jobs_of_a_namespace_whose_first_event_is_there_are_not_asked_for() -> None:
    server = FakeMarquez([event(n, outputs=[dataset("d")]) for n in range(5)])
    assert ends(read(server), "j3") == ["d"]
    assert not [path for path, _ in server.asked if path.endswith("/runs")]


def test_a_deleted_job_is_left_out_and_a_refused_one_kept() -> None:
    server = FakeMarquez([event(1), event(2)])
    server.delete("namespaces/n/jobs/j1")
    assert server.post(event(3, outputs=[{"namespace": "bad|one", "name": "d"}])) == 400
    snapshot = read(server)
    assert names(snapshot) == ["j2", "j3"]
    assert "n:j1 was deleted in Marquez; its events are left out" in snapshot.warnings
    assert "n:j3 is unknown to Marquez, which refused its events; kept" in snapshot.warnings


@pytest.mark.parametrize(
    "what",
    [
        {"inputs": [{"namespace": "bad|one", "name": "a"}]},
        {"outputs": [{"namespace": "", "name": "a"}]},
        {"outputs": [{"namespace": "n" * 1025, "name": "a"}]},
        {"inputs": [dataset("")]},
        {"job": {"namespace": "", "name": "j1"}},
    ],
)
def test_the_graph_view_reports_jobs_with_events_that_the_server_has_refused(
    what: dict[str, Any],
) -> None:
    server = FakeMarquez([event(0), event(1)])
    assert read(server, view="graph").warnings == ()
    server.events.append(event(2, **({"job": {"namespace": "n", "name": "j1"}} | what)))
    (said,) = read(server, view="graph").warnings
    assert said.startswith("Marquez has refused events of")
    assert ":j1: it does not allow a name" in said
    assert read(server, view="graph", ignore=["r2"]).warnings == ()


def test_a_graph_view_without_its_events_says_so() -> None:
    server = FakeMarquez([event(0)])
    server.before_answer = lambda path, _: (500, {}) if path == "events/lineage" else None
    (said,) = read(server, view="graph").warnings
    assert said.startswith("events that Marquez has refused cannot be found: ")


BARE = event(2, job={"namespace": "n", "name": "j1"}, eventType="START", outputs=[])
#: What was posted, and what is then said of the two views.
VIEWS: dict[str, tuple[list[Any], list[str]]] = {
    "the same": ([event(1, inputs=[dataset("a")])], []),
    "a run is under way": (
        [event(1), BARE],
        ["Marquez's own graph lacks edges, since a run has started or failed, of n:j1"],
    ),
    "an old run came last": (
        [event(2, job={"namespace": "n", "name": "j1"}), event(1)],
        ["Marquez's own graph differs from the events, which are followed: n:j1 "]
        + ["shows also writes n:d1 and lacks writes n:d2"],
    ),
}


@pytest.mark.parametrize("case", VIEWS)
def test_both_views_are_compared(case: str) -> None:
    events, said = VIEWS[case]
    assert "".join(own_graph(read(FakeMarquez(events)))) == "".join(said)


def test_a_comparison_costs_few_requests_and_says_how_far_it_went() -> None:
    server = FakeMarquez([event(n, n % 60, inputs=[dataset("hub")]) for n in range(100)])
    (said,) = own_graph(read(server))
    asked = [query for path, query in server.asked if path == "lineage"]
    assert said == f"Marquez's own graph was compared for {len(asked)} of 100 jobs"
    # A table with so many readers would be shown with them all, every time.
    assert {query["depth"] for query in asked} == {"0"}


def test_a_comparison_asks_first_where_answers_do_not_overlap() -> None:
    chain = [event(n, inputs=[dataset(f"d{n + 1}")]) for n in range(60)]
    server = FakeMarquez(chain)
    assert own_graph(read(server)) == []
    asked = [query["nodeId"] for path, query in server.asked if path == "lineage"]
    assert len(asked) == len(set(asked)) <= 40  # an answer holds the neighbours too


@pytest.mark.parametrize("busy", [requests.ConnectionError("gone"), requests.ReadTimeout()])
def test_a_server_too_busy_for_the_comparison_is_read_all_the_same(busy: Exception) -> None:
    def slow(path: str, query: dict[str, str]) -> None:
        if path == "lineage":
            raise busy

    server = FakeMarquez([event(n) for n in range(9)])
    server.before_answer = slow
    snapshot = read(server, retries=0)
    assert len(snapshot.jobs) == 9
    assert own_graph(snapshot) == ["Marquez's own graph was compared for 0 of 9 jobs"]
    # No more than the requests that were under way together.
    assert len([path for path, _ in server.asked if path == "lineage"]) <= 2


def test_a_comparison_ends_when_it_has_taken_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_SECONDS", -1)
    server = FakeMarquez([event(n) for n in range(9)])
    assert own_graph(read(server)) == ["Marquez's own graph was compared for 0 of 9 jobs"]


@pytest.mark.parametrize("view", ["both", "graph", "events"])
def test_a_newer_server_is_tried_and_the_user_told(view: View) -> None:
    server = FakeMarquez([event(1)])

    def newer(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        server.before_answer = lambda *_: None
        status, body = server.answer(path, query)
        server.before_answer = newer
        return status, body | {"nextPageToken": "x"}

    server.before_answer = newer
    snapshot = read(server, view=view)
    assert names(snapshot) == ["j1"]
    assert any("(nextPageToken); a newer one is read" in said for said in snapshot.warnings)


@pytest.mark.parametrize("view", ["events", "both"])
def test_what_the_listener_tells_once_more_changes_nothing(tmp_path: Path, view: View) -> None:
    plain = [event(1, outputs=[dataset("a")]), event(2, **WHOLE)]
    told = [
        event(
            number,
            job={"namespace": LISTENER, "name": f"app.save.{number}"},
            inputs=[{"namespace": "file", "name": "/lake/a"}],
            outputs=[{"namespace": "file", "name": "/lake/b"}, dataset("b")],
        )
        for number in (3, 4)
    ]
    expected = read(FakeMarquez(plain), view=view)
    for _ in range(2):  # the second time from the cache
        found = read(FakeMarquez([*plain, *told]), view=view, cache=tmp_path)
        assert (found.jobs, found.datasets) == (expected.jobs, expected.datasets)
        assert found.warnings == expected.warnings
    by_graph = read(FakeMarquez([*plain, *told]), view="graph")
    assert names(by_graph) == ["j1", "j2"]


def appended(number: int, parent: str) -> dict[str, Any]:
    """An action of one application run that appends `in{number}` to one table."""
    names = {"job": {"namespace": "n", "name": "app"}, "run": {"runId": parent}}
    run = {"runId": f"{parent}-{number}", "facets": {"parent": names}}
    job = {"namespace": "n", "name": "app.append"}
    return event(number, run=run, job=job, inputs=[dataset(f"in{number}")], outputs=[dataset("t")])


@pytest.mark.parametrize("view", ["events", "graph", "both"])
def test_actions_of_one_application_run_are_one_in_every_view(view: View) -> None:
    events = [appended(1, "p1"), appended(2, "p2"), appended(3, "p2")]
    snapshot = read(FakeMarquez(events), view=view)
    job = snapshot.jobs[JobRef("n", "app.append")]
    assert [ref.name for ref in job.reads] == ["in2", "in3"]
    assert [ref.name for ref in job.former_reads] == ["in1"]
    assert own_graph(snapshot) == [], "that Marquez shows the last one alone is no difference"


def test_actions_whose_events_are_gone_are_asked_for_with_all_that_ran_beside_them() -> None:
    events = [appended(1, "p1"), appended(2, "p2"), appended(3, "p1"), appended(4, "p1")]
    server = FakeMarquez([event(0), *({**one, "inputs": []} for one in events)])
    server.purge("2024-01-01T00:00:01Z")
    for run, one in zip(server.jobs["n", "app.append"].runs, events, strict=True):
        run.reads = {("n", one["inputs"][0]["name"]): {}}
        run.started = one["eventTime"]
    snapshot = read(server)
    reads = snapshot.jobs[JobRef("n", "app.append")].reads
    assert [ref.name for ref in reads] == ["in1", "in3", "in4"]


#: What was removed of some runs: their events, their rows, or both.
REMOVED = [{"rows": False}, {"events": False}, {}]
ACTIONS = [appended(n, p) for n, p in ((1, "p1"), (2, "p1"), (3, "p2"), (4, "p2"))]


@pytest.mark.parametrize("view", ["graph", "both"])
@pytest.mark.parametrize("what", REMOVED)
@pytest.mark.parametrize("runs", [["p2-3"], ["p2-4"], ["p2-3", "p2-4"]])
def test_actions_removed_from_a_run_of_an_application_keep_their_edges(
    view: View, what: dict[str, bool], runs: list[str]
) -> None:
    server = FakeMarquez([event(0), *ACTIONS])
    server.remove(*runs, **what)
    snapshot = read(server, view=view)
    job = snapshot.jobs[JobRef("n", "app.append")]
    assert {"in3", "in4"} <= {ref.name for ref in job.reads}
    assert job.parent == JobRef("n", "app")
    said = [one for one in snapshot.warnings if "has removed runs that named n:in" in one]
    assert len(said) == (not what or (view == "graph" and what == {"events": False}))


@pytest.mark.parametrize("view", ["graph", "both"])
def test_actions_of_which_no_run_is_left_keep_their_edges_and_their_parent(view: View) -> None:
    server = FakeMarquez([event(0), *ACTIONS])
    server.remove(*(one["run"]["runId"] for one in ACTIONS))
    job = read(server, view=view).jobs[JobRef("n", "app.append")]
    assert [ref.name for ref in job.reads] == ["in1", "in2", "in3", "in4"]
    assert job.parent == JobRef("n", "app")


@pytest.mark.parametrize("view", ["graph", "both"])
@pytest.mark.parametrize("what", REMOVED)
def test_the_last_run_of_a_job_keeps_its_edges_when_it_is_removed(
    view: View, what: dict[str, bool]
) -> None:
    job = {"namespace": "n", "name": "j"}
    server = FakeMarquez([event(1, job=job), event(2, job=job), event(0)])
    server.remove("r2", **what)
    snapshot = read(server, view=view)
    writes = [ref.name for ref in snapshot.jobs[JobRef("n", "j")].writes]
    # The last one may have failed: those of the run before it count as well.
    is_unsure = not what or (view == "graph" and what == {"events": False})
    assert writes == (["d1", "d2"] if is_unsure else ["d2"])
    assert is_unsure == any("named n:d2; they count" in said for said in snapshot.warnings)


def test_the_versions_of_jobs_hold_datasets_whose_own_versions_were_removed() -> None:
    server = FakeMarquez([event(1, **WHOLE), *ACTIONS])
    for run in server.runs.values():
        run.reads.clear()
    snapshot = read(server, view="graph")
    assert ends(snapshot, "j1") == ["a", "b"]
    assert ends(snapshot, "app.append") == ["in3", "in4", "t"]


@pytest.mark.parametrize("view", ["graph", "both"])
def test_actions_may_have_been_removed_with_the_start_of_their_application(view: View) -> None:
    begin = own("app", "p2", "START", 1)
    kind = {"jobType": {"integration": "SPARK", "jobType": "SQL_JOB"}}
    actions = [{**one, "job": {**one["job"], "facets": kind}} for one in ACTIONS[2:]]
    server = FakeMarquez([event(0), begin, *actions, own("app", "p2", "COMPLETE", 9)])
    assert read(server, view=view).warnings == ()
    server.purge("2024-01-01T00:00:04Z")
    server.remove("p2-3", events=False)
    job = server.jobs["n", "app.append"]
    job.versions = {one: what for one, what in job.versions.items() if what[1] == "p2-4"}
    (said,) = [one for one in read(server, view=view).warnings if "same parent run" in one]
    assert said.endswith("as the start of that run was: n:app.append")


def test_tries_under_one_parent_run_are_not_parts_of_it() -> None:
    tries = [below("w", "p", 1, kind="FAIL"), below("w", "p", 2)]
    server = FakeMarquez([own("w", "p", "START", 0), *tries, own("w", "p", "COMPLETE", 3)])
    read(server)
    assert not [path for path, _ in server.asked if path.endswith("/versions")]


def test_a_job_with_parts_whose_versions_cannot_be_read_is_reported() -> None:
    server = FakeMarquez([event(0), *ACTIONS])
    server.before_answer = lambda path, _: (500, {}) if path.endswith("/versions") else None
    snapshot = read(server)
    assert ends(snapshot, "app.append") == ["in3", "in4", "t"]
    assert any("n:app.append: its versions cannot be read" in said for said in snapshot.warnings)


def test_parents_of_events_that_came_late_take_one_request_each() -> None:
    """The server dates the row of a parent by its own clock, which says nothing of other runs."""
    events = [
        one
        for n in range(5)
        for one in (
            own(f"w{n}", f"p{n}", "START", 1),
            below(f"w{n}", f"p{n}", n),
            own(f"w{n}", f"p{n}", "COMPLETE", 40),
        )
    ]
    server = FakeMarquez(events)
    # Marquez may keep the run of a parent under an id of its own.
    for n in range(5):
        server.jobs["n", f"w{n}"].updated = "2025-01-01T00:00:00Z"
        server.runs[f"p{n}"].id = f"other-{n}"
    expected = read(FakeMarquez(events))
    server.asked.clear()
    snapshot = read(server)
    assert snapshot.history == expected.history
    asked = [path for path, _ in server.asked if path.startswith("namespaces/n/jobs/w")]
    assert sorted(asked) == [f"namespaces/n/jobs/w{n}/versions" for n in range(5)]


def test_many_jobs_with_parts_are_checked_in_part() -> None:
    def action(number: int) -> dict[str, Any]:
        kind = {"jobType": {"integration": "SPARK", "jobType": "SQL_JOB"}}
        told: dict[str, Any] = below("app", "p", number, second=number % 60)
        return told | {"job": {"namespace": "n", "name": f"app.j{number:03}", "facets": kind}}

    server = FakeMarquez(map(action, range(103)))
    (said,) = [one for one in read(server).warnings if "were checked" in one]
    assert said.startswith(
        "of 103 jobs with several runs under one parent run, or with later events"
    )


@pytest.mark.parametrize("view", ["events", "graph", "both"])
def test_runs_that_are_to_be_ignored_are_left_out_of_every_view(view: View, tmp_path: Path) -> None:
    def bad(number: int, second: int, job: str, **more: Any) -> dict[str, Any]:
        return event(number, second, job={"namespace": "n", "name": job}, **more)

    spoilt = [
        bad(8, 20, "j1", inputs=[dataset("\x1b[2J")]),
        bad(9, 30, "j9", inputs=[dataset("wrong")]),
    ]
    server = FakeMarquez([event(1, inputs=[dataset("a")]), event(2), *spoilt])
    server.jobs["n", "j1"].version = server.jobs["n", "j1"].graph
    if view == "events":
        with pytest.raises(LineageError, match="control characters"):
            read(server, view=view, ignore=["r9"])
    del server.datasets["n", "\x1b[2J"]  # names alone are refused as well
    for _ in range(2):  # the second time from the cache
        snapshot = read(server, view=view, ignore=["r8", "r9"], cache=tmp_path)
        assert ends(snapshot, "j1") == ["a", "d1"]
        assert ends(snapshot, "j2") == ["d2"]
        assert JobRef("n", "j9") not in snapshot.jobs or ends(snapshot, "j9") == []
        assert {run.run_id for run in snapshot.history} == {"r1", "r2"}


def test_what_is_kept_is_not_taken_for_what_leaves_other_runs_out(tmp_path: Path) -> None:
    server = FakeMarquez([event(n) for n in range(9)])
    for ignore in ([], ["r3"], ["r4"], []):
        snapshot = read(server, view="events", ignore=ignore, cache=tmp_path)
        assert {run.run_id for run in snapshot.history} == {f"r{n}" for n in range(9)} - {*ignore}


def below(parent: str, run: str, number: int, *, kind: str = "COMPLETE", **more: Any) -> Any:
    """An event of a run of `j` under that run of `parent`, which reads `in{number}`."""
    names = {"job": {"namespace": "n", "name": parent}, "run": {"runId": run}}
    told = {"runId": f"{run}-{number}", "facets": {"parent": names}}
    job = {"namespace": "n", "name": "j"}
    return event(
        number,
        more.pop("second", None),
        run=told,
        job=job,
        eventType=kind,
        inputs=[dataset(f"in{number}")],
        **more,
    )


def own(name: str, run: str, kind: str, second: int) -> Any:
    """An event of a run that names no datasets."""
    job = {"namespace": "n", "name": name}
    return event(0, second, eventType=kind, run={"runId": run}, job=job, outputs=[])


@pytest.mark.parametrize("view", ["events", "graph", "both"])
def test_a_parent_run_that_only_its_children_name_has_not_started(view: View) -> None:
    events = [
        *(below("w", "p1", 1, kind="START", second=1), below("w", "p1", 1, second=2)),
        *(below("w", "p2", 3, kind="START", second=3), below("w", "p2", 3, second=4)),
        *(below("w", "p2", 5), own("w", "p3", "START", 6), below("w", "p3", 7)),
        own("w", "p3", "FAIL", 8),
    ]
    server = FakeMarquez(events)
    # By the clock of the server, long after the events.
    server.jobs["n", "w"].updated = "2025-01-01T00:00:00Z"
    snapshot = read(server, view=view)
    job = snapshot.jobs[JobRef("n", "j")]
    assert [ref.name for ref in job.reads] == ["in3", "in5", "in7"]
    assert [ref.name for ref in job.former_reads] == ["in1"]
    assert not [run for run in snapshot.history if run.run_id in ("p1", "p2")]


@pytest.mark.parametrize("view", ["events", "graph", "both"])
@pytest.mark.parametrize("start", [4, 5])
def test_a_parent_run_that_goes_on_is_no_whole_one(view: View, start: int) -> None:
    events = [
        *(own("w", "p1", "START", 1), below("w", "p1", 2), own("w", "p1", "COMPLETE", 3)),
        *(own("w", "p2", "START", start), below("w", "p2", 5), below("w", "p2", 6)),
    ]
    assert ends(read(FakeMarquez(events), view=view), "j")[:3] == ["in2", "in5", "in6"]


def test_the_graph_view_finds_parent_runs_under_the_names_with_their_parents() -> None:
    # Marquez puts a DAG's name before that of an application, but not where actions name it.
    events = [
        *(own("app", "p1", "START", 1), below("app", "p1", 2), below("app", "p1", 3)),
        own("app", "p1", "COMPLETE", 4),
        *(own("dag.load.app", "p2", "START", 5), below("app", "p2", 6)),
        own("dag.load.app", "p2", "FAIL", 7),
    ]
    snapshot = read(FakeMarquez(events), view="graph")
    assert names(snapshot) == ["app", "j"]
    assert ends(snapshot, "j")[:3] == ["in2", "in3", "in6"]


def test_a_run_that_calls_itself_its_parent_is_no_other_job() -> None:
    told = {"job": {"namespace": "n", "name": "app"}, "run": {"runId": "r1"}}
    run = {"runId": "r1", "facets": {"parent": told}}
    events = [event(1, run=run, job={"namespace": "n", "name": "dag.app"}, inputs=[dataset("a")])]
    assert ends(read(FakeMarquez(events), view="graph"), "dag.app") == ["a", "d1"]


def test_the_graph_view_keeps_names_of_a_dataset_that_its_symlinks_no_longer_say() -> None:
    server = FakeMarquez([event(1, **WHOLE), event(2, inputs=[dataset("b")])])
    for name in ("b", "db.b"):
        server.datasets["n", name] = server.datasets["n", "b"] | {
            "currentVersion": "v1",
            "physicalName": "b",
        }
    snapshot = read(server, view="graph")
    assert [ref.name for ref in snapshot.datasets] == ["a", "b", "d2"]
    assert snapshot.datasets[DatasetRef("n", "b")].aliases == (DatasetRef("n", "db.b"),)


def test_the_graph_view_says_where_it_cannot_see_how_a_run_ended() -> None:
    last = event(2, job={"namespace": "n", "name": "j1"}, inputs=[dataset("b")])
    other = {**last, "eventType": "OTHER", "eventTime": "2024-01-01T00:00:03Z", "inputs": []}
    server = FakeMarquez([event(1, inputs=[dataset("a")]), last, {**other, "outputs": []}])
    snapshot = read(server, view="graph")
    assert ends(snapshot, "j1")[:2] == ["a", "b"]
    assert any("an event came after run r2 had ended" in said for said in snapshot.warnings)
    assert ends(read(server, view="events"), "j1")[0] == "b"


def test_the_graph_view_knows_datasets_of_failed_runs_by_each_of_their_names() -> None:
    server = FakeMarquez([event(1, eventType="FAIL", inputs=[dataset("b")]), event(2)])
    for name in ("b", "db.b"):
        row = server.datasets["n", "b"]
        server.datasets["n", name] = row | {"currentVersion": "v1", "physicalName": "b"}
    shown = server.jobs["n", "j1"].version
    assert shown
    server.jobs["n", "j1"].version = replace(shown, reads=shown.reads | {("n", "db.b")})
    assert ends(read(server, view="graph"), "j1") == []
