"""Runtime keys that declarations and named run keys tell, by the name of their dimension."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import KeySet, runtime_keys
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.project.resolver import DeclarationResolver

KnownKeys = dict[str, set[str]]


def declared_keys(declarations: Declarations) -> KnownKeys:
    """Return the static keys that are declared, by the name of their dimension or column."""
    known: KnownKeys = {}
    named = [declared.dimensions for declared in declarations.datasets]
    named += [declared.dimensions for declared in declarations.jobs]
    for dimension in chain.from_iterable(named):
        if isinstance(dimension.calendar.keys, tuple):
            known.setdefault(dimension.name, set()).update(dimension.calendar.keys)
    for declared in declarations.datasets:
        if declared.calendar is not None and isinstance(declared.calendar.keys, tuple):
            for column in declared.columns:
                known.setdefault(column, set()).update(declared.calendar.keys)
    return known


def add_run(
    known: KnownKeys,
    keys: KeySet | None,
    job: JobRef,
    writes: Iterable[DatasetRef],
    resolver: DeclarationResolver,
) -> None:
    """Add the keys of a run of a job: those of its run calendar and of its outputs."""
    if keys:
        for calendar in (resolver.stated_calendar(job), *map(resolver.calendar, writes)):
            add(known, keys, calendar)


def add(known: KnownKeys, keys: KeySet | None, calendar: Calendar | None) -> None:
    """Add the named keys of the runtime dimensions of a calendar."""
    for name, key in runtime_keys(calendar, keys) if calendar and keys else ():
        known.setdefault(name, set()).add(key)
