"""A backfill is followed by what the store says of it, whoever drives it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from lineage_backfill import Plan, plan_to_dict
from lineage_backfill.errors import UnknownNameError
from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, BackfillRecord, ControlRequest, Move, Reporter
from lineage_backfill.runs.drive.owner import owner
from lineage_backfill.runs.watching import follow
from lineage_backfill.store.sql import SqlRunStore
from tests.unit.cli import plans

NOW = datetime(2024, 6, 15, tzinfo=UTC)


class Told(Reporter):
    """Keeps what it is told, as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def backfill_started(self, backfill_id: str, plan: Plan, title: str) -> None:
        self.lines.append(f"{title}: {len(plan.runs or ())} runs".removeprefix(": "))

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        self.lines.append(f"{run.job.name} attempt {attempt}")

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        self.lines.append(f"{run.job.name} {state} {detail}".strip())

    def stopping(self, running: int, *, hard: bool) -> None:
        self.lines.append(f"stopping {running} {'hard' if hard else 'soft'}")

    def backfill_finished(self, backfill_id: str, state: str) -> None:
        self.lines.append(f"ended {state}")


class Driver:
    """Somebody else, who drives the backfill `b`."""

    def __init__(self, store: SqlRunStore, *, begun: bool = True) -> None:
        self.store = store
        self.plan = plans.real()
        assert self.plan.runs is not None
        self.first, self.second, *self.rest = self.plan.runs
        running = BackfillState.RUNNING
        record = BackfillRecord(
            id="b", plan_id="p", title="VAT", state=running, submitted_at=NOW, updated_at=NOW
        )
        self.store.create(record, plan_to_dict(self.plan), self.plan.runs)
        if begun:
            self.lease = self.store.acquire("b", "me", now=NOW, ttl=timedelta(minutes=1))

    def move(
        self,
        run: PlannedRun,
        state: RunState,
        attempt: int = 1,
        *,
        ended: AttemptState | None = None,
        error: str | None = None,
    ) -> None:
        token = f"{run.id} {attempt}" if state is RunState.SUBMITTED else None
        move = Move(
            run_id=run.id,
            state=state,
            attempt=attempt,
            token=token,
            attempt_state=ended,
            error=error,
        )
        self.store.record(self.lease, [move], now=NOW)

    def succeed(self, run: PlannedRun) -> None:
        self.move(run, RunState.SUBMITTED)
        self.move(run, RunState.SUCCEEDED, ended=AttemptState.SUCCEEDED)

    def end(self, state: BackfillState) -> None:
        self.store.enter(self.lease, state, now=NOW)

    def follow(self, told: Told, wait: Callable[[], bool], *, now: datetime = NOW) -> BackfillState:
        return follow(self.store, "b", told, now=lambda: now, wait=wait)


def meanwhile(*steps: Callable[[], object]) -> Callable[[], bool]:
    """Return a `wait` that does one step at each call; False when there are no more."""
    left: Iterator[Callable[[], object]] = iter(steps)

    def wait() -> bool:
        step = next(left, None)
        if step is not None:
            step()
        return step is not None

    return wait


def test_what_happens_is_told_in_its_order_and_what_had_ended_is_not(
    new_store: Callable[[], SqlRunStore],
) -> None:
    driver, told = Driver(new_store()), Told()
    driver.succeed(driver.first)
    driver.move(driver.second, RunState.SUBMITTED)

    def fails_twice() -> None:
        error, failed = "gone", AttemptState.FAILED
        driver.move(driver.second, RunState.RUNNING)
        driver.move(driver.second, RunState.PENDING, ended=failed, error=error)
        driver.move(driver.second, RunState.SUBMITTED, 2)
        driver.move(driver.second, RunState.FAILED, 2, ended=failed, error=error)

    def blocks() -> None:
        for run in driver.rest:
            driver.move(run, RunState.BLOCKED, error="so")
        driver.end(BackfillState.FAILED)

    state = driver.follow(told, meanwhile(fails_twice, blocks))
    assert state is BackfillState.FAILED
    name = driver.second.job.name
    assert told.lines == [
        f"VAT: {1 + len(driver.rest)} runs",
        f"{name} attempt 1",
        f"{name} attempt 2",
        f"{name} failed gone",
        *(f"{run.job.name} blocked so" for run in driver.rest),
        "ended failed",
    ]


@pytest.mark.parametrize(
    ("control", "how"), [(ControlRequest.PAUSE, "soft"), (ControlRequest.KILL, "hard")]
)
def test_a_control_request_is_reported(
    control: ControlRequest, how: str, new_store: Callable[[], SqlRunStore]
) -> None:
    driver, told = Driver(new_store()), Told()
    driver.move(driver.first, RunState.SUBMITTED)
    wait = meanwhile(
        lambda: driver.store.request_control("b", control, now=NOW),
        lambda: driver.end(BackfillState.INTERRUPTED),
    )
    assert driver.follow(told, wait) is BackfillState.INTERRUPTED
    assert told.lines[-2:] == [f"stopping 1 {how}", "ended interrupted"]


def test_nobody_waits_for_what_has_ended_or_for_ever(new_store: Callable[[], SqlRunStore]) -> None:
    driver, told = Driver(new_store()), Told()
    assert driver.follow(told, lambda: False) is BackfillState.RUNNING
    driver.end(BackfillState.CANCELLED)

    def never() -> bool:
        raise AssertionError

    assert driver.follow(told, never) is BackfillState.CANCELLED
    with pytest.raises(UnknownNameError):
        follow(driver.store, "nobody", told, now=lambda: NOW, wait=never)


@pytest.mark.parametrize(
    ("sentence", "name", "later", "state"),
    [
        ("it gives signs of life", "elsewhere process 1", 59, BackfillState.RUNNING),
        ("it has given none for the time of its lease", "elsewhere process 1", 60, None),
        ("it is no process of this machine any more", None, 1, None),
    ],
)
def test_nobody_waits_for_a_driver_that_is_gone(
    sentence: str,
    name: str | None,
    later: int,
    state: BackfillState | None,
    new_store: Callable[[], SqlRunStore],
) -> None:
    driver, told = Driver(new_store()), Told()
    driver.store.release(driver.lease)
    driver.store.acquire("b", name or dead_owner(), now=NOW, ttl=timedelta(minutes=1))
    now = NOW + timedelta(seconds=later)
    seen = driver.follow(told, lambda: False, now=now)
    assert seen is (state or BackfillState.INTERRUPTED)
    assert ("ended interrupted" in told.lines) is (state is None)
    assert driver.store.backfill("b").state is BackfillState.RUNNING  # who watches writes nothing


def test_a_driver_gets_the_time_of_a_lease_to_begin(new_store: Callable[[], SqlRunStore]) -> None:
    driver, told = Driver(new_store(), begun=False), Told()
    assert driver.follow(told, lambda: False) is BackfillState.RUNNING
    late = NOW + timedelta(seconds=31)
    assert driver.follow(told, lambda: False, now=late) is BackfillState.INTERRUPTED


def test_what_a_driver_has_let_go_is_interrupted_at_once(
    new_store: Callable[[], SqlRunStore],
) -> None:
    driver, told = Driver(new_store()), Told()
    driver.store.release(driver.lease)
    assert driver.follow(told, lambda: False) is BackfillState.INTERRUPTED


def dead_owner() -> str:
    """Name a process of this machine that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    here, _, _ = owner().rpartition(" ")
    return f"{here} {process.pid}"
