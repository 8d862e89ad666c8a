"""The rules and errors of every run store, whatever its database; pure."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import accumulate
from typing import Any

from lineage_backfill.errors import (
    ConflictError,
    StoreError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.model import (
    ALLOWED_MOVES,
    BACKFILL_MOVES,
    BackfillState,
    DatasetRef,
    RunState,
    did_you_mean,
    listed,
)
from lineage_backfill.partitions.text import KeySet

#: For each state of a run, the allowed previous states.
SOURCES: Mapping[RunState, frozenset[RunState]] = {
    target: frozenset(state for state, targets in ALLOWED_MOVES.items() if target in targets)
    for target in RunState
}

#: For each state of a backfill, the allowed previous states.
BACKFILL_SOURCES: Mapping[BackfillState, frozenset[BackfillState]] = {
    target: frozenset(state for state, targets in BACKFILL_MOVES.items() if target in targets)
    for target in BackfillState
}

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_EVERYTHING = ("", chr(0x10FFFF))
_OFFSET = re.compile(r"(?<=T..)[+-]\d{4}$|(?<=T..:..)[+-]\d{4}$")


def refused_move(run_id: str, old: RunState | None, new: RunState) -> StoreError:
    """Return the error for a move that is not in ALLOWED_MOVES; `old` None: unknown run."""
    if old is None:
        return StoreError(f"the backfill has no run {run_id}")
    return StoreError(
        f"run {run_id} cannot go from {old} to {new}",
        hint="Another process drives this backfill too; see its `status`.",
    )


def refused_state(backfill_id: str, old: BackfillState, new: BackfillState) -> StoreError:
    """Return the error for a move of a backfill that is not in BACKFILL_MOVES."""
    return StoreError(
        f"backfill {backfill_id} cannot go from {old} to {new}",
        hint=f"See its state with `status {backfill_id}`.",
    )


def unknown_backfill(backfill_id: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for a backfill that is not in the store."""
    hint = did_you_mean(backfill_id, known) or "`lineage-backfill history` lists them."
    if backfill_id in ("last", "latest", "newest"):
        hint = "Without an id it is the newest one."
    return UnknownNameError(f"no backfill {backfill_id}", hint=hint)


def lease_held(backfill_id: str, owner: str, until: datetime) -> ConflictError:
    """Return the error for a backfill that another executor drives."""
    return ConflictError(
        f"backfill {backfill_id} is driven by {owner}",
        hint=f"`watch` follows it; if its process died, try again after {until:%H:%M:%S} UTC.",
    )


def lease_lost(backfill_id: str) -> ConflictError:
    """Return the error for writes under a lease that was taken over."""
    return ConflictError(
        f"another executor has taken over backfill {backfill_id}",
        hint="Nothing is lost; `watch` follows it.",
    )


def other_target(known: str, target: str) -> UsageError:
    """Return the error for a run store with the backfills of another target."""
    of, here = (f"target {one!r}" if one else "no target" for one in (known, target))
    return UsageError(
        f"this run store keeps backfills of {of}, not of {here}",
        hint=f"Set `url` in [target.{target or known}.store]: each target has a run store.",
    )


def already_undone(backfill_id: str, undone_by: str) -> ConflictError:
    """Return the error for a backfill that another one has undone, or is undoing."""
    return ConflictError(
        f"backfill {backfill_id} is undone by {undone_by}",
        hint=f"`status {undone_by}` shows its progress; `run` repairs again.",
    )


def partitions_locked(holder: str, dataset: DatasetRef, keys: KeySet) -> ConflictError:
    """Return the error for partitions that another backfill is writing."""
    shown = listed(keys, 3)
    return ConflictError(
        f"backfill {holder} holds partitions of {dataset} that this one writes: {shown}",
        hint=f"Wait for its end; if it makes no progress, `resume {holder}` or `cancel {holder}`.",
    )


def overlap(left: KeySet | None, right: KeySet | None) -> KeySet:
    """Return the keys and ranges of `left` that share a key with `right`; None stands for all.

    It compares labels only, and reports an overlap in doubt: an unneeded lock only causes a wait.

    >>> overlap(("2024-03-01..2024-03-05", "2024-03-09"), ("2024-03-05..2024-03-08",))
    ('2024-03-01..2024-03-05',)
    """
    if left is None or right is None:
        return ("*",) if left is None else left
    spans = sorted(_bounds(item) for item in right if isinstance(item, str))
    starts = [start for start, _ in spans]
    ends = list(accumulate((end for _, end in spans), max))
    boxes = [item for item in right if not isinstance(item, str)]

    def meets(item: str | Mapping[str, Any]) -> bool:
        if not isinstance(item, str):  # a box and a label: the declaration has changed
            return bool(spans) or any(_boxes_meet(item, box) for box in boxes)
        start, end = _bounds(item)
        before = bisect_right(starts, end)
        return bool(boxes) or (before > 0 and ends[before - 1] >= start)

    return tuple(item for item in left if meets(item))


def span(keys: KeySet) -> tuple[str, str]:
    """Return two texts with all keys of the set between them; wider in doubt.

    Two sets that share a key have overlapping spans.

    >>> span(("2024-03-01..2024-03-05", "2024-03-09"))
    ('2024-03-01', '2024-03-09')
    """
    bounds = [_bounds(item) if isinstance(item, str) else _EVERYTHING for item in keys]
    return min((start for start, _ in bounds), default=""), max(
        (end for _, end in bounds), default=""
    )


def set_id(keys: KeySet) -> str:
    """Return a hash of exactly this set as written."""
    return hashlib.sha256(_canonical(keys).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _boxes_meet(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(overlap(tuple(one[name]), tuple(other[name])) for name in one.keys() & other.keys())


def _bounds(item: str) -> tuple[str, str]:
    """Return both ends; time labels sort as text, except the offset of a repeated local time."""
    start, dots, end = item.partition("..")
    if item == "*" or (dots and not start[:1].isdigit()):
        return _EVERYTHING  # all keys; or static keys, whose order only their calendar knows
    return _OFFSET.sub("", start), _OFFSET.sub("", end if dots else start)
