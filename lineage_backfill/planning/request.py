"""What a user asks for: what changed, and how far to go."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet

#: The guard rails that a request may override.
RAILS: Final = ("protected", "not-idempotent", "expired", "max-runs")
#: What else a plan records as allowed: how its lineage was read.
TORN_EVENTS: Final = "torn-events"


class Only(StrEnum):
    """Which of the named keys of a job to run: those never made, those that failed last, or all."""

    MISSING = "missing"
    FAILED = "failed"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The part of a table's log that has told which keys changed: after a version, up to another.

    `ignored` names changed partitions of the table that are no key that exists.
    """

    after: int
    until: int
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedDataset:
    """A dataset that is right again and whose readers are not.

    `keys` holds keys, `A..B` ranges, `A..` (to the newest key) and boxes; None only for
    unpartitioned datasets. `log` says where the keys come from if they are not named.
    """

    dataset: DatasetRef
    keys: KeySet | None
    log: LogRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedJob:
    """A job whose run keys are to be run again, as if their inputs were stale.

    They are widened by the job's lookback, unless `exact` says that they are all that is stale.
    """

    job: JobRef
    keys: KeySet | None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request for a plan.

    `columns` limits the change to columns of the changed datasets. `select` and `exclude` hold
    selectors (`x+`, `x+2`, `+x`, `tag:…`, `ns:…`, `owner:…`, globs). `depth` cuts after that many
    jobs. `exact` switches the widening by lookback off. `reverse` runs the newest keys first.
    `allow` holds names of `RAILS`, the guard rails that are overridden, and `TORN_EVENTS`. `author`
    and `reason` change nothing; they say who asks and why. `as_of` says that the plan was made for
    a named instant: what has become complete since then is not its business. `ignored_runs` are
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
