"""What the executor does with a plan, on an engine that ends attempts as a test says."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import (
    ConflictError,
    GuardRailError,
    StoreUnreachableError,
    UnfitRunError,
    UsageError,
)
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.ports import (
    AttemptState,
    ControlRequest,
    EngineRun,
    Move,
    Origin,
    Outcome,
    Reporter,
    RunStore,
    Start,
    Submission,
    list_of,
)
from lineage_backfill.project.run_rules import RunWindow
from lineage_backfill.runs.drive.clock import SystemClock
from lineage_backfill.runs.drive.executor import Executor
from lineage_backfill.runs.drive.owner import LEASE, machine, may_drive
from lineage_backfill.runs.drive.retry import RetryPolicy
from lineage_backfill.runs.drive.scheduler import JobLimits
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from tests.fakes import (
    NOW,
    FakeEngine,
    RefusingEngine,
    failed,
    plan_of,
    planned_run,
    spec_of,
)

QUICK = RetryPolicy(max_attempts=3, wait=timedelta(milliseconds=1))
DIAMOND = plan_of(
    planned_run("a"),
    planned_run("b", "a", wave=2),
    planned_run("c", "a", wave=2),
    planned_run("d", "b", "c", wave=3),
    planned_run("e"),
)


@dataclass
class Told(Reporter):
    """Keeps a line for each call."""

    lines: list[str] = field(default_factory=list)
    on_stopping: Callable[[], None] = lambda: None
    on_waiting: Callable[[], object] = lambda: None

    def waiting(self, what: str) -> None:
        self.lines.append(f"waiting {what}")
        self.on_waiting()

    def engine_starting(self, start: Start) -> None:
        self.lines.append(f"starting {start.what} {start.seconds} {start.is_over}")

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        self.lines.append(f"started {run.id} {attempt}")

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        self.lines.append(f"{state} {run.id} {detail}".strip())

    def run_delayed(self, run: PlannedRun, delay: timedelta, detail: str) -> None:
        self.lines.append(f"delayed {run.id} {detail}")

    def stopping(self, running: int, *, hard: bool) -> None:
        self.lines.append(f"stopping {running} {'hard' if hard else 'gently'}")
        self.on_stopping()


class Shifted(SystemClock):
    """The time of this machine, and then some."""

    shift = timedelta()

    def now(self) -> datetime:
        return super().now() + self.shift


class Bench:
    """An executor with what it works on."""

    def __init__(self, store: RunStore, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.told = Told()
        self.clock = Shifted()

    def executor(self, engine: FakeEngine, *, max_parallel: int = 4, **more: Any) -> Executor:
        return Executor(
            clock=self.clock,
            store=self.store,
            engines={"fake": engine},
            spec_builder=spec_of,
            reporter=self.told,
            max_parallel=max_parallel,
            state_dir=self.folder,
            retry_policy=QUICK,
            **more,
        )

    def states(self, backfill_id: str) -> dict[str, RunState]:
        return {run.run_id: run.state for run in self.store.runs(backfill_id)}


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    store = SqlRunStore(IN_MEMORY if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db")
    yield Bench(store, tmp_path)
    store.close()


def start(bench: Bench, engine: FakeEngine, plan: Plan = DIAMOND) -> tuple[Executor, str]:
    executor = bench.executor(engine)
    return executor, executor.start(plan, Submission(submitted_by="ann", reason="bad hours"))


def test_what_engines_start_is_reported(bench: Bench) -> None:
    made = [
        Start(what="an application", seconds=2),
        Start(what="an application", seconds=12, is_over=True),
        Start(what="an application", seconds=7, is_over=True, has_failed=True),
    ]

    class Starting(FakeEngine):
        def starts(self) -> list[Start]:
            return [made.pop(0)] if made else []

    executor, backfill_id = start(bench, Starting())
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    told = [line for line in bench.told.lines if "an application" in line]
    assert told == [f"starting an application {one}" for one in ("2 False", "12 True", "7 True")]


def in_background(
    executor: Executor, backfill_id: str, engine: FakeEngine, *, until: int
) -> threading.Thread:
    """Drive a backfill in another thread, and return once so many attempts are under way."""
    thread = threading.Thread(target=executor.drive, args=(backfill_id,))
    thread.start()
    engine.wait_for(until)
    return thread


def test_all_runs_run_in_order_and_the_store_knows(bench: Bench) -> None:
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine)
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    order = [run for run, _ in engine.submitted]
    assert sorted(order) == ["a", "b", "c", "d", "e"]
    assert order.index("a") < order.index("b") < order.index("d") > order.index("c")
    assert set(bench.states(backfill_id).values()) == {RunState.SUCCEEDED}
    record = bench.store.backfill(backfill_id)
    assert record.state is BackfillState.SUCCEEDED
    assert (record.submitted_by, record.reason) == ("ann", "bad hours")
    assert record.ended_at is not None
    assert all(one.state is AttemptState.SUCCEEDED for one in bench.store.attempts(backfill_id))


def test_the_spec_is_on_disk_before_the_engine_is_asked(bench: Bench) -> None:
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine, plan_of(planned_run("a")))
    executor.drive(backfill_id)
    folder = bench.folder / "backfills" / backfill_id / "runs"
    spec = json.loads((folder / "a-1.spec.json").read_text())
    [attempt] = bench.store.attempts(backfill_id)
    assert spec["backfill_id"] == backfill_id
    assert spec["token"] == attempt.token
    assert spec["result_path"] == str(folder / "a-1.result.json")


def test_the_intent_is_written_before_the_engine_is_asked(bench: Bench) -> None:
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine, plan_of(planned_run("a")))
    seen: list[RunState] = []
    engine.on_submit = lambda run_id: seen.append(bench.states(backfill_id)[run_id])
    executor.drive(backfill_id)
    assert seen == [RunState.SUBMITTED]


def test_a_failure_blocks_its_descendants_only_and_retry_finishes(bench: Bench) -> None:
    engine = FakeEngine({("b", 1): failed("no such column")})
    executor, backfill_id = start(bench, engine)
    assert executor.drive(backfill_id) is BackfillState.FAILED
    assert bench.states(backfill_id) == {
        "a": RunState.SUCCEEDED,
        "b": RunState.FAILED,
        "c": RunState.SUCCEEDED,
        "d": RunState.BLOCKED,
        "e": RunState.SUCCEEDED,
    }
    assert "failed b no such column" in bench.told.lines
    assert "blocked d n:b 2024-03-01 (b) did not succeed" in bench.told.lines
    assert executor.retry(backfill_id) is BackfillState.SUCCEEDED
    assert engine.submitted[-2:] == [("b", 2), ("d", 1)]
    assert len(engine.submitted) == 6


def test_what_will_pass_is_tried_again(bench: Bench) -> None:
    engine = FakeEngine({("a", 1): failed("gone", transient=True)})
    executor, backfill_id = start(bench, engine, plan_of(planned_run("a")))
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    assert engine.submitted == [("a", 1), ("a", 2)]
    assert "delayed a gone" in bench.told.lines
    first, second = bench.store.attempts(backfill_id)
    assert (first.state, first.error) == (AttemptState.FAILED, "gone")
    assert first.token != second.token


def test_what_does_not_pass_fails_in_the_end(bench: Bench) -> None:
    gone = failed("gone", transient=True)
    engine = FakeEngine({("a", n): gone for n in range(1, 9)})
    executor, backfill_id = start(bench, engine, plan_of(planned_run("a")))
    assert executor.drive(backfill_id) is BackfillState.FAILED
    assert len(engine.submitted) == QUICK.max_attempts


def test_an_engine_that_refuses_is_a_failed_attempt(bench: Bench) -> None:
    executor, backfill_id = start(bench, RefusingEngine(), plan_of(planned_run("a")))
    assert executor.drive(backfill_id) is BackfillState.FAILED
    assert bench.told.lines == ["failed a the queue is closed. Open it."]


def test_no_more_than_max_parallel_are_under_way(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    executor = bench.executor(engine, max_parallel=2)
    backfill_id = executor.start(plan_of(*(planned_run(f"r{n}") for n in range(5))))
    thread = threading.Thread(target=executor.drive, args=(backfill_id,))
    thread.start()
    for count in (2, 3, 4, 5):
        engine.wait_for(count)
        assert len(engine.submitted) == count
        engine.end(next(token for token in engine.known if token not in engine.ended))
    engine.end(next(token for token in engine.known if token not in engine.ended))
    thread.join(10)
    assert bench.store.backfill(backfill_id).state is BackfillState.SUCCEEDED


def test_the_first_stop_lets_running_ones_end_and_resume_goes_on(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    executor, backfill_id = start(bench, engine)
    thread = in_background(executor, backfill_id, engine, until=2)
    stopped = threading.Event()
    bench.told.on_stopping = stopped.set
    executor.stop()
    assert stopped.wait(5)
    for token in list(engine.known):
        engine.end(token)
    thread.join(10)
    assert "stopping 2 gently" in bench.told.lines
    assert bench.store.backfill(backfill_id).state is BackfillState.INTERRUPTED
    assert [run for run, _ in engine.submitted] == ["a", "e"]
    engine.holds = False
    assert bench.executor(engine).resume(backfill_id) is BackfillState.SUCCEEDED
    assert len(engine.submitted) == 5


def test_the_second_stop_stops_running_ones_and_resume_runs_them_again(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    executor, backfill_id = start(bench, engine)
    thread = in_background(executor, backfill_id, engine, until=2)
    executor.stop()
    executor.stop()
    thread.join(10)
    assert bench.told.lines[-1] == "stopping 2 hard"
    assert bench.store.backfill(backfill_id).state is BackfillState.INTERRUPTED
    assert set(bench.states(backfill_id).values()) == {RunState.PENDING}
    engine.holds = False
    assert bench.executor(engine).resume(backfill_id) is BackfillState.SUCCEEDED


def test_a_stop_before_the_first_submission_is_not_lost(bench: Bench) -> None:
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine)
    executor.stop()
    assert executor.drive(backfill_id) is BackfillState.INTERRUPTED
    assert engine.submitted == []
    assert executor.resume(backfill_id) is BackfillState.SUCCEEDED


def test_ctrl_c_is_a_stop(bench: Bench) -> None:
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine)

    def press(run_id: str) -> None:
        if run_id == "a":
            os.kill(os.getpid(), signal.SIGINT)

    engine.on_submit = press
    before = signal.getsignal(signal.SIGINT)
    assert executor.drive(backfill_id) is BackfillState.INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is before
    assert RunState.PENDING in bench.states(backfill_id).values()
    assert executor.resume(backfill_id) is BackfillState.SUCCEEDED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_waits_for_nothing_and_leaves_the_backfill_to_the_next_driver(
    bench: Bench, number: signal.Signals
) -> None:
    engine = FakeEngine(holds=True)
    executor, backfill_id = start(bench, engine)

    def tell(_run_id: str) -> None:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # a second one does not stop jobs either

    engine.on_submit = tell
    given = signal.signal(number, signal.SIG_DFL)  # one that is ignored, as by nohup, stays so
    try:
        before = signal.getsignal(number)
        assert executor.drive(backfill_id) is BackfillState.RUNNING
        assert executor.has_left
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, given)
    assert engine.ended == {}
    claim = bench.store.claim(backfill_id)
    assert may_drive(claim, datetime.now(UTC) + 2 * LEASE)
    engine.on_submit = lambda _: None
    engine.release()
    bench.clock.shift = 2 * LEASE
    assert bench.executor(engine).adopt(backfill_id) is BackfillState.SUCCEEDED
    assert sorted(engine.submitted) == [(run, 1) for run in "abcde"]


def test_under_nohup_a_closed_terminal_changes_nothing(bench: Bench) -> None:
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine)
    engine.on_submit = lambda _: os.kill(os.getpid(), signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_error_that_no_database_keeps_as_it_is_fails_its_run_alone(bench: Bench) -> None:
    engine = FakeEngine({("b", 1): failed("half \ud800, none \x00, long " + "x" * 50_000)})
    executor, backfill_id = start(bench, engine)
    assert executor.drive(backfill_id) is BackfillState.FAILED
    assert bench.states(backfill_id)["c"] is RunState.SUCCEEDED
    (error,) = (one.error or "" for one in bench.store.runs(backfill_id) if one.run_id == "b")
    assert error.startswith("half \ufffd, none \ufffd, long xxx")
    assert len(error) <= 20_001


def test_pause_from_elsewhere_is_seen(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    executor, backfill_id = start(bench, engine)
    thread = in_background(executor, backfill_id, engine, until=2)
    stopped = threading.Event()
    bench.told.on_stopping = stopped.set
    bench.executor(engine).pause(backfill_id)
    assert stopped.wait(5)
    for token in list(engine.known):
        engine.end(token)
    thread.join(10)
    assert bench.store.backfill(backfill_id).state is BackfillState.PAUSED
    engine.holds = False
    assert bench.executor(engine).resume(backfill_id) is BackfillState.SUCCEEDED
    assert bench.executor(engine).resume(backfill_id) is BackfillState.SUCCEEDED
    assert bench.executor(engine).retry(backfill_id) is BackfillState.SUCCEEDED
    assert len(engine.submitted) == 5


def test_cancel_from_elsewhere_gives_up_the_rest(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    executor, backfill_id = start(bench, engine)
    thread = in_background(executor, backfill_id, engine, until=2)
    assert bench.executor(engine).cancel(backfill_id, kill=True) is None
    thread.join(10)
    assert bench.store.backfill(backfill_id).state is BackfillState.CANCELLED
    assert set(bench.states(backfill_id).values()) == {RunState.CANCELLED}
    engine.holds = False
    assert bench.executor(engine).retry(backfill_id) is BackfillState.SUCCEEDED


def test_cancel_of_an_idle_backfill_needs_no_engine(bench: Bench) -> None:
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine)
    assert executor.cancel(backfill_id) is BackfillState.CANCELLED
    assert engine.opened == 0
    assert engine.submitted == []


def test_only_one_executor_drives_a_backfill(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    executor, backfill_id = start(bench, engine)
    thread = in_background(executor, backfill_id, engine, until=2)
    with pytest.raises(ConflictError, match=f"{backfill_id} is driven by"):
        bench.executor(engine).drive(backfill_id)
    engine.holds = False
    for token in list(engine.known):
        engine.end(token)
    thread.join(10)
    assert bench.store.backfill(backfill_id).state is BackfillState.SUCCEEDED


@contextmanager
def driving(executor: Executor, backfill_id: str, engine: FakeEngine) -> Iterator[None]:
    """Drive a backfill in another thread, up to its first attempts and then to its end."""
    thread = in_background(executor, backfill_id, engine, until=1)
    yield
    engine.release()
    thread.join(10)


def test_a_second_executor_may_wait_for_the_end_of_the_first(bench: Bench) -> None:
    engine, other = FakeEngine(holds=True), FakeEngine()
    executor, backfill_id = start(bench, engine)
    second = bench.executor(other, waits=True)
    with driving(executor, backfill_id, engine):
        bench.told.on_waiting = engine.release
        assert second.resume(backfill_id) is BackfillState.SUCCEEDED
    assert any("is driven by" in line for line in bench.told.lines)
    assert other.submitted == []


def test_what_was_paused_while_another_executor_waited_stays_paused(bench: Bench) -> None:
    engine, other = FakeEngine(holds=True), FakeEngine()
    executor, backfill_id = start(bench, engine)
    second = bench.executor(other, waits=True)
    bench.told.on_stopping = engine.release
    with driving(executor, backfill_id, engine):
        bench.told.on_waiting = lambda: second.pause(backfill_id)
        assert second.resume(backfill_id) is BackfillState.PAUSED
    assert other.submitted == []


def test_a_driver_without_a_sign_of_life_is_waited_for_and_taken_over_from(bench: Bench) -> None:
    executor, backfill_id = start(bench, FakeEngine())
    almost_over = datetime.now(UTC) + timedelta(seconds=0.7)
    bench.store.acquire(backfill_id, "elsewhere process 1", now=almost_over - LEASE, ttl=LEASE)
    assert executor.resume(backfill_id) is BackfillState.SUCCEEDED


def test_a_backfill_may_wait_for_partitions_of_another_one(bench: Bench) -> None:
    engine, other = FakeEngine(holds=True), FakeEngine()
    executor, first = start(bench, engine, plan_of(planned_run("r1", job="daily")))
    waiting = bench.executor(other, waits=True)
    second = waiting.start(plan_of(planned_run("r2", job="daily")))
    with driving(executor, first, engine):
        bench.told.on_waiting = engine.release
        assert waiting.drive(second) is BackfillState.SUCCEEDED
    assert any(f"{first} holds partitions" in line for line in bench.told.lines)
    assert other.submitted == [("r2", 1)]


@pytest.mark.parametrize("control", [ControlRequest.PAUSE, ControlRequest.CANCEL])
def test_what_waits_can_be_paused_and_cancelled(bench: Bench, control: ControlRequest) -> None:
    engine, other = FakeEngine(holds=True), FakeEngine()
    executor, first = start(bench, engine, plan_of(planned_run("r1", job="daily")))
    waiting = bench.executor(other, waits=True)
    second = waiting.start(plan_of(planned_run("r2", job="daily")))
    with driving(executor, first, engine):
        bench.told.on_waiting = lambda: bench.store.request_control(second, control, now=NOW)
        state = waiting.drive(second)
    expected = {
        ControlRequest.PAUSE: BackfillState.PAUSED,
        ControlRequest.CANCEL: BackfillState.CANCELLED,
    }
    assert state is expected[control]
    assert other.submitted == []


def test_what_is_refused_before_it_begins_stays_as_it_was(bench: Bench) -> None:
    engine = FakeEngine({("a", 1): failed()})
    executor, backfill_id = start(bench, engine)
    assert executor.drive(backfill_id) is BackfillState.FAILED
    executor.start(plan_of(), Submission(undo_of=backfill_id))
    for verb in (executor.resume, executor.retry):
        with pytest.raises(ConflictError, match="is undone by"):
            verb(backfill_id)
    assert bench.store.backfill(backfill_id).state is BackfillState.FAILED


@pytest.fixture(params=[3, -3])
def clock(request: pytest.FixtureRequest, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Shifted:
    """The store's time; the clock of the machine is wrong by some hours."""
    right = Shifted()
    monkeypatch.setattr(bench.clock, "now", lambda: right.now() + timedelta(hours=request.param))
    monkeypatch.setattr(bench.store, "time", lambda _: right.now())
    return right


def test_a_scheduled_backfill_begins_when_its_time_has_come(bench: Bench, clock: Shifted) -> None:
    engine, checked = FakeEngine(), []
    executor = bench.executor(engine, check=lambda: checked.append(clock.now()))
    at = clock.now() + timedelta(hours=2)
    backfill_id = executor.start(plan_of(planned_run("a")), Submission(scheduled_for=at))
    assert bench.store.backfill(backfill_id).state is BackfillState.SCHEDULED

    def come() -> None:
        assert bench.store.backfill(backfill_id).state is BackfillState.SCHEDULED
        assert engine.submitted == []
        clock.shift = timedelta(hours=2)

    bench.told.on_waiting = come
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    assert f"waiting it starts at {at:%Y-%m-%dT%H:%M:%SZ}" in bench.told.lines
    assert len(checked) == 1  # the lineage may have moved since it was planned
    started = bench.store.backfill(backfill_id).started_at
    assert started is not None
    assert started >= at


@pytest.mark.parametrize(
    ("control", "state"),
    [
        (ControlRequest.PAUSE, BackfillState.PAUSED),
        (ControlRequest.CANCEL, BackfillState.CANCELLED),
    ],
)
def test_a_scheduled_backfill_is_paused_and_cancelled_like_any_other(
    bench: Bench, clock: Shifted, control: ControlRequest, state: BackfillState
) -> None:
    engine = FakeEngine()
    executor = bench.executor(engine)
    at = clock.now() + timedelta(hours=2)
    backfill_id = executor.start(plan_of(planned_run("a")), Submission(scheduled_for=at))
    bench.told.on_waiting = lambda: bench.store.request_control(backfill_id, control, now=NOW)
    assert executor.drive(backfill_id) is state
    assert engine.submitted == []
    bench.told.on_waiting = lambda: setattr(clock, "shift", timedelta(hours=2))  # it still has it
    again = executor.resume if control is ControlRequest.PAUSE else executor.retry
    begun: list[datetime] = []
    engine.on_submit = lambda _: begun.append(clock.now())
    assert again(backfill_id) is BackfillState.SUCCEEDED
    assert begun[0] >= at


def test_what_runs_from_outside_is_waited_for_before_the_first_submission(bench: Bench) -> None:
    engine, live = FakeEngine(), ["a is being run by others", ""]
    executor = bench.executor(engine, live=lambda runs: live.pop(0))
    backfill_id = executor.start(plan_of(planned_run("a")))
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    assert bench.told.lines[0] == "waiting a is being run by others"


def test_an_executor_that_slept_between_intent_and_submission_submits_nothing(
    bench: Bench,
    clock: Shifted,
) -> None:
    engine = FakeEngine()
    executor = bench.executor(engine)
    backfill_id = executor.start(plan_of(planned_run("a")))
    sleeping = executor.spec_builder

    def sleep(*given: Any) -> dict[str, Any]:
        clock.shift = LEASE * 2
        bench.store.acquire(backfill_id, "another", now=clock.now(), ttl=LEASE)
        return sleeping(*given)

    executor.spec_builder = sleep
    with pytest.raises(ConflictError, match="has taken over"):
        executor.drive(backfill_id)
    assert engine.submitted == []
    clock.shift = LEASE * 4
    executor.spec_builder = sleeping
    assert executor.resume(backfill_id) is BackfillState.SUCCEEDED
    assert engine.submitted == [("a", 2)]


def test_a_driver_whose_lease_was_taken_over_stops_writing(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    executor, backfill_id = start(bench, engine)
    errors: list[BaseException] = []

    def drive() -> None:
        try:
            executor.drive(backfill_id)
        except ConflictError as error:
            errors.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    engine.wait_for(2)
    bench.store.acquire(
        backfill_id, "another", now=NOW, ttl=timedelta(seconds=9), is_dead=lambda _: True
    )
    for token in list(engine.known):
        engine.end(token)
    thread.join(10)
    assert "has taken over" in str(errors[0])
    assert RunState.SUCCEEDED not in bench.states(backfill_id).values()


def test_two_backfills_conflict_on_partitions_and_disjoint_ones_do_not(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    march = plan_of(planned_run("r1", job="daily", keys=("2024-03-01..2024-03-09",)))
    executor, first = start(bench, engine, march)
    thread = in_background(executor, first, engine, until=1)
    other = FakeEngine()
    overlapping = plan_of(planned_run("r2", job="daily", keys=("2024-03-05", "2024-03-20")))
    second_executor, second = start(bench, other, overlapping)
    with pytest.raises(ConflictError, match=rf"{first} holds partitions of n:daily.*2024-03-05$"):
        second_executor.drive(second)
    assert other.submitted == []
    disjoint = plan_of(planned_run("r3", job="daily", keys=("2024-03-10..2024-03-12",)))
    third_executor, third = start(bench, other, disjoint)
    assert third_executor.drive(third) is BackfillState.SUCCEEDED
    engine.end(next(iter(engine.known)))
    thread.join(10)
    assert second_executor.resume(second) is BackfillState.SUCCEEDED


def test_what_a_run_also_writes_is_locked_whole(bench: Bench) -> None:
    other = planned_run("r1", job="daily").writes[0].dataset

    class Whole(FakeEngine):
        def also_writes(self) -> dict[str, list[DatasetRef]]:
            return {"r1": [other]}

    engine = Whole(holds=True)
    facts = {"also_writes": [[other.namespace, other.name]]}
    engine.runs["r1"] = EngineRun(origin=Origin.CREATED, id="x", facts=facts)
    executor, first = start(bench, engine, plan_of(planned_run("r1", job="hourly", keys=("a",))))
    thread = in_background(executor, first, engine, until=1)
    second_executor, second = start(
        bench, FakeEngine(), plan_of(planned_run("r2", job="daily", keys=("b",)))
    )
    with pytest.raises(ConflictError, match=f"{first} holds partitions of n:daily"):
        second_executor.drive(second)
    engine.end(next(iter(engine.known)))
    thread.join(10)
    assert second_executor.resume(second) is BackfillState.SUCCEEDED
    (record,) = bench.store.runs(first)
    assert record.engine_run is not None
    assert record.engine_run.also_writes == (other,)


def test_backfills_of_a_table_by_value_conflict_whatever_their_keys(bench: Bench) -> None:
    """Delta lets only one of two concurrent writes to it commit."""
    engine = FakeEngine(holds=True)
    executor, first = start(bench, engine, plan_of(planned_run("r1", job="daily", keys=("a",))))
    executor.by_value = [planned_run("r1", job="daily").writes[0].dataset]
    thread = in_background(executor, first, engine, until=1)
    beside = plan_of(planned_run("r2", job="daily", keys=("b",)))
    second_executor, second = start(bench, FakeEngine(), beside)
    second_executor.by_value = executor.by_value
    with pytest.raises(ConflictError, match=f"{first} holds partitions of n:daily"):
        second_executor.drive(second)
    engine.end(next(iter(engine.known)))
    thread.join(10)


@pytest.mark.parametrize("state", [RunState.SUBMITTED, RunState.RUNNING])
@pytest.mark.parametrize("known", [True, False])
def test_a_run_in_doubt_is_reconciled_by_its_token(
    bench: Bench, state: RunState, known: bool
) -> None:
    """An executor died between intent and handle, or after it."""
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine, plan_of(planned_run("a"), planned_run("b", "a")))
    lease = bench.store.acquire(backfill_id, "dead", now=NOW, ttl=timedelta(seconds=1))
    intent = Move(run_id="a", state=RunState.SUBMITTED, attempt=1, token="t-1")
    moves = [intent]
    if state is RunState.RUNNING:
        moves.append(
            Move(
                run_id="a",
                state=state,
                attempt=1,
                attempt_state=AttemptState.RUNNING,
                handle="t-1",
            )
        )
    bench.store.record(lease, moves, now=NOW)
    if known:
        engine.known["t-1"] = ("a", 1)
        engine.end("t-1")
    assert executor.resume(backfill_id) is BackfillState.SUCCEEDED
    assert engine.submitted == ([("b", 1)] if known else [("a", 2), ("b", 1)])
    attempts = {(one.run_id, one.attempt): one for one in bench.store.attempts(backfill_id)}
    first = attempts["a", 1]
    assert first.state is (AttemptState.SUCCEEDED if known else AttemptState.LOST)


def test_the_store_names_the_last_thing_it_knows_when_a_drive_breaks(bench: Bench) -> None:
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine)

    def broken(run_id: str) -> None:
        raise RuntimeError(run_id)

    engine.on_submit = broken
    with pytest.raises(RuntimeError):
        executor.drive(backfill_id)
    assert bench.store.backfill(backfill_id).state is BackfillState.INTERRUPTED


def test_a_job_without_an_engine_is_refused_before_anything_is_done(bench: Bench) -> None:
    engine = FakeEngine()
    executor = bench.executor(engine)
    plan = plan_of(planned_run("a"), planned_run("b", engine=None))
    with pytest.raises(UsageError, match="job n:b cannot be run: no engine"):
        executor.start(plan)
    assert bench.store.backfills() == ()


def test_a_plan_that_is_too_large_is_refused(bench: Bench) -> None:
    with pytest.raises(GuardRailError, match="max_runs"):
        bench.executor(FakeEngine()).start(DIAMOND.detailed(runs=None))


def test_an_empty_plan_succeeds(bench: Bench) -> None:
    executor, backfill_id = start(bench, FakeEngine(), plan_of())
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED


# --- what an executor leaves to the next one ------------------------------------------------------


def left_running(
    bench: Bench, engine: FakeEngine, machine: str, *, engine_run: EngineRun | None = None
) -> str:
    """Return a backfill of which one run was begun on a machine whose executor is no more."""
    _, backfill_id = start(bench, engine, plan_of(planned_run("a"), planned_run("b", "a")))
    lease = bench.store.acquire(backfill_id, "nobody", now=NOW, ttl=LEASE)
    bench.store.enter(lease, BackfillState.RUNNING, now=NOW)
    run = RunState.SUBMITTED
    move = Move(run_id="a", state=run, attempt=1, token="t-a", machine=machine)
    bench.store.record(lease, [move], now=NOW)
    if engine_run is not None:
        stands = AttemptState.RUNNING
        move = Move(run_id="a", state=RunState.RUNNING, attempt=1, attempt_state=stands)
        move = replace(move, handle="t-a", engine_run=engine_run)
        bench.store.record(lease, [move], now=NOW)
    bench.store.release(lease)
    return backfill_id


def test_what_only_another_machine_can_judge_is_not_submitted_again(bench: Bench) -> None:
    engine = FakeEngine()
    backfill_id = left_running(bench, engine, "far-away")
    with pytest.raises(ConflictError, match="may still be running on far-away") as refused:
        bench.executor(engine).resume(backfill_id)
    assert "--machine-gone far-away" in refused.value.hint
    with pytest.raises(ConflictError):
        bench.executor(engine).cancel(backfill_id)
    assert engine.submitted == []
    assert bench.states(backfill_id)["a"] is RunState.SUBMITTED
    gone = bench.executor(engine, gone=["far-away"])
    assert gone.resume(backfill_id) is BackfillState.SUCCEEDED
    assert engine.submitted == [("a", 2), ("b", 1)]


def test_what_another_machine_has_left_for_all_to_see_is_taken(bench: Bench) -> None:
    class Leaving(FakeEngine):
        def left(self, spec_path: Path, token: str) -> Outcome | None:
            return Outcome(state=AttemptState.SUCCEEDED, result={"token": token})

    engine = Leaving()
    backfill_id = left_running(bench, engine, "far-away")
    assert bench.executor(engine).resume(backfill_id) is BackfillState.SUCCEEDED
    assert engine.submitted == [("b", 1)]


def test_an_engine_that_all_machines_share_is_asked_by_the_token(bench: Bench) -> None:
    engine = FakeEngine()
    engine.is_shared = True
    engine.known["t-a"] = ("a", 1)
    engine.ended["t-a"] = Outcome(state=AttemptState.SUCCEEDED, result={"token": "t-a"})
    backfill_id = left_running(bench, engine, "far-away")
    assert bench.executor(engine).resume(backfill_id) is BackfillState.SUCCEEDED
    assert engine.submitted == [("b", 1)]
    spec = json.loads(next(bench.folder.glob("backfills/*/runs/a-1.spec.json")).read_text())
    assert spec["token"] == "t-a"


def test_what_a_shared_engine_does_not_know_yet_is_not_submitted_again(bench: Bench) -> None:
    class Submitting(FakeEngine):
        """Its submissions are made by processes, which outlive the executor."""

        is_shared = True

        def can_tell(self, spec_path: Path, token: str) -> bool:
            return token in self.known

    engine = Submitting()
    backfill_id = left_running(bench, engine, "far-away")
    with pytest.raises(ConflictError, match="may still be running on far-away"):
        bench.executor(engine).resume(backfill_id)
    assert engine.submitted == []
    engine.known["t-a"] = ("a", 1)
    engine.ended["t-a"] = Outcome(state=AttemptState.SUCCEEDED, result={"token": "t-a"})
    assert bench.executor(engine).resume(backfill_id) is BackfillState.SUCCEEDED
    assert engine.submitted == [("b", 1)]


def test_cancelled_after_its_driver_died_leaves_nothing_to_start(bench: Bench) -> None:
    engine = FakeEngine()
    backfill_id = left_running(bench, engine, "")
    assert bench.executor(engine).cancel(backfill_id) is BackfillState.CANCELLED
    assert set(bench.states(backfill_id).values()) == {RunState.CANCELLED}
    assert bench.executor(engine).resume(backfill_id) is BackfillState.CANCELLED
    assert engine.submitted == []


def test_what_is_let_go_goes_on_and_is_found_again(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    executor, backfill_id = start(bench, engine)
    driving = in_background(executor, backfill_id, engine, until=2)
    executor.let_go()
    driving.join(timeout=10)
    assert not driving.is_alive()
    assert bench.store.backfill(backfill_id).state is BackfillState.INTERRUPTED
    assert engine.ended == {}
    engine.release()
    bench.clock.shift = 2 * LEASE  # its driver lives on here: only time ends the lease
    assert bench.executor(engine).resume(backfill_id) is BackfillState.SUCCEEDED
    assert sorted(engine.submitted) == [(run, 1) for run in "abcde"]


def test_a_job_that_is_not_idempotent_is_not_tried_again_by_itself(bench: Bench) -> None:
    lost = Outcome(state=AttemptState.LOST, error="gone", transient=True)
    engine = FakeEngine({("a", 1): lost})
    run = planned_run("a")
    executor = bench.executor(engine, jobs={run.job: JobLimits(idempotent=False)})
    backfill_id = executor.start(plan_of(run))
    assert executor.drive(backfill_id) is BackfillState.FAILED
    assert engine.submitted == [("a", 1)]
    (record,) = bench.store.runs(backfill_id)
    assert record.error == "gone; not tried again: the job is not idempotent"


RUN = planned_run("a")


def limited(**limits: Any) -> dict[str, Any]:
    """Return what an executor is given where the job of that run is limited so."""
    return {"jobs": {RUN.job: JobLimits(**limits)}}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_attempt_whose_time_is_up_is_stopped_and_fails(bench: Bench, clock: Shifted) -> None:
    engine = FakeEngine(holds=True)
    hour = timedelta(hours=1)
    executor = bench.executor(engine, **limited(timeout=hour))
    backfill_id = executor.start(plan_of(RUN))
    with driving(executor, backfill_id, engine):
        clock.shift = hour
        wait_until(lambda: bench.states(backfill_id)["a"] is RunState.FAILED)
    assert engine.submitted == [("a", 1)]  # a timeout is not tried again unless that is asked for
    (record,) = bench.store.runs(backfill_id)
    assert record.error == "timed out after 1:00:00"


def test_a_timeout_is_tried_again_where_that_is_asked_for(bench: Bench, clock: Shifted) -> None:
    engine = FakeEngine(holds=True)
    retry = RetryPolicy(max_attempts=2, wait=timedelta(0), on=("timeout",))
    given = limited(timeout=timedelta(hours=1), retry=retry)
    executor = bench.executor(engine, **given)
    backfill_id = executor.start(plan_of(RUN))
    with driving(executor, backfill_id, engine):
        clock.shift = timedelta(hours=1)
        engine.wait_for(2)
    assert bench.store.backfill(backfill_id).state is BackfillState.SUCCEEDED
    first, second = bench.store.attempts(backfill_id)
    assert (first.state, first.error) == (AttemptState.FAILED, "timed out after 1:00:00")
    assert second.state is AttemptState.SUCCEEDED


THEIRS = EngineRun(origin=Origin.ADOPTED, id="theirs")


def test_what_was_adopted_is_let_go_when_its_time_is_up(bench: Bench, clock: Shifted) -> None:
    engine = FakeEngine(holds=True)
    engine.runs = {"a": THEIRS}
    executor = bench.executor(engine, **limited(timeout=timedelta(hours=1)))
    backfill_id = executor.start(plan_of(RUN))
    with driving(executor, backfill_id, engine):
        clock.shift = timedelta(hours=1)
        wait_until(lambda: bench.states(backfill_id)["a"] is RunState.FAILED)
    (record,) = bench.store.runs(backfill_id)
    assert record.error == "timed out after 1:00:00; left running"
    assert record.engine_run == THEIRS
    assert len(engine.left_running) == 1


def test_a_kill_lets_go_of_what_was_adopted_and_stops_the_rest(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    again = EngineRun(origin=Origin.RERUN, id="again")
    engine.runs = {"a": THEIRS, "b": again}
    executor = bench.executor(engine)
    backfill_id = executor.start(plan_of(*map(planned_run, "abc")))
    thread = in_background(executor, backfill_id, engine, until=3)
    bench.executor(engine).cancel(backfill_id, kill=True)
    thread.join(10)
    found = {run.run_id: (run.state, run.error) for run in bench.store.runs(backfill_id)}
    assert found == {
        "a": (RunState.CANCELLED, "left running"),
        "b": (RunState.CANCELLED, "stopped"),
        "c": (RunState.CANCELLED, "stopped"),
    }
    known = [run.engine_run for run in bench.store.runs(backfill_id)]
    assert known == [THEIRS, again, EngineRun(origin=Origin.CREATED)]


def test_what_an_attempt_runs_as_is_recorded_once_it_is_known(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    engine.runs = {"a": None}
    executor = bench.executor(engine)
    backfill_id = executor.start(plan_of(RUN))

    def recorded() -> EngineRun | None:
        return bench.store.runs(backfill_id)[0].engine_run

    with driving(executor, backfill_id, engine):
        wait_until(lambda: bench.states(backfill_id)["a"] is RunState.RUNNING)
        assert recorded() is None
        engine.runs = {"a": THEIRS}
        for _ in range(2):  # nothing is written for what is known
            engine.listener(next(iter(engine.known)))
            wait_until(lambda: recorded() == THEIRS)
        engine.runs = {"a": replace(THEIRS, facts={"x": 1})}
        engine.release()
    assert recorded() == replace(THEIRS, facts={"x": 1})
    kinds = [event.kind for event in bench.store.events(backfill_id) if event.run_id]
    assert kinds == ["submitted", "running", "running", "succeeded"]


def test_an_engine_records_what_it_is_about_to_do_and_knows_it_when_resumed(bench: Bench) -> None:
    class Recalling(FakeEngine):
        def remember(
            self, known: Mapping[str, EngineRun], keep: Callable[[str, int, EngineRun], None]
        ) -> None:
            self.recalled, self.on_submit = known, lambda run_id: keep(run_id, 1, acting)

    class Refusing(Recalling):
        def submit(self, spec_path: Path, token: str) -> str:
            raise UnfitRunError("the job was deleted")

    acting = EngineRun(origin=Origin.RERUN, id="d/r", facts={"tries": {"t": 3}})
    first = Recalling({("b", 1): failed("no such column")})
    first.runs = {"a": acting, "b": acting}
    executor, backfill_id = start(bench, first, plan_of(planned_run("a"), planned_run("b")))
    executor.drive(backfill_id)
    assert first.recalled == {}
    kinds = [event.kind for event in bench.store.events(backfill_id) if event.run_id == "a"]
    assert kinds == ["submitted", "running", "succeeded"]
    second = Refusing()
    bench.executor(second).retry(backfill_id)
    assert second.recalled["b"] == acting
    assert [one.engine_run for one in bench.store.runs(backfill_id)] == [acting, None]
    third = Recalling()
    bench.executor(third).retry(backfill_id)
    assert third.recalled["b"] == acting


def test_a_run_waits_for_what_its_engine_names_besides_its_upstream(bench: Bench) -> None:
    class Joining(FakeEngine):
        def waits(self) -> Mapping[str, Sequence[str]]:
            return {"a": ["c"]}

    engine = Joining()
    executor, backfill_id = start(bench, engine, plan_of(*map(planned_run, "abc")))
    executor.drive(backfill_id)
    assert engine.submitted[-1] == ("a", 1)
    chained = plan_of(planned_run("a"), planned_run("c", "a"))
    executor, backfill_id = start(bench, Joining(), chained)
    with pytest.raises(GuardRailError, match="wait for each other"):
        executor.drive(backfill_id)


@pytest.mark.parametrize("found", [THEIRS, None])
def test_what_an_attempt_runs_as_survives_a_take_over(
    bench: Bench, found: EngineRun | None
) -> None:
    engine = FakeEngine(holds=True)
    engine.known["t-a"] = ("a", 1)
    engine.runs = {"a": found}
    backfill_id = left_running(bench, engine, machine(), engine_run=THEIRS)
    engine.release()
    assert bench.executor(engine).resume(backfill_id) is BackfillState.SUCCEEDED
    first, second = bench.store.runs(backfill_id)
    assert first.engine_run == THEIRS
    assert second.engine_run == EngineRun(origin=Origin.CREATED)
    assert engine.submitted == [("b", 1)]


class Leaving(FakeEngine):
    """Lets its executor go as soon as an attempt is found: the drive then ends by itself."""

    executor: Executor

    def find(self, spec_path: Path, token: str) -> str | None:
        self.executor.let_go()
        return super().find(spec_path, token)


@pytest.mark.parametrize(("hours", "is_stopped"), [(2, True), (0, False)])
def test_a_timeout_counts_from_the_submission_also_after_a_take_over(
    bench: Bench, clock: Shifted, hours: int, is_stopped: bool
) -> None:
    engine = Leaving(holds=True)
    engine.known["t-a"] = ("a", 1)
    backfill_id = left_running(bench, engine, machine())
    clock.shift = NOW - SystemClock().now() + timedelta(hours=hours)
    engine.executor = executor = bench.executor(engine, **limited(timeout=timedelta(hours=1)))
    state = executor.resume(backfill_id)
    runs = {one.run_id: one for one in bench.store.runs(backfill_id)}
    if is_stopped:
        assert (state, runs["b"].state) == (BackfillState.FAILED, RunState.BLOCKED)
        assert (runs["a"].state, runs["a"].error) == (RunState.FAILED, "timed out after 1:00:00")
    else:
        assert (state, runs["a"].state) == (BackfillState.INTERRUPTED, RunState.RUNNING)
    assert engine.submitted == []


@pytest.mark.parametrize(
    ("engine_run", "ends", "submitted"),
    [
        (EngineRun(origin=Origin.CREATED), BackfillState.FAILED, []),
        (None, BackfillState.SUCCEEDED, [("a", 2), ("b", 1)]),
    ],
    ids=["started", "only intended"],
)
def test_a_started_and_lost_run_that_is_not_idempotent_is_not_repeated_at_a_take_over(
    bench: Bench,
    engine_run: EngineRun | None,
    ends: BackfillState,
    submitted: list[tuple[str, int]],
) -> None:
    engine = FakeEngine()  # it knows no attempt
    backfill_id = left_running(bench, engine, machine(), engine_run=engine_run)
    executor = bench.executor(engine, **limited(idempotent=False))
    assert executor.resume(backfill_id) is ends
    assert engine.submitted == submitted
    first, second = bench.store.runs(backfill_id)
    if engine_run is not None:
        assert (first.state, second.state) == (RunState.FAILED, RunState.BLOCKED)
        assert first.error is not None
        assert first.error.endswith("not tried again: the job is not idempotent")


def test_runs_below_a_failed_one_are_blocked_at_resume(bench: Bench) -> None:
    """Their executor died between the record of the failure and that of its consequences."""
    engine = FakeEngine()
    runs = (planned_run("a"), planned_run("b", "a"), planned_run("c", "b"), planned_run("e"))
    executor, backfill_id = start(bench, engine, plan_of(*runs))
    lease = bench.store.acquire(backfill_id, "gone", now=NOW, ttl=LEASE)
    bench.store.enter(lease, BackfillState.RUNNING, now=NOW)
    intent = Move(run_id="a", state=RunState.SUBMITTED, attempt=1, token="t-a", machine=machine())
    end = replace(intent, state=RunState.FAILED, attempt_state=AttemptState.FAILED, error="boom")
    bench.store.record(lease, [intent, end], now=NOW)
    bench.store.release(lease)
    assert executor.resume(backfill_id) is BackfillState.FAILED
    states = bench.states(backfill_id)
    assert (states["b"], states["c"]) == (RunState.BLOCKED, RunState.BLOCKED)
    assert engine.submitted == [("e", 1)]


@pytest.mark.parametrize(("most", "started"), [(1, 1), (2, 2), (None, 4)])
def test_after_so_many_failures_no_more_runs_are_started(
    bench: Bench, most: int | None, started: int
) -> None:
    engine = FakeEngine({(one, 1): failed() for one in "abcd"})
    executor = bench.executor(engine, max_parallel=1, max_failures=most)
    backfill_id = executor.start(plan_of(*(planned_run(one) for one in "abcd")))
    assert executor.drive(backfill_id) is BackfillState.FAILED
    assert len(engine.submitted) == started
    rest = [run for run in bench.store.runs(backfill_id) if run.state is RunState.CANCELLED]
    assert len(rest) == 4 - started
    assert all(
        run.error == f"not started: {most} run{'s' * (most == 2)} had failed" for run in rest
    )


def test_what_was_not_started_after_a_failure_is_retried(bench: Bench) -> None:
    engine = FakeEngine({("a", 1): failed()})
    executor = bench.executor(engine, max_parallel=1, max_failures=1)
    backfill_id = executor.start(plan_of(RUN, planned_run("b", "a"), planned_run("c")))
    assert executor.drive(backfill_id) is BackfillState.FAILED
    assert executor.retry(backfill_id) is BackfillState.SUCCEEDED
    assert engine.submitted == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]


def test_runs_wait_for_their_window_and_those_under_way_go_on_past_it(
    bench: Bench, clock: Shifted
) -> None:
    engine = FakeEngine(holds=True)
    now = clock.now()
    begin, end = (
        (now + timedelta(hours=n)).time().replace(second=0, microsecond=0) for n in (2, 3)
    )
    window = RunWindow(begin=begin, end=end, zone="UTC")
    executor = bench.executor(engine, max_parallel=2, **limited(window=window))
    backfill_id = executor.start(plan_of(RUN, planned_run("b", "a", job="a"), planned_run("c")))
    with driving(executor, backfill_id, engine):
        assert engine.submitted == [("c", 1)]  # of a job without a window
        assert f"waiting runs start only between {window}" in bench.told.lines
        clock.shift = timedelta(hours=2.5)
        engine.wait_for(2)
        clock.shift = timedelta(hours=4)
        time.sleep(1.2)  # seen by the loop
        engine.release()
        wait_until(lambda: bench.states(backfill_id)["a"] is RunState.SUCCEEDED)
        assert bench.states(backfill_id)["b"] is RunState.PENDING
        clock.shift = timedelta(hours=26.5)
        wait_until(lambda: bench.states(backfill_id)["b"] is RunState.SUCCEEDED)
    assert bench.store.backfill(backfill_id).state is BackfillState.SUCCEEDED


class ListingEngine(FakeEngine):
    """Takes lists, and keeps the runs of each; `is_early` once one came while others ran."""

    lists, is_early = True, False

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.given: list[list[str]] = []

    def submit_list(self, specs: Mapping[str, Path]) -> list[str]:
        self.is_early |= self.known.keys() != self.ended.keys()
        self.given.append([path.name.partition("-")[0] for path in specs.values()])
        names = {list_of(token) for token in specs}
        assert list(specs) == [f"{names.copy().pop()}.{n}" for n in range(1, len(specs) + 1)]
        return super().submit_list(specs)


def test_runs_that_are_ready_are_one_list_and_the_next_one_waits_for_its_end(
    bench: Bench,
) -> None:
    engine = ListingEngine(holds=True)
    executor, backfill_id = start(bench, engine)
    with driving(executor, backfill_id, engine):
        engine.wait_for(2)
        assert engine.given == [["a", "e"]]
        first, second = engine.known
        engine.end(first)
        wait_until(lambda: bench.states(backfill_id)["a"] is RunState.SUCCEEDED)
        engine.end(second)
        engine.wait_for(4)
        assert engine.given == [["a", "e"], ["b", "c"]]
        engine.release()
    assert bench.store.backfill(backfill_id).state is BackfillState.SUCCEEDED
    assert engine.submitted[-1] == ("d", 1)
    assert len(engine.given) == 2, "one run is no list"
    assert not engine.is_early


def test_what_is_tried_again_or_may_not_be_is_alone(bench: Bench) -> None:
    engine = ListingEngine({("b", 1): failed(transient=True), ("c", 1): failed(transient=True)})
    limits = {"slow": JobLimits(timeout=timedelta(hours=1)), "once": JobLimits(idempotent=False)}
    executor = bench.executor(
        engine, max_parallel=9, jobs={JobRef("n", name): one for name, one in limits.items()}
    )
    ready = [planned_run(name) for name in "abc"] + [planned_run(name, job=name) for name in limits]
    backfill_id = executor.start(plan_of(*ready))
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    assert engine.given == [["a", "b", "c"]]
    assert sorted(engine.submitted[3:]) == [("b", 2), ("c", 2), ("once", 1), ("slow", 1)]


def test_a_list_that_the_engine_refuses_is_a_failed_attempt_of_each(bench: Bench) -> None:
    class Refusing(RefusingEngine, ListingEngine):
        pass

    executor, backfill_id = start(bench, Refusing(), plan_of(planned_run("a"), planned_run("b")))
    assert executor.drive(backfill_id) is BackfillState.FAILED
    assert bench.told.lines == [f"failed {run} the queue is closed. Open it." for run in "ab"]


class Unreachable:
    """A store that does not answer `times` calls of `verb`, each before or after it was done."""

    def __init__(self, store: RunStore, verb: str, times: int, *, is_late: bool) -> None:
        self.store, self.verb, self.times, self.is_late = store, verb, times, is_late

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)

        def call(*given: Any, **named: Any) -> Any:
            answer = found(*given, **named) if self.is_late or not self.times else None
            if self.times and threading.current_thread().name != "heartbeat":
                self.times -= 1
                raise StoreUnreachableError("no answer")
            return answer

        return call if name == self.verb else found


@pytest.mark.parametrize("verb", ["record", "enter", "renew"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_store_that_does_not_answer_is_waited_for(bench: Bench, verb: str, is_late: bool) -> None:
    engine = FakeEngine()
    executor, backfill_id = start(bench, engine)
    flaky: Any = Unreachable(bench.store, verb, 2, is_late=is_late)
    executor = Executor(
        store=flaky,
        engines={"fake": engine},
        spec_builder=spec_of,
        reporter=bench.told,
        state_dir=bench.folder,
    )
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    assert "waiting no answer" in bench.told.lines
    assert sorted(engine.submitted) == [(run, 1) for run in "abcde"]
    assert len(bench.store.attempts(backfill_id)) == 5


def test_a_store_that_stays_away_ends_the_drive_and_nothing_that_runs(bench: Bench) -> None:
    engine = FakeEngine(holds=True)
    executor, backfill_id = start(bench, engine)
    flaky: Any = Unreachable(bench.store, "record", 0, is_late=False)
    executor = Executor(
        store=flaky,
        engines={"fake": engine},
        spec_builder=spec_of,
        state_dir=bench.folder,
    )
    raised: list[StoreUnreachableError] = []

    def drive() -> None:
        try:
            executor.drive(backfill_id)
        except StoreUnreachableError as error:
            raised.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    engine.wait_for(2)
    time.sleep(0.2)
    flaky.times = 1000
    token = next(iter(engine.known))
    engine.end(token)  # its end cannot be written down
    time.sleep(0.5)
    executor.stop()
    thread.join(timeout=10)
    assert [error.exit_code for error in raised] == [7]
    assert len(engine.ended) == 1
