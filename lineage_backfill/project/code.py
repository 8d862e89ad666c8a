"""What the code of a project declares, joined with its file: the file adds to it.

A code document holds the tables that `@job` functions and SQL headers mean, as a project file
would. An exact table of the file comes first, then the code, then the first glob.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project import reader
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.matching import DeclaredNames, named_dataset

Declared = TypeVar(
    "Declared", DatasetDeclaration, JobDeclaration, ReadDeclaration, WriteDeclaration
)
Edge = TypeVar("Edge", ReadDeclaration, WriteDeclaration)
#: Attributes that hold together: the first place that states one of them states all.
_GROUPS: Final = (
    ("calendar", "dimensions"),
    ("mapping", "before", "after", "by", "map", "function", "dimensions"),
    ("location", "table"),
    ("mode",),
)
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
    names = DeclaredNames(declarations)
    home = declarations.namespace
    jobs = {(one.namespace, one.name): one for one in declarations.jobs}
    by_entrypoint = {one.entrypoint: one for one in declarations.jobs if not is_glob(one.name)}
    for one in given:
        coded = replace(
            one,
            reads=tuple(_named(edge, known) for edge in one.reads),
            writes=tuple(_named(edge, known) for edge in one.writes),
        )
        table = by_entrypoint.get(one.entrypoint) or jobs.get((None, one.name))
        if table is None and not listed:
            continue
        if table is None:
            glob = names.jobs.find(JobRef(home or "default", one.name))
            found = coded if glob is None else _over(coded, glob, "name", "namespace")
        else:
            found = replace(
                _over(table, coded, "name", "namespace"),
                reads=_edges(table.reads, coded.reads, home),
                writes=_edges(table.writes, coded.writes, home),
            )
        if jobs.get((found.namespace, found.name)) not in (table, None):
            raise DeclarationError(
                f"{_PLACE} has two jobs named {found.name}: {one.entrypoint} and "
                f"{jobs[found.namespace, found.name].entrypoint}",
                hint="Rename one, or give it another name in a [[job]] with its entrypoint.",
            )
        jobs[found.namespace, found.name] = found
    datasets = {(one.namespace, one.name): one for one in declarations.datasets}
    for coded_data in data:
        key = (coded_data.namespace, coded_data.name)
        own = datasets.get(key)
        glob_data = names.datasets.find(DatasetRef(home or "default", coded_data.name))
        if own is not None:
            datasets[key] = _over(own, coded_data, "name", "namespace")
        elif glob_data is not None:
            datasets[key] = _over(coded_data, glob_data, "name", "namespace")
        else:
            datasets[key] = coded_data
    return replace(declarations, datasets=tuple(datasets.values()), jobs=tuple(jobs.values()))


def _named(edge: Edge, known: Declarations) -> Edge:
    """Return an edge with the name that its text means in this project."""
    ref = named_dataset(known, edge.dataset)
    return replace(edge, dataset=ref.name, namespace=ref.namespace)


def _edges(own: Iterable[Edge], coded: Iterable[Edge], home: str | None) -> tuple[Edge, ...]:
    """Return the edges of a table over those of the code."""
    below = {(edge.namespace or home, edge.dataset): edge for edge in coded}
    edges: dict[tuple[str | None, str], Any] = {
        (edge.namespace or home, edge.dataset): edge for edge in own
    }
    for key, edge in below.items():
        edges[key] = _over(edges[key], edge, "dataset", "namespace") if key in edges else edge
    return tuple(edges.values())


def _over(first: Declared, below: Declared, *own: str) -> Declared:
    """Return a declaration with the attributes of another one where it states none itself."""
    plain = {one.name: one.default for one in fields(first)} | {
        one.name: one.default_factory() for one in fields(first) if callable(one.default_factory)
    }
    states = {name for name in plain if getattr(first, name) != plain[name]} | set(own)
    for group in _GROUPS:
        if states & set(group):
            states |= set(group)
    taken = {name: getattr(below, name) for name in plain if name not in states}
    return replace(first, **taken)
