"""What is recorded of tables and runs: by this, partitions are judged stale or cut off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.keys import NOTHING, PartitionSet

#: When runs of this process count as begun: later than all others.
LATER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Partitions of a dataset, and the last time that their contents changed.

    Unless it `is_exact`, only some of them may have changed.
    """

    keys: PartitionSet
    at: datetime
    version: int | None = None
    is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionBuild:
    """Partitions of a dataset, and their last build.

    `at` is the time of the build, `read_at` the start of its reads, `read` the versions of its
    inputs, each if known. `job` is None if unknown. Unless it `is_certain`, they were perhaps built
    earlier, or never.
    """

    keys: PartitionSet
    at: datetime
    read_at: datetime | None = None
    read: Mapping[DatasetRef, int] = field(default_factory=dict)
    job: JobRef | None = None
    is_certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """The facts in the log of a table.

    Changes and builds are those of commits still in the log, oldest first. `old` are partitions
    whose last commit is no longer in the log, `since` is the start of the log; without `whole`
    there may be more of them. To replace the rows of one key, about `copied` times as many rows are
    copied.
    """

    changes: tuple[Change, ...] = ()
    builds: tuple[PartitionBuild, ...] = ()
    old: PartitionSet = NOTHING
    since: datetime | None = None
    whole: bool = True
    copied: int = 0

    @property
    def written(self) -> PartitionSet:
        """The partitions that any commit in the log wrote."""
        changed = [one.keys for one in self.changes]
        return PartitionSet.union([self.old, *changed, *(one.keys for one in self.builds)])

    @property
    def is_complete(self) -> bool:
        """Whether the log goes back to the first commit, if there is a log."""
        return self.whole and self.since is None

    @property
    def is_whole(self) -> bool:
        """Whether a log exists and goes back to the first commit, so nothing older exists."""
        return self.is_complete and bool(self.changes or self.builds or self.old)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One run of a job: run keys, start, end (None: still running), and the versions that it read.

    Without `is_certain` it may have written its keys, or some, or none. Runs of this run store have
    a `number`, in the order in which they began, and the `backfill`; `document` holds the
    fingerprints that they read and wrote, if known.
    """

    keys: PartitionSet
    started_at: datetime
    ended_at: datetime | None = None
    read: Mapping[DatasetRef, int] = field(default_factory=dict)
    is_certain: bool = True
    number: int = 0
    backfill: str = ""
    document: Mapping[str, Any] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether a backfill of this run store ran it."""
        return self.number > 0

    def may_end_after(self, other: Run) -> bool:
        """Whether it may have written after another run began."""
        return self.ended_at is None or self.ended_at >= other.started_at
