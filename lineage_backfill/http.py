"""HTTP for our own requests: deadlines, size limits, retries, and no secrets in messages."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from urllib3.exceptions import (
    ConnectTimeoutError,
    DecodeError,
    InvalidHeader,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)
from urllib3.util import Retry

from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.redaction import redacted, remember, secrets_in_address, secrets_of

_log = logging.getLogger(__name__)
#: Answers of a busy service, or of a proxy without one: the same request may succeed later.
BUSY = frozenset({429, 502, 503, 504})
#: The hint for an answer that cannot be trusted.
AGAIN = "Try again: nothing is decided from a partial answer."
_ITSELF = "Give the address at which the service itself answers."
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CONNECT_TIMEOUT = 5.0
_CONNECT_RETRIES = 3
_MAX_REDIRECTS = 3
_BACKOFF = 0.3  # seconds; twice as long each time
_CHUNK = 1024 * 1024
_NOTICE = 5.0  # seconds between two messages that an answer is still awaited


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How requests are sent to one service.

    `timeout` is in seconds, for a whole request: connecting, retries and the whole answer.
    `max_bytes` limits an answer, `retries` those of one request; `busy` are the statuses to retry
    after. `check` and `slow` are hints: what to do without an answer, and without one in time.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    ca_bundle: Path | None = None
    timeout: float = 30
    max_bytes: int = 256 * 1024 * 1024
    retries: int = 5
    busy: frozenset[int] = BUSY
    check: str = "Check the address and that the service runs."
    slow: str = "Raise the timeout, or check what slows the service down."


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer of a service, of any status."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    @property
    def sent_at(self) -> datetime | None:
        """The full second at which it was sent, by the clock of the service; None if not given."""
        try:
            return parsedate_to_datetime(self.headers["Date"]).astimezone(UTC)
        except (LookupError, ValueError):
            return None

    def json(self, read: Callable[[bytes], Any] = json.loads) -> Any:
        """Return the JSON value in the body; raises ServiceUnreachableError if it is not JSON."""
        try:
            return read(self.body)
        except (ValueError, RecursionError) as error:
            is_page = self.body.lstrip().startswith(b"<")
            why, hint = ("a web page", _ITSELF) if is_page else (error, AGAIN)
            url = redacted(self.url)
            raise ServiceUnreachableError(f"{url}: not JSON: {why}", hint=hint) from error


class HttpClient:
    """Sends requests to the addresses below one address.

    Raises ServiceUnreachableError if no complete answer arrives in time. Secrets in the address and
    in the headers are hidden everywhere afterwards.
    """

    def __init__(self, address: str, settings: HttpSettings | None = None) -> None:
        self.address = address.rstrip("/")
        self._settings = settings or HttpSettings()
        self._session = _Session()
        self._session.headers.update(self._settings.headers)
        self._session.verify = str(self._settings.ca_bundle or "") or True
        remember(secrets_in_address(address))
        remember(secrets_of(self._settings.headers))

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Answer:
        """Return the answer at a path, whose segments are percent-encoded."""
        return self.send("GET", path, query=query)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        again: bool | None = None,
    ) -> Answer:
        """Send a request, and return its answer of any status.

        `body` is bytes, or a value that is sent as JSON. A busy service is asked again, after the
        pause that it asks for, if the request may be repeated (`again`; by default, a GET). Only a
        GET follows redirects, within the service, and keeps its query.
        """
        url, deadline = self.address + path, time.monotonic() + self._settings.timeout
        content = {"data" if isinstance(body, bytes) else "json": body}
        how = {"params": query, "headers": headers, **content}
        repeats = method == "GET" if again is None else again
        for attempt in count():
            is_last = attempt >= self._settings.retries
            asked_pause = None
            try:
                answer = self._followed(method, url, how, deadline)
            except _NotConnectedError as error:  # it was not sent: it may be sent, whatever it does
                if is_last or attempt >= _CONNECT_RETRIES:
                    raise self._failed(url, str(error), self._settings.check) from error
                why = "cannot be reached"
            else:
                if is_last or not repeats or answer.status not in self._settings.busy:
                    return answer
                why, asked_pause = f"answers {answer.status}", _retry_after(answer)
            self._pause(url, why, asked_pause or _BACKOFF * 2**attempt, deadline)
        raise AssertionError("counts without end")

    def _pause(self, url: str, why: str, seconds: float, deadline: float) -> None:
        if time.monotonic() + seconds > deadline:
            late = f"{why}, and the next request would be in {seconds:.0f} s, after the timeout"
            raise self._failed(
                url, f"{late} ({self._settings.timeout:g} s)", f"Try then. {self._settings.slow}"
            )
        if seconds >= 1:
            _log.warning("%s: %s; retrying in %.0f s", redacted(url), why, seconds)
        time.sleep(seconds)

    def _followed(self, method: str, url: str, how: Mapping[str, Any], deadline: float) -> Answer:
        for _ in range(_MAX_REDIRECTS):
            answer = self._in_time(method, url, how, deadline)
            target = answer.headers.get("Location")
            if method != "GET" or answer.status not in _REDIRECTS or target is None:
                return answer
            url = self._redirected(url, target)
        raise self._failed(url, "redirects without end", _ITSELF)

    def _redirected(self, url: str, location: str) -> str:
        try:
            target = urljoin(url, location)
            is_elsewhere = urlsplit(target)[:2] != urlsplit(self.address)[:2]
        except ValueError as error:
            raise self._failed(url, f"redirects to an invalid address: {error}", _ITSELF) from error
        if is_elsewhere:
            raise self._failed(url, f"redirects to another host: {redacted(target)}", _ITSELF)
        return target

    def _in_time(self, method: str, url: str, how: Mapping[str, Any], deadline: float) -> Answer:
        """Return an answer that arrives before the deadline; raises the errors of `_once`."""
        arrived: Queue[Answer | Exception] = Queue(1)

        def send() -> None:
            try:
                arrived.put(self._once(method, url, how, deadline))
            except Exception as error:  # noqa: BLE001 - raised below
                arrived.put(error)

        # A separate thread can be abandoned, however slowly the service sends.
        began = time.monotonic()
        Thread(target=send, name="request", daemon=True).start()
        while (left := deadline - time.monotonic()) > 0:
            try:
                answer = arrived.get(timeout=min(left, _NOTICE))
            except Empty:
                waited = time.monotonic() - began
                _log.warning("%s: no complete answer for %.0f s", redacted(url), waited)
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer
        raise self._late(url)

    def _once(self, method: str, url: str, how: Mapping[str, Any], deadline: float) -> Answer:
        began = time.monotonic()
        left = max(0.001, deadline - began)
        timeout = (min(_CONNECT_TIMEOUT, left), left)
        try:
            with self._session.request(
                method, url, **how, timeout=timeout, allow_redirects=False, stream=True
            ) as response:
                body = b"" if response.is_redirect else self._body(response, deadline)
        except (requests.Timeout, ReadTimeoutError) as error:
            if isinstance(error, requests.ConnectTimeout):
                raise _NotConnectedError(f"cannot be reached: {_reason(error)}") from error
            raise self._late(url) from error
        except (ProtocolError, DecodeError) as error:
            raise self._failed(url, f"the answer is incomplete: {error}", AGAIN) from error
        except requests.RequestException as error:
            why = f"cannot be reached: {_reason(error)}"
            if _is_not_connected(error):
                raise _NotConnectedError(why) from error
            raise self._failed(url, why, self._settings.check) from error
        path, seconds = redacted(response.request.path_url), time.monotonic() - began
        _log.info(
            "%s %s: %d, %d bytes in %.2f s", method, path, response.status_code, len(body), seconds
        )
        return Answer(response.url, response.status_code, response.headers, body)

    def _body(self, response: requests.Response, deadline: float) -> bytes:
        body = bytearray()
        # Reads what has arrived: the deadline also holds for a service that sends byte by byte.
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            body += chunk
            if time.monotonic() > deadline:
                raise self._late(response.url)
            if len(body) > self._settings.max_bytes:
                raise self._failed(
                    response.url,
                    f"an answer of more than {self._settings.max_bytes} bytes",
                    "Check what the service sends there.",
                )
        return bytes(body)

    def _late(self, url: str) -> ServiceUnreachableError:
        seconds = f"{self._settings.timeout:g}"
        return self._failed(url, f"took longer than {seconds} s", self._settings.slow)

    def _failed(self, url: str, why: str, hint: str) -> ServiceUnreachableError:
        return ServiceUnreachableError(f"{redacted(url)}: {redacted(why)}", hint=hint)


class _NotConnectedError(Exception):
    """No connection could be opened: the request did not reach the service."""


class _Session(requests.Session):
    """A session that never reads the body of a redirect."""

    def resolve_redirects(self, *_args: Any, **_how: Any) -> Generator[Any, None, None]:
        """Yield nothing."""
        yield from ()


def _is_not_connected(error: requests.RequestException) -> bool:
    reason = getattr(error.args[0] if error.args else error, "reason", None)
    return isinstance(reason, (NewConnectionError, ConnectTimeoutError))


def _retry_after(answer: Answer) -> float | None:
    """Return the pause in seconds that a busy service asks for; None if it asks for none."""
    try:
        return Retry().parse_retry_after(answer.headers["Retry-After"])
    except (LookupError, InvalidHeader):
        return None


def _reason(error: requests.RequestException) -> str:
    """Return the innermost cause in urllib3's message."""
    inner = error.args[0] if error.args else error
    text = str(getattr(inner, "reason", inner))
    return text.partition("): ")[2] or text
