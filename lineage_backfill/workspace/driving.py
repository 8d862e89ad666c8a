"""Starts backfills, goes on with them and ends them."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event, Timer
from typing import TYPE_CHECKING, Any

from lineage_backfill.errors import (
    ConflictError,
    EngineError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.project import Project
from lineage_backfill.workspace.lineage import read_lineage
from lineage_backfill.workspace.planning import (
    check_plan,
    limits_of,
    request_of,
    resolver_of,
    told_by_logs,
)
from lineage_backfill.workspace.project import (
    account,
    code_version,
    functions_of,
    live_by_engine,
    open_engines,
    open_store,
    state_dir,
)
from lineage_backfill.workspace.records import find, plans_of

if TYPE_CHECKING:
    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.model import BackfillState
    from lineage_backfill.planning.plan import Plan, PlannedRun
    from lineage_backfill.ports import (
        BackfillRecord,
        Engine,
        Reporter,
        RunStore,
    )
    from lineage_backfill.runs.context import ExecutionContext
    from lineage_backfill.runs.executor import Executor
    from lineage_backfill.runs.run_loop import SpecBuilder

    Verb = Callable[[Executor, str], BackfillState]


_POLL = 0.5  # seconds between two looks at a backfill that somebody else drives


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a drive of a backfill ended; `timed_out` where it was stopped for its time was up.

    `is_orphan` where nothing was ended: whoever drove it is gone.
    """

    id: str
    state: BackfillState
    timed_out: bool = False
    is_orphan: bool = False


def start(
    project: Project,
    snapshot: LineageSnapshot,
    plan: Plan,
    *,
    reporter: Reporter,
    max_parallel: int | None = None,
    timeout: timedelta | None = None,
    engines: Mapping[str, Engine] | None = None,
    waits: bool = False,
    **submission: Any,
) -> Ended:
    """Run a plan to an end; after `timeout` no more runs are started.

    `engines` are used instead of new ones, and left open; `submission` is what `submit` takes. One
    that `waits` is not refused where another backfill writes the same partitions. Raises UsageError
    for a job without an engine and GuardRailError for too many runs, both before anything is
    written; EnvironmentMissingError and ConflictError before anything is run.
    """
    with (
        open_store(project, create=True) as store,
        _executor(
            project,
            snapshot,
            [plan],
            store,
            reporter=reporter,
            max_parallel=max_parallel,
            engines=engines,
            must_open=submission.get("scheduled_for") is None,
            waits=waits,
        ) as executor,
    ):
        backfill_id = _submit(project, executor, plan, **submission)
        return _drive(executor, executor.drive, backfill_id, timeout)


def submit(project: Project, snapshot: LineageSnapshot, plan: Plan, **submission: Any) -> str:
    """Write a new backfill into the run store and return its id; `resume` drives it.

    `submission` holds `settings`, `description`, `parameters` for the jobs, `scheduled_for` and
    `expires_at`. Raises what `start` raises before anything is run.
    """
    from lineage_backfill.ports import Reporter

    with (
        open_store(project, create=True) as store,
        _executor(project, snapshot, [plan], store, reporter=Reporter()) as executor,
    ):
        return _submit(project, executor, plan, **submission)


def _submit(project: Project, executor: Executor, plan: Plan, **submission: Any) -> str:
    return executor.start(
        plan,
        submitted_by=account(),
        reason=plan.request.get("reason", ""),
        code_version=code_version(project.root),
        **submission,
    )


def detach(project: Project, backfill: str, arguments: Sequence[str]) -> Path:
    """Let a process of its own drive a backfill, and return its log once it does.

    `arguments` name project and lineage to it. Raises EngineError with the end of its log where it
    ends before it has begun.
    """
    from lineage_backfill.runs.owner import is_driving

    log = state_dir(project) / "backfills" / backfill / "driver.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "lineage_backfill", "resume", backfill, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    with open_store(project) as store:
        while not is_driving(store.holder(backfill), datetime.now(UTC)):
            code = process.poll()
            if code is None:
                time.sleep(_POLL)
            elif code:
                said = log.read_text(encoding="utf-8", errors="replace").strip()
                raise EngineError(
                    f"the process that was to drive {backfill} ended with exit code {code}",
                    hint=f"The end of {log}:",
                    lines=tuple(said.splitlines()[-5:]),
                )
            else:
                break  # it was very quick
    return log


def resume(project: Project, backfill: str | None, **options: Any) -> Ended:
    """Go on with a backfill, the newest if none is named; `options` are those of `start`."""
    from lineage_backfill.runs.executor import Executor

    return _again(project, backfill, Executor.resume, **options)


def retry(project: Project, backfill: str | None, **options: Any) -> Ended:
    """Run again what did not succeed, and nothing else; `options` are those of `start`."""
    from lineage_backfill.runs.executor import Executor

    return _again(project, backfill, Executor.retry, **options)


def undo(
    project: Project,
    backfill: str | None,
    *,
    ask: Callable[[Plan], None],
    timeout: timedelta | None = None,
    **options: Any,
) -> Ended:
    """Put back what a backfill wrote, the newest first, or go on with that; see `start`.

    `ask` is shown what would be put back, and raises where that is not wanted. Raises UsageError
    for a backfill that is an undo itself, or has written nothing.
    """
    from lineage_backfill.model import BackfillState
    from lineage_backfill.runs.executor import Executor
    from lineage_backfill.runs.undo import undo_plan

    with open_store(project) as store:
        record = find(store, backfill)
        if record.undo_of is not None:
            raise UsageError(
                f"{record.id} is itself the undo of {record.undo_of}",
                hint="To repair again what it put back, `run` the same request.",
            )
        if record.undone_by is None:
            plans = plans_of(store, record.id)
            snapshot = read_lineage(project)
            resolver = resolver_of(project, snapshot, plans[-1].now, request_of(plans[-1]))
            attempts = store.attempts(record.id)
            plan = undo_plan(plans, store.runs(record.id), attempts, resolver)
            if not plan.runs:
                raise UsageError(
                    f"{record.id} has written nothing", hint="There is nothing to put back."
                )
            ask(plan)
            with _executor(
                project, snapshot, [plan], store, undo_of=record.id, must_open=True, **options
            ) as executor:
                undo_id = executor.start(plan, submitted_by=account(), undo_of=record.id)
                return _drive(executor, executor.drive, undo_id, timeout)
        undoing = store.backfill(record.undone_by)
    if undoing.state is BackfillState.SUCCEEDED:
        return Ended(id=undoing.id, state=undoing.state)
    return _again(project, undoing.id, Executor.retry, timeout=timeout, **options)


def delete(project: Project, backfill: str) -> BackfillRecord:
    """Mark a backfill as deleted, and let go of the partitions that it has locked; returns it.

    Raises ConflictError while somebody drives it, or one of its runs may still be under way.
    """
    from lineage_backfill.runs.owner import LEASE, is_dead, owner, standing

    now = datetime.now(UTC)
    with open_store(project) as store:
        record, driver = standing(store, find(store, backfill).id, now)
        if record.deleted:
            return record
        if driver is None:
            if any(run.state.is_under_way for run in store.runs(record.id)):
                raise ConflictError(
                    f"runs of {record.id} may still be under way",
                    hint=f"See to their end first: `cancel {record.id}`.",
                )
            # So that nothing stays locked that a driver has left behind.
            store.release(store.acquire(record.id, owner(), now=now, ttl=LEASE, is_dead=is_dead))
        store.delete(record.id, now=now)
        return store.backfill(record.id)


def pause(project: Project, backfill: str | None) -> Ended:
    """Ask whoever drives a backfill to start no more runs; returns the state that it was in.

    One that nobody drives is left as it is.
    """
    from lineage_backfill.ports import ControlRequest
    from lineage_backfill.runs.owner import standing

    now = datetime.now(UTC)
    with open_store(project) as store:
        record, _ = standing(store, find(store, backfill).id, now)
        if record.state.is_under_way:
            store.request_control(record.id, ControlRequest.PAUSE, now=now)
    return Ended(id=record.id, state=record.state)


def cancel(
    project: Project, backfill: str | None, *, kill: bool = False, reporter: Reporter
) -> Ended:
    """Give up what a backfill has not started; `kill` stops what is running as well.

    The state is RUNNING where another executor drives the backfill and has been asked. One that
    has ended is left as it is. The lineage is not needed.
    """
    from lineage_backfill.model import BackfillState

    with open_store(project) as store:
        record = find(store, backfill)
        if all(run.state.is_final for run in store.runs(record.id)) and record.ended_at:
            return Ended(id=record.id, state=record.state)
        plans = plans_of(store, record.id)
        with _executor(project, None, plans, store, reporter=reporter) as executor:
            state = executor.cancel(record.id, kill=kill)
    return Ended(id=record.id, state=state or BackfillState.RUNNING)


def watch(
    project: Project,
    backfill: str | None,
    *,
    reporter: Reporter,
    timeout: timedelta | None = None,
) -> Ended:
    """Tell the reporter what happens to a backfill until it ends or the time is up; only reads.

    It has ended as well where whoever drove it is gone.
    """
    from lineage_backfill.runs.watching import follow

    deadline = time.monotonic() + timeout.total_seconds() if timeout else math.inf

    def wait() -> bool:
        left = deadline - time.monotonic()
        time.sleep(max(0.0, min(left, _POLL)))
        return left > 0

    with open_store(project) as store:
        id_ = find(store, backfill).id
        state = follow(store, id_, reporter, now=partial(datetime.now, UTC), wait=wait)
        is_orphan = not state.is_under_way and store.backfill(id_).state.is_under_way
    timed_out = time.monotonic() >= deadline
    return Ended(id=id_, state=state, timed_out=timed_out, is_orphan=is_orphan)


def _again(
    project: Project,
    backfill: str | None,
    verb: Verb,
    *,
    timeout: timedelta | None = None,
    reporter: Reporter,
    max_parallel: int | None = None,
    engines: Mapping[str, Engine] | None = None,
    waits: bool = False,
) -> Ended:
    with open_store(project) as store:
        record = find(store, backfill)
        plans = plans_of(store, record.id)
        snapshot = read_lineage(project)
        with _executor(
            project,
            snapshot,
            plans,
            store,
            reporter=reporter,
            max_parallel=max_parallel or record.settings.max_parallel,
            engines=engines,
            undo_of=record.undo_of,
            waits=waits,
        ) as executor:
            return _drive(executor, partial(verb, executor), record.id, timeout)


def _drive(
    executor: Executor,
    verb: Callable[[str], BackfillState],
    backfill_id: str,
    timeout: timedelta | None,
) -> Ended:
    from lineage_backfill.model import BackfillState

    timed_out = Event()

    def stop() -> None:
        timed_out.set()
        executor.stop()

    timer = Timer(timeout.total_seconds(), stop) if timeout else None
    if timer:
        timer.daemon = True
        timer.start()
    try:
        state = verb(backfill_id)
    except ConflictError:
        if not timed_out.is_set():
            raise
        state = BackfillState.RUNNING  # somebody else drives it still
    finally:
        if timer:
            timer.cancel()
    return Ended(id=backfill_id, state=state, timed_out=timed_out.is_set())


@contextmanager
def _executor(
    project: Project,
    snapshot: LineageSnapshot | None,
    plans: Sequence[Plan],
    store: RunStore,
    *,
    reporter: Reporter,
    max_parallel: int | None = None,
    engines: Mapping[str, Engine] | None = None,
    must_open: bool = False,
    undo_of: str | None = None,
    waits: bool = False,
) -> Iterator[Executor]:
    """Make the executor of plans; without a snapshot it can give runs up, not judge them.

    With `undo_of` the runs take back those of that backfill.
    """
    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.runs.context import ExecutionContext
    from lineage_backfill.runs.executor import Executor
    from lineage_backfill.runs.undo import UndoSpecs

    declarations = project.declarations
    context = ExecutionContext(
        snapshot or LineageSnapshot.of([]),
        declarations,
        plans,
        store=store,
        functions=functions_of(project) if snapshot else {},
        root=project.root,
        outbox=project.outbox,
        lineage_url=project.lineage.marquez,
        is_ours=partial(_holds, store),
        logs=partial(told_by_logs, project),
    )
    judges = snapshot is not None and undo_of is None
    spec_builder: SpecBuilder = context.spec
    if undo_of is not None:
        spec_builder = UndoSpecs(context.spec, store.attempts(undo_of))
    runs = [run for plan in plans for run in plan.runs or ()]
    used = {run.engine for run in runs}
    with nullcontext(engines) if engines else open_engines(project, used) as opened:
        if must_open and used <= opened.keys():  # if not, the executor refuses the plan
            for engine in (engine for name, engine in opened.items() if name in used):
                engine.open()
        yield Executor(
            store=store,
            engines=opened,
            spec_builder=spec_builder,
            reporter=reporter,
            max_parallel=max_parallel or declarations.limits.max_parallel,
            pools=declarations.pools,
            jobs=limits_of(context.resolver, runs),
            state_dir=state_dir(project),
            cutoff=context.cutoff if judges else None,
            tail=context.tail if judges else None,
            waits=waits,
            check=partial(_check_again, project, plans[0]) if judges else None,
            live=_live_runs(project, context, snapshot, opened) if judges and snapshot else None,
        )


def _live_runs(
    project: Project,
    context: ExecutionContext,
    snapshot: LineageSnapshot,
    engines: Mapping[str, Engine],
) -> Callable[[Sequence[PlannedRun]], str] | None:
    """Return what names a run from outside that is under way, unless that is not wanted."""
    from lineage_backfill.runs.live import LiveRuns

    if project.live_runs == "ignore":
        return None
    return LiveRuns(
        context.outside(snapshot),
        look=lambda: context.outside(read_lineage(project)),
        engines=live_by_engine(project, engines),
        calendar_of=lambda job: context.resolver.job(job).calendar,
        now=partial(datetime.now, UTC),
        refuses=project.live_runs == "refuse",
    ).hindrance


def _check_again(project: Project, plan: Plan) -> None:
    """Raise StalePlanError if the lineage, as it is now, does not bear the plan any more."""
    check_plan(project, read_lineage(project), plan)


def _holds(store: RunStore, backfill_id: str) -> bool:
    try:
        store.backfill(backfill_id)
    except UnknownNameError:
        return False
    return True
