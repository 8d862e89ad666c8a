"""The time intervals of a plan's keys, job by job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import KeySet, parse
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Plan

#: A half-open interval in seconds since 1970-01-01T00:00Z.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """The intervals of a job's planned keys and of those left stale; none for keys without time."""

    planned: tuple[Span, ...] = ()
    left: tuple[Span, ...] = ()


def timeline(resolver: Resolver, plan: Plan) -> Mapping[JobRef, Spans]:
    """Return the intervals of each job that the plan runs or leaves stale, in order."""
    found = {}
    for job in plan.jobs:
        calendar = resolver.job(job.job).calendar
        if calendar is not None and (job.partitions or job.left_stale):
            found[job.job] = Spans(
                planned=spans(calendar, job.partitions),
                left=spans(calendar, job.left_stale),
            )
    return found


def counts(
    resolver: Resolver, named: Iterable[tuple[DatasetRef | JobRef, KeySet | None]]
) -> Mapping[DatasetRef | JobRef, int]:
    """Return the number of keys of each set that has a calendar."""
    found: dict[DatasetRef | JobRef, int] = {}
    for ref, keys in named:
        facts = resolver.job(ref) if isinstance(ref, JobRef) else resolver.dataset(ref)
        if keys is not None and facts.calendar is not None and not facts.calendar.is_whole:
            with suppress(UsageError):  # a saved plan may name keys that no longer exist
                found[ref] = len(parse(facts.calendar, keys))
    return found


def spans(calendar: Calendar | None, keys: KeySet) -> tuple[Span, ...]:
    """Return the intervals of keys; none for keys without time."""
    if calendar is None or calendar.time is None or not keys:
        return ()
    grid = calendar.time.grid
    runs = parse(calendar, keys).ordinals.runs()
    return tuple((grid.start(first), grid.start(last + 1)) for first, last in runs)
