"""Finds declared edges to unknown datasets, with the names that were probably meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from lineage_backfill.errors import UnknownNameError
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.planning.edges import Edges
from lineage_backfill.project.declarations import Declarations, JobDeclaration
from lineage_backfill.project.likeness import ALIKE, is_full, is_qualified
from lineage_backfill.project.matching import heading, names
from lineage_backfill.project.slips import Slips, differ_in_digits, is_short

Word = Literal["reads", "writes"]
Declared = tuple[JobDeclaration, Word, DatasetRef]
_WORDS: Final[tuple[Word, ...]] = ("reads", "writes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Misnamed:
    """A declared edge to an unknown dataset, with similar known names."""

    job: str
    word: Word
    dataset: DatasetRef
    near: tuple[str, ...]
    home: str | None

    @property
    def hint(self) -> str:
        """What to do."""
        return (
            f"Did you mean {' or '.join(self.near)}? If it is another dataset, declare it "
            f"{heading(self.dataset, self.home)}."
        )


def refuse_misnamed(edges: Edges, snapshot: LineageSnapshot, declarations: Declarations) -> None:
    """Raise UnknownNameError for a declared edge whose dataset is probably misspelt.

    Otherwise it would read or write nothing, and its mapping would be lost.
    """
    for found in misnamed(edges, snapshot, declarations):
        raise UnknownNameError(
            f"job {found.job!r} {found.word} {found.dataset}, which the lineage does not have",
            hint=found.hint,
        )


def misnamed(
    edges: Edges, snapshot: LineageSnapshot, declarations: Declarations
) -> Sequence[Misnamed]:
    """Return the declared edges to unknown datasets that nearly match a known one.

    Known are the datasets of the lineage, those with a [[dataset]] table, and those that two jobs
    declare. Two names are similar if one letter differs or two are exchanged; for a name that the
    job itself reads or writes, if they are much alike.
    """
    known, unknown = _sorted_out(edges, snapshot, list(_declared(edges, declarations)))
    if not unknown:
        return ()
    slips = Slips(known, (target.name for _, _, target in unknown), lambda ref: ref.name)
    nodes: dict[str, list[JobNode]] = {}
    for node in snapshot.jobs.values():
        nodes.setdefault(node.ref.name, []).append(node)
    found = []
    for job, word, target in unknown:
        own = _undeclared(nodes.get(job.name, ()), job, word, declarations.namespace)
        alike = [name for name in sorted(own) if is_qualified(target.name, name)]
        alike = alike or get_close_matches(target.name, sorted(own), n=3, cutoff=ALIKE)
        refs = [own[name] for name in alike] or sorted(slips.near(target.name))
        if near := tuple(_meant(target, refs)):
            found.append(
                Misnamed(
                    job=job.name,
                    word=word,
                    dataset=target,
                    near=near[:3],
                    home=declarations.namespace,
                )
            )
    return found


def _sorted_out(
    edges: Edges, snapshot: LineageSnapshot, declared: list[Declared]
) -> tuple[set[DatasetRef], list[Declared]]:
    """Return the known datasets, and the declared edges to others."""
    if not declared:
        return set(), []
    counts = Counter(target for target, _ in {(target, job.name) for job, _, target in declared})
    known = {
        *snapshot.datasets,
        *(DatasetRef(space, one.name) for space, one in edges.declared_datasets if space),
        *(target for target, count in counts.items() if count > 1),
    }
    names_alone = {one.name for space, one in edges.declared_datasets if space is None}
    unknown = [
        (job, word, target)
        for job, word, target in declared
        if target not in known and target.name not in names_alone
    ]
    return known, unknown


def _meant(target: DatasetRef, refs: Iterable[DatasetRef]) -> Iterator[str]:
    """Yield the names that could be meant, with the namespace where that alone differs."""
    for ref in refs:
        if ref.name == target.name:
            yield str(ref)
        elif is_full(target.name, ref) or not (
            differ_in_digits(ref.name, target.name) or is_short(ref.name, target.name)
        ):
            yield ref.name


def _undeclared(
    nodes: Iterable[JobNode], job: JobDeclaration, word: Word, namespace: str | None
) -> dict[str, DatasetRef]:
    """Return what a job reads or writes by its lineage, and its declaration says nothing of."""
    return {
        ref.name: ref
        for node in nodes
        for ref in getattr(node, word)
        if not any(names(edge, ref, namespace) for edge in getattr(job, word))
    }


def _declared(edges: Edges, declarations: Declarations) -> Iterator[Declared]:
    for job in declarations.jobs:
        for word in _WORDS:
            for edge in getattr(job, word):
                target = edges.target(edge)
                if target is not None:
                    yield job, word, target
