"""Runtime keys: undeclared static keys, known from recorded runs and the request."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import chain

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.calendar import EVERY
from lineage_backfill.partitions.text import KeySet, parse_partitions
from lineage_backfill.planning.edges import Edges
from lineage_backfill.planning.request import Request
from lineage_backfill.project.declarations import DatasetDeclaration, Declarations
from lineage_backfill.project.matching import Matcher

#: The word in place of a calendar's keys.
RUNTIME = "runtime"


class RuntimeKeys:
    """The known keys of runtime dimensions, by the dimension's name.

    They come from recorded runs, the request, and static keys of other dimensions of the same
    name.
    """

    def __init__(
        self,
        declarations: Declarations,
        datasets: Matcher[DatasetDeclaration],
        snapshot: LineageSnapshot,
        edges: Edges,
        request: Request,
    ) -> None:
        self._declarations = declarations
        self._datasets = datasets
        self._snapshot = snapshot
        self._edges = edges
        self._request = request

    def __call__(self, name: str) -> set[str]:
        """Return the known keys of one dimension."""
        return self._known.get(name, set())

    @cached_property
    def _known(self) -> dict[str, set[str]]:
        known: dict[str, set[str]] = {}
        named = [declared.dimensions for declared in self._declarations.datasets]
        named += [declared.dimensions for declared in self._declarations.jobs]
        for dimension in chain.from_iterable(named):
            if isinstance(dimension.calendar.keys, tuple):
                known.setdefault(dimension.name, set()).update(dimension.calendar.keys)
        for declared in self._declarations.datasets:
            if declared.calendar is not None and isinstance(declared.calendar.keys, tuple):
                for column in declared.columns:
                    known.setdefault(column, set()).update(declared.calendar.keys)
        for record in self._snapshot.history:
            if record.partition_key:
                try:
                    keys = parse_partitions(record.partition_key)
                except UsageError:
                    continue  # not a key in our notation
                self._record(known, keys, self._edges.writes(record.job))
        for changed in self._request.changed:
            self._record(known, changed.keys or (), (changed.dataset,))
        for rerun in self._request.jobs:
            self._record(known, rerun.keys or (), self._edges.writes(rerun.job))
        return known

    def _record(
        self, known: dict[str, set[str]], keys: KeySet, datasets: Iterable[DatasetRef]
    ) -> None:
        """Store the keys under the names of their runtime dimensions."""
        for dataset in datasets:
            declared = self._datasets.find(dataset)
            if declared is None:
                continue
            plain = declared.calendar is not None and declared.calendar.keys == RUNTIME
            column = next(iter(declared.columns)) if len(declared.columns) == 1 else ""
            dimensions = {d.name for d in declared.dimensions if d.calendar.keys == RUNTIME}
            for key in keys:
                named = {column: [key]} if isinstance(key, str) else key
                for name, values in named.items():
                    if name in dimensions or (plain and isinstance(key, str)):
                        texts = [values] if isinstance(values, str) else [str(v) for v in values]
                        found = known.setdefault(name, set())
                        found.update(text for text in texts if text != EVERY)


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
