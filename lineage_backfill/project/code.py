"""What the code of a project declares, joined with its file: the file adds to it.

A code document holds the tables that `@job` functions and SQL headers mean, as a project file
would. An exact table of the file comes first, then the code, then the first glob.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from lineage_backfill.errors import DeclarationError
from lineage_backfill.project import reader
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.matching import named_dataset
from lineage_backfill.project.merge import merged

Declared = TypeVar(
    "Declared", DatasetDeclaration, JobDeclaration, ReadDeclaration, WriteDeclaration
)
Edge = TypeVar("Edge", ReadDeclaration, WriteDeclaration)
_PLACE: Final = "the code"


def entries(declarations: Declarations, jobs: Iterable[str], *, alone: bool) -> tuple[str, ...]:
    """Return the modules and SQL files to read: those listed, and those of entrypoints if `alone`.

    A project is alone without a lineage source.
    """
    points = (job.entrypoint or "" for job in declarations.jobs if alone)
    named = (point if point.endswith(".sql") else point.partition(":")[0] for point in points)
    return tuple(dict.fromkeys((*jobs, *(one for one in named if one and not one.endswith(".py")))))


def with_code(
    declarations: Declarations, document: Mapping[str, Any], base: Path, *, listed: bool = True
) -> Declarations:
    """Return the declarations joined with a code document; `base` is the folder of the code.

    Without `listed`, jobs count only where a table of the file has their entrypoint. Raises
    DeclarationError where two functions are one job.
    """
    engines = {one.name for one in declarations.engines}
    given = reader.jobs(document.get("job"), _PLACE, engines=engines, pools=declarations.pools)
    data = reader.datasets(document.get("dataset"), _PLACE, base)
    known = replace(declarations, datasets=(*declarations.datasets, *data))
    coded = [
        replace(
            one,
            reads=tuple(_named(edge, known) for edge in one.reads),
            writes=tuple(_named(edge, known) for edge in one.writes),
        )
        for one in given
    ]
    return joined(declarations, coded, data, listed=listed)


def joined(
    declarations: Declarations,
    coded: Iterable[JobDeclaration],
    data: Iterable[DatasetDeclaration],
    *,
    listed: bool = True,
) -> Declarations:
    """Return the declarations of a project file over those of the code: exact tables state more.

    Without `listed`, jobs count only where a table of the file has their entrypoint.
    """
    home = declarations.namespace or "default"
    jobs = {(one.namespace or home, one.name): one for one in declarations.jobs}
    by_entrypoint = {one.entrypoint: one for one in declarations.jobs if not is_glob(one.name)}
    for one in coded:
        named = jobs.get((one.namespace or home, one.name))
        table = (one.entrypoint and by_entrypoint.get(one.entrypoint)) or named
        if table is None and not listed:
            continue
        place = f"the code ({one.entrypoint or one.name})"
        found = replace(one, sources=((place, one),))
        if table is not None:
            sources = ((f'[[job]] "{table.name}"', table), (place, one))
            found = replace(merged((table, one)), sources=sources)
        key = (found.namespace or home, found.name)
        if jobs.get(key) not in (table, None):
            raise DeclarationError(
                f"{_PLACE} has two jobs named {found.name}: {one.entrypoint} and "
                f"{jobs[key].entrypoint}",
                hint="Rename one, or give it another name in a [[job]] with its entrypoint.",
            )
        jobs[key] = found
    datasets = _joined_datasets(declarations.datasets, data, home)
    return replace(declarations, datasets=datasets, jobs=tuple(jobs.values()))


def _joined_datasets(
    filed: Iterable[DatasetDeclaration], coded: Iterable[DatasetDeclaration], home: str
) -> tuple[DatasetDeclaration, ...]:
    found = {(one.namespace or home, one.name): one for one in filed}
    for each in coded:
        key = (each.namespace or home, each.name)
        table = found.get(key)
        found[key] = replace(each, sources=((_PLACE, each),))
        if table is not None:
            both = ((f'[[dataset]] "{table.name}"', table), (_PLACE, each))
            found[key] = replace(merged((table, each)), sources=both)
    return tuple(found.values())


def _named(edge: Edge, known: Declarations) -> Edge:
    """Return an edge with the name that its text means in this project."""
    ref = named_dataset(known, edge.dataset)
    space = None if ref.namespace == known.namespace else ref.namespace
    return replace(edge, dataset=ref.name, namespace=space)
