"""A warm application on a cluster: takes runs from a folder, one at a time, and answers there.

In the folder, which only its owner may read: `application.json`, the terms under which it works;
`inbox`, requests in files; `taken`, to which one is renamed before it is begun, so that it is begun
once; `withdrawn`, requests that must not begin any more; `cancel`, those to stop; `answers`; and
the locks `owner`, of the tool that sends requests, and `driver`, of this process. All other files
are JSON objects with the application's secret; either side ignores one without it.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

from lineage_backfill.runspec.values import RunResult, RunSpec
from spark_runtime.errors import Cancelled, RuntimeFailure, Stopped
from spark_runtime.runner import run
from spark_runtime.session import is_alive, session_of_its_own
from spark_runtime.spec import write_atomically
from spark_runtime.worker import Worker, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_BUSY, _IDLE = 0.05, 1.0  # seconds between two looks into the inbox
_SOON = 10.0  # seconds in which a next request is likely
_PATIENCE = 5.0  # seconds that a run has to end where the process does


class Channel:
    """The application's side of its folder; locks it for as long as the process lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._terms: dict[str, Any] = json.loads((folder / "application.json").read_text())
        self._lock = (folder / "driver").open("a", encoding="utf-8")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._request = ""
        self._begun = 0

    def close(self) -> None:
        """Let go of the lock, as the end of the process does."""
        self._lock.close()

    def requests(self, is_well: Callable[[], bool] = lambda: True) -> Iterator[str]:
        """Yield requests as they come, each once.

        Ends when it is asked to, after as many runs as one application does, and once no tool has
        owned it for long, or where `is_well` is false. What is still in the inbox is not begun.
        """
        busy = owned = time.monotonic()
        while not self._is_done and not self._bears_secret("close") and is_well():
            now = time.monotonic()
            if self._is_owned():
                owned = now
            elif now - owned >= self._terms["orphan_seconds"]:
                return
            line = self._take()
            if line is None:
                time.sleep(_BUSY if now - busy < _SOON else _IDLE)
                continue
            self._begun += 1
            yield line
            busy = time.monotonic()

    @property
    def _is_done(self) -> bool:
        return bool(self._begun >= self._terms["max_runs"])

    def _is_owned(self) -> bool:
        with (self._folder / "owner").open("a", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def _take(self) -> str | None:
        for path in sorted((self._folder / "inbox").glob("*.json")):
            taken = self._folder / "taken" / path.name
            request = self._signed(path)
            if request is None or request.get("id") != path.stem or taken.exists():
                with suppress(OSError):
                    path.unlink()
                    _log.warning("ignored %s: not a request of this application's tool", path)
                continue
            path.rename(taken)
            # Who withdraws it writes first and then looks whether it was taken.
            if self._bears_secret("withdrawn", path.stem):
                self.reply(id=path.stem, op="withdrawn")
                continue
            self._request = path.stem
            return json.dumps(request)
        return None

    def _signed(self, path: Path) -> dict[str, Any] | None:
        """Return what a file holds; None for one that is not there or lacks the secret."""
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return None
        given = document.get("secret") if isinstance(document, dict) else None
        secret = str(self._terms["secret"])
        return document if hmac.compare_digest(str(given).encode(), secret.encode()) else None

    def _bears_secret(self, *place: str) -> bool:
        return self._signed(self._folder.joinpath(*place)) is not None

    def is_cancelled(self) -> bool:
        """Whether the request that was yielded last is to stop."""
        return self._bears_secret("cancel", self._request)

    def reply(self, **message: Any) -> None:
        """Answer a request; without an `id`, say whether the application is ready."""
        name = message.get("id")
        place = self._folder / "answers" / f"{name}.json" if name else self._folder / "ready.json"
        if name and self._is_done:
            message["is_last"] = True
        signed = {**message, "log_end": os.fstat(1).st_size, "secret": self._terms["secret"]}
        write_atomically(place, json.dumps(signed))

    def take_output(self) -> IO[str]:
        """Let what this process prints go into the log directly, in order with its replies."""
        log = (self._folder / "log.txt").open("a", encoding="utf-8")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
        return log


class Application(Worker):
    """Answers requests, and gives each run a session, a job group and a thread of its own."""

    def __init__(self, spark: SparkSession, channel: Channel) -> None:
        super().__init__(spark)
        self._channel = channel

    def run(self, spec: RunSpec) -> RunResult:
        """Run a run spec; raises RuntimeFailure where it was cancelled."""
        from pyspark import InheritableThread

        ends: list[RunResult | BaseException] = []
        # No local property of this thread's counterpart in the JVM is left to the next run.
        thread = InheritableThread(target=partial(self._work, spec, ends))
        thread.start()
        is_told = False
        try:
            while thread.is_alive():
                thread.join(_BUSY)
                if self._channel.is_cancelled():
                    self._stop(spec, thread, tell=not is_told)
                    is_told = True
        except Stopped:
            self._stop(spec, thread, tell=not is_told)
            thread.join(_PATIENCE)
            raise
        end = ends[0] if ends else Cancelled()
        if isinstance(end, BaseException):
            raise RuntimeFailure(f"the run has ended: {end}") from end
        return end

    def _work(self, spec: RunSpec, ends: list[RunResult | BaseException]) -> None:
        try:
            with session_of_its_own(self.spark) as session:
                name = f"{spec.job.name} {spec.run_id}"
                session.sparkContext.setJobGroup(spec.token, name, interruptOnCancel=True)
                ends.append(run(session, spec, self.tables.within(session)))
        except BaseException as error:  # noqa: BLE001 (ends this run, and not the application)
            ends.append(error)

    def _stop(self, spec: RunSpec, thread: Thread, *, tell: bool) -> None:
        """Cancel what a run does in Spark, and raise Cancelled where it is in Python."""
        if tell and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(Cancelled)
            )
        if is_alive(self.spark):
            self.spark.sparkContext.cancelJobGroup(spec.token)


def serve_folder(folder: Path, conf: Mapping[str, str]) -> int:
    """Answer the requests of a folder until it is to end; return the exit code of the process."""
    channel = Channel(folder)
    made: list[Application] = []

    def make(spark: SparkSession) -> Application:
        made.append(Application(spark, channel))
        return made[0]

    with channel.take_output():
        requests = channel.requests(lambda: is_alive(made[0].spark))
        return work(requests, channel.reply, conf, make)
