"""Event files in object stores, and anywhere else that fsspec reads: copied, then read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO, cast

import fsspec
from fsspec.core import has_magic

from lineage_backfill.errors import EnvironmentMissingError, LineageError, ServiceUnreachableError
from lineage_backfill.sources.event_file import EventFile


def files_at(url: str) -> list[EventFile]:
    """Return the files at a URL, sorted: a single file, or those of a glob or a folder.

    Raises ServiceUnreachableError, LineageError, or EnvironmentMissingError for a missing package.
    """
    with _explained(url):
        store, path = fsspec.core.url_to_fs(url)
        store.invalidate_cache()  # a long-running web server must list the current files
        if has_magic(path):
            found = store.glob(path, detail=True)
        elif store.isfile(path):
            found = {path: store.info(path)}
        else:
            found = store.find(path, detail=True)
    return [
        EventFile(
            name=store.unstrip_protocol(name),
            size=int(info.get("size") or 0),
            open=partial(_copied, store, name, info.get("size")),
            is_named=name == path,
        )
        for name, info in sorted(found.items())
        if info.get("type") == "file"
    ]


def _copied(store: Any, name: str, size: int | None) -> BinaryIO:
    """Return a complete copy of a file, which is deleted once it is closed."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the reader
    url = store.unstrip_protocol(name)
    try:
        with _explained(url), store.open(name, "rb") as remote:
            shutil.copyfileobj(remote, copy)
        if size is not None and copy.tell() != size:
            raise LineageError(
                f"{url}: {copy.tell():,} bytes arrived of the {size:,} that are listed",
                hint="Read again once nothing writes to it.",
            )
    except BaseException:
        copy.close()
        raise
    copy.flush()
    os.utime(copy.fileno(), (0, 0))  # no process is writing to it
    copy.seek(0)
    return cast(BinaryIO, copy)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Turn the various errors of fsspec's file systems into our own."""
    try:
        yield
    except ImportError as error:
        raise EnvironmentMissingError(
            f"{url}: {error}", hint="Install the package that it names: pip install NAME"
        ) from error
    except FileNotFoundError as error:
        raise LineageError(f"{url}: not found", hint="Check the address.") from error
    except Exception as error:  # each file system has its own errors
        raise ServiceUnreachableError(
            f"{url}: cannot be read: {error}",
            hint="Check the address and the credentials of this machine for that store.",
        ) from error
