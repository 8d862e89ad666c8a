"""The run keys of a recorded run, from its partition key or nominal time."""

from __future__ import annotations

from math import ceil

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import parse, parse_partitions


def touched_keys(record: ObservedRun, calendar: Calendar) -> PartitionSet:
    """Return the possible keys of a recorded run; all of them if it does not record any."""
    if record.partition_key:
        try:
            return parse(calendar, parse_partitions(record.partition_key))
        except UsageError:
            return calendar.existing
    time, start, end = calendar.time, record.nominal_start, record.nominal_end
    if time is None or start is None:
        return calendar.existing
    first = int(start.timestamp())
    last = max(first, int(end.timestamp()) - 1) if end else first
    covered = OrdinalSet.range(*time.grid.touching(first, last + 1))
    return PartitionSet.of([(covered, calendar.full_mask)])


def whole_keys(record: ObservedRun, calendar: Calendar) -> PartitionSet:
    """Return the keys that a recorded run covered completely; none if unclear.

    The nominal time of a run of one hour does not cover the day of that hour.
    """
    if calendar.is_whole and record.nominal_start is None and not record.partition_key:
        return calendar.existing
    if record.partition_key:
        try:
            return parse(calendar, parse_partitions(record.partition_key))
        except UsageError:
            return NOTHING
    time, start, end = calendar.time, record.nominal_start, record.nominal_end
    if time is None or start is None or end is None or calendar.statics:
        return NOTHING
    covered = time.grid.within(ceil(start.timestamp()), int(end.timestamp()))
    return PartitionSet.of([(OrdinalSet.range(*covered), calendar.full_mask)])
