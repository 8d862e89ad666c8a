"""Sets of partition keys as text: parsed from what a user writes, printed in maximal ranges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from lineage_backfill.errors import KeyFormatError, MissingKeyError, RangeError
from lineage_backfill.partitions.calendar import EVERY, Calendar, StaticAxis, TimeAxis
from lineage_backfill.partitions.keys import NOTHING, WHOLE, PartitionSet
from lineage_backfill.partitions.ordinals import EMPTY, POINT, OrdinalSet

#: A set of partition keys as FORMATS prints it: keys, `A..B` ranges (both ends included), or
#: boxes (`{"day": [...], "region": [...]}`) for product keys; `("*",)` for unpartitioned data.
KeySet = tuple[str | Mapping[str, Any], ...]

#: The parts of a range's start that its end need not repeat.
_REPEATED = tuple(
    map(
        re.compile,
        (r"\d{4}-\d\d-\d\d(?=T)", r"\d{4}-\d\d-(?=\d\d$)", r"\d{4}-(?=W|\d\d-\d\d(T|$))"),
    )
)


def parse_partitions(text: str) -> KeySet:
    """Split the value of `--partitions` by commas: keys, `A..B` ranges and `day=…/region=…`.

    Percent-encoding stands for `,`, `/`, `=` and `%` inside a value of a product key.
    """
    keys: list[str | Mapping[str, Any]] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if "=" not in part:
            keys.append(part)
            continue
        box: dict[str, list[str]] = {}
        for pair in part.split("/"):
            name, equals, value = pair.partition("=")
            if not equals or not name or name in box:
                raise KeyFormatError(
                    f"cannot read {part!r} as a product key",
                    hint="Write it as paths do: day=2024-06-15/region=eu.",
                )
            box[unquote(name)] = [unquote(value)]
        keys.append(box)
    if not keys:
        raise KeyFormatError("no partition key was given", hint="Write keys separated by commas.")
    return tuple(keys)


def render(calendar: Calendar, keys: PartitionSet) -> KeySet:
    """Return the set as sorted keys and maximal ranges, or as boxes for product keys."""
    if not keys.boxes:
        return ()
    if calendar.is_whole:
        return (EVERY,)
    if not calendar.order:
        ordinals, mask = keys.boxes[0]
        if calendar.time is not None:
            return tuple(ranges(calendar.time, ordinals))
        return calendar.statics[0].labels(mask)
    boxes: list[dict[str, list[str]]] = []
    for ordinals, mask in keys.boxes:
        times = list(ranges(calendar.time, ordinals)) if calendar.time else []
        for labels in calendar.boxes(mask):
            parts = {axis.name: list(k) for axis, k in zip(calendar.statics, labels, strict=True)}
            if calendar.time:
                parts[calendar.time.name] = times
            boxes.append({name: parts[name] for name in calendar.order})
    return tuple(sorted(boxes, key=lambda box: [box[name] for name in calendar.order]))


def runtime_keys(calendar: Calendar, keys: KeySet) -> Iterator[tuple[str, str]]:
    """Yield the keys that are named of each runtime dimension, with its name."""
    for axis in calendar.statics:
        for key in keys if axis.runtime else ():
            named = key if isinstance(key, Mapping) else {} if calendar.order else {axis.name: key}
            texts = named.get(axis.name, ())
            texts = (texts,) if isinstance(texts, str) else texts
            for text in texts:
                if ".." in str(text):
                    raise KeyFormatError(
                        f"{text} is a range, and the keys of {axis.name or 'this calendar'} have "
                        "no order",
                        hint="Name them: --partitions KEY,KEY.",
                    )
            yield from ((axis.name, str(text)) for text in texts if text != EVERY)


def as_text(key: str | Mapping[str, Any]) -> str:
    """Return a key, a range or a box of keys as one text."""
    if isinstance(key, str):
        return key
    return "/".join(f"{name}={','.join(keys)}" for name, keys in key.items())


def in_short(keys: KeySet) -> str:
    """Return the first range of a set, shortened, and how many more there are.

    >>> in_short(("2024-03-10T22..2024-03-10T23",)), in_short(("2024-03-10..2024-03-16",))
    ('2024-03-10T22..T23', '2024-03-10..16')
    >>> in_short(("2024-03-10T22..2024-03-11T00",)), in_short(("2023-12-31..2024-01-01",))
    ('2024-03-10T22..03-11T00', '2023-12-31..2024-01-01')
    >>> in_short(("2024-01..2024-03", "2024-05"))
    '2024-01..2024-03 +1'
    """
    if not keys or tuple(keys) == (EVERY,):
        return "whole" if keys else ""
    more = f" +{len(keys) - 1:,}" if len(keys) > 1 else ""
    text = as_text(keys[0])
    first, dots, last = text.partition("..")
    for form in _REPEATED if dots else ():
        start = form.match(first)
        if start is not None and last.startswith(start[0]):
            return f"{first}..{last[start.end() :]}{more}"
    return text + more


def ranges(axis: TimeAxis, ordinals: OrdinalSet) -> Iterator[str]:
    """Yield keys of a time axis as maximal ranges, both ends included."""
    label = axis.grid.label
    for first, last in ordinals.runs():
        yield label(first) if first == last else f"{label(first)}..{label(last)}"


def parse(
    calendar: Calendar, keys: KeySet | None, warn: Callable[[str], None] = lambda _: None
) -> PartitionSet:
    """Return the partitions that a user names as changed.

    A key counts once its interval has begun, complete or not; a range is clipped to such keys.
    Both cases call `warn`. Raises KeyFormatError, AmbiguousKeyError,
    MissingKeyError, RangeError.
    """
    if calendar.is_whole:
        if keys is None or (keys and all(one == EVERY for one in keys)):
            return WHOLE
        raise KeyFormatError("it is not partitioned and has no keys", hint="Leave the keys out.")
    if keys is None:
        raise KeyFormatError(
            "no changed partitions are named",
            hint="Name them with --from and --to, with --partitions, or as `partitions` in the file"
            " of --request.",
        )
    # Put together at the end: thousands of single keys are not united one by one.
    runs: dict[int, list[tuple[int, int]]] = {}
    time = None if calendar.order else calendar.time
    for item in keys:
        if time is not None and isinstance(item, str) and item != EVERY and ".." not in item:
            ordinal = _parse_key(time, item)
            runs.setdefault(1, []).append((ordinal, ordinal))
            continue
        for ordinals, mask in _parse_item(calendar, item, warn).boxes:
            runs.setdefault(mask, []).extend(ordinals.runs())
    result = PartitionSet.of((OrdinalSet.of_runs(found), mask) for mask, found in runs.items())
    if calendar.zoned and not (result := _begun(calendar, named := result)) and named:
        raise MissingKeyError("none of these keys has begun in its zone", hint="Name earlier ones.")
    _warn_incomplete(calendar, result, warn)
    return result


def _begun(calendar: Calendar, keys: PartitionSet) -> PartitionSet:
    """Return those of the keys that have begun, each in its own zone."""
    return PartitionSet.of(
        (ordinals.clip(axis.first, axis.begun), mask & held)
        for mask, axis in calendar.parts
        for ordinals, held in keys.boxes
    )


def _parse_item(calendar: Calendar, item: object, warn: Callable[[str], None]) -> PartitionSet:
    if isinstance(item, str):
        return _parse_plain(calendar, item, warn)
    if isinstance(item, Mapping):
        return _parse_box(calendar, item, warn)
    raise _no_key(item)


def _parse_plain(calendar: Calendar, item: str, warn: Callable[[str], None]) -> PartitionSet:
    if calendar.order:
        if item == EVERY:
            return calendar.existing
        if calendar.time and ".." in item:
            # --from and --to name the time dimension; every static key goes with it.
            return PartitionSet.of([(_parse_time(calendar.time, item, warn), calendar.full_mask)])
        path = "/".join(f"{name}=…" for name in calendar.order)
        box = ", ".join(f'"{name}": …' for name in calendar.order)
        raise KeyFormatError(
            f"{item!r} is not a key of a product",
            hint=f"On the command line, it is a path: {path}. In JSON, it is an object: {{{box}}}.",
        )
    if calendar.time is None:
        return PartitionSet.of([(POINT, calendar.statics[0].mask([item]))])
    found = _parse_time(calendar.time, item, warn)
    return PartitionSet(((found, 1),)) if found else NOTHING


def _parse_box(
    calendar: Calendar, item: Mapping[str, Any], warn: Callable[[str], None]
) -> PartitionSet:
    def values(name: str) -> Sequence[str]:
        value = item[name]
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list | tuple):
            raise _no_key(value)
        return [str(part) for part in value]

    if not item or set(item) != set(calendar.order):
        text = as_text({name: values(name) for name in item})
        if item and calendar.statics and not calendar.order:
            return _parse_plain(calendar, text, warn)  # a plain key with an `=` in it
        wanted = ", ".join(calendar.order) or "none: its keys are plain"
        raise KeyFormatError(
            f"the key {text or '{}'} does not name the dimensions of its calendar",
            hint=f"They are {wanted}.",
        )

    ordinals = POINT
    if calendar.time is not None:
        ordinals = EMPTY
        for text in values(calendar.time.name):
            ordinals |= _parse_time(calendar.time, text, warn)
    masks = [axis.mask(values(axis.name)) for axis in calendar.statics]
    return PartitionSet.of([(ordinals, calendar.combine(masks))])


def _no_key(value: object) -> KeyFormatError:
    return KeyFormatError(
        f"{value!r} is not a partition key", hint="A key is a text, or names its dimensions."
    )


def _parse_time(axis: TimeAxis, text: str, warn: Callable[[str], None]) -> OrdinalSet:
    grid = axis.grid
    if text == EVERY:
        return axis.existing
    from_text, dots, to_text = text.partition("..")
    if not dots:
        ordinal = _parse_key(axis, text)
        return OrdinalSet.range(ordinal, ordinal)
    first = grid.find(from_text)
    last = grid.find(to_text) if to_text else axis.last
    if to_text and last < first:
        raise RangeError(
            f"the range {text} ends before it begins", hint="Give the earlier key first."
        )
    if first > axis.begun:
        raise MissingKeyError(f"{text} lies after the newest key", hint=_bounds(axis))
    clipped = OrdinalSet.range(first, last).clip(axis.first, axis.begun)
    if len(clipped) < last - first + 1:
        kept = "..".join(grid.label(end) for end in (clipped.lo, clipped.hi)) if clipped else "none"
        warn(f"the range {text} was clipped to existing keys: {kept}")
    elif not clipped:
        warn(f"the range {text} contains no existing key. {_bounds(axis)}")
    return clipped


def _parse_key(axis: TimeAxis, text: str) -> int:
    found = axis.grid.find(text)
    if found > axis.begun or (axis.first is not None and found < axis.first):
        raise MissingKeyError(f"{text} does not exist", hint=_bounds(axis))
    return found


def _warn_incomplete(calendar: Calendar, keys: PartitionSet, warn: Callable[[str], None]) -> None:
    for part, axis in calendar.parts:
        if any(held & part and ordinals.hi > axis.complete for ordinals, held in keys.boxes):
            warn(f"{axis.grid.label(axis.begun)} is not complete yet")
            break


def _bounds(axis: TimeAxis) -> str:
    if axis.first is not None and axis.last < axis.first:
        return "No key of this calendar exists yet."
    newest = f"newest key is {axis.grid.label(axis.last)}."
    if axis.first is None:
        return f"The {newest}"
    return f"The first key is {axis.grid.label(axis.first)}, and the {newest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One partition key with the values for its physical columns.

    `label` is a text, or a mapping by dimension for product keys. `start` and `end` (half-open)
    are aware and in UTC, `local` is the wall clock at the start; all None without a time dimension.
    `statics` holds the key of each static dimension by its name.
    """

    label: str | Mapping[str, str]
    time_label: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    local: datetime | None = None
    statics: Mapping[str, str]


def expand(calendar: Calendar, keys: PartitionSet) -> Iterator[Key]:
    """Yield every key of the set, ascending in time."""
    names = [axis.name for axis in calendar.statics]
    parts = calendar.parts or ((calendar.full_mask, None),)
    for ordinals, mask in keys.boxes:
        combinations = [
            (axis, dict(zip(names, combination, strict=True)))
            for part, axis in parts
            for labels in calendar.boxes(mask & part)
            for combination in _product(labels)
        ]
        for ordinal in ordinals:
            for axis, statics in combinations:
                yield _key(calendar, axis, ordinal, statics)


def _key(
    calendar: Calendar, axis: TimeAxis | None, ordinal: int, statics: Mapping[str, str]
) -> Key:
    if axis is None:
        plain = next(iter(statics.values()), EVERY)
        return Key(label=dict(statics) if calendar.order else plain, statics=statics)
    grid = axis.grid
    time_label = grid.label(ordinal)
    label: str | Mapping[str, str] = time_label
    if calendar.order:
        label = {
            name: time_label if name == axis.name else statics[name] for name in calendar.order
        }
    return Key(
        label=label,
        time_label=time_label,
        start=datetime.fromtimestamp(grid.start(ordinal), UTC),
        end=datetime.fromtimestamp(grid.end(ordinal), UTC),
        local=grid.local_start(ordinal),
        statics=statics,
    )


def _product(labels: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    if not labels:
        yield ()
        return
    for key in labels[0]:
        for rest in _product(labels[1:]):
            yield (key, *rest)


def static_axis(name: str, keys: Sequence[str], *, runtime: bool = False) -> StaticAxis:
    """Return the axis of the given keys, sorted; a runtime one gets `*` as its last."""
    unique = tuple(sorted(set(keys)))
    return StaticAxis(name=name, keys=(*unique, EVERY) if runtime else unique, runtime=runtime)
