"""Which run may start now: pure, and each finished run costs only its own edges."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lineage_backfill.model import JobRef, RunState
from lineage_backfill.plan.plan import PlannedRun

#: The place of a run in the order of starting: priority, wave, position in the plan.
Rank = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """How a job takes part: its pool, its priority (higher goes first) and its own cap in runs."""

    pool: str | None = None
    priority: int = 0
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """A run that cannot start, and the run that failed above it."""

    run: PlannedRun
    cause: PlannedRun


class _Job:
    """The ready runs of one job, and how many of its runs are under way."""

    def __init__(self, limits: JobLimits) -> None:
        self.limits = limits
        self.ready: list[tuple[Rank, str]] = []
        self.active = 0

    @property
    def has_room(self) -> bool:
        cap = self.limits.max_parallel
        return cap is None or self.active < cap


class _Pool:
    """The jobs that share a cap; `heads` holds the first ready run of each job that has room.

    An entry that is no head any more is dropped when it comes up.
    """

    def __init__(self, cap: int | None) -> None:
        self.cap = cap
        self.active = 0
        self.heads: list[tuple[Rank, JobRef]] = []

    @property
    def has_room(self) -> bool:
        return self.cap is None or self.active < self.cap


class Scheduler:
    """Holds the state of every run of a plan and says which may start, in order, under the caps.

    `states` are those of the run store (absent: pending).
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        *,
        max_parallel: int,
        states: Mapping[str, RunState] | None = None,
        jobs: Mapping[JobRef, JobLimits] | None = None,
        pools: Mapping[str, int] | None = None,
    ) -> None:
        states, jobs, pools = states or {}, jobs or {}, pools or {}
        self._runs = {run.id: run for run in runs}
        self.states = {run.id: states.get(run.id, RunState.PENDING) for run in runs}
        self._downstream: dict[str, list[str]] = defaultdict(list)
        self._missing: dict[str, int] = {}
        self._rank: dict[str, Rank] = {}
        self._jobs = {run.job: _Job(jobs.get(run.job, JobLimits())) for run in runs}
        self._pools = {
            name: _Pool(pools.get(name) if name is not None else None)
            for name in {job.limits.pool for job in self._jobs.values()}
        }
        self._room = max_parallel
        for position, run in enumerate(runs):
            priority = self._jobs[run.job].limits.priority
            self._rank[run.id] = (-priority, run.wave, position)
            self._missing[run.id] = sum(not self.states[up].is_good for up in run.upstream)
            for up in run.upstream:
                self._downstream[up].append(run.id)
            if self.states[run.id] in (RunState.SUBMITTED, RunState.RUNNING):
                self._occupy(run, 1)
        for run in runs:
            self._offer(run)

    def run(self, run_id: str) -> PlannedRun:
        """Return a run of the plan by its id."""
        return self._runs[run_id]

    def ready(self) -> list[PlannedRun]:
        """Take the runs that may start now; they count as under way from here on."""
        taken: list[PlannedRun] = []
        while self._room > 0 and (run := self._next()) is not None:
            self.states[run.id] = RunState.SUBMITTED
            self._occupy(run, 1)
            taken.append(run)
        return taken

    def succeeded(self, run_id: str) -> None:
        """A run under way has succeeded: what waited only for it becomes ready."""
        self._pass(run_id, RunState.SUCCEEDED)

    def skipped(self, run_id: str) -> None:
        """A run that was taken need not run: what waited only for it becomes ready."""
        self._pass(run_id, RunState.SKIPPED)

    def _pass(self, run_id: str, state: RunState) -> None:
        self._end(run_id, state)
        for down in self._downstream[run_id]:
            self._missing[down] -= 1
            self._offer(self._runs[down])

    def failed(self, run_id: str, state: RunState = RunState.FAILED) -> list[Blocked]:
        """A run under way has ended otherwise; returns its descendants, which are blocked now."""
        self._end(run_id, state)
        return self._block([self._runs[run_id]])

    def delayed(self, run_id: str) -> None:
        """An attempt has ended and the run waits for another one, see `offered`."""
        self._end(run_id, RunState.PENDING)

    def offered(self, run_id: str) -> None:
        """A delayed run may start again."""
        self._offer(self._runs[run_id])

    def doomed(self) -> list[Blocked]:
        """Return the pending runs below failed ones, blocked now."""
        ended = (RunState.FAILED, RunState.BLOCKED, RunState.CANCELLED)
        return self._block(run for run in self._runs.values() if self.states[run.id] in ended)

    def cancelled(self) -> list[PlannedRun]:
        """Give up everything that is not under way; returns those runs."""
        given_up = [r for r in self._runs.values() if self.states[r.id] is RunState.PENDING]
        for run in given_up:
            self.states[run.id] = RunState.CANCELLED
        return given_up

    def _block(self, causes: Iterable[PlannedRun]) -> list[Blocked]:
        blocked = []
        for cause in causes:
            stack = [cause.id]
            while stack:
                for down in self._downstream[stack.pop()]:
                    if self.states[down] is RunState.PENDING:
                        self.states[down] = RunState.BLOCKED
                        blocked.append(Blocked(self._runs[down], cause))
                        stack.append(down)
        return blocked

    def _offer(self, run: PlannedRun) -> None:
        """Put a run among the ready ones if it is."""
        if self.states[run.id] is RunState.PENDING and not self._missing[run.id]:
            heapq.heappush(self._jobs[run.job].ready, (self._rank[run.id], run.id))
            self._show(run.job)

    def _show(self, ref: JobRef) -> None:
        job = self._jobs[ref]
        if job.ready and job.has_room:
            heapq.heappush(self._pools[job.limits.pool].heads, (job.ready[0][0], ref))

    def _next(self) -> PlannedRun | None:
        """Take the first of the ready runs whose job and pool have room."""
        pools = [pool for pool in self._pools.values() if pool.has_room and self._prune(pool)]
        if not pools:
            return None
        _, ref = heapq.heappop(min(pools, key=lambda pool: pool.heads[0]).heads)
        _, run_id = heapq.heappop(self._jobs[ref].ready)
        return self._runs[run_id]

    def _prune(self, pool: _Pool) -> bool:
        """Drop the outdated heads that stand first; returns whether one is left."""
        while pool.heads:
            rank, ref = pool.heads[0]
            job = self._jobs[ref]
            while job.ready and self.states[job.ready[0][1]] is not RunState.PENDING:
                heapq.heappop(job.ready)
            if job.ready and job.has_room and job.ready[0][0] == rank:
                return True
            heapq.heappop(pool.heads)
        return False

    def _occupy(self, run: PlannedRun, by: int) -> None:
        job = self._jobs[run.job]
        job.active += by
        self._pools[job.limits.pool].active += by
        self._room -= by
        self._show(run.job)

    def _end(self, run_id: str, state: RunState) -> None:
        self.states[run_id] = state
        self._occupy(self._runs[run_id], -1)
