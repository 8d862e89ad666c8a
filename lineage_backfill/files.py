"""Files that are written whole or not at all, and files for their owner only."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lineage_backfill.errors import BackfillError, UsageError

#: The files that this process has open: a pipe there has its writer, as `<(…)` of a shell.
_OWN = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
#: A path is not to blame for these.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def open_file(path: Path, buffering: int = -1) -> BinaryIO:
    """Open a file to read it.

    Raises OSError, also for a named pipe, a socket or a device: reading one may never end.
    """
    refuse_endless(path)
    return path.open("rb", buffering)


def read_file(path: Path) -> bytes:
    """Return the content of a file, as `open_file` opens it."""
    with open_file(path) as file:
        return file.read()


def reason(error: Exception) -> str:
    """Return an error as text; one of the system without its number and its path."""
    return getattr(error, "strerror", None) or str(error)


def not_written(path: Path, error: OSError) -> BackfillError:
    """Return the error for a file that cannot be written: wrong usage, unless the disk is full."""
    message = f"{path} cannot be written: {reason(error)}"
    if error.errno in _NO_ROOM:
        return BackfillError(message, hint="Free disk space, or name another file with --out.")
    return UsageError(message, hint="Name another file with --out.")


def refuse_endless(path: Path) -> None:
    """Raise OSError for what is neither a file nor a folder, or is not there."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or str(path).startswith(_OWN)):
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device", str(path))


@contextmanager
def whole_file(path: Path, *, replace: bool = True, is_private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that comes to stand at the path once all of it is written, else nothing does.

    With `is_private`, only its owner may read it. A link stays and what it names is replaced;
    a device or a pipe is written to as it is. Raises OSError, also for a pipe that no process
    reads, and FileExistsError where a file must not be replaced.
    """
    if not path.is_file() and _is_there(path):
        with open(path, "wb", opener=_read_by_others) as stream:
            yield stream
        return
    place = path.resolve()
    unfinished = place.with_name(f".{place.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    try:
        with open(unfinished, "wb", opener=private if is_private else None) as stream:
            yield stream
        if replace:
            unfinished.replace(place)
        else:
            place.hardlink_to(unfinished)  # at once, and only where nothing is
    finally:
        with suppress(OSError):  # the error above is the one to report
            unfinished.unlink()


def _is_there(path: Path) -> bool:
    """Whether a path names something; raises OSError for a link that leads back to itself."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _read_by_others(path: str, flags: int) -> int:
    """Open a pipe or a device, without waiting for a process that reads it."""
    try:
        handle = os.open(path, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "no process reads from it", path) from error
        raise
    os.set_blocking(handle, True)
    return handle


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it, for their owner only; one that is there stays as it is."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file, which only its owner may read where it is a new one: an `opener` of `open`."""
    return os.open(path, flags, 0o600)
