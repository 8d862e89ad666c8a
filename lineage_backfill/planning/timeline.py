"""The time intervals of keys, and the number of keys of a set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import KeySet, parse
from lineage_backfill.planning.lookup import Resolver

#: A half-open interval in seconds since 1970-01-01T00:00Z.
Span = tuple[int, int]


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
    return tuple(calendar.time.grid.spans(parse(calendar, keys).ordinals))
