"""The edges between jobs and datasets: from the lineage and the project file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project.declarations import (
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.matching import DeclaredNames, only_space, target

if TYPE_CHECKING:
    import networkx as nx

_Refs = tuple[DatasetRef, ...]
#: What a snapshot holds beside jobs and datasets.
_REST = ("column_edges", "history", "notices", "source", "taken_at")


def _named(edge: ReadDeclaration | WriteDeclaration) -> DatasetRef:
    return DatasetRef(edge.namespace or "", edge.dataset)


class Edges:
    """The edges of one lineage and project file; `former` includes those of older runs."""

    def __init__(
        self,
        snapshot: LineageSnapshot,
        namespace: str | None,
        names: DeclaredNames,
        *,
        former: bool,
    ) -> None:
        self._snapshot = snapshot
        self._namespace = namespace
        self._datasets = names.datasets
        self._former = former
        #: Edges that only the project file knows, by job.
        self.declared_reads: dict[JobRef, list[DatasetRef]] = {}
        self.declared_writes: dict[JobRef, list[DatasetRef]] = {}
        exact = {
            JobRef(space or only_space(one.name, snapshot.jobs), one.name): one
            for space, one in names.jobs.exact()
        }
        for ref, declaration in exact.items():
            self._add(ref, declaration)
        for ref, declaration in names.jobs.of_globs({**snapshot.jobs, **exact}):
            self._add(ref, declaration)

    def _add(self, ref: JobRef, declaration: JobDeclaration) -> None:
        """Add the edges of a job's table, or of a glob that it matches, which are not known."""
        if declaration.retired:
            return
        node = self._snapshot.jobs.get(ref)
        for edges, found, into in (
            (declaration.reads, node.reads if node else (), self.declared_reads),
            (declaration.writes, node.writes if node else (), self.declared_writes),
        ):
            side = (*found, *(_named(edge) for edge in edges if edge.namespace))
            for edge in edges:
                dataset = self.target(edge, (*side, *into.get(ref, ())))
                if dataset is not None and dataset not in (*found, *into.get(ref, ())):
                    into.setdefault(ref, []).append(dataset)

    def target(self, edge: Any, side: Iterable[DatasetRef] = ()) -> DatasetRef | None:
        """Return the dataset of a declared edge, None for a glob; the job has those of `side`."""
        return target(edge, self._namespace, self._snapshot.datasets, side)

    def reads(self, job: JobRef) -> _Refs:
        """Return the inputs of a job: from the lineage, then declared ones."""
        node = self._snapshot.jobs.get(job)
        found = node.reads if node else ()
        if node and self._former:
            found = tuple(dict.fromkeys((*found, *node.former_reads)))
        extra = self.declared_reads.get(job) if self.declared_reads else None
        return tuple(dict.fromkeys((*found, *extra))) if extra else found

    def writes(self, job: JobRef) -> _Refs:
        """Return the outputs of a job: from the lineage, then declared ones."""
        node = self._snapshot.jobs.get(job)
        found = node.writes if node else ()
        if node and self._former:
            found = tuple(dict.fromkeys((*found, *node.former_writes)))
        extra = self.declared_writes.get(job) if self.declared_writes else None
        return tuple(dict.fromkeys((*found, *extra))) if extra else found

    @cached_property
    def jobs(self) -> dict[JobRef, int]:
        """All jobs of lineage and project file, with their positions in sorted order."""
        names = {**self._snapshot.jobs, **self.declared_reads, **self.declared_writes}
        return {ref: place for place, ref in enumerate(sorted(names))}

    @cached_property
    def datasets(self) -> frozenset[DatasetRef]:
        """All datasets of lineage and project file."""
        found = set(self._snapshot.datasets)
        for edges in (self.declared_reads, self.declared_writes):
            for refs in edges.values():
                found.update(refs)
        for space, declaration in self._datasets.exact():
            if space is not None:
                found.add(DatasetRef(space, declaration.name))
        return frozenset(found)

    @cached_property
    def shown(self) -> LineageSnapshot:
        """The snapshot as plans see it: with the declared edges; its hash is another one."""
        jobs = dict(self._snapshot.jobs)
        for ref in {**self.declared_reads, **self.declared_writes}:
            node = jobs.get(ref) or JobNode(ref=ref)
            jobs[ref] = replace(node, reads=self.reads(ref), writes=self.writes(ref))
        known = self._snapshot.datasets
        nodes = [known.get(ref) or DatasetNode(ref=ref) for ref in self.datasets]
        rest = {name: getattr(self._snapshot, name) for name in _REST}
        return LineageSnapshot.of(jobs.values(), nodes, **rest)

    @cached_property
    def graph(self) -> nx.DiGraph[DatasetRef | JobRef]:
        """All edges as a `networkx` graph; see `LineageSnapshot.graph`."""
        graph = self._snapshot.graph()
        graph.add_nodes_from(self.datasets - graph.nodes, kind="dataset")
        graph.add_nodes_from(self.jobs.keys() - graph.nodes, kind="job")
        for job in self.jobs if self._former else {**self.declared_reads, **self.declared_writes}:
            reads, writes = self.reads(job), self.writes(job)
            graph.add_nodes_from((*reads, *writes), kind="dataset")
            graph.add_edges_from((ref, job) for ref in reads)
            graph.add_edges_from((job, ref) for ref in writes)
        return graph

    @cached_property
    def readers(self) -> Mapping[DatasetRef, tuple[JobRef, ...]]:
        """The jobs that read each dataset."""
        return self._with_extra(self._snapshot.readers, self.declared_reads, "former_reads")

    @cached_property
    def writers(self) -> Mapping[DatasetRef, tuple[JobRef, ...]]:
        """The jobs that write each dataset."""
        return self._with_extra(self._snapshot.writers, self.declared_writes, "former_writes")

    def _with_extra(
        self,
        found: Mapping[DatasetRef, tuple[JobRef, ...]],
        extra: Mapping[JobRef, list[DatasetRef]],
        former: str,
    ) -> Mapping[DatasetRef, tuple[JobRef, ...]]:
        pairs = [(ref, job) for job, refs in extra.items() for ref in refs]
        if self._former:
            for node in self._snapshot.jobs.values():
                pairs += [(ref, node.ref) for ref in getattr(node, former)]
        if not pairs:
            return found
        merged = dict(found)
        for ref, job in pairs:
            if job not in merged.get(ref, ()):
                merged[ref] = (*merged.get(ref, ()), job)
        return merged
