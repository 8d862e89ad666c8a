"""Files that are written whole or not at all, and files for their owner only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, replace: bool = True, is_private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that comes to stand at the path once all of it is written, else nothing does.

    With `is_private`, only its owner may read it. A link stays and what it names is replaced;
    a device or a pipe is written to as it is. Raises OSError, FileExistsError where a file must not
    be replaced.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            yield stream
        return
    place = path.resolve()
    unfinished = place.with_name(f".{place.name}.{os.getpid()}.tmp")
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


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it, for their owner only; one that is there stays as it is."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file, which only its owner may read where it is a new one: an `opener` of `open`."""
    return os.open(path, flags, 0o600)
