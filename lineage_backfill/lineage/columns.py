"""Column lineage: which readers a change of a few columns cannot reach."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import Final

from lineage_backfill.lineage.snapshot import ColumnEdge
from lineage_backfill.model import DatasetRef, JobRef

#: Stands for every column: of a dataset whose columns nobody told apart, or of a whole output.
ALL: Final = "*"


def column_parts(column: str) -> tuple[str, ...]:
    """Return the column and all that hold it, outermost first, in lower case.

    >>> column_parts("Address.city")
    ('address', 'address.city')
    """
    return tuple(accumulate(column.casefold().split("."), "{}.{}".format))


def missed_edges(
    changed: Mapping[DatasetRef, AbstractSet[str]],
    column_edges: Iterable[ColumnEdge],
    readers: Mapping[DatasetRef, Iterable[JobRef]],
    writes: Callable[[JobRef], Iterable[DatasetRef]],
) -> tuple[frozenset[tuple[JobRef, DatasetRef]], frozenset[tuple[JobRef, DatasetRef]]]:
    """Return the edges (reader, input) that none of the changed columns travels along.

    The second set holds the edges that are kept only because their job has no column lineage.
    A column that decides which rows there are (filter, join, group by: an INDIRECT dependency of a
    whole output in OpenLineage's columnLineage facet) changes all columns of that output. Columns
    are told apart in any case of letters, as Spark does, and are changed with what they hold and
    with what holds them: `address` with `address.city`. Column lineage from a dataset that the job
    is not known to read calls one of its inputs otherwise, and is as good as none.
    """
    by_reader: dict[tuple[JobRef, DatasetRef], list[ColumnEdge]] = {}
    for edge in column_edges:
        by_reader.setdefault((edge.job, edge.input), []).append(edge)
    traced = _traced(by_reader, readers, writes)
    dirty = {ref: set(map(str.casefold, columns)) for ref, columns in changed.items()}
    queue = deque(dirty)
    reached: set[tuple[JobRef, DatasetRef]] = set()
    touched: set[tuple[JobRef, DatasetRef]] = set()
    blind: set[tuple[JobRef, DatasetRef]] = set()
    while queue:
        dataset = queue.popleft()
        columns = dirty[dataset]
        holding = {part for column in columns for part in column_parts(column)}
        for job in readers.get(dataset, ()):
            touched.add((job, dataset))
            outputs = tuple(writes(job))
            made: dict[DatasetRef, set[str]] = {}
            for output in outputs:
                if ALL in columns or (job, output) not in traced:
                    made[output] = {ALL}
            if ALL not in columns and (made or not outputs):
                blind.add((job, dataset))
            for edge in by_reader.get((job, dataset), ()):
                own = column_parts(edge.input_column)
                if edge.output in outputs and (
                    own[-1] in holding or own[0] == ALL or not columns.isdisjoint(own)
                ):
                    made.setdefault(edge.output, set()).add(edge.output_column.casefold())
            if made or not outputs:
                reached.add((job, dataset))
            for output, names in made.items():
                held = dirty.setdefault(output, set())
                if not names <= held:
                    held |= names
                    queue.append(output)
    return frozenset(touched - reached), frozenset(blind & reached)


def _traced(
    by_reader: Mapping[tuple[JobRef, DatasetRef], Iterable[ColumnEdge]],
    readers: Mapping[DatasetRef, Iterable[JobRef]],
    writes: Callable[[JobRef], Iterable[DatasetRef]],
) -> set[tuple[JobRef, DatasetRef]]:
    """Return the outputs that column lineage is known of, from inputs of their jobs alone."""
    read = {(job, ref) for ref, jobs in readers.items() for job in jobs}
    traced: set[tuple[JobRef, DatasetRef]] = set()
    astray: set[tuple[JobRef, DatasetRef]] = set()
    for (job, source), edges in by_reader.items():
        known = (job, source) in read or source in writes(job)
        (traced if known else astray).update((job, edge.output) for edge in edges)
    return traced - astray
