"""Separates the output of a process by thread."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO


class ByThread:
    """A stream that writes to a file of the current thread, or to a shared stream."""

    def __init__(self, shared: TextIO) -> None:
        self._shared = shared
        self._own = threading.local()

    def write(self, text: str) -> int:
        """Write text; returns its length."""
        return self._stream.write(text)

    def flush(self) -> None:
        """Flush the stream of this thread."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)

    @property
    def _stream(self) -> TextIO:
        stream: TextIO = getattr(self._own, "file", self._shared)
        return stream

    @contextmanager
    def into(self, file: TextIO) -> Iterator[None]:
        """Write the output of this thread to a file in this block."""
        self._own.file = file
        try:
            yield
        finally:
            del self._own.file


@contextmanager
def by_thread() -> Iterator[None]:
    """Enable `own_log` in this process in this block."""
    with redirect_stdout(ByThread(sys.stdout)), redirect_stderr(ByThread(sys.stderr)):
        yield


@contextmanager
def own_log(path: Path) -> Iterator[None]:
    """Write the output of this thread to a file that only its owner may read.

    Threads that it starts, other processes and the JVM still use the process's own streams.
    """
    out, err = sys.stdout, sys.stderr
    assert isinstance(out, ByThread), "within by_thread"
    assert isinstance(err, ByThread), "within by_thread"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", buffering=1) as log, out.into(log), err.into(log):
        yield
