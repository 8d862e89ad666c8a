"""Finds changed partitions of a Delta table in its log, without Spark or reading data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spark_runtime.errors import TableError
from spark_runtime.tables.by_value import document_columns, document_partitions
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.values import PartitionColumn, Values

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The partitions changed by commits in (after, version], sorted by their values.

    `commits` is the number of commits that changed any: an OPTIMIZE changes none.
    """

    location: str
    after: int
    version: int
    columns: tuple[PartitionColumn, ...]
    partitions: tuple[Values, ...]
    commits: int

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `python -m spark_runtime changes` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "changes",
            "location": self.location,
            "after": self.after,
            "version": self.version,
            "commits": self.commits,
            "columns": document_columns(self.columns),
            "partitions": document_partitions(self.columns, self.partitions),
        }


def changes(log: DeltaLog, *, after: int | None = None, since: datetime | None = None) -> Changes:
    """Return the changes after a version or since an instant (aware); exactly one is given.

    The cost grows with the number of commits read. Raises TableError if the log does not contain
    all changes: an incomplete answer is an error.
    """
    newest = log.latest_version()
    if newest is None:
        raise TableError(
            f"there is no Delta table at {log.location}",
            hint="Correct its `location` in the project file.",
        )
    if since is not None:
        first = log.first_version_since(since)
        after = newest if first is None else first - 1
    if after is None or not -1 <= after <= newest:
        raise TableError(
            f"{log.location} has no version {after}: it is at {newest}",
            hint="DESCRIBE HISTORY lists its versions.",
        )
    touched: set[Values] = set()
    commits = 0
    for commit in log.commits(after, newest):
        if commit.repartitioned:
            raise TableError(
                f"{commit} of {log.location} changed its partition columns: all earlier "
                "partitions are gone",
                hint="Name the changed partitions, or start from a later version.",
            )
        commits += bool(commit.touched)
        touched |= commit.touched
    return Changes(
        location=log.location,
        after=after,
        version=newest,
        columns=log.layout(newest).columns,
        partitions=tuple(sorted(touched, key=in_order)),
        commits=commits,
    )


def in_order(values: Values) -> tuple[tuple[bool, str], ...]:
    """Return the sort key of a partition: its values, NULL last."""
    return tuple((value is None, value or "") for value in values)
