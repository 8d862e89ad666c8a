"""Finds tables of the project file that match no name, with the names that were probably meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, Generic, Literal, TypeVar

from lineage_backfill.errors import UnknownNameError
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.edges import Edges
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    JobDeclaration,
)
from lineage_backfill.project.likeness import (
    Fit,
    Likeness,
    Names,
    are_siblings,
    first,
    fit,
    has_word,
    is_same,
    lost,
)
from lineage_backfill.project.matching import heading, is_glob, matches, matches_any, names

D = TypeVar("D", bound=DatasetDeclaration | JobDeclaration)
Ref = TypeVar("Ref", bound=DatasetRef | JobRef)
Kind = Literal["dataset", "job"]
#: Pairs of names above which only misspelt ones are found, not similar ones.
_PAIRS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmatched:
    """A table that matches no name, with the names that it may be meant for.

    It is `refused` where a run would lose what the table sets for a name that is almost certain.
    """

    kind: Kind
    declared: DatasetDeclaration | JobDeclaration
    near: tuple[DatasetRef | JobRef, ...]
    refused: bool
    home: str | None

    @property
    def text(self) -> str:
        """What is wrong."""
        name = self.declared.name
        if is_glob(name):
            return f"no {self.kind} matches {name!r}, which [[{self.kind}]] declares"
        return f"the lineage has no {self.kind} {name!r}, which [[{self.kind}]] declares"

    @property
    def question(self) -> str:
        """Which names may be meant."""
        return f"did you mean {first(self.near)}?"

    @property
    def hint(self) -> str:
        """What to do."""
        if not self.near:
            return ""
        is_for = "for other" if is_glob(self.declared.name) else "another"
        plural = "s" if is_glob(self.declared.name) else ""
        return (
            f"D{self.question[1:]} If it is {is_for} {self.kind}{plural}, also declare "
            f"{self.near[0]} {heading(self.near[0], self.home)}."
        )


def refuse_unmatched(found: Iterable[Unmatched]) -> None:
    """Raise UnknownNameError for a table of a job that is almost certainly misspelt.

    Otherwise that job would run without what the table sets.
    """
    for one in found:
        if one.refused:
            assert isinstance(one.declared, JobDeclaration)
            settings = " and ".join(lost(one.declared))
            raise UnknownNameError(f"{one.text} with {settings}", hint=one.hint)


def unmatched(
    edges: Edges, snapshot: LineageSnapshot, declarations: Declarations
) -> Iterator[Unmatched]:
    """Yield the tables that match no name: each glob, and exact names that are probably misspelt.

    No table is meant for a name with a table of its own, and no glob for a name that another glob
    with a word in it matches.
    """
    home = declarations.namespace
    used = (snapshot.datasets, edges.readers, edges.writers)
    datasets = _Tables(declarations.datasets, home, used, DatasetRef)
    unknown = datasets.unmatched()
    for data in unknown:
        near = tuple(sorted(datasets.meant(data, len(unknown))))
        if near or is_glob(data.name):
            yield Unmatched(kind="dataset", declared=data, near=near, refused=False, home=home)
    jobs = _Tables(declarations.jobs, home, (snapshot.jobs,), JobRef)
    undeclared = jobs.unmatched()
    writers = _writers(snapshot) if undeclared else {}
    for job in undeclared:
        found = _judged(job, jobs, snapshot, jobs.meant(job, len(undeclared)))
        if not found and job.reads and not is_glob(job.name):
            others = {ref: None for edge in job.writes for ref in writers.get(edge.dataset, ())}
            # Not refused: it may as well be a job that was renamed and has not run yet.
            found = dict.fromkeys(_with_equal_edges(job, jobs, snapshot, others), False)
        refs = tuple(sorted(found))
        if refs or is_glob(job.name):
            refused = any(found.values())
            yield Unmatched(kind="job", declared=job, near=refs, refused=refused, home=home)


def unused_edges(
    edges: Edges,
    declarations: Declarations,
    find: Callable[[JobRef], JobDeclaration | None],
) -> Iterator[str]:
    """Yield the edges of job patterns that no job of the pattern has.

    They change nothing: only a table for one job adds edges to the lineage.
    """
    tables = [one for one in declarations.jobs if is_glob(one.name) and (one.reads or one.writes)]
    jobs: dict[JobDeclaration | None, list[JobRef]] = {}
    for ref in edges.jobs if tables else ():
        jobs.setdefault(find(ref), []).append(ref)
    for table in tables:
        refs = jobs.get(table, [])
        for word, declared, used in (
            ("reads", table.reads, edges.reads),
            ("writes", table.writes, edges.writes),
        ):
            there = {data for ref in refs for data in used(ref)} if declared else set()
            for edge in declared if refs else ():
                if not any(names(edge, data, declarations.namespace) for data in there):
                    yield f"no job of [[job]] {table.name!r} {word} {edge.dataset!r} as declared"


def _writers(snapshot: LineageSnapshot) -> dict[str, list[JobRef]]:
    """Return the jobs that write datasets of each name."""
    found: dict[str, list[JobRef]] = {}
    for data, writers in snapshot.writers.items():
        found.setdefault(data.name, []).extend(writers)
    return found


def _judged(
    table: JobDeclaration,
    jobs: _Tables[JobDeclaration, JobRef],
    snapshot: LineageSnapshot,
    near: Mapping[JobRef, Likeness],
) -> dict[JobRef, bool]:
    """Return the jobs that a table may be meant for; true where it is certain enough to refuse."""
    found = {}
    for ref, like in near.items():
        fits = _fit(table, snapshot.jobs[ref], jobs.home)
        if fits is not Fit.OTHER:
            found[ref] = is_same(table, ref.name, like, fits)
    return {ref: one for ref, one in found.items() if one} or found


def _with_equal_edges(
    table: JobDeclaration,
    jobs: _Tables[JobDeclaration, JobRef],
    snapshot: LineageSnapshot,
    others: Iterable[JobRef],
) -> Iterator[JobRef]:
    """Yield jobs of another name that read and write all that a table declares, and no more."""
    for ref in others:
        is_open = ref in jobs.candidates and not are_siblings(table.name, ref.name)
        if is_open and _fit(table, snapshot.jobs[ref], jobs.home) is Fit.EQUAL:
            yield ref


def _fit(table: JobDeclaration, node: JobNode, home: str | None) -> Fit:
    found = fit(table, node.reads, node.writes, home)
    if found is Fit.OTHER and (node.former_reads or node.former_writes):
        reads, writes = (*node.reads, *node.former_reads), (*node.writes, *node.former_writes)
        return min(fit(table, reads, writes, home), Fit.WITHIN)
    return found


class _Tables(Generic[D, Ref]):
    """The tables of datasets or of jobs; the first of `known` are the names of the lineage."""

    def __init__(
        self,
        tables: Sequence[D],
        home: str | None,
        known: Sequence[Collection[Ref]],
        make: Callable[[str, str], Ref],
    ) -> None:
        self.home = home
        self._known = known
        self._globs: list[D] = [one for one in tables if is_glob(one.name)]
        self._exact: list[D] = [one for one in tables if not is_glob(one.name)]
        self._make: Callable[[str, str], Ref] = make

    @cached_property
    def candidates(self) -> set[Ref]:
        """The known names without a table of their own."""
        tables = {(one.namespace or self.home, one.name) for one in self._exact}
        return {
            ref
            for ref in self._known[0]
            if not {(ref.namespace, ref.name), (None, ref.name)} & tables
        }

    @cached_property
    def _names(self) -> Names[Ref]:
        return Names(self.candidates)

    def unmatched(self) -> list[D]:
        """Return the tables that match none of the known names; globs also match exact tables."""
        known = self._known
        bare = {ref.name for ref in chain(*known)} if self.home is None else set[str]()
        found: list[D] = []
        named: list[Ref] = []
        for one in self._exact:
            space = one.namespace or self.home
            ref = self._make(space or "default", one.name)
            named.append(ref)
            is_known = any(ref in refs for refs in known) if space else one.name in bare
            if not is_known:
                found.append(one)
        return found + [
            one
            for one in self._globs
            if not matches_any(one.name, one.namespace, chain(*known, named), self.home)
        ]

    def meant(self, table: D, unmatched: int) -> dict[Ref, Likeness]:
        """Return the names that a table is probably meant for; `unmatched` is how many are not."""
        is_quick = unmatched * len(self.candidates) <= _PAIRS
        found = self._names.meant(table, self.home, with_alike=is_quick)
        if not is_glob(table.name):
            return found
        others = [one for one in self._globs if one is not table and has_word(one.name)]
        return {
            ref: like
            for ref, like in found.items()
            if not any(matches(one.name, one.namespace, ref, self.home) for one in others)
        }
