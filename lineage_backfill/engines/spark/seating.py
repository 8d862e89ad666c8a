"""Assigns attempts to warm workers: the seats of all workers of one engine.

Threads get seats in the order in which they ask.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lineage_backfill.errors import EngineError


class WarmWorker(Protocol):
    """A process that answers requests in the protocol of `spark_runtime.worker`.

    A worker only does attempts with its own `key`. One that `has_own_logs` writes the output of
    each attempt into that attempt's log.
    """

    key: str
    log_path: Path
    has_own_logs: bool

    @property
    def is_new(self) -> bool:
        """Whether this engine started it."""

    @property
    def is_busy(self) -> bool:
        """Whether it is starting, or working on a request."""

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more requests."""

    def has_begun(self, request: str) -> bool:
        """Whether it has begun the request of this claim."""

    def wait_until_ready(self) -> None:
        """Wait until it takes requests; raises EnvironmentMissingError with the cause."""

    def claim(self, request: str) -> dict[str, Any]:
        """Return what tells another process which worker has this request."""

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and wait for its reply; raises WorkerDied, NotBegun."""

    def stop(self, request: str) -> None:
        """Stop the work on a request, without waiting for it."""

    def kill(self) -> None:
        """End it at once, with all its children."""

    def let_go(self) -> None:
        """Stop waiting for it; its current work continues."""

    def close(self, patience: float = ...) -> None:
        """Ask it to end; kill it if that takes more than `patience` seconds."""


@dataclass(eq=False)
class Table:
    """A worker, which may not be started yet, and its taken seats."""

    key: str
    seats: int
    taken: int = 0
    worker: WarmWorker | None = None
    is_ready: bool = False
    is_ending: bool = False  # once the last of its seats is given back
    idle_since: float = 0.0  # by the monotonic clock

    @property
    def free(self) -> int:
        """The number of seats that are left."""
        return self.seats - self.taken


@dataclass(eq=False, slots=True)
class _Wish:
    key: str
    own: bool


@dataclass(frozen=True, slots=True)
class _Seat:
    """The answer to a request for a seat: a table, or a new one in place of `spare` ones."""

    table: Table | None = None
    spare: tuple[Table, ...] = ()


class Seating:
    """At most `slots` workers, each with `seats` for as many attempts at once."""

    def __init__(self, slots: int, seats: int) -> None:
        self._slots, self._seats = slots, seats
        self._changed = threading.Condition()
        self._tables: list[Table] = []  # the one used last is at the end, and is used first
        self._waiting: list[_Wish] = []
        self.is_closed = False

    def take(self, key: str, *, own: bool = False) -> Table:
        """Wait for a seat and take it; for a table without a worker, start one and call `ready`.

        A new worker is started only if all warm ones with this key are full, or with `own`, which
        takes all of its seats. Idle workers with another key end to make room. Raises EngineError
        once the seating is closed.
        """
        wish = _Wish(key, own)
        with self._changed:
            self._waiting.append(wish)
            try:
                while (seat := self._seat_of(wish)) is None or self.is_closed:
                    if self.is_closed:
                        raise EngineError("the engine was closed", hint="Run again.")
                    self._changed.wait()
                table = seat.table
                if table is None:
                    table = Table(key, 1 if own else self._seats, is_ending=own)
                    self._tables = [one for one in self._tables if one not in seat.spare]
                    self._tables.append(table)
                table.taken += 1
            finally:
                self._waiting.remove(wish)
                self._changed.notify_all()
        for one in seat.spare:
            if one.worker is not None:
                one.worker.close()
        if table.worker is not None and table.is_ready and table.worker.has_ended:
            table.is_ending = True
            self.leave(table)
            return self.take(key, own=own)
        return table

    def _seat_of(self, mine: _Wish) -> _Seat | None:
        """Return the seat for a request, after all earlier requests; None to wait."""
        open_ = [table for table in self._tables if not table.is_ending]
        free = {table: table.free for table in open_ if table.is_ready}
        coming = Counter[str]()
        for table in open_:
            coming[table.key] += 0 if table.is_ready else table.free
        room = self._slots - len(self._tables)
        for wish in self._waiting:
            at = None if wish.own else _table_for(wish.key, free)
            seat: _Seat | None = None
            if at is not None:
                free[at] -= 1
                seat = _Seat(at)
            elif not wish.own and coming[wish.key]:
                coming[wish.key] -= 1
            else:
                idle = [one for one in free if free[one] == one.seats]
                spare = tuple(idle[: max(0, 1 - room)])
                if room + len(spare) > 0:
                    room += len(spare) - 1
                    free = {one: number for one, number in free.items() if one not in spare}
                    coming[wish.key] += 0 if wish.own else self._seats - 1
                    seat = _Seat(spare=spare)
            if wish is mine:
                return seat
        return None

    def ready(self, table: Table) -> None:
        """Make a started worker available to others."""
        with self._changed:
            table.is_ready = True
            self._changed.notify_all()

    def seat(self, worker: WarmWorker) -> Table:
        """Take a seat of a worker, known or new, for work that it already does."""
        with self._changed:
            table = next((one for one in self._tables if one.worker is worker), None)
            if table is None:
                table = Table(worker.key, self._seats, worker=worker, is_ready=True)
                self._tables.append(table)
            table.taken += 1
            return table

    def leave(self, table: Table) -> None:
        """Give a seat back; an ending worker is closed after its last one."""
        with self._changed:
            table.taken -= 1
            table.idle_since = time.monotonic()
            if table in self._tables:
                self._tables.remove(table)
                self._tables.append(table)
            self._changed.notify_all()
            is_over = table.is_ending and not table.taken
        if is_over and self.remove(table) and table.worker is not None:
            table.worker.close()

    def remove(self, table: Table) -> bool:
        """Forget a worker; False if that was done before."""
        with self._changed:
            is_here = table in self._tables
            if is_here:
                self._tables.remove(table)
            self._changed.notify_all()
            return is_here

    def idle(self, since: float) -> tuple[Sequence[WarmWorker], float | None]:
        """Remove and return workers idle since then; return since when the next one is idle."""
        with self._changed:
            idle = [one for one in self._tables if one.is_ready and one.taken == 0]
            old = [one for one in idle if one.idle_since <= since]
            self._tables = [one for one in self._tables if one not in old]
            later = [one.idle_since for one in idle if one not in old]
            return [one.worker for one in old if one.worker is not None], min(later, default=None)

    @property
    def workers(self) -> list[WarmWorker]:
        """All workers, including those that are starting."""
        with self._changed:
            return [one.worker for one in self._tables if one.worker is not None]

    def close(self) -> list[WarmWorker]:
        """Give out no more seats; remove and return all workers."""
        with self._changed:
            self.is_closed = True
            found = [one.worker for one in self._tables if one.worker is not None]
            self._tables = []
            self._changed.notify_all()
            return found


def _table_for(key: str, free: dict[Table, int]) -> Table | None:
    """Return the last worker of a key that has a free seat."""
    return next((one for one in reversed(free) if one.key == key and free[one] > 0), None)
