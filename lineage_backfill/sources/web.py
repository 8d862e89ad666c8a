"""JSON over HTTP: GET only, one host, one retry budget, complete answers or an error.

A request has one deadline for everything: connecting, waiting for a busy server, retries, and
reading the answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.structures import CaseInsensitiveDict
from urllib3.exceptions import (
    ConnectTimeoutError,
    DecodeError,
    InvalidHeader,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)
from urllib3.util import Retry

from lineage_backfill.errors import HTTPStatusError, LineageError, ServiceUnreachableError
from lineage_backfill.sources.parsing import parse

_log = logging.getLogger(__name__)
#: Answers after which the same request may succeed; a 500 of Marquez persists.
_PASSING = frozenset({429, 502, 503, 504})
_CONNECT_TIMEOUT = 5
_CONNECT_RETRIES = 3
_BACKOFF = 0.3  # seconds; twice as long each time
_MAX_REDIRECTS = 3
_CHUNK = 1024 * 1024
#: If an uncompressed answer has more bytes than this and arrives at fewer per second, the server is
#: not really local (a tunnel): the next answers are requested compressed.
_TELLING = 256 * 1024
_SLOW = 8 * 1024 * 1024
#: Seconds between two messages that an answer is still awaited.
_PATIENCE = 5.0
_MORE_TIME = "Raise lineage.timeout (`timeout` in [lineage]), or check what slows the server down."
_ITSELF = "Give the address at which the service itself answers."
#: The hint for an answer that cannot be trusted.
AGAIN = "Try again: nothing is planned from partial lineage."


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """Settings of the requests to a service.

    `timeout` is in seconds, for a whole request; `max_bytes` limits one answer, `retries` the whole
    read.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    ca_bundle: Path | None = None
    timeout: float = 30
    max_bytes: int = 256 * 1024 * 1024
    retries: int = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a server, parsed on demand; `sent_at` is by that server's clock."""

    url: str
    body: bytes
    sent_at: datetime | None = None

    def value(self, read: Callable[[bytes], Any] = parse) -> Any:
        """Return the JSON value, parsed by `read`; raises LineageError for invalid JSON."""
        try:
            return read(self.body)
        except (ValueError, RecursionError) as error:
            is_page = self.body.lstrip().startswith(b"<")
            why, hint = ("a web page", _ITSELF) if is_page else (error, AGAIN)
            raise LineageError(f"{self.url}: not JSON: {why}", hint=hint) from error


class WebClient:
    """Reads JSON from one service.

    Raises ServiceUnreachableError without an answer, HTTPStatusError for a failure status,
    LineageError for an incomplete answer.
    """

    def __init__(self, address: str, settings: WebSettings) -> None:
        self._address = address.rstrip("/") + "/"
        self._settings = settings
        self._budget = _Budget(settings.retries)
        self._session = _Session()
        own = CaseInsensitiveDict(settings.headers)
        self._session.headers.update(own)
        #: Whether answers are requested uncompressed: on one machine, compressing takes longer than
        #: sending.
        self._unpacked = _is_loopback(address) and "Accept-Encoding" not in own
        self._session.verify = str(settings.ca_bundle) if settings.ca_bundle else True

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON at `path` below the address; its segments are percent-encoded."""
        return self.ask(path, query).value()

    def ask(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        """Return the answer of `path`, which is parsed on demand."""
        url = self._address + path
        deadline = time.monotonic() + self._settings.timeout
        for _ in range(_MAX_REDIRECTS):
            response, body = self._ask(url, query or {}, deadline)
            if not response.is_redirect:
                return self._accepted(response, body)
            # The query is sent again: a redirect of Marquez loses it.
            url = self._redirect(url, response.headers["Location"])
        raise LineageError(f"{url}: redirects without end", hint=_ITSELF)

    def _ask(
        self, url: str, query: Mapping[str, str], deadline: float
    ) -> tuple[requests.Response, bytes]:
        """Return the first answer that is not about a busy server, or the last one."""
        for attempt in count():
            pause = _BACKOFF * 2**attempt
            try:
                response, body = self._awaited(url, query, deadline)
            except requests.ConnectionError as error:
                # A request that timed out continues in the server: a retry would double its load.
                if attempt >= _CONNECT_RETRIES or not _is_unheard(error) or not self._budget.take():
                    raise _unreachable(url, error) from error
                said = "cannot be reached"
            else:
                if response.status_code not in _PASSING or not self._budget.take():
                    return response, body
                said = f"answers {response.status_code}"
                pause = _retry_after(response) or pause
            if time.monotonic() + pause > deadline:
                raise ServiceUnreachableError(
                    f"{url}: {said}, and the next request would be in {pause:.0f} s, after"
                    f" lineage.timeout ({self._settings.timeout:g} s)",
                    hint=f"Try again then. {_MORE_TIME}",
                )
            if pause >= 1:
                _log.warning("%s: %s; retrying in %.0f s", url, said, pause)
            time.sleep(pause)
        raise AssertionError("counts without end")

    def _awaited(
        self, url: str, query: Mapping[str, str], deadline: float
    ) -> tuple[requests.Response, bytes]:
        """Return an answer that arrives before the deadline; raises the errors of `_once`."""
        came: Queue[tuple[requests.Response, bytes] | Exception] = Queue(1)

        def fetch() -> None:
            try:
                came.put(self._once(url, query, deadline))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                came.put(error)

        # A separate thread can be abandoned, however slow the server is.
        began = time.monotonic()
        Thread(target=fetch, name="request", daemon=True).start()
        while (left := deadline - time.monotonic()) > 0:
            try:
                answer = came.get(timeout=min(left, _PATIENCE))
            except Empty:
                waited = time.monotonic() - began
                _log.warning("%s: no complete answer for %.0f s; still waiting", url, waited)
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer
        raise self._late(url)

    def _once(
        self, url: str, query: Mapping[str, str], deadline: float
    ) -> tuple[requests.Response, bytes]:
        began = time.monotonic()
        left = max(0.001, deadline - began)
        try:
            with self._session.get(
                url,
                params=query,
                headers={"Accept-Encoding": "identity"} if self._unpacked else None,
                timeout=(min(_CONNECT_TIMEOUT, left), left),
                allow_redirects=False,
                stream=True,
            ) as response:
                body = b"" if response.is_redirect else self._body(response, deadline)
                asked, took = response.request.path_url, time.monotonic() - began
                said = asked, response.status_code, len(body), took
                _log.info("GET %s: %d, %d bytes in %.2f s", *said)
                return response, body
        except requests.ConnectionError:
            raise  # it may be tried again
        except (requests.Timeout, ReadTimeoutError) as error:
            raise self._late(url) from error
        except (ProtocolError, DecodeError) as error:
            raise LineageError(f"{url}: the answer is incomplete: {error}", hint=AGAIN) from error
        except requests.RequestException as error:
            raise _unreachable(url, error) from error

    def _late(self, url: str) -> ServiceUnreachableError:
        seconds = f"{self._settings.timeout:g}"
        return ServiceUnreachableError(f"{url}: took longer than {seconds} s", hint=_MORE_TIME)

    def _body(self, response: requests.Response, deadline: float) -> bytes:
        body = bytearray()
        began = time.monotonic()
        # Reads what has arrived: the deadline also holds for a server that sends byte by byte.
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            body += chunk
            if time.monotonic() > deadline:
                raise self._late(response.url)
            if len(body) > self._settings.max_bytes:
                raise LineageError(
                    f"{response.url}: an answer of more than {self._settings.max_bytes} bytes",
                    hint="Check what the server sends there: lineage is never this large.",
                )
        if _TELLING < len(body) < _SLOW * (time.monotonic() - began):
            self._unpacked = False
        return bytes(body)

    def _accepted(self, response: requests.Response, body: bytes) -> Answer:
        status = response.status_code
        if status in _PASSING:
            raise ServiceUnreachableError(f"{response.url}: answers {status}", hint=AGAIN)
        if status in (401, 403):
            raise HTTPStatusError(
                f"{response.url}: refuses ({status})",
                status,
                hint="Set LINEAGE_BACKFILL_LINEAGE_API_KEY, or `headers` in [lineage].",
            )
        if status != requests.codes.ok:
            raise HTTPStatusError(
                f"{response.url}: answers {status}",
                status,
                hint="Check the address, and the server's log.",
            )
        return Answer(response.url, body, _sent_at(response))

    def _redirect(self, url: str, location: str) -> str:
        try:
            target = urljoin(url, location)
            is_elsewhere = urlsplit(target)[:2] != urlsplit(self._address)[:2]
        except ValueError as error:
            raise LineageError(
                f"{url}: redirects to an invalid address: {error}", hint=_ITSELF
            ) from error
        if is_elsewhere:
            raise LineageError(
                f"{url}: redirects to another host: {target}",
                hint=_ITSELF,
            )
        return target


def _is_loopback(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _is_unheard(error: requests.ConnectionError) -> bool:
    """Return whether the request did not reach the server."""
    reason = getattr(error.args[0] if error.args else error, "reason", error)
    return isinstance(reason, (NewConnectionError, ConnectTimeoutError, NameResolutionError))


def _retry_after(response: requests.Response) -> float | None:
    """Return the seconds to wait in a busy server's Retry-After, if it has one."""
    try:
        return Retry().get_retry_after(response.raw)
    except InvalidHeader:
        return None


def _sent_at(response: requests.Response) -> datetime | None:
    """Return the full second in which an answer was sent, None if it does not say that."""
    try:
        return parsedate_to_datetime(response.headers["Date"]).astimezone(UTC)
    except (LookupError, ValueError):
        return None


def _unreachable(url: str, error: requests.RequestException) -> ServiceUnreachableError:
    return ServiceUnreachableError(
        f"{url}: cannot be reached: {_reason(error)}",
        hint="Check the address (`marquez` in [lineage], --marquez or variable) and that it runs.",
    )


def _reason(error: requests.RequestException) -> str:
    """Return the innermost cause in urllib3's message."""
    inner = error.args[0] if error.args else error
    text = str(getattr(inner, "reason", inner))
    return text.partition("): ")[2] or text


class _Session(requests.Session):
    """Sends addresses as they are given, and follows no redirect.

    Following one would first read its whole body.
    """

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Return the request; a percent-encoded name of dots stays encoded."""
        prepared = super().prepare_request(request)
        url = str(request.url)
        if "/%2E" in url:
            query = urlsplit(prepared.url or "").query
            prepared.url = f"{url}?{query}" if query else url
        return prepared

    def resolve_redirects(self, *args: Any, **kwargs: Any) -> Generator[Any, None, None]:
        """Yield nothing."""
        yield from ()


class _Budget:
    """The number of retries left for all requests together."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = Lock()

    def take(self) -> bool:
        """Take one retry; return False if none was left."""
        with self._lock:
            self._left -= 1
            return self._left >= 0
