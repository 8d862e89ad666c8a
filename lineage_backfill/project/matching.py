"""Finds the declaration for a name: an exact name beats a glob, the first glob wins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import translate
from functools import lru_cache
from glob import escape
from json import dumps
from typing import Any, Generic, Protocol, TypeVar

from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.merge import merged, merged_edge

Edge = TypeVar("Edge", ReadDeclaration, WriteDeclaration)
D = TypeVar("D", DatasetDeclaration, JobDeclaration, ReadDeclaration, WriteDeclaration)


def heading(ref: DatasetRef | JobRef, home: str | None) -> str:
    """Return the place of a name's declaration: the table in the project file.

    It has a namespace where a bare name means another one.
    """
    kind = "dataset" if isinstance(ref, DatasetRef) else "job"
    name = escape(ref.name) if is_glob(ref.name) else ref.name
    elsewhere = "" if home in (None, ref.namespace) else f", namespace = {_literal(ref.namespace)}"
    return f"in the project file: [[{kind}]] name = {_literal(name)}{elsewhere}"


def _literal(text: str) -> str:
    """Return a TOML string, without escapes where it needs none."""
    return f"'{text}'" if text.isprintable() and "'" not in text else dumps(text)


@lru_cache(maxsize=4096)
def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


@lru_cache(maxsize=4096)
def _spaces(namespace: str) -> re.Pattern[str]:
    """Return what a namespace matches: itself, as with the brackets of IPv6, or as a glob."""
    return re.compile(rf"{re.escape(namespace)}\Z|{translate(namespace)}")


def names(edge: ReadDeclaration | WriteDeclaration, dataset: DatasetRef, home: str | None) -> bool:
    """Whether a declared edge names a dataset; `home` is the namespace of edges without one."""
    return matches(edge.dataset, edge.namespace, dataset, home)


def matches(
    declared: str, namespace: str | None, ref: DatasetRef | JobRef, home: str | None
) -> bool:
    """Whether a declared name or glob is that of a dataset or job."""
    space = namespace or home
    if is_glob(declared):
        is_named = _pattern(declared).match(ref.name) is not None
        return is_named and (space is None or _spaces(space).match(ref.namespace) is not None)
    return declared == ref.name and space in (None, ref.namespace)


class _Edges(Protocol):
    def reads(self, job: JobRef) -> Sequence[DatasetRef]: ...

    def writes(self, job: JobRef) -> Sequence[DatasetRef]: ...


def unused_globs(
    edges: _Edges, home: str | None, ref: JobRef, declared: JobDeclaration | None
) -> Iterator[str]:
    """Yield what is wrong with globs of a job's own table that match none of its edges."""
    if declared is None or declared.name != ref.name:
        return
    for word, sides, find in (
        ("reads", declared.reads, edges.reads),
        ("writes", declared.writes, edges.writes),
    ):
        for edge in sides:
            if is_glob(edge.dataset) and not any(names(edge, one, home) for one in find(ref)):
                used = ", ".join(map(str, find(ref)[:5])) or "nothing"
                yield f"job {ref} {word} no {edge.dataset!r} as declared, but {used}"


def refuse_twice(
    edges: Iterable[ReadDeclaration | WriteDeclaration], home: str | None, place: str
) -> None:
    """Raise DeclarationError where two of a job's edges name one dataset, or one glob."""
    seen = set()
    for edge in edges:
        name = (edge.namespace or home, edge.dataset)
        if name in seen:
            raise DeclarationError(
                f"{place}: declares its edge to `{edge.dataset}` twice", hint="Keep one of the two."
            )
        seen.add(name)


class Matcher(Generic[D]):
    """Finds the declaration of a name.

    `namespace` is that of declarations which name none; None stands for any. Raises
    DeclarationError where two declare one name.
    """

    def __init__(
        self, declarations: Iterable[D], namespace: str | None, name: Callable[[D], str]
    ) -> None:
        self._exact: dict[tuple[str | None, str], D] = {}
        self._globs: list[tuple[re.Pattern[str], re.Pattern[str] | None, D]] = []
        for declaration in declarations:
            space, called = declaration.namespace or namespace, name(declaration)
            if is_glob(called):
                space_glob = _spaces(space) if space else None
                self._globs.append((_pattern(called), space_glob, declaration))
            elif (space, called) in self._exact:
                raise DeclarationError(f"{called!r} is declared twice", hint="Keep one of the two.")
            else:
                self._exact[space, called] = declaration

    def find(self, ref: DatasetRef | JobRef) -> D | None:
        """Return the declaration of a dataset or job."""
        exact = self._exact
        found = exact.get(ref[:2]) or exact.get((None, ref[1])) if exact else None
        if found is not None or not self._globs:
            return found
        for name, space, declaration in self._globs:
            if name.match(ref[1]) and (space is None or space.match(ref[0])):
                return declaration
        return None

    def exact(self) -> Iterable[tuple[str | None, D]]:
        """Return the declarations of single names with their namespaces."""
        return ((space, declaration) for (space, _), declaration in self._exact.items())


def _name(declared: Any) -> str:
    return str(declared.name)


def _edges_of(declared: Any) -> bool:
    edges = (*getattr(declared, "reads", ()), *getattr(declared, "writes", ()))
    return any(not is_glob(edge.dataset) for edge in edges)


class Layers(Matcher[D]):
    """Finds what is in force of a name: of its own declaration, then of the globs that match it."""

    def __init__(self, declarations: Iterable[D], namespace: str | None) -> None:
        named: Any = declarations
        super().__init__(named, namespace, _name)
        self._merged: dict[tuple[int, ...], D] = {}

    def layers(self, ref: DatasetRef | JobRef) -> list[D]:
        """Return the declarations of a dataset or job, the most exact one first."""
        exact = self._exact
        own = exact.get(ref[:2]) or exact.get((None, ref[1])) if exact else None
        found = [] if own is None else [own]
        for name, space, declaration in self._globs:
            if name.match(ref[1]) and (space is None or space.match(ref[0])):
                found.append(declaration)
        return found

    def of_globs(self, refs: Iterable[JobRef]) -> Iterator[tuple[JobRef, D]]:
        """Yield each job that is not retired with the globs that match it and name edges."""
        edged = {id(one) for _, _, one in self._globs if _edges_of(one)}
        for ref in refs if edged else ():
            layers = self.layers(ref)
            if not any(getattr(one, "retired", False) for one in layers):
                yield from ((ref, one) for one in layers if id(one) in edged)

    def find(self, ref: DatasetRef | JobRef) -> D | None:
        """Return the declaration in force of a dataset or job."""
        layers = self.layers(ref)
        if len(layers) < 2:
            return layers[0] if layers else None
        key = tuple(map(id, layers))  # thousands of names share theirs
        if key not in self._merged:
            both: Any = layers
            self._merged[key] = merged(both)
        return self._merged[key]


class DeclaredNames:
    """Finds the declarations in force of datasets and jobs in a project file."""

    def __init__(self, declarations: Declarations) -> None:
        self.datasets = Layers(declarations.datasets, declarations.namespace)
        self.jobs = Layers(declarations.jobs, declarations.namespace)


def bound(edge: Edge, side: Iterable[DatasetRef], home: str | None) -> Edge:
    """Return a job's edge with the namespace of a bare name.

    It is that of the one dataset of this name that the job has on this side, else `home`.
    """
    if edge.namespace is not None or is_glob(edge.dataset):
        return edge
    spaces = {ref.namespace for ref in side if ref.name == edge.dataset}
    space = spaces.pop() if len(spaces) == 1 else home
    return edge if space in (None, home) else replace(edge, namespace=space)


def edge_in_force(
    edges: Iterable[Edge], dataset: DatasetRef, side: Sequence[DatasetRef], home: str | None
) -> Edge | None:
    """Return what is in force of an edge of a job, of its edges by rank.

    `side` holds the datasets that the job has on this side. An exact name comes before a glob of
    the same place.
    """
    found = [one for edge in edges if names(one := bound(edge, side, home), dataset, home)]
    return merged_edge(found) if found else None


def target(
    edge: ReadDeclaration | WriteDeclaration,
    home: str | None,
    known: Iterable[DatasetRef],
    side: Iterable[DatasetRef] = (),
) -> DatasetRef | None:
    """Return the one dataset that a declared edge names; None for a glob.

    A bare name is the one that the job has on this `side`, else the one of `home`, else the only
    one that is known; raises DeclarationError, with the candidates, where there are several.
    """
    if is_glob(edge.dataset):
        return None
    named: Any = edge
    space = bound(named, side, home).namespace or home
    if space is None:
        spaces = sorted({ref.namespace for ref in known if ref.name == edge.dataset})
        if len(spaces) > 1:
            raise DeclarationError(
                f"{edge.dataset!r} is the name of several datasets: "
                + ", ".join(f"{one}:{edge.dataset}" for one in spaces),
                hint=f"Add its namespace, as in namespace = {_literal(spaces[0])}.",
            )
        space = spaces[0] if spaces else "default"
    return DatasetRef(space, edge.dataset)


def only_space(name: str, known: Iterable[DatasetRef | JobRef]) -> str:
    """Return the namespace of the only one with this name, else "default"."""
    spaces = {ref.namespace for ref in known if ref.name == name}
    return spaces.pop() if len(spaces) == 1 else "default"


def named_dataset(declarations: Declarations, text: str) -> DatasetRef:
    """Return the dataset that a text names, bare or as `namespace:name`, where no lineage tells.

    Its namespace is that of its declaration (an exact name, then the first glob), else the
    project's, else "default".
    """
    home = declarations.namespace or "default"
    tables = declarations.datasets
    exact = [DatasetRef(one.namespace or home, one.name) for one in tables if not is_glob(one.name)]
    spaces = {one.namespace for one in tables if one.namespace} | {home}
    full = [
        DatasetRef(space, text.removeprefix(f"{space}:"))
        for space in sorted(spaces)
        if text.startswith(f"{space}:")
    ]
    globs = [
        DatasetRef(home if is_glob(one.namespace or home) else one.namespace or home, text)
        for one in tables
        if is_glob(one.name) and _pattern(one.name).match(text)
    ]
    found = [ref for ref in exact if ref.matches(text)]
    found = [ref for ref in found if ref.namespace == home] or found
    return [*found, *full, *globs, DatasetRef(home, text)][0]
