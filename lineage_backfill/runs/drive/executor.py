"""The executor: starts, drives, resumes, retries, pauses and cancels backfills."""

from __future__ import annotations

import logging
import secrets
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from itertools import count
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from lineage_backfill.errors import BackfillError, ConflictError, GuardRailError, UsageError
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState, listed, named
from lineage_backfill.plans.document import plan_from_dict, plan_to_dict
from lineage_backfill.plans.plan import DatasetPartitions, Plan, PlannedJob, PlannedRun
from lineage_backfill.ports import (
    MAX_TITLE,
    BackfillRecord,
    Clock,
    ControlRequest,
    Engine,
    Holder,
    Lease,
    Move,
    Reporter,
    RunRecord,
    RunStore,
    Submission,
)
from lineage_backfill.redaction import redacted
from lineage_backfill.runs.cutoff import Cutoff
from lineage_backfill.runs.drive.clock import StoreClock, SystemClock
from lineage_backfill.runs.drive.owner import LEASE, is_dead, is_driving, machine, owner
from lineage_backfill.runs.drive.retry import RetryPolicy
from lineage_backfill.runs.drive.run_loop import RunLoop, Services, SpecBuilder
from lineage_backfill.runs.drive.scheduler import JobLimits, Scheduler
from lineage_backfill.runs.drive.store_outage import RetryingStore

_log = logging.getLogger(__name__)
#: Makes the judge of a backfill's plans.
CutoffMaker = Callable[[Sequence[Plan], BackfillRecord], Cutoff]
#: Returns a plan for keys that became complete since, None for nothing.
TailMaker = Callable[[Sequence[Plan], datetime], Plan | None]

_PASSING = (6, 7)  # exit codes of conflicts, and of services that do not answer
#: Seconds between two checks while waiting.
_LOOK = 0.5
_AGAIN = (RunState.FAILED, RunState.BLOCKED, RunState.CANCELLED)


@dataclass(kw_only=True, eq=False)
class Executor:
    """Runs plans: records in the store, submits to engines, notifies the reporter.

    `engines` are by name, `jobs` and `pools` set caps and priorities. Specs, results and logs are
    below `state_dir`, in `backfills/<backfill>/runs/<run>-<attempt>.*`. `clock` is this machine's:
    only its offset from the store's time counts.
    """

    store: RunStore
    engines: Mapping[str, Engine]
    spec_builder: SpecBuilder
    state_dir: Path
    reporter: Reporter = field(default_factory=Reporter)
    max_parallel: int = 4
    pools: Mapping[str, int] = field(default_factory=dict)
    jobs: Mapping[JobRef, JobLimits] = field(default_factory=dict)
    #: Datasets that a backfill locks whole: concurrent writes to their tables conflict.
    by_value: Collection[DatasetRef] = ()
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = field(default_factory=SystemClock)
    cutoff: CutoffMaker | None = None
    #: Plans again before the end.
    tail: TailMaker | None = None
    #: Whether to wait, rather than fail, if others hold what this executor needs.
    waits: bool = False
    #: Raises StalePlanError if a plan with a later start is stale.
    check: Callable[[], None] | None = None
    #: Raises DeclarationError for runs whose run spec cannot be made.
    preflight: Callable[[Sequence[PlannedRun]], None] | None = None
    #: Returns a run from outside that writes the same partitions, if any; the backfill waits for
    #: it.
    live: Callable[[Sequence[PlannedRun]], str] | None = None
    #: The hooks that the events of the backfill are for.
    hooks: Collection[str] = ()
    #: Machines that no longer exist; their active runs are lost.
    gone: Collection[str] = ()
    #: After this many failed runs, no more are started.
    max_failures: int | None = None
    #: Whether another driver takes over what this one stops: its state is then unchanged.
    hands_over: bool = False
    #: Returns the parameters of a backfill with their references resolved.
    reveal: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict

    def __post_init__(self) -> None:
        self.clock = StoreClock(self.store, self.clock)
        self._started: dict[str, Plan] = {}
        self._also_written: dict[str, Collection[DatasetRef]] = {}  # outside the plan, by run
        self._driving: RunLoop | None = None
        self._stops = 0
        self._lets_go = False
        self._stopped = threading.Event()
        #: The same store; calls are retried while its database does not answer.
        self._retrying = cast(
            RunStore, RetryingStore(self.store, self.reporter.waiting, self._stopped)
        )

    def start(
        self, plan: Plan, submission: Submission | None = None, *, waits: bool = False
    ) -> str:
        """Write a new backfill into the store and return its id; `drive` runs it.

        One that `waits` is scheduled until a driver takes it. A backfill that is being undone
        cannot be resumed. Raises UsageError for a run without an engine, GuardRailError for a plan
        without its runs or with two declared overwrites of one partition, ConflictError if the
        backfill to undo is driven or already undone.
        """
        submission = submission or Submission()
        if plan.runs is None:
            raise GuardRailError(
                f"the plan has {plan.totals.get('runs', 'too many')} runs, more than `max_runs`",
                hint="Narrow the request, or allow more with --allow-max-runs.",
            )
        if refused := plan.refused:
            raise GuardRailError(
                listed(refused, 3, lambda one: one.text),
                hint=f"Fix it, or allow it with --allow-{refused[0].kind}.",
            )
        self._check_engines(plan.runs, undo=submission.undo_of is not None)
        if self.preflight is not None:
            self.preflight(plan.runs)
        self.reveal(submission.parameters)  # refuse before writing anything
        now = self.clock.now()
        begins = submission.scheduled_for or now
        record = BackfillRecord(
            id=f"b-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
            plan_id=plan.id,
            state=BackfillState.SCHEDULED if waits or begins > now else BackfillState.RUNNING,
            submitted_at=now,
            updated_at=now,
            **{one.name: getattr(submission, one.name) for one in fields(Submission)},
        )
        changed = plan.title[:MAX_TITLE]
        record = replace(record, title=record.title or changed, changed=changed)
        self.store.create(record, plan_to_dict(plan), plan.runs)
        self._started[record.id] = plan
        return record.id

    def check_runs(self, plan: Plan) -> None:
        """Raise what the engines have against the runs of a plan; starts no engine."""
        for name, engine in self._engines_of(plan.runs or (), undo=False).items():
            self._check(name, engine, plan.runs or ())

    def check_locks(self, backfill_id: str) -> None:
        """Raise ConflictError where `drive` would, but wait for nothing."""
        if not self.waits:
            runs = self._started[backfill_id].runs or ()
            with self._leased(backfill_id) as lease:
                self.store.lock(lease, self._writes(runs))
            if self.live is not None:
                self.live(runs)

    def drive(self, backfill_id: str) -> BackfillState:
        """Drive a backfill to an end and return its state.

        Ctrl-C once lets running attempts end, twice stops them; it can be resumed after both.
        Raises ConflictError while another executor drives it or another backfill writes one of its
        partitions, EnvironmentMissingError before the first submission. The lease of an executor
        that no longer renews it is taken over once it expires; a live executor and other backfills
        are waited for only if this executor `waits`.
        """
        with self._leased(backfill_id) as lease:
            return self._drive(lease)

    def resume(self, backfill_id: str) -> BackfillState:
        """Resume a backfill that was paused, interrupted or killed; one that ended stays as it is.

        Also one that was paused while this executor waited for it.
        """
        before = self.store.backfill(backfill_id).state
        with self._leased(backfill_id) as lease:
            record = self.store.backfill(backfill_id)
            if record.state is BackfillState.PAUSED and before is not BackfillState.PAUSED:
                return record.state
            runs = self.store.runs(backfill_id)
            if record.state.has_ended and all(run.state.is_final for run in runs):
                return record.state
            self._reopen(record)
            return self._drive(lease)

    def adopt(self, backfill_id: str) -> BackfillState:
        """Drive an active backfill without a driver; follows control requests."""
        with self._leased(backfill_id) as lease:
            record = self.store.backfill(backfill_id)
            return self._drive(lease) if record.state.is_under_way else record.state

    def retry(self, backfill_id: str) -> BackfillState:
        """Re-run failed, blocked and cancelled runs, and those that never started."""
        with self._leased(backfill_id) as lease:
            record = self.store.backfill(backfill_id)
            if record.state is BackfillState.SUCCEEDED:
                return record.state
            self._reopen(record)
            again = [
                Move(run_id=run.run_id, state=RunState.PENDING)
                for run in self.store.runs(backfill_id)
                if run.state in _AGAIN
            ]
            self.store.record(lease, again, now=self.clock.now())
            return self._drive(lease)

    def pause(self, backfill_id: str) -> None:
        """Ask the executor of the backfill to submit no more runs; `resume` continues it."""
        self.store.request_control(backfill_id, ControlRequest.PAUSE, now=self.clock.now())

    def cancel(self, backfill_id: str, *, kill: bool = False) -> BackfillState | None:
        """Cancel the runs that have not started; `kill` also stops the running ones.

        Returns the state, None if the request was left for another executor.
        """
        now = self.clock.now()
        self.store.request_control(
            backfill_id, ControlRequest.KILL if kill else ControlRequest.CANCEL, now=now
        )
        if is_driving(self.store.claim(backfill_id).holder, now):
            return None
        try:
            with self._leased(backfill_id) as lease:
                return self._drive(lease)
        except ConflictError:
            if is_driving(self.store.claim(backfill_id).holder, self.clock.now()):
                return None  # a driver was faster
            raise

    def stop(self) -> None:
        """Stop the current or next drive of a backfill, as Ctrl-C does; thread-safe."""
        self._stops += 1
        self._stopped.set()
        if self._driving is not None:
            self._driving.stop()

    def let_go(self) -> None:
        """Stop waiting: running attempts continue, and `resume` finds them; thread-safe."""
        self._lets_go = True
        self._stops = self._stops or 1
        self._stopped.set()
        if self._driving is not None:
            self._driving.let_go()

    def leave(self) -> None:
        """Let go, and leave the backfill to the next driver; thread-safe."""
        self.hands_over = True
        self.let_go()

    @property
    def has_left(self) -> bool:
        """Whether it has left a backfill to the next driver."""
        return self.hands_over and self._lets_go

    def _drive(self, lease: Lease) -> BackfillState:
        """Run the runs of a backfill, then those of its tail."""
        record = self.store.backfill(lease.backfill_id)
        plans = self._plans(record.id)
        self.reporter.backfill_started(record.id, self._to_run(record, plans), record.title)
        self._log_state(record, BackfillState.RUNNING)
        self._await_start(lease, record)
        if self.hands_over and self._stops:
            return record.state
        while True:
            state = self._drive_once(lease, record, plans)
            if self.hands_over and state is BackfillState.INTERRUPTED:
                return BackfillState.RUNNING
            left: Sequence[Mapping[str, Any]] = ()
            if state is BackfillState.SUCCEEDED and (tail := self._new_tail(lease, record, plans)):
                same = tail.lineage.get("hash") == plans[0].lineage.get("hash")
                if record.settings.tail and same:
                    runs = tail.runs or ()
                    self._retrying.extend(lease, plan_to_dict(tail), runs, now=self.clock.now())
                    self.reporter.backfill_extended(tail)
                    plans.append(tail)
                    continue
                left = [_left(job) for job in tail.jobs]
            self._retrying.enter(lease, state, now=self.clock.now(), left=left)
            self._log_state(record, state)
            self.reporter.backfill_finished(record.id, state)
            return state

    def _log_state(self, record: BackfillRecord, state: BackfillState) -> None:
        _log.info("backfill %s (%s) is %s", record.id, record.title, state)

    def _await_start(self, lease: Lease, record: BackfillRecord) -> None:
        """Wait for the start of the backfill, or a control request."""
        at = record.scheduled_for or self.clock.now()
        is_early = at > self.clock.now()
        if record.control is not None or not (is_early or record.state is BackfillState.SCHEDULED):
            return
        if record.state is not BackfillState.SCHEDULED:
            self.store.enter(lease, BackfillState.SCHEDULED, now=self.clock.now())

        def early() -> str:
            return f"it starts at {_instant(at)}" if self.clock.now() < at else ""

        if self._wait(lease, early) and self.check is not None:
            self.check()

    def _plans(self, backfill_id: str) -> list[Plan]:
        """Return the plan of a backfill and its tails; a plan started here is not read again."""
        plan = self._started.pop(backfill_id, None)
        tails = [plan_from_dict(document) for document in self.store.tails(backfill_id)]
        return [plan or plan_from_dict(self.store.plan(backfill_id)), *tails]

    def _to_run(self, record: BackfillRecord, plans: Sequence[Plan]) -> Plan:
        """Return the plan with the runs of its tails, without runs that have ended."""
        if record.started_at is None:
            return plans[0]
        runs = [run for plan in plans for run in plan.runs or ()]
        ended = {one.run_id for one in self.store.runs(record.id) if one.state.is_final}
        return plans[0].detailed(runs=tuple(run for run in runs if run.id not in ended))

    def _new_tail(self, lease: Lease, record: BackfillRecord, plans: Sequence[Plan]) -> Plan | None:
        """Return a plan for keys that became complete since; None for one as of an instant."""
        if self.tail is None or record.undo_of or plans[0].request.get("as_of") or self._stops:
            return None
        now = self.clock.now()
        # Planning may take some time.
        self._retrying.renew(lease, now=self._retrying.time(now), ttl=LEASE)
        return self.tail(plans, now)

    def _drive_once(
        self, lease: Lease, record: BackfillRecord, plans: Sequence[Plan]
    ) -> BackfillState:
        runs = {run.id: run for plan in plans for run in plan.runs or ()}
        records = self.store.runs(record.id)
        left = [runs[one.run_id] for one in records if not one.state.is_final]
        under_way = {one.run_id for one in records if one.state.is_under_way}
        waiting = [run for run in left if run.id not in under_way]
        # After a control request nothing is submitted.
        needing = [run for run in left if record.control is None or run.id in under_way]
        engines = self._engines_of(needing, undo=record.undo_of is not None)
        self._retrying.enter(lease, BackfillState.RUNNING, now=self.clock.now())
        waits: dict[str, Collection[str]] = {}
        self._also_written = _also_written(records)
        if record.control is None and self._locked(lease, left, waiting):
            waits = self._make_ready(engines, waiting)
            self._lock_also_written(lease, left, waiting)
        states = {one.run_id: one.state for one in records}
        scheduler = self._scheduler(runs.values(), waits, states)
        services = self._services(record, engines)
        cutoff = self.cutoff and self.cutoff(plans, record)
        folder = self.state_dir / "backfills" / record.id
        self._driving = loop = RunLoop(services, lease, record, scheduler, folder, cutoff)
        if self._lets_go:  # requested while the engines were opened
            loop.let_go()
        for _ in range(0 if self._lets_go else self._stops):
            loop.stop()
        with _handled({signal.SIGINT: _third_interrupts(self.stop)}):
            return loop.run(runs, records)

    def _scheduler(
        self,
        runs: Iterable[PlannedRun],
        waits: Mapping[str, Collection[str]],
        states: Mapping[str, RunState],
    ) -> Scheduler:
        """Return the scheduler of these runs; `waits` are upstream runs that engines add."""
        return Scheduler(
            _joined(runs, waits),
            max_parallel=self.max_parallel,
            states=states,
            jobs=self.jobs,
            pools=self.pools,
        )

    def _services(self, record: BackfillRecord, engines: Mapping[str, Engine]) -> Services:
        return Services(
            store=self._retrying,
            engines=engines,
            spec_builder=self.spec_builder,
            reporter=self.reporter,
            retry=self.retry_policy,
            clock=self.clock,
            jobs=self.jobs,
            max_failures=self.max_failures,
            machine=machine(),
            gone=frozenset(self.gone),
            parameters=self.reveal(record.parameters),
        )

    def _make_ready(
        self, engines: Mapping[str, Engine], waiting: Sequence[PlannedRun]
    ) -> dict[str, Collection[str]]:
        """Open the engines; return the runs that each run waits for besides its upstream."""
        waits: dict[str, Collection[str]] = {}
        for name, engine in engines.items():
            engine.open()
            self._check(name, engine, waiting)
            waits |= engine.waits()
            self._also_written |= engine.also_writes()
        return waits

    def _lock_also_written(
        self, lease: Lease, runs: Sequence[PlannedRun], waiting: Sequence[PlannedRun]
    ) -> None:
        """Lock what engines write outside the plan, which they know once they have checked it."""
        if any(self._also_written.values()):
            self._locked(lease, runs, waiting)

    def _check(self, name: str, engine: Engine, runs: Sequence[PlannedRun]) -> None:
        own = [run for run in runs if run.engine == name]
        engine.check(own, lambda run: self.spec_builder(run, 1, "", Path()))

    def _engines_of(self, runs: Sequence[PlannedRun], *, undo: bool) -> dict[str, Engine]:
        self._check_engines(runs, undo=undo)
        return {run.engine: self.engines[run.engine] for run in runs if run.engine}

    def _check_engines(self, runs: Sequence[PlannedRun], *, undo: bool) -> None:
        for run in runs:
            engine = self.engines.get(run.engine or "")
            if undo and engine is not None and not engine.can_undo:
                raise UsageError(
                    f"job {run.job} cannot be undone: engine {run.engine!r} would run it again",
                    hint="If it runs `python -m spark_runtime run`, set `undo = true`"
                    f" in [engines.{run.engine}].",
                )
            if engine is None:
                missing = f"engine {run.engine!r} is not declared" if run.engine else "no engine"
                raise UsageError(
                    f"job {run.job} cannot be run: {missing}",
                    hint='Give it `engine = "local"` in the project file, or one of [engines.*].',
                )

    def _reopen(self, record: BackfillRecord) -> None:
        """Withdraw the control request of a backfill."""
        self.store.request_control(record.id, None, now=self.clock.now())

    def _locked(
        self, lease: Lease, runs: Sequence[PlannedRun], waiting: Sequence[PlannedRun]
    ) -> bool:
        """Lock what runs write; False if a control request came first.

        Runs that are still `waiting` must not be running from outside either.
        """

        def blocker() -> str:
            try:
                self.store.lock(lease, self._writes(runs))
            except ConflictError as error:
                if not self.waits:
                    raise
                # Finished runs need no lock, and a waiting backfill must block no other.
                self.store.lock(lease, ())
                return error.message
            return self.live(waiting) if self.live is not None else ""

        return self._wait(lease, blocker)

    def _writes(self, runs: Sequence[PlannedRun]) -> list[DatasetPartitions]:
        """Return the partitions that the runs write, by dataset."""
        written: dict[DatasetRef, list[Any] | None] = {}
        for run in runs:
            for write in run.writes:
                keys = written.setdefault(write.dataset, [])
                if write.keys is None or write.dataset in self.by_value:
                    written[write.dataset] = None
                elif keys is not None:
                    keys.extend(write.keys)
            written |= dict.fromkeys(self._also_written.get(run.id, ()))
        return [
            DatasetPartitions(dataset=dataset, keys=None if keys is None else tuple(keys))
            for dataset, keys in written.items()
        ]

    def _wait(self, lease: Lease, blocker: Callable[[], str]) -> bool:
        """Wait while there is a blocker, holding the lease; False after a request or a stop."""
        reported = ""
        while what := blocker():
            if what != reported:
                self.reporter.waiting(what)
            reported = what
            now = self._retrying.time(self.clock.now())
            control = self._retrying.renew(lease, now=now, ttl=LEASE)
            if control is not None or self._stopped.wait(_LOOK):
                return False
        return True

    @contextmanager
    def _leased(self, backfill_id: str) -> Iterator[Lease]:
        """Hold the lease; with attempts under way it is not released, so a successor reconciles."""
        self._driving = None
        lease = self._acquire(backfill_id)
        try:
            _refuse_closed(self.store, self.store.backfill(backfill_id))
            with _handled(dict.fromkeys(_endings(), self.leave)):
                yield lease
        except BaseException as error:
            if self.hands_over and isinstance(error, BackfillError) and error.exit_code in _PASSING:
                raise  # another driver continues, or this one later
            with suppress(BackfillError):  # the first error is more useful; or nothing had begun
                why = redacted(str(error)) or type(error).__name__
                now = self.clock.now()
                self.store.enter(lease, BackfillState.INTERRUPTED, now=now, error=why)
            raise
        finally:
            self._stops = 0
            self._stopped.clear()
            if not self._is_busy():
                self.store.release(lease)

    def _acquire(self, backfill_id: str) -> Lease:
        """Take the lease once its holder has ended, or has not renewed it in time."""
        first: Holder | None = None
        while True:
            try:
                now = self.store.time(self.clock.now())
                return self.store.acquire(
                    backfill_id, owner(), now=now, ttl=LEASE, is_dead=is_dead, hooks=self.hooks
                )
            except ConflictError as error:
                holder = self.store.claim(backfill_id).holder
                if first is None:
                    first = holder
                    self.reporter.waiting(error.message)
                lives = holder is not None and first is not None and holder.until > first.until
                waits = self.waits and not self.hands_over
                if (lives and not waits) or self._stopped.wait(_LOOK):
                    raise

    def _is_busy(self) -> bool:
        return self._driving is not None and self._driving.is_busy


def _refuse_closed(store: RunStore, record: BackfillRecord) -> None:
    undo_of = record.undo_of if record.deleted else None
    # An undo that has begun must be completed.
    has_begun = undo_of is not None and store.backfill(undo_of).undone_by == record.id
    if record.deleted and not has_begun:
        raise UsageError(
            f"backfill {record.id} is deleted",
            hint="`undo` can still restore what it overwrote; `run` repairs again.",
        )
    if record.undone_by is not None:
        raise ConflictError(
            f"backfill {record.id} is undone by {record.undone_by}",
            hint="`run` repairs again what it had repaired.",
        )


def _instant(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _left(job: PlannedJob) -> dict[str, Any]:
    return {"job": named(job.job), "partitions": list(job.partitions), "count": job.count}


@contextmanager
def _handled(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Call these at signals."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals; others call the methods
        return
    before = {
        number: signal.signal(number, lambda *_, handle=handle: handle())
        for number, handle in handlers.items()
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _endings() -> list[signal.Signals]:
    """Return the signals that end only this process, without ignored ones, as under nohup."""
    known = (signal.SIGTERM, signal.SIGHUP)
    return [one for one in known if signal.getsignal(one) is not signal.SIG_IGN]


def _third_interrupts(stop: Callable[[], None]) -> Callable[[], None]:
    """Return a handler that turns the first two Ctrl-C into stops; a third one interrupts."""
    pressed = count(1)

    def press() -> None:
        if next(pressed) > 2:
            raise KeyboardInterrupt
        stop()

    return press


def _also_written(records: Iterable[RunRecord]) -> dict[str, Collection[DatasetRef]]:
    """Return what the runs of engines that are recorded write outside the plan, by run."""
    return {one.run_id: one.engine_run.also_writes for one in records if one.engine_run}


def _joined(
    runs: Iterable[PlannedRun], waits: Mapping[str, Collection[str]]
) -> Sequence[PlannedRun]:
    """Return runs with what they wait for besides their upstream; raises GuardRailError."""
    if not waits:
        return list(runs)
    made = {
        run.id: structs.replace(run, upstream=(*run.upstream, *sorted(waits.get(run.id, ()))))
        for run in runs
    }
    try:
        TopologicalSorter({run.id: run.upstream for run in made.values()}).prepare()
    except CycleError as error:
        jobs = dict.fromkeys(str(made[name].job) for name in error.args[1])
        raise GuardRailError(
            f"{' and '.join(jobs)} wait for each other: their engine starts some of them together",
            hint="Run one of them first: narrow the plan with --select.",
        ) from error
    return list(made.values())
