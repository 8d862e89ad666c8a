"""What a write needs of the format of its table: to stage rows, publish them, put old ones back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from spark_runtime.scope import Scope
from spark_runtime.state import EMPTY_FINGERPRINT, Commit, TableLog, TableState, Transaction
from spark_runtime.values import Pattern, Values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_runtime.merge import Match


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How many rows one partition gets, and their fingerprint (None: not known)."""

    count: int = 0
    fingerprint: str | None = EMPTY_FINGERPRINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What becomes visible in one step: the rows of `written` in place of those of `replaced`.

    `written` None means that they were not counted: they are about `expected`, None if that is not
    known either. With `adds` they stand beside the old ones instead; with `match` they are merged
    into those of `scope`, and `written` is what these hold then. `new_columns` are those that the
    table gets by it. `scope` is what must not have changed since `before`; `recheck` raises a
    WriteConflictError or a SchemaMismatchError if the log says so.
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
        """What the commit is found by."""
        return str(self.transaction.metadata["token"])

    @property
    def count(self) -> int | None:
        """The number of rows, or what is expected; None if it is not known."""
        if self.written is None:
            return self.expected
        return sum(one.count for one in self.written.values())


class Storage(Protocol):
    """One table, as one run sees it; it exists."""

    @property
    def log(self) -> TableLog:
        """Its versions."""

    @property
    def counts(self) -> bool:
        """Whether its log counts rows, so that they need not be counted beforehand."""

    @property
    def merges(self) -> bool:
        """Whether it publishes new rows by merging them, so that the old ones are not rewritten."""

    def before(self) -> TableState:
        """Return the table as it is when the write begins."""

    def staged(self, rows: DataFrame, token: str) -> AbstractContextManager[DataFrame]:
        """Compute the rows once, and keep them while they are checked and published."""

    def held(self, version: int, scope: Collection[Pattern] | None = None) -> DataFrame:
        """Return the rows of these partitions (None: all) at that version; raises TableError."""

    def publish(self, rows: DataFrame, publication: Publication) -> int:
        """Publish staged rows and return the version; raises a RuntimeFailure, nothing done."""

    def fence(self, transaction: Transaction) -> None:
        """Commit the transaction and nothing else, if it is above those of the same app id."""

    def put_back(self, commits: Sequence[Commit], transaction: Transaction) -> None:
        """Make what commits, oldest first, touched what it was before them, in one step.

        No other commit may have touched it since. Raises a RuntimeFailure, nothing done; does
        nothing where the transaction is not above those of the same app id.
        """
