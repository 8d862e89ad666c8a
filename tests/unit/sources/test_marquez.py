"""What a server may do wrong: never a smaller graph, always an error that says what next."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
import responses
from hypothesis import given, settings
from hypothesis import strategies as st

from lineage_backfill.errors import LineageError, ServiceUnreachableError
from lineage_backfill.graph.lineage import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources import marquez
from lineage_backfill.sources.marquez import MarquezSource, View
from lineage_backfill.sources.web import WebSettings

ADDRESS = "http://marquez.example:5000/base"
API = f"{ADDRESS}/api/v1"


def event(number: int, second: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "eventType": "COMPLETE",
        "eventTime": f"2024-01-01T00:00:{number if second is None else second:02d}Z",
        "run": {"runId": f"r{number}"},
        "job": {"namespace": "n", "name": f"j{number}"},
        "inputs": [],
        "outputs": [{"namespace": "n", "name": f"d{number}"}],
    } | more


class Server:
    """Answers as Marquez does, from a list of events; `break_` puts faults into its answers."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events
        self.jobs = {(e["job"]["namespace"], e["job"]["name"]) for e in events}
        self.poisoned_rows: set[int] = set()
        self.pages: dict[str, Any] = {}
        self.asked: list[str] = []
        self.before_answer: Callable[[int], None] = lambda _: None

    def __call__(self, request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        parts = urlsplit(request.url or "")
        path = str(parts.path).removeprefix("/base/api/v1/")
        query = {str(k): str(v) for k, v in parse_qsl(str(parts.query))}
        self.before_answer(len(self.asked))
        self.asked.append(path)
        status, body = self.answer(path, query)
        return status, {}, json.dumps(body)

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path == "events/lineage":
            rows = sorted(
                (e for e in self.events if e["eventTime"] >= query["after"]),
                key=lambda e: e["eventTime"],
            )
            return 200, {"events": rows[: int(query["limit"])], "totalCount": 99}
        if path == "namespaces":
            return 200, {"namespaces": [{"name": "n", "isHidden": False}]}
        rows = [{"namespace": ns, "name": name} for ns, name in sorted(self.jobs)]
        if path == "search":
            if self.poisoned_rows:
                return 500, {}
            return 200, {"results": rows if query["filter"] == "job" else []}
        if path == "jobs":
            first, size = int(query["offset"]), int(query["limit"])
            if self.poisoned_rows & set(range(first, first + size)):
                return 500, {}
            return 200, {"jobs": rows[first : first + size], "totalCount": len(rows)}
        if path in self.pages:
            return 200, self.pages[path]
        return 404, {"code": 404, "message": "not found"}


@pytest.fixture
def mock() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as made:
        yield made


def read(
    mock: responses.RequestsMock | None = None,
    server: Server | None = None,
    *,
    view: View = "both",
    **web: Any,
) -> LineageSnapshot:
    if mock is not None and server is not None:
        mock.add_callback(responses.GET, re.compile(re.escape(API)), callback=server)
    return MarquezSource(ADDRESS, view=view, settings=WebSettings(**web)).read()


def names(snapshot: LineageSnapshot) -> list[str]:
    return [ref.name for ref in snapshot.jobs]


def test_more_events_at_one_time_than_fit_on_a_page(
    mock: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marquez, "_PAGE", 2)
    server = Server([event(1), *(event(n, 5) for n in range(2, 9)), event(9)])
    assert len(names(read(mock, server))) == 9


def test_events_that_vanish_between_two_pages_hide_no_other(
    mock: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marquez, "_PAGE", 3)
    server = Server([event(n) for n in range(9)])

    def retention(count: int) -> None:
        if count == 1:
            server.events = server.events[3:]

    server.before_answer = retention
    assert len(names(read(mock, server, view="events"))) == 9


def test_a_row_that_the_server_cannot_show_is_stepped_over(mock: responses.RequestsMock) -> None:
    server = Server([event(n) for n in range(20)])
    server.jobs.add(("n", "j15 that cannot be shown"))
    server.poisoned_rows = {sorted(server.jobs).index(("n", "j15 that cannot be shown"))}
    snapshot = read(mock, server)
    assert len(snapshot.jobs) == 20
    assert any("row 8 of jobs cannot be read" in warning for warning in snapshot.warnings)


def test_an_event_without_a_job_name_is_left_out_and_reported(mock: responses.RequestsMock) -> None:
    server = Server([event(1), event(2, job={"namespace": "n", "name": ""})])
    snapshot = read(mock, server, view="events")
    assert names(snapshot) == ["j1"]
    assert "names no job" in snapshot.warnings[0]


def test_a_hostile_event_is_an_error_that_names_it(mock: responses.RequestsMock) -> None:
    server = Server([event(1, outputs=[{"namespace": "n", "name": "\x1b[2J"}])])
    with pytest.raises(LineageError, match=r"00:00:01Z of n:j1: .*control characters"):
        read(mock, server)


def test_a_child_is_known_under_the_name_with_its_parents(mock: responses.RequestsMock) -> None:
    def child(number: int, name: str, parent: str) -> dict[str, Any]:
        facet = {"parent": {"run": {}, "job": {"namespace": "n", "name": parent}}}
        return event(
            number,
            run={"runId": f"r{number}", "facets": facet},
            job={"namespace": "n", "name": name},
        )

    server = Server([child(1, "dag.load", "dag"), child(2, "app", "dag.load")])
    server.jobs = {("n", "dag"), ("n", "dag.load"), ("n", "dag.load.app")}
    snapshot = read(mock, server)
    assert names(snapshot) == ["app", "dag", "dag.load"]
    assert snapshot.jobs[JobRef("n", "app")].parent == JobRef("n", "dag.load")
    assert [path for path in server.asked if "/" in path] == ["events/lineage"] * 2


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ({"status": 500}, LineageError, "answers 500"),
        ({"status": 503}, ServiceUnreachableError, "answers 503"),
        ({"status": 401}, LineageError, r"refuses \(401\)"),
        ({"status": 404}, LineageError, "answers 404"),
        ({"body": "<html>"}, LineageError, "not JSON"),
        ({"body": '{"events": ['}, LineageError, "not JSON"),
        ({"body": "[" * 100_000 + "]" * 100_000}, LineageError, "not JSON"),
        ({"body": "[]"}, LineageError, "not of Marquez's shape"),
        ({"body": '{"events": 3}'}, LineageError, "not of Marquez's shape"),
        ({"body": '{"events": [[]]}'}, LineageError, "not of Marquez's shape"),
        ({"body": " " * 400_000}, LineageError, "more than 300000 bytes"),
        ({"body": requests.ConnectionError("no")}, ServiceUnreachableError, "cannot be reached"),
        ({"body": requests.ReadTimeout()}, ServiceUnreachableError, "no answer within"),
        (
            {"body": requests.exceptions.ChunkedEncodingError("incomplete")},
            LineageError,
            "cut off",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_an_error_and_no_smaller_graph(
    mock: responses.RequestsMock, answer: dict[str, Any], kind: type[LineageError], message: str
) -> None:
    mock.get(re.compile(re.escape(API)), **answer)
    with pytest.raises(kind, match=message):
        read(max_bytes=300_000, retries=0)


def test_a_passing_fault_is_asked_again_within_the_budget(mock: responses.RequestsMock) -> None:
    mock.get(f"{API}/events/lineage", status=503, headers={"Retry-After": "0"})
    mock.get(f"{API}/events/lineage", status=502, headers={"Retry-After": "0"})
    mock.get(f"{API}/events/lineage", json={"events": []})
    assert names(read(view="events", retries=2)) == []


def test_a_redirect_to_another_host_is_refused(mock: responses.RequestsMock) -> None:
    mock.get(f"{API}/events/lineage", status=302, headers={"Location": "http://evil.example/x"})
    with pytest.raises(LineageError, match="redirects to another host: http://evil"):
        read()
    assert len(mock.calls) == 1


def test_redirects_on_the_same_host_end_and_keep_the_query(mock: responses.RequestsMock) -> None:
    mock.get(f"{API}/events/lineage", status=301, headers={"Location": f"{API}/moved"})
    mock.get(f"{API}/moved", json={"events": []})
    read(view="events")
    assert "limit=" in (mock.calls[1].request.url or "")
    mock.replace(responses.GET, f"{API}/moved", status=301, headers={"Location": f"{API}/moved"})
    with pytest.raises(LineageError, match="redirects without end"):
        read(view="events")


def test_keys_and_headers_are_sent(mock: responses.RequestsMock) -> None:
    mock.get(f"{API}/events/lineage", json={"events": []})
    web = WebSettings(headers={"X-Team": "a"})
    MarquezSource(ADDRESS, view="events", api_key="secret", settings=web).read()
    sent = mock.calls[0].request.headers
    assert (sent["Authorization"], sent["X-Team"]) == ("Bearer secret", "a")


def test_a_name_that_leads_elsewhere_is_not_asked_for(mock: responses.RequestsMock) -> None:
    server = Server([event(1)])
    server.jobs.add(("n", ".."))
    with pytest.raises(LineageError, match="cannot be part of an address"):
        read(mock, server)


def test_a_job_of_which_only_a_bare_start_is_left_is_looked_up(
    mock: responses.RequestsMock,
) -> None:
    server = Server([event(1, eventType="START", outputs=[]), event(2)])
    server.pages["namespaces/n/jobs/j1"] = {
        "createdAt": "2023-01-01T00:00:00Z",
        "inputs": [{"namespace": "n", "name": "a"}],
        "outputs": [{"namespace": "n", "name": "b"}],
    }
    node = read(mock, server).jobs[JobRef("n", "j1")]
    assert [ref.name for ref in (*node.reads, *node.writes)] == ["a", "b"]


def page(job: str, **more: Any) -> dict[str, Any]:
    return {
        "namespace": "n",
        "name": job,
        "createdAt": "2023-01-01T00:00:00Z",
        "updatedAt": "2023-01-02T00:00:00Z",
        "tags": ["gold"],
        "facets": {"ownership": {"owners": [{"name": "team"}]}},
    } | more


def silent_server() -> Server:
    """A server that knows a job, and around it another, of neither of which an event is left."""
    server = Server([event(1)])
    server.jobs.add(("n", "old"))
    server.pages = {
        "namespaces/n/jobs/old": page("old", inputs=[{"namespace": "n", "name": "a"}]),
        "namespaces/n/jobs/old/runs": {"runs": []},
        "namespaces/n/jobs/near": page("near"),
        "namespaces/n/jobs/near/runs": {
            "runs": [
                {
                    "id": "r9",
                    "state": "COMPLETED",
                    "createdAt": "2023-01-01T00:00:00Z",
                    "startedAt": None,
                    "endedAt": "2023-01-01T01:00:00Z",
                    "args": {"nominal_start_time": "2022-12-31T00:00Z[UTC]"},
                    "inputDatasetVersions": [
                        {"datasetVersionId": {"namespace": "n", "name": "b"}, "facets": {}}
                    ],
                }
            ]
        },
        "namespaces/n/datasets/a": page("a", fields=[{"name": "x"}]),
        "lineage": {
            "graph": [
                {
                    "id": "job:n:old",
                    "type": "JOB",
                    "data": {"id": {"namespace": "n", "name": "old"}},
                    "outEdges": [{"origin": "job:n:old", "destination": "dataset:n:b"}],
                },
                {
                    "id": "dataset:n:b",
                    "type": "DATASET",
                    "data": {"id": {"namespace": "n", "name": "b"}},
                },
                {
                    "id": "job:n:near",
                    "type": "JOB",
                    "data": {"id": {"namespace": "n", "name": "near"}},
                },
            ]
        },
    }
    return server


def test_jobs_without_events_are_walked_until_nothing_is_new(mock: responses.RequestsMock) -> None:
    snapshot = read(mock, silent_server())
    old, near = snapshot.jobs[JobRef("n", "old")], snapshot.jobs[JobRef("n", "near")]
    assert [ref.name for ref in (*old.reads, *old.writes)] == ["a", "b"]
    assert (old.tags, old.owners) == (("gold",), ("team",))
    assert [ref.name for ref in near.reads] == ["b"]
    assert snapshot.datasets[DatasetRef("n", "a")].fields == ("x",)
    (run,) = [run for run in snapshot.history if run.job == near.ref]
    assert (run.state, str(run.nominal_start)) == ("COMPLETE", "2022-12-31 00:00:00+00:00")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_answer_is_understood_or_refused_and_nothing_else(data: st.DataObject) -> None:
    server = silent_server()
    answer = server.answer
    junk: st.SearchStrategy[Any] = st.sampled_from([None, 0, "", "x", [], [[]], {}, True, "\x00"])
    broken = data.draw(st.sampled_from([*server.pages, "events/lineage", "search", "namespaces"]))

    def mutated(path: str, query: dict[str, str]) -> tuple[int, Any]:
        status, body = answer(path, query)
        body = json.loads(json.dumps(body))
        target: Any = body
        while path == broken and isinstance(target, dict | list) and target:
            keys = list(target) if isinstance(target, dict) else list(range(len(target)))
            key = data.draw(st.sampled_from(keys))
            if data.draw(st.booleans()):
                target[key] = data.draw(junk)
                break
            target = target[key]
        return status, body

    server.answer = mutated  # type: ignore[method-assign]
    with (
        responses.RequestsMock(assert_all_requests_are_fired=False) as mock,
        contextlib.suppress(LineageError),
    ):
        read(mock, server)


class _Cut(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"events": []}')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_body_shorter_than_announced_is_an_error() -> None:
    server = HTTPServer(("127.0.0.1", 0), _Cut)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(LineageError, match="cut off"):
            MarquezSource(f"http://127.0.0.1:{server.server_port}").read()
    finally:
        server.shutdown()
        server.server_close()
