"""Runtime keys: undeclared static keys, known from recorded runs and the request."""

from __future__ import annotations

from functools import cached_property
from itertools import chain

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import KeySet, parse_partitions, runtime_keys
from lineage_backfill.planning.edges import Edges
from lineage_backfill.planning.request import Request
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.project.resolver import DeclarationResolver

#: The word in place of a calendar's keys.
RUNTIME = "runtime"


class RuntimeKeys:
    """The known keys of runtime dimensions, by the dimension's name.

    They come from recorded runs, the request, and static keys of other dimensions of the same
    name.
    """

    def __init__(
        self,
        resolver: DeclarationResolver,
        snapshot: LineageSnapshot,
        edges: Edges,
        request: Request,
    ) -> None:
        """`resolver` tells which dimensions have runtime keys; it knows none of these."""
        self._resolver = resolver
        self._snapshot = snapshot
        self._edges = edges
        self._request = request

    def __call__(self, name: str) -> set[str]:
        """Return the known keys of one dimension."""
        return self._known.get(name, set())

    @cached_property
    def _known(self) -> dict[str, set[str]]:
        known: dict[str, set[str]] = {}
        declarations = self._resolver.declarations
        named = [declared.dimensions for declared in declarations.datasets]
        named += [declared.dimensions for declared in declarations.jobs]
        for dimension in chain.from_iterable(named):
            if isinstance(dimension.calendar.keys, tuple):
                known.setdefault(dimension.name, set()).update(dimension.calendar.keys)
        for declared in declarations.datasets:
            if declared.calendar is not None and isinstance(declared.calendar.keys, tuple):
                for column in declared.columns:
                    known.setdefault(column, set()).update(declared.calendar.keys)
        for record in self._snapshot.history:
            if record.partition_key:
                try:
                    keys = parse_partitions(record.partition_key)
                except UsageError:
                    continue  # not a key in our notation
                self._record_run(known, keys, record.job)
        for changed in self._request.changed:
            self._record(known, changed.keys, self._resolver.calendar(changed.dataset))
        for rerun in self._request.jobs:
            self._record_run(known, rerun.keys, rerun.job)
        return known

    def _record_run(self, known: dict[str, set[str]], keys: KeySet | None, job: JobRef) -> None:
        stated = self._resolver.stated_calendar(job)
        for calendar in (stated, *map(self._resolver.calendar, self._edges.writes(job))):
            self._record(known, keys, calendar)

    @staticmethod
    def _record(known: dict[str, set[str]], keys: KeySet | None, calendar: Calendar | None) -> None:
        for name, key in runtime_keys(calendar, keys) if calendar and keys else ():
            known.setdefault(name, set()).add(key)


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
