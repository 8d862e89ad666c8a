"""What a table holds at one version, and what each of its commits did, whatever its format."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from spark_runtime.errors import TableError
from spark_runtime.values import PartitionColumn, Pattern, Values, is_exact

P = TypeVar("P")

_UNDO = "undo:"
#: What the schema says of a column that the table numbers, and of one that rows may number too.
IDENTITY = "delta.identity.start"
_EXPLICIT = "delta.identity.allowExplicitInsert"

#: Something that holds rows: its path and the id of its deletion vector, if it has one.
File = tuple[str, str | None]


def total(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one of them is not known."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))


@dataclass(frozen=True, slots=True)
class Contents:
    """What one partition holds: its files with their rows (None: not known).

    `files` is None where the log does not reach back far enough to tell.
    """

    files: Mapping[File, int | None] | None = field(default_factory=dict)
    #: That of the rows, as recorded by the commit that wrote all of them.
    fingerprint: str | None = None

    @property
    def rows(self) -> int | None:
        """The number of rows; None if that is not known."""
        return None if self.files is None else total(self.files.values())

    def counted(self, rows: int) -> Contents:
        """The same, now that its rows have been counted."""
        files = dict.fromkeys(self.files or {("", None): None}, 0)
        return Contents({**files, next(iter(files)): rows}, self.fingerprint)


#: The fingerprint of no rows, whatever their columns.
EMPTY_FINGERPRINT = "empty"
NOTHING = Contents(fingerprint=EMPTY_FINGERPRINT)
UNKNOWN = Contents(files=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table at one version."""

    version: int = -1
    #: Which table it is: one that was dropped and made again has another id.
    table_id: str | None = None
    complete: bool = True
    #: The oldest commit that was read; what older ones say of themselves is no longer known.
    first_read: int = 0
    columns: tuple[PartitionColumn, ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict)
    clustered: bool = False
    partitions: Mapping[Values, Contents] = field(default_factory=dict)
    #: Partitions without data that a commit wrote to, or emptied.
    emptied: frozenset[Values] = frozenset()
    transactions: Mapping[str, int] = field(default_factory=dict)
    #: The version that the attempt with this token committed.
    tokens: Mapping[str, int] = field(default_factory=dict)
    #: What tells the data files of partitions from others, where not every change is a commit.
    stamps: Mapping[Values, object] = field(default_factory=dict)

    @property
    def numbered(self) -> str | None:
        """The first column that only the table itself may number."""
        fields = self.schema.get("fields", ())
        return next((str(f["name"]) for f in fields if is_numbered(f.get("metadata") or {})), None)

    def contents(self, values: Pattern) -> Contents:
        """What a partition holds."""
        if not is_exact(values):
            return NOTHING  # what has no partition stands for none
        return self.partitions.get(values, NOTHING if self.complete else UNKNOWN)

    def listed(self) -> Iterable[Values]:
        """Return the partitions that hold data; raises TableError where not all are known."""
        if not self.complete:
            raise TableError(
                f"the log does not reach back far enough to list the partitions of version "
                f"{self.version}",
                hint="It takes Spark to read its checkpoint.",
            )
        return self.partitions


@dataclass(frozen=True, slots=True)
class Since:
    """A table as a run saw it first: its version (-1: there was none), and its id, if known.

    `stamps` are those of its state, None where they are not known.
    """

    version: int = -1
    table_id: str | None = None
    stamps: Mapping[Values, object] | None = None

    @classmethod
    def of(cls, state: TableState | None) -> Since:
        """Return what to remember of a table, None if there is none yet."""
        return cls(stamps={}) if state is None else cls(state.version, state.table_id, state.stamps)

    def problem(self, state: TableState) -> str | None:
        """Return why it is another table now, None if it is."""
        if self.table_id is not None and state.table_id != self.table_id:
            return "was dropped and created again"
        if state.version < self.version:
            return f"is at version {state.version}, and was at {self.version}"
        return None

    def restamped(self, state: TableState, own: Iterable[Commit]) -> set[Values]:
        """Return the partitions whose files are neither these nor those that own commits left.

        Empty where its stamps are not known. `own` holds those since, oldest first.
        """
        if self.stamps is None:
            return set()
        seen, now = dict(self.stamps), state.stamps
        for commit in own:
            seen.update(commit.stamps)
        return {
            values
            for values in seen.keys() | now.keys()
            if (seen.get(values) or None) != now.get(values)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one commit did."""

    version: int
    #: The partitions whose rows it changed (an OPTIMIZE changes none).
    touched: frozenset[Values]
    operation: str
    read_version: int | None
    metadata: Mapping[str, Any]
    """Ours; empty for a commit of another writer."""
    #: Whether the partition columns are others since; then `touched` tells nothing.
    repartitioned: bool = False
    at: datetime | None = None
    #: The user or the program, as far as the log tells.
    by: str | None = None
    #: How many rows a merge `inserted`, `updated` and `deleted`; None where that is not known.
    merged: Mapping[str, int] | None = None
    #: Those of the partitions that it touched, as it left them, where a state has stamps.
    stamps: Mapping[Values, object] = field(default_factory=dict)

    @property
    def tokens(self) -> frozenset[str]:
        """The attempts whose commit this is, those that it undoes as `undo_token` names them."""
        undone = map(undo_token, undone_by(self.metadata))
        token = self.metadata.get("token")
        return frozenset([*undone, token] if token else undone)

    def changed(self, partitions: Collection[P]) -> Collection[P | Values]:
        """Return which of these partitions it changed: all, where it put them by other columns."""
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
    """What makes a commit ours, and one that is not made twice."""

    app_id: str
    version: int
    metadata: Mapping[str, Any]


class TableLog(Protocol):
    """The versions of one table."""

    location: str

    def latest_version(self) -> int | None:
        """Return the newest version, None if there is no table; raises TableError."""

    def state(self, version: int | None = None) -> TableState:
        """Return the table at a version (None: the newest); raises TableError if it is gone."""

    def commits(self, after: int, until: int) -> Iterator[Commit]:
        """Yield the commits in (after, until], oldest first; raises TableError if one is gone."""

    def ever_written(self, state: TableState) -> set[Values]:
        """Return the partitions that were written by a version, as far as the log tells."""


def is_numbered(metadata: Mapping[str, Any]) -> bool:
    """Whether only the table itself may number a column with this metadata."""
    return IDENTITY in metadata and not metadata.get(_EXPLICIT)


def undo_token(token: str) -> str:
    """Return the token of a commit that undoes the one with this token."""
    return f"{_UNDO}{token}"


def note_tokens(tokens: dict[str, int], commit: Commit) -> None:
    """Add the attempts that one more commit tells of.

    One that it takes back counts as undone afterwards; an undoing that it takes back never was.
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
    """Return the tokens of the commits that one with this metadata undoes."""
    undone = metadata.get("undo_of") or ()
    return (undone,) if isinstance(undone, str) else tuple(undone)
