"""What the pages know: lineage and plans, kept for a while, for they take long to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lineage_backfill import workspace as app

if TYPE_CHECKING:
    from lineage_backfill.lineage.families import Family
    from lineage_backfill.lineage.select import Neighbours
    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.planning.resolver import Resolver
    from lineage_backfill.planning.timeline import Span
    from lineage_backfill.ports import RunStore
    from lineage_backfill.project import Project

_FRESH = 30.0  # seconds for which lineage is not read again
_KEPT = 16  # values of each kind
T = TypeVar("T")


class LruCache(Generic[T]):
    """The newest few values by their keys; each is made once at a time."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._values: dict[Hashable, T] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, made now where it is not kept."""
        with self._lock:
            if key not in self._values:
                value = make()
                while len(self._values) >= self._most:
                    del self._values[next(iter(self._values))]
                self._values[key] = value
            return self._values[key]


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The lineage as it was read at one time, and what follows from it."""

    project: Project
    snapshot: LineageSnapshot

    @cached_property
    def neighbours(self) -> Neighbours:
        """The graph as plans see it."""
        return app.neighbours(self.project, self.snapshot)

    @cached_property
    def resolver(self) -> Resolver:
        """What is known of partitions."""
        return app.partitioning(self.project, self.snapshot)

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """What looks like partitions, and is not declared."""
        return app.families(self.project, self.snapshot)


class Cache:
    """Answers for one project; the clock tells seconds and only goes forward."""

    def __init__(self, project: Project, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.project = project
        self._clock = clock
        self._lineage: tuple[float, Lineage] | None = None
        self._reading = Lock()
        self._spans = LruCache[Mapping[str, "tuple[Span, ...]"]]()
        self._reports = LruCache[dict[str, Any]]()

    def lineage(self) -> Lineage:
        """Return the lineage, at most half a minute old; raises LineageError, ConfigError."""
        with self._reading:
            if self._lineage is None or self._clock() - self._lineage[0] > _FRESH:
                snapshot = app.read_lineage(self.project)
                read = Lineage(project=self.project, snapshot=snapshot)
                self._lineage = self._clock(), read
            return self._lineage[1]

    def spans(self, status: Mapping[str, Any], store: RunStore) -> Mapping[str, tuple[Span, ...]]:
        """Return where the keys of each run of a backfill lie in time; raises LineageError."""
        key = status["id"], len(status["runs"])  # a tail adds runs; else they stay what they are

        def make() -> Mapping[str, tuple[Span, ...]]:
            snapshot = self.lineage().snapshot
            return app.run_spans(self.project, snapshot, status["id"], store=store)

        return self._spans.get(key, make)

    def report(self, status: Mapping[str, Any], store: RunStore) -> dict[str, Any]:
        """Return the report of a backfill, made again once one of its runs has gone on."""
        key = status["id"], status["updated_at"], *status["totals"].values()
        return self._reports.get(key, lambda: app.report(self.project, status["id"], store=store))
