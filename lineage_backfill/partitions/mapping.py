"""Mappings: which partitions a run key reads, and which run keys a partition makes stale.

Every mapping has two directions and one law over the keys that exist:
`k in affected({u})` if and only if `u in required({k})`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from lineage_backfill.errors import (
    DeclarationError,
    KeyFormatError,
    MissingKeyError,
    UsageError,
)
from lineage_backfill.model import listed
from lineage_backfill.partitions.calendar import EVERY, Calendar, StaticAxis, TimeAxis
from lineage_backfill.partitions.grid import Grid
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.lengths import Span
from lineage_backfill.partitions.ordinals import EMPTY, POINT, OrdinalSet
from lineage_backfill.partitions.text import Key, as_text, expand, parse

#: What a user's function gets (a run key) and gives (keys or ranges of the input).
KeyFunction = Callable[[Any], Iterable[Any]]

Kind = Literal[
    "overlap", "identity", "window", "offset", "all", "last", "as_of", "map", "none", "python"
]
#: Run keys, and what they are recorded to have read.
Record = tuple[PartitionSet, PartitionSet]
#: How far a window reaches: a number of run keys, or a length of time such as `4h`.
Reach = int | Span


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSpec:
    """How run keys read one input; None as kind means the default of the two calendars.

    A run key k reads what intersects [start of k-before, end of k+after); an offset is
    `before = -by, after = by`. `dimensions` overrides single dimensions of a product. `last` reads
    the newest key of the input, or that of `newest`, its calendar at another instant; `records` are
    what runs have read, the last ones first.
    """

    kind: Kind | None = None
    before: Reach = 0
    after: Reach = 0
    newest: Calendar | None = None
    records: tuple[Record, ...] = ()
    table: tuple[tuple[str, tuple[str, ...]], ...] = ()
    function: KeyFunction | None = None
    dimensions: tuple[tuple[str, MappingSpec], ...] = ()


DEFAULT = MappingSpec()


class EdgeMapping(ABC):
    """The relation between the partitions of one input and the run keys of one reader."""

    upstream: Calendar
    run: Calendar
    #: The mapping in one word or two, for reasons.
    name: str

    def __init__(self, upstream: Calendar, run: Calendar, name: str) -> None:
        self.upstream = upstream
        self.run = run
        self.name = name
        #: Whether every run key reads all of the input, so that no keys need be named.
        self.reads_whole = upstream.is_whole
        #: The calendar that would have to be listed without a first key, where there is one.
        self.unbounded: Calendar | None = None
        #: Whether labels may be looked for that one side lacks.
        self.may_lack = False
        self.has_gaps = False
        #: How many run keys after its own a run key reads the intervals of; None if not by those.
        self.ahead: int | None = None

    def reach(self, changed: PartitionSet) -> tuple[PartitionSet, OrdinalSet]:
        """Return the existing run keys that read any of the changed partitions.

        With them come those that would be stale but do not exist yet.
        """
        reached = self.affected_unclipped(changed)
        found, time = self.run.clip(reached), self.run.time
        if time is None:
            return found, EMPTY
        newest = reached.ordinals.hi
        if time.has_ended:  # no key comes after the last one
            newest = min(newest, time.begun)
        return found, reached.ordinals.clip(time.last + 1, newest) if newest > time.last else EMPTY

    def affected(self, changed: PartitionSet) -> PartitionSet:
        """Return the existing run keys that read any of the changed partitions."""
        return self.run.clip(self.affected_unclipped(changed))

    def needing(self, partitions: PartitionSet) -> PartitionSet:
        """Return the existing run keys whose next runs read any of the partitions."""
        return self.affected(partitions)

    def behind(self, keys: PartitionSet, changed: PartitionSet) -> PartitionSet:
        """Return those of the changed partitions that make any of the run keys stale."""
        return self.required_unclipped(keys) & changed

    def inferred(self, changed: PartitionSet) -> PartitionSet:
        """Return the run keys that are inferred, not recorded, to read these."""
        return NOTHING

    def required(self, keys: PartitionSet) -> PartitionSet:
        """Return the existing partitions of the input that the run keys read."""
        return self.upstream.clip(self.required_unclipped(keys))

    def read(self, keys: PartitionSet) -> PartitionSet:
        """Return the partitions of the input that runs of these keys read.

        A partition that has begun may hold rows before its calendar holds its key, so it is read.
        """
        return self.upstream.clip(self.required_unclipped(keys), begun=True)

    def awaited(self, keys: PartitionSet) -> PartitionSet | None:
        """Return what runs of these keys wait for; None if that is what they read."""
        return None

    @abstractmethod
    def affected_unclipped(self, changed: PartitionSet) -> PartitionSet:
        """Return what run keys would read the changed partitions if every key existed."""

    @abstractmethod
    def required_unclipped(self, keys: PartitionSet) -> PartitionSet:
        """Return what the run keys would read if every partition existed."""

    @property
    def span(self) -> tuple[int, int] | None:
        """How few and how many keys later a run key reads a partition, on one grid; else None.

        Run keys read it of the same static keys.
        """
        return None

    @property
    def hop(self) -> tuple[int, int] | None:
        """The span of a mapping by which only later keys read a partition; else None."""
        span = self.span
        return span if span is not None and span[0] > 0 else None

    def missing(self, changed: PartitionSet, keys: PartitionSet) -> list[str]:
        """Return sentences about labels of these partitions and run keys that one side lacks.

        Static keys are compared whole.
        """
        return []


# --- one time dimension -------------------------------------------------------------------------


class _Time(ABC):
    name: str
    is_all = False

    @abstractmethod
    def affected(self, ordinals: OrdinalSet) -> OrdinalSet: ...

    @abstractmethod
    def required(self, ordinals: OrdinalSet) -> OrdinalSet: ...

    def between(self, upstream: TimeAxis, run: TimeAxis) -> _Time | None:
        """Return the same relation of other axes; None where it is not one of instants."""
        return None

    def missing(self, changed: OrdinalSet, keys: OrdinalSet) -> list[str]:
        """Return sentences about labels that were looked for and that one side lacks."""
        return []


class _Overlap(_Time):
    """By intervals: k reads what intersects [start of k-before, end of k+after)."""

    def __init__(self, upstream: Grid, run: Grid, before: int, after: int) -> None:
        self.upstream, self.run = upstream, run
        self.before, self.after = before, after
        self.name = _window_name(upstream, run, before, after)
        #: A window is one stretch of time, with the gaps between its keys.
        self.spans_gaps = run.size is not None and run is not upstream and before != -after

    def between(self, upstream: TimeAxis, run: TimeAxis) -> _Time:
        return _Overlap(upstream.grid, run.grid, self.before, self.after)

    def affected(self, ordinals: OrdinalSet) -> OrdinalSet:
        # j overlaps a changed partition: the keys that read j's interval are j-after .. j+before.
        if not self.spans_gaps:
            found = overlap(self.upstream, self.run, ordinals).dilate(self.after, self.before)
        else:
            found = _touched(self.run, self.upstream.spans(ordinals), self.after, self.before)
        return self.run.listed(found)

    def required(self, ordinals: OrdinalSet) -> OrdinalSet:
        run, before, after = self.run, self.before, self.after
        if not self.spans_gaps:
            return overlap(run, self.upstream, run.listed(ordinals.dilate(before, after)))
        spans = ((run.start(a - before), run.end(b + after)) for a, b in ordinals.runs())
        return _touched(self.upstream, spans)


class _Lengths(_Time):
    """By intervals as `_Overlap`, where a reach is a length of time and not a number of keys."""

    def __init__(self, upstream: Grid, run: Grid, before: Reach, after: Reach) -> None:
        self.upstream, self.run = upstream, run
        self._before, self._after = before, after
        is_offset = isinstance(before, Span) and -before == after
        self.name = f"offset({after})" if is_offset else f"window({before}, {after})"

    def between(self, upstream: TimeAxis, run: TimeAxis) -> _Time:
        return _Lengths(upstream.grid, run.grid, self._before, self._after)

    def _first(self, key: int) -> int:
        """Return the instant from which a key reads."""
        run, before = self.run, self._before
        if isinstance(before, Span):
            return (-before).after(run.start(key), run.zone)
        return run.start(key - before)

    def _end(self, key: int) -> int:
        """Return the instant up to which a key reads; a jump of the clock leaves a second of it."""
        run, after = self.run, self._after
        if isinstance(after, Span):
            return max(after.after(run.end(key), run.zone), self._first(key) + 1)
        return run.end(key + after)

    def affected(self, ordinals: OrdinalSet) -> OrdinalSet:
        runs = []
        for start, end in self.upstream.spans(ordinals):
            # Both ends grow with the key: from the first that ends later to the last before `end`.
            first = _search(lambda key: self._end(key) > start, self.run, start)  # noqa: B023
            last = _search(lambda key: self._first(key) >= end, self.run, end) - 1  # noqa: B023
            runs.append((first, last))
        found = OrdinalSet.of_runs((first, last) for first, last in runs if first <= last)
        return self.run.listed(found)

    def required(self, ordinals: OrdinalSet) -> OrdinalSet:
        runs: Iterable[tuple[int, int]] = self.run.listed(ordinals).runs()
        if self.run.size is not None:  # what keys by list read may have gaps between it
            runs = ((key, key) for first, last in runs for key in range(first, last + 1))
        spans = ((self._first(first), self._end(last)) for first, last in runs)
        return _touched(self.upstream, spans)


def _search(holds: Callable[[int], bool], grid: Grid, around: int) -> int:
    """Return the first ordinal from which on a condition holds; it is near an instant."""
    if grid.size is not None:
        return bisect_left(range(grid.size), True, key=holds)
    near, step = grid.at(around), 1
    while holds(near - step):
        step *= 2
    low, step = near - step, 1  # it does not hold there
    while not holds(low + step):
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class _AsOf(_Time):
    """k reads the last existing key that begins at its start or before."""

    name = "as_of"

    def __init__(self, upstream: TimeAxis, run: TimeAxis) -> None:
        self.upstream, self.run = upstream, run

    def between(self, upstream: TimeAxis, run: TimeAxis) -> _Time:
        return _AsOf(upstream, run)

    def affected(self, ordinals: OrdinalSet) -> OrdinalSet:
        axis, run = self.upstream, self.run.grid
        runs = []
        for a, b in ordinals.clip(axis.first, axis.last).runs():
            first = run.at(axis.grid.start(a) - 1) + 1
            last = self.run.last if b == axis.last else run.at(axis.grid.start(b + 1) - 1)
            runs.append((first, last))
        return OrdinalSet.of_runs((first, last) for first, last in runs if first <= last)

    def required(self, ordinals: OrdinalSet) -> OrdinalSet:
        axis, start = self.upstream, self.run.grid.start
        found = {min(axis.grid.at(start(key)), axis.last) for key in ordinals}
        return OrdinalSet.of(found).clip(axis.first, axis.last)


class _Last(_Time):
    """Every key reads the newest; what it has read before, if not recorded, is inferred."""

    name = "last"

    def __init__(self, upstream: TimeAxis, run: TimeAxis | None) -> None:
        exists = upstream.first is None or upstream.first <= upstream.last
        self._newest = OrdinalSet.of([upstream.last] if exists else [])
        self._past = _AsOf(upstream, run) if run is not None else None
        self._run = POINT if run is None else run.existing

    def between(self, upstream: TimeAxis, run: TimeAxis) -> _Time:
        return _Last(upstream, run)

    def affected(self, ordinals: OrdinalSet) -> OrdinalSet:
        return self.needing(ordinals) if self._past is None else self._past.affected(ordinals)

    def needing(self, ordinals: OrdinalSet) -> OrdinalSet:
        """Return the keys whose next runs read any of these."""
        return self._run if ordinals & self._newest else EMPTY

    def required(self, ordinals: OrdinalSet) -> OrdinalSet:
        return self._newest if ordinals else EMPTY


class _SameLabel(_Time):
    name = "identity"

    def __init__(self, upstream: Grid, run: Grid) -> None:
        self.upstream, self.run = upstream, run

    def affected(self, ordinals: OrdinalSet) -> OrdinalSet:
        return _relabel(self.upstream, self.run, ordinals)[0]

    def required(self, ordinals: OrdinalSet) -> OrdinalSet:
        return _relabel(self.run, self.upstream, ordinals)[0]

    def missing(self, changed: OrdinalSet, keys: OrdinalSet) -> list[str]:
        return _lacking(
            {
                "reader": _relabel(self.upstream, self.run, changed)[1],
                "input": _relabel(self.run, self.upstream, keys)[1],
            }
        )


class _AllTime(_Time):
    name = "all"
    is_all = True

    def __init__(self, upstream: TimeAxis | None, run: TimeAxis | None) -> None:
        self._upstream = POINT if upstream is None else upstream.existing
        self._run = POINT if run is None else run.existing

    def affected(self, ordinals: OrdinalSet) -> OrdinalSet:
        return self._run if ordinals else EMPTY

    def required(self, ordinals: OrdinalSet) -> OrdinalSet:
        return self._upstream if ordinals else EMPTY


def overlap(source: Grid, target: Grid, ordinals: OrdinalSet) -> OrdinalSet:
    """Return the ordinals of `target` whose intervals intersect those of `source`."""
    if source is target or not ordinals:
        return ordinals
    if source.size is not None or target.size is not None:
        return _touched(target, source.spans(ordinals))
    start, at = source.start, target.at
    if ordinals.is_range:
        return OrdinalSet.range(at(start(ordinals.lo)), at(start(ordinals.hi + 1) - 1))
    runs: list[tuple[int, int]] = []
    covered = None  # the instant up to which the last run of the target reaches
    for first, last in ordinals.runs():
        end = start(last + 1)
        if covered is not None and end <= covered:
            continue
        to = at(end - 1)
        runs.append((at(start(first)), to))
        covered = target.start(to + 1)
    return OrdinalSet.of_runs(runs)


def _touched(
    target: Grid, spans: Iterable[tuple[int, int]], back: int = 0, ahead: int = 0
) -> OrdinalSet:
    """Return the ordinals whose intervals intersect spans of time, with so many around each.

    Where a span lies in a gap, those around it count from both of its sides.
    """
    size = target.size
    low, high = (None, None) if size is None else (target.start(0), target.end(size - 1))
    runs = []
    for begin, until in spans:
        start = begin if low is None else max(begin, low)
        end = until if high is None else min(until, high)
        if start < end:
            first, last = target.touching(start, end)
            runs.append((first - back, last + ahead))
    return OrdinalSet.of_runs((first, last) for first, last in runs if first <= last)


def _lacking(lost: Mapping[str, Iterable[str]]) -> list[str]:
    return [
        f"the {side} does not have the keys {', '.join(sorted(keys))}"
        for side, keys in lost.items()
        if keys
    ]


def _relabel(source: Grid, target: Grid, ordinals: OrdinalSet) -> tuple[OrdinalSet, list[str]]:
    """Return the keys that have the same labels, and the labels that the target lacks."""
    if source is target:
        return ordinals, []
    found, lost = [], []
    for ordinal in ordinals:
        label = source.label(ordinal)
        try:
            other = target.find(label)
        except (MissingKeyError, KeyFormatError):
            lost.append(label)
            continue
        if target.label(other) == label:
            found.append(other)
        else:
            lost.append(label)
    return OrdinalSet.of(found), lost


def _window_name(upstream: Grid, run: Grid, before: int, after: int) -> str:
    if before == -after and before:
        return f"offset({after})"
    if before or after:
        return f"window({before}, {after})"
    return "identity" if upstream is run else "overlap"


# --- static dimensions --------------------------------------------------------------------------


class StaticRelation:
    """The relation between combinations of static keys, each dimension by itself."""

    def __init__(
        self,
        upstream: Calendar,
        run: Calendar,
        pairs: Mapping[str, StaticAxis],
        overrides: Mapping[str, MappingSpec],
    ) -> None:
        self._upstream, self._run = upstream, run
        self._pairs = pairs  # axis of the input by the name of the matching axis of the run
        self._overrides = overrides
        #: Whether every combination reads that of the same keys.
        self.identity = (
            not overrides
            and len(pairs) == len(run.statics) == len(upstream.statics)
            and all(
                pairs[axis.name] is other and other.keys == axis.keys
                for axis, other in zip(run.statics, upstream.statics, strict=True)
            )
        )

    def affected(self, mask: int) -> int:
        found = 0
        for index, reads in enumerate(self._required_by_key):
            if reads & mask:
                found |= 1 << index
        return found

    def required(self, mask: int) -> int:
        found, rows = 0, self._required_by_key
        for index in OrdinalSet.of_mask(mask):
            found |= rows[index]
        return found

    @cached_property
    def _required_by_key(self) -> list[int]:
        columns = [self._axis_masks(axis) for axis in self._run.statics]
        rows: list[dict[str, int]] = [{}]
        for names_and_masks in columns:
            rows = [{**row, **cell} for row in rows for cell in names_and_masks]
        full = {axis.name: axis.full for axis in self._upstream.statics}
        masks = [tuple({**full, **row}.values()) for row in rows]
        combined = {one: self._upstream.combine(one) for one in dict.fromkeys(masks)}
        return [combined[one] for one in masks]

    def _axis_masks(self, axis: StaticAxis) -> list[dict[str, int]]:
        """Return, for each key of one run axis, what it reads of the matching input axis."""
        other = self._pairs.get(axis.name)
        if other is None:
            return [{} for _ in axis.keys]
        spec = self._overrides.get(axis.name) or self._overrides.get(other.name) or DEFAULT
        if spec.kind == "all":
            return [{other.name: other.full} for _ in axis.keys]
        if spec.kind == "map":
            table = dict(spec.table)
            return [{other.name: other.mask(table.get(key, ()))} for key in axis.keys]
        return [{other.name: same_key(axis, key, other)} for key in axis.keys]

    def missing(self) -> list[str]:
        """Return sentences about keys that one side has and the other lacks."""
        sentences: list[str] = []
        for axis in self._run.statics:
            other = self._pairs.get(axis.name)
            spec = self._overrides.get(axis.name)
            if other is None or other.runtime or axis.runtime or (spec and spec.kind):
                continue
            sentences += _lacking(
                {
                    side: [key for key in here.keys if key not in there.index]
                    for here, there, side in ((axis, other, "input"), (other, axis, "reader"))
                }
            )
        return sentences


_NO_STATICS: Final = StaticRelation(Calendar(), Calendar(), {}, {})


def same_key(axis: StaticAxis, key: str, other: StaticAxis) -> int:
    """Return the mask of the keys of the input's dimension that have the same label."""
    if axis.runtime and key == EVERY:
        # It stands for all keys of the input that this side has not recorded.
        unknown = (k for k in other.keys if k == EVERY or k not in axis.index)
        return sum(1 << other.index[k] for k in unknown)
    position = other.index.get(key, other.index.get(EVERY) if other.runtime else None)
    return 0 if position is None else 1 << position


# --- whole edges --------------------------------------------------------------------------------


class _Boxes(EdgeMapping):
    """Time and static dimensions related each by itself."""

    def __init__(
        self, upstream: Calendar, run: Calendar, time: _Time, statics: StaticRelation
    ) -> None:
        lacking = len(upstream.statics) != len(run.statics)
        name = time.name
        if upstream.time is None and run.time is None and upstream.statics and run.statics:
            name = "identity" if statics.identity else "map"
        elif upstream.order or run.order or (lacking and not time.is_all):
            name = f"product({time.name})"
        super().__init__(upstream, run, name)
        self._time, self._statics = time, statics
        self._zoned = _between_zones(upstream, run, time)
        self.may_lack = isinstance(time, _SameLabel) or bool(statics.missing())
        #: Whether a run key may lie where the input has no keys at all.
        self.has_gaps = upstream.time is not None and (
            upstream.time.grid.size is not None or bool(self._zoned)
        )
        if isinstance(time, _Overlap) and not self._zoned:
            self.ahead = time.after
        if time.is_all:
            # Without static keys of its own a run reads those of the input all alike.
            self.reads_whole = upstream.is_whole or not run.statics
            endless = (side for side in (upstream, run) if not side.bounded)
            self.unbounded = next(endless, None)

    def missing(self, changed: PartitionSet, keys: PartitionSet) -> list[str]:
        return self._time.missing(changed.ordinals, keys.ordinals) + self._statics.missing()

    def awaited(self, keys: PartitionSet) -> PartitionSet | None:
        time = self.upstream.time
        if time is None or not self._time.is_all:
            return None
        # Rows of a period that has begun are read as well, though its key does not exist yet.
        begun = OrdinalSet.range(time.floor, max(time.last, time.begun))
        wanted = PartitionSet.of((begun, self._statics.required(m)) for _, m in keys.boxes)
        return self.upstream.clip(wanted, begun=True)

    @property
    def span(self) -> tuple[int, int] | None:
        time = self._time
        if not isinstance(time, _Overlap) or time.upstream is not time.run:
            return None
        if self.upstream.zoned != self.run.zoned:
            return None
        return (-time.after, time.before) if self._statics.identity else None

    def affected_unclipped(self, changed: PartitionSet) -> PartitionSet:
        time, statics = self._time, self._statics
        if self._zoned:
            return PartitionSet.of(
                (zoned.affected(o), statics.affected(m & theirs) & mine)
                for mine, theirs, zoned in self._zoned
                for o, m in changed.boxes
                if m & theirs
            )
        if statics.identity:
            return changed.map_time(time.affected)
        return PartitionSet.of((time.affected(o), statics.affected(m)) for o, m in changed.boxes)

    def required_unclipped(self, keys: PartitionSet) -> PartitionSet:
        time, statics = self._time, self._statics
        if self._zoned:
            return PartitionSet.of(
                (zoned.required(o), statics.required(m & mine) & theirs)
                for mine, theirs, zoned in self._zoned
                for o, m in keys.boxes
                if m & mine
            )
        if statics.identity:
            return keys.map_time(time.required)
        return PartitionSet.of((time.required(o), statics.required(m)) for o, m in keys.boxes)


def _between_zones(upstream: Calendar, run: Calendar, time: _Time) -> list[tuple[int, int, _Time]]:
    """Return how run keys of each zone read the input's of each: both masks, and the relation."""
    if not (upstream.zoned or run.zoned):
        return []
    return [
        (mine, theirs, made)
        for mine, own in run.parts
        for theirs, axis in upstream.parts
        if (made := time.between(axis, own)) is not None
    ]


class _Newest(_Boxes):
    """The newest key: a changed one concerns the keys recorded to have read it, else inferred."""

    def __init__(
        self,
        upstream: Calendar,
        run: Calendar,
        time: _Last,
        statics: StaticRelation,
        spec: MappingSpec,
    ) -> None:
        super().__init__(upstream, run, time, statics)
        self._zoned = _between_zones(spec.newest or upstream, run, time)
        self._last, self._records = time, spec.records

    def affected_unclipped(self, changed: PartitionSet) -> PartitionSet:
        recorded = known = NOTHING
        for keys, read in self._records:
            recorded |= (keys if read & changed else NOTHING) - known
            known |= keys
        return recorded | (super().affected_unclipped(changed) - known)

    def inferred(self, changed: PartitionSet) -> PartitionSet:
        known = PartitionSet.union(keys for keys, _ in self._records)
        return self.run.clip(super().affected_unclipped(changed)) - known

    def needing(self, partitions: PartitionSet) -> PartitionSet:
        full = (self.run.full_mask, self.upstream.full_mask, self._last)
        return PartitionSet.of(
            (last.needing(o), self._statics.affected(m & theirs) & mine)
            for mine, theirs, last in self._zoned or [full]
            for o, m in partitions.boxes
            if isinstance(last, _Last)
        )

    def behind(self, keys: PartitionSet, changed: PartitionSet) -> PartitionSet:
        return PartitionSet.union(one for one in changed.singles() if self.affected(one) & keys)


class _Listed(EdgeMapping):
    """A relation given row by row: run keys that all read the same."""

    def affected_unclipped(self, changed: PartitionSet) -> PartitionSet:
        result = NOTHING
        for key, reads in self._reads():
            if reads & changed:
                result |= key
        return result

    def required_unclipped(self, keys: PartitionSet) -> PartitionSet:
        result = NOTHING
        for key, reads in self._reads():
            if key & keys:
                result |= reads
        return result

    @abstractmethod
    def _reads(self) -> Sequence[tuple[PartitionSet, PartitionSet]]: ...


class _Table(_Listed):
    """A table of what keys and ranges of keys read."""

    def __init__(
        self, upstream: Calendar, run: Calendar, table: tuple[tuple[str, tuple[str, ...]], ...]
    ) -> None:
        super().__init__(upstream, run, "map")
        self._rows = [
            (parse_existing(run, (key,)), parse_existing(upstream, reads)) for key, reads in table
        ]

    def _reads(self) -> Sequence[tuple[PartitionSet, PartitionSet]]:
        return self._rows


class _Function(_Listed):
    """A user's function over the existing run keys, asked once for each when first needed."""

    def __init__(self, upstream: Calendar, run: Calendar, function: KeyFunction) -> None:
        super().__init__(upstream, run, "python")
        self._function = function
        self._rows: list[tuple[PartitionSet, PartitionSet]] | None = None
        self.unbounded = None if run.bounded else run

    def _reads(self) -> Sequence[tuple[PartitionSet, PartitionSet]]:
        if self._rows is None:
            self._rows = []
            for one in self.run.existing.singles():
                (key,) = expand(self.run, one)
                self._rows.append((one, self._read(key)))
        return self._rows

    def _read(self, key: Key) -> PartitionSet:
        try:
            found = self._function(key.label)
            # One key may be given as it is; as an iterable its letters would be taken for keys.
            names = (found,) if isinstance(found, str | Mapping) else tuple(found)
        except (Exception, SystemExit) as error:
            raise DeclarationError(
                f"{self._name} failed for the key {_shown(key)}: {type(error).__name__}: {error}",
                hint="It gets a run key and returns the keys and ranges that this key reads.",
            ) from error
        try:
            return parse_existing(self.upstream, names)
        except UsageError as error:
            raise KeyFormatError(
                f"{self._name} returned no key of its input for {_shown(key)}: {error.message}",
                hint=error.hint,
            ) from error

    @property
    def _name(self) -> str:
        function = self._function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"the mapping function {function.__module__}:{name}"


def _shown(key: Key) -> str:
    label = key.label
    return label if isinstance(label, str) else as_text({n: [v] for n, v in label.items()})


def parse_existing(calendar: Calendar, names: tuple[Any, ...]) -> PartitionSet:
    """Return those of the named keys and ranges that have begun; others are left out."""
    result = NOTHING
    for name in names:
        try:
            result |= parse(calendar, (name,))
        except MissingKeyError:
            continue
    return result


def build(upstream: Calendar, run: Calendar, spec: MappingSpec = DEFAULT) -> EdgeMapping:
    """Return the mapping of one edge; raises DeclarationError where it does not fit."""
    if spec.kind == "python":
        function = spec.function
        if function is None:
            raise DeclarationError(
                "a python mapping has no function", hint='Write function = "module:name".'
            )
        return _Function(upstream, run, function)
    if spec.kind == "map" and not (upstream.order or run.order):
        _check_table(upstream, run, dict(spec.table))
        return _Table(upstream, run, spec.table)
    pairs, statics = paired_axes(upstream, run), _NO_STATICS
    time_spec, overrides = _by_dimension(upstream, run, spec)
    if upstream.statics or run.statics:
        for name, part in overrides.items():
            _check_dimension(name, part, run, pairs)
        statics = StaticRelation(upstream, run, pairs, overrides)
    time = _time(spec.newest or upstream, run, time_spec, pairs)
    if isinstance(time, _Last):
        return _Newest(upstream, run, time, statics, spec)
    return _Boxes(upstream, run, time, statics)


def _by_dimension(
    upstream: Calendar, run: Calendar, spec: MappingSpec
) -> tuple[MappingSpec, dict[str, MappingSpec]]:
    """Return what holds for the time dimension, and what for static ones by name."""
    if not spec.dimensions and spec.kind not in ("map", "all"):
        return spec, {}
    overrides = dict(spec.dimensions)
    times = {axis.name for axis in (upstream.time, run.time) if axis is not None}
    known = times.union(axis.name for axis in (*upstream.statics, *run.statics)) - {""}
    for name in overrides:
        if name not in known:
            names = ", ".join(sorted(known)) or "none: their keys are plain"
            raise DeclarationError(
                f"the mapping names the dimension {name!r}, which neither side has",
                hint=f"The dimensions are {names}.",
            )
    time_spec = spec
    for name in sorted(times & set(overrides)):
        time_spec = overrides.pop(name)
    if spec.kind == "map":
        if len(run.statics) != 1:
            raise DeclarationError(
                "a map must name its dimension", hint="Write dimensions.NAME = { map = … }."
            )
        overrides.setdefault(run.statics[0].name, spec)
        time_spec = DEFAULT if time_spec is spec else time_spec
    if spec.kind == "all":
        for axis in run.statics:
            overrides.setdefault(axis.name, spec)
    return time_spec, overrides


def _check_dimension(
    name: str, spec: MappingSpec, run: Calendar, pairs: Mapping[str, StaticAxis]
) -> None:
    if spec.kind not in (None, "identity", "all", "map"):
        raise DeclarationError(
            f"the dimension {name!r} has static keys, which {spec.kind} cannot map",
            hint="Use identity, all or map.",
        )
    if spec.kind not in ("identity", "map"):
        return
    paired = [axis for axis in run.statics if name in (axis.name, _name(pairs.get(axis.name)))]
    if not paired or paired[0].name not in pairs:
        raise DeclarationError(
            f"only one side has the dimension {name!r}, so {spec.kind} cannot map it",
            hint="Leave it out: every key of it is read.",
        )
    ours, theirs = paired[0], pairs[paired[0].name]
    for key, reads in spec.table:
        for axis, keys in ((ours, (key,)), (theirs, reads)):
            try:
                axis.mask(keys)
            except MissingKeyError as error:
                raise DeclarationError(
                    f"the map names a key that does not exist: {error}", hint=error.hint
                ) from None
    if spec.kind == "map":
        _refuse_lacking(ours, dict(spec.table))


def _name(axis: StaticAxis | None) -> str | None:
    return axis.name if axis else None


def _time(
    upstream: Calendar, run: Calendar, spec: MappingSpec, pairs: Mapping[str, StaticAxis]
) -> _Time:
    theirs, ours = upstream.time, run.time
    if spec.kind == "last" and theirs is not None:
        return _Last(theirs, ours)
    if spec.kind in ("map", "python", "none"):
        raise DeclarationError(
            f"a time dimension cannot be mapped by {spec.kind}",
            hint="Use overlap, identity, window, offset, as_of, last or all.",
        )
    if theirs is None or ours is None or spec.kind == "all":
        if spec.kind in ("window", "offset", "last", "as_of"):
            raise DeclarationError(
                f"the mapping {spec.kind} needs a time dimension on both sides",
                hint="Use all, or declare the calendars.",
            )
        if spec.kind == "identity" and not pairs and not (upstream.is_whole and run.is_whole):
            raise DeclarationError(
                "identity needs a dimension that both sides have",
                hint="Use all, or declare the calendars.",
            )
        return _AllTime(theirs, ours)
    if spec.kind == "identity":
        if theirs.grid.family != ours.grid.family:
            raise DeclarationError(
                f"identity needs one grain on both sides, not {' '.join(theirs.grid.family)}"
                f" and {' '.join(ours.grid.family)}",
                hint="Leave the mapping out: overlap is the default between calendars.",
            )
        return _SameLabel(theirs.grid, ours.grid)
    if spec.kind == "as_of":
        return _AsOf(theirs, ours)
    if isinstance(spec.before, Span) or isinstance(spec.after, Span):
        return _Lengths(theirs.grid, ours.grid, spec.before, spec.after)
    if spec.before + spec.after < 0:
        raise DeclarationError(
            f"the window({spec.before}, {spec.after}) is empty",
            hint="`before` + `after` must not be negative.",
        )
    return _Overlap(theirs.grid, ours.grid, spec.before, spec.after)


def paired_axes(upstream: Calendar, run: Calendar) -> dict[str, StaticAxis]:
    """Return the input's static dimension that matches each of the run's, by the latter's name.

    They match by name; those of two plain static calendars whatever their names.
    """
    if len(upstream.statics) == len(run.statics) == 1 and not (upstream.order or run.order):
        return {run.statics[0].name: upstream.statics[0]}
    if not upstream.statics:
        return {}
    by_name = {axis.name: axis for axis in upstream.statics}
    return {axis.name: by_name[axis.name] for axis in run.statics if axis.name in by_name}


def _check_table(upstream: Calendar, run: Calendar, table: Mapping[str, tuple[str, ...]]) -> None:
    for key, reads in table.items():
        for calendar, texts in ((run, (key,)), (upstream, reads)):
            for text in texts:
                try:
                    parse(calendar, (text,))
                except MissingKeyError as error:
                    if calendar.time is None:
                        raise DeclarationError(
                            f"the map names a key that does not exist: {error}", hint=error.hint
                        ) from None
                except KeyFormatError as error:
                    raise DeclarationError(
                        f"the map names a wrong key: {error}", hint=error.hint
                    ) from None
    for axis in run.statics:
        _refuse_lacking(axis, table)


def _refuse_lacking(axis: StaticAxis, table: Mapping[str, Sequence[str]]) -> None:
    """Raise DeclarationError for run keys without a row: their runs would read nothing."""
    lacks = [key for key in axis.keys if key not in table]
    if lacks and not axis.runtime and EVERY not in table:
        raise DeclarationError(
            f"the map lacks {listed(lacks, 3)}: its run would read nothing",
            hint="Add what each run key reads; an empty list means nothing.",
        )
