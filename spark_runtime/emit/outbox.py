"""The outbox: every lineage event is written to a file before it is sent, so none is lost.

Next to each file is a record of how much was sent to each address. A later driver sends the rest,
in order. If there was no answer for an event, Marquez is asked whether it has it; an event that it
is still processing, or one sent to another kind of service, may arrive twice.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from spark_runtime.errors import EndpointError, RuntimeFailure
from spark_runtime.spec import write_atomically
from spark_runtime.tables.locks import locked

#: Seconds that a run waits at its end for its events to be sent.
GRACE = 0.5
#: Seconds to wait for an answer: in a run, and where nothing else waits.
TIMEOUT = 2.0
TIMEOUT_OF_REPLAY = 30.0
#: Seconds without attempts after a failed one.
PAUSE = 30.0
#: The first of these variables that is set holds the API key; it is never stored in files.
KEY_VARIABLES = ("LINEAGE_BACKFILL_LINEAGE_API_KEY", "OPENLINEAGE_API_KEY")

#: Statuses of an event that will never be accepted.
_REFUSALS = (400, 413, 422)
#: The status of Marquez where two events name a new dataset at the same moment.
_FAILED_ONCE = 500
#: Statuses of a proxy that got no answer.
_OF_PROXIES = (502, 503, 504)

#: Prefix of an address in the record: the position of an event without an answer.
_DOUBTED = "no answer "
_SECOND = timedelta(seconds=1)
#: How many events within two seconds are searched for one.
_LOOKED_AT = 1_000
#: How much of a refusal is logged.
_EXCERPT = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sent:
    """The number of events sent now, refused for good by the endpoint, and sent before."""

    now: int = 0
    refused: int = 0
    before: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.now + other.now, self.refused + other.refused, self.before + other.before)


class NotAcceptedError(EndpointError):
    """An answer that did not accept an event."""


def append(file: Path, line: str) -> None:
    """Append one event to a file in one write: lines of several processes never mix."""
    file.parent.mkdir(parents=True, exist_ok=True)
    data = f"{line}\n".encode()
    with file.open("ab", buffering=0) as stream:
        before = stream.tell()
        if stream.write(data) != len(
            data
        ):  # the disk is full: later events must not continue this line
            stream.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))


def default_folder() -> Path:
    """Return the outbox of runs with an address but no folder."""
    state = os.environ.get("XDG_STATE_HOME")
    return Path(state or Path.home() / ".local" / "state") / "lineage-backfill" / "lineage"


def replay(folder: Path, url: str) -> Sent:
    """Send all events in an outbox that an address does not have yet; raises EndpointError.

    Doing it again sends nothing. If there was no answer for an event, the address is asked for it,
    and gets it again if it does not show it. An event that the endpoint refuses for good is
    skipped, and stays in its file.
    """
    sent = Sent()
    for file in sorted(folder.glob("*.ndjson")):
        sent += deliver(file, url, TIMEOUT_OF_REPLAY)
    return sent


def deliver(file: Path, url: str, timeout: float) -> Sent:
    """Send the missing events of one file to an address, in order; raises EndpointError."""
    url = url.rstrip("/")
    with _alone(file), file.open("rb") as stream:
        told = _told(file)
        done = told.get(url, 0)
        before = stream.read(done).count(b"\n")
        now = refused = 0
        for line in stream:
            if not line.endswith(b"\n"):
                break  # a process is writing it now
            if told.get(_DOUBTED + url) == done and _has_taken(url, line, timeout):
                before += 1
            elif _post_marked(file, told, url, line, timeout):
                now += 1
            else:
                refused += 1
            told.pop(_DOUBTED + url, None)
            told[url] = done = done + len(line)
            write_atomically(_mark(file), json.dumps(told))
        return Sent(now, refused, before)


def _post_marked(file: Path, told: dict[str, int], url: str, line: bytes, timeout: float) -> bool:
    """Send one event; it is marked as without an answer until one arrives."""
    write_atomically(_mark(file), json.dumps(told | {_DOUBTED + url: told.get(url, 0)}))
    try:
        return _post(url, line, timeout)
    except NotAcceptedError:
        told.pop(_DOUBTED + url, None)
        write_atomically(_mark(file), json.dumps(told))
        raise


class Sender:
    """Sends a file's events to one address in a thread."""

    def __init__(self, file: Path, url: str) -> None:
        self._file, self._url = file, url
        self._wanted = threading.Condition()
        self._asked = self._answered = 0
        self._quiet_until = 0.0
        threading.Thread(target=self._work, name="lineage", daemon=True).start()

    def send(self, *, last: bool) -> None:
        """Request that all events so far be sent; wait briefly for the last one of a run."""
        with self._wanted:
            self._asked += 1
            asked = self._asked
            self._wanted.notify_all()
            if last:
                self._wanted.wait_for(lambda: self._answered >= asked, GRACE)

    def _work(self) -> None:
        while True:
            with self._wanted:
                self._wanted.wait_for(lambda: self._asked > self._answered)
                asked = self._asked
            if time.monotonic() >= self._quiet_until:
                try:
                    deliver(self._file, self._url, TIMEOUT)
                except (RuntimeFailure, OSError) as error:
                    self._quiet_until = time.monotonic() + PAUSE
                    _log.warning("lineage waits in %s: %s", self._file, error)
            with self._wanted:
                self._answered = asked
                self._wanted.notify_all()


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return self.status < HTTPStatus.BAD_REQUEST


def _ask(address: str, line: bytes | None, timeout: float) -> _Answer:
    """Send a line (None: only ask); raises EndpointError if there is no answer."""
    headers = {"Content-Type": "application/json", "User-Agent": "lineage-backfill"} | _key()
    try:
        request = urllib.request.Request(address, data=line, headers=headers)  # noqa: S310 (checked below)
        if request.type not in ("http", "https"):
            raise EndpointError(f"{address} is not an address of HTTP")
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 (checked above)
            return _Answer(answer.status, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return _Answer(error.code, error.read(_EXCERPT))
    except TimeoutError as error:
        raise EndpointError(f"{address} took longer than {timeout:g} s") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        kind = type(reason if isinstance(reason, Exception) else error).__name__
        raise EndpointError(f"{address} cannot be reached: {kind}") from error


def _post(url: str, line: bytes, timeout: float) -> bool:
    """Send one event; return False if it is refused for good. Raises EndpointError."""
    address = url.rstrip("/") + "/api/v1/lineage"
    for _ in range(2):
        answer = _ask(address, line, timeout)
        if answer.status != _FAILED_ONCE:
            break
    if answer.status in _REFUSALS:
        text = answer.body[:_EXCERPT].decode(errors="replace")
        _log.warning("%s refused a lineage event: %s", address, text)
        return False
    _check_answered(address, answer.status)
    if not answer.ok:
        raise NotAcceptedError(f"{address} answers {answer.status}")
    return True


def _has_taken(url: str, line: bytes, timeout: float) -> bool:
    """Return whether Marquez shows an event; False if unknown.

    Raises EndpointError if there is no answer.
    """
    try:
        event = json.loads(line)
        when = datetime.fromisoformat(event["eventTime"]).astimezone(UTC)
        query: dict[str, str | int] = {
            "after": (when - _SECOND).isoformat(timespec="milliseconds"),
            "before": (when + _SECOND).isoformat(timespec="milliseconds"),
            "limit": _LOOKED_AT,
        }
        address = f"{url}/api/v1/events/lineage"
        answer = _ask(f"{address}?{urlencode(query)}", None, timeout)
        _check_answered(address, answer.status)
        shown = json.loads(answer.body)["events"] if answer.ok else []
        return any(_is_same(event, one, when) for one in shown)
    except (ValueError, LookupError, TypeError):  # not Marquez's form of events or times
        return False


def _check_answered(address: str, status: int) -> None:
    """Raise EndpointError for the status of a proxy: the server behind it may have the event."""
    if status in _OF_PROXIES:
        raise EndpointError(f"{address} answers {status}")


def _is_same(event: Any, shown: Any, when: datetime) -> bool:
    named = [(one["run"]["runId"], one["eventType"], one["job"]["name"]) for one in (event, shown)]
    return named[0] == named[1] and abs(datetime.fromisoformat(shown["eventTime"]) - when) < _SECOND


def _key() -> dict[str, str]:
    key = next(filter(None, map(os.environ.get, KEY_VARIABLES)), None)
    return {"Authorization": f"Bearer {key}"} if key else {}


def _told(file: Path) -> dict[str, int]:
    try:
        told: dict[str, int] = json.loads(_mark(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return told


def _mark(file: Path) -> Path:
    # Hidden, so that readers of the folder as lineage skip it.
    return file.with_name(f".{file.name}.sent")


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Prevent other processes from sending the same events, if files can be locked."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(locked(file.with_name(f".{file.name}.lock")))
        yield
