"""Decides which runs may start; pure, and each finished run costs only its own edges."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from lineage_backfill.model import JobRef, RunState
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.project.run_rules import RunWindow
from lineage_backfill.runs.drive.retry import RetryPolicy

_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """The limits of a job: its pool, its priority (higher goes first) and its own cap in runs.

    One that is not `idempotent` is never retried automatically. `timeout` limits one attempt;
    `retry` None means the policy of the executor, `window` are the hours in which runs start.
    """

    pool: str | None = None
    priority: int = 0
    idempotent: bool = True
    max_parallel: int | None = None
    timeout: timedelta | None = None
    retry: RetryPolicy | None = None
    window: RunWindow | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """A run that cannot start, and the run that failed above it."""

    run: PlannedRun
    cause: PlannedRun


class _Pool:
    """The jobs that share a cap; `heads` holds the first ready run of each job that has room.

    An outdated entry is dropped when it is reached.
    """

    __slots__ = ("active", "cap", "heads")

    def __init__(self, cap: int | None) -> None:
        self.cap = cap
        self.active = 0
        self.heads: list[int] = []

    @property
    def has_room(self) -> bool:
        return self.cap is None or self.active < self.cap


class _Job:
    """The ready runs of one job, the number of its active runs, and its run in `heads`."""

    __slots__ = ("active", "cap", "is_held", "pool", "ready", "shown")

    def __init__(self, cap: int | None, pool: _Pool) -> None:
        self.cap = cap
        self.pool = pool
        self.active = 0
        self.ready: list[int] = []
        self.shown = _NONE
        self.is_held = False

    @property
    def has_room(self) -> bool:
        return not self.is_held and (self.cap is None or self.active < self.cap)


class Scheduler:
    """The state of every run of a plan; returns the runs that may start, in order, within caps.

    Ready runs start by highest priority, then by the longest path below them, then by the order of
    each job's keys in the plan. `states` are those of the run store (absent: pending).
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
        states, pools = states or {}, pools or {}
        limits = {ref: (jobs or {}).get(ref, JobLimits()) for ref in {run.job for run in runs}}
        by_name = {
            name: _Pool(None if name is None else pools.get(name))
            for name in {one.pool for one in limits.values()}
        }
        self._by_ref = by_ref = {
            ref: _Job(one.max_parallel, by_name[one.pool]) for ref, one in limits.items()
        }
        self._room = max_parallel
        self._pools = list(by_name.values())
        # A run is represented by its number in the starting order, so a heap of numbers is in
        # order.
        ahead, turns = _lengths(runs), _turns(runs)
        order = sorted(
            range(len(runs)),
            key=lambda n: (-limits[runs[n].job].priority, -ahead[n], turns[n], runs[n].wave),
        )
        self._runs = [runs[number] for number in order]
        self._numbers = {run.id: number for number, run in enumerate(self._runs)}
        self._states = [states.get(run.id, RunState.PENDING) for run in self._runs]
        self._jobs = [by_ref[run.job] for run in self._runs]
        self._downstream: list[list[int]] = [[] for _ in self._runs]
        self._missing: list[int] = []
        self._link()
        for job in by_ref.values():
            self._show(job)

    def _link(self) -> None:
        """Record what each run waits for, which runs are ready, and the places taken by others."""
        done = {number for number, state in enumerate(self._states) if state.is_good}
        for number, run in enumerate(self._runs):
            waits = [self._numbers[up] for up in run.upstream]
            for up in waits:
                self._downstream[up].append(number)
            self._missing.append(len(waits) - len(done.intersection(waits)) if done else len(waits))
            job, state = self._jobs[number], self._states[number]
            if state is RunState.PENDING and not self._missing[number]:
                job.ready.append(number)
            elif state.is_under_way:
                self._occupy(job, 1)

    @property
    def states(self) -> dict[str, RunState]:
        """The state of each run by its id."""
        return dict(zip(self._numbers, self._states, strict=True))

    def hold(self, jobs: Collection[JobRef]) -> None:
        """Start no runs of these jobs until the next call without them."""
        for ref, job in self._by_ref.items():
            job.is_held = ref in jobs
            self._show(job)

    @property
    def held(self) -> set[JobRef]:
        """The held jobs with runs that could start."""
        return {
            ref
            for ref, job in self._by_ref.items()
            if job.is_held and any(self._states[one] is RunState.PENDING for one in job.ready)
        }

    def run(self, run_id: str) -> PlannedRun:
        """Return a run of the plan by its id."""
        return self._runs[self._numbers[run_id]]

    def ready(self) -> list[PlannedRun]:
        """Take the runs that may start now; they count as active afterwards."""
        taken: list[PlannedRun] = []
        while self._room > 0 and (number := self._next()) != _NONE:
            self._states[number] = RunState.SUBMITTED
            self._occupy(self._jobs[number], 1)
            taken.append(self._runs[number])
        return taken

    def succeeded(self, run_id: str) -> None:
        """An active run has succeeded: runs that waited only for it become ready."""
        self._pass(run_id, RunState.SUCCEEDED)

    def skipped(self, run_id: str) -> None:
        """A taken run need not run: runs that waited only for it become ready."""
        self._pass(run_id, RunState.SKIPPED)

    def _pass(self, run_id: str, state: RunState) -> None:
        for down in self._downstream[self._end(run_id, state)]:
            self._missing[down] -= 1
            if not self._missing[down]:
                self._offer(down)

    def failed(self, run_id: str, state: RunState = RunState.FAILED) -> list[Blocked]:
        """An active run has failed; returns its descendants, which are now blocked."""
        return self._block([self._end(run_id, state)])

    def delayed(self, run_id: str) -> None:
        """An attempt has ended and the run waits for another one, see `offered`."""
        self._end(run_id, RunState.PENDING)

    def offered(self, run_id: str) -> None:
        """A delayed run may start again."""
        self._offer(self._numbers[run_id])

    def doomed(self) -> list[Blocked]:
        """Return the pending runs below failed ones, which are now blocked."""
        lost = [n for n, state in enumerate(self._states) if state.is_final and not state.is_good]
        return self._block(lost)

    def cancelled(self) -> list[PlannedRun]:
        """Give up all runs that are not active, and return them."""
        given_up = [n for n, state in enumerate(self._states) if state is RunState.PENDING]
        for number in given_up:
            self._states[number] = RunState.CANCELLED
        return [self._runs[number] for number in given_up]

    def _block(self, causes: Iterable[int]) -> list[Blocked]:
        blocked = []
        for cause in causes:
            stack = [cause]
            while stack:
                for down in self._downstream[stack.pop()]:
                    if self._states[down] is RunState.PENDING:
                        self._states[down] = RunState.BLOCKED
                        blocked.append(Blocked(self._runs[down], self._runs[cause]))
                        stack.append(down)
        return blocked

    def _offer(self, number: int) -> None:
        """Add a run to the ready ones if it is ready."""
        if self._states[number] is RunState.PENDING and not self._missing[number]:
            job = self._jobs[number]
            heapq.heappush(job.ready, number)
            self._show(job)

    def _show(self, job: _Job) -> None:
        """Ensure that the first ready run of a job below its cap is in the heads of its pool."""
        if job.ready and job.shown != job.ready[0] and job.has_room:
            job.shown = job.ready[0]
            heapq.heappush(job.pool.heads, job.shown)

    def _next(self) -> int:
        """Take the first ready run whose job and pool are below their caps."""
        first: _Pool | None = None
        for pool in self._pools:
            is_open = pool.has_room and self._prune(pool)
            if is_open and (first is None or pool.heads[0] < first.heads[0]):
                first = pool
        if first is None:
            return _NONE
        number = heapq.heappop(first.heads)
        job = self._jobs[number]
        heapq.heappop(job.ready)
        job.shown = _NONE
        return number

    def _prune(self, pool: _Pool) -> bool:
        """Drop outdated heads at the top; return whether one is left."""
        while pool.heads:
            number = pool.heads[0]
            job = self._jobs[number]
            while job.ready and self._states[job.ready[0]] is not RunState.PENDING:
                heapq.heappop(job.ready)
            if job.ready and job.ready[0] == number and job.has_room:
                return True
            heapq.heappop(pool.heads)
            if job.shown == number:
                job.shown = _NONE
                self._show(job)
        return False

    def _occupy(self, job: _Job, by: int) -> None:
        job.active += by
        job.pool.active += by
        self._room -= by
        self._show(job)

    def _end(self, run_id: str, state: RunState) -> int:
        """Release the places of a run; return its number."""
        number = self._numbers[run_id]
        self._states[number] = state
        self._occupy(self._jobs[number], -1)
        return number


def _lengths(runs: Sequence[PlannedRun]) -> list[int]:
    """Return the number of runs on the longest path below each run; they are in plan order."""
    numbers = {run.id: number for number, run in enumerate(runs)}
    found = [1] * len(runs)
    for number in reversed(range(len(runs))):
        for up in runs[number].upstream:
            above = numbers[up]
            found[above] = max(found[above], found[number] + 1)
    return found


def _turns(runs: Sequence[PlannedRun]) -> list[int]:
    """Return the position of each run among those of its job."""
    seen: Counter[JobRef] = Counter()
    found = []
    for run in runs:
        found.append(seen[run.job])
        seen[run.job] += 1
    return found
