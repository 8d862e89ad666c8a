"""Waits for a run store that does not answer, so that running attempts are not abandoned."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, repeat
from threading import Event
from typing import Any

from lineage_backfill.errors import StoreError, StoreUnreachableError
from lineage_backfill.ports import Lease, Move, RunStore

#: How many seconds to wait for a store.
STORE_TIMEOUT = 300.0
_LONGEST = 10.0  # seconds between two tries


class RetryingStore:
    """A run store whose calls are retried until it answers, for at most STORE_TIMEOUT seconds.

    `report` is called once with the error's message; `stopped` ends the waiting. Then the
    StoreUnreachableError of the last try is raised.
    """

    def __init__(self, store: RunStore, report: Callable[[str], None], stopped: Event) -> None:
        self._store = store
        self._report = report
        self._stopped = stopped

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._repeated, found) if callable(found) else found

    def record(self, lease: Lease, moves: Sequence[Move], *, now: datetime) -> None:
        """Write moves; if the answer of a try was lost, they are not written twice."""
        is_repeated = False

        def write() -> None:
            nonlocal is_repeated
            try:
                self._store.record(lease, moves, now=now)
            except StoreUnreachableError:
                is_repeated = True
                raise
            except StoreError:
                if not (is_repeated and self._holds(lease.backfill_id, moves)):
                    raise

        self._repeated(write)

    def _holds(self, backfill_id: str, moves: Sequence[Move]) -> bool:
        states = {run.run_id: run.state for run in self._store.runs(backfill_id)}
        last = {move.run_id: move.state for move in moves}
        return all(states[run_id] is state for run_id, state in last.items())

    def _repeated(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        reported = ""
        deadline = time.monotonic() + STORE_TIMEOUT
        for pause in chain((0.25, 0.5, 1.0, 2.0, 4.0), repeat(_LONGEST)):
            try:
                return call(*given, **named)
            except StoreUnreachableError as error:
                if time.monotonic() + pause > deadline or self._stopped.wait(pause):
                    raise
                if error.message != reported:
                    self._report(error.message)
                reported = error.message
        raise AssertionError("unreachable")
