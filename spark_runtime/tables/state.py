"""The contents of a table at one version, and its commits, in any format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from spark_runtime.errors import TableError
from spark_runtime.tables.by_value import ByValue, ValueColumn, overlap
from spark_runtime.tables.values import PartitionColumn, Pattern, Values, is_exact

P = TypeVar("P")

_UNDO = "undo:"
#: Schema metadata of identity columns, and of those that also accept explicit values.
IDENTITY = "delta.identity.start"
_EXPLICIT = "delta.identity.allowExplicitInsert"

#: A data file: its path and the id of its deletion vector, if it has one.
File = tuple[str, str | None]


def total(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one of them is unknown."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of one partition: its files with their row counts (None: unknown).

    `files` is None if the log does not reach back far enough.
    """

    files: Mapping[File, int | None] | None = field(default_factory=dict)
    #: The fingerprint of the rows, from the commit that wrote all of them.
    fingerprint: str | None = None

    @property
    def rows(self) -> int | None:
        """The number of rows; None if unknown."""
        return None if self.files is None else total(self.files.values())

    def counted(self, rows: int) -> Contents:
        """Return it with the counted number of rows."""
        files = dict.fromkeys(self.files or {("", None): None}, 0)
        return Contents({**files, next(iter(files)): rows}, self.fingerprint)


#: The fingerprint of no rows, for any columns.
EMPTY_FINGERPRINT = "empty"
NOTHING = Contents(fingerprint=EMPTY_FINGERPRINT)
UNKNOWN = Contents(files=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table at one version."""

    version: int = -1
    #: The id of the table: a recreated table has another one.
    table_id: str | None = None
    #: What distinguishes its last commit from another one of that version, if known.
    commit_id: str | None = None
    complete: bool = True
    #: The oldest commit that was read; the metadata of older ones is unknown.
    first_read: int = 0
    columns: tuple[PartitionColumn, ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict)
    clustered: bool = False
    partitions: Mapping[Values, Contents] = field(default_factory=dict)
    #: The column by whose value its keys are known instead of `columns` that partition it: then
    #: `partitions` are the spans of its files, each with the physical partition.
    by: ByValue | None = None
    #: By value: the keys that commits of ours recorded, and that did not change since.
    keys: Mapping[Values, Contents] = field(default_factory=dict)
    #: The run of each job that appended to a partition, unless one of ours replaced it since.
    appended: Mapping[tuple[Values, str], tuple[str, str]] = field(default_factory=dict)
    #: The columns that partition it.
    partitioned_by: tuple[str, ...] = ()
    #: Partitions without data that a commit wrote to, or emptied.
    emptied: frozenset[Values] = frozenset()
    transactions: Mapping[str, int] = field(default_factory=dict)
    #: The version committed by the attempt with this token.
    tokens: Mapping[str, int] = field(default_factory=dict)

    @property
    def numbered(self) -> str | None:
        """The first identity column without explicit values."""
        fields = self.schema.get("fields", ())
        return next((str(f["name"]) for f in fields if is_numbered(f.get("metadata") or {})), None)

    def contents(self, values: Pattern) -> Contents:
        """Return the contents of a partition."""
        if not is_exact(values):
            return NOTHING  # unpartitioned contents
        if self.by is not None:
            held = self.keys.get(values)
            return held or (UNKNOWN if self.files(values) != {} else NOTHING)
        return self.partitions.get(values, NOTHING if self.complete else UNKNOWN)

    def files(self, values: Values) -> Mapping[File, int | None] | None:
        """Return the files that may hold rows of a partition; None if unknown."""
        if self.by is None:
            return self.contents(values).files
        if not self.complete:
            return None
        near = (held for span, held in self.partitions.items() if overlap(span, values))
        return {file: rows for held in near for file, rows in (held.files or {}).items()}

    def every_file(self) -> set[File]:
        """Return all known files."""
        return {file for held in self.partitions.values() for file in held.files or ()}

    def counted(self, rows: Mapping[Values, int]) -> TableState:
        """Return it with these numbers of rows in partitions for which the log has none."""
        found = {values: self.contents(values).counted(count) for values, count in rows.items()}
        if self.by is not None:
            return replace(self, keys={**self.keys, **found})
        return replace(self, partitions={**self.partitions, **found})

    @property
    def identity(self) -> Mapping[str, Any]:
        """What commits of ours record besides, so that their keys can be read again."""
        named = (column.identity for column in self.columns if isinstance(column, ValueColumn))
        return {"by": found} if (found := next(named, None)) else {}

    def listed(self) -> Iterable[Values]:
        """Return the partitions with data; raises TableError if not all are known."""
        if not self.complete:
            raise TableError(
                f"the log does not reach back far enough to list the partitions of version "
                f"{self.version}",
                hint="Only Spark can read its checkpoint.",
            )
        return self.partitions


@dataclass(frozen=True, slots=True)
class Since:
    """A table when a run first saw it: its version (-1: there was none), and its ids, if known."""

    version: int = -1
    table_id: str | None = None
    commit_id: str | None = None

    @classmethod
    def of(cls, state: TableState | None) -> Since:
        """Return it for a table, None if there is none yet."""
        if state is None:
            return cls()
        return cls(state.version, state.table_id, state.commit_id)

    def problem(self, state: TableState) -> str | None:
        """Return why the current table is another one, None if it is the same."""
        if self.table_id is not None and state.table_id != self.table_id:
            return "was dropped and created again"
        if state.version < self.version:
            return f"is at version {state.version}, and was at {self.version}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit."""

    version: int
    #: The partitions whose rows it changed (an OPTIMIZE changes none).
    touched: frozenset[Values]
    operation: str
    metadata: Mapping[str, Any]
    """Ours; empty for a commit of another writer."""
    #: What it recorded of each partition, if it is ours: rows and fingerprint (None: unknown).
    recorded: Mapping[Values, tuple[int | None, str | None]] = field(default_factory=dict)
    #: Whether it changed the partition columns; then `touched` is meaningless.
    repartitioned: bool = False
    #: Whether it only added rows.
    adds: bool = False
    at: datetime | None = None
    #: What distinguishes it from another commit of this version, if known.
    id: str | None = None
    #: The user or the program, if the log has it.
    by: str | None = None
    #: The rows that a merge `inserted`, `updated` and `deleted`; None if unknown.
    merged: Mapping[str, int] | None = None
    #: Whether `touched` are the spans of its files: those of another writer, by value.
    is_by_files: bool = False

    @property
    def tokens(self) -> frozenset[str]:
        """The tokens of the attempts that made it, and `undo_token`s of those it undoes."""
        undone = map(undo_token, undone_by(self.metadata))
        token = self.metadata.get("token")
        return frozenset([*undone, token] if token else undone)

    def changed(self, partitions: Collection[P]) -> Collection[P | Values]:
        """Return which of these partitions it changed: all, if it changed the partition columns."""
        if self.repartitioned:
            return partitions
        return [values for values in self.touched if values in partitions]

    def __str__(self) -> str:
        backfill = self.metadata.get("backfill_id")
        parts = [
            self.operation,
            f"of backfill {backfill}" if backfill else f"by {self.by}" if self.by else "",
            f"at {self.at:%Y-%m-%dT%H:%M:%SZ}" if self.at else "",
        ]
        return f"version {self.version} ({' '.join(filter(None, parts))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Identifies a commit of ours, and prevents making it twice."""

    app_id: str
    version: int
    metadata: Mapping[str, Any]


class TableLog(Protocol):
    """The versions of one table."""

    location: str
    #: Whether partitions have the same rows before and after a version; None without Spark.
    same: Callable[[int, Collection[Pattern]], bool] | None

    def latest_version(self) -> int | None:
        """Return the newest version, None if there is no table; raises TableError."""

    def state(self, version: int | None = None) -> TableState:
        """Return the table at a version (None: the newest); raises TableError if it is gone."""

    def commits(self, after: int, until: int) -> Iterator[Commit]:
        """Yield the commits in (after, until], oldest first; raises TableError if one is gone."""

    def deepen(self) -> bool:
        """Read all commits from now on; return whether there are more than were read."""

    def ever_written(self, state: TableState) -> set[Values]:
        """Return the partitions that were written by a version, as far as the log tells."""

    def known_since(self, until: int) -> datetime | None:
        """Return the time of the oldest commit that the log still holds, None if it holds none."""


def mean_seconds(state: TableState) -> float | None:
    """Return how much time a file of a table by time spans, on average over its rows."""
    column = next(iter(state.columns), None)
    if not isinstance(column, ValueColumn) or column.by != "time":
        return None
    rows = seconds = 0.0
    for span, held in state.partitions.items():
        first, last = (datetime.fromisoformat(end) if end else None for end in span[:2] or ("", ""))
        if first is not None and last is not None:
            rows += held.rows or 0
            seconds += (last - first).total_seconds() * (held.rows or 0)
    return seconds / rows if rows else None


def is_numbered(metadata: Mapping[str, Any]) -> bool:
    """Whether the metadata is that of an identity column without explicit values."""
    return IDENTITY in metadata and not metadata.get(_EXPLICIT)


def undo_token(token: str) -> str:
    """Return the token of a commit that undoes the one with this token."""
    return f"{_UNDO}{token}"


def note_tokens(tokens: dict[str, int], commit: Commit) -> None:
    """Add the attempts of one more commit.

    An attempt that it reverts counts as undone; an undo that it reverts does not count.
    """
    taken_back = commit.metadata.get("taken_back")
    if taken_back is not None:
        for token in [token for token, version in tokens.items() if version == taken_back]:
            if token.startswith(_UNDO):
                del tokens[token]
            else:
                tokens[undo_token(token)] = commit.version
    tokens.update(dict.fromkeys(commit.tokens, commit.version))


def undone_by(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tokens of the commits that a commit with this metadata undoes."""
    undone = metadata.get("undo_of") or ()
    return (undone,) if isinstance(undone, str) else tuple(undone)
