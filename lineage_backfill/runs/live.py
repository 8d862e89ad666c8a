"""Finds active runs from outside on keys of a backfill."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from lineage_backfill.errors import ConflictError, UnfitRunError, UsageError
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.mapping import parse_existing
from lineage_backfill.partitions.text import KeySet, parse, render
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.runs.observations import RecordedRuns
from lineage_backfill.staleness.record import LATER, Run

#: A run without an end that started longer ago than this counts as dead.
SILENT = timedelta(days=1)
_AGAIN = 5.0  # seconds between two readings of the lineage


class LiveRuns:
    """Names the first such run, and reads again while there is one.

    `look` reads the current lineage, `engines` return the run keys that each engine reports. With
    `refuses` such a run raises ConflictError instead of a wait.
    """

    def __init__(
        self,
        first: RecordedRuns,
        *,
        look: Callable[[], RecordedRuns],
        engines: Mapping[str, Callable[[JobRef], KeySet | None]],
        calendar_of: Callable[[JobRef], Calendar | None],
        now: Callable[[], datetime],
        refuses: bool,
    ) -> None:
        self._outside = first
        self._look = look
        self._engines = engines
        self._calendar_of = calendar_of
        self._now = now
        self._refuses = refuses
        self._last = ""
        self._looked = time.monotonic()

    def blocker(self, runs: Sequence[PlannedRun]) -> str:
        """Return a sentence about an active run on keys of these runs, "" if there is none.

        Raises BackfillError if an engine fails to answer.
        """
        if self._last and time.monotonic() - self._looked < _AGAIN:
            return self._last
        if self._last:
            self._outside, self._looked = self._look(), time.monotonic()
        self._last, unknown = self._in_engines(runs)
        found = (self._in_lineage(run) for run in runs if (run.engine, run.job) in unknown)
        self._last = self._last or next(filter(None, found), "")
        if self._last and self._refuses:
            raise ConflictError(
                self._last,
                hint="Wait for its end; if it is dead, set LINEAGE_BACKFILL_RUN_LIVE_RUNS=ignore.",
            )
        return self._last

    def _in_engines(self, runs: Sequence[PlannedRun]) -> tuple[str, set[tuple[str | None, JobRef]]]:
        """Return the sentence by what engines report, and the jobs that they know nothing of.

        An engine knows better than the lineage what runs now: an event of an end may be missing.
        """
        wanted: dict[tuple[str, JobRef], PartitionSet] = {}
        unknown = {(run.engine, run.job) for run in runs}
        for run in runs:
            calendar = self._calendar_of(run.job)
            if run.engine and run.engine in self._engines and calendar is not None:
                asked = run.engine, run.job
                wanted[asked] = wanted.get(asked, NOTHING) | parse(calendar, run.partitions)
        for (engine, job), keys in wanted.items():
            calendar = self._calendar_of(job)
            assert calendar is not None
            reported = self._engines[engine](job)
            if reported is None:
                continue
            unknown.discard((engine, job))
            try:
                # An engine may name keys that are newer than the plan.
                shared = keys & parse_existing(calendar, reported)
            except UsageError as error:
                raise UnfitRunError(
                    f"cannot determine which keys others run: engine {engine!r} names keys that"
                    f" {job} does not have: {error}",
                    hint="Correct its keys, or run with LINEAGE_BACKFILL_RUN_LIVE_RUNS=ignore.",
                ) from error
            if shared:
                shown = ", ".join(str(key) for key in render(calendar, shared)[:3])
                found = f"{job} {shown} is being run by others, according to engine {engine!r}"
                return found, unknown
        return "", unknown

    def _in_lineage(self, run: PlannedRun) -> str:
        calendar = self._calendar_of(run.job)
        if calendar is None:
            return ""
        keys = parse(calendar, run.partitions)
        for other in self._outside.outside(run.job):
            if self._is_live(other) and (shared := other.keys & keys):
                shown = ", ".join(str(key) for key in render(calendar, shared)[:3])
                since = f"{other.started_at:%Y-%m-%dT%H:%M:%SZ}"
                return f"{run.job} {shown} is being run by others since {since}"
        return ""

    def _is_live(self, run: Run) -> bool:
        is_silent = run.started_at is LATER or self._now() - run.started_at >= SILENT
        return run.ended_at is None and not is_silent
