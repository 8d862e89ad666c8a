"""Runs in the lineage that no backfill of this run store started."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from lineage_backfill.lineage.inference.recorded import touched_keys
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.planning.lookup import Resolver


@dataclass(frozen=True, slots=True)
class OutsideRun:
    """One such run; `keys` are those that it may have written, `ended_at` None while it runs."""

    record: ObservedRun
    keys: PartitionSet
    ended_at: datetime | None


class OutsideRuns:
    """The outside runs of each job; `is_ours` tests for backfills of this run store."""

    def __init__(
        self, history: Iterable[ObservedRun], resolver: Resolver, is_ours: Callable[[str], bool]
    ) -> None:
        self._records: dict[JobRef, list[ObservedRun]] = defaultdict(list)
        for record in history:
            self._records[record.job].append(record)
        self._resolver = resolver
        self._is_ours = is_ours
        self._found: dict[JobRef, tuple[OutsideRun, ...]] = {}

    def of(self, job: JobRef) -> tuple[OutsideRun, ...]:
        """Return the outside runs of a job."""
        if job not in self._records:
            return ()
        found = self._found.get(job)
        if found is None:
            facts = self._resolver.job(job)
            calendar = facts.calendar
            found = self._found[job] = tuple(
                OutsideRun(
                    record,
                    calendar.with_earlier(touched_keys(record, calendar), facts.lookback),
                    None if record.state == "RUNNING" else record.ended_at or record.started_at,
                )
                for record in self._records[job]
                if calendar is not None and not (record.backfill and self._is_ours(record.backfill))
            )
        return found

    def since(self, job: JobRef, instant: datetime | None) -> PartitionSet:
        """Return the keys that outside runs of a job may have written at or after the instant."""
        keys = NOTHING
        for run in self.of(job):
            if instant is None or run.ended_at is None or run.ended_at >= instant:
                keys |= run.keys
        return keys
