"""Runtime keys: undeclared static keys, known from recorded runs and the request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property

from lineage_backfill.errors import DeclarationError, UsageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.text import KeySet, parse_partitions
from lineage_backfill.planning.edges import Edges
from lineage_backfill.plans.request import Request
from lineage_backfill.project.declarations import Declarations, ReadDeclaration
from lineage_backfill.project.facets import read_job
from lineage_backfill.project.resolve.resolver import DeclarationResolver
from lineage_backfill.project.resolve.runtime_keys import KnownKeys, add, add_run, declared_keys

#: The word in place of a calendar's keys.
RUNTIME = "runtime"


class RuntimeKeys:
    """The known keys of runtime dimensions, by the dimension's name.

    They come from recorded runs, the request, tables (`seen`), and static keys of other dimensions
    of the same name.
    """

    def __init__(
        self,
        resolver: Callable[[], DeclarationResolver],
        snapshot: LineageSnapshot,
        edges: Edges,
        request: Request,
        seen: Mapping[str, Collection[str]],
    ) -> None:
        """`resolver` makes one that tells which dimensions have runtime keys, without these."""
        self._make_resolver = resolver
        self._snapshot = snapshot
        self._edges = edges
        self._request = request
        self._seen = seen

    def __call__(self, name: str) -> set[str]:
        """Return the known keys of one dimension."""
        return self._known.get(name, set())

    @cached_property
    def _resolver(self) -> DeclarationResolver:
        return self._make_resolver()

    @cached_property
    def _known(self) -> KnownKeys:
        known = declared_keys(self._resolver.declarations, self._sent_reads())
        for name, keys in self._seen.items():
            known.setdefault(name, set()).update(keys)
        for record in self._snapshot.history:
            if record.partition_key:
                try:
                    recorded = parse_partitions(record.partition_key)
                except UsageError:
                    continue  # not a key in our notation
                self._add_run(known, recorded, record.job)
        for changed in self._request.changed:
            add(known, changed.keys, self._resolver.calendar(changed.dataset))
        for rerun in self._request.jobs:
            self._add_run(known, rerun.keys, rerun.job)
        return known

    def _sent_reads(self) -> Iterator[ReadDeclaration]:
        for node in self._snapshot.jobs.values():
            if node.partitioning and node.partitioning.get("reads"):
                try:
                    yield from read_job(node.partitioning, str(node.ref)).reads
                except DeclarationError:
                    continue  # its job is blocked

    def _add_run(self, known: KnownKeys, keys: KeySet | None, job: JobRef) -> None:
        add_run(known, keys, job, self._edges.writes(job), self._resolver)


def names_runtime_keys(snapshot: LineageSnapshot, declarations: Declarations) -> bool:
    """Whether any calendar may have runtime keys and so depend on the request."""
    declared = [(one.calendar, one.dimensions) for one in declarations.datasets]
    declared += [(one.calendar, one.dimensions) for one in declarations.jobs]
    for calendar, dimensions in declared:
        parts = [calendar, *(dimension.calendar for dimension in dimensions)]
        if any(part is not None and part.keys == RUNTIME for part in parts):
            return True
    sent = [node.partitioning for node in snapshot.datasets.values() if node.partitioning]
    sent += [node.partitioning for node in snapshot.jobs.values() if node.partitioning]
    return any(RUNTIME in str(facet) for facet in sent)
