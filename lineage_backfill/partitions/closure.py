"""Closure: keys that become stale through outputs that their own job reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.mapping import EdgeMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEdge:
    """An output that its own job reads: how a run key reads it, and what it writes.

    A job whose outputs differ in staleness has a set of stale keys for each group of them: `of`
    numbers the group of this output, `to` are the groups that become stale through it.
    """

    reads: EdgeMapping
    writes: EdgeMapping
    of: int = 0
    to: Sequence[int] = (0,)


def closure(own: Sequence[OwnEdge], sets: Sequence[PartitionSet]) -> list[PartitionSet]:
    """Return the run keys of each group with everything they make stale, transitively.

    The change passes on only through partitions that exist of the output that is read.
    """
    found = list(sets)
    while True:
        before = list(found)
        for edge in own:
            if edge.of in edge.to:
                found[edge.of] = _run_on(edge, found[edge.of])
            for group in edge.to:
                if group != edge.of:
                    found[group] |= _next(edge, found[edge.of])
        if len(own) <= 1 or found == before:
            return found


def _run_on(edge: OwnEdge, keys: PartitionSet) -> PartitionSet:
    hop = edge.reads.hop
    run, output = edge.reads.run, edge.reads.upstream
    if hop is None or run.time is None or output.time is None:
        reached = front = keys
        while front:
            front = _next(edge, front) - reached
            reached |= front
        return reached
    # Hops are doubled until they reach the newest key: ten years of days cost a dozen steps.
    (low, high), newest = hop, min(run.time.last, output.time.last)
    passed = output.clip(run.clip(keys))
    while passed and low <= newest - passed.ordinals.lo:
        passed |= output.clip(run.dilate(passed, -low, high))
        low, high = 2 * low, 2 * high
    low, high = hop
    return keys | run.dilate(passed, -low, high)


def _next(edge: OwnEdge, keys: PartitionSet) -> PartitionSet:
    """Return the existing run keys that read what the keys write."""
    made = edge.writes.required(keys)
    return edge.reads.affected(made)
