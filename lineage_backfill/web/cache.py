"""Cache of the pages: lineage and plans, which are slow to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, Generic, TypeVar

from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.planning.timeline import Span
from lineage_backfill.project import Project
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.workspace import Workspace

_FRESH = 30.0  # seconds before lineage is read again
_KEPT = 16  # cached values of each kind
T = TypeVar("T")


class LruCache(Generic[T]):
    """A small cache by key; two threads never compute one value at once."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._values: dict[Hashable, T] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, computed if it is not cached."""
        with self._lock:
            if key not in self._values:
                value = make()
                while len(self._values) >= self._most:
                    del self._values[next(iter(self._values))]
                self._values[key] = value
            return self._values[key]


class Cache:
    """The cached values of one project; `clock` is monotonic, in seconds."""

    def __init__(self, project: Project, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.project = project
        self._clock = clock
        self._read: tuple[float, Workspace] | None = None
        self._reading = Lock()
        self._spans = LruCache[Mapping[str, tuple[Span, ...]]]()
        self._reports = LruCache[dict[str, Any]]()

    def workspace(self) -> Workspace:
        """Return a workspace with its lineage, at most half a minute old.

        Raises LineageError or ConfigError.
        """
        with self._reading:
            if self._read is None or self._clock() - self._read[0] > _FRESH:
                workspace = Workspace(self.project)
                workspace.snapshot  # noqa: B018 - one that cannot be read is not kept
                self._read = self._clock(), workspace
            return self._read[1]

    @contextmanager
    def backfills(self) -> Iterator[Backfills]:
        """Open the run store for reading; the lineage is read only if needed."""
        with Workspace(self.project).open_store() as store:
            yield Backfills(Workspace(self.project, store=store, read=self._snapshot))

    def _snapshot(self) -> LineageSnapshot:
        return self.workspace().snapshot

    def spans(
        self, status: Mapping[str, Any], backfills: Backfills
    ) -> Mapping[str, tuple[Span, ...]]:
        """Return the time spans of each run of a backfill; raises LineageError."""
        key = status["id"], len(status["runs"])  # only a tail adds runs
        return self._spans.get(key, lambda: backfills.spans(status["id"]))

    def report(self, status: Mapping[str, Any], backfills: Backfills) -> dict[str, Any]:
        """Return the report of a backfill, made again after any of its runs moved on."""
        key = status["id"], status["updated_at"], *status["totals"].values()
        return self._reports.get(key, lambda: backfills.report(status["id"]))
