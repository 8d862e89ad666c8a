"""The request of a user: what changed, and how far to go."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet

#: The guard rails that a request may override.
RAILS: Final = ("protected", "not-idempotent", "expired", "max-runs", "unmatched")
#: Also recorded as allowed in a plan: how its lineage was read.
TORN_EVENTS: Final = "torn-events"


class Only(StrEnum):
    """Which of a job's named keys to run: never written, failed in their last run, or all."""

    MISSING = "missing"
    FAILED = "failed"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The range of a table's log that names the changed keys: versions in (after, until].

    `ignored` are changed partitions of the table that are not existing keys.
    """

    after: int
    until: int
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedDataset:
    """A corrected dataset, whose readers are stale.

    `keys` holds keys, `A..B` ranges, `A..` (to the newest key) and boxes; None only for
    unpartitioned datasets. `log` is the origin of keys that are not named.
    """

    dataset: DatasetRef
    keys: KeySet | None
    log: LogRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedJob:
    """A job whose run keys are re-run as if their inputs were stale.

    They are widened by the job's lookback, unless `exact` is set.
    """

    job: JobRef
    keys: KeySet | None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request for a plan.

    `columns` limits the change to columns of the changed datasets. `select` and `exclude` hold
    selectors (`x+`, `x+2`, `+x`, `tag:…`, `ns:…`, `owner:…`, globs). `depth` cuts after that many
    jobs. `exact` turns off the widening by lookback. `reverse` runs the newest keys first.
    `allow` holds names of `RAILS`, the guard rails that are overridden, and `TORN_EVENTS`. `author`
    and `reason` are for information. `as_of` says that the plan was made for a named instant: keys
    that became complete later are not part of it. `ignored_runs` are
    left out of the lineage. `target` names the target of the project file that holds.
    """

    changed: tuple[ChangedDataset, ...] = ()
    jobs: tuple[ChangedJob, ...] = ()
    columns: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    depth: int | None = None
    exact: bool = False
    reverse: bool = False
    include_former: bool = False
    allow: frozenset[str] = frozenset()
    author: str = ""
    reason: str = ""
    as_of: bool = False
    ignored_runs: tuple[str, ...] = ()
    target: str = ""
