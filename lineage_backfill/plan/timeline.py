"""Where the keys of a plan lie in time, job by job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lineage_backfill.model import JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import KeySet, parse
from lineage_backfill.plan.catalog import Catalog
from lineage_backfill.plan.plan import Plan

#: A half-open interval in seconds since 1970-01-01T00:00Z.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """The intervals of a job's planned keys and of those left stale; none for keys without time."""

    planned: tuple[Span, ...] = ()
    left: tuple[Span, ...] = ()


def timeline(catalog: Catalog, plan: Plan) -> Mapping[JobRef, Spans]:
    """Return the intervals of each job that the plan runs or leaves stale, in its order."""
    found = {}
    for job in plan.jobs:
        calendar = catalog.job(job.job).calendar
        if calendar is not None and (job.partitions or job.left_stale):
            found[job.job] = Spans(
                planned=tuple(_spans(calendar, job.partitions)),
                left=tuple(_spans(calendar, job.left_stale)),
            )
    return found


def _spans(calendar: Calendar, keys: KeySet) -> Iterator[Span]:
    if calendar.time is not None and keys:
        grid = calendar.time.grid
        for first, last in parse(calendar, keys).ordinals.runs():
            yield grid.start(first), grid.start(last + 1)
