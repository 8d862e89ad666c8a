"""A warm application on a cluster: takes requests from a folder, and replies there.

The folder, which only its owner may read, contains: `application.json`, the limits of the
application; `inbox`, requests in files; `taken`, to which a request is renamed before it begins, so
that it begins once; `withdrawn`, requests that must no longer begin; `cancel`, requests to stop;
`answers`; and the locks `owner`, of the tool that sends requests, and `driver`, of this process. A
tool on another machine, whose locks may not be visible here, keeps changing the file `beat`. All
other files are JSON objects with the application's secret; both sides ignore files without it.
"""

from __future__ import annotations

import ctypes
import fcntl
import hmac
import json
import logging
import os
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

from lineage_backfill.runspec.values import RunResult, RunSpec
from spark_runtime.errors import Cancelled, RuntimeFailure, Stopped, Stranded
from spark_runtime.job.runner import run
from spark_runtime.output import by_thread, own_log
from spark_runtime.session import (
    get_session,
    is_alive,
    long_session_conf,
    session_of_its_own,
)
from spark_runtime.spec import write_atomically
from spark_runtime.worker import Worker, describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_BUSY, _IDLE = 0.02, 0.2  # seconds between two checks of the inbox
_SOON = 10.0  # seconds in which another request is likely
_LOOK = 1.0  # seconds between two checks of the executors
_PATIENCE = 5.0  # seconds for a run to end when the process ends


class Channel:
    """The application's side of its folder; it is locked while the process is alive."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._terms: dict[str, Any] = json.loads((folder / "application.json").read_text())
        self._lock = (folder / "driver").open("a", encoding="utf-8")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._begun = 0
        self._owned: float | None = None  # when there was a tool, or when it was first looked for
        self._beat: object = None
        self._doubted: set[str] = set()  # requests that could not be taken at first

    def close(self) -> None:
        """Release the lock, as the end of the process does."""
        self._lock.close()

    @property
    def at_once(self) -> int:
        """The maximum number of concurrent runs."""
        return int(self._terms.get("at_once", 1))

    @property
    def stranded_seconds(self) -> float:
        """How long it waits for executors after it has lost all of them."""
        return float(self._terms["stranded_seconds"])

    @property
    def orphan_seconds(self) -> float:
        """How long it continues without a tool, and tries to reply to one."""
        return float(self._terms["orphan_seconds"])

    @property
    def takes_more(self) -> bool:
        """Whether it may begin more: not once it is closed, or after `max_runs`."""
        return not self._is_done and not self._bears_secret("close")

    @property
    def is_orphan(self) -> bool:
        """Whether no tool has owned it for too long."""
        now = time.monotonic()
        if self._is_owned() or self._owned is None:
            self._owned = now
        return now - self._owned >= self.orphan_seconds

    @property
    def _is_done(self) -> bool:
        return bool(self._begun >= self._terms["max_runs"])

    def _is_owned(self) -> bool:
        if self._terms.get("is_far"):
            last, self._beat = self._beat, self._signed(self._folder / "beat") or self._beat
            return self._beat != last
        try:
            file = (self._folder / "owner").open("a", encoding="utf-8")
        except OSError:  # perhaps the next check can tell
            return False
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def take(self) -> dict[str, Any] | None:
        """Take the next request and return it, None if there is none; each is taken once.

        One that cannot be read or taken now may be the next time.
        """
        for path in self._waiting():
            taken = self._folder / "taken" / path.name
            try:
                request = self._verified(path.read_bytes())
                if request is not None and request.get("id") == path.stem and not taken.exists():
                    path.rename(taken)
                else:
                    path.unlink()
                    _log.warning("ignored %s: not a request of this application's tool", path)
                    continue
            except OSError as error:
                if path.name not in self._doubted:
                    self._doubted.add(path.name)
                    _log.warning("cannot take %s now: %s", path, error)
                continue
            # The other side withdraws it first, and then checks whether it was taken.
            if self._bears_secret("withdrawn", path.stem):
                self.reply(id=path.stem, op="withdrawn")
                continue
            self._begun += 1
            return request
        return None

    def _waiting(self) -> list[Path]:
        try:
            return sorted((self._folder / "inbox").glob("*.json"))
        except OSError:
            return []

    def _signed(self, path: Path) -> dict[str, Any] | None:
        """Return the content of a file; None if it is missing or does not have the secret."""
        try:
            return self._verified(path.read_bytes())
        except OSError:
            return None

    def _verified(self, content: bytes) -> dict[str, Any] | None:
        """Return the document in the content of a file; None if it does not have the secret."""
        try:
            document = json.loads(content)
        except ValueError:
            return None
        given = document.get("secret") if isinstance(document, dict) else None
        secret = str(self._terms["secret"])
        return document if hmac.compare_digest(str(given).encode(), secret.encode()) else None

    def _bears_secret(self, *place: str) -> bool:
        return self._signed(self._folder.joinpath(*place)) is not None

    def is_cancelled(self, request: str) -> bool:
        """Whether a taken request must stop."""
        return self._bears_secret("cancel", request)

    def reply(self, **message: Any) -> None:
        """Reply to a request; without an `id`, report whether the application is ready."""
        name = message.get("id")
        place = self._folder / "answers" / f"{name}.json" if name else self._folder / "ready.json"
        if name and self._is_done:
            message["is_last"] = True
        signed = {**message, "log_end": os.fstat(1).st_size, "secret": self._terms["secret"]}
        write_atomically(place, json.dumps(signed))

    def take_output(self) -> IO[str]:
        """Send the output of this process directly to the log, in order with its replies."""
        log = (self._folder / "log.txt").open("a", encoding="utf-8")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
        return log


@dataclass(eq=False)
class _Run:
    """A running request, with its thread and seat."""

    request: Mapping[str, Any]
    seat: int
    thread: Thread
    token: str = ""
    answer: Mapping[str, Any] | None = None
    is_told: bool = False
    until: float | None = None  # how long its reply is tried, once one could not be written


class _Seat(Worker):
    """Does one run after another, each in its own session and job group."""

    def __init__(self, spark: SparkSession, number: int | None) -> None:
        super().__init__(spark)
        self._number = number  # None: no other seat runs anything

    def run(self, spec: RunSpec) -> RunResult:
        """Run a run spec in a new session."""
        with session_of_its_own(self.spark, alone=self._number is None) as session:
            context, name = session.sparkContext, f"{spec.job.name} {spec.run_id}"
            context.setJobGroup(spec.token, name, interruptOnCancel=True)
            if self._number is not None:
                context.setLocalProperty("spark.scheduler.pool", f"seat-{self._number}")
            return run(session, spec, self.tables.within(session))


class Host:
    """Answers the requests in a folder, each in its own thread, several at once."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._runs: list[_Run] = []

    # For subclasses

    @abstractmethod
    def answer(self, request: Mapping[str, Any], seat: int) -> Mapping[str, Any]:
        """Handle a request, and return the reply."""

    def thread(self, work: Callable[[], None]) -> Thread:
        """Return a thread for a request."""
        return Thread(target=work, daemon=True)

    def is_well(self) -> bool:
        """Whether more requests can begin here."""
        return True

    def is_stranded(self) -> bool:
        """Whether it has lost its executors for good."""
        return False

    def cancel(self, token: str) -> None:
        """Stop what the attempt with this token does elsewhere than in its thread."""

    def close(self) -> None:
        """Close what all runs share."""

    # The loop

    def serve(self) -> int:
        """Answer requests until the application ends; return the exit code of the process.

        It ends once it is closed, after `max_runs`, or when no tool has owned it for too long:
        requests still in the inbox are not begun.
        """
        self._channel.reply(op="ready")
        worked = time.monotonic()
        try:
            while (goes_on := self._goes_on()) or self._runs:
                if goes_on and len(self._runs) < self._channel.at_once:
                    self._begin(self._channel.take())
                if self._runs:
                    worked = time.monotonic()
                    self._runs[0].thread.join(_BUSY if self._channel.at_once > 1 else _IDLE)
                    self._look()
                else:
                    time.sleep(_BUSY if time.monotonic() - worked < _SOON else _IDLE)
        except Stopped:
            for one in self._runs:
                self._stop(one)
            for one in self._runs:
                one.thread.join(_PATIENCE)
            raise
        if not self.is_well():
            return 1
        self.close()
        return 0

    def _goes_on(self) -> bool:
        # Called every time, as it also records that there is a tool.
        is_orphan = self._channel.is_orphan
        is_fit = self.is_well() and not self.is_stranded()
        return self._channel.takes_more and not is_orphan and is_fit

    def _begin(self, request: Mapping[str, Any] | None) -> None:
        if request is None:
            return
        seat = min(set(range(self._channel.at_once)) - {one.seat for one in self._runs})
        one = _Run(request, seat, self.thread(lambda: self._work(one)))
        with suppress(OSError, ValueError, KeyError, TypeError):  # the run reports the error
            one.token = json.loads(Path(request["spec"]).read_bytes())["token"]
        self._runs.append(one)
        one.thread.start()

    def _work(self, one: _Run) -> None:
        with ExitStack() as stack:
            if "log" in one.request:
                try:
                    stack.enter_context(own_log(Path(one.request["log"])))
                except OSError as error:  # its output is then among the application's
                    _log.warning("the run has no log of its own: %s", error)
            try:
                one.answer = self.answer(one.request, one.seat)
            except BaseException as error:  # noqa: BLE001 (ends this run, and not the application)
                one.answer = _ended(one, error)

    def _look(self) -> None:
        """Stop cancelled runs, and reply to those that have ended."""
        for one in list(self._runs):
            if one.thread.is_alive():
                if self._channel.is_cancelled(one.request["id"]):
                    self._stop(one)
                elif self.is_stranded():
                    self._stop(one, Stranded)
                continue
            if self._is_answered(one):
                self._runs.remove(one)

    def _is_answered(self, one: _Run) -> bool:
        """Reply to a run that has ended; raises OSError if that has failed for too long."""
        ends = {"is_last": True} if self.is_stranded() else {}
        ends |= {} if self.is_well() else {"ends": True}
        now = time.monotonic()
        try:
            sys.stdout.flush()
            self._channel.reply(**{**(one.answer or _ended(one, Cancelled())), **ends})
        except OSError as error:
            if one.until is not None and now >= one.until:
                raise
            if one.until is None:
                one.until = now + self._channel.orphan_seconds
                _log.warning("cannot reply to %s now: %s", one.request["id"], error)
            time.sleep(_IDLE)
            return False
        return True

    def _stop(self, one: _Run, error: type[Cancelled] = Cancelled) -> None:
        """Cancel the Spark jobs of a run, and raise the error in its Python code."""
        if not one.is_told and one.thread.ident is not None:
            one.is_told = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(one.thread.ident), ctypes.py_object(error)
            )
        self.cancel(one.token)


class Application(Host):
    """Runs jobs in one Spark, each with its own session and job group."""

    def __init__(self, spark: SparkSession, channel: Channel) -> None:
        super().__init__(channel)
        self.spark = spark
        self._looked = -_LOOK
        self._seen: float | None = None  # when there were executors last
        count = channel.at_once
        # Keeps the logs of tables in memory; concurrent runs do not share them.
        self._seats = [_Seat(spark, n if count > 1 else None) for n in range(count)]

    def answer(self, request: Mapping[str, Any], seat: int) -> Mapping[str, Any]:
        """Run the run spec of a request."""
        return self._seats[seat].answer(json.dumps(request))

    def thread(self, work: Callable[[], None]) -> Thread:
        """Return a thread that leaves no local properties in the JVM for the next one."""
        from pyspark import InheritableThread

        thread: Thread = InheritableThread(target=work, daemon=True)
        return thread

    def is_well(self) -> bool:
        """Whether Spark is alive."""
        return is_alive(self.spark)

    def is_stranded(self) -> bool:
        """Whether it has had no executors for too long, although it should keep them."""
        now = time.monotonic()
        if now - self._looked >= _LOOK and self.is_well():
            self._looked = now
            if self._has_executors():
                self._seen = now
        return self._seen is not None and now - self._seen >= self._channel.stranded_seconds

    def _has_executors(self) -> bool:
        context = self.spark.sparkContext._jsc.sc()
        is_dynamic = context.conf().getBoolean("spark.dynamicAllocation.enabled", False)
        return bool(is_dynamic or context.getExecutorMemoryStatus().size() > 1)

    def cancel(self, token: str) -> None:
        """Cancel the Spark jobs of an attempt."""
        if self.is_well():
            self.spark.sparkContext.cancelJobGroup(token)

    def close(self) -> None:
        """Stop Spark."""
        self.spark.stop()


def _ended(one: _Run, error: BaseException) -> dict[str, Any]:
    described = describe(RuntimeFailure(f"the run has ended: {error}"))
    return {"op": "raised", "id": one.request["id"], "error": described}


def serve_folder(folder: Path, conf: Mapping[str, str]) -> int:
    """Answer the requests in a folder until the end; return the exit code of the process."""
    channel = Channel(folder)
    with channel.take_output(), by_thread():
        try:
            spark = get_session({**long_session_conf(), **conf})
        except Exception as error:  # noqa: BLE001 (reported to the tool)
            channel.reply(op="raised", error=describe(error))
            return 1
        return Application(spark, channel).serve()
