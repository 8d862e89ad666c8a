"""The headers of a request to a service."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import responses

from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.sources import web
from lineage_backfill.sources.web import WebClient, WebSettings

LONG = json.dumps("x" * 400_000).encode()


@contextmanager
def server() -> Iterator[tuple[str, list[str]]]:
    """A server of one long answer; with it, the encodings that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Accept-Encoding"])
            self.send_response(200)
            self.send_header("Content-Length", str(len(LONG)))
            self.end_headers()
            self.wfile.write(LONG)

        def log_message(self, *_: object) -> None:
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{made.server_port}", asked
    finally:
        made.shutdown()
        made.server_close()


def encodings(address: str, **settings: Any) -> list[Any]:
    """What is asked for of an address where nothing is but what is mocked."""
    with responses.RequestsMock() as mock, closing(client(address, **settings)) as one:
        mock.get(f"{address}/x", json=1)
        assert one.get("x") == 1
        return [call.request.headers["Accept-Encoding"] for call in mock.calls]


def client(address: str, **settings: Any) -> WebClient:
    return WebClient(address, WebSettings(**settings))


@pytest.mark.parametrize("host", ["localhost:5000", "127.0.0.1", "127.1.2.3:80", "[::1]:5000"])
def test_what_is_on_this_machine_need_not_pack_its_answers(host: str) -> None:
    assert encodings(f"http://{host}") == ["identity"]


@pytest.mark.parametrize("host", ["marquez.example", "10.0.0.7:5000", "localhost.example", "[::2]"])
def test_what_is_elsewhere_may_pack_them(host: str) -> None:
    (asked,) = encodings(f"http://{host}")
    assert "gzip" in asked


def test_an_address_that_is_none_is_an_error_that_says_so() -> None:
    with closing(client("http://[::1")) as one, pytest.raises(ServiceUnreachableError):
        one.get("x")


def test_an_encoding_of_the_users_own_is_asked_for() -> None:
    assert encodings("http://localhost", headers={"accept-encoding": "br"}) == ["br"]


@pytest.mark.parametrize(("slow", "packed"), [(10**15, True), (0, False)])
def test_what_comes_as_through_a_tunnel_is_asked_for_packed(
    monkeypatch: pytest.MonkeyPatch, slow: int, packed: bool
) -> None:
    monkeypatch.setattr(web, "_SLOW", slow)
    with server() as (address, asked), closing(client(address)) as one:
        for _ in range(2):
            assert len(one.get("x")) == 400_000
    first, second = asked
    assert first == "identity"
    assert ("gzip" in second) is packed
