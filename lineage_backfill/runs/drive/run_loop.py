"""Runs one backfill: a single loop that decides, records and then acts."""

from __future__ import annotations

import heapq
import json
import logging
import random
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from lineage_backfill import redaction
from lineage_backfill.errors import (
    BackfillError,
    ConflictError,
    ServiceUnreachableError,
    StoreError,
)
from lineage_backfill.files import private, private_folder, reason
from lineage_backfill.model import BackfillState, JobRef, RunState
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import (
    AttemptRecord,
    AttemptState,
    BackfillRecord,
    Clock,
    ControlRequest,
    Engine,
    EngineRun,
    Lease,
    Move,
    Origin,
    Outcome,
    Reporter,
    RunRecord,
    RunStore,
    Trace,
    list_of,
)
from lineage_backfill.project.run_rules import Failure
from lineage_backfill.runs.cutoff import Cutoff
from lineage_backfill.runs.drive.owner import LEASE
from lineage_backfill.runs.drive.retry import RetryPolicy
from lineage_backfill.runs.drive.scheduler import Blocked, JobLimits, Scheduler

_log = logging.getLogger(__name__)
#: Makes the run spec of (run, attempt, token, path of the result file).
SpecBuilder = Callable[[PlannedRun, int, str, Path], dict[str, Any]]
#: An event; the loop calls it to get the resulting moves.
Event = Callable[[], list[Move]]

#: Seconds after a renewal in which no other executor can have taken over.
_SURE = LEASE / 2
_HEARTBEAT = 1.0  # seconds; also the delay until a request from another terminal is seen
_GRACE = 15.0  # seconds for stopped runs to end
_LONGEST_ERROR = 20_000  # characters
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_STEP = 500  # runs skipped before their moves are recorded


def spec_file(folder: Path, run_id: str, attempt: int) -> Path:
    """Return the path of an attempt's run spec in the folder of its backfill."""
    return folder / "runs" / f"{run_id}-{attempt}.spec.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a run, without its cut-off keys; result and log are files next to its spec."""

    run: PlannedRun
    number: int
    token: str
    spec_path: Path
    cut_off: KeySet = ()

    @property
    def engine(self) -> str:
        """The name of its engine."""
        assert self.run.engine is not None
        return self.run.engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of a run loop, for any backfill; `engines` are by name.

    `jobs` has the limits of jobs, `retry` the default policy; after `max_failures` failed runs no
    more are started. `machine` is the name of this machine, `gone` are machines that no longer
    exist. `parameters` are given to every job, with secrets resolved.
    """

    store: RunStore
    engines: Mapping[str, Engine]
    spec_builder: SpecBuilder
    reporter: Reporter
    retry: RetryPolicy
    clock: Clock
    jobs: Mapping[JobRef, JobLimits] = field(default_factory=dict)
    max_failures: int | None = None
    machine: str = ""
    gone: Collection[str] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)


class RunLoop:
    """Runs one backfill under a lease, from its state in the store to an end.

    Ended attempts, control requests and Ctrl-C arrive in one queue, so nothing waits for a poll and
    one thread decides. `cutoff` tracks what runs read and write; if the record disables cutoff,
    every planned run runs.
    """

    def __init__(
        self,
        services: Services,
        lease: Lease,
        record: BackfillRecord,
        scheduler: Scheduler,
        folder: Path,
        cutoff: Cutoff | None = None,
    ) -> None:
        self._services = services
        self._store, self._clock = services.store, services.clock
        self._engines, self._reporter = services.engines, services.reporter
        self._lease = lease
        self._record = record
        self._scheduler = scheduler
        self._folder = folder
        self._cutoff = cutoff
        self._needed: dict[str, PlannedRun] = {}  # the rest of runs with keys cut off
        self._happened: SimpleQueue[Event] = SimpleQueue()
        self._attempts: dict[str, int] = {}
        self._tries: Counter[str] = Counter()
        self._running: dict[str, Attempt] = {}  # by token
        self._handles: dict[tuple[str, str], str] = {}  # (engine, handle) to token
        self._known: dict[str, EngineRun | None] = {}  # as recorded, by token
        self._delayed: list[tuple[float, str]] = []
        self._renewed = (0.0, self._clock.now())
        self._stopping = self._pausing = self._cancelling = False
        self._failed = sum(one is RunState.FAILED for one in scheduler.states.values())
        self._is_failing = False
        self._due: list[tuple[datetime, str]] = []  # when attempts have timed out, by token
        self._timed_out: set[str] = set()
        every = services.jobs.items()
        self._windows = {ref: one.window for ref, one in every if one.window is not None}
        self._held: set[JobRef] = set()  # jobs outside of their window, or whose list is under way
        self._listed: dict[JobRef, str] = {}  # jobs whose runs may be in a list, with their engine
        self._deadline: float | None = None
        self._over = threading.Event()

    def run(self, runs: Mapping[str, PlannedRun], records: Iterable[RunRecord]) -> BackfillState:
        """Run to an end and return the state, which the caller records.

        Raises ConflictError when the lease is taken over, StoreError when nothing can be written.
        """
        moves = self._apply_control(self._renew())
        records = list(records)
        tried: Iterable[RunRecord | AttemptRecord] = records
        if any(one.attempt > 1 and one.engine_run is None for one in records):
            tried = self._store.attempts(self._lease.backfill_id)  # oldest first
        known = {one.run_id: one.engine_run for one in tried if one.engine_run is not None}
        for name, engine in self._engines.items():
            engine.remember(known, self._keep)
            engine.listen(partial(self._notify, name))
            jobs = {run.job for run in runs.values() if run.engine == name}
            self._listed |= {job: name for job in jobs if engine.takes_list(job)}
        heartbeat = threading.Thread(target=self._heartbeat, name="heartbeat", daemon=True)
        heartbeat.start()
        try:
            moves += self._take_over_all(runs, records) + self._take(timeout=0)
            while True:
                moves += self._count_failures()
                self._time_out()
                self._mind_windows()
                starting, skipped = ([], []) if self._stopping else self._next()
                self._record_moves(moves + skipped, starting)
                handed_over = self._submit(starting)
                # Attempts that have ended need no handle in the store: the outcome has it.
                moves = self._take(timeout=0)
                moves += [
                    self._handed_over(*one)
                    for one in handed_over
                    if one[0].token in self._running and one[0].token not in self._known
                ]
                if moves or starting or skipped:
                    continue
                if self._is_over():
                    return self._state()
                moves = self._take(timeout=self._time_left())
        finally:
            self._over.set()
            heartbeat.join()

    @property
    def is_busy(self) -> bool:
        """Whether there are active attempts whose end this loop has not seen."""
        return bool(self._running)

    def stop(self) -> None:
        """Stop: the first call lets running attempts end, the second one stops them.

        Any thread and any signal handler may call this.
        """
        self._happened.put(self._stop)

    def let_go(self) -> None:
        """End soon; active attempts continue. Any thread may call this."""
        self._happened.put(self._let_go)

    # At the start

    def _take_over_all(
        self, runs: Mapping[str, PlannedRun], records: Sequence[RunRecord]
    ) -> list[Move]:
        """Reconcile active attempts of an earlier executor with the engines, by token."""
        moves = []
        self._refuse_unjudged(runs, records)
        for record in records:
            self._attempts[record.run_id] = record.attempt
            if record.state.is_under_way and record.token:
                run = runs[record.run_id]
                if self._cutoff is not None:
                    run = self._cutoff.without(run, record.cut_off)
                    self._cutoff.opened(run)
                attempt = self._attempt(run, record.attempt, record.token)
                moves += self._take_over(attempt, record)
        return moves + _blocked(self._scheduler.doomed())

    def _refuse_unjudged(
        self, runs: Mapping[str, PlannedRun], records: Iterable[RunRecord]
    ) -> None:
        """Raise ConflictError for active runs that only another machine can judge."""
        unknown: dict[str, list[RunRecord]] = {}
        for record in records:
            if not record.state.is_under_way or not self._is_elsewhere(record):
                continue
            attempt = self._attempt(runs[record.run_id], record.attempt, record.token or "")
            engine = self._engines[attempt.engine]
            if not engine.can_tell(attempt.spec_path, attempt.token):
                unknown.setdefault(record.machine or "", []).append(record)
        for machine, under_way in unknown.items():
            first = under_way[0]
            others = f" and {len(under_way) - 1:,} more" if under_way[1:] else ""
            raise ConflictError(
                f"job {first.job.name} ({first.run_id}){others} may still be running on {machine}:"
                " only that machine can tell",
                hint=f"Resume there. If {machine} is gone for good, add --machine-gone {machine}.",
            )

    def _is_elsewhere(self, record: RunRecord) -> bool:
        """Whether an attempt was submitted by another machine that may still exist."""
        here, gone = self._services.machine, self._services.gone
        return bool(record.machine) and record.machine != here and record.machine not in gone

    def _take_over(self, attempt: Attempt, record: RunRecord) -> list[Move]:
        engine = self._engines[attempt.engine]
        handed_over = record.state is RunState.SUBMITTED
        if self._is_elsewhere(record):
            outcome = engine.left(attempt.spec_path, attempt.token)
            if outcome is not None:
                self._running[attempt.token] = attempt
                self._happened.put(partial(self._finish_attempt, attempt, outcome))
                return [self._handed_over(attempt, str(attempt.spec_path))] if handed_over else []
        if engine.is_shared and not attempt.spec_path.exists():
            self._write_spec(attempt)  # of another machine; the engine knows it by its token
        handle = engine.find(attempt.spec_path, attempt.token)
        if handle is None:
            lost = Outcome(state=AttemptState.LOST, error="the engine has no such attempt")
            if self._cancelling:
                blocked = self._scheduler.failed(attempt.run.id, RunState.CANCELLED)
                return [_move(attempt, RunState.CANCELLED, lost), *_blocked(blocked)]
            if not self._limits(attempt.run).idempotent and not handed_over:
                self._failed += 1
                blocked = self._scheduler.failed(attempt.run.id)
                return [_move(attempt, RunState.FAILED, _unrepeated(lost)), *_blocked(blocked)]
            self._scheduler.delayed(attempt.run.id)
            self._scheduler.offered(attempt.run.id)
            return [_move(attempt, RunState.PENDING, lost)]
        self._running[attempt.token] = attempt
        self._handles[attempt.engine, handle] = attempt.token
        self._await_end(attempt, record.started_at or self._clock.now())
        if engine.poll(handle).state.is_final:  # it ended before the listener was set
            self._notify(attempt.engine, handle)
        if handed_over:
            return [self._handed_over(attempt, handle)]
        self._known[attempt.token] = record.engine_run
        return self._identified(attempt, handle)

    # Deciding, recording, acting

    def _next(self) -> tuple[list[Attempt], list[Move]]:
        """Return the attempts to start now, and the moves of runs that are not needed."""
        while self._delayed and self._delayed[0][0] <= time.monotonic():
            self._scheduler.offered(heapq.heappop(self._delayed)[1])
        starting: list[Attempt] = []
        skipped: list[Move] = []
        while len(skipped) < _STEP and (ready := self._scheduler.ready()):
            for run in ready:
                needed, cut_off = self._judge(run)
                if needed is None:
                    self._scheduler.skipped(run.id)
                    skipped.append(
                        Move(run_id=run.id, state=RunState.SKIPPED, error=_SAME, cut_off=cut_off)
                    )
                    continue
                if cut_off:
                    self._needed[run.id] = needed
                starting.append(self._open(needed, cut_off))
        return self._in_lists(starting), skipped

    def _in_lists(self, starting: Sequence[Attempt]) -> list[Attempt]:
        """Give runs that are one list their tokens in it.

        What one run can do to the others after it, a timeout or a crash, needs it to be alone.
        """
        lists: dict[str, list[Attempt]] = {}
        for one in starting:
            limits = self._limits(one.run)
            may_share = self._tries[one.run.id] == 1 and limits.idempotent and not limits.timeout
            engine = self._listed.get(one.run.job) if may_share else None
            lists.setdefault(engine or one.token, []).append(one)
        return [
            replace(one, token=f"{group[0].token}.{number}") if len(group) > 1 else one
            for group in lists.values()
            for number, one in enumerate(group, start=1)
        ]

    def _judge(self, run: PlannedRun) -> tuple[PlannedRun | None, KeySet]:
        if self._cutoff is None or not self._record.settings.cutoff:
            return run, ()
        return self._cutoff.judge(run)

    def _open(self, run: PlannedRun, cut_off: KeySet) -> Attempt:
        if self._cutoff is not None:
            self._cutoff.opened(run)
        self._attempts[run.id] = number = self._attempts.get(run.id, 0) + 1
        self._tries[run.id] += 1
        token = f"{self._store.id[:12]}-{secrets.token_hex(10)}"
        return self._attempt(run, number, token, cut_off)

    def _attempt(self, run: PlannedRun, number: int, token: str, cut_off: KeySet = ()) -> Attempt:
        path = spec_file(self._folder, run.id, number)
        return Attempt(run=run, number=number, token=token, spec_path=path, cut_off=cut_off)

    def _record_moves(self, moves: list[Move], starting: Sequence[Attempt]) -> None:
        """Record ends and intents in one transaction; then report the ends."""
        intents = [
            Move(
                run_id=attempt.run.id,
                state=RunState.SUBMITTED,
                attempt=attempt.number,
                token=attempt.token,
                machine=self._services.machine,
                trace=Trace(job=attempt.run.job, keys=attempt.run.partitions),
                cut_off=attempt.cut_off,
            )
            for attempt in starting
        ]
        if moves or intents:
            self._store.record(self._lease, moves + intents, now=self._clock.now())
            self._log_moves(moves + intents)
        for move in moves:
            if move.state.is_final:
                run = self._needed.get(move.run_id) or self._scheduler.run(move.run_id)
                self._reporter.run_finished(run, move.state, move.error or "")

    def _log_moves(self, moves: Iterable[Move]) -> None:
        for move in moves:
            why = f": {move.error}" if move.error else ""
            _log.info("run %s is %s%s", move.run_id, move.state, why)

    def _submit(self, starting: Sequence[Attempt]) -> list[tuple[Attempt, str]]:
        """Submit attempts to their engines; returns the accepted ones with their handles."""
        handed_over: list[tuple[Attempt, str]] = []
        for _, group in groupby(starting, key=lambda one: list_of(one.token) or one.token):
            attempts = list(group)
            self._running |= {one.token: one for one in attempts}
            try:
                handles = self._begin(attempts)
            except (StoreError, ConflictError):
                raise
            except BackfillError as error:
                refused = Outcome(
                    state=AttemptState.FAILED,
                    error=error.full_text,
                    transient=isinstance(error, ServiceUnreachableError),
                )
                for one in attempts:
                    self._happened.put(partial(self._finish_attempt, one, refused))
                continue
            for one, handle in zip(attempts, handles, strict=True):
                self._handles[one.engine, handle] = one.token
                self._await_end(one, self._clock.now())
                handed_over.append((one, handle))
                self._reporter.run_started(one.run, one.number)
            self._report_starts()  # preparing many attempts may take as long as a start
        return handed_over

    def _begin(self, attempts: Sequence[Attempt]) -> list[str]:
        """Submit one attempt, or several as a list."""
        first, *others = attempts
        for one in attempts:
            self._write_spec(one)
        self._ensure_lease()
        engine = self._engines[first.engine]
        if others:
            return engine.submit_list({one.token: one.spec_path for one in attempts})
        return [engine.submit(first.spec_path, first.token)]

    def _ensure_lease(self) -> None:
        """Make sure, right before a submission, that no other executor has taken over.

        This process may have been suspended since the intent was recorded. If it is suspended right
        after this, the executor that takes over gives up the attempt in its engine, see
        `Engine.find`.
        """
        ticked, at = self._renewed
        elapsed = max(timedelta(seconds=time.monotonic() - ticked), abs(self._clock.now() - at))
        if elapsed > _SURE:
            self._renew()

    def _renew(self) -> ControlRequest | None:
        """Renew the lease; raises ConflictError if it was taken over."""
        renewed = (time.monotonic(), self._clock.now())
        now = self._store.time(renewed[1])
        control = self._store.renew(self._lease, now=now, ttl=LEASE)
        self._renewed = renewed
        return control

    def _write_spec(self, attempt: Attempt) -> None:
        name = f"{attempt.run.id}-{attempt.number}.result.json"
        result_path = attempt.spec_path.with_name(name)
        spec = self._services.spec_builder(attempt.run, attempt.number, attempt.token, result_path)
        spec["backfill_id"] = self._lease.backfill_id
        spec["store"] = self._store.id
        spec["parameters"] = {**spec.get("parameters", {}), **self._services.parameters}
        try:
            private_folder(attempt.spec_path.parent)
            with open(attempt.spec_path, "w", encoding="utf-8", opener=private) as file:
                file.write(json.dumps(spec))
        except OSError as error:
            raise StoreError(
                f"the run spec {attempt.spec_path} cannot be written: {reason(error)}",
                hint=f"Free disk space or grant write access, then `resume {spec['backfill_id']}`.",
            ) from error

    # Events

    def _notify(self, engine: str, handle: str) -> None:
        self._happened.put(partial(self._ended, engine, handle))

    def _take(self, timeout: float | None) -> list[Move]:
        """Wait for an event; return the moves for all events that have arrived."""
        moves: list[Move] = []
        while True:
            try:
                event = self._happened.get(timeout=timeout)
            except Empty:
                break
            moves += event()
            timeout = 0
        return moves

    def _time_left(self) -> float | None:
        """Return the seconds until the next retry or deadline, None if there is none."""
        due = [self._deadline] if self._deadline is not None else []
        if self._delayed and not self._stopping:
            due.append(self._delayed[0][0])
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _ended(self, engine: str, handle: str) -> list[Move]:
        token = self._handles.get((engine, handle))
        if token is None:
            return []  # a repeated notice, or not ours
        outcome = self._engines[engine].poll(handle)
        attempt = self._running[token]
        if not outcome.state.is_final:
            return self._identified(attempt, handle)
        self._report_starts()
        del self._handles[engine, handle]
        self._known[token] = found = self._engines[engine].identify(handle)
        moves = self._finish_attempt(attempt, outcome)
        return [replace(moves[0], handle=handle, engine_run=found), *moves[1:]]

    def _identified(self, attempt: Attempt, handle: str) -> list[Move]:
        """Return the move that records an attempt's run in its engine, if that is new."""
        found = self._engines[attempt.engine].identify(handle)
        is_new = found is not None and found != self._known.get(attempt.token)
        return [self._handed_over(attempt, handle)] if is_new else []

    def _keep(self, run_id: str, attempt: int, found: EngineRun) -> None:
        """Record an attempt's run in its engine before the engine acts on it; from any thread."""
        move = Move(
            run_id=run_id,
            state=RunState.RUNNING,
            attempt=attempt,
            attempt_state=AttemptState.RUNNING,
            engine_run=found,
        )
        self._store.record(self._lease, [move], now=self._clock.now())

    def _handed_over(self, attempt: Attempt, handle: str) -> Move:
        self._known[attempt.token] = found = self._engines[attempt.engine].identify(handle)
        return Move(
            run_id=attempt.run.id,
            state=RunState.RUNNING,
            attempt=attempt.number,
            attempt_state=AttemptState.RUNNING,
            handle=handle,
            engine_run=found,
        )

    def _finish_attempt(self, attempt: Attempt, outcome: Outcome) -> list[Move]:
        """Return the move of a run whose attempt has ended, then those of its descendants."""
        del self._running[attempt.token]
        found = self._known.pop(attempt.token, None)
        run, limits = attempt.run, self._limits(attempt.run)
        if outcome.state is AttemptState.SUCCEEDED:
            self._scheduler.succeeded(run.id)
            move = _move(attempt, RunState.SUCCEEDED, outcome)
            if self._cutoff is not None:
                trace = self._cutoff.closed(run, outcome.result)
                since = None if found is None else found.read_since
                move = replace(move, trace=replace(trace, since=since))
            return [move]
        failure: Failure = "failure"
        if attempt.token in self._timed_out:
            failure = "timeout"
            why = f"timed out after {limits.timeout}"
            if found is not None and found.origin is Origin.ADOPTED:
                why = f"{why}; {outcome.error}"
            outcome = replace(outcome, state=AttemptState.FAILED, error=why)
        elif outcome.transient or outcome.state is AttemptState.LOST:
            failure = "transient"
        if outcome.state is AttemptState.CANCELLED:
            if self._deadline is not None and not self._cancelling:  # stopped, to be resumed
                self._scheduler.delayed(run.id)
                return [_move(attempt, RunState.PENDING, outcome)]
            blocked = self._scheduler.failed(run.id, RunState.CANCELLED)
            return [_move(attempt, RunState.CANCELLED, outcome), *_blocked(blocked)]
        chance = random.random()  # noqa: S311 - not for secrets
        policy = limits.retry or self._services.retry
        delay = policy.delay(self._tries[run.id], failure=failure, chance=chance)
        if delay is not None and not limits.idempotent:
            outcome, delay = _unrepeated(outcome), None
        delay = None if self._cancelling else delay
        if delay is None:
            self._failed += 1
            blocked = self._scheduler.failed(run.id)
            return [_move(attempt, RunState.FAILED, outcome), *_blocked(blocked)]
        self._scheduler.delayed(run.id)
        heapq.heappush(self._delayed, (time.monotonic() + delay.total_seconds(), run.id))
        self._reporter.run_delayed(run, delay, outcome.error or "")
        return [_move(attempt, RunState.PENDING, outcome)]

    def _stop(self) -> list[Move]:
        hard = self._stopping
        self._stopping = True
        self._reporter.stopping(len(self._running), hard=hard)
        if hard:
            self._kill()
        return []

    def _let_go(self) -> list[Move]:
        self._stopping = True
        self._deadline = time.monotonic()
        return []

    def _kill(self) -> None:
        self._deadline = time.monotonic() + _GRACE
        for engine, handle in list(self._handles):
            self._engines[engine].cancel(handle)

    def _apply_control(self, control: ControlRequest | None) -> list[Move]:
        if control is None:
            return []
        self._stopping = True
        self._reporter.stopping(len(self._running), hard=control is ControlRequest.KILL)
        if control is ControlRequest.PAUSE:
            self._pausing = True
            return []
        given_up = self._give_up("cancelled by the user")
        if control is ControlRequest.KILL:
            self._kill()
        return given_up

    def _limits(self, run: PlannedRun) -> JobLimits:
        return self._services.jobs.get(run.job, _NO_LIMITS)

    def _await_end(self, attempt: Attempt, since: datetime) -> None:
        timeout = self._limits(attempt.run).timeout
        if timeout is not None:
            heapq.heappush(self._due, (since + timeout, attempt.token))

    def _time_out(self) -> None:
        """Stop attempts that have timed out; they count as failed once they have ended."""
        while self._due and self._due[0][0] <= self._clock.now():
            _, token = heapq.heappop(self._due)
            for (engine, handle), other in list(self._handles.items()):
                if other == token:
                    self._timed_out.add(token)
                    self._engines[engine].cancel(handle)

    def _mind_windows(self) -> None:
        """Hold the jobs whose runs may not start at this time, or wait for the next list."""
        now = self._clock.now()
        shut = {ref: window for ref, window in self._windows.items() if not window.is_open(now)}
        busy = {one.engine for one in self._running.values() if list_of(one.token)}
        held = shut.keys() | {ref for ref, engine in self._listed.items() if engine in busy}
        if held != self._held:
            self._held = held
            self._scheduler.hold(held)
            for window in sorted({str(shut[ref]) for ref in self._scheduler.held & shut.keys()}):
                self._reporter.waiting(f"runs start only between {window}")

    def _count_failures(self) -> list[Move]:
        """Cancel runs that have not started once too many have failed."""
        most = self._services.max_failures
        if most is None or self._cancelling:
            return []
        if self._failed < most:
            return []
        self._is_failing = True
        self._reporter.stopping(len(self._running), hard=False)
        return self._give_up(
            f"not started: {self._failed} run{'s' * (self._failed > 1)} had failed"
        )

    def _give_up(self, why: str) -> list[Move]:
        """Submit no more runs; return the moves that cancel those not started."""
        self._stopping = self._cancelling = True
        return [
            Move(run_id=run.id, state=RunState.CANCELLED, error=why)
            for run in self._scheduler.cancelled()
        ]

    def _report_starts(self) -> list[Move]:
        for engine in self._engines.values():
            for start in engine.starts():
                self._reporter.engine_starting(start)
        return []

    def _heartbeat(self) -> None:
        """Renew the lease and read requests, in a separate thread."""
        seen: ControlRequest | None = None
        while not self._over.wait(_HEARTBEAT):
            try:
                control = self._renew()
            except StoreError:
                continue  # perhaps only busy; if it lasts, the loop meets the same error
            except BackfillError as error:
                self._happened.put(partial(_fail, error))
                return
            self._happened.put(self._report_starts)
            if control is not None and control is not seen:
                self._happened.put(partial(self._apply_control, control))
            seen = control

    # The end

    def _is_over(self) -> bool:
        if self._running:
            return self._deadline is not None and time.monotonic() >= self._deadline
        return self._stopping or not (self._delayed or self._scheduler.held)

    def _state(self) -> BackfillState:
        states = set(self._scheduler.states.values())
        if self._cancelling and not self._is_failing and RunState.CANCELLED in states:
            return BackfillState.CANCELLED
        if not all(state.is_final for state in states):
            return BackfillState.PAUSED if self._pausing else BackfillState.INTERRUPTED
        good = all(state.is_good for state in states)
        return BackfillState.SUCCEEDED if good else BackfillState.FAILED


_NO_LIMITS = JobLimits()
#: Why a run is skipped.
_SAME = "its inputs are unchanged since its last run"


def _move(attempt: Attempt, state: RunState, outcome: Outcome) -> Move:
    return Move(
        run_id=attempt.run.id,
        state=state,
        attempt=attempt.number,
        attempt_state=outcome.state,
        result=outcome.result and _without_secrets(outcome.result),
        error=outcome.error and storable(redaction.redacted(outcome.error)),
    )


def storable(text: str) -> str:
    """Return a text that every database can store: no NUL, no lone surrogate, limited length.

    >>> storable("a\\x00b\\ud800")
    'a\ufffdb\ufffd'
    """
    shown = _UNSTORABLE.sub("\ufffd", text)
    return shown if len(shown) <= _LONGEST_ERROR else f"{shown[:_LONGEST_ERROR]}…"


def _without_secrets(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result with secrets masked in its error; the rest must stay comparable."""
    error = result.get("error")
    return {**result, "error": redaction.document(error)} if error else result


def _unrepeated(outcome: Outcome) -> Outcome:
    """Return the outcome of a job that must not be retried automatically."""
    error = f"{outcome.error or outcome.state}; not tried again: the job is not idempotent"
    return replace(outcome, error=error, transient=False)


def _blocked(blocked: Iterable[Blocked]) -> list[Move]:
    return [
        Move(
            run_id=one.run.id,
            state=RunState.BLOCKED,
            error=f"{one.cause.job} {keys_in_short(one.cause)} ({one.cause.id}) did not succeed",
        )
        for one in blocked
    ]


def keys_in_short(run: PlannedRun, limit: int = 3) -> str:
    """Return the first few of the keys and ranges of a run as text."""
    shown = ", ".join(str(key) for key in run.partitions[:limit])
    return f"{shown}, …" if len(run.partitions) > limit else shown


def _fail(error: BackfillError) -> list[Move]:
    raise error
