"""Which keys a run means that was started without any: by its schedule or by the clock."""

from __future__ import annotations

from lineage_backfill.errors import MissingKeyError, UsageError
from lineage_backfill.partitions.calendar import Calendar, TimeAxis
from lineage_backfill.partitions.grid import Grid
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.ordinals import OrdinalSet


def latest_key(calendar: Calendar) -> PartitionSet:
    """Return the newest key that exists: the last complete period, less `data_lag`.

    Raises UsageError for static keys, which have no latest one, MissingKeyError where none exists.
    """
    time = calendar.time
    if time is None:
        raise UsageError("static keys have no latest one", hint="name the key")
    if time.first is not None and time.last < time.first:
        raise MissingKeyError("no key of this calendar exists yet", hint="wait for the first one")
    return PartitionSet.of([(OrdinalSet.range(time.last, time.last), calendar.full_mask)])


def scheduled_keys(
    calendar: Calendar,
    key: PartitionSet,
    *,
    schedule: Grid | None = None,
    lookback: int = 0,
    exact: bool = False,
) -> PartitionSet:
    """Return the keys that a scheduled run of `key` covers.

    With a `schedule` (the grid of its cron expression) they include the keys since the firing
    before: Monday's run of a Monday-to-Friday schedule covers Saturday, Sunday and Monday. With
    `lookback` n they include the n keys before. `exact` switches both off. A run that was started
    with explicit keys gets no schedule here, so that its gaps are not filled.
    """
    time = calendar.time
    if time is None or exact or not key:
        return key
    boxes = ((_covered(time, ordinals, schedule, lookback), mask) for ordinals, mask in key.boxes)
    return calendar.clip(PartitionSet.of(boxes))


def _covered(
    time: TimeAxis, ordinals: OrdinalSet, schedule: Grid | None, lookback: int
) -> OrdinalSet:
    covered = ordinals.dilate(lookback, 0)
    if schedule is None:
        return covered
    for ordinal in ordinals:
        before = schedule.at(time.grid.start(ordinal) - 1)
        previous = time.grid.at(schedule.start(before))
        covered |= OrdinalSet.range(previous + 1, ordinal)
    return covered
