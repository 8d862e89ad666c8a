"""Several datasets of a lineage put together into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lineage_backfill.graph.lineage import ColumnEdge, DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef


def merge_datasets(
    snapshot: LineageSnapshot, into: Mapping[DatasetRef, DatasetRef]
) -> LineageSnapshot:
    """Return the lineage with every key of `into` as a part of its value.

    Owners, tags and aliases are put together; columns and partitioning are those of the dataset
    itself, where it is known, else of the last part in the order of `into` that has any.
    """
    parts: dict[DatasetRef, list[DatasetNode]] = {}
    for ref, whole in into.items():
        if ref in snapshot.datasets:
            parts.setdefault(whole, []).append(snapshot.datasets[ref])
    datasets = [node for ref, node in snapshot.datasets.items() if ref not in into]
    untouched = [node for node in datasets if node.ref not in parts]
    merged = [
        _merged(whole, [*nodes, *filter(None, [snapshot.datasets.get(whole)])], into)
        for whole, nodes in parts.items()
    ]
    return LineageSnapshot.of(
        (_renamed(node, into) for node in snapshot.jobs.values()),
        [*untouched, *merged],
        column_edges=_columns(snapshot.column_edges, into),
        history=snapshot.history,
        source=snapshot.source,
        taken_at=snapshot.taken_at,
        warnings=snapshot.warnings,
    )


def _merged(
    whole: DatasetRef, nodes: list[DatasetNode], into: Mapping[DatasetRef, DatasetRef]
) -> DatasetNode:
    newest = list(reversed(nodes))
    return DatasetNode(
        ref=whole,
        fields=next((node.fields for node in newest if node.fields), ()),
        owners=tuple(sorted({owner for node in nodes for owner in node.owners})),
        tags=tuple(sorted({tag for node in nodes for tag in node.tags})),
        aliases=tuple(
            sorted({alias for node in nodes for alias in node.aliases if alias not in into})
        ),
        partitioning=next((n.partitioning for n in newest if n.partitioning is not None), None),
    )


def _renamed(node: JobNode, into: Mapping[DatasetRef, DatasetRef]) -> JobNode:
    edges = (node.reads, node.writes, node.former_reads, node.former_writes)
    if not any(ref in into for refs in edges for ref in refs):
        return node
    reads, writes, former_reads, former_writes = (
        {into.get(ref, ref) for ref in refs} for refs in edges
    )
    return replace(
        node,
        reads=tuple(sorted(reads)),
        writes=tuple(sorted(writes)),
        former_reads=tuple(sorted(former_reads - reads)),
        former_writes=tuple(sorted(former_writes - writes)),
    )


def _columns(
    edges: Iterable[ColumnEdge], into: Mapping[DatasetRef, DatasetRef]
) -> tuple[ColumnEdge, ...]:
    direct: dict[ColumnEdge, bool] = {}
    for edge in edges:
        renamed = replace(
            edge,
            input=into.get(edge.input, edge.input),
            output=into.get(edge.output, edge.output),
            direct=False,
        )
        direct[renamed] = direct.get(renamed, False) or edge.direct
    return tuple(replace(edge, direct=is_direct) for edge, is_direct in sorted(direct.items()))
