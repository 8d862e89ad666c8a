"""Locks on tables, for processes and threads of this library that write to the same one."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from spark_runtime.errors import TableLockedError
from spark_runtime.tables.places import Place

#: The lock's folder in the table, which readers and VACUUM ignore.
LOCK_FILE = ".lineage-backfill.lock"
#: How long to wait for a lock, in seconds: longer than most writes take.
LIMIT = 3600.0
TIMEOUT_SETTING = "spark.lineageBackfill.lockTimeout"
#: How long to wait silently, in seconds; then a warning with the holder, repeated.
QUIET = 30.0
_PAUSE = 0.02

_log = logging.getLogger(__name__)


@contextmanager
def locked(path: Path, *, limit: float = LIMIT) -> Iterator[None]:
    """Hold a lock that excludes all other processes and threads of this library.

    Raises OSError if files cannot be locked, and TableLockedError with the holder after `limit`
    seconds.
    """
    with path.open("a+", encoding="utf-8") as lock:
        _acquire(lock, path, limit)
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        _note(lock, f"process {os.getpid()} on {socket.gethostname()} since {now}")
        try:
            yield
        finally:
            _note(lock, "")


@contextmanager
def exclusively(root: Place, *, limit: float = LIMIT) -> Iterator[None]:
    """Prevent commits to the table by other processes of this library.

    Otherwise two processes on a local disk may rename their commits to the same version, and lose
    the first one. If files cannot be locked, the store itself handles concurrent commits. Raises
    TableLockedError after `limit` seconds.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(root, Path):
            with contextlib.suppress(OSError):
                stack.enter_context(locked(root / LOCK_FILE, limit=limit))
        yield


def _acquire(lock: TextIO, path: Path, limit: float) -> None:
    start = time.monotonic()
    told = start
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            if now - start >= limit:
                raise TableLockedError(
                    f"{path.parent} is locked by {_holder(path)}; waited {limit:g} s",
                    hint="Let that process finish, or end it, then retry the run; "
                    f"{TIMEOUT_SETTING} sets how many seconds to wait.",
                ) from None
            if now - told >= QUIET:
                told = now
                _log.warning("waiting for the lock of %s: %s holds it", path.parent, _holder(path))
            time.sleep(_PAUSE)
        else:
            return


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8").strip() or "another process"
    return "another process"


def _note(lock: TextIO, holder: str) -> None:
    # The lock is held even if the disk has no space for the holder's name.
    with contextlib.suppress(OSError):
        lock.seek(0)
        lock.truncate()
        lock.write(holder)
        lock.flush()
