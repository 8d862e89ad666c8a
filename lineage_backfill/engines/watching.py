"""Engines that poll a service for all of their attempts, in one thread."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.errors import (
    BackfillError,
    EngineError,
    GuardRailError,
    ServiceUnreachableError,
    TokenExpiredError,
)
from lineage_backfill.ports import AttemptState, Engine, EngineRun, Outcome

_log = logging.getLogger(__name__)
_EXPIRED_POLLS = 5  # polls with an expired token before the backfill ends


@dataclass(eq=False)
class WatchedAttempt(ABC):
    """One attempt that an engine follows; `busy` is held by the thread that acts on it."""

    files: AttemptFiles
    spec: Mapping[str, Any]
    is_cancelled: bool = field(default=False, kw_only=True)
    is_new: bool = field(default=True, kw_only=True)
    busy: threading.RLock = field(default_factory=threading.RLock, kw_only=True)

    @property
    def handle(self) -> str:
        """The handle of the attempt in its engine."""
        return str(self.files.spec_path)

    @property
    @abstractmethod
    def has_begun(self) -> bool:
        """Whether the service has left its queue with it."""

    @property
    @abstractmethod
    def engine_run(self) -> EngineRun | None:
        """What the attempt runs as in the service, None if that is unknown."""


Watched = TypeVar("Watched", bound=WatchedAttempt)


class WatchingEngine(Engine, Generic[Watched]):
    """Follows attempts in a service that every machine can ask, every `poll` seconds."""

    is_shared = True

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._watched: dict[str, Watched] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._runs: dict[str, EngineRun] = {}
        self._expired: tuple[int, TokenExpiredError] | None = None
        self._listener: Callable[[str], None] = lambda _handle: None
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        self._lock = threading.Lock()

    # For subclasses

    @abstractmethod
    def attempt(self, files: AttemptFiles) -> Watched:
        """Return an attempt with what the run store knows of it."""

    @abstractmethod
    def begin(self, one: Watched) -> None:
        """Start an attempt, or find what an earlier request has started."""

    @abstractmethod
    def is_sent(self, one: Watched) -> bool:
        """Whether a request without an answer may have started something."""

    @abstractmethod
    def look_at_all(self, under_way: Sequence[Watched]) -> None:
        """Poll the service, and finish the attempts that have ended."""

    # The port

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        """Start an attempt, or follow the one with this token; raises EngineError."""
        files = AttemptFiles(spec_path)
        files.check_token(token)
        handle = str(spec_path)
        if handle in self._outcomes:
            self._listener(handle)
        elif handle not in self._watched:
            self._begin(self.attempt(files))
        return handle

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of an attempt; one that never began begins now."""
        files = AttemptFiles(spec_path)
        if not files.has_token(token):
            return None
        handle = str(spec_path)
        if handle not in self._watched and handle not in self._outcomes:
            one = self.attempt(files)
            with self._failed(one):
                self._begin(one)
        return handle

    def poll(self, handle: str) -> Outcome:
        """Return the outcome; raises TokenExpiredError if the token stays expired."""
        if handle in self._outcomes:
            return self._outcomes[handle]
        if self._expired is not None and self._expired[0] >= _EXPIRED_POLLS:
            raise self._expired[1]
        one = self._watched.get(handle)
        if one is None:
            return Outcome(state=AttemptState.LOST, error="not followed by this engine")
        return Outcome(state=AttemptState.RUNNING if one.has_begun else AttemptState.QUEUED)

    def identify(self, handle: str) -> EngineRun | None:
        return self._runs.get(handle)

    def close(self) -> None:
        self._closing.set()

    # Inside

    def _begin(self, one: Watched) -> None:
        """Take the first steps; the watcher handles whatever is uncertain afterwards."""
        with self._lock:
            self._watched[one.handle] = one
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
                self._watcher.start()
        try:
            with one.busy:
                self.begin(one)
        except ServiceUnreachableError as error:
            if not self.is_sent(one):
                self._unwatch(one)
                raise
            # The request may have arrived: only a later one can tell.
            _log.warning("%s; retrying every %g s. %s", error, self._poll, error.hint)
        except BackfillError:
            self._unwatch(one)
            raise
        finally:
            one.is_new = False

    def _identified(self, one: Watched) -> None:
        """Notify the listener if what an attempt runs as has changed."""
        found = one.engine_run
        if found is not None and self._runs.get(one.handle) != found:
            self._runs[one.handle] = found
            if not one.is_new:
                self._listener(one.handle)

    def _watch(self) -> None:
        last = ""
        while not self._closing.wait(self._poll):
            with self._lock:
                # What is read while an attempt begins is out of date once it has begun.
                under_way = [one for one in self._watched.values() if not one.is_new]
            try:
                if under_way:
                    self.look_at_all(under_way)
                last, self._expired = "", None
            except BackfillError as error:
                if last != str(error):
                    last = str(error)
                    _log.warning("%s; retrying every %g s. %s", last, self._poll, error.hint)
                if isinstance(error, TokenExpiredError):
                    self._count_expired(error)

    def _count_expired(self, error: TokenExpiredError) -> None:
        """End the backfill, which can be resumed, if the token stays expired."""
        number = (self._expired[0] if self._expired else 0) + 1
        self._expired = number, error
        if number == _EXPIRED_POLLS:
            for handle in list(self._watched):
                self._listener(handle)

    @contextmanager
    def _failed(self, one: Watched) -> Iterator[None]:
        """Fail an attempt that the service refuses; without an answer, the attempt continues."""
        try:
            yield
        except (EngineError, GuardRailError) as error:
            self._finish(one, Outcome(state=AttemptState.FAILED, error=error.full_text))
        except BackfillError:
            raise
        except Exception as error:  # noqa: BLE001 - the end must always be reported
            self._finish(one, Outcome(state=AttemptState.FAILED, error=repr(error)))

    def _finish(self, one: Watched, outcome: Outcome) -> None:
        self._unwatch(one)
        if one.handle not in self._outcomes:
            self._outcomes[one.handle] = outcome
            self._listener(one.handle)

    def _unwatch(self, one: Watched) -> None:
        with self._lock:
            self._watched.pop(one.handle, None)
