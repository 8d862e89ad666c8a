"""The files of a Parquet table by partition, listed without Spark where they are near.

A Parquet table has no log: nothing tells who wrote what, and old rows are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lineage_backfill.runspec.values import NULL_DIRECTORY
from spark_runtime.errors import TableError
from spark_runtime.tables.places import HadoopPlace, Place, walk
from spark_runtime.tables.state import Commit, Contents, TableState
from spark_runtime.tables.values import Pattern, Values, partition_columns

#: The time of change, in ns, of each file of one folder.
Files = Mapping[str, int]
#: The folders of each partition, relative to the table.
Listing = Mapping[Values, Mapping[str, Files]]

_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")


@dataclass(slots=True)
class ParquetFolder:
    """The files of one table; its version is the time, in ms, when the newest of them changed."""

    location: str
    root: Place
    columns: tuple[str, ...] = field(init=False, default=())
    listing: Listing = field(init=False, default_factory=dict)
    #: It keeps no old rows to compare.
    same: Callable[[int, Collection[Pattern]], bool] | None = field(init=False, default=None)

    @property
    def url(self) -> str:
        """The location as Spark takes it: Hadoop does not decode paths."""
        place = self.root
        return str(place) if isinstance(place, HadoopPlace) else f"file:{place.absolute()}"

    def latest_version(self) -> int | None:
        """List the files; return the version, None if there are none; raises TableError."""
        try:
            if (self.root / "_delta_log").exists():
                raise TableError(
                    f"{self.location} is a Delta table", hint='Declare it: format = "delta".'
                )
            found = sorted(walk(self.root))
        except OSError as error:  # not knowing what is there is not the same as nothing
            raise TableError(
                f"{self.location} cannot be read: {error}",
                hint="Grant read access to its folder; an object store also needs its file system "
                "among Spark's jars.",
            ) from error
        files = {tuple(path.split("/")): at for path, at in found if _is_visible(path)}
        self.columns = _names(next(iter(files), ()))
        listing: dict[Values, dict[str, dict[str, int]]] = {}
        for parts, at in files.items():
            if tuple(map(str.lower, _names(parts))) != tuple(map(str.lower, self.columns)):
                raise TableError(
                    f"{'/'.join(parts)} of {self.location} does not lie in a folder of "
                    f"{', '.join(self.columns) or 'the table itself'}",
                    hint="Correct `columns` in the project file, or move it out of the table.",
                )
            values = tuple(_value(part) for part in parts[:-1])
            listing.setdefault(values, {}).setdefault("/".join(parts[:-1]), {})[parts[-1]] = at
        self.listing = listing
        return max(files.values()) // 1_000_000 if files else None

    def state(self, version: int | None = None) -> TableState:
        """Return the table as it was last listed; without a version it is listed now."""
        if version is None:
            version = self.latest_version()
        columns = partition_columns(self.columns, {name.lower(): "string" for name in self.columns})
        return TableState(
            version=-1 if version is None else version,
            columns=columns,
            partitions={
                values: Contents({(path, None): None for path in folders})
                for values, folders in self.listing.items()
            },
        )

    def commits(self, after: int, until: int) -> Iterator[Commit]:
        """Raise TableError: nothing records who wrote what."""
        raise TableError(
            f"{self.location} is a Parquet table, which does not record its changes",
            hint="Name the partitions that changed, or make it a Delta table.",
        )

    def deepen(self) -> bool:
        """Return False: there are no commits."""
        return False

    def ever_written(self, state: TableState) -> set[Values]:
        """Return the partitions that have files."""
        return set(state.partitions)

    def known_since(self, until: int) -> datetime | None:
        """Return None: there are no commits."""
        return None

    def touched_at(self) -> dict[Values, datetime]:
        """Return when the newest file of each partition changed."""
        return {
            values: datetime.fromtimestamp(
                max(at for files in folders.values() for at in files.values()) / 1e9, UTC
            )
            for values, folders in self.listing.items()
        }


def _is_visible(path: str) -> bool:
    """Whether Spark sees a file: no part of its path is hidden."""
    return not any(
        part[0] == "." or (part[0] == "_" and "=" not in part) for part in path.split("/")
    )


def _names(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(_unescaped(part.partition("=")[0]) for part in parts[:-1])


def _value(folder: str) -> str | None:
    text = folder.partition("=")[2]
    return None if text == NULL_DIRECTORY else _unescaped(text)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
