"""What a server may do wrong: never a smaller graph, always an error that says what next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import responses
from urllib3.exceptions import ProtocolError

from lineage_backfill.errors import LineageError, ServiceUnreachableError
from lineage_backfill.http import HttpSettings
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources.marquez import MarquezSource, history
from tests.fake_marquez import FakeMarquez
from tests.unit.sources.marquez_reads import ADDRESS, API, dataset, event, names, read

#: What a server may answer in place of the truth, and what is said of it.
FAULTS: dict[str, tuple[dict[str, Any], type[LineageError], str]] = {
    "an error of its own": ({"status": 500}, LineageError, "answers 500"),
    "busy": ({"status": 503}, ServiceUnreachableError, "answers 503"),
    "too many requests": ({"status": 429}, ServiceUnreachableError, "answers 429"),
    "no right to": ({"status": 401}, LineageError, r"refuses \(401\)"),
    "not there": ({"status": 404}, LineageError, "answers 404"),
    "a page for people": ({"body": "<html>"}, LineageError, "not JSON: a web page"),
    "half of it": ({"body": '{"events": ['}, LineageError, "not JSON"),
    "deep": ({"body": "[" * 100_000 + "]" * 100_000}, LineageError, "not JSON"),
    "a list": ({"body": "[]"}, LineageError, "not of Marquez's shape"),
    "nothing": ({"body": "null"}, LineageError, "not of Marquez's shape"),
    "a number of events": ({"body": '{"events": 3}'}, LineageError, "not of Marquez's shape"),
    "no total": (
        {"body": '{"events": [{"eventTime": "2024-01-01T00:00:00Z"}]}'},
        LineageError,
        "not of Marquez's shape",
    ),
    "events that are none": ({"body": '{"events": [[]]}'}, LineageError, "not of Marquez's shape"),
    "huge": ({"body": " " * 400_000}, LineageError, "more than 300000 bytes"),
    "a refused connection": (
        {"body": requests.ConnectionError("no")},
        ServiceUnreachableError,
        "cannot be reached",
    ),
    "silence": ({"body": requests.ReadTimeout()}, ServiceUnreachableError, "took longer than 30 s"),
    "an end too early": (
        {"body": ProtocolError("incomplete")},
        LineageError,
        "is incomplete",
    ),
    "no address": (
        {"status": 302, "headers": {"Location": "http://[bad"}},
        LineageError,
        "redirects to an invalid address",
    ),
    "another host": (
        {"status": 302, "headers": {"Location": "http://evil.example/x"}},
        LineageError,
        "redirects to another host: http://evil",
    ),
}


def ask(**web: Any) -> Any:
    return MarquezSource(ADDRESS, settings=HttpSettings(**web)).read()


@pytest.fixture
def mock() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as made:
        made.get(f"{API}/namespaces/default", json={"createdAt": "2023-01-01T00:00:00Z"})
        yield made


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_error_that_says_what_next(mock: responses.RequestsMock, fault: str) -> None:
    answer, kind, message = FAULTS[fault]
    mock.get(re.compile(re.escape(API)), **answer)
    with pytest.raises(kind, match=message) as caught:
        ask(max_bytes=300_000, retries=0)
    assert caught.value.hint


def test_a_hint_for_a_server_that_is_too_slow_names_the_setting(
    mock: responses.RequestsMock,
) -> None:
    mock.get(re.compile(re.escape(API)), body=requests.ReadTimeout())
    with pytest.raises(ServiceUnreachableError, match="took longer than 30 s") as caught:
        ask(retries=0)
    assert "Raise lineage.timeout" in caught.value.hint


#: Faults that come with a status that the source can live with, in some places.
BEARABLE = {"an error of its own", "not there"}


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - BEARABLE))
@pytest.mark.parametrize("number", [1, 4, 9])
def test_a_fault_in_the_midst_of_a_read_is_an_error_too(
    mock: responses.RequestsMock, fault: str, number: int
) -> None:
    answer, kind, _ = FAULTS[fault]
    # Half of its events are gone: both views have something to tell.
    server = FakeMarquez([event(n, inputs=[dataset("a")]) for n in range(6)])
    server.purge("2024-01-01T00:00:03Z")
    body = answer.get("body", "")

    def broken(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if len(server.asked) <= number:
            return None
        if isinstance(body, Exception):
            raise body
        return answer.get("status", 200), body

    def callback(request: Any) -> tuple[int, dict[str, str], str]:
        status, headers, text = server(request)
        return status, headers | answer.get("headers", {}), text

    server.before_answer = broken
    mock.add_callback(responses.GET, re.compile(re.escape(API)), callback=callback)
    with pytest.raises(LineageError) as caught:
        ask(max_bytes=300_000, retries=0)
    assert isinstance(caught.value, kind) or "shape" in str(caught.value)


def test_keys_and_headers_are_sent(mock: responses.RequestsMock) -> None:
    mock.get(re.compile(re.escape(API)), json={"events": [], "totalCount": 0})
    web = HttpSettings(headers={"X-Team": "a"})
    with pytest.raises(LineageError):
        MarquezSource(ADDRESS, api_key="secret", settings=web).read()
    sent = mock.calls[0].request.headers
    assert (sent["Authorization"], sent["X-Team"]) == ("Bearer secret", "a")


#: Names that mean something to a path, a shell, a terminal or a database; ordinary ones to us.
HOSTILE = [
    "../../etc/passwd",
    "a/b?c=d#e",
    "%2e%2e",
    "'; DROP TABLE jobs; --",
    "$(reboot)",
    "[bold]x[/bold]",
    "\u202egnp.exe",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_names(name: str) -> None:
    job = {"namespace": "n", "name": name}
    server = FakeMarquez([event(1, job=job, outputs=[dataset(f"d{name}")]), event(2)])
    snapshot = read(server)
    assert names(snapshot) == sorted([name, "j2"])
    assert snapshot.jobs[JobRef("n", name)].writes == (DatasetRef("n", f"d{name}"),)


@pytest.mark.parametrize("name", ["\x1b[2J", "\x00", "\ud800", " ", "x" * 10_000])
def test_names_that_no_producer_means_are_refused(name: str) -> None:
    server = FakeMarquez([event(1, outputs=[dataset(name)])])
    with pytest.raises(LineageError, match=r"name of 10000|without|with control|cannot be"):
        read(server)


def test_an_event_of_a_million_datasets_is_refused() -> None:
    many = [dataset(f"d{n}") for n in range(10_001)]
    with pytest.raises(LineageError, match="one event names 10001 datasets"):
        read(FakeMarquez([event(1, inputs=many, outputs=[])]))


#: What one answer of a read may be in place of the truth.
SPOILT = [
    *("broken", "not found", "cut", "other shape", "other rows"),
    *("empty", "first half", "last half", "counts too few"),
]


def server() -> FakeMarquez:
    """A server with something for every request: what events tell, and what only pages do."""
    old = [event(n, n, inputs=[dataset(f"d{n - 1}")]) for n in range(1, 7)]
    made = FakeMarquez([*old, event(1, 9, run={"runId": "again"}, inputs=[dataset("d0")])])
    made.purge("2024-01-01T00:00:04Z")
    for n in range(11, 15):
        begun = event(n, n, eventType="START", inputs=[dataset(f"d{n - 1}")], outputs=[])
        made.post(begun)
        made.post(event(n, n + 20))
    bare = event(21, 45, job={"namespace": "n", "name": "j4"}, eventType="START", outputs=[])
    made.post(bare)
    for n in (1, 2):
        told = event(n, 50 + n, inputs=[dataset(f"d{n}"), dataset("d9")])
        told["job"] = {"namespace": "n", "name": f"told{n}"}
        del told["run"], told["eventType"]
        made.post(told)
    made.post({"eventTime": "2024-01-01T00:00:55Z", "dataset": dataset("alone")})
    made.post(event(30, 56, job={"namespace": "gone", "name": "j30"}))
    made.post(event(31, 57))
    made.delete("namespaces/n/jobs/j31")
    made.delete("namespaces/gone")
    return made


def spoilt(fault: str, answer: tuple[int, Any]) -> tuple[int, Any]:
    """Return an answer with a fault; its count of rows stays, unless that is what is wrong."""
    status, body = answer
    lists = {name: rows for name, rows in body.items() if isinstance(rows, list)}
    match fault:
        case "broken" | "not found":
            return {"broken": 500, "not found": 404}[fault], {}
        case "cut":
            return status, json.dumps(body)[:-9]
        case "other shape":
            return status, {"data": body}
        case "counts too few" if "totalCount" in body:
            return status, body | {"totalCount": max(0, body["totalCount"] - 1)}
        case "other rows":
            return status, body | {name: ["no row", *map(str, lists[name])] for name in lists}
        case "empty" if "totalCount" in body:
            return status, body | {name: [] for name in lists}
        case "first half" if "totalCount" in body:
            return status, body | {name: lists[name][: len(lists[name]) // 2] for name in lists}
        case "last half" if "totalCount" in body:
            return status, body | {name: lists[name][len(lists[name]) // 2 :] for name in lists}
    return answer


@pytest.mark.parametrize("kept", [False, True], ids=["no cache", "from the cache"])
@pytest.mark.parametrize("fault", SPOILT)
def test_one_answer_that_is_wrong_makes_no_graph_smaller(
    fault: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_PAGE", 3)
    monkeypatch.setattr(history, "_LARGE_PAGE", 6)
    made, refused = server(), 0
    whole = read(made)
    places = len(made.asked)
    assert (len(whole.jobs), len(whole.datasets)) == (12, 16)
    for place in range(0, places, 5):
        folder = tmp_path / str(place)
        if kept:
            read(made, cache=folder)
        made.asked.clear()

        def spoil(path: str, query: dict[str, str], place: int = place) -> tuple[int, Any] | None:
            if len(made.asked) != place + 1:
                return None
            return spoilt(fault, made._answer(path, query))

        made.before_answer = spoil
        try:
            part = read(made, cache=folder)
        except LineageError:
            refused += 1
        else:
            # A job that was deleted may be kept.
            found = {ref: part.jobs.get(ref) for ref in whole.jobs}
            assert found == whole.jobs, (place, made.asked[place])
            assert set(part.history) >= set(whole.history)
        made.before_answer = lambda *_: None
        again = read(made, cache=folder)  # what was kept is right
        assert (again.jobs, again.datasets) == (whole.jobs, whole.datasets)
    assert refused or kept or fault == "counts too few"
