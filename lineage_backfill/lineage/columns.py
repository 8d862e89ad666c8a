"""Column lineage: finds readers that a change of a few columns cannot reach."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from lineage_backfill.lineage.snapshot import ColumnEdge
from lineage_backfill.model import DatasetRef, JobRef

#: Every column: of a dataset without known columns, or of a whole output.
ALL: Final = "*"
_NO_OUTPUTS: Final = frozenset[DatasetRef]()
#: A path through a job: the job, an input and an output.
Path = tuple[JobRef, DatasetRef, DatasetRef]


def column_parts(column: str) -> tuple[str, ...]:
    """Return the column and all enclosing ones, outermost first, in lower case.

    >>> column_parts("Address.city")
    ('address', 'address.city')
    """
    return tuple(accumulate(column.casefold().split("."), "{}.{}".format))


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a combined job: inputs, outputs, and column sources by output.

    It is one of several runs under one parent run, or one of the jobs of a parent.
    """

    reads: AbstractSet[DatasetRef]
    writes: AbstractSet[DatasetRef]
    traced: Mapping[DatasetRef, AbstractSet[DatasetRef]]


def untold(parts: Iterable[Part]) -> set[DatasetRef]:
    """Return the inputs for which a part lacks column lineage, for the input or an output.

    Any of their columns may matter to that part.
    """
    found: set[DatasetRef] = set()
    for part in parts:
        sources = set[DatasetRef]().union(*part.traced.values())
        is_whole = part.writes <= part.traced.keys() and sources <= part.reads | part.writes
        if part.writes:
            found |= part.reads - sources if is_whole else part.reads
    return found


def missed_edges(
    changed: Mapping[DatasetRef, AbstractSet[str]],
    column_edges: Iterable[ColumnEdge],
    *,
    readers: Callable[[DatasetRef], Iterable[JobRef]],
    reads: Callable[[JobRef], Iterable[DatasetRef]],
    writes: Callable[[JobRef], Iterable[DatasetRef]],
) -> tuple[frozenset[Path], frozenset[tuple[JobRef, DatasetRef]]]:
    """Return the paths (reader, input, output) that none of the changed columns takes.

    The second set contains the edges (reader, input) that are kept without column lineage: the
    job sends none for that input, none for an output, or has no output. `readers` omits jobs that
    read a dataset only as a reference.
    A column that decides which rows there are (filter, join, group by: an INDIRECT dependency of a
    whole output in OpenLineage's columnLineage facet) changes all columns of that output. Column
    names ignore case, as in Spark, and a change of `address` includes `address.city` and vice
    versa. Column lineage from a dataset that the job is not known to read is ignored: it names one
    of its inputs differently.
    """
    by_reader = _by_reader(column_edges)
    traced = _traced(by_reader, reads, writes)
    dirty = {ref: set(map(str.casefold, columns)) for ref, columns in changed.items()}
    queue = deque(dirty)
    touched: set[Path] = set()
    reached: set[Path] = set()
    blind: set[tuple[JobRef, DatasetRef]] = set()
    while queue:
        dataset = queue.popleft()
        columns = dirty[dataset]
        holding = {part for column in columns for part in column_parts(column)}
        for job in readers(dataset):
            outputs = tuple(writes(job))
            edges = by_reader.get((job, dataset), ())
            known = traced.get(job, _NO_OUTPUTS) if edges else _NO_OUTPUTS
            if ALL not in columns and not (outputs and known >= set(outputs)):
                blind.add((job, dataset))
            followed = frozenset() if ALL in columns else known
            made = {output: set() if output in followed else {ALL} for output in outputs}
            for edge in edges:
                if edge.output in made and _depends(edge, columns, holding):
                    made[edge.output].add(edge.output_column.casefold())
            touched |= {(job, dataset, output) for output in made}
            for output, names in made.items():
                if names:
                    reached.add((job, dataset, output))
                    held = dirty.setdefault(output, set())
                    if not names <= held:
                        held |= names
                        queue.append(output)
    return frozenset(touched - reached), frozenset(blind)


def _by_reader(edges: Iterable[ColumnEdge]) -> dict[tuple[JobRef, DatasetRef], list[ColumnEdge]]:
    found: dict[tuple[JobRef, DatasetRef], list[ColumnEdge]] = {}
    for edge in edges:
        found.setdefault((edge.job, edge.input), []).append(edge)
    return found


def _depends(edge: ColumnEdge, columns: AbstractSet[str], holding: AbstractSet[str]) -> bool:
    own = column_parts(edge.input_column)
    return own[-1] in holding or own[0] == ALL or not columns.isdisjoint(own)


def _traced(
    by_reader: Mapping[tuple[JobRef, DatasetRef], Iterable[ColumnEdge]],
    reads: Callable[[JobRef], Iterable[DatasetRef]],
    writes: Callable[[JobRef], Iterable[DatasetRef]],
) -> Mapping[JobRef, AbstractSet[DatasetRef]]:
    """Return the outputs with column lineage, from inputs of their jobs alone, by job."""
    traced: dict[JobRef, set[DatasetRef]] = {}
    astray: dict[JobRef, set[DatasetRef]] = {}
    for (job, source), edges in by_reader.items():
        known = source in reads(job) or source in writes(job)
        found = (traced if known else astray).setdefault(job, set())
        found.update(edge.output for edge in edges)
    return {job: outputs - astray.get(job, set()) for job, outputs in traced.items()}
