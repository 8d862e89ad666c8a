"""Simulates a backfill: the real scheduler, with durations of past runs instead of engines.

Pure: nothing is started, and no clock is read.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lineage_backfill.model import JobRef, named
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import PastRun
from lineage_backfill.runs.drive.scheduler import JobLimits, Scheduler

#: With fewer past runs than this, the duration of a job is unknown.
ENOUGH: Final = 3
#: How many of the newest past runs of a job are used.
LOOKED_AT: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Seconds: half of the past runs took at most `p50`, and nine of ten at most `p90`."""

    p50: float
    p90: float

    def to_dict(self) -> dict[str, float]:
        """Return the document of it, in seconds to the millisecond."""
        return {"p50": round(self.p50, 3), "p90": round(self.p90, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long runs of a job take: `fixed` seconds and `per_key` for each key, times a share.

    With past runs of different sizes, these two define a fitted line; if all had one size, time
    grows with the keys; if sizes are unknown, it is constant. Half of the past runs took at most
    `p50` times that, and nine of ten at most `p90` times.
    """

    fixed: float
    per_key: float
    p50: float
    p90: float

    @classmethod
    def of(cls, past: Sequence[PastRun]) -> Pace | None:
        """Return the pace of past runs of one job, newest first; None if there are too few."""
        if len(past) < ENOUGH:
            return None
        recent = past[:LOOKED_AT]
        sized = [(run.count, run.seconds) for run in recent if run.count]
        fixed, per_key = 1.0, 0.0
        if len(sized) >= ENOUGH:
            fixed, per_key = _line(sized)
        else:
            sized = [(1, run.seconds) for run in recent]
        shares = sorted(seconds / (fixed + per_key * count) for count, seconds in sized)
        p50, p90 = _quantile(shares, 0.5), _quantile(shares, 0.9)
        return cls(fixed=fixed, per_key=per_key, p50=p50, p90=p90)

    def seconds(self, count: int) -> Spread:
        """Return the seconds for a run of this many keys."""
        shape = self.fixed + self.per_key * count
        return Spread(p50=self.p50 * shape, p90=self.p90 * shape)


def _line(sized: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return the fixed part and the part per key of a line that never falls below zero."""
    counts, times = zip(*sized, strict=True)
    if not any(times):
        return 1.0, 0.0
    if len(set(counts)) > 1:
        slope, fixed = statistics.linear_regression(counts, times)
        if slope < 0:
            return statistics.fmean(times), 0.0
        if fixed >= 0:
            return fixed, slope
    return 0.0, statistics.linear_regression(counts, times, proportional=True).slope


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A run on the critical path: the seconds that it `waited` for a place, and then `took`."""

    run: PlannedRun
    waited: float
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """The total duration of one job's runs, in seconds.

    `busy` is None if there are too few past runs; `past` is their number.
    """

    job: JobRef
    runs: int
    partitions: int
    busy: Spread | None
    past: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How long a plan will take, and why.

    `makespan` is the time from the first start to the last end if every run takes its p50, or its
    p90; None if no job is known, and a lower bound if there are `unknown` jobs, which count as
    zero. It includes the `start` of an engine, if past ones are known. `critical_path` determines
    the last end at p50; its waits and durations add up to it, without the start. Jobs are sorted by
    their work, largest first.
    """

    makespan: Spread | None
    critical_path: tuple[Step, ...]
    jobs: tuple[JobTime, ...]
    start: Spread | None = None

    @property
    def unknown(self) -> tuple[JobRef, ...]:
        """The jobs with too few past runs."""
        return tuple(one.job for one in self.jobs if one.busy is None)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the estimate, times in seconds."""
        return {
            "makespan": self.makespan and self.makespan.to_dict(),
            "critical_path": [
                {
                    "run": step.run.id,
                    "job": named(step.run.job),
                    "partitions": list(step.run.partitions),
                    "waited": round(step.waited, 3),
                    "took": round(step.took, 3),
                }
                for step in self.critical_path
            ],
            "jobs": [
                {
                    "job": named(one.job),
                    "runs": one.runs,
                    "partitions": one.partitions,
                    "busy": one.busy and one.busy.to_dict(),
                    "past_runs": one.past,
                }
                for one in self.jobs
            ],
            "unknown": [named(job) for job in self.unknown],
            **({"start": self.start.to_dict()} if self.start else {}),
        }


def estimate(
    runs: Sequence[PlannedRun],
    past: Iterable[PastRun],
    outside: Iterable[PastRun] = (),
    *,
    max_parallel: int,
    jobs: Mapping[JobRef, JobLimits] | None = None,
    pools: Mapping[str, int] | None = None,
    starts: Callable[[str], Sequence[float]] = lambda _: (),
) -> Estimate:
    """Return how long the runs of a plan will take, from past runs of their jobs, newest first.

    Runs `outside` of the run store count for jobs with too few in it. The caps and priorities are
    those of the scheduler. `starts` returns the seconds of past starts of an engine: those of the
    slowest engine count once, before all runs.
    """
    known, others = _by_job(past), _by_job(outside)
    for job in others:
        if len(known[job]) < ENOUGH:
            known[job] += others[job]
    planned: dict[JobRef, Counter[int]] = defaultdict(Counter)  # number of runs by number of keys
    for run in runs:
        planned[run.job][run.count] += 1
    seconds: dict[tuple[JobRef, int], Spread] = {}
    for job, sizes in planned.items():
        if (pace := Pace.of(known[job])) is not None:
            seconds.update({(job, count): pace.seconds(count) for count in sizes})

    def play(share: Callable[[Spread], float]) -> _Played:
        none = Spread(p50=0.0, p90=0.0)
        took = {run.id: share(seconds.get((run.job, run.count), none)) for run in runs}
        return _play(Scheduler(runs, max_parallel=max_parallel, jobs=jobs, pools=pools), took)

    started = [
        sorted(found) for engine in {run.engine for run in runs} if (found := starts(engine or ""))
    ]
    begun = [max((_quantile(one, share) for one in started), default=0.0) for share in (0.5, 0.9)]
    makespan = start = Spread(p50=begun[0], p90=begun[1]) if started else None
    path: Sequence[Step] = ()
    if seconds:
        typical, slow = play(lambda one: one.p50), play(lambda one: one.p90)
        before = start or Spread(p50=0, p90=0)
        makespan = Spread(p50=before.p50 + typical.end, p90=before.p90 + slow.end)
        path = _critical_path(runs, typical)
    times = [_time(job, sizes, seconds, len(known[job])) for job, sizes in planned.items()]
    times.sort(key=lambda one: -one.busy.p50 if one.busy else math.inf)
    return Estimate(makespan=makespan, critical_path=tuple(path), jobs=tuple(times), start=start)


def _by_job(past: Iterable[PastRun]) -> dict[JobRef, list[PastRun]]:
    found: dict[JobRef, list[PastRun]] = defaultdict(list)
    for one in past:
        found[one.job].append(one)
    return found


@dataclass(frozen=True, slots=True)
class _Played:
    """The start and duration of each run, the last run, and its end."""

    started: Mapping[str, float]
    took: Mapping[str, float]
    last: str
    end: float


def _play(scheduler: Scheduler, took: Mapping[str, float]) -> _Played:
    """Let the scheduler run a plan in which all runs succeed."""
    started: dict[str, float] = {}
    under_way: list[tuple[float, str]] = []  # end and run
    now, last = 0.0, ""
    while True:
        for run in scheduler.ready():
            started[run.id] = now
            heapq.heappush(under_way, (now + took[run.id], run.id))
        if not under_way:
            return _Played(started, took, last, now)
        now = under_way[0][0]
        while under_way and under_way[0][0] == now:
            _, last = heapq.heappop(under_way)
            scheduler.succeeded(last)


def _critical_path(runs: Iterable[PlannedRun], played: _Played) -> list[Step]:
    """Return the run that ended last, preceded by the one it waited for, and so on, in order."""
    by_id = {run.id: run for run in runs}
    found = []

    def ended(run_id: str) -> float:
        return played.started[run_id] + played.took[run_id]

    run_id: str | None = played.last
    while run_id is not None:
        run = by_id[run_id]
        before = max(run.upstream, key=ended, default=None)
        ready = 0.0 if before is None else ended(before)
        waited = played.started[run_id] - ready
        found.append(Step(run=run, waited=waited, took=played.took[run_id]))
        run_id = before
    return found[::-1]


def _time(
    job: JobRef, sizes: Counter[int], seconds: Mapping[tuple[JobRef, int], Spread], past: int
) -> JobTime:
    each = [
        (seconds[job, count], number) for count, number in sizes.items() if (job, count) in seconds
    ]
    busy = Spread(
        p50=sum(one.p50 * number for one, number in each),
        p90=sum(one.p90 * number for one, number in each),
    )
    return JobTime(
        job=job,
        runs=sizes.total(),
        partitions=sum(count * number for count, number in sizes.items()),
        busy=busy if each else None,
        past=past,
    )
