"""Runs attempts in warm workers, which a subclass starts."""

from __future__ import annotations

import itertools
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles, LifeSign, kill_group, read_from
from lineage_backfill.engines.runtime import reconcile
from lineage_backfill.engines.spark.worker import Worker, WorkerDied
from lineage_backfill.errors import BackfillError, with_hint
from lineage_backfill.files import private
from lineage_backfill.ports import AttemptState, Engine, Outcome, Start

_numbers = itertools.count(1)  # of the starts of all engines


@dataclass
class _Task:
    """An attempt that this engine was given."""

    files: AttemptFiles
    outcome: Outcome | None = None
    worker: Worker | None = None
    is_cancelled: bool = False
    mutex: threading.Lock = field(default_factory=threading.Lock)


class PoolEngine(Engine):
    """Up to `workers` warm workers, started on demand, each with one attempt at a time.

    A worker ends after `idle_seconds`, at the age of `max_age` seconds, once another key is wanted,
    or once two runs in a row have failed alike in it. If it dies, its attempt fails, and the next
    one gets a new worker. A result file counts in any case.
    """

    can_undo = True

    #: The name of a worker in messages about its start.
    worker_name = "a worker"

    def __init__(self, workers: int, *, idle_seconds: float, max_age: float) -> None:
        self._idle_seconds = idle_seconds
        self._max_age = max_age
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="worker")
        self._mutex = threading.Lock()
        self._idle: list[Worker] = []  # the one used last is at the end, and is used first
        self._busy: list[Worker] = []  # also those that are starting
        self._starting: dict[int, float] = {}  # when each began, by number
        self._started: list[Start] = []  # that are over, since the last report
        self._reaper: threading.Thread | None = None
        self._tasks: dict[str, _Task] = {}
        self._inherited: dict[str, Mapping[str, Any]] = {}
        self._doubts: dict[str, str] = {}
        self._blamed: set[str] = set()  # failures for which a worker has been replaced
        self._listener: Callable[[str], None] = lambda _handle: None
        self._closing = threading.Event()

    # For subclasses

    @abstractmethod
    def new_worker(self, key: str) -> Worker:
        """Start a worker; raises EnvironmentMissingError, EngineError."""

    @abstractmethod
    def key(self) -> str:
        """Return the key that a worker must have for the next attempt."""

    def end_remains(self, files: AttemptFiles) -> str | None:
        """End what an attempt still does elsewhere after its worker; return why that failed."""
        return None

    @property
    def has_workers(self) -> bool:
        """Whether a worker has started, or is starting."""
        return bool(self._idle or self._busy)

    # The port

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        """Queue the attempt for the next free worker; `token` must be that of the spec."""
        handle = str(spec_path)
        files = AttemptFiles(spec_path)
        files.check_token(token)
        with self._mutex:
            if handle in self._tasks or handle in self._inherited:
                return handle
            if files.outcome() is not None:
                self._listener(handle)
                return handle
            self._tasks[handle] = task = _Task(files)
        self._threads.submit(self._run, handle, task)
        return handle

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of an attempt that is known, has a result or is still running."""
        handle = str(spec_path)
        files = AttemptFiles(spec_path)
        if not files.has_token(token):
            files.give_up()
            return None
        if handle in self._tasks:
            return handle
        claim = files.claimed_by()
        if claim is None:
            files.give_up()  # first, so that a worker that claims it now does not begin either
            claim = files.claimed_by()
        works = claim is not None and _works(claim)
        if files.outcome() is not None:  # checked last: it may have appeared meanwhile
            return handle
        if claim is None:
            return None
        if not works:
            self._settle(handle)
            return handle
        self._inherited[handle] = claim
        threading.Thread(target=self._watch, args=(handle, claim), daemon=True).start()
        return handle

    def left(self, spec_path: Path, token: str) -> Outcome | None:
        return AttemptFiles(spec_path).left(token)

    def poll(self, handle: str) -> Outcome:
        task = self._tasks.get(handle)
        if task is not None:
            state = AttemptState.QUEUED if task.worker is None else AttemptState.RUNNING
            return task.outcome or Outcome(state=state)
        works = bool(self._inherited.get(handle))
        # Checked last: it may have appeared meanwhile.
        outcome = AttemptFiles(Path(handle)).outcome()
        if outcome is not None:
            return outcome
        if works:
            return Outcome(state=AttemptState.RUNNING)
        gone = "the worker ended with its executor and left no result"
        return Outcome(
            state=AttemptState.LOST, error=self._doubts.get(handle, gone), transient=True
        )

    def cancel(self, handle: str) -> None:
        """Stop the attempt, and with it its worker."""
        task = self._tasks.get(handle)
        if task is None:
            claim = self._inherited.get(handle)
            if claim is not None and _works(claim):
                kill_group(claim["pid"])
            return
        with task.mutex:
            task.is_cancelled = True
            if task.worker is not None and task.outcome is None:
                task.worker.stop()

    def close(self) -> None:
        """End the idle workers; busy ones end once they are done."""
        self._closing.set()
        with self._mutex:
            idle, self._idle = self._idle, []
            busy, self._busy = self._busy, []
        for worker in busy:
            worker.let_go()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in idle:
            worker.close()

    def starts(self) -> Sequence[Start]:
        with self._mutex:
            over, self._started = self._started, []
            return [*over, *map(self._start_of, self._starting)]

    # Run in the pool's threads: as many as there may be workers

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        """Give an attempt a worker that is ready: an idle one, or a new one."""
        key = self.key()
        worker = self._take(key) or self._start(key)
        try:
            yield worker
        finally:
            self._give_back(worker)

    def _take(self, key: str) -> Worker | None:
        """Take the idle worker that was used last, and end those that are of no more use."""
        with self._mutex:
            fit = [one for one in self._idle if one.key == key and self._is_fit(one)]
            others = [one for one in self._idle if one not in fit]
            taken = fit.pop() if fit else None
            self._idle = fit
            if taken is not None:
                self._busy.append(taken)
        for one in others:
            one.close()
        return taken

    def _is_fit(self, worker: Worker) -> bool:
        is_old = time.monotonic() - worker.began >= self._max_age
        return not (worker.has_ended or worker.is_worn or is_old)

    def _start(self, key: str) -> Worker:
        number, has_failed = next(_numbers), True
        with self._mutex:
            self._starting[number] = time.monotonic()
        try:
            worker = self.new_worker(key)
            with self._mutex:
                self._busy.append(worker)
                if self._closing.is_set():  # `close` may have missed this one
                    worker.kill()
            try:
                worker.wait_until_ready()
                has_failed = False
            except BaseException:
                self._forget(worker)
                raise
            return worker
        finally:
            with self._mutex:
                self._started.append(self._start_of(number, has_failed=has_failed, is_over=True))
                del self._starting[number]

    def _start_of(self, number: int, **end: bool) -> Start:
        """Return the start of a worker so far."""
        seconds = time.monotonic() - self._starting[number]
        return Start(what=self.worker_name, seconds=seconds, id=number, **end)

    def _give_back(self, worker: Worker) -> None:
        if not self._is_fit(worker):
            self._forget(worker)
            return
        with self._mutex:
            if worker not in self._busy:  # `close` has let it go
                return
            self._busy.remove(worker)
            worker.idle_since = time.monotonic()
            self._idle.append(worker)
            if self._reaper is None:
                self._reaper = threading.Thread(target=self._reap, name="reaper", daemon=True)
                self._reaper.start()

    def _forget(self, worker: Worker) -> None:
        """End a worker, unless `close` has let it go."""
        with self._mutex:
            is_ours = worker in self._busy
            if is_ours:
                self._busy.remove(worker)
        if is_ours:
            worker.close(timeout=0)

    def _reap(self) -> None:
        """End workers that have been idle for too long."""
        while not self._closing.wait(self._idle_seconds / 2):
            with self._mutex:
                since = time.monotonic() - self._idle_seconds
                old = [one for one in self._idle if one.idle_since <= since]
                self._idle = [one for one in self._idle if one not in old]
            for worker in old:
                worker.close()

    def _run(self, handle: str, task: _Task) -> None:
        try:
            task.outcome = self._outcome(task)
        except Exception as error:  # noqa: BLE001 - the end must always be reported
            task.outcome = Outcome(state=AttemptState.FAILED, error=repr(error))
        if task.worker is not None:
            self._learn(task.worker, task.outcome)
        if task.outcome.result is not None:
            # `poll` reads the file, as thousands of results take much memory.
            del self._tasks[handle]
        self._listener(handle)

    def _learn(self, worker: Worker, outcome: Outcome) -> None:
        """Replace a worker in which two runs in a row have failed alike, once for each failure.

        If runs fail so in the next one too, it is not the worker.
        """
        failure = ((outcome.result or {}).get("error") or {}).get("class")
        if failure is not None and failure == worker.failure and failure not in self._blamed:
            self._blamed.add(failure)
            worker.is_worn = True
        worker.failure = failure

    def _outcome(self, task: _Task) -> Outcome:
        """Run the attempt; a result file takes precedence over everything else."""
        died = failure = None
        if not self._is_stopped(task):
            try:
                with self._worker() as worker:
                    failure = _work(task, worker)
            except WorkerDied as error:
                died = str(error)
            except (BackfillError, OSError) as error:
                why = getattr(error, "full_text", f"no worker can be given the attempt: {error}")
                return Outcome(state=AttemptState.FAILED, error=why, transient=True)
        is_gone = died is not None and not _works(task.files.claimed_by() or {})
        doubt = self.end_remains(task.files) if is_gone else None
        outcome = task.files.outcome()
        if doubt is not None and outcome is None:
            return Outcome(state=AttemptState.LOST, error=f"{died}; {doubt}", transient=True)
        if died or outcome is None or outcome.transient:
            outcome = reconcile(task.files) or outcome  # it may have ended after the commit
        if outcome is not None and outcome.state is AttemptState.SUCCEEDED:
            return outcome
        if self._is_stopped(task):
            return Outcome(state=AttemptState.CANCELLED, error="stopped by the user")
        if outcome is None:
            message = died or failure or "the worker finished the attempt and left no result file"
            return Outcome(state=AttemptState.FAILED, error=message, transient=died is not None)
        return outcome

    def _is_stopped(self, task: _Task) -> bool:
        return task.is_cancelled or self._closing.is_set()

    def _watch(self, handle: str, claim: Mapping[str, Any]) -> None:
        """Wait for the end of an attempt that an earlier executor submitted."""
        LifeSign(Path(claim["life_sign"])).wait()
        self._settle(handle)
        self._inherited[handle] = {}  # it is over
        self._listener(handle)

    def _settle(self, handle: str) -> None:
        """Judge an attempt whose worker has ended, once nothing of it goes on."""
        files = AttemptFiles(Path(handle))
        doubt = None if files.outcome() else self.end_remains(files)
        if doubt is None:
            reconcile(files)
        else:
            self._doubts[handle] = doubt


def _work(task: _Task, worker: Worker) -> str | None:
    """Let the worker run the attempt; return its error, if any."""
    files, start = task.files, worker.log_path.stat().st_size
    files.claim({**worker.claim(), "log": str(worker.log_path), "log_start": start})
    with task.mutex:
        if task.is_cancelled:
            return None
        task.worker = worker
    try:
        reply = worker.ask({"op": "run", "spec": str(files.spec_path)})
    finally:
        # With a full disk the log is lost, but not the result.
        with suppress(OSError), open(files.log_path, "wb", opener=private) as log:
            log.writelines(read_from(worker.log_path, start))
    if reply["op"] != "raised":
        return None
    return with_hint(complaint(reply["error"]), reply["error"].get("hint", ""))


def _works(claim: Mapping[str, Any]) -> bool:
    """Whether the worker that claimed an attempt is alive."""
    return bool(claim) and LifeSign(Path(claim["life_sign"])).is_alive()


def complaint(error: Mapping[str, Any]) -> str:
    """Return the error in a reply as one text."""
    return f"{error['class']}: {error['message']}"
