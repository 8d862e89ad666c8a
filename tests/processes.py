"""Processes that start at once, forked from one that has imported whatever they will need."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from lineage_backfill.cli.main import main


@cache
def server() -> Any:
    """The context of processes that are forked from one with all modules of the tool."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    return context


class Command:
    """The command line in a process of its own; offers what tests use of `subprocess.Popen`.

    Streams are pipes and stdin is empty, unless descriptors are given. Modules are there already:
    what a cold start imports and how its hashes fall is for a real `subprocess`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        ours: list[IO[str] | None] = []
        theirs = [_duplicate(os.devnull if stdin is None else stdin)]
        for given in (stdout, stderr):
            if given is None:
                reading, writing = os.pipe()
                ours.append(open(reading, encoding="utf-8"))  # noqa: PTH123, SIM115
                theirs.append(Connection(writing))
            else:
                ours.append(None)
                theirs.append(_duplicate(given))
        self.stdout, self.stderr = ours
        self._process = server().Process(
            target=_run, args=(tuple(arguments), str(cwd), dict(env), theirs), daemon=True
        )
        self._process.start()
        for stream in theirs:
            stream.close()

    @property
    def pid(self) -> int:
        """Its number."""
        return int(self._process.pid)

    @property
    def returncode(self) -> int | None:
        """What it ended with, once it has; negative for a signal."""
        code: int | None = self._process.exitcode
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns what it ended with."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("lineage-backfill", timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; returns what it has said that nobody has read yet."""
        said: dict[int, str] = {}

        def read(number: int, stream: IO[str]) -> None:
            with stream:
                said[number] = stream.read()

        streams = enumerate((self.stdout, self.stderr))
        readers = [
            threading.Thread(target=read, args=(number, stream), daemon=True)
            for number, stream in streams
            if stream is not None and not stream.closed
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return said.get(0, ""), said.get(1, "")


def _duplicate(stream: int | str) -> Connection:
    return Connection(os.dup(stream) if isinstance(stream, int) else os.open(stream, os.O_RDWR))


def _run(
    arguments: tuple[str, ...], folder: str, environment: dict[str, str], streams: list[Connection]
) -> None:
    """Become the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["lineage-backfill", *arguments]
    try:
        code = main(arguments)
    except Exception:  # noqa: BLE001 (the interpreter does the same at the end of a program)
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.exit(code)
