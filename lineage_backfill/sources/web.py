"""JSON over HTTP: GET only, one host, one budget of retries, answers whole or an error.

A request has one deadline for all that it takes: to connect, to wait for a busy server and ask it
again, and to read the answer to its end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
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
#: Answers after which the same request may succeed; a 500 of Marquez stays one.
_PASSING = frozenset({429, 502, 503, 504})
_CONNECT_TIMEOUT = 5
_CONNECT_RETRIES = 3
_BACKOFF = 0.3  # seconds; twice as long each time
_MAX_REDIRECTS = 3
_CHUNK = 1024 * 1024
#: An unpacked answer of more bytes than this, of which fewer come in a second, comes from further
#: away than its address says, as through a tunnel: the next ones are asked for packed.
_TELLING = 256 * 1024
_SLOW = 8 * 1024 * 1024
#: After so many seconds, and each time as many more, it is said that an answer is waited for.
_PATIENCE = 5.0
_MORE_TIME = "Raise lineage.timeout (`timeout` in [lineage]), or see what the server is doing."
_ITSELF = "Name the service by the address under which it answers itself."
#: The hint where an answer cannot be believed.
AGAIN = "Try again; nothing is planned from a part of the lineage."


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """How a service is spoken to.

    `timeout` is in seconds, for all of one request; `max_bytes` bounds one answer, `retries` the
    whole read.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    ca_bundle: Path | None = None
    timeout: float = 30
    max_bytes: int = 256 * 1024 * 1024
    retries: int = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered, parsed when its value is asked for."""

    url: str
    body: bytes

    def value(self, read: Callable[[bytes], Any] = parse) -> Any:
        """Return the JSON value as `read` gives it; raises LineageError where it is none."""
        try:
            return read(self.body)
        except (ValueError, RecursionError) as error:
            raise LineageError(f"{self.url}: not JSON: {error}", hint=AGAIN) from error


class WebClient:
    """Asks one service for JSON.

    Raises ServiceUnreachableError where nothing answers, HTTPStatusError for an answer that is no
    success, LineageError for one that is not whole.
    """

    def __init__(self, address: str, settings: WebSettings) -> None:
        self._address = address.rstrip("/") + "/"
        self._settings = settings
        self._budget = _Budget(settings.retries)
        self._session = _Session()
        own = CaseInsensitiveDict(settings.headers)
        self._session.headers.update(own)
        #: Whether answers are asked for as they are: between two programs on one machine, packing
        #: them takes longer than sending them.
        self._unpacked = _is_loopback(address) and "Accept-Encoding" not in own
        self._session.verify = str(settings.ca_bundle) if settings.ca_bundle else True

    def close(self) -> None:
        """Let go of the connections."""
        self._session.close()

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON at `path`, whose segments are percent-encoded, below the address."""
        return self.ask(path, query).value()

    def ask(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        """Return the answer of `path`, which is parsed when its value is asked for."""
        url = self._address + path
        deadline = time.monotonic() + self._settings.timeout
        for _ in range(_MAX_REDIRECTS):
            response, body = self._ask(url, query or {}, deadline)
            if not response.is_redirect:
                return self._accepted(response, body)
            # The query is asked again: a redirect of Marquez loses it.
            url = self._redirect(url, response.headers["Location"])
        raise LineageError(f"{url}: redirects without end", hint=_ITSELF)

    def _ask(
        self, url: str, query: Mapping[str, str], deadline: float
    ) -> tuple[requests.Response, bytes]:
        """Return the first answer of a server that is not busy, or the last one."""
        for attempt in count():
            pause = _BACKOFF * 2**attempt
            try:
                response, body = self._awaited(url, query, deadline)
            except requests.ConnectionError as error:
                # A request that was given up goes on in the server: again would double its load.
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
                    f"{url}: {said}, and is to be asked again in {pause:.0f} s at the earliest,"
                    f" later than lineage.timeout ({self._settings.timeout:g} s) allows",
                    hint=f"Try again then. {_MORE_TIME}.",
                )
            if pause >= 1:
                _log.warning("%s: %s; asked again in %.0f s", url, said, pause)
            time.sleep(pause)
        raise AssertionError("counts without end")

    def _awaited(
        self, url: str, query: Mapping[str, str], deadline: float
    ) -> tuple[requests.Response, bytes]:
        """Return an answer that has come until the deadline; raises what `_once` raises."""
        came: Queue[tuple[requests.Response, bytes] | Exception] = Queue(1)

        def fetch() -> None:
            try:
                came.put(self._once(url, query, deadline))
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                came.put(error)

        # A thread of its own can be left alone, whatever the server does and however slowly.
        began = time.monotonic()
        Thread(target=fetch, name="request", daemon=True).start()
        while (left := deadline - time.monotonic()) > 0:
            try:
                answer = came.get(timeout=min(left, _PATIENCE))
            except Empty:
                waited = time.monotonic() - began
                _log.warning("%s: no whole answer for %.0f s; waited for still", url, waited)
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
            raise LineageError(f"{url}: the answer is cut off: {error}", hint=AGAIN) from error
        except requests.RequestException as error:
            raise _unreachable(url, error) from error

    def _late(self, url: str) -> ServiceUnreachableError:
        seconds = f"{self._settings.timeout:g}"
        return ServiceUnreachableError(f"{url}: took longer than {seconds} s", hint=_MORE_TIME)

    def _body(self, response: requests.Response, deadline: float) -> bytes:
        body = bytearray()
        began = time.monotonic()
        # What has come, at once: a server that sends byte by byte meets the deadline, too.
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            body += chunk
            if time.monotonic() > deadline:
                raise self._late(response.url)
            if len(body) > self._settings.max_bytes:
                raise LineageError(
                    f"{response.url}: an answer of more than {self._settings.max_bytes} bytes",
                    hint="See what the server sends there; it is more than lineage can need.",
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
                hint="Check the address, and see what the server says of it in its log.",
            )
        return Answer(response.url, body)

    def _redirect(self, url: str, location: str) -> str:
        try:
            target = urljoin(url, location)
            is_elsewhere = urlsplit(target)[:2] != urlsplit(self._address)[:2]
        except ValueError as error:
            raise LineageError(f"{url}: redirects to no address: {error}", hint=_ITSELF) from error
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
    """Return whether the server has not heard of the request."""
    reason = getattr(error.args[0] if error.args else error, "reason", error)
    return isinstance(reason, (NewConnectionError, ConnectTimeoutError, NameResolutionError))


def _retry_after(response: requests.Response) -> float | None:
    """Return after how many seconds a busy server wants to be asked again, where it says so."""
    try:
        return Retry().get_retry_after(response.raw)
    except InvalidHeader:
        return None


def _unreachable(url: str, error: requests.RequestException) -> ServiceUnreachableError:
    return ServiceUnreachableError(
        f"{url}: cannot be reached: {_reason(error)}",
        hint="Check the address (`marquez` in [lineage], --marquez) and that it runs.",
    )


def _reason(error: requests.RequestException) -> str:
    """Return what urllib3 says at the bottom of its message about pools and retries."""
    inner = error.args[0] if error.args else error
    text = str(getattr(inner, "reason", inner))
    return text.partition("): ")[2] or text


class _Session(requests.Session):
    """Sends addresses as they are given, and looks into no redirect.

    To look into one, all of its body is read, however long it is.
    """

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Return the request; a name of dots, which is percent-encoded, stays so."""
        prepared = super().prepare_request(request)
        url = str(request.url)
        if "/%2E" in url:
            query = urlsplit(prepared.url or "").query
            prepared.url = f"{url}?{query}" if query else url
        return prepared

    def resolve_redirects(self, *args: Any, **kwargs: Any) -> Generator[Any, None, None]:
        """Yield no request to follow."""
        yield from ()


class _Budget:
    """How many retries all requests have left together."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = Lock()

    def take(self) -> bool:
        """Return whether there was one left, which is taken."""
        with self._lock:
            self._left -= 1
            return self._left >= 0
