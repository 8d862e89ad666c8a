"""The outbox: every lineage event is in a file before it is sent, so that none is lost.

Beside each file stands how much of it was sent to each address. A later driver there sends what is
missing, in order. Where no answer came for an event, a Marquez is asked whether it has taken it; an
event that it still works on then, and one whose address tells nothing of its events, comes twice.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spark_runtime.errors import EndpointError, RuntimeFailure
from spark_runtime.locks import locked
from spark_runtime.spec import write_atomically

#: Seconds that a run waits at its end for its events to leave by HTTP.
GRACE = 0.5
#: Seconds to connect, and to wait for an answer.
TIMEOUT = (0.5, 2.0)
#: Seconds without further attempts after one that failed.
PAUSE = 30.0
#: The first of these variables that is set holds a key that is sent along; files never hold it.
KEY_VARIABLES = ("LINEAGE_BACKFILL_LINEAGE_API_KEY", "OPENLINEAGE_API_KEY")

#: Answers that say that this event will never be taken.
_REFUSALS = (400, 413, 422)

#: Before an address in what stands beside a file: where an event begins whose answer is unknown.
_DOUBTED = "no answer "
_SECOND = timedelta(seconds=1)
#: So many events of two seconds are looked through for one of them.
_LOOKED_AT = 1_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sent:
    """How many events were sent now, refused by the endpoint for good, and sent before."""

    now: int = 0
    refused: int = 0
    before: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.now + other.now, self.refused + other.refused, self.before + other.before)


class _AnsweredError(EndpointError):
    """An answer by which an event was not taken."""


def append(file: Path, line: str) -> None:
    """Add one event to a file, in one write: lines of several processes never mix."""
    file.parent.mkdir(parents=True, exist_ok=True)
    data = f"{line}\n".encode()
    with file.open("ab", buffering=0) as stream:
        before = stream.tell()
        if stream.write(data) != len(data):  # the disk is full: no later event goes on in this line
            stream.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))


def default_folder() -> Path:
    """Return the outbox of runs that were told an address and no folder."""
    state = os.environ.get("XDG_STATE_HOME")
    return Path(state or Path.home() / ".local" / "state") / "lineage-backfill" / "lineage"


def replay(folder: Path, url: str) -> Sent:
    """Send what an address has not had yet of all events in an outbox; raises EndpointError.

    Doing it again sends nothing. Where no answer came for an event, the address is asked for it,
    and is sent it again if it does not show it. An event that the endpoint refuses for good is
    passed over, and stays in its file.
    """
    sent = Sent()
    for file in sorted(folder.glob("*.ndjson")):
        sent += deliver(file, url)
    return sent


def deliver(file: Path, url: str) -> Sent:
    """Send what an address has not had yet of one file, in order; raises EndpointError."""
    url = url.rstrip("/")
    with _alone(file), file.open("rb") as stream:
        told = _told(file)
        done = told.get(url, 0)
        before = stream.read(done).count(b"\n")
        now = refused = 0
        for line in stream:
            if not line.endswith(b"\n"):
                break  # someone writes it just now
            if told.get(_DOUBTED + url) == done and _has_taken(url, line):
                before += 1
            elif _post_marked(file, told, url, line, done):
                now += 1
            else:
                refused += 1
            told.pop(_DOUBTED + url, None)
            told[url] = done = done + len(line)
            write_atomically(_mark(file), json.dumps(told))
        return Sent(now, refused, before)


def _post_marked(file: Path, told: dict[str, int], url: str, line: bytes, done: int) -> bool:
    """Send one event, marked as sent without an answer until one has come, whatever happens."""
    write_atomically(_mark(file), json.dumps(told | {_DOUBTED + url: done}))
    try:
        return _post(url, line)
    except _AnsweredError:
        told.pop(_DOUBTED + url, None)
        write_atomically(_mark(file), json.dumps(told))
        raise


class Sender:
    """Sends a file's events to one address from a thread that is not waited for long."""

    def __init__(self, file: Path, url: str) -> None:
        self._file, self._url = file, url
        self._wanted = threading.Condition()
        self._asked = self._answered = 0
        self._quiet_until = 0.0
        threading.Thread(target=self._work, name="lineage", daemon=True).start()

    def send(self, *, last: bool) -> None:
        """Ask for all events so far to be sent; wait for the last one of a run, but not long."""
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
                    deliver(self._file, self._url)
                except (RuntimeFailure, OSError) as error:
                    self._quiet_until = time.monotonic() + PAUSE
                    _log.warning("lineage waits in %s: %s", self._file, error)
            with self._wanted:
                self._answered = asked
                self._wanted.notify_all()


def _post(url: str, line: bytes) -> bool:
    """Send one event; return False if it is refused for good. Raises EndpointError."""
    import requests

    headers = {"Content-Type": "application/json"} | _key()
    address = url.rstrip("/") + "/api/v1/lineage"
    try:
        # Marquez fails once where two events name a new dataset at the same moment.
        for _ in range(2):
            answer = requests.post(address, data=line, headers=headers, timeout=TIMEOUT)
            if answer.status_code < 500:
                break
    except requests.RequestException as error:
        raise EndpointError(f"{address} cannot be reached: {type(error).__name__}") from error
    if answer.status_code in _REFUSALS:
        _log.warning("%s refused a lineage event: %s", address, answer.text[:200])
        return False
    if not answer.ok:
        raise _AnsweredError(f"{address} answers {answer.status_code}")
    return True


def _has_taken(url: str, line: bytes) -> bool:
    """Return whether a Marquez shows an event; False where that cannot be told.

    Raises EndpointError where nothing answers.
    """
    import requests

    try:
        event = json.loads(line)
        when = datetime.fromisoformat(event["eventTime"]).astimezone(UTC)
        query: dict[str, str | int] = {
            "after": (when - _SECOND).isoformat(timespec="milliseconds"),
            "before": (when + _SECOND).isoformat(timespec="milliseconds"),
            "limit": _LOOKED_AT,
        }
        address = url + "/api/v1/events/lineage"
        answer = requests.get(address, query, headers=_key(), timeout=TIMEOUT)
        shown = answer.json()["events"] if answer.ok else []
        return any(_is_same(event, one, when) for one in shown)
    except requests.JSONDecodeError:
        return False
    except requests.RequestException as error:
        raise EndpointError(f"{url} cannot be reached: {type(error).__name__}") from error
    except (ValueError, LookupError, TypeError):  # not as Marquez shows its events, or writes times
        return False


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
    # Hidden: readers of the folder as lineage skip it.
    return file.with_name(f".{file.name}.sent")


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Let no other process send the same events meanwhile; where files can be locked, that is."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(locked(file.with_name(f".{file.name}.lock")))
        yield
