"""The time that decides about backfills: the run store's, the same on every machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from lineage_backfill.errors import StoreError
from lineage_backfill.ports import Clock, RunStore

_FRESH = timedelta(seconds=1)


class SystemClock:
    """The time of this machine."""

    def now(self) -> datetime:
        """Return the current instant, in UTC."""
        return datetime.now(UTC)


class StoreClock:
    """The time of a run store, read once a second; this machine's clock measures what is between.

    While the store does not answer, the last reading counts.
    """

    def __init__(self, store: RunStore, local: Clock | None = None) -> None:
        self._store = store
        self._local = local or SystemClock()
        self._read: tuple[float, datetime, timedelta] | None = None

    def now(self) -> datetime:
        """Return the current instant, in UTC; raises StoreError if there is no reading yet."""
        ticked, local = time.monotonic(), self._local.now()
        if self._read is not None:
            past = timedelta(seconds=ticked - self._read[0])
            is_fresh = max(past, abs(local - self._read[1])) < _FRESH
        if self._read is None or not is_fresh:
            try:
                offset = self._store.time(local) - local
            except StoreError:
                if self._read is None:
                    raise
                offset = self._read[2]
            self._read = ticked, local, offset
        return local + self._read[2]
