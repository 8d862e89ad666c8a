"""The outbox: every lineage event is written to a file before it is sent, so none is lost.

Next to each file is a record of how much was sent to each address. A later driver sends the rest,
in order. An event without an answer is sent again, and may arrive twice.
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
from http import HTTPStatus
from pathlib import Path

from lineage_backfill.project.locations import sent_mark
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

    Doing it again sends nothing. An event that the endpoint refuses for good is skipped, and stays
    in its file.
    """
    sent = Sent()
    for file in sorted(folder.glob("*.ndjson")):
        sent += deliver(file, url, TIMEOUT_OF_REPLAY)
    return sent


def deliver(file: Path, url: str, timeout: float) -> Sent:
    """Send the missing events of one file to an address, in order; raises EndpointError."""
    url = url.rstrip("/")
    with _alone(file), file.open("rb") as stream:
        offsets = _sent_before(file)
        done = offsets.get(url, 0)
        before = stream.read(done).count(b"\n")
        now = refused = 0
        for line in stream:
            if not line.endswith(b"\n"):
                break  # a process is writing it now
            if _post(url, line, timeout):
                now += 1
            else:
                refused += 1
            offsets[url] = done = done + len(line)
            write_atomically(sent_mark(file), json.dumps(offsets))
        return Sent(now, refused, before)


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


def _post(url: str, line: bytes, timeout: float) -> bool:
    """Send one event; return False if it is refused for good. Raises EndpointError."""
    address = url.rstrip("/") + "/api/v1/lineage"
    status, body = _ask(address, line, timeout)
    if status == _FAILED_ONCE:
        status, body = _ask(address, line, timeout)
    if status in _REFUSALS:
        _log.warning("%s refused a lineage event: %s", address, body)
    elif status >= HTTPStatus.BAD_REQUEST:
        raise EndpointError(f"{address} answers {status}")
    return status not in _REFUSALS


def _ask(address: str, line: bytes, timeout: float) -> tuple[int, str]:
    """Return the status and the beginning of an answer; raises EndpointError if there is none."""
    headers = {"Content-Type": "application/json", "User-Agent": "lineage-backfill"} | _key()
    try:
        request = urllib.request.Request(address, data=line, headers=headers)  # noqa: S310 (checked below)
        if request.type not in ("http", "https"):
            raise EndpointError(f"{address} is not an address of HTTP")
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 (checked above)
            answer.read()
            return answer.status, ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_EXCERPT).decode(errors="replace")
    except TimeoutError as error:
        raise EndpointError(f"{address} took longer than {timeout:g} s") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        kind = type(reason if isinstance(reason, Exception) else error).__name__
        raise EndpointError(f"{address} cannot be reached: {kind}") from error


def _key() -> dict[str, str]:
    key = next(filter(None, map(os.environ.get, KEY_VARIABLES)), None)
    return {"Authorization": f"Bearer {key}"} if key else {}


def _sent_before(file: Path) -> dict[str, int]:
    try:
        offsets: dict[str, int] = json.loads(sent_mark(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return offsets


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Prevent other processes from sending the same events, if files can be locked."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(locked(file.with_name(f".{file.name}.lock")))
        yield
