"""The interface of a table format: stage rows, publish them, restore old ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from spark_runtime.tables.scope import Scope
from spark_runtime.tables.state import (
    EMPTY_FINGERPRINT,
    Commit,
    File,
    TableLog,
    TableState,
    Transaction,
)
from spark_runtime.tables.values import Pattern, Values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_runtime.tables.merge import Match


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The number of rows of one partition, and their fingerprint (None: unknown)."""

    count: int = 0
    fingerprint: str | None = EMPTY_FINGERPRINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """An atomic change: the rows of `written` replace those of `replaced`.

    `written` is None if they were not counted: there are about `expected` (None: unknown). With
    `adds` they are added to the old ones instead; with `match` they are merged into those of
    `scope`, and `written` are the contents after that. `new_columns` are added to the table.
    `scope` must not have changed since `before`; otherwise `recheck` raises a WriteConflictError or
    a SchemaMismatchError.
    """

    scope: Scope
    replaced: Scope
    written: Mapping[Values, Rows] | None
    expected: int | None
    adds: bool
    match: Match | None
    new_columns: tuple[str, ...]
    before: TableState
    transaction: Transaction
    recheck: Callable[[TableState], None]

    @property
    def token(self) -> str:
        """The token by which the commit is found."""
        return str(self.transaction.metadata["token"])

    @property
    def count(self) -> int | None:
        """The number of rows, counted or expected; None if unknown."""
        if self.written is None:
            return self.expected
        return sum(one.count for one in self.written.values())


class Storage(Protocol):
    """One existing table, as one run sees it."""

    @property
    def log(self) -> TableLog:
        """Its versions."""

    @property
    def counts(self) -> bool:
        """Whether its log has row counts, so that rows need not be counted before."""

    @property
    def removes_files(self) -> bool:
        """Whether `put_back` can remove files that were added, and leave all others."""

    def before(self) -> TableState:
        """Return the state of the table when the write begins."""

    def held(self, version: int, scope: Collection[Pattern] | None = None) -> DataFrame:
        """Return the rows of these partitions (None: all) at that version; raises TableError."""

    def publish(self, rows: DataFrame, publication: Publication) -> int:
        """Publish staged rows and return the version; on a RuntimeFailure nothing has changed."""

    def fence(self, transaction: Transaction) -> None:
        """Commit the transaction and nothing else, if it is above those of the same app id."""

    def put_back(
        self,
        commits: Sequence[Commit],
        transaction: Transaction,
        added: Collection[File] | None = None,
    ) -> None:
        """Atomically restore what these commits (oldest first) touched.

        No other commit may have touched it since, unless they only `added` files, which are then
        removed. On a RuntimeFailure nothing has changed; no-op if the transaction is not above
        those of the same app id.
        """
