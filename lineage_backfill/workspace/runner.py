"""Starts, resumes, retries, undoes and cancels backfills."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from lineage_backfill.errors import (
    BackfillError,
    ConflictError,
    EngineError,
    EnvironmentMissingError,
    ServiceUnreachableError,
    StalePlanError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.files import private, private_folder
from lineage_backfill.model import BackfillState, did_you_mean, listed
from lineage_backfill.planning.fingerprint import moved_calendars
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.ports import (
    MAX_TITLE,
    BackfillRecord,
    Engine,
    Reporter,
    RunStore,
    Settings,
    Submission,
)
from lineage_backfill.project.settings import variables
from lineage_backfill.runs.context import ExecutionContext
from lineage_backfill.runs.drive.clock import StoreClock
from lineage_backfill.runs.drive.executor import Executor
from lineage_backfill.runs.drive.owner import living
from lineage_backfill.runs.live import LiveRuns
from lineage_backfill.runs.undo import UndoSpecs, undo_plan
from lineage_backfill.workspace.backfills import POLL, BackfillOutcome, find, plans_of
from lineage_backfill.workspace.environment import (
    account,
    code_version,
    state_dir,
    true_parameters,
    true_text,
)
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace

_GRACE = 15.0  # seconds for runs to end once the time is up


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveOptions:
    """How a backfill is driven.

    After `timeout` no more runs are started; those still running some time later continue by
    themselves. Active runs of `gone` machines are lost. `engines` are used instead of new ones, and
    left open. With `waits` it waits if another backfill writes the same partitions. With
    `hands_over` another driver continues what this one leaves.
    """

    max_parallel: int | None = None
    timeout: timedelta | None = None
    waits: bool = False
    engines: Mapping[str, Engine] | None = None
    gone: Collection[str] = ()
    hands_over: bool = False


class Runner:
    """Drives the backfills of a workspace, with a reporter.

    Its verbs raise UsageError for a job without an engine and GuardRailError for too many runs,
    both before anything is written, and EnvironmentMissingError and ConflictError before a run
    starts.
    """

    def __init__(
        self,
        workspace: Workspace,
        reporter: Reporter | None = None,
        options: DriveOptions | None = None,
    ) -> None:
        self._workspace = workspace
        self._project = workspace.project
        self._reporter = reporter or Reporter()
        self._options = options or DriveOptions()
        self._driving: Executor | None = None
        self._lets_go = False

    def start(self, plan: Plan, submission: Submission | None = None) -> BackfillOutcome:
        """Run a plan to an end."""
        submission = submission or Submission()
        with (
            self._workspace.open_store(create=True) as store,
            self._executor([plan], store, must_open=submission.scheduled_for is None) as executor,
        ):
            return self._begin(executor, store, self._submit(executor, plan, submission))

    def submit(
        self, plan: Plan, submission: Submission | None = None, *, waits: bool = False
    ) -> str:
        """Write a new backfill into the run store and return its id; `resume` drives it.

        With `waits` a driver takes it. One that begins now is refused as `start` refuses it.
        """
        submission = submission or Submission()
        begins = submission.scheduled_for is None
        with (
            self._workspace.open_store(create=True) as store,
            self._executor([plan], store) as executor,
        ):
            if begins:
                # The driver may reach services, and have programs, that this machine does not.
                elsewhere = suppress(ServiceUnreachableError, EnvironmentMissingError)
                with elsewhere if waits else nullcontext():
                    executor.check_runs(plan)
            backfill = self._submit(executor, plan, submission, waits=waits)
            if begins and not waits:
                with _refused_is_forgotten(store, backfill):
                    executor.check_locks(backfill)
        return backfill

    def has_driver(self) -> bool:
        """Whether a live driver takes what is submitted here."""
        with self._workspace.open_store() as store:
            now = StoreClock(store).now()
            return bool(living(store, now, self._project.name, self._project.target))

    def let_go(self) -> None:
        """Stop driving; running attempts continue. Any thread may call this."""
        self._lets_go = True
        if self._driving is not None:
            self._driving.let_go()

    def _found(self, store: RunStore, backfill: str | None) -> BackfillRecord:
        """Return a backfill of this target; raises UsageError for one of another."""
        record = find(store, backfill)
        self._project.refuse_other_target(record.settings.target, f"{record.id} was submitted")
        return record

    def _owned(self, settings: Settings) -> Settings:
        return replace(settings, project=self._project.name, target=self._project.target)

    def _submit(
        self, executor: Executor, plan: Plan, submission: Submission, *, waits: bool = False
    ) -> str:
        made = replace(
            submission,
            submitted_by=submission.submitted_by or account(),
            reason=plan.request.get("reason", ""),
            code_version=code_version(self._project.root),
            settings=self._owned(submission.settings),
        )
        return executor.start(plan, made, waits=waits)

    def detach(
        self,
        verb: str,
        backfill: str,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> Path:
        """Let a separate process resume, retry or undo a backfill; return its log once it does.

        `arguments` give it project and lineage; `settings` are passed by name in its `environment`.
        Raises EngineError with the end of its log, and its exit code, if it ends before it has
        begun.
        """
        log = state_dir(self._project) / "backfills" / backfill / "driver.log"
        private_folder(log.parent)
        with self._workspace.open_store() as store:
            before = _driven(store, backfill)
            with open(log, "ab", opener=private) as out:
                process = subprocess.Popen(
                    [sys.executable, "-m", "lineage_backfill", verb, backfill, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    env=variables(settings, {**os.environ, **environment}),
                )
            code = None
            while _driven(store, backfill) == before:  # it has not taken the lease yet
                if code:
                    text = log.read_text(encoding="utf-8", errors="replace").strip()
                    error = EngineError(
                        f"the process to drive {backfill} ended with exit code {code}",
                        hint=f"The end of {log}:",
                        lines=tuple(text.splitlines()[-5:]),
                    )
                    error.exit_code = max(code, EngineError.exit_code)  # a signal's is negative
                    raise error
                if code == 0:
                    break  # there was nothing to do
                code = process.poll()
                if code is None:
                    time.sleep(POLL)
        return log

    def resume(self, backfill: str | None = None) -> BackfillOutcome:
        """Resume a backfill, the newest if none is named."""
        return self._again(backfill, Executor.resume)

    def adopt(self, backfill: str) -> BackfillOutcome:
        """Drive an active backfill without a driver; follows control requests."""
        return self._again(backfill, Executor.adopt)

    def retry(self, backfill: str | None = None) -> BackfillOutcome:
        """Re-run what did not succeed, and nothing else."""
        return self._again(backfill, Executor.retry)

    def undo(self, backfill: str | None, *, confirm: Callable[[Plan], None]) -> BackfillOutcome:
        """Restore what a backfill overwrote, newest first, or resume such an undo.

        `confirm` is called with the plan of the undo, and raises to refuse it. Raises UsageError
        for a backfill that is itself an undo, or wrote nothing.
        """
        with self._workspace.open_store() as store:
            record = self._found(store, backfill)
            if record.undo_of is not None:
                raise UsageError(
                    f"{record.id} is itself the undo of {record.undo_of}",
                    hint="To repair again what it restored, `run` the same request.",
                )
            if record.undone_by is None:
                plans = plans_of(store, record.id)
                resolver = self._workspace.resolver_of(plans[-1])
                attempts = store.attempts(record.id)
                plan = undo_plan(plans, store.runs(record.id), attempts, resolver)
                if not plan.runs:
                    raise UsageError(
                        f"{record.id} has written nothing", hint="There is nothing to undo."
                    )
                confirm(plan)
                title = f"Undo {record.title}"[:MAX_TITLE]
                undo = Submission(
                    submitted_by=account(),
                    undo_of=record.id,
                    title=title,
                    settings=self._owned(Settings()),
                )
                with self._executor([plan], store, undo_of=record.id, must_open=True) as executor:
                    return self._begin(executor, store, executor.start(plan, undo))
            undoing = store.backfill(record.undone_by)
        if undoing.state is BackfillState.SUCCEEDED:
            return BackfillOutcome(id=undoing.id, state=undoing.state)
        return self.retry(undoing.id)

    def cancel(self, backfill: str | None = None, *, kill: bool = False) -> BackfillOutcome:
        """Cancel the runs that a backfill has not started; `kill` also stops running ones.

        The state is RUNNING if another executor drives the backfill, which gets a request. No-op
        for a backfill that has ended. The lineage is only needed for what another machine
        submitted to a cluster.
        """
        with self._workspace.open_store() as store:
            record = self._found(store, backfill)
            if all(run.state.is_final for run in store.runs(record.id)) and record.ended_at:
                return BackfillOutcome(id=record.id, state=record.state)
            plans = plans_of(store, record.id)
            with self._executor(plans, store, undo_of=record.undo_of, gives_up=True) as executor:
                state = executor.cancel(record.id, kill=kill)
        return BackfillOutcome(id=record.id, state=state or BackfillState.RUNNING)

    def _again(
        self, backfill: str | None, verb: Callable[[Executor, str], BackfillState]
    ) -> BackfillOutcome:
        with self._workspace.open_store() as store:
            record = self._found(store, backfill)
            plans = plans_of(store, record.id)
            if verb is not Executor.adopt:
                self._refuse_unknown_machines(store, record.id)
            if record.undo_of is None:
                self._refuse_moved_calendars(plans)
            with self._executor(
                plans,
                store,
                max_parallel=record.settings.max_parallel,
                undo_of=record.undo_of,
            ) as executor:
                outcome = self._drive(executor, partial(verb, executor), record.id)
        return replace(outcome, had_succeeded=record.state is BackfillState.SUCCEEDED)

    def _refuse_unknown_machines(self, store: RunStore, backfill: str) -> None:
        """Raise UnknownNameError if no run was started on a machine that is named as gone."""
        known = {run.machine for run in store.runs(backfill) if run.machine}
        for name in sorted({*self._options.gone} - known):
            places = f"on {listed(sorted(known))}" if known else "nowhere yet"
            hint = did_you_mean(name, known) or f"Its runs were started {places}."
            raise UnknownNameError(f"no run of {backfill} was started on machine {name}", hint=hint)

    def _refuse_moved_calendars(self, plans: Sequence[Plan]) -> None:
        """Raise StalePlanError if the keys of a plan would now mean other data."""
        for plan in plans:
            found = moved_calendars(plan.lineage, self._workspace.resolver_of(plan))
            if found:
                raise StalePlanError(
                    f"the plan is stale: {listed(found)}",
                    hint="Declare what held before to go on, or plan again with `impact`.",
                )

    def _begin(self, executor: Executor, store: RunStore, backfill: str) -> BackfillOutcome:
        """Drive a new backfill."""
        with _refused_is_forgotten(store, backfill):
            return self._drive(executor, executor.drive, backfill)

    def _drive(
        self, executor: Executor, verb: Callable[[str], BackfillState], backfill_id: str
    ) -> BackfillOutcome:
        timed_out, over = Event(), Event()
        timeout = self._options.timeout

        def stop() -> None:
            assert timeout is not None
            if not over.wait(timeout.total_seconds()):
                timed_out.set()
                executor.stop()
                if not over.wait(_GRACE):
                    executor.let_go()

        self._driving = executor
        if self._lets_go:  # requested while the lineage was read
            executor.let_go()
        if timeout:
            Thread(target=stop, name="timeout", daemon=True).start()
        try:
            state = verb(backfill_id)
        except ConflictError:
            if not timed_out.is_set():
                raise
            state = BackfillState.RUNNING  # another process drives it still
        finally:
            over.set()
        is_left = executor.has_left and state.is_under_way
        state = BackfillState.INTERRUPTED if is_left else state
        return BackfillOutcome(
            id=backfill_id, state=state, timed_out=timed_out.is_set(), is_left=is_left
        )

    @contextmanager
    def _executor(
        self,
        plans: Sequence[Plan],
        store: RunStore,
        *,
        max_parallel: int | None = None,
        must_open: bool = False,
        undo_of: str | None = None,
        gives_up: bool = False,
    ) -> Iterator[Executor]:
        """Make the executor of plans; one that only `gives_up` runs rarely needs the lineage.

        With `undo_of` the runs undo those of that backfill.
        """
        workspace, project, options = self._workspace, self._project, self._options
        context_of = cache(partial(self._context, plans, store))
        context = None if gives_up else context_of()
        judge = context if undo_of is None else None

        def spec(run: PlannedRun, attempt: int, token: str, result_path: Path) -> dict[str, Any]:
            return context_of().spec(run, attempt, token, result_path)

        runs = [run for plan in plans for run in plan.runs or ()]
        used = {run.engine for run in runs}
        engines = options.engines
        limits = project.declarations.limits
        with (
            nullcontext(engines) if engines else workspace.open_engines(used) as opened,
            self.notifying(store) as hooks,
        ):
            if must_open and used <= opened.keys():  # if not, the executor refuses the plan
                for name, engine in opened.items():
                    if name in used:
                        engine.open()
            yield Executor(
                store=store,
                engines=opened,
                spec_builder=(
                    spec if undo_of is None else UndoSpecs(spec, store.attempts(undo_of))
                ),
                reporter=self._reporter,
                hooks=hooks,
                max_parallel=options.max_parallel or max_parallel or limits.max_parallel,
                pools=project.declarations.pools,
                jobs=workspace.limits_of(runs),
                by_value=workspace.by_value(runs),
                state_dir=state_dir(project),
                waits=options.waits,
                gone=options.gone,
                hands_over=options.hands_over,
                max_failures=project.max_failures,
                reveal=dict if gives_up else partial(true_parameters, base=project.root),
                **(self._judging(plans[0], judge, opened, store) if judge else {}),
            )

    def _judging(
        self,
        plan: Plan,
        context: ExecutionContext,
        engines: Mapping[str, Engine],
        store: RunStore,
    ) -> dict[str, Any]:
        """Return what an executor has besides, where the lineage counts for what it runs."""
        return {
            "cutoff": context.cutoff,
            "tail": context.tail,
            "check": partial(self._check_again, plan),
            "preflight": context.refuse_incomplete,
            "live": self._live_runs(context, engines, store),
        }

    def _context(self, plans: Sequence[Plan], store: RunStore) -> ExecutionContext:
        workspace, project = self._workspace, self._project
        return ExecutionContext(
            workspace.snapshot,
            project.declarations,
            plans,
            store=store,
            functions=workspace.functions,
            root=project.root,
            outbox=project.outbox,
            lineage_url=project.lineage.address,
            is_ours=partial(_holds, store),
            logs=Planning(workspace).records_without_spark,
        )

    @contextmanager
    def notifying(self, store: RunStore) -> Iterator[Collection[str]]:
        """Deliver to the hooks of the project meanwhile; returns their ids."""
        if not self._project.notify:
            yield ()
            return
        with self._hooks(store).delivering():
            yield [hook.id for hook in self._project.notify]

    def _hooks(self, store: RunStore) -> Any:
        from lineage_backfill.hooks import Hooks  # slow to load, and most projects have none

        project = self._project
        return Hooks(
            store,
            project.notify,
            clock=StoreClock(store),
            reveal=partial(true_text, base=project.root),
            hosts=project.notify_hosts,
            folder=project.root,
            project=project.name,
        )

    def _live_runs(
        self, context: ExecutionContext, engines: Mapping[str, Engine], store: RunStore
    ) -> Callable[[Sequence[PlannedRun]], str] | None:
        """Return what finds active runs from outside, None if that is disabled."""
        if self._project.live_runs == "ignore":
            return None
        return LiveRuns(
            context.recorded(self._workspace.snapshot),
            look=lambda: context.recorded(self._workspace.lineage.read()),
            engines={name: engine.live for name, engine in engines.items()},
            calendar_of=lambda job: context.resolver.job(job).calendar,
            now=StoreClock(store).now,
            refuses=self._project.live_runs == "refuse",
        ).blocker

    def _check_again(self, plan: Plan) -> None:
        """Raise StalePlanError if the plan is stale by the current lineage."""
        Planning(Workspace(self._project)).check(plan)


def _driven(store: RunStore, backfill: str) -> tuple[str, int]:
    """Return the backfill that a process drives for this one, and how often it was taken."""
    id_ = store.backfill(backfill).undone_by or backfill
    return id_, store.claim(id_).fence


@contextmanager
def _refused_is_forgotten(store: RunStore, backfill: str) -> Iterator[None]:
    """Delete a new backfill that is refused before its first run."""
    try:
        yield
    except BackfillError as error:
        if error.exit_code != ServiceUnreachableError.exit_code:  # `resume` begins it later
            _forget(store, backfill)
        raise


def _forget(store: RunStore, backfill_id: str) -> None:
    """Delete a backfill that was refused before any run began, unless it waits."""
    record = store.backfill(backfill_id)
    begun = any(run.attempt for run in store.runs(backfill_id))
    if not begun and record.scheduled_for is None:
        with suppress(ConflictError):  # another process drives it
            store.delete(backfill_id, now=StoreClock(store).now())


def _holds(store: RunStore, backfill_id: str) -> bool:
    try:
        store.backfill(backfill_id)
    except UnknownNameError:
        return False
    return True
