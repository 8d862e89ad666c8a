"""Runs attempts in warm workers, one at a time in each; an engine of this sort starts them."""

from __future__ import annotations

import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lineage_backfill.engines.attempt import AttemptFiles, LifeSign, kill_group, read_from
from lineage_backfill.engines.runtime import reconcile
from lineage_backfill.engines.worker import WorkerDied
from lineage_backfill.errors import BackfillError, EngineError
from lineage_backfill.files import private
from lineage_backfill.ports import AttemptState, Engine, Outcome

_TRIES = 3  # workers that may end before they begin an attempt


class WarmWorker(Protocol):
    """A process that answers requests, one at a time, by the protocol of `spark_runtime.worker`.

    One worker does not do what needs another `key`. `idle_since` is by the monotonic clock.
    """

    key: str
    idle_since: float
    log_path: Path

    @property
    def is_busy(self) -> bool:
        """Whether it starts, or works on a request."""

    @property
    def has_begun(self) -> bool:
        """Whether it has begun what it claimed last."""

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more requests."""

    def wait_until_ready(self) -> None:
        """Wait until it takes requests; raises EnvironmentMissingError with its reason."""

    def claim(self, request: str) -> dict[str, Any]:
        """Return what tells another process who works on this request."""

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and wait for its reply; raises WorkerDied, NotBegun."""

    def stop(self) -> None:
        """Stop what it works on, without waiting for that."""

    def kill(self) -> None:
        """End it at once, with all its children."""

    def let_go(self) -> None:
        """Wait for it no more; what it works on goes on."""

    def close(self, patience: float = ...) -> None:
        """End it; kill it if that takes more than `patience` seconds."""


class NotBegun(WorkerDied):
    """The worker ended, and has not begun what it was asked to do; another one may."""


@dataclass
class _Task:
    """An attempt that this engine was given."""

    files: AttemptFiles
    outcome: Outcome | None = None
    worker: WarmWorker | None = None
    is_cancelled: bool = False
    took_worker: bool = False  # ended the worker, and was still told of
    mutex: threading.Lock = field(default_factory=threading.Lock)


class PoolEngine(Engine):
    """Up to `slots` warm workers, started when first needed; one that is idle for long ends.

    A worker that dies is a failed attempt; the next one gets a new worker. The result file is the
    truth: what it says counts, whatever became of the worker.
    """

    can_undo = True

    def __init__(self, *, slots: int, idle_seconds: float) -> None:
        if slots < 1:
            raise ValueError(f"`slots` must be at least 1, not {slots}")
        if idle_seconds <= 0:
            raise ValueError(f"`idle_seconds` must be more than 0, not {idle_seconds}")
        self._slots = slots
        self._idle_seconds = idle_seconds
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="spark-worker")
        self._mutex = threading.Lock()
        self._workers: list[WarmWorker] = []
        # The one that worked last is last, and the first to work.
        self._idle: list[WarmWorker] = []
        self._reaper: threading.Thread | None = None
        self._tasks: dict[str, _Task] = {}
        self._inherited: dict[str, Mapping[str, Any]] = {}
        self._listener: Callable[[str], None] = lambda _handle: None
        self._closing = threading.Event()

    # What an engine of this sort says

    @abstractmethod
    def new_worker(self, key: str, *, own: bool = False) -> WarmWorker:
        """Start a worker, whose first attempt is its only one with `own`.

        Raises EnvironmentMissingError, EngineError.
        """

    def key(self, files: AttemptFiles) -> str:
        """Return the key of the workers that may do an attempt."""
        return ""

    def needs_own(self, files: AttemptFiles) -> bool:
        """Whether an attempt gets a new worker, which does nothing else."""
        return False

    def died(self, files: AttemptFiles, error: str) -> Outcome:
        """Return what came of an attempt whose worker died in the middle of it."""
        return Outcome(state=AttemptState.FAILED, error=error, transient=True)

    def was_begun(self, claim: Mapping[str, Any]) -> bool:
        """Whether a claimed attempt may have been begun; if not, it never will be."""
        return True

    def works(self, claim: Mapping[str, Any]) -> bool:
        """Whether the worker that claimed an attempt is still at it."""
        return bool(claim) and LifeSign(Path(claim["life_sign"])).is_alive()

    def wait(self, claim: Mapping[str, Any]) -> None:
        """Wait until the worker that claimed an attempt is no longer at it."""
        LifeSign(Path(claim["life_sign"])).wait()

    def taken_over(self, claim: Mapping[str, Any]) -> WarmWorker | None:
        """Return the worker that claimed an attempt as one of this engine, where it can be."""
        return None

    def stop(self, claim: Mapping[str, Any]) -> None:
        """Stop an attempt that a worker is at for an earlier executor."""
        kill_group(claim["pid"])

    # The port

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        """Queue the attempt for the next worker that is free; `token` must be that of the spec."""
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
        """Return the handle of an attempt that is known, has a result or is still worked on."""
        handle = str(spec_path)
        files = AttemptFiles(spec_path)
        if handle in self._tasks:
            return handle
        if not files.has_token(token):
            files.give_up()
            return None
        claim = self._begun(files)
        if claim is None:
            files.give_up()  # first, so that who claims it now does not begin either
            claim = self._begun(files)
        works = claim is not None and self.works(claim)
        if files.outcome() is not None:  # looked for last: it may have come just now
            return handle
        if claim is None:
            return None
        if not works:
            reconcile(files)
            return handle
        worker = self.taken_over(claim)
        if worker is not None:
            with self._mutex:
                self._workers.append(worker)
        self._inherited[handle] = claim
        threading.Thread(target=self._watch, args=(handle, claim, worker), daemon=True).start()
        return handle

    def left(self, spec_path: Path, token: str) -> Outcome | None:
        return AttemptFiles(spec_path).left(token)

    def poll(self, handle: str) -> Outcome:
        task = self._tasks.get(handle)
        if task is not None:
            begun = task.worker is not None and task.worker.has_begun
            state = AttemptState.RUNNING if begun else AttemptState.QUEUED
            return task.outcome or Outcome(state=state)
        claim = self._inherited.get(handle)
        works = claim is not None and self.works(claim)
        outcome = AttemptFiles(Path(handle)).outcome()  # looked for last: it may have come just now
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
                task.worker.stop()

    def logs(self, handle: str) -> str:
        return AttemptFiles(Path(handle)).log()

    def pack(self, spec_path: Path) -> None:
        AttemptFiles(spec_path).pack()

    def close(self) -> None:
        """End the idle workers; busy ones end once they are done."""
        self._closing.set()
        with self._mutex:
            workers, self._workers, self._idle = self._workers, [], []
        busy = [worker for worker in workers if worker.is_busy]
        for worker in busy:
            worker.let_go()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in workers:
            if worker not in busy:
                worker.close()

    # Run in the pool's threads, one thread for each slot

    def _take(self, key: str = "") -> WarmWorker:
        """Return a worker that is ready: the one that was idle for the shortest time, or a new one.

        So a cold one is started only while all warm ones work.
        """
        while True:
            with self._mutex:
                warm = next((one for one in reversed(self._idle) if one.key == key), None)
                if warm is not None:
                    self._idle.remove(warm)
            if warm is None:
                return self._new(key)
            if not warm.has_ended:
                return warm
            self._drop(warm)

    def _new(self, key: str, *, own: bool = False) -> WarmWorker:
        self._make_room()
        worker = self.new_worker(key, own=own)
        with self._mutex:
            self._workers.append(worker)
        try:
            if self._closing.is_set():  # too late for `close` to have seen this one
                worker.kill()
            worker.wait_until_ready()
        except BaseException:
            self._drop(worker)
            raise
        return worker

    def _make_room(self) -> None:
        """End idle workers with other keys where there would be more workers than slots."""
        with self._mutex:
            spare = self._idle[: max(0, len(self._workers) + 1 - self._slots)]
            self._idle = self._idle[len(spare) :]
            self._workers = [one for one in self._workers if one not in spare]
        for worker in spare:
            worker.close()

    def _give_back(self, worker: WarmWorker, *, is_last: bool = False) -> None:
        with self._mutex:
            if worker not in self._workers:
                return  # `close` ends it
            if is_last:
                self._workers.remove(worker)
            else:
                worker.idle_since = time.monotonic()
                self._idle.append(worker)
            if self._reaper is None:
                self._reaper = threading.Thread(target=self._reap, name="reaper", daemon=True)
                self._reaper.start()
        if is_last:
            worker.close()

    def _drop(self, worker: WarmWorker) -> None:
        with self._mutex:
            if worker not in self._workers:
                return  # `close` ends it
            self._workers.remove(worker)
        worker.close(patience=0)

    @contextmanager
    def _worker(self, key: str = "", *, own: bool = False) -> Iterator[WarmWorker]:
        worker = self._new(key, own=True) if own else self._take(key)
        try:
            yield worker
        except WorkerDied:
            self._drop(worker)
            raise
        except BaseException:
            self._give_back(worker)
            raise
        self._give_back(worker, is_last=own)

    def _reap(self) -> None:
        """End workers that were idle for too long."""
        patience = self._idle_seconds
        while not self._closing.wait(patience):
            now = time.monotonic()
            with self._mutex:
                old = [one for one in self._idle if now - one.idle_since >= self._idle_seconds]
                self._idle = [one for one in self._idle if one not in old]
                self._workers = [one for one in self._workers if one not in old]
                first = min((one.idle_since for one in self._idle), default=now)
            patience = first + self._idle_seconds - now
            for worker in old:
                worker.close()

    def _run(self, handle: str, task: _Task) -> None:
        try:
            task.outcome = self._outcome(task)
        except Exception as error:  # noqa: BLE001 - the end must always be reported
            task.outcome = Outcome(state=AttemptState.FAILED, error=repr(error))
        if task.outcome.result is not None:
            del self._tasks[handle]  # `poll` reads the file; thousands of results are a lot to hold
        self._listener(handle)

    def _outcome(self, task: _Task) -> Outcome:
        """Run the attempt; what the result file says counts before all else."""
        died = said = None
        if not (task.is_cancelled or self._closing.is_set()):
            try:
                said = self._hand_over(task)
            except WorkerDied as error:
                died = str(error)
            except BackfillError as error:
                said = _with_hint(error.message, error.hint)
                return Outcome(state=AttemptState.FAILED, error=said, transient=True)
            except OSError as error:
                said = f"the attempt cannot be handed to a worker: {error}"
                return Outcome(state=AttemptState.FAILED, error=said, transient=True)
        outcome = task.files.outcome()
        if died or (outcome is not None and outcome.transient):
            outcome = reconcile(task.files) or outcome  # Spark may have died after the commit
        is_stopped = task.is_cancelled or self._closing.is_set()
        if is_stopped and (outcome is None or outcome.state is not AttemptState.SUCCEEDED):
            return Outcome(state=AttemptState.CANCELLED, error="stopped by the user")
        if died and outcome is None:
            return self.died(task.files, died)
        if outcome is not None and outcome.transient and (died or task.took_worker):
            verdict = self.died(task.files, outcome.error or "")
            return outcome if verdict.transient else verdict
        message = said or "the worker finished the attempt and left no result file"
        return outcome or Outcome(state=AttemptState.FAILED, error=message)

    def _hand_over(self, task: _Task) -> str | None:
        """Let a worker run the attempt; another one where that ends before it begins."""
        key, own = self.key(task.files), self.needs_own(task.files)
        for _ in range(_TRIES):
            with suppress(NotBegun), self._worker(key, own=own) as worker:
                return self._work(task, worker)
        raise EngineError(
            f"{_TRIES} workers ended, one after another, before they began the attempt",
            hint="See the logs of the engine's workers.",
        )

    def _work(self, task: _Task, worker: WarmWorker) -> str | None:
        """Let the worker run the attempt; returns what it complained of, if it did."""
        start, end = worker.log_path.stat().st_size, None
        request = uuid.uuid4().hex
        place = {"log": str(worker.log_path), "log_start": start}
        task.files.claim({**worker.claim(request), **place})
        with task.mutex:
            if task.is_cancelled:
                return None
            task.worker = worker
        try:
            reply = worker.ask({"op": "run", "id": request, "spec": str(task.files.spec_path)})
            end = reply.get("log_end")
            task.took_worker = bool(reply.get("ends"))
        finally:
            # A full disk takes the log, and not what was done.
            with suppress(OSError), open(task.files.log_path, "wb", opener=private) as log:
                log.write(read_from(worker.log_path, start, end))
        if reply["op"] != "raised":
            return None
        return _with_hint(complaint(reply["error"]), reply["error"].get("hint", ""))

    def _watch(self, handle: str, claim: Mapping[str, Any], worker: WarmWorker | None) -> None:
        """Wait for the end of an attempt that an earlier executor had handed over."""
        self.wait(claim)
        if worker is not None:
            self._give_back(worker)
        self._listener(handle)

    def _begun(self, files: AttemptFiles) -> Mapping[str, Any] | None:
        claim = files.claimed_by()
        return claim if claim is not None and self.was_begun(claim) else None


def complaint(error: Mapping[str, Any]) -> str:
    """Return an error of a reply as one text."""
    return f"{error['class']}: {error['message']}"


def _with_hint(text: str, hint: str) -> str:
    return f"{text} ({hint})" if hint else text
