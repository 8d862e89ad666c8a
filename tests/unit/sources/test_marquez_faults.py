"""What a server may do wrong: never a smaller graph, always an error that says what next."""

from __future__ import annotations

import contextlib
import re
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
import requests
import responses
from urllib3.exceptions import ProtocolError

from lineage_backfill.errors import LineageError, ServiceUnreachableError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources.marquez import MarquezSource, View
from lineage_backfill.sources.web import WebSettings
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


def ask(view: View = "both", **web: Any) -> Any:
    return MarquezSource(ADDRESS, view=view, settings=WebSettings(**web)).read()


@pytest.fixture
def mock() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as made:
        made.get(f"{API}/namespaces/default", json={"createdAt": "2023-01-01T00:00:00Z"})
        yield made


@pytest.mark.parametrize("view", ["both", "events", "graph"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_error_that_says_what_next(
    mock: responses.RequestsMock, fault: str, view: View
) -> None:
    answer, kind, message = FAULTS[fault]
    mock.get(re.compile(re.escape(API)), **answer)
    with pytest.raises(kind, match=message) as caught:
        ask(view, max_bytes=300_000, retries=0)
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
@pytest.mark.parametrize("number", range(10))
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


@pytest.mark.parametrize("status", [500, 404])
@pytest.mark.parametrize("number", range(20))
def test_an_answer_of_no_success_hides_no_job(status: int, number: int) -> None:
    def made() -> FakeMarquez:
        server = FakeMarquez([event(n, inputs=[dataset("a")]) for n in range(6)])
        server.purge("2024-01-01T00:00:03Z")
        return server

    whole, server = read(made()), made()
    server.before_answer = lambda *_: (status, {}) if len(server.asked) == number + 1 else None
    with contextlib.suppress(LineageError):
        part = read(server)
        assert part.jobs == whole.jobs
        assert part.datasets.keys() == whole.datasets.keys()


def test_a_passing_fault_is_asked_again_within_the_budget(mock: responses.RequestsMock) -> None:
    for status in (503, 502):
        mock.get(f"{API}/events/lineage", status=status, headers={"Retry-After": "0"})
    mock.get(f"{API}/events/lineage", json={"events": [], "totalCount": 0})
    assert names(ask("events", retries=2)) == []


@pytest.mark.parametrize("after", ["21600", "Fri, 31 Dec 2999 23:59:59 GMT"])
def test_who_asks_for_more_patience_than_there_is_gets_none(
    mock: responses.RequestsMock, after: str
) -> None:
    mock.get(f"{API}/events/lineage", status=503, headers={"Retry-After": after})
    began = time.monotonic()
    with pytest.raises(ServiceUnreachableError, match=r"after lineage\.timeout") as caught:
        ask("events", timeout=4)
    assert time.monotonic() - began < 2
    assert "lineage.timeout" in caught.value.hint


def test_a_date_to_come_back_at_that_is_none_is_no_answer(mock: responses.RequestsMock) -> None:
    mock.get(f"{API}/events/lineage", status=503, headers={"Retry-After": "soon"})
    mock.get(f"{API}/events/lineage", json={"events": [], "totalCount": 0})
    assert names(ask("events")) == []


def test_who_waits_is_told(
    mock: responses.RequestsMock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mock.get(f"{API}/events/lineage", status=503, headers={"Retry-After": "1"})
    mock.get(f"{API}/events/lineage", json={"events": [], "totalCount": 0})
    monkeypatch.setattr("lineage_backfill.sources.web._PATIENCE", 0.2)
    ask("events")
    assert f"{API}/events/lineage: answers 503; retrying in 1 s" in caplog.messages
    server = HTTPServer(("127.0.0.1", 0), _Dripping)
    Thread(target=server.serve_forever, daemon=True).start()
    mock.add_passthru("http://127.0.0.1")
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(ServiceUnreachableError, match=r"took longer than 0\.5 s"):
            MarquezSource(address, settings=WebSettings(timeout=0.5)).read()
    finally:
        server.shutdown()
        server.server_close()
    assert any("no complete answer for 0 s; still waiting" in said for said in caplog.messages)


@pytest.mark.parametrize("retries", [1, 2])
def test_all_requests_share_the_budget(mock: responses.RequestsMock, retries: int) -> None:
    for path, member in (("namespaces", "namespaces"), ("search", "results")):
        mock.get(f"{API}/{path}", status=503, headers={"Retry-After": "0"})
        mock.get(f"{API}/{path}", json={member: [], "totalCount": 0})
    mock.get(f"{API}/jobs", json={"jobs": [], "totalCount": 0})
    if retries == 2:
        assert names(ask("graph", retries=2)) == []
        return
    mock.assert_all_requests_are_fired = False
    with pytest.raises(ServiceUnreachableError, match="answers 503"):
        ask("graph", retries=1)


def test_redirects_on_the_same_host_end_and_keep_the_query(mock: responses.RequestsMock) -> None:
    mock.get(f"{API}/events/lineage", status=301, headers={"Location": f"{API}/moved"})
    mock.get(f"{API}/moved", json={"events": [], "totalCount": 0})
    ask("events")
    assert any(one.request.url.startswith(f"{API}/moved?") for one in mock.calls)  # type: ignore[union-attr]
    mock.replace(responses.GET, f"{API}/moved", status=301, headers={"Location": f"{API}/moved"})
    with pytest.raises(LineageError, match="redirects without end"):
        ask("events")


def test_keys_and_headers_are_sent(mock: responses.RequestsMock) -> None:
    mock.get(f"{API}/events/lineage", json={"events": [], "totalCount": 0})
    web = WebSettings(headers={"X-Team": "a"})
    MarquezSource(ADDRESS, view="events", api_key="secret", settings=web).read()
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
@pytest.mark.parametrize("view", ["both", "graph"])
def test_hostile_names_are_names(name: str, view: View) -> None:
    job = {"namespace": "n", "name": name}
    server = FakeMarquez([event(1, job=job, outputs=[dataset(f"d{name}")]), event(2)])
    snapshot = read(server, view=view)
    assert names(snapshot) == sorted([name, "j2"])
    assert snapshot.jobs[JobRef("n", name)].writes == (DatasetRef("n", f"d{name}"),)


@pytest.mark.parametrize("name", ["\x1b[2J", "\x00", "\ud800", " ", "x" * 10_000])
@pytest.mark.parametrize("view", ["both", "graph"])
def test_names_that_no_producer_means_are_refused(name: str, view: View) -> None:
    server = FakeMarquez([event(1, outputs=[dataset(name)])])
    with pytest.raises(LineageError, match=r"name of 10000|without|with control|cannot be"):
        read(server, view=view)


def test_an_event_of_a_million_datasets_is_refused() -> None:
    many = [dataset(f"d{n}") for n in range(10_001)]
    with pytest.raises(LineageError, match="one event names 10001 datasets"):
        read(FakeMarquez([event(1, inputs=many, outputs=[])]))


def test_a_server_that_is_not_there_is_said_in_few_words() -> None:
    with pytest.raises(ServiceUnreachableError) as caught:
        MarquezSource("http://127.0.0.1:9", settings=WebSettings(retries=0)).read()
    assert re.fullmatch(
        r"http://127.0.0.1:9/api/v1/namespaces/default: cannot be reached:"
        r" Failed to establish a new connection: \[Errno \d+\] Connection refused",
        str(caught.value),
    )


class _Cut(BaseHTTPRequestHandler):
    """Announces more than it sends."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"events": []}')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Endless(_Cut):
    """Sends on and on."""

    protocol_version = "HTTP/1.1"
    status, header, part, pause = 200, ("Transfer-Encoding", "chunked"), b"1\r\n \r\n", 0.0

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header(*self.header)
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(self.part)
                time.sleep(self.pause)


class _Dripping(_Endless):
    """Sends byte after byte of a long answer, none of them late."""

    header, part, pause = ("Content-Length", "1000000"), b" ", 0.01


class _DrippingHeader(_Cut):
    """Sends byte after byte of a header."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.flush_headers()
        with contextlib.suppress(OSError):
            for _ in range(200):
                self.wfile.write(b"x")
                time.sleep(0.01)


class _EndlessRedirect(_Endless):
    """Sends elsewhere, and on and on of it."""

    status, header, part = 302, ("Location", "http://evil.example/"), b" " * 65536


class _GarbledRedirect(_Cut):
    """Sends to what is no text."""

    def do_GET(self) -> None:
        self.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: /\xff\r\nContent-Length: 0\r\n\r\n")


class _Bomb(_Cut):
    """Sends much as little."""

    def do_GET(self) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        body = b"".join(packer.compress(b" " * 100_000) for _ in range(100)) + packer.flush()
        self.send_response(200)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)


@pytest.mark.parametrize(
    ("handler", "kind", "message"),
    [
        (_Cut, LineageError, "is incomplete"),
        (_Endless, ServiceUnreachableError, "took longer than 0.5 s"),
        (_Dripping, ServiceUnreachableError, "took longer than 0.5 s"),
        (_DrippingHeader, ServiceUnreachableError, "took longer than 0.5 s"),
        (_EndlessRedirect, LineageError, "redirects to another host"),
        (_GarbledRedirect, LineageError, "redirects without end"),
        (_Bomb, LineageError, "more than 300000 bytes"),
    ],
)
def test_a_body_that_is_not_whole_is_an_error(
    handler: type[BaseHTTPRequestHandler], kind: type[LineageError], message: str
) -> None:
    server = HTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    patience = 0.5 if message.startswith("took") else 30
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        settings = WebSettings(max_bytes=300_000, timeout=patience)
        with pytest.raises(kind, match=message):
            MarquezSource(address, settings=settings).read()
    finally:
        server.shutdown()
        server.server_close()


def test_jobs_whose_rows_cannot_be_shown_are_found_around_those_that_can() -> None:
    """Each job that is found is read as one that is listed, with those around it."""
    chain = [event(1), event(2, inputs=[dataset("d1")]), event(3, inputs=[dataset("d2")])]
    server = FakeMarquez([*chain, event(9)])

    def damaged(path: str, query: dict[str, str]) -> tuple[int, Any] | None:
        if path.endswith("search"):
            return (500, {}) if query["filter"] == "job" else None
        rows = server._list(query)[1]["jobs"] if path == "jobs" else ()
        return (500, {}) if any(row["name"] in ("j2", "j3") for row in rows) else None

    server.before_answer = damaged
    assert names(read(server, view="graph")) == ["j1", "j2", "j3", "j9"]
