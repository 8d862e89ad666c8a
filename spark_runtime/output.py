"""What a process prints, kept apart by the threads that print it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO


class ByThread:
    """A stream whose text goes to a file of the thread that writes it, or to a shared stream."""

    def __init__(self, shared: TextIO) -> None:
        self._shared = shared
        self._own = threading.local()

    def write(self, text: str) -> int:
        """Write text; returns its length."""
        return self._stream.write(text)

    def flush(self) -> None:
        """Flush what this thread writes to."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)

    @property
    def _stream(self) -> TextIO:
        stream: TextIO = getattr(self._own, "file", self._shared)
        return stream

    @contextmanager
    def into(self, file: TextIO) -> Iterator[None]:
        """Let what this thread writes go into a file meanwhile."""
        self._own.file = file
        try:
            yield
        finally:
            del self._own.file


@contextmanager
def by_thread() -> Iterator[None]:
    """Let `own_log` work in this process meanwhile."""
    with redirect_stdout(ByThread(sys.stdout)), redirect_stderr(ByThread(sys.stderr)):
        yield


@contextmanager
def own_log(path: Path) -> Iterator[None]:
    """Let what this thread prints go into a file, which only its owner may read.

    Threads that it starts, other processes and the JVM still print to the process's own streams.
    """
    out, err = sys.stdout, sys.stderr
    assert isinstance(out, ByThread), "within by_thread"
    assert isinstance(err, ByThread), "within by_thread"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", buffering=1) as log, out.into(log), err.into(log):
        yield
