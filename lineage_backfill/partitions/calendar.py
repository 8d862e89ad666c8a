"""Calendars: which partition keys of a dataset exist at one time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from itertools import product
from math import prod

from lineage_backfill.errors import MissingKeyError
from lineage_backfill.model import listed
from lineage_backfill.partitions.grid import Grid
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.ordinals import POINT, OrdinalSet

#: The label of the one key of unpartitioned data, and of every key of a runtime dimension.
EVERY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """A time dimension: its grid, and the ordinals of the keys that exist.

    `first` None means unbounded below; none exist where `last` lies before `first`. `complete` is
    the newest key whose interval has ended, `begun` the newest whose interval has begun, both
    no later than the declared end, and `has_ended` tells whether that has passed.
    """

    name: str
    grid: Grid
    first: int | None
    last: int
    complete: int
    begun: int
    has_ended: bool = False

    @property
    def floor(self) -> int:
        """The first ordinal; where the axis is unbounded, that of 1970."""
        return self.first if self.first is not None else self.grid.at(0)

    @property
    def existing(self) -> OrdinalSet:
        """The ordinals that exist; where the axis is unbounded, from 1970 on."""
        return OrdinalSet.range(self.floor, self.last)


@dataclass(frozen=True, kw_only=True)
class StaticAxis:
    """A dimension of given keys; a runtime one also holds `*`, present and future keys."""

    name: str
    keys: tuple[str, ...]
    runtime: bool = False

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The position of each key."""
        return {key: position for position, key in enumerate(self.keys)}

    @property
    def full(self) -> int:
        """The mask of all keys."""
        return (1 << len(self.keys)) - 1

    def mask(self, keys: Sequence[str]) -> int:
        """Return the mask of the keys; raises MissingKeyError for one that does not exist."""
        mask = 0
        for key in keys:
            if key == EVERY:
                return self.full
            position = self.index.get(key)
            if position is None:
                raise MissingKeyError(
                    f"{key!r} is not a key of {self.name or 'this calendar'}",
                    hint="its keys are " + listed(self.keys, 8),
                )
            mask |= 1 << position
        return mask

    def labels(self, mask: int) -> tuple[str, ...]:
        """Return the keys in a mask, sorted; only `*` where a runtime axis' mask holds it."""
        if self.runtime and mask >> (len(self.keys) - 1) & 1:
            return (EVERY,)
        return tuple(sorted([self.keys[position] for position in OrdinalSet.of_mask(mask)]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Calendar:
    """The keys of one dataset or job: at most one time dimension and any number of static ones.

    `order` names the dimensions of a product as declared; it is empty for a calendar whose keys
    are plain strings. Where static keys have zones of their own, `zoned` has the combinations of
    each zone with its time axis, and `time` stands for all of them.
    """

    time: TimeAxis | None = None
    statics: tuple[StaticAxis, ...] = ()
    order: tuple[str, ...] = ()
    zone: str = "UTC"
    zoned: tuple[tuple[int, TimeAxis], ...] = ()

    @cached_property
    def parts(self) -> tuple[tuple[int, TimeAxis], ...]:
        """The combinations of static keys that share a time axis, with it; none without time."""
        return self.zoned or (() if self.time is None else ((self.full_mask, self.time),))

    @cached_property
    def is_whole(self) -> bool:
        """Whether the data is unpartitioned."""
        return self.time is None and not self.statics

    @property
    def bounded(self) -> bool:
        """Whether the set of all keys can be listed."""
        return self.time is None or self.time.first is not None

    @cached_property
    def combinations(self) -> int:
        """The number of combinations of static keys."""
        return prod(len(axis.keys) for axis in self.statics)

    @cached_property
    def full_mask(self) -> int:
        """The mask of all combinations of static keys."""
        return (1 << self.combinations) - 1

    @cached_property
    def existing(self) -> PartitionSet:
        """All keys that exist; from 1970 on where the calendar is unbounded below."""
        if self.time is None:
            return self.full(POINT)
        return PartitionSet.of((axis.existing, mask) for mask, axis in self.parts)

    def full(self, ordinals: OrdinalSet) -> PartitionSet:
        """Return every combination of static keys at these ordinals."""
        return PartitionSet.of([(ordinals, self.full_mask)])

    def clip(self, keys: PartitionSet, *, begun: bool = False) -> PartitionSet:
        """Return the keys of the set that exist; where `*` is one, all that it stands for.

        With `begun` also newer ones whose interval has begun.
        """
        time = self.time
        if self.is_open:
            keys = self._opened(keys)
        if time is None or not keys.boxes:
            return keys
        if self.zoned:
            return PartitionSet.of(
                (
                    held.clip(axis.first, max(axis.last, axis.begun) if begun else axis.last),
                    mask & m,
                )
                for mask, axis in self.zoned
                for held, m in keys.boxes
            )
        last = max(time.last, time.begun) if begun else time.last
        return keys.map_time(lambda ordinals: ordinals.clip(time.first, last))

    def with_earlier(self, keys: PartitionSet, count: int) -> PartitionSet:
        """Return each key and up to `number` existing ones before it: what lookback corrects."""
        return self.dilate(keys, count, 0)

    def dilate(self, keys: PartitionSet, back: int, ahead: int) -> PartitionSet:
        """Return the keys of k-back .. k+ahead that exist, for each key k."""
        if not (back or ahead) or not keys.boxes or self.time is None:
            return keys
        return self.clip(keys.map_time(lambda ordinals: ordinals.dilate(back, ahead)))

    def onward(self, keys: PartitionSet) -> PartitionSet:
        """Return the existing keys from the first of these on, whatever their other dimensions."""
        time = self.time
        if not keys.boxes or time is None:
            return self.existing if keys.boxes else keys
        first = keys.ordinals.lo
        return self.existing.map_time(lambda ordinals: ordinals.clip(first, time.last))

    @cached_property
    def is_open(self) -> bool:
        """Whether a dimension has runtime keys, so that more keys may appear."""
        return any(axis.runtime for axis in self.statics)

    def _opened(self, keys: PartitionSet) -> PartitionSet:
        """Return the set with every `*` expanded to present and future keys."""
        return PartitionSet.of((ordinals, self._open(mask)) for ordinals, mask in keys.boxes)

    def _open(self, mask: int) -> int:
        for (stars, steps), axis in zip(self._stars, self.statics, strict=True):
            every = mask & stars
            for position in range(len(axis.keys) if every else 0):
                mask |= every >> position * steps
        return mask

    @cached_property
    def _stars(self) -> tuple[tuple[int, int], ...]:
        """The combinations with the `*` of each static axis, and how far its keys are apart."""
        found = []
        steps = self.combinations
        for number, axis in enumerate(self.statics):
            steps //= len(axis.keys)
            masks = [other.full for other in self.statics]
            masks[number] = 1 << len(axis.keys) - 1 if axis.runtime else 0
            found.append((self.combine(masks), steps))
        return tuple(found)

    def with_star(self, keys: PartitionSet, planned: PartitionSet) -> PartitionSet:
        """Return the keys, and those that a planned run of `*` covers with any of them."""
        if not self.is_open:
            return keys
        stars = PartitionSet.of((ordinals, self._stars_of(mask)) for ordinals, mask in keys.boxes)
        return keys | self._opened(stars & planned)

    def _stars_of(self, mask: int) -> int:
        """Return the combinations with `*` in place of any runtime keys."""
        for (stars, steps), axis in zip(self._stars, self.statics, strict=True):
            for position in range(len(axis.keys)):
                mask |= mask << position * steps & stars
        return mask

    def chunks(self, keys: PartitionSet, most: int) -> Iterator[PartitionSet]:
        """Yield sets of at most so many keys; `*` counts as one, with all that it stands for.

        Single keys are yielded ascending in time.
        """
        if not self.is_open:
            return keys.singles() if most == 1 else keys.chunks(most)
        units = [
            PartitionSet(((ordinals, part),)).chunks(most * part.bit_count())
            for piece in self.by_time(keys)
            for ordinals, mask in piece.boxes
            for part in self._units(mask)
        ]
        return merge(*units, key=lambda chunk: chunk.ordinals.lo)

    def count(self, keys: PartitionSet) -> int:
        """Return the number of keys; `*` counts as one, including its expansion."""
        if not self.is_open:
            return len(keys)
        boxes = (box for piece in self.by_time(keys) for box in piece.boxes)
        return sum(len(ordinals) * len(self._units(mask)) for ordinals, mask in boxes)

    def by_time(self, keys: PartitionSet) -> Iterable[PartitionSet]:
        """Return sets of one box that share no time, so that `*` stands with all that it is.

        Without runtime keys that is the set itself.
        """
        if not self.is_open or len(keys.boxes) < 2:
            return (keys,) if keys.boxes else ()
        pieces: dict[int, OrdinalSet] = {0: keys.ordinals}
        for ordinals, mask in keys.boxes:
            parts: dict[int, OrdinalSet] = {}
            for held, some in pieces.items():
                for wider, part in ((held | mask, some & ordinals), (held, some - ordinals)):
                    if part:
                        parts[wider] = parts.get(wider, part) | part
            pieces = parts
        return [PartitionSet(((ordinals, mask),)) for mask, ordinals in pieces.items()]

    def _units(self, mask: int) -> list[int]:
        return [
            self.combine(
                [
                    axis.full if axis.runtime and key == EVERY else 1 << axis.index[key]
                    for axis, key in zip(self.statics, keys, strict=True)
                ]
            )
            for labels in self.boxes(mask)
            for keys in product(*labels)
        ]

    def combine(self, masks: Sequence[int]) -> int:
        """Return the mask of combinations whose key on each static axis lies in that axis' mask."""
        result = 1
        for axis, mask in zip(self.statics, masks, strict=True):
            size, widened = len(axis.keys), 0
            while result:
                low = result & -result
                widened |= mask << (low.bit_length() - 1) * size
                result ^= low
            result = widened
        return result

    def boxes(self, mask: int) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """Return a mask of combinations as boxes of key labels, one tuple for each static axis."""
        return tuple(_split(mask, self.statics))


def _split(mask: int, axes: Sequence[StaticAxis]) -> Iterator[tuple[tuple[str, ...], ...]]:
    if not axes:
        yield ()
        return
    first, rest = axes[0], axes[1:]
    size = prod(len(axis.keys) for axis in rest)
    rows: dict[int, int] = {}
    while mask:
        position = ((mask & -mask).bit_length() - 1) // size
        row = mask >> position * size & (1 << size) - 1
        rows[row] = rows.get(row, 0) | 1 << position
        mask ^= row << position * size
    for row, positions in rows.items():
        for tail in _split(row, rest):
            yield (first.labels(positions), *tail)
