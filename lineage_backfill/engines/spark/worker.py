"""One warm worker process: starts it, sends requests, ends it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import LifeSign, kill_group, read_from, signal_of
from lineage_backfill.errors import EnvironmentMissingError
from lineage_backfill.files import private, private_folder

_LOG_TAIL = 2_000  # bytes
_STOP = 5.0  # seconds for it to end once asked


class WorkerDied(Exception):
    """The worker ended during its work; the message says how."""


class Worker:
    """A process that answers requests, one at a time, over its standard input and a reply pipe.

    `--reply-fd` and `--project` are added to its command. It only does attempts with its own `key`.

    It has a process group of its own, so that Ctrl-C in a terminal reaches only the executor, and
    a life sign, so that a later executor can tell whether it still works.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        key: str,
        project: Path,
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        private_folder(folder)
        self.key = key
        self.application: str | None = None  # its name on the cluster, once it is ready
        self.began = self.idle_since = time.monotonic()
        self.failure: str | None = None  # the class of the error of its last run, if that failed
        self.is_worn = False
        name = uuid.uuid4().hex[:12]
        self.log_path = folder / f"{name}.log"
        self.life_sign = LifeSign(folder / f"{name}.alive")
        self._reply_end, write_end = socket.socketpair()
        try:
            with self.life_sign.give() as sign, open(self.log_path, "ab", opener=private) as log:
                self._process = subprocess.Popen(
                    [*command, "--reply-fd", str(write_end.fileno()), "--project", str(project)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(write_end.fileno(), sign.fileno()),
                    start_new_session=True,
                    cwd=project,
                    env={**os.environ, **environment},
                )
        except OSError as error:
            self._reply_end.close()
            raise EnvironmentMissingError(
                f"the worker {command[0]} cannot be started: {error}",
                hint="Check that the `python` of this engine exists.",
            ) from error
        finally:
            write_end.close()
        self._replies = self._reply_end.makefile(encoding="utf-8")
        self._is_ending = self._is_left = False

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, or announced that it will."""
        return self._is_ending or self._process.poll() is not None

    def wait_until_ready(self) -> None:
        """Wait until it takes requests; raises EnvironmentMissingError with the cause."""
        try:
            reply = self._reply()
        except WorkerDied as error:
            raise EnvironmentMissingError(
                f"the Spark worker did not start: {error}",
                hint="Run `lineage-backfill doctor`: it says what is missing.",
            ) from error
        if reply.get("op") != "ready":
            described = reply.get("error") or {}
            raise EnvironmentMissingError(
                str(described.get("message") or reply),
                hint=str(described.get("hint") or "Run `lineage-backfill doctor`."),
            )
        self.application = reply.get("application")

    def claim(self) -> dict[str, Any]:
        """Return what tells another process which worker has an attempt."""
        found = {"pid": self.pid, "life_sign": str(self.life_sign.path)}
        return found if self.application is None else {**found, "application": self.application}

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and wait for its reply; raises WorkerDied."""
        line = json.dumps(request) + "\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError:
            pass  # the worker is dead; the reply pipe reports that after its last replies
        reply = self._reply()
        self._is_ending = bool(reply.get("ends"))
        return reply

    def stop(self) -> None:
        """Ask it to end, so that it can send its lineage; kill what is left some seconds later.

        Does not wait. Children may outlive it until the waiting process closes it.
        """

        def kill() -> None:
            if self._process.poll() is None:
                self.kill()

        self._process.send_signal(signal.SIGTERM)
        timer = threading.Timer(_STOP, kill)
        timer.daemon = True
        timer.start()

    def kill(self) -> None:
        """End it at once, with all its children."""
        kill_group(self.pid)

    def let_go(self) -> None:
        """Stop waiting for it: it ends by itself once its current work is done."""
        self._is_left = True
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._reply_end.shutdown(socket.SHUT_RD)
        threading.Thread(target=self._end, daemon=True).start()

    def close(self, timeout: float = 5.0) -> None:
        """Ask it to end, and kill it if that takes more than `timeout` seconds."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        self.kill()  # whatever is left of the group
        self._end()

    def _end(self) -> None:
        self._process.wait()
        self._replies.close()
        self._reply_end.close()
        self.life_sign.path.unlink(missing_ok=True)

    def _reply(self) -> Mapping[str, Any]:
        line = self._replies.readline()
        if not line.endswith("\n"):
            raise WorkerDied(self._how_it_ended())
        reply: Mapping[str, Any] = json.loads(line)
        return reply

    def _how_it_ended(self) -> str:
        if self._is_left:
            return "the worker continues without this engine"
        code = self._process.wait()
        signal_ = signal_of(code)
        how = f"by signal {signal_}" if signal_ else f"with exit code {code}"
        begin = max(0, self.log_path.stat().st_size - _LOG_TAIL)
        tail = b"".join(read_from(self.log_path, begin)).decode(errors="replace").strip()
        return f"the worker process ended {how}" + (f"\n{tail}" if tail else "")
