"""Cache of the pages: lineage and plans, which are slow to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from werkzeug.exceptions import NotFound

from lineage_backfill.errors import BackfillError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.planning.timeline import Span
from lineage_backfill.plans.request import Request
from lineage_backfill.project import Project
from lineage_backfill.project.access import Reach
from lineage_backfill.workspace.backfills import Backfills, Current
from lineage_backfill.workspace.catchup import Stale, find_stale
from lineage_backfill.workspace.sight import SeenBackfills, Sight
from lineage_backfill.workspace.workspace import Workspace

_FRESH = 30.0  # seconds before lineage is read again
_LOOKED = 60.0  # seconds before what is stale is looked for again
_REST = 20.0  # a slow look is made less often: at most one part of so many is spent on it
_PAGES = 64  # rendered pages
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was stale at an instant, or why that could not be found."""

    at: datetime
    stale: Stale | None = None
    error: BackfillError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The document of all backfills, with the tallies of those under way.

    Other versions differ.
    """

    document: Mapping[str, Any]
    tallies: Mapping[str, Mapping[RunState, int]]
    version: str


class Looker:
    """Finds what is stale, in a thread of its own so that no page waits for it."""

    def __init__(self, find: Callable[[], Stale], clock: Callable[[], float]) -> None:
        self._find = find
        self._clock = clock
        self._lock = Lock()
        self._last: Look | None = None
        self._next = 0.0
        self._thread: Thread | None = None

    def newest(self, *, wait: bool = False) -> Look | None:
        """Return what the last look found, None before the first; an old one is made again.

        With `wait` the first look is waited for.
        """
        with self._lock:
            if self._thread is None and self._clock() >= self._next:
                self._thread = Thread(target=self._look, daemon=True)
                self._thread.start()
            thread, last = self._thread, self._last
        if wait and last is None and thread is not None:
            thread.join()
            last = self._last
        return last

    def _look(self) -> None:
        began, at = self._clock(), datetime.now(UTC)
        look: Look | None = None
        try:
            look = Look(at=at, stale=self._find())
        except BackfillError as error:
            look = Look(at=at, error=error)
        finally:
            with self._lock:
                self._last = self._last if look is None else look
                took = self._clock() - began
                self._next = self._clock() + max(_LOOKED, _REST * took)
                self._thread = None


class Cache:
    """The cached values of one project; `clock` is monotonic, in seconds.

    `seen` returns what the sender of the current request may see, None for all.
    """

    def __init__(
        self,
        project: Project,
        *,
        seen: Callable[[], Sight | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.project = project
        self._seen = seen
        self._clock = clock
        self._read: tuple[float, Workspace] | None = None
        self._reading = Lock()
        self._spans = LruCache[Mapping[str, tuple[Span, ...]]]()
        self._reports = LruCache[dict[str, Any]]()
        self._rendered = LruCache[bytes](_PAGES)
        self._current: dict[str, tuple[float, Current]] = {}
        self._following = Lock()
        self._list: tuple[float, Listed] | None = None
        self._listing = Lock()
        self._looker = Looker(self._find_stale, clock)
        self._sights = LruCache[Sight]()

    def workspace(self) -> Workspace:
        """Return a workspace with the lineage that may be seen, at most half a minute old.

        Raises LineageError or ConfigError.
        """
        seen = self._seen()
        return seen.workspace if seen else self.whole()

    def sight(self, reach: Reach) -> Sight:
        """Return what may be seen within this reach."""
        whole = self.whole()
        return self._sights.get((reach, id(whole.snapshot)), lambda: Sight(reach, whole))

    def whole(self) -> Workspace:
        """Return a workspace with all of its lineage: for plans."""
        with self._reading:
            if self._read is None or self._clock() - self._read[0] > _FRESH:
                workspace = Workspace(self.project)
                workspace.snapshot  # noqa: B018 - one that cannot be read is not kept
                self._read = self._clock(), workspace
            return self._read[1]

    def rendered(self, key: Hashable, render: Callable[[], bytes]) -> bytes:
        """Return a page that was rendered for the same key; see `live`."""
        return self._rendered.get(key, render)

    def current(self, backfill: str, *, patience: float = 0.0) -> Current:
        """Return what is known of a backfill; with `patience`, as of so many seconds ago."""
        with self._following:
            at, known = self._current.pop(backfill, (0.0, None))
            if known is None or self._clock() - at > patience:
                with self._kept() as kept:
                    at, known = self._clock(), Backfills(kept).current(backfill, known)
            self._current[backfill] = at, known
            while len(self._current) > _KEPT:
                del self._current[next(iter(self._current))]
        seen = self._seen()
        return replace(known, status=seen.document(known.status)) if seen else known

    def listed(self, *, patience: float = 0.0) -> Listed:
        """Return the backfills; with `patience`, as of so many seconds ago."""
        if self._seen():
            with self.backfills() as kept:
                return _listed(kept)
        with self._listing:
            if self._list is None or self._clock() - self._list[0] > patience:
                with self.backfills() as kept:
                    self._list = self._clock(), _listed(kept)
            return self._list[1]

    def look(self) -> Look | None:
        """Return what was stale a short time ago; None while that is not known yet."""
        return self._looker.newest()

    def looked(self) -> tuple[datetime, Stale]:
        """Return when was looked, and what was stale; waits for the first look.

        Raises a BackfillError where nothing can be judged, NotFound where a look has failed.
        """
        look = self._looker.newest(wait=True)
        if look is None or look.stale is None:
            raise (look and look.error) or NotFound()
        return look.at, look.stale

    def _find_stale(self) -> Stale:
        return find_stale(
            Workspace(self.project, as_of=datetime.now(UTC), read=self._snapshot), Request()
        )

    @contextmanager
    def backfills(self) -> Iterator[Backfills]:
        """Open the run store for reading what may be seen; the lineage is read only if needed."""
        with self._kept() as workspace:
            seen = self._seen()
            yield SeenBackfills(workspace, seen) if seen else Backfills(workspace)

    @contextmanager
    def _kept(self) -> Iterator[Workspace]:
        with Workspace(self.project).open_store() as store:
            yield Workspace(self.project, store=store, read=self._snapshot)

    def _snapshot(self) -> LineageSnapshot:
        return self.whole().snapshot

    def spans(self, status: Mapping[str, Any]) -> Mapping[str, tuple[Span, ...]]:
        """Return the time spans of each run of a backfill; raises LineageError."""
        seen = self._seen()
        key = status["id"], len(status["runs"]), seen and seen.reach  # only a tail adds runs

        def find() -> Mapping[str, tuple[Span, ...]]:
            with self.backfills() as kept:
                return kept.spans(status)

        return self._spans.get(key, find)

    def report(self, status: Mapping[str, Any], backfills: Backfills) -> dict[str, Any]:
        """Return the report of a backfill, made again after any of its runs moved on."""
        seen = self._seen()
        key = status["id"], seen and seen.reach, status["updated_at"], *status["totals"].values()
        return self._reports.get(key, lambda: backfills.report(status["id"]))


def _listed(kept: Backfills) -> Listed:
    document = kept.history()
    states = {one["id"]: one["state"] for one in document["backfills"]}
    running = [one for one in states if BackfillState(states[one]).is_under_way]
    tallies = kept.tallies(running)
    version = sha256(repr((document, tallies)).encode()).hexdigest()
    return Listed(document=document, tallies=tallies, version=version)
