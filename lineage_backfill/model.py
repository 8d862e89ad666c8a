"""Names and states shared by all layers, and how a sentence lists many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeVar

T = TypeVar("T")
#: Least similarity of two words for one to be offered in place of the other.
_LIKE: Final = 0.6


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

    def matches(self, text: str) -> bool:
        """Whether `text` is this name, bare or with its namespace; it is never split."""
        return text in (self.name, str(self))


def named(ref: DatasetRef | JobRef) -> dict[str, str]:
    """Return a dataset or job as a document."""
    return {"namespace": ref.namespace, "name": ref.name}


def listed(items: Sequence[T], most: int = 5, name: Callable[[T], str] = str) -> str:
    """Return the first items on a line, and how many more there are.

    >>> listed(["a", "b", "c"], 2), listed(["a"], 2)
    ('a, b and 1 more', 'a')
    """
    more = len(items) - most
    return ", ".join(map(name, items[:most])) + (f" and {more:,} more" if more > 0 else "")


def nearest(word: str, known: Iterable[str], cutoff: float | None = None) -> list[str]:
    """Return at most three known words that are much like `word`, or end with it as their part.

    >>> nearest("Dayly", ["daily", "hourly"]), nearest("orders", ["s3/raw/orders", "x"])
    (['daily'], ['s3/raw/orders'])
    """
    folded = {one.casefold(): one for one in sorted(set(known), reverse=True)}
    near = get_close_matches(word.casefold(), folded, cutoff=cutoff or _LIKE)
    ends = tuple(f"{mark}{word.casefold()}" for mark in "./:")
    return [folded[one] for one in near or [one for one in folded if one.endswith(ends)][:3]]


def did_you_mean(word: str, known: Iterable[str], name: Callable[[str], str] = str) -> str:
    """Return a hint with the known words nearest to `word`; "" without any.

    >>> did_you_mean("dayly", ["daily", "hourly"]), did_you_mean("x", ["daily"])
    ('Did you mean daily?', '')
    """
    near = nearest(word, known)
    return f"Did you mean {' or '.join(map(name, near))}?" if near else ""


class RunState(StrEnum):
    """The state of one run of a backfill."""

    PENDING = "pending"
    SUBMITTED = "submitted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"  # early cutoff: its inputs are unchanged since its last run
    FAILED = "failed"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"

    @property
    def is_under_way(self) -> bool:
        """Whether an attempt has been handed to an engine, and its end is unknown."""
        return self in _UNDER_WAY

    @property
    def is_final(self) -> bool:
        """Whether the run has ended, unless a user requests a retry."""
        return self in _FINAL

    @property
    def is_good(self) -> bool:
        """Whether the outputs of the run are correct."""
        return self in _GOOD


_UNDER_WAY = frozenset({RunState.SUBMITTED, RunState.RUNNING})
_GOOD = frozenset({RunState.SUCCEEDED, RunState.SKIPPED})
_FINAL = _GOOD | {RunState.FAILED, RunState.BLOCKED, RunState.CANCELLED}

# RUNNING may follow itself: what a run runs as in its engine has become known.
_ONWARDS = frozenset(
    {
        RunState.RUNNING,
        RunState.SUCCEEDED,
        RunState.FAILED,
        RunState.PENDING,
        RunState.CANCELLED,
    }
)
#: Allowed state changes of a run; the run store refuses all others.
ALLOWED_MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.PENDING: frozenset(
        {RunState.SUBMITTED, RunState.SKIPPED, RunState.BLOCKED, RunState.CANCELLED}
    ),
    RunState.SUBMITTED: _ONWARDS,
    RunState.RUNNING: _ONWARDS,
    RunState.SUCCEEDED: frozenset(),
    RunState.SKIPPED: frozenset(),
    # Users may request these again (`retry`, `resume`).
    RunState.FAILED: frozenset({RunState.PENDING}),
    RunState.BLOCKED: frozenset({RunState.PENDING}),
    RunState.CANCELLED: frozenset({RunState.PENDING}),
}


class BackfillState(StrEnum):
    """The state of a backfill."""

    SCHEDULED = "scheduled"  # waits for its start time
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PAUSED = "paused"  # requested; `resume` continues it
    INTERRUPTED = "interrupted"  # its driver stopped; `resume` continues it
    CANCELLED = "cancelled"

    @property
    def is_under_way(self) -> bool:
        """Whether someone should drive the backfill."""
        return self in (BackfillState.SCHEDULED, BackfillState.RUNNING)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; one that is paused or interrupted has not: jobs may be running."""
        return self in (BackfillState.SUCCEEDED, BackfillState.FAILED, BackfillState.CANCELLED)


#: Allowed state changes of a backfill; the run store refuses all others.
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
