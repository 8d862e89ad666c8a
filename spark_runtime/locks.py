"""Locks on tables: processes and threads of this library that write to one table take turns."""

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
from spark_runtime.places import Place

#: Beside the data, where neither readers nor VACUUM look.
LOCK_FILE = ".lineage-backfill.lock"
#: How long a lock is waited for, in seconds: longer than most writes take.
LIMIT = 3600.0
TIMEOUT_SETTING = "spark.lineageBackfill.lockTimeout"
#: How long is waited silently, in seconds; afterwards a warning names the holder as often again.
QUIET = 30.0
_PAUSE = 0.02

_log = logging.getLogger(__name__)


@contextmanager
def locked(path: Path, *, limit: float = LIMIT) -> Iterator[None]:
    """Hold a lock that every process and thread of this library waits for.

    Raises OSError where files cannot be locked, and TableLockedError, which names the holder,
    after `limit` seconds.
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
    """Let no other process of this library commit to the table meanwhile.

    On a local disk two processes may otherwise rename their commits onto the same version, and
    the first one's is lost. Where files cannot be locked, commits are the store's own business.
    Raises TableLockedError after `limit` seconds.
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
    # A disk without space for the name is no reason to go without the lock.
    with contextlib.suppress(OSError):
        lock.seek(0)
        lock.truncate()
        lock.write(holder)
        lock.flush()
