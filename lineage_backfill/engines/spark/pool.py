"""Runs attempts in warm workers, which a subclass starts."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles, LifeSign, kill_group, read_from
from lineage_backfill.engines.runtime import reconcile
from lineage_backfill.engines.seconds import check_seconds
from lineage_backfill.engines.spark.seating import Seating, Table, WarmWorker
from lineage_backfill.engines.spark.worker import WorkerDied
from lineage_backfill.errors import BackfillError, EngineError, with_hint
from lineage_backfill.files import private
from lineage_backfill.ports import AttemptState, Engine, Outcome, Start

_TRIES = 3  # workers that may end before they begin an attempt
_numbers = itertools.count(1)  # of the starts of all engines


class NotBegun(WorkerDied):
    """The worker ended before it began the request; another one may do it."""


@dataclass
class _Task:
    """An attempt that this engine was given."""

    files: AttemptFiles
    outcome: Outcome | None = None
    worker: WarmWorker | None = None
    request: str = ""  # the request to the worker
    is_cancelled: bool = False
    took_worker: bool = False  # it ended the worker after its reply
    mutex: threading.Lock = field(default_factory=threading.Lock)


class PoolEngine(Engine):
    """Up to `slots` warm workers, started on demand; idle ones end after some time.

    Each does up to `at_once` attempts at the same time. If a worker dies, its attempts fail, and
    the next ones get a new worker. A result file counts in any case, even if the worker died.
    """

    can_undo = True

    #: The name of a worker in messages about its start.
    worker_name = "a Spark worker"

    def __init__(self, *, slots: int, idle_seconds: float, at_once: int = 1) -> None:
        if slots < 1:
            raise ValueError(f"`slots` must be at least 1, not {slots}")
        check_seconds("idle_seconds", idle_seconds)
        self._idle_seconds = idle_seconds
        self._threads = ThreadPoolExecutor(slots * at_once, thread_name_prefix="spark-worker")
        self._mutex = threading.Lock()
        self._taking_over = threading.Lock()  # takes seconds
        self._seating = Seating(slots, at_once)
        self._starting: dict[Table, tuple[int, float]] = {}  # number and begin
        self._started: list[Start] = []  # that are over, since the last report
        self._reaper: threading.Thread | None = None
        self._tasks: dict[str, _Task] = {}
        self._inherited: dict[str, Mapping[str, Any]] = {}
        self._listener: Callable[[str], None] = lambda _handle: None
        self._closing = threading.Event()

    # For subclasses

    @abstractmethod
    def new_worker(self, key: str, *, own: bool = False) -> WarmWorker:
        """Start a worker; with `own` its first attempt is its only one.

        Raises EnvironmentMissingError, EngineError.
        """

    def key(self, files: AttemptFiles) -> str:
        """Return the key that a worker must have for an attempt."""
        return ""

    def needs_own(self, files: AttemptFiles) -> bool:
        """Whether an attempt gets a new worker of its own."""
        return False

    def died(self, files: AttemptFiles, error: str) -> Outcome:
        """Return the outcome of an attempt whose worker died during it."""
        return Outcome(state=AttemptState.FAILED, error=error, transient=True)

    def was_begun(self, claim: Mapping[str, Any]) -> bool:
        """Whether a claimed attempt may have begun; if not, it never will."""
        return True

    def works(self, claim: Mapping[str, Any]) -> bool:
        """Whether the worker that claimed an attempt is still working on it."""
        return bool(claim) and LifeSign(Path(claim["life_sign"])).is_alive()

    def wait(self, claim: Mapping[str, Any]) -> None:
        """Wait until the worker that claimed an attempt has stopped working on it."""
        LifeSign(Path(claim["life_sign"])).wait()

    def taken_over(self, claim: Mapping[str, Any]) -> WarmWorker | None:
        """Return the worker that claimed an attempt, taken over by this engine if possible."""
        return None

    def stop(self, claim: Mapping[str, Any]) -> None:
        """Stop an attempt that a worker is doing for an earlier executor."""
        kill_group(claim["pid"])

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
        if handle in self._tasks:
            return handle
        if not files.has_token(token):
            files.give_up()
            return None
        claim = self._begun(files)
        if claim is None:
            files.give_up()  # first, so that a worker that claims it now does not begin either
            claim = self._begun(files)
        works = claim is not None and self.works(claim)
        if files.outcome() is not None:  # checked last: it may have appeared meanwhile
            return handle
        if claim is None:
            return None
        if not works:
            reconcile(files)
            return handle
        with self._taking_over:  # one worker may do several attempts
            worker = self.taken_over(claim)
            table = None if worker is None else self._seating.seat(worker)
        self._inherited[handle] = claim
        threading.Thread(target=self._watch, args=(handle, claim, table), daemon=True).start()
        return handle

    def left(self, spec_path: Path, token: str) -> Outcome | None:
        return AttemptFiles(spec_path).left(token)

    def poll(self, handle: str) -> Outcome:
        task = self._tasks.get(handle)
        if task is not None:
            begun = task.worker is not None and task.worker.has_begun(task.request)
            state = AttemptState.RUNNING if begun else AttemptState.QUEUED
            return task.outcome or Outcome(state=state)
        claim = self._inherited.get(handle)
        works = claim is not None and self.works(claim)
        outcome = AttemptFiles(
            Path(handle)
        ).outcome()  # checked last: it may have appeared meanwhile
        if outcome is not None:
            return outcome
        if works:
            return Outcome(state=AttemptState.RUNNING)
        gone = "the worker ended with its executor and left no result"
        return Outcome(state=AttemptState.LOST, error=gone, transient=True)

    def cancel(self, handle: str) -> None:
        """Stop the attempt."""
        task = self._tasks.get(handle)
        if task is None:
            claim = self._inherited.get(handle)
            if claim is not None and self.works(claim):
                self.stop(claim)
            return
        with task.mutex:
            task.is_cancelled = True
            if task.worker is not None and task.outcome is None:
                task.worker.stop(task.request)

    def pack(self, spec_path: Path) -> None:
        AttemptFiles(spec_path).pack()

    def close(self) -> None:
        """End the idle workers; busy ones end once they are done."""
        self._closing.set()
        workers = self._seating.close()
        busy = [worker for worker in workers if worker.is_busy]
        for worker in busy:
            worker.let_go()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in workers:
            if worker not in busy:
                worker.close()

    def starts(self) -> Sequence[Start]:
        with self._mutex:
            over, self._started = self._started, []
            return [*over, *(self._start_of(table) for table in self._starting)]

    # Run in the pool's threads, one thread for each attempt at once

    @contextmanager
    def _seat(self, key: str = "", *, own: bool = False) -> Iterator[WarmWorker]:
        """Give an attempt a worker that is ready: a warm one, or a new one."""
        table = self._seating.take(key, own=own)
        worker = table.worker or self._start_worker(table, own=own)
        try:
            yield worker
        except WorkerDied:
            self._drop(table)
            raise
        except BaseException:
            self._give_back(table)
            raise
        self._give_back(table)

    def _start_worker(self, table: Table, *, own: bool) -> WarmWorker:
        begin = time.monotonic()
        try:
            worker = table.worker = self.new_worker(table.key, own=own)
            if worker.is_new:
                with self._mutex:
                    self._starting[table] = (next(_numbers), begin)
            if self._closing.is_set():  # `close` may have missed this one
                worker.kill()
            worker.wait_until_ready()
        except BaseException:
            self._end_start(table, has_failed=True)
            self._drop(table)
            raise
        self._end_start(table)
        return worker

    def _start_of(self, table: Table) -> Start:
        """Return the start of a worker so far."""
        number, begin = self._starting[table]
        return Start(what=self.worker_name, seconds=time.monotonic() - begin, id=number)

    def _end_start(self, table: Table, *, has_failed: bool = False) -> None:
        """Keep the end of a start to report it; a worker that was taken over had none."""
        with self._mutex:
            if table in self._starting:
                so_far = self._start_of(table)
                self._started.append(replace(so_far, is_over=True, has_failed=has_failed))
                del self._starting[table]
            if not has_failed:
                self._seating.ready(table)

    def _give_back(self, table: Table) -> None:
        self._seating.leave(table)
        with self._mutex:
            if self._reaper is None:
                self._reaper = threading.Thread(target=self._reap, name="reaper", daemon=True)
                self._reaper.start()

    def _drop(self, table: Table) -> None:
        # If it is gone, `close` or another attempt ends it.
        if self._seating.remove(table) and table.worker is not None:
            table.worker.close(patience=0)

    def _reap(self) -> None:
        """End workers that have been idle for too long."""
        patience = self._idle_seconds
        while not self._closing.wait(patience):
            now = time.monotonic()
            old, next_since = self._seating.idle(now - self._idle_seconds)
            patience = self._idle_seconds + (0 if next_since is None else next_since - now)
            for worker in old:
                worker.close()

    def _run(self, handle: str, task: _Task) -> None:
        try:
            task.outcome = self._outcome(task)
        except Exception as error:  # noqa: BLE001 - the end must always be reported
            task.outcome = Outcome(state=AttemptState.FAILED, error=repr(error))
        if task.outcome.result is not None:
            del self._tasks[
                handle
            ]  # `poll` reads the file, as thousands of results take much memory
        self._listener(handle)

    def _outcome(self, task: _Task) -> Outcome:
        """Run the attempt; a result file takes precedence over everything else."""
        died = said = None
        if not self._is_stopped(task):
            try:
                said = self._hand_over(task)
            except WorkerDied as error:
                died = str(error)
            except (BackfillError, OSError) as error:
                return _not_handed_over(error)
        outcome = task.files.outcome()
        if died or outcome is None or outcome.transient:
            outcome = reconcile(task.files) or outcome  # it may have ended after the commit
        if outcome is not None and outcome.state is AttemptState.SUCCEEDED:
            return outcome
        if self._is_stopped(task):
            return Outcome(state=AttemptState.CANCELLED, error="stopped by the user")
        if outcome is None:
            if died:
                return self.died(task.files, died)
            message = said or "the worker finished the attempt and left no result file"
            return Outcome(state=AttemptState.FAILED, error=message)
        if outcome.transient and (died or task.took_worker):
            verdict = self.died(task.files, outcome.error or "")
            return outcome if verdict.transient else verdict
        return outcome

    def _is_stopped(self, task: _Task) -> bool:
        return task.is_cancelled or self._closing.is_set()

    def _hand_over(self, task: _Task) -> str | None:
        """Let a worker run the attempt, or another one if that ends before it begins."""
        key, own = self.key(task.files), self.needs_own(task.files)
        for _ in range(_TRIES):
            with suppress(NotBegun), self._seat(key, own=own) as worker:
                return self._work(task, worker)
        raise EngineError(
            f"{_TRIES} workers ended, one after another, before they began the attempt",
            hint="Check the logs of the engine's workers.",
        )

    def _work(self, task: _Task, worker: WarmWorker) -> str | None:
        """Let the worker run the attempt; return its error, if any."""
        files, request = task.files, uuid.uuid4().hex
        start, end = worker.log_path.stat().st_size, None
        place = {"log": str(worker.log_path), "log_start": start}
        if worker.has_own_logs:
            place = {"log": str(files.log_path)}
        files.claim({**worker.claim(request), **place})
        with task.mutex:
            if task.is_cancelled:
                return None
            task.worker, task.request = worker, request
        try:
            asked = {"op": "run", "id": request, "spec": str(files.spec_path)}
            reply = worker.ask({**asked, "log": place["log"]} if worker.has_own_logs else asked)
            end = reply.get("log_end")
            task.took_worker = bool(reply.get("ends"))
        finally:
            if not worker.has_own_logs:
                # With a full disk the log is lost, but not the result.
                with suppress(OSError), open(files.log_path, "wb", opener=private) as log:
                    log.writelines(read_from(worker.log_path, start, end))
        if reply["op"] != "raised":
            return None
        return with_hint(complaint(reply["error"]), reply["error"].get("hint", ""))

    def _watch(self, handle: str, claim: Mapping[str, Any], table: Table | None) -> None:
        """Wait for the end of an attempt that an earlier executor submitted."""
        self.wait(claim)
        if table is not None:
            self._give_back(table)
        self._listener(handle)

    def _begun(self, files: AttemptFiles) -> Mapping[str, Any] | None:
        claim = files.claimed_by()
        return claim if claim is not None and self.was_begun(claim) else None


def _not_handed_over(error: BackfillError | OSError) -> Outcome:
    if isinstance(error, BackfillError):
        said = error.full_text
    else:
        said = f"the attempt cannot be handed to a worker: {error}"
    return Outcome(state=AttemptState.FAILED, error=said, transient=True)


def complaint(error: Mapping[str, Any]) -> str:
    """Return the error in a reply as one text."""
    return f"{error['class']}: {error['message']}"
