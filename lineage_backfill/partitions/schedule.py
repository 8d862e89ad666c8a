"""Which keys a run covers: the given ones, or those of its schedule or the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lineage_backfill.errors import MissingKeyError, UsageError
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.grid import Grid
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.ordinals import OrdinalSet

#: Returns the run calendar of a job as it is at an instant, in seconds since 1970.
CalendarAt = Callable[[int], Calendar]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """The arguments of a run at the instant `now`; without any, it runs the newest key.

    `keys` names its keys, `interval` is a data interval (after, until], `schedule` the firings of
    the job where it collects the keys since the firing before. `exact` adds neither those nor the
    keys of a lookback. Instants are seconds since 1970.
    """

    now: int
    keys: PartitionSet | None = None
    interval: tuple[int, int] | None = None
    schedule: Grid | None = None
    exact: bool = False


def run_keys(calendar_at: CalendarAt, start: RunStart, *, lookback: int = 0) -> PartitionSet:
    """Return the keys that a run covers, possibly none.

    They are its own keys, the `lookback` existing ones before each of those, and the keys that
    came to exist since the firing before. Without `keys` and `interval` its own key is the newest
    one: of now, or of the last firing, so that a late attempt covers the same keys.
    Raises UsageError for static keys without a name, MissingKeyError where none exists yet.
    """
    gaps = NOTHING
    if start.keys is not None:
        own = start.keys
    elif start.interval is not None:
        own = _appeared(calendar_at, *start.interval)
    elif start.schedule is not None:
        after, until = previous_firings(start.schedule, start.now)
        own = newest_key(calendar_at(until))
        gaps = _appeared(calendar_at, after, until)
    else:
        own = newest_key(calendar_at(start.now))
    if start.exact:
        return own
    calendar = calendar_at(start.now)
    if lookback and calendar.time is not None:
        gaps |= calendar.clip(own.map_time(lambda ordinals: ordinals.dilate(lookback, 0)))
    return own | gaps


def newest_key(calendar: Calendar) -> PartitionSet:
    """Return the newest key that exists: the last complete period, less `data_lag`.

    Raises UsageError for static keys, which have no newest one, MissingKeyError where none exists.
    """
    time = calendar.time
    if time is None:
        if all(axis.runtime for axis in calendar.statics):  # `*`, or unpartitioned
            return calendar.existing
        raise UsageError("static keys have no newest one", hint="Name the key.")
    if time.first is not None and time.last < time.first:
        raise MissingKeyError("no key of this calendar exists yet", hint="Wait for the first one.")
    return PartitionSet.of(
        (OrdinalSet.range(axis.last, axis.last), mask) for mask, axis in calendar.parts
    )


def previous_firings(schedule: Grid, now: int) -> tuple[int, int]:
    """Return the instants of the last two firings at or before `now`."""
    last = schedule.at(now)
    return schedule.start(last - 1), schedule.start(last)


def _appeared(calendar_at: CalendarAt, after: int, until: int) -> PartitionSet:
    """Return the keys that came to exist in (after, until]; the newest one if both are one."""
    if after > until:
        raise UsageError("the data interval ends before it begins", hint="Swap its ends.")
    calendar = calendar_at(until)
    if after == until or calendar.time is None:
        return newest_key(calendar)
    return calendar.existing - calendar_at(after).existing
