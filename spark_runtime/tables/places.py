"""The place of a table's log: on this machine, or on a Hadoop file system of a session.

Only Spark knows how to access a store; each file is read through it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from lineage_backfill.project.locations import is_remote
from spark_runtime import classic
from spark_runtime.connect import is_connect
from spark_runtime.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stat:
    """Identifies a file version: inode number (or size) and time in ns."""

    st_ino: int
    st_mtime_ns: int


class HadoopPlace:
    """A path on a Hadoop file system of a session, given by its URL."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._url = url

    def __str__(self) -> str:
        return self._url

    @property
    def name(self) -> str:
        """Its last part."""
        return self._url.rpartition("/")[2]

    def __truediv__(self, name: str) -> HadoopPlace:
        return HadoopPlace(self._spark, f"{self._url.rstrip('/')}/{name}")

    def exists(self) -> bool:
        """Whether it exists; raises OSError."""
        return bool(self._ask(lambda system, path: system.exists(path)))

    def iterdir(self) -> list[HadoopPlace]:
        """Return the entries of a folder; raises OSError."""
        found = self._ask(lambda system, path: system.listStatus(path))
        return [self / one.getPath().getName() for one in found]

    def read_text(self, encoding: str) -> str:
        """Return the text of a file; raises OSError."""
        return classic.text_of(self._spark, self._url, encoding)

    def walk(self) -> list[tuple[str, int]]:
        """Return each file below it, by its path from here, with its time of change in ns."""

        def listed(system: Any, path: Any) -> list[tuple[str, int]]:
            root, files = str(system.makeQualified(path)), system.listFiles(path, True)
            found = []
            while files.hasNext():
                file = files.next()
                name = str(file.getPath()).removeprefix(root).lstrip("/")
                found.append((name, file.getModificationTime() * 1_000_000))
            return found

        return self._ask(listed)

    def remove(self) -> None:
        """Remove a folder with all that is in it; raises OSError."""
        self._ask(lambda system, path: system.delete(path, True))

    def stat(self) -> Stat:
        """Return the status of a file; raises OSError."""
        found = self._ask(lambda system, path: system.getFileStatus(path))
        return Stat(found.getLen(), found.getModificationTime() * 1_000_000)

    def _ask(self, question: Callable[[Any, Any], T]) -> T:
        return classic.on_file_system(self._spark, self._url, question)


#: A file or a folder; both raise OSError alike.
Place = Path | HadoopPlace


def mark(file: Place) -> tuple[int, int] | None:
    """Return the id of a file version, None if the file does not exist."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def walk(root: Place) -> list[tuple[str, int]]:
    """Return each file below a folder, with its time of change in ns; none if it does not exist.

    Raises OSError.
    """
    if isinstance(root, HadoopPlace):
        return root.walk() if root.exists() else []
    found = []
    for folder, _, names in os.walk(root, onerror=_raise):
        for name in names:
            path = Path(folder, name)
            found.append((path.relative_to(root).as_posix(), path.stat().st_mtime_ns))
    return found


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def remove(folder: Place) -> None:
    """Remove a folder with all that is in it; raises OSError."""
    if isinstance(folder, HadoopPlace):
        folder.remove()
    else:
        shutil.rmtree(folder)


def place(location: str, spark: SparkSession | None) -> Place:
    """Return the place of a location; raises TableError if it needs Spark and there is none.

    Any session will do: its settings give access to the store.
    """
    if spark is not None and is_remote(location) and is_connect(spark):
        raise TableError(
            f"{location} is not on a file system of this machine, and a session of Spark Connect "
            "does not give access to its log",
            hint="Mount the store and give the path under which it is mounted, or run the job with "
            "an engine whose `master` is a cluster.",
        )
    if spark is not None and is_remote(location):
        return HadoopPlace(spark, location)
    return local_path(location)


def local_path(location: str) -> Path:
    """Return the path of a location; raises TableError unless it is local."""
    if is_remote(location):
        raise TableError(
            f"{location} is not on a local or mounted file system",
            hint="Mount the store and give the path under which it is mounted; a Delta table there "
            "can be read within a Spark session.",
        )
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(location)
