"""Cycles of datasets on one grid: keys that are stale all along them, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.project.resolve.resolver import Input, JobFacts, Output


@dataclass(frozen=True, slots=True)
class _Step:
    """An edge within a cycle: a job's output, and how another job of the cycle reads it."""

    maker: JobFacts
    output: Output
    edge: Input
    reader: JobFacts

    @property
    def span(self) -> tuple[int, int] | None:
        """How few and how many keys later the reader reads a key; None if not on one grid."""
        written, read = self.output.mapping, self.edge.mapping
        if written is None or read is None or written.span != (0, 0):
            return None
        return read.span


def _steps(jobs: Sequence[JobFacts]) -> list[_Step]:
    makers: dict[object, list[tuple[JobFacts, Output]]] = {}
    for facts in jobs:
        for output in facts.outputs:
            makers.setdefault(output.data, []).append((facts, output))
    return [
        _Step(maker, output, edge, facts)
        for facts in jobs
        for edge in facts.live
        for maker, output in makers.get(edge.data, ())
    ]


def is_ordered(jobs: Sequence[JobFacts]) -> bool:
    """Whether no key can wait for itself: each needs earlier keys, or jobs without a way back."""
    level: dict[JobFacts, set[JobFacts]] = {facts: set() for facts in jobs}
    for step in _steps(jobs):
        if (span := step.span) is None:
            return False
        least = span[0] - step.edge.lookback
        if least < 0:
            return False
        if least == 0:
            level[step.reader].add(step.maker)
    try:
        TopologicalSorter(level).prepare()
    except CycleError:
        return False
    return True


def further_keys(
    jobs: Sequence[JobFacts], stale: Callable[[JobFacts], PartitionSet]
) -> Iterator[tuple[JobFacts, PartitionSet]]:
    """Yield keys of plain jobs that become stale on the shortest ways around the cycle.

    They are some of all such keys: each is as many keys after a stale one as one round is long.
    """
    steps = _steps(jobs)
    left = set(jobs)
    for facts in jobs:
        keys = stale(facts)
        ring = _ring(facts, steps) if facts in left and keys else []
        left.difference_update(step.maker for step in ring)
        if found := _run_around(facts, ring, keys):
            yield facts, found


def _ring(start: JobFacts, steps: Sequence[_Step]) -> list[_Step]:
    """Return the shortest way from a job back to it; empty if none is on one grid."""
    onward: dict[JobFacts, list[_Step]] = {}
    for step in steps:
        if step.span is not None:
            onward.setdefault(step.maker, []).append(step)
    ways: dict[JobFacts, list[_Step]] = {start: []}
    front = [start]
    for facts in front:
        for step in onward.get(facts, ()):
            way = [*ways[facts], step]
            if step.reader is start:
                return way
            if step.reader not in ways:
                ways[step.reader] = way
                front.append(step.reader)
    return []


def _run_around(facts: JobFacts, ring: Sequence[_Step], keys: PartitionSet) -> PartitionSet | None:
    """Return the keys that are stale one, two, … rounds after these; None if no round is later."""
    spans = [span for step in ring if (span := step.span) is not None]
    shifts = [low for low, _ in spans]
    for place, (low, high) in enumerate(spans):
        shifts[place] += max(0, min(high - low, 1 - sum(shifts)))
    length, ends = sum(shifts), _ends(facts, ring, shifts)
    if not spans or length < 1 or ends is None:
        return None
    first, last = ends
    # Rounds are doubled until they reach the newest key.
    passed = keys.map_time(lambda ordinals: ordinals.clip(first, last))
    step = length
    while passed and passed.ordinals.lo + step <= last:
        passed |= _later(passed, step, last)
        step *= 2
    return _later(passed, length, last + length)


def _later(keys: PartitionSet, by: int, last: int) -> PartitionSet:
    return keys.map_time(lambda ordinals: ordinals.shift(by).clip(None, last))


def _ends(
    facts: JobFacts, ring: Sequence[_Step], shifts: Sequence[int]
) -> tuple[int | None, int] | None:
    """Return the first and the last key that a round can start from; None without a time."""
    offset, firsts, lasts = 0, [], []
    calendars = [(facts.calendar, 0)]
    for step, shift in zip(ring, shifts, strict=True):
        calendars.append((step.output.data.calendar, offset))
        offset += shift
        calendars.append((step.reader.calendar, offset))
    for calendar, distance in calendars:
        if calendar is None or calendar.time is None or calendar.is_open or calendar.zoned:
            return None
        lasts.append(calendar.time.last - distance)
        if calendar.time.first is not None:
            firsts.append(calendar.time.first - distance)
    return max(firsts, default=None), min(lasts)
