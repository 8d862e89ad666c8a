"""Finds names of the project file that are not known, and the nearest known names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from lineage_backfill.model import DatasetRef, JobRef, listed, nearest
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    JobDeclaration,
)
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.matching import bound

Ref: TypeAlias = DatasetRef | JobRef
Kind: TypeAlias = Literal["dataset", "job", "edge"]
#: The kind, table and text of a name, and the known names.
_Unknown: TypeAlias = tuple[Kind, str, str, Collection[Ref]]
#: Attributes of a table whose name need not be known.
_FREE: Final = ("expected", "retired", "replaces", "aliases", "pattern")
#: Least similarity of names where the known ones are not all at hand.
_NEAR_MISS: Final = 0.91
#: The nearest names are found for this many unmatched names: it takes long among many.
_SEARCHED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmatched:
    """An exact name in the project file that is not known, with the nearest known names.

    `kind` tells the name of a table of datasets or jobs from that of a job's edge; `place` is the
    table.
    """

    kind: Kind
    place: str
    near: tuple[Ref, ...]

    @property
    def text(self) -> str:
        """The name and the nearest known ones."""
        return f"{self.place} is not known" + (f" (nearest: {self._near})" if self.near else "")

    @property
    def hint(self) -> str:
        """What to do."""
        keep = "declare it in a [[dataset]]" if self.kind == "edge" else "set `expected = true`"
        near = f"Nearest: {self._near}. " if self.near else ""
        return f"{near}Correct the name; if it is right, {keep}."

    @property
    def _near(self) -> str:
        return listed(self.near)

    def bears_on(self, used: Collection[Ref]) -> bool:
        """Whether a plan of these datasets may be another one because of the name.

        Without the table that is meant for it, a job would run by other settings.
        """
        return self.kind == "job" or not set(self.near).isdisjoint(used)


def unmatched(
    declarations: Declarations,
    datasets: Collection[DatasetRef],
    jobs: Collection[JobRef],
    *,
    nodes: Mapping[JobRef, Any] = MappingProxyType({}),
    only_near: bool = False,
) -> tuple[Unmatched, ...]:
    """Return the exact names of the project file that are not known.

    `nodes` hold what jobs of the lineage read and write: a bare name of an edge may mean one.
    Known are those given, from lineage or code, and those in another table: a dataset by an edge,
    and a job by its own table if that has `writes` and says how it runs. With `only_near` the names
    given are not all of them: only near misses count, of names without a table of their own.
    """
    names = _Names(declarations, datasets, jobs, nodes)
    result = []
    unknown = chain(names.tables(only_near), names.jobs(only_near), names.edges())
    for number, (kind, place, name, known) in enumerate(unknown):
        near: tuple[Ref, ...] = ()
        if number < _SEARCHED:
            texts = nearest(name, {ref.name for ref in known}, _NEAR_MISS if only_near else None)
            same = [ref for ref in known if ref.name in texts]
            near = tuple(sorted(same, key=lambda ref: (texts.index(ref.name), ref)))
        if near or not only_near:
            result.append(Unmatched(kind=kind, place=place, near=near))
    return tuple(result)


class _Names:
    """The exact names of a project file, and the known names.

    Each method yields the kind, table and text of unknown names, and what may be meant.
    """

    def __init__(
        self,
        declarations: Declarations,
        datasets: Collection[DatasetRef],
        jobs: Collection[JobRef],
        nodes: Mapping[JobRef, Any],
    ) -> None:
        self._datasets, self._jobs = datasets, jobs
        dataset = _resolving(declarations, datasets, DatasetRef)
        job = _resolving(declarations, jobs, JobRef)
        self._tables = {
            dataset(one.name, one.namespace): one
            for one in declarations.datasets
            if not is_glob(one.name) and one.pattern is None
        }
        self._job_tables = {
            job(one.name, one.namespace): one for one in declarations.jobs if not is_glob(one.name)
        }
        self._edges = [
            (
                dataset(edge.dataset, bound(edge, side, declarations.namespace).namespace),
                table,
                word,
            )
            for table in declarations.jobs
            for word, found in _sides(table)
            for side in [getattr(nodes.get(JobRef(*job(table.name, table.namespace))), word, ())]
            for edge in found
            if not is_glob(edge.dataset)
        ]
        self._used = Counter(ref for ref, _, _ in self._edges)
        #: The jobs that their tables alone make: their outputs are new.
        self._new = {
            table
            for ref, table in self._job_tables.items()
            if _is_free(table)
            or (ref not in jobs and table.writes and (table.engine or table.entrypoint))
        }

    def tables(self, only_near: bool) -> Iterator[_Unknown]:
        for ref, one in self._tables.items():
            if not (_is_free(one) or ref in self._used or ref in self._datasets):
                known = {*self._datasets, *self._used} - ({*self._tables} if only_near else set())
                yield "dataset", f'[[dataset]] "{one.name}"', one.name, known

    def jobs(self, only_near: bool) -> Iterator[_Unknown]:
        for ref, one in self._job_tables.items():
            if not (ref in self._jobs or one in self._new):
                known = {*self._jobs} - ({*self._job_tables} if only_near else set())
                yield "job", f'[[job]] "{one.name}"', one.name, known

    def edges(self) -> Iterator[_Unknown]:
        aliases = {alias for one in self._tables.values() for alias in one.aliases}
        for ref, table, word in self._edges:
            is_known = ref in self._datasets or ref in self._tables or self._used[ref] > 1
            is_known = is_known or not aliases.isdisjoint((ref.name, str(ref)))
            if not (is_known or (word == "writes" and table in self._new)):
                known = {*self._datasets, *self._tables, *self._used} - {ref}
                yield "edge", f'[[job]] "{table.name}" [[job.{word}]] "{ref.name}"', ref.name, known


def _sides(table: JobDeclaration) -> tuple[tuple[str, Sequence[Any]], ...]:
    return ("reads", table.reads), ("writes", table.writes)


def _is_free(table: DatasetDeclaration | JobDeclaration) -> bool:
    return any(getattr(table, name, None) for name in _FREE)


def _resolving(
    declarations: Declarations, known: Collection[Ref], make: Callable[[str, str], Ref]
) -> Callable[[str, str | None], Ref]:
    """Return a function for what a name means; without a namespace, a known one of that name."""
    home = declarations.namespace
    spaces = {} if home else {ref.name: ref.namespace for ref in known}
    return lambda name, space: make(space or home or spaces.get(name, "default"), name)
