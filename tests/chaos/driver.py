"""Drives a backfill of the small world in a process of its own, and does there as it is told."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lineage_backfill.engines import create_engine
from lineage_backfill.errors import BackfillError
from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.ports import Engine, Lease, Move
from lineage_backfill.project.notify import NotifyDeclaration
from lineage_backfill.runs.drive.clock import SystemClock
from lineage_backfill.runs.drive.executor import Executor
from lineage_backfill.runs.drive.retry import RetryPolicy
from lineage_backfill.store.sql import SqlRunStore
from tests.chaos import world

#: Where an executor can be disturbed.
STEPS = (
    "before intent",
    "after intent",
    "before spec",
    "before submit",
    "after submit",
    "before handle",
    "after handle",
    "ended",
    "before outcome",
    "after outcome",
)
#: Exit codes of a drive: it ended well, it ended otherwise, it raised an error of the tree.
SUCCEEDED, UNFINISHED, REFUSED = 0, 3, 4


@dataclass(frozen=True, kw_only=True)
class Drive:
    """What one process is to do; `disturb` holds (step, number of times reached) and what then.

    `backfill_id` None starts a new backfill, and writes its id into the folder. `worker_kills` are
    steps of workers, each with the number of times that it was reached by all of them.
    """

    folder: Path
    store: str
    plan: Plan
    tables: world.Tables
    backfill_id: str | None = None
    disturb: Mapping[tuple[str, int], str] = field(default_factory=dict)
    worker_kills: Sequence[tuple[str, int]] = ()
    hooks: Sequence[NotifyDeclaration] = ()


class Disturbance:
    """Counts how often each step is reached, and acts where it was told to."""

    def __init__(self, what: Mapping[tuple[str, int], str]) -> None:
        self.what = what
        self.reached: Counter[str] = Counter()
        self.shift = timedelta()
        self.read_only = False

    def __call__(self, step: str) -> None:
        self.reached[step] += 1
        action = self.what.get((step, self.reached[step]))
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        elif action == "full disk":  # from now on no file grows
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        elif action == "read-only":
            self.read_only = True
        elif action is not None:
            self.shift += timedelta(hours=float(action))


class JumpingClock(SystemClock):
    """This machine's time, shifted."""

    def __init__(self, reach: Disturbance) -> None:
        self.reach = reach

    def now(self) -> datetime:
        return super().now() + self.reach.shift


class DisturbedStore(SqlRunStore):
    """A run store in whose process something happens before and after each record."""

    def __init__(self, url: str, reach: Disturbance) -> None:
        super().__init__(url)
        self.reach = reach
        sa.event.listen(self._engine, "begin", self._begin)

    def _begin(self, connection: sa.Connection) -> None:
        if self.reach.read_only:
            is_sqlite = connection.dialect.name == "sqlite"
            sql = "PRAGMA query_only = ON" if is_sqlite else "SET TRANSACTION READ ONLY"
            connection.exec_driver_sql(sql)

    def enter(self, lease: Lease, state: BackfillState, **more: Any) -> None:
        self.reach("before state")
        super().enter(lease, state, **more)
        self.reach("after state")

    def record(self, lease: Lease, moves: Sequence[Move], **more: Any) -> None:
        states = {move.state for move in moves}
        steps = [
            name
            for state, name in (
                (RunState.SUBMITTED, "intent"),
                (RunState.RUNNING, "handle"),
                (RunState.SUCCEEDED, "outcome"),
            )
            if state in states
        ]
        for step in steps:
            self.reach(f"before {step}")
        super().record(lease, moves, **more)
        for step in steps:
            self.reach(f"after {step}")


def _engine(reach: Disturbance, *, kind: str = "local", **settings: Any) -> Engine:
    """Return an engine in whose process something happens around its calls."""
    folders = {name: settings.pop(name) for name in ("project", "state_dir")}
    engine = create_engine(kind, settings, **folders)
    submit, listen = engine.submit, engine.listen

    def submit_disturbed(spec_path: Path, token: str) -> str:
        reach("before submit")
        handle = submit(spec_path, token)
        reach("after submit")
        return handle

    def listen_disturbed(listener: Callable[[str], None]) -> None:
        def told(handle: str) -> None:
            reach("ended")
            listener(handle)

        listen(told)

    vars(engine).update(submit=submit_disturbed, listen=listen_disturbed)
    return engine


def drive(what: Drive) -> None:
    """Do it, and exit."""
    log = (what.folder / "driver.log").open("a")
    os.dup2(log.fileno(), sys.stdout.fileno())
    os.dup2(log.fileno(), sys.stderr.fileno())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reach = Disturbance(what.disturb)
    try:
        state = _drive(what, reach)
    except BackfillError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        sys.stderr.write(f"{type(error).__name__}: {error} ({error.hint})\n")
        sys.stderr.flush()
        os._exit(REFUSED)
    os._exit(SUCCEEDED if state is BackfillState.SUCCEEDED else UNFINISHED)


def _drive(what: Drive, reach: Disturbance) -> BackfillState:
    specs = world.Specs(what.folder, what.tables, seconds=0.01)

    def spec(run: PlannedRun, attempt: int, token: str, result_path: Path) -> dict[str, Any]:
        reach("before spec")
        return specs(run, attempt, token, result_path)

    settings = what.tables.settings()
    kills = {"WORKER_KILLS": ",".join(f"{one} {number}" for one, number in what.worker_kills)}
    if settings.get("deploy_mode") == "cluster":  # its driver has the environment of its container
        settings["conf"] |= {f"spark.yarn.appMasterEnv.{k}": v for k, v in kills.items()}
    engine = _engine(
        reach,
        project=what.folder,
        state_dir=what.folder / "state",
        **{**settings, "env": {**settings.get("env", {}), **kills}},
    )
    store = DisturbedStore(what.store, reach)
    clock = JumpingClock(reach)
    executor = Executor(
        store=store,
        hooks=[hook.id for hook in what.hooks],
        engines={"local": engine},
        spec_builder=spec,
        max_parallel=settings.get("workers", 1),
        state_dir=what.folder / "state",
        retry_policy=RetryPolicy(max_attempts=4, wait=timedelta(milliseconds=1)),
        clock=clock,
    )
    try:
        if what.backfill_id is not None:
            return executor.resume(what.backfill_id)
        backfill_id = executor.start(what.plan)
        (what.folder / "id.new").write_text(backfill_id)
        (what.folder / "id.new").replace(what.folder / "id")
        return executor.drive(backfill_id)
    finally:
        engine.close()
        store.close()
