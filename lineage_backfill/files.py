"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Open a file that comes to stand at the path once all of it is written, else nothing does.

    A link stays and what it names is replaced; what is no file, such as a device or a pipe, is
    written to as it is. Raises OSError, FileExistsError where a file is not to be replaced.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            yield stream
        return
    place = path.resolve()
    unfinished = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as stream:
            yield stream
        if replace:
            unfinished.replace(place)
        else:
            place.hardlink_to(unfinished)  # at once, and only where nothing is
    finally:
        with suppress(OSError):  # what stopped it above is what is told
            unfinished.unlink()
