"""Runs each attempt as a separate process, which continues if the executor dies."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from lineage_backfill.engines.attempt import AttemptFiles, LifeSign, kill_group, signal_of
from lineage_backfill.engines.runtime import refuse_missing
from lineage_backfill.errors import EngineError, ServiceUnreachableError
from lineage_backfill.files import private
from lineage_backfill.ports import AttemptState, Engine, Outcome

_POLL = 5.0  # seconds between two requests to a cluster, at least
_LOOK = 0.2  # seconds between two checks of an attempt that another executor started
_TAIL = 20_000  # bytes of the log that are searched for the cause of a failure
#: Runs a command and records its exit code in a line, for an executor that did not start it.
_AND_KEEP_CODE = 'trap : HUP INT TERM; "$@"; code=$?; umask 077; echo $code > "$0"; exit $code'
_ERROR = re.compile(r"^(?!at )(?!.* INFO ).*(Error|Exception|error:)")


class ProcessEngine(Engine):
    """Starts the command of each attempt, with the project's folder as its working directory.

    A subclass gives the command and judges the outcome. The process has its own group, so that
    Ctrl-C in a terminal does not reach it, and a life sign, by which a later executor finds it.
    """

    def __init__(
        self, *, project: Path, state_dir: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.project = project
        self.environment = {**os.environ, **(env or {})}
        self._signs = state_dir / "processes"
        self._watched: dict[str, subprocess.Popen[bytes] | None] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._cancelled: set[str] = set()
        self._closing = threading.Event()
        self._listener: Callable[[str], None] = lambda _handle: None

    # For subclasses

    @abstractmethod
    def command(self, files: AttemptFiles) -> Sequence[str]:
        """Return program and arguments for an attempt."""

    @abstractmethod
    def judge(
        self, files: AttemptFiles, *, reported: Outcome | None, code: int | None
    ) -> Outcome | None:
        """Return the outcome of an attempt whose process has ended, None if unknown.

        `reported` is the outcome in its result file, if there is one; `code` the exit code of its
        process, None if an earlier executor started it. Raises ServiceUnreachableError if the
        outcome cannot be determined now.
        """

    def works_elsewhere(self, files: AttemptFiles) -> bool:
        """Whether an attempt continues without its process; raises ServiceUnreachableError."""
        return False

    def stop(self, files: AttemptFiles, pid: int | None) -> None:
        """Stop an attempt; `pid` is also its process group, None if the process has ended."""
        if pid is not None:
            kill_group(pid)

    # The port

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        """Start the command; raises EngineError if that fails."""
        files = AttemptFiles(spec_path)
        files.check_token(token)
        handle = self._found(files)
        if handle is not None:
            if self.poll(handle).state.is_final:
                self._listener(handle)
            return handle
        process = self._start(files, token)

        def wait() -> None:
            process.wait()
            _await_end(files)  # where only the shell around the command was killed

        self._watch(files, process, wait)
        return str(files.spec_path)

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of an attempt that has an outcome or is still running."""
        files = AttemptFiles(spec_path)
        found = self._found(files) if files.has_token(token) else None
        if found is None and not files.give_up() and files.has_token(token):
            return self._found(files)  # its executor is about to start it
        return found

    def left(self, spec_path: Path, token: str) -> Outcome | None:
        return AttemptFiles(spec_path).left(token)

    def _found(self, files: AttemptFiles) -> str | None:
        handle = str(files.spec_path)
        if handle in self._watched or handle in self._outcomes:
            return handle
        if files.life_sign():
            self._watch(files, None, partial(_await_end, files))
            return handle
        reported = files.outcome()  # checked last: it may have appeared meanwhile
        is_claimed = files.claimed_by() is not None
        if reported is None and not is_claimed and not self.is_shared:
            return None
        if reported is None and self.works_elsewhere(files):
            self._watch(files, None, lambda: None)
            return handle
        outcome = self.judge(files, reported=reported, code=files.exit_code())
        if outcome is None and not is_claimed:
            return None
        self._keep(handle, outcome or _LOST)
        return handle

    def poll(self, handle: str) -> Outcome:
        if handle in self._watched:
            return Outcome(state=AttemptState.RUNNING)
        if handle in self._outcomes:
            return self._outcomes[handle]
        files = AttemptFiles(Path(handle))
        if files.life_sign():
            return Outcome(state=AttemptState.RUNNING)
        return files.outcome() or _LOST

    def cancel(self, handle: str) -> None:
        files = AttemptFiles(Path(handle))
        process = self._watched.get(handle)
        works = process.poll() is None if process is not None else False
        works = works or files.life_sign() is not None
        pid = (files.claimed_by() or {}).get("pid") if works else None
        if pid is not None or handle in self._watched:
            self._cancelled.add(handle)
            self.stop(files, pid)

    def close(self) -> None:
        self._closing.set()

    # Inside

    def _start(self, files: AttemptFiles, token: str) -> subprocess.Popen[bytes]:
        command = list(self.command(files))
        refuse_missing(command[0], self.project, self.environment)
        sign = LifeSign(self._signs / f"{token}.alive")
        try:
            with sign.give() as held, open(files.log_path, "wb", opener=private) as log:
                files.claim({"life_sign": str(sign.path)})
                process = subprocess.Popen(
                    ["/bin/sh", "-c", _AND_KEEP_CODE, files.exit_code_path, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(held.fileno(),),
                    start_new_session=True,
                    cwd=self.project,
                    env=self.environment,
                )
        except OSError as error:
            raise EngineError(
                f"{command[0]} cannot be started: {error}",
                hint="Check the settings of this engine in the project file.",
            ) from error
        files.claim({"life_sign": str(sign.path), "pid": process.pid})
        return process

    def _watch(
        self,
        files: AttemptFiles,
        process: subprocess.Popen[bytes] | None,
        wait: Callable[[], object],
    ) -> None:
        handle = str(files.spec_path)

        def watch() -> None:
            try:
                wait()
                outcome = self._outcome(files, process)
            except Exception as error:  # noqa: BLE001 - the end must always be reported
                outcome = Outcome(state=AttemptState.FAILED, error=repr(error))
            if outcome is not None:
                files.forget_life()
                self._keep(handle, outcome)
                del self._watched[handle]
                self._listener(handle)

        self._watched[handle] = process
        threading.Thread(target=watch, name=f"watch {handle}", daemon=True).start()

    def _outcome(
        self, files: AttemptFiles, process: subprocess.Popen[bytes] | None
    ) -> Outcome | None:
        """Return the outcome of an attempt; None if the engine is closed before it is known."""
        code = files.exit_code() if process is None else process.returncode
        while True:
            began = time.monotonic()
            with suppress(ServiceUnreachableError):  # unknown for now, and checked again
                reported = files.outcome()
                if reported is not None or not self.works_elsewhere(files):
                    return self._judged(files, reported, code)
            if self._closing.wait(pause_after(time.monotonic() - began, least=_POLL)):
                return None

    def _judged(self, files: AttemptFiles, reported: Outcome | None, code: int | None) -> Outcome:
        outcome = self.judge(files, reported=reported, code=code) or _LOST
        is_stopped = str(files.spec_path) in self._cancelled
        if is_stopped and outcome.state is not AttemptState.SUCCEEDED:
            return Outcome(state=AttemptState.CANCELLED, error="stopped by the user")
        return outcome

    def _keep(self, handle: str, outcome: Outcome) -> None:
        if (
            outcome.result is None
        ):  # else `poll` reads the file, as thousands of results take much memory
            self._outcomes[handle] = outcome


_LOST = Outcome(
    state=AttemptState.LOST,
    error="the process ended after its executor and left no result",
    transient=True,
)


def _await_end(files: AttemptFiles) -> None:
    while files.life_sign():
        time.sleep(_LOOK)


def ended(files: AttemptFiles, code: int) -> Outcome:
    """Return the failure for an exit code; one by a signal counts as transient."""
    signal = signal_of(code)
    reported = f"ended by signal {signal}" if signal else f"ended with exit code {code}"
    why = cause(files.log(_TAIL))
    error = f"{reported}: {why}" if why else reported
    return Outcome(state=AttemptState.FAILED, error=error, transient=signal > 0)


def pause_after(took: float, *, least: float) -> float:
    """Return the seconds until the next request, so that slow ones keep no processor busy.

    >>> [pause_after(took, least=2) for took in (0.1, 3, 20)]
    [2, 15, 30]
    """
    return min(max(least, 5 * took), 30)


def cause(output: str) -> str:
    """Return the last error in the output of a program, or its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return ([line for line in lines if _ERROR.search(line)] or lines or [""])[-1]
