"""Coverage: whether one run key writes whole partitions of an output, or parts."""

from __future__ import annotations

from lineage_backfill.partitions.calendar import EVERY, Calendar, StaticAxis
from lineage_backfill.partitions.grid import refines
from lineage_backfill.partitions.mapping import StaticRelation, paired_axes, same_key


def covers(run: Calendar, output: Calendar) -> bool:
    """Whether one run key writes every output partition that it touches completely.

    Judged by periods and labels alone: which keys exist now plays no part.
    """
    if run is output:
        return True
    pairs = paired_axes(output, run)
    relation = StaticRelation(output, run, pairs, {}) if run.zoned or output.zoned else None
    for mask, mine in run.parts:
        if output.time is None:
            return False
        around = mine.grid.start(mine.last)
        made = output.full_mask if relation is None else relation.required(mask)
        for held, theirs in output.parts:
            if made & held and not refines(theirs.grid, mine.grid, around):
                return False
    return all(axis.name in pairs and _are_distinct(axis, pairs[axis.name]) for axis in run.statics)


def _are_distinct(axis: StaticAxis, output: StaticAxis) -> bool:
    """Whether no two keys of a run dimension write the same key of the output."""
    made = 0
    for key in axis.keys:
        if axis.runtime and key == EVERY:
            continue  # its run writes what all the others would
        mask = same_key(axis, key, output)
        if made & mask:
            return False
        made |= mask
    return True
