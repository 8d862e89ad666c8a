"""Requests to a service: complete answers in time, or an error that says what to do."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
import requests
import responses
from urllib3.exceptions import NewConnectionError, ProtocolError

from lineage_backfill import http, redaction
from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.http import Answer, HttpClient, HttpSettings

ADDRESS = "http://service.example/base"


@pytest.fixture
def mock() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as made:
        yield made


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_BACKOFF", 0.001)


def send(method: str = "GET", address: str = ADDRESS, **how: Any) -> Answer:
    settings = {name: how.pop(name) for name in list(how) if hasattr(HttpSettings, name)}
    with contextlib.closing(HttpClient(address, HttpSettings(**settings))) as client:
        return client.send(method, "/x", **how)


def unconnected() -> requests.ConnectionError:
    error = ProtocolError("no")
    error.reason = NewConnectionError(None, "connection refused")  # type: ignore[attr-defined, arg-type]
    return requests.ConnectionError(error)


def test_an_answer_of_any_status_is_returned(mock: responses.RequestsMock) -> None:
    mock.get(
        f"{ADDRESS}/x", status=404, json={"a": 1}, headers={"Date": "Fri, 01 Mar 2024 00:00:01 GMT"}
    )
    answer = send(query={"q": "a b"})
    assert (answer.status, answer.ok, answer.json()) == (404, False, {"a": 1})
    assert answer.url == f"{ADDRESS}/x?q=a+b"
    assert str(answer.sent_at) == "2024-03-01 00:00:01+00:00"


def test_bodies_and_headers_are_sent(mock: responses.RequestsMock) -> None:
    mock.post(f"{ADDRESS}/x", status=204)
    assert send("POST", headers={"X-Id": "7"}, body={"a": 1}).sent_at is None
    send("POST", body=b"raw")
    first, second = (call.request for call in mock.calls)
    assert (first.headers["X-Id"], first.body, second.body) == ("7", b'{"a": 1}', b"raw")


@pytest.mark.parametrize("status", sorted(http.BUSY))
def test_a_busy_service_is_asked_again(mock: responses.RequestsMock, status: int) -> None:
    mock.get(f"{ADDRESS}/x", status=status, headers={"Retry-After": "soon"})
    mock.get(f"{ADDRESS}/x", json=1)
    assert send().json() == 1


@pytest.mark.parametrize(("again", "statuses"), [(None, [503]), (True, [503, 200])])
def test_a_request_that_changes_something_is_sent_twice_only_if_it_may_be(
    mock: responses.RequestsMock, again: bool | None, statuses: list[int]
) -> None:
    mock.post(f"{ADDRESS}/x", status=503)
    mock.post(f"{ADDRESS}/x", status=200)
    assert send("POST", again=again).status == statuses[-1]
    assert len(mock.calls) == len(statuses)


def test_a_request_that_was_not_sent_is_sent_again(mock: responses.RequestsMock) -> None:
    mock.post(f"{ADDRESS}/x", body=unconnected())
    mock.post(f"{ADDRESS}/x", status=201)
    assert send("POST").status == 201


def test_retries_end(mock: responses.RequestsMock) -> None:
    mock.get(f"{ADDRESS}/x", status=503)
    assert send(retries=2).status == 503
    assert len(mock.calls) == 3


@pytest.mark.parametrize("after", ["21600", "Fri, 31 Dec 2999 23:59:59 GMT"])
def test_a_pause_longer_than_the_timeout_is_an_error_at_once(
    mock: responses.RequestsMock, after: str
) -> None:
    mock.get(f"{ADDRESS}/x", status=503, headers={"Retry-After": after})
    began = time.monotonic()
    with pytest.raises(ServiceUnreachableError, match=r"answers 503, .* after the timeout \(4 s\)"):
        send(timeout=4)
    assert time.monotonic() - began < 2


def test_pauses_and_waits_are_logged(
    mock: responses.RequestsMock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mock.get(f"{ADDRESS}/x", status=503, headers={"Retry-After": "1"})
    mock.get(f"{ADDRESS}/x", json=1)
    send()
    assert f"{ADDRESS}/x: answers 503; retrying in 1 s" in caplog.messages
    monkeypatch.setattr(http, "_NOTICE", 0.1)
    mock.add_passthru("http://127.0.0.1")
    with serving(_Dripping) as address, pytest.raises(ServiceUnreachableError):
        send(address=address, timeout=0.5)
    assert f"{address}/x: no complete answer for 0 s" in caplog.messages


def test_get_follows_redirects_within_the_service_and_keeps_its_query(
    mock: responses.RequestsMock,
) -> None:
    mock.get(f"{ADDRESS}/x", status=301, headers={"Location": "y"})
    mock.get(f"{ADDRESS}/y", json=1)
    assert send(query={"limit": "1"}).url == f"{ADDRESS}/y?limit=1"
    mock.replace(responses.GET, f"{ADDRESS}/y", status=301, headers={"Location": "y"})
    with pytest.raises(ServiceUnreachableError, match="redirects without end"):
        send()
    mock.put(f"{ADDRESS}/x", status=307, headers={"Location": "y"})
    assert send("PUT").status == 307


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://[bad", "redirects to an invalid address"),
        ("http://evil.example/x", "redirects to another host: http://evil"),
        ("https://service.example/base/x", "redirects to another host"),
    ],
)
def test_other_redirects_are_errors(
    mock: responses.RequestsMock, location: str, message: str
) -> None:
    mock.get(f"{ADDRESS}/x", status=302, headers={"Location": location})
    with pytest.raises(ServiceUnreachableError, match=message) as caught:
        send()
    assert "Give the address" in caught.value.hint


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<html>", "not JSON: a web page"),
        ('{"events": [', "not JSON"),
        ("[" * 100_000 + "]" * 100_000, "not JSON"),
    ],
)
def test_what_is_not_json_is_an_error(
    mock: responses.RequestsMock, body: str, message: str
) -> None:
    mock.get(f"{ADDRESS}/x", body=body)
    with pytest.raises(ServiceUnreachableError, match=message) as caught:
        send().json()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (requests.ConnectionError("no"), "cannot be reached", "check"),
        (requests.ReadTimeout(), r"took longer than 30 s", "slow"),
        (ProtocolError("cut"), "is incomplete", http.AGAIN),
    ],
)
def test_without_an_answer_the_hint_is_that_of_the_service(
    mock: responses.RequestsMock, error: Exception, message: str, hint: str
) -> None:
    mock.get(f"{ADDRESS}/x", body=error)
    with pytest.raises(ServiceUnreachableError, match=message) as caught:
        send(retries=0, check="check", slow="slow")
    assert caught.value.hint == hint
    assert len(mock.calls) == 1


def test_a_service_that_does_not_run_is_named_in_few_words() -> None:
    with pytest.raises(ServiceUnreachableError) as caught:
        send(address="http://127.0.0.1:9", retries=0)
    assert str(caught.value).startswith(
        "http://127.0.0.1:9/x: cannot be reached: Failed to establish a new connection: [Errno"
    )


def test_an_invalid_address_is_an_error() -> None:
    with pytest.raises(ServiceUnreachableError, match="cannot be reached"):
        send(address="http://[::1")


def test_secrets_are_hidden_in_messages_and_afterwards(mock: responses.RequestsMock) -> None:
    address = "http://me:pa55w0rd@service.example"
    mock.get("http://service.example/x", body=requests.ConnectionError("no"))
    with pytest.raises(ServiceUnreachableError) as caught:
        send(address=address, retries=0, headers={"Authorization": "Bearer t0k3n-abc"})
    assert "pa55w0rd" not in str(caught.value)
    assert redaction.redacted("x Bearer t0k3n-abc y pa55w0rd") == "x *** y ***"
    redaction.forget()


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Cut(BaseHTTPRequestHandler):
    """Announces more than it sends."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"events": []}')

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Endless(_Cut):
    """Sends without end."""

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
    """Sends a long answer byte by byte, none of them late."""

    header, part, pause = ("Content-Length", "1000000"), b" ", 0.01


class _DrippingHeader(_Cut):
    """Sends a header byte by byte."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.flush_headers()
        with contextlib.suppress(OSError):
            for _ in range(200):
                self.wfile.write(b"x")
                time.sleep(0.01)


class _EndlessRedirect(_Endless):
    """Redirects, with a body without end."""

    status, header, part = 302, ("Location", "http://evil.example/"), b" " * 65536


class _GarbledRedirect(_Cut):
    """Redirects to what is not text."""

    def do_GET(self) -> None:
        self.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: /\xff\r\nContent-Length: 0\r\n\r\n")


class _Bomb(_Cut):
    """Sends a large answer as a small one."""

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
    ("handler", "message"),
    [
        (_Cut, "is incomplete"),
        (_Endless, "took longer than 0.5 s"),
        (_Dripping, "took longer than 0.5 s"),
        (_DrippingHeader, "took longer than 0.5 s"),
        (_EndlessRedirect, "redirects to another host"),
        (_GarbledRedirect, "redirects without end"),
        (_Bomb, "more than 300000 bytes"),
    ],
)
def test_an_answer_that_is_not_complete_is_an_error(
    handler: type[BaseHTTPRequestHandler], message: str
) -> None:
    timeout = 0.5 if message.startswith("took") else 30
    with serving(handler) as address, pytest.raises(ServiceUnreachableError, match=message):
        send(address=address, max_bytes=300_000, timeout=timeout)
