"""Names and states that every layer speaks in."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple


class DatasetRef(NamedTuple):
    """Named data, unique by (namespace, name) as OpenLineage defines it."""

    namespace: str
    name: str
    # Keeps a dataset and a job of one name apart, also as keys of one mapping. Plain tuples are
    # hashed and compared many times faster than dataclasses, and planning does little else.
    kind: Literal["dataset"] = "dataset"

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}"

    def matches(self, text: str) -> bool:
        """Whether `text` is this name, bare or with its namespace; it is never split."""
        return text in (self.name, str(self))


class JobRef(NamedTuple):
    """The code that writes data, unique by (namespace, name) as OpenLineage defines it."""

    namespace: str
    name: str
    kind: Literal["job"] = "job"

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}"


def named(ref: DatasetRef | JobRef) -> dict[str, str]:
    """Return a dataset or a job as documents name it."""
    return {"namespace": ref.namespace, "name": ref.name}


class RunState(StrEnum):
    """Where one run of a backfill stands."""

    PENDING = "pending"
    SUBMITTED = "submitted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"  # early cutoff: what it reads is what it has read before
    FAILED = "failed"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"

    @property
    def is_under_way(self) -> bool:
        """Whether an attempt has been handed to an engine, and its end is unknown."""
        return self in _UNDER_WAY

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to the run unless a person asks for it."""
        return self in _FINAL

    @property
    def is_good(self) -> bool:
        """Whether what the run was to write is as it should be."""
        return self in _GOOD


_UNDER_WAY = frozenset({RunState.SUBMITTED, RunState.RUNNING})
_GOOD = frozenset({RunState.SUCCEEDED, RunState.SKIPPED})
_FINAL = _GOOD | {RunState.FAILED, RunState.BLOCKED, RunState.CANCELLED}

#: The moves that a run may make; the run store refuses every other one.
ALLOWED_MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.PENDING: frozenset(
        {RunState.SUBMITTED, RunState.SKIPPED, RunState.BLOCKED, RunState.CANCELLED}
    ),
    RunState.SUBMITTED: frozenset(
        {
            RunState.RUNNING,
            RunState.SUCCEEDED,
            RunState.FAILED,
            RunState.PENDING,
            RunState.CANCELLED,
        }
    ),
    RunState.RUNNING: frozenset(
        {
            RunState.RUNNING,  # what it runs as in its engine has become known
            RunState.SUCCEEDED,
            RunState.FAILED,
            RunState.PENDING,
            RunState.CANCELLED,
        }
    ),
    RunState.SUCCEEDED: frozenset(),
    RunState.SKIPPED: frozenset(),
    # A person may ask for these again (`retry`, `resume`).
    RunState.FAILED: frozenset({RunState.PENDING}),
    RunState.BLOCKED: frozenset({RunState.PENDING}),
    RunState.CANCELLED: frozenset({RunState.PENDING}),
}


class BackfillState(StrEnum):
    """Where a whole backfill stands."""

    SCHEDULED = "scheduled"  # it waits for the time at which it is to start
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PAUSED = "paused"  # a person asked for it; `resume` goes on
    INTERRUPTED = "interrupted"  # it broke off; `resume` goes on
    CANCELLED = "cancelled"

    @property
    def is_under_way(self) -> bool:
        """Whether somebody ought to be driving the backfill."""
        return self in (BackfillState.SCHEDULED, BackfillState.RUNNING)


#: The moves that a backfill may make; the run store refuses every other one.
BACKFILL_MOVES: dict[BackfillState, frozenset[BackfillState]] = {
    BackfillState.SCHEDULED: frozenset({BackfillState.RUNNING, BackfillState.INTERRUPTED}),
    # To itself where a tail is driven, or the driver before was killed.
    BackfillState.RUNNING: frozenset(BackfillState) - {BackfillState.SCHEDULED},
    BackfillState.SUCCEEDED: frozenset(),
    BackfillState.FAILED: frozenset({BackfillState.SCHEDULED, BackfillState.RUNNING}),
    BackfillState.PAUSED: frozenset({BackfillState.SCHEDULED, BackfillState.RUNNING}),
    BackfillState.INTERRUPTED: frozenset({BackfillState.SCHEDULED, BackfillState.RUNNING}),
    BackfillState.CANCELLED: frozenset({BackfillState.SCHEDULED, BackfillState.RUNNING}),
}
