"""Drives a small backfill on the fake worker and kills itself where it is told to.

    python tests/kill_driver.py FOLDER BACKFILL|- [STEP NUMBER]

STEP is one of STEPS; the process dies the NUMBER-th time that it gets there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from lineage_backfill.engines.local import LocalEngine
from lineage_backfill.executor.loop import Executor
from lineage_backfill.executor.retry import RetryPolicy
from lineage_backfill.model import RunState
from lineage_backfill.ports import Lease, Move
from lineage_backfill.store.sql import SqlRunStore
from tests.fakes import plan_of, planned_run, spec_of

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

PLAN = plan_of(
    planned_run("a", engine="local"),
    planned_run("b", "a", wave=2, engine="local"),
    planned_run("c", "a", wave=2, engine="local"),
    planned_run("d", "b", "c", wave=3, engine="local"),
    planned_run("e", engine="local"),
)


class Killer:
    def __init__(self, step: str = "", number: int = 1) -> None:
        self.step = step
        self.left = number

    def __call__(self, step: str) -> None:
        if step == self.step:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class KilledStore(SqlRunStore):
    def __init__(self, url: str, reach: Killer) -> None:
        super().__init__(url)
        self.reach = reach

    def record(self, lease: Lease, moves: Sequence[Move], *, now: datetime) -> None:
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
        super().record(lease, moves, now=now)
        for step in steps:
            self.reach(f"after {step}")


class KilledEngine(LocalEngine):
    def __init__(self, reach: Killer, **settings: Any) -> None:
        super().__init__(**settings)
        self.reach = reach

    def submit(self, spec_path: Path, token: str) -> str:
        self.reach("before submit")
        handle = super().submit(spec_path, token)
        self.reach("after submit")
        return handle

    def listen(self, listener: Any) -> None:
        def told(handle: str) -> None:
            self.reach("ended")
            listener(handle)

        super().listen(told)


def main(folder: Path, backfill_id: str, reach: Killer) -> int:
    def spec(run: Any, attempt: int, token: str, result_path: Path) -> dict[str, Any]:
        reach("before spec")
        return {**spec_of(run, attempt, token, result_path), "parameters": {"seconds": 0.03}}

    store = KilledStore(f"sqlite:///{folder}/runs.db", reach)
    command = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
    engine = KilledEngine(reach, project=folder, state_dir=folder, command=command)
    executor = Executor(
        store=store,
        engines={"local": engine},
        spec_builder=spec,
        max_parallel=2,
        state_dir=folder,
        retry=RetryPolicy(max_attempts=3, wait=timedelta(milliseconds=1)),
    )
    try:
        if backfill_id == "-":
            backfill_id = executor.start(PLAN)
            (folder / "id.new").write_text(backfill_id)
            (folder / "id.new").replace(folder / "id")
            state = executor.drive(backfill_id)
        else:
            state = executor.resume(backfill_id)
    finally:
        engine.close()
        store.close()
    return 0 if state == "succeeded" else 3


if __name__ == "__main__":
    killer = Killer(sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else Killer()
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], killer))
