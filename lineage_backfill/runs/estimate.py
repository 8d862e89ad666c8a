"""Estimates the time that runs take, from the durations of past runs of their jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from lineage_backfill.model import JobRef
from lineage_backfill.ports import PastRun

#: With fewer past runs than this, the duration of a job is unknown.
ENOUGH: Final = 3
#: How many of the newest past runs of a job are used.
NEWEST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """Seconds that runs will take, None if unknown; `unknown` jobs have too few past runs."""

    seconds: float | None
    unknown: tuple[JobRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The number of runs of each job, their usual seconds, and how many runs work at once."""

    runs: Mapping[JobRef, int]
    usual: Mapping[JobRef, float]
    parallel: int

    @property
    def left(self) -> TimeLeft:
        """The time that all these runs take."""
        return time_left(self.runs, self.usual, self.parallel)


def usual_seconds(past: Iterable[PastRun], outside: Iterable[PastRun] = ()) -> dict[JobRef, float]:
    """Return the median duration of the newest past runs of each job.

    Runs `outside` of the run store count for jobs with too few in it. Both are newest first.
    """
    found: dict[JobRef, list[float]] = defaultdict(list)
    for one in past:
        found[one.job].append(one.seconds)
    few = {job for job, seconds in found.items() if len(seconds) < ENOUGH}
    for one in outside:
        if one.job in few or one.job not in found:
            few.add(one.job)
            found[one.job].append(one.seconds)
    return {job: median(one[:NEWEST]) for job, one in found.items() if len(one) >= ENOUGH}


def time_left(runs: Mapping[JobRef, int], usual: Mapping[JobRef, float], parallel: int) -> TimeLeft:
    """Return the usual seconds of the runs, `parallel` of them at once, and at least one run's."""
    left = {job: number for job, number in runs.items() if number > 0}
    known = {job: number for job, number in left.items() if job in usual}
    unknown = tuple(job for job in left if job not in usual)
    if not known:
        return TimeLeft(seconds=None, unknown=unknown)
    work = sum(usual[job] * number for job, number in known.items())
    longest = max(usual[job] for job in known)
    return TimeLeft(seconds=round(max(longest, work / parallel), 3), unknown=unknown)
