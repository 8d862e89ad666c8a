"""Runs jobs on this machine, in Spark worker processes that stay warm."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles, LifeSign, kill_group, read_from
from lineage_backfill.engines.runtime import reconcile
from lineage_backfill.engines.worker import SPARK_WORKER, Worker, WorkerDied
from lineage_backfill.errors import BackfillError, EngineError
from lineage_backfill.files import private
from lineage_backfill.ports import AttemptState, Engine, Outcome

_LEAST_MEMORY = 1 << 30  # bytes; Spark does not work in less


@dataclass
class _Task:
    """An attempt that this engine was given."""

    files: AttemptFiles
    state: AttemptState = AttemptState.QUEUED
    outcome: Outcome | None = None
    worker: Worker | None = None
    log_start: int = 0
    is_cancelled: bool = False
    mutex: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The settings of the engine in the project file.

    `env` is added to the environment of the workers, `python` runs them, `conf` holds Spark
    settings. With `memory` ("4g"), no process of a worker gets more, where the system can tell; the
    JVM's heap is what it leaves for it.
    """

    slots: int = 1
    python: str = SPARK_WORKER[0]
    env: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    memory: str | None = None
    idle_seconds: float = 600
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"`slots` must be at least 1, not {self.slots}")
        if self.idle_seconds <= 0:
            raise ValueError(f"`idle_seconds` must be more than 0, not {self.idle_seconds}")

    def worker(self) -> tuple[str, ...]:
        """Return the command of a worker."""
        conf, limits = dict(self.conf), []
        if self.memory is not None:
            limit = _bytes(self.memory)
            limits = [f"--memory={limit}"]
            conf.setdefault("spark.driver.memory", f"{_heap(limit) >> 20}m")
        command = tuple(self.command) or (self.python, *SPARK_WORKER[1:])
        return (*command, *limits, *(f"--conf={name}={text}" for name, text in conf.items()))


class LocalEngine(Engine):
    """Up to `slots` warm workers, started when first needed; one that is idle for long ends.

    A worker that dies is a failed attempt; the next one gets a new worker. The result file is the
    truth: what it says counts, whatever became of the worker. Takes the members of LocalSettings.
    """

    can_undo = True

    def __init__(self, *, project: Path, state_dir: Path, **settings: Any) -> None:
        given = LocalSettings(**settings)
        self._command = given.worker()
        self._project = project
        self._folder = state_dir / "workers"
        self._environment = dict(given.env)
        self._idle_seconds = given.idle_seconds
        self._threads = ThreadPoolExecutor(given.slots, thread_name_prefix="spark-worker")
        self._mutex = threading.Lock()
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []  # the one that worked last is last, and the first to work
        self._reaper: threading.Thread | None = None
        self._tasks: dict[str, _Task] = {}
        self._adopted: dict[str, Mapping[str, Any]] = {}
        self._listener: Callable[[str], None] = lambda _handle: None
        self._closing = threading.Event()

    def open(self) -> None:
        """Start the first worker, if there is none; raises EnvironmentMissingError."""
        if not self._workers:
            self._threads.submit(lambda: self._give_back(self._take())).result()

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        """Queue the attempt for the next worker that is free; `token` must be that of the spec."""
        handle = str(spec_path)
        files = AttemptFiles(spec_path)
        files.check_token(token)
        with self._mutex:
            if handle in self._tasks or handle in self._adopted:
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
        gone = files.claimed_by() is None and files.give_up()
        claim = files.claimed_by()
        works = files.life_sign() is not None
        if files.outcome() is not None:  # looked for last: it may have come just now
            return handle
        if gone or claim is None:
            return None
        if not works:
            reconcile(files)
            return handle
        self._adopted[handle] = claim
        threading.Thread(target=self._watch, args=(handle, claim), daemon=True).start()
        return handle

    def left(self, spec_path: Path, token: str) -> Outcome | None:
        return AttemptFiles(spec_path).left(token)

    def poll(self, handle: str) -> Outcome:
        task = self._tasks.get(handle)
        if task is not None:
            return task.outcome or Outcome(state=task.state)
        outcome = AttemptFiles(Path(handle)).outcome()
        if outcome is not None:
            return outcome
        claim = self._adopted.get(handle)
        if claim is not None and LifeSign(Path(claim["life_sign"])).is_alive():
            return Outcome(state=AttemptState.RUNNING)
        gone = "the worker ended with its executor and left no result"
        return Outcome(state=AttemptState.LOST, error=gone, transient=True)

    def cancel(self, handle: str) -> None:
        """Stop the attempt, by ending its worker where it is running."""
        task = self._tasks.get(handle)
        if task is None:
            claim = self._adopted.get(handle)
            if claim is not None and LifeSign(Path(claim["life_sign"])).is_alive():
                kill_group(claim["pid"])
            return
        with task.mutex:
            task.is_cancelled = True
            if task.worker is not None and task.outcome is None:
                task.worker.stop()

    def logs(self, handle: str) -> str:
        return AttemptFiles(Path(handle)).log()

    def pack(self, spec_path: Path) -> None:
        AttemptFiles(spec_path).pack()

    def call(self, entrypoint: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run `function(spark, **arguments)` of `module:function` in a worker, return its value.

        Raises EngineError with what the function raised.
        """
        return self._threads.submit(self._call, entrypoint, arguments or {}).result()

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

    # In the threads of the pool, of which there are as many as slots

    def _take(self) -> Worker:
        """Return a worker that is ready: the one that was idle for the shortest time, or a new one.

        So a cold one is started only while all warm ones work.
        """
        while True:
            with self._mutex:
                warm = self._idle.pop() if self._idle else None
            if warm is None:
                return self._new()
            if not warm.has_ended:
                return warm
            self._drop(warm)

    def _new(self) -> Worker:
        worker = Worker(
            self._command,
            project=self._project,
            folder=self._folder,
            environment=self._environment,
        )
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

    def _give_back(self, worker: Worker) -> None:
        with self._mutex:
            if worker not in self._workers:
                return  # `close` ends it
            worker.idle_since = time.monotonic()
            self._idle.append(worker)
            if self._reaper is None:
                self._reaper = threading.Thread(target=self._reap, name="reaper", daemon=True)
                self._reaper.start()

    def _drop(self, worker: Worker) -> None:
        with self._mutex:
            if worker not in self._workers:
                return  # `close` ends it
            self._workers.remove(worker)
        worker.close(patience=0)

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        worker = self._take()
        try:
            yield worker
        except WorkerDied:
            self._drop(worker)
            raise
        except BaseException:
            self._give_back(worker)
            raise
        self._give_back(worker)

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
                with self._worker() as worker:
                    said = self._work(task, worker)
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
        if outcome is not None:
            return outcome
        message = died or said or "the worker finished the attempt and left no result file"
        return Outcome(state=AttemptState.FAILED, error=message, transient=died is not None)

    def _work(self, task: _Task, worker: Worker) -> str | None:
        """Let the worker run the attempt; returns what it complained of, if it did."""
        start = worker.log_path.stat().st_size
        task.files.claim(
            {
                "pid": worker.pid,
                "life_sign": str(worker.life_sign.path),
                "log": str(worker.log_path),
                "log_start": start,
            }
        )
        with task.mutex:
            if task.is_cancelled:
                return None
            task.worker, task.state = worker, AttemptState.RUNNING
        try:
            reply = worker.ask(
                {"op": "run", "id": uuid.uuid4().hex, "spec": str(task.files.spec_path)}
            )
        finally:
            # A full disk takes the log, and not what was done.
            with suppress(OSError), open(task.files.log_path, "wb", opener=private) as log:
                log.write(read_from(worker.log_path, start))
        if reply["op"] != "raised":
            return None
        return _with_hint(_complaint(reply["error"]), reply["error"].get("hint", ""))

    def _call(self, entrypoint: str, arguments: Mapping[str, Any]) -> Any:
        request = {"op": "call", "id": uuid.uuid4().hex, "entrypoint": entrypoint}
        try:
            with self._worker() as worker:
                reply = worker.ask({**request, "arguments": dict(arguments)})
        except WorkerDied as error:
            raise EngineError(f"{entrypoint}: {error}") from error
        if reply["op"] == "raised":
            said = reply["error"]
            raise EngineError(f"{entrypoint}: {_complaint(said)}", hint=said.get("hint", ""))
        return reply["value"]

    def _watch(self, handle: str, claim: Mapping[str, Any]) -> None:
        """Wait for the end of a worker that an earlier executor had started."""
        LifeSign(Path(claim["life_sign"])).wait()
        self._listener(handle)


def _bytes(memory: str) -> int:
    match = re.fullmatch(r"(\d+)([mg])b?", memory.strip().lower())
    amount = int(match[1]) << (30 if match[2] == "g" else 20) if match else 0
    if amount < _LEAST_MEMORY:
        raise ValueError(f'`memory` must be a size of at least 1g, such as "4g", not {memory!r}')
    return amount


def _heap(limit: int) -> int:
    """Return the JVM's heap below a limit: it needs room for code, threads and buffers, too."""
    return limit - max(limit // 4, _LEAST_MEMORY // 2)


def _complaint(error: Mapping[str, Any]) -> str:
    return f"{error['class']}: {error['message']}"


def _with_hint(text: str, hint: str) -> str:
    return f"{text} ({hint})" if hint else text
