"""Runtime keys that declarations and named run keys tell, by the name of their dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import KeySet, runtime_keys
from lineage_backfill.project.declarations import Declarations, ReadDeclaration
from lineage_backfill.project.resolve.resolver import DeclarationResolver

KnownKeys = dict[str, set[str]]


def declared_keys(declarations: Declarations, sent: Iterable[ReadDeclaration] = ()) -> KnownKeys:
    """Return the static keys that are declared, by the name of their dimension or column.

    Those that the maps of reads name count too, also of reads that are `sent` with the lineage.
    """
    known: KnownKeys = {}
    named = [declared.dimensions for declared in declarations.datasets]
    named += [declared.dimensions for declared in declarations.jobs]
    for dimension in chain.from_iterable(named):
        if isinstance(dimension.calendar.keys, tuple):
            known.setdefault(dimension.name, set()).update(dimension.calendar.keys)
    for declared in declarations.datasets:
        if declared.calendar is not None and isinstance(declared.calendar.keys, tuple):
            for column in declared.named_columns:
                known.setdefault(column, set()).update(declared.calendar.keys)
    reads: list[ReadDeclaration] = [
        *(read for job in declarations.jobs for read in job.reads),
        *sent,
    ]
    for read in reads:
        for name, part in read.dimensions.items():
            known.setdefault(name, set()).update(_mapped(part.map))
        for name in _plain_names(declarations) if read.map else ():
            known.setdefault(name, set()).update(_mapped(read.map))
    return known


def _mapped(table: Mapping[str, Iterable[str]]) -> Iterable[str]:
    return chain(table, *table.values())


def _plain_names(declarations: Declarations) -> set[str]:
    """Return the names of dimensions that a map without a dimension may be of."""
    parts = [one.dimensions for one in declarations.datasets]
    parts += [one.dimensions for one in declarations.jobs]
    columns = (column for one in declarations.datasets for column in one.named_columns)
    return {"", *columns, *(dimension.name for dimension in chain.from_iterable(parts))}


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
