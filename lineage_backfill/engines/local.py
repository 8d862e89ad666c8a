"""Runs jobs on this machine, in Spark worker processes that stay warm."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import AttemptFolder, LifeSign, kill_group
from lineage_backfill.engines.worker import SPARK_WORKER, Worker, WorkerDied
from lineage_backfill.errors import BackfillError, EngineError
from lineage_backfill.ports import AttemptState, Outcome


@dataclass
class _Task:
    """An attempt that this engine was given."""

    folder: AttemptFolder
    state: AttemptState = AttemptState.QUEUED
    outcome: Outcome | None = None
    worker: Worker | None = None
    log_start: int = 0
    is_cancelled: bool = False
    mutex: threading.Lock = field(default_factory=threading.Lock)


class LocalEngine:
    """Up to `slots` warm workers, started when first needed.

    A worker that dies is a failed attempt; the next one gets a new worker. The result file is the
    truth: what it says counts, whatever became of the worker. `env` is added to the environment of
    the workers, `python` runs them, `conf` holds Spark settings.
    """

    can_undo = True

    def __init__(
        self,
        *,
        project: Path,
        state_dir: Path,
        slots: int = 1,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        conf: Mapping[str, object] | None = None,
        command: tuple[str, ...] | None = None,
    ) -> None:
        if slots < 1:
            raise ValueError(f"`slots` must be at least 1, not {slots}")
        worker = tuple(command) if command else (python or SPARK_WORKER[0], *SPARK_WORKER[1:])
        settings = ((name, _conf_text(value)) for name, value in (conf or {}).items())
        self._command = (*worker, *(f"--conf={name}={value}" for name, value in settings))
        self._project = project
        self._folder = state_dir / "workers"
        self._environment = dict(env or {})
        # A pool prefers an idle thread to a new one, and each thread keeps one worker: a cold
        # worker is started only while all warm ones work.
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="spark-worker")
        self._own = threading.local()
        self._mutex = threading.Lock()
        self._workers: list[Worker] = []
        self._tasks: dict[str, _Task] = {}
        self._adopted: dict[str, Mapping[str, Any]] = {}
        self._listener: Callable[[str], None] = lambda _handle: None
        self._is_closed = False

    def open(self) -> None:
        """Start the first worker, if there is none; raises EnvironmentMissingError."""
        if not self._workers:
            self._threads.submit(self._worker).result()

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener(handle)` whenever an attempt has ended."""
        self._listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        """Queue the attempt for the next worker that is free; `token` must be that of the spec."""
        handle = str(spec_path.parent)
        folder = AttemptFolder(spec_path.parent)
        if folder.spec()["token"] != token:
            raise EngineError(f"the run spec {spec_path} bears another token than {token}")
        with self._mutex:
            if handle in self._tasks or handle in self._adopted:
                return handle
            if folder.outcome() is not None:
                self._listener(handle)
                return handle
            self._tasks[handle] = task = _Task(folder)
        self._threads.submit(self._run, handle, task)
        return handle

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of an attempt that is known, has a result or is still worked on."""
        handle = str(spec_path.parent)
        folder = AttemptFolder(spec_path.parent)
        if handle in self._tasks:
            return handle
        if not spec_path.exists() or folder.spec()["token"] != token:
            return None
        claim = folder.claimed_by()
        works = claim is not None and LifeSign(Path(claim["life_sign"])).is_alive()
        if folder.outcome() is not None:  # looked for last: it may have come just now
            return handle
        if claim is None or not works:
            return None
        self._adopted[handle] = claim
        threading.Thread(target=self._watch, args=(handle, claim), daemon=True).start()
        return handle

    def poll(self, handle: str) -> Outcome:
        """Return what is known of the attempt now."""
        task = self._tasks.get(handle)
        if task is not None:
            return task.outcome or Outcome(state=task.state)
        outcome = AttemptFolder(Path(handle)).outcome()
        if outcome is not None:
            return outcome
        claim = self._adopted.get(handle)
        if claim is not None and LifeSign(Path(claim["life_sign"])).is_alive():
            return Outcome(state=AttemptState.RUNNING)
        gone = "the worker ended with its executor and left no result"
        return Outcome(state=AttemptState.LOST, error=gone, transient=True)

    def cancel(self, handle: str) -> None:
        """Stop the attempt, by killing its worker where it is running."""
        task = self._tasks.get(handle)
        if task is None:
            claim = self._adopted.get(handle)
            if claim is not None and LifeSign(Path(claim["life_sign"])).is_alive():
                kill_group(claim["pid"])
            return
        with task.mutex:
            task.is_cancelled = True
            if task.worker is not None and task.outcome is None:
                task.worker.kill()

    def logs(self, handle: str) -> str:
        """Return what the attempt has printed so far."""
        folder = AttemptFolder(Path(handle))
        if folder.log_path.exists():
            return folder.log_path.read_text(encoding="utf-8", errors="replace")
        claim = folder.claimed_by()
        if claim is None:
            return ""
        return _read_from(Path(claim["log"]), claim["log_start"]).decode(errors="replace")

    def call(self, entrypoint: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run `function(spark, **arguments)` of `module:function` in a worker, return its value.

        Raises EngineError with what the function raised.
        """
        return self._threads.submit(self._call, entrypoint, arguments or {}).result()

    def close(self) -> None:
        """End the workers; attempts that still run are stopped."""
        self._is_closed = True
        with self._mutex:
            workers, self._workers = self._workers, []
        for worker in workers:
            if worker.is_busy:
                worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in workers:
            worker.close()

    # In the threads of the pool

    def _worker(self) -> Worker:
        """Return the worker of this thread, started if need be."""
        worker: Worker | None = getattr(self._own, "worker", None)
        if worker is not None and worker.has_ended:
            self._drop(worker)
            worker = None
        if worker is None:
            worker = Worker(
                self._command,
                project=self._project,
                folder=self._folder,
                environment=self._environment,
            )
            with self._mutex:
                self._workers.append(worker)
            try:
                if self._is_closed:  # too late for `close` to have seen this one
                    worker.kill()
                worker.wait_until_ready()
            except BaseException:
                self._drop(worker)
                raise
            self._own.worker = worker
        return worker

    def _drop(self, worker: Worker) -> None:
        self._own.worker = None
        with self._mutex:
            if worker not in self._workers:
                return  # `close` ends it
            self._workers.remove(worker)
        worker.close(patience=0)

    def _run(self, handle: str, task: _Task) -> None:
        try:
            task.outcome = self._outcome(task)
        except Exception as error:  # noqa: BLE001 - else nobody would hear of the end
            task.outcome = Outcome(state=AttemptState.FAILED, error=repr(error))
        if task.outcome.result is not None:
            del self._tasks[handle]  # `poll` reads the file; thousands of results are a lot to hold
        self._listener(handle)

    def _outcome(self, task: _Task) -> Outcome:
        """Run the attempt; what the result file says counts before all else."""
        died = said = None
        if not (task.is_cancelled or self._is_closed):
            try:
                said = self._work(task, self._worker())
            except WorkerDied as error:
                died = str(error)
            except BackfillError as error:
                said = _with_hint(error.message, error.hint)
                return Outcome(state=AttemptState.FAILED, error=said, transient=True)
        outcome = task.folder.outcome()
        if outcome is not None:
            return outcome
        if task.is_cancelled or self._is_closed:
            return Outcome(state=AttemptState.CANCELLED, error="stopped by the user")
        message = died or said or "the worker finished the attempt and left no result file"
        return Outcome(state=AttemptState.FAILED, error=message, transient=died is not None)

    def _work(self, task: _Task, worker: Worker) -> str | None:
        """Let the worker run the attempt; returns what it complained of, if it did."""
        start = worker.log_path.stat().st_size
        task.folder.claim(
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
                {"op": "run", "id": uuid.uuid4().hex, "spec": str(task.folder.spec_path)}
            )
            if reply["op"] != "raised":
                return None
            return _with_hint(_complaint(reply["error"]), reply["error"].get("hint", ""))
        except WorkerDied:
            self._drop(worker)
            raise
        finally:
            task.folder.log_path.write_bytes(_read_from(worker.log_path, start))

    def _call(self, entrypoint: str, arguments: Mapping[str, Any]) -> Any:
        worker = self._worker()
        request = {"op": "call", "id": uuid.uuid4().hex, "entrypoint": entrypoint}
        try:
            reply = worker.ask({**request, "arguments": dict(arguments)})
        except WorkerDied as error:
            self._drop(worker)
            raise EngineError(f"{entrypoint}: {error}") from error
        if reply["op"] == "raised":
            said = reply["error"]
            raise EngineError(f"{entrypoint}: {_complaint(said)}", hint=said.get("hint", ""))
        return reply["value"]

    def _watch(self, handle: str, claim: Mapping[str, Any]) -> None:
        """Wait for the end of a worker that an earlier executor had started."""
        LifeSign(Path(claim["life_sign"])).wait()
        self._listener(handle)


def _conf_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _complaint(error: Mapping[str, Any]) -> str:
    return f"{error['class']}: {error['message']}"


def _with_hint(text: str, hint: str) -> str:
    return f"{text} ({hint})" if hint else text


def _read_from(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read()
