"""Locks on tables: processes and threads of this library that write to one table take turns."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_runtime.places import Place

#: Beside the data, where neither readers nor VACUUM look.
LOCK_FILE = ".lineage-backfill.lock"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that every process and thread of this library waits for; raises OSError."""
    with path.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def exclusively(root: Place) -> Iterator[None]:
    """Let no other process of this library commit to the table meanwhile.

    On a local disk two processes may otherwise rename their commits onto the same version, and
    the first one's is lost. Where files cannot be locked, commits are the store's own business.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(root, Path):
            with contextlib.suppress(OSError):
                stack.enter_context(locked(root / LOCK_FILE))
        yield
