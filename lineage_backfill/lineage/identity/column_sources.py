"""Sources that a job's events name only in their column lineage."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgspec import structs

from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef

#: What dbt names an ephemeral model within a query, which dbt-ol sends as a table.
_CTE: Final = "__dbt__cte__"


def with_column_sources(snapshot: LineageSnapshot) -> LineageSnapshot:
    """Return the lineage with an edge for each source that only column lineage names.

    It comes after names of one table were joined: a source under another name of an input is none.
    """
    sources: dict[JobRef, set[DatasetRef]] = {}
    for edge in snapshot.column_edges:
        if not edge.input.name.startswith(_CTE):
            sources.setdefault(edge.job, set()).add(edge.input)
    jobs, named = dict(snapshot.jobs), set[DatasetRef]()
    for ref, found in sources.items():
        node = jobs.get(ref)
        more = found.difference(node.reads, node.writes) if node else ()
        if node and more:
            named |= more
            jobs[ref] = structs.replace(
                node,
                reads=tuple(sorted({*node.reads, *more})),
                former_reads=tuple(one for one in node.former_reads if one not in more),
                from_columns=tuple(sorted(more)),
            )
    if not named:
        return snapshot
    known = LineageSnapshot.of(jobs.values(), snapshot.datasets.values())
    return replace(snapshot, jobs=known.jobs, datasets=known.datasets)
