"""What Marquez's catalogue adds to its events, and what people did to jobs there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.events.build import LISTENER
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from tests.fake_marquez import FakeMarquez
from tests.unit.sources.marquez_reads import dataset, event, names, read

WHOLE: Any = {"inputs": [dataset("a")], "outputs": [dataset("b")]}


def ends(snapshot: LineageSnapshot, job: str) -> list[str]:
    node = snapshot.jobs[JobRef("n", job)]
    return [ref.name for ref in (*node.reads, *node.writes)]


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
    assert '`ignore_runs = ["r1"]`' in caught.value.hint
    server.events.clear()
    with pytest.raises(LineageError, match=r"a name in its lists is invalid: .*control") as caught:
        read(server)
    assert "Delete it in Marquez" in caught.value.hint


def test_an_event_of_any_year_is_read() -> None:
    times = ("1971-01-01T00:00:00Z", "2024-01-01T00:00:00Z", "9998-01-01T00:00:00Z")
    server = FakeMarquez([event(n, eventTime=when) for n, when in enumerate(times)])
    assert names(read(server)) == ["j0", "j1", "j2"]


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


def test_names_of_dots_are_read_but_no_page_of_them() -> None:
    up = event(2, job={"namespace": "n", "name": ".."}, inputs=[dataset("..")])
    server = FakeMarquez([event(1, outputs=[dataset("..")]), up])
    assert ends(read(server), "..") == ["..", "d2"]
    server.purge("2025-01-01T00:00:00Z")
    with pytest.raises(LineageError, match=r"'\.\.' cannot be part of an address") as caught:
        read(server)
    assert "Delete it in Marquez" in caught.value.hint


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
    assert ends(read(server), "j1") == ["a", "b", "c"]
    server.purge("2025-01-01T00:00:00Z")
    assert ends(read(server), "j1") == ["a", "b", "c"]


def test_a_job_of_which_every_run_failed_has_no_edges_in_the_catalogue_either() -> None:
    start = event(1, 1, eventType="START", **WHOLE)
    server = FakeMarquez([start, event(1, 2, eventType="FAIL", **WHOLE)])
    server.purge("2025-01-01T00:00:00Z")
    snapshot = read(server)
    assert ends(snapshot, "j1") == []
    assert [ref.name for ref in snapshot.jobs[JobRef("n", "j1")].former_writes] == ["b"]


def test_nominal_times_of_runs_without_events_are_those_of_marquez() -> None:
    server = FakeMarquez([event(1)])
    server.purge("2025-01-01T00:00:00Z")

    def with_arguments(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if not path.endswith("/runs"):
            return None
        server.before_answer = lambda *_: None
        status, body = server.answer(path, query)
        server.before_answer = with_arguments
        body["runs"][0]["args"] = {"nominal_start_time": "2022-12-31T00:00Z[UTC]", "region": "eu"}
        return status, body

    server.before_answer = with_arguments
    snapshot = read(server)
    (run,) = snapshot.history
    assert (run.state, str(run.nominal_start)) == ("COMPLETE", "2022-12-31 00:00:00+00:00")


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
    assert "n:j1: deleted in Marquez, the events are left out" in snapshot.warnings
    assert "n:j3: unknown to Marquez, which refused the events; kept" in snapshot.warnings


def test_what_the_listener_tells_once_more_changes_nothing(tmp_path: Path) -> None:
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
    expected = read(FakeMarquez(plain))
    for _ in range(2):  # the second time from the cache
        found = read(FakeMarquez([*plain, *told]), cache=tmp_path)
        assert (found.jobs, found.datasets) == (expected.jobs, expected.datasets)
        assert found.warnings == expected.warnings


def appended(number: int, parent: str) -> dict[str, Any]:
    """An action of one application run that appends `in{number}` to one table."""
    names = {"job": {"namespace": "n", "name": "app"}, "run": {"runId": parent}}
    run = {"runId": f"{parent}-{number}", "facets": {"parent": names}}
    job = {"namespace": "n", "name": "app.append"}
    return event(number, run=run, job=job, inputs=[dataset(f"in{number}")], outputs=[dataset("t")])


def test_actions_of_one_application_run_are_one() -> None:
    events = [appended(1, "p1"), appended(2, "p2"), appended(3, "p2")]
    snapshot = read(FakeMarquez(events))
    job = snapshot.jobs[JobRef("n", "app.append")]
    assert [ref.name for ref in job.reads] == ["in2", "in3"]
    assert [ref.name for ref in job.former_reads] == ["in1"]


#: What was removed of some runs: their events, their rows, or both.
REMOVED = [{"rows": False}, {"events": False}, {}]


@pytest.mark.parametrize("what", REMOVED)
def test_the_last_run_of_a_job_keeps_its_edges_when_it_is_removed(what: dict[str, bool]) -> None:
    job = {"namespace": "n", "name": "j"}
    server = FakeMarquez([event(1, job=job), event(2, job=job), event(3)])
    server.remove("r2", **what)
    snapshot = read(server)
    writes = [ref.name for ref in snapshot.jobs[JobRef("n", "j")].writes]
    # The last one may have failed: those of the run before it count as well.
    is_unsure = not what
    assert writes == (["d1", "d2"] if is_unsure else ["d2"])
    assert is_unsure == any(
        "names n:d2 without a run; they count" in said for said in snapshot.warnings
    )


def test_the_versions_of_jobs_hold_datasets_whose_own_versions_were_removed() -> None:
    server = FakeMarquez([event(1, **WHOLE)])
    server.purge("2025-01-01T00:00:00Z")
    for run in server.runs.values():
        run.reads.clear()
    assert ends(read(server), "j1") == ["a", "b"]


def test_runs_that_are_to_be_ignored_are_left_out(tmp_path: Path) -> None:
    def bad(number: int, second: int, job: str, **more: Any) -> dict[str, Any]:
        return event(number, second, job={"namespace": "n", "name": job}, **more)

    spoilt = [
        bad(8, 20, "j1", inputs=[dataset("\x1b[2J")]),
        bad(9, 30, "j9", inputs=[dataset("wrong")]),
    ]
    server = FakeMarquez([event(1, inputs=[dataset("a")]), event(2), *spoilt])
    server.jobs["n", "j1"].version = server.jobs["n", "j1"].graph
    with pytest.raises(LineageError, match="control characters"):
        read(server, ignore=["r9"])
    del server.datasets["n", "\x1b[2J"]  # names alone are refused as well
    for _ in range(2):  # the second time from the cache
        snapshot = read(server, ignore=["r8", "r9"], cache=tmp_path)
        assert ends(snapshot, "j1") == ["a", "d1"]
        assert ends(snapshot, "j2") == ["d2"]
        assert JobRef("n", "j9") not in snapshot.jobs or ends(snapshot, "j9") == []
        assert {run.run_id for run in snapshot.history} == {"r1", "r2"}


def test_what_is_kept_is_not_taken_for_what_leaves_other_runs_out(tmp_path: Path) -> None:
    server = FakeMarquez([event(n) for n in range(9)])
    for ignore in ([], ["r3"], ["r4"], []):
        snapshot = read(server, ignore=ignore, cache=tmp_path)
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
