"""How many tasks a second the executor gets through, on SQLite, with an engine that does nothing.

    python scripts/bench/schedule.py [--tasks 10000 100000] [--parallel 64]
        [--state-dir DIR]

Every second task reads the one before it. Prints one JSON line per size: tasks per second, and how
long a slot stands idle from the end of one task to the start of the next (median, 99th percentile);
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lineage_backfill.model import BackfillState, DatasetRef, JobRef
from lineage_backfill.plans.plan import DatasetPartitions, Listed, Plan, PlannedRun
from lineage_backfill.ports import AttemptState, Engine, Outcome
from lineage_backfill.runs.drive.executor import Executor
from lineage_backfill.store.sql import SqlRunStore


class NothingEngine(Engine):
    """Ends every attempt at once; keeps when it was given each."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self._listener: Callable[[str], None] = lambda _handle: None

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        self.begun.append(time.perf_counter())
        self._listener(token)
        return token

    def find(self, spec_path: Path, token: str) -> str | None:
        return None

    def poll(self, handle: str) -> Outcome:
        return Outcome(state=AttemptState.SUCCEEDED)

    def cancel(self, handle: str) -> None:
        pass

    def logs(self, handle: str) -> str:
        return ""

    def close(self) -> None:
        pass


def make_plan(tasks: int) -> Plan:
    """Return a plan of pairs: one task, and one that reads it."""
    runs = []
    for number in range(tasks):
        first = number % 2 == 0
        name = "first" if first else "second"
        key = f"2024-{number // 2:08d}"
        runs.append(
            PlannedRun(
                id=f"r{number}",
                job=JobRef("bench", name),
                partitions=(key,),
                count=1,
                wave=1 if first else 2,
                upstream=() if first else (f"r{number - 1}",),
                engine="nothing",
                reads=(),
                writes=(DatasetPartitions(dataset=DatasetRef("bench", name), keys=(key,)),),
            )
        )
    totals = {"jobs": 2, "runs": tasks, "partitions": tasks}
    return Plan(
        now="2024-04-01T00:00:00Z",
        request={},
        changed=(),
        totals=totals,
        details=Listed(jobs=(), runs=tuple(runs), lineage={}),
    )


def make_spec(run: PlannedRun, attempt: int, token: str, result_path: Path) -> dict[str, Any]:
    """Return the least that a run spec holds."""
    return {"run_id": run.id, "attempt": attempt, "token": token, "result_path": str(result_path)}


def measure(tasks: int, parallel: int, folder: Path) -> dict[str, Any]:
    """Run a plan of so many tasks and return what was measured."""
    plan = make_plan(tasks)
    store = SqlRunStore(f"sqlite:///{folder}/runs.db")
    engine = NothingEngine()
    executor = Executor(
        store=store,
        engines={"nothing": engine},
        spec_builder=make_spec,
        max_parallel=parallel,
        state_dir=folder,
    )
    begun = time.perf_counter()
    backfill_id = executor.start(plan)
    started, started_cpu = time.perf_counter(), time.process_time()
    state = executor.drive(backfill_id)
    ended, ended_cpu = time.perf_counter(), time.process_time()
    assert state is BackfillState.SUCCEEDED, state
    assert len(store.attempts(backfill_id)) == tasks
    store.close()
    # A task ends as it is given, so its slot is free from then until `parallel` tasks later.
    waits = sorted(
        later - earlier
        for earlier, later in zip(engine.begun, engine.begun[parallel:], strict=False)
    )
    return {
        "tasks": tasks,
        "parallel": parallel,
        "start_s": round(started - begun, 2),
        "drive_s": round(ended - started, 2),
        "tasks_per_s": round(tasks / (ended - started)),
        "cpu_us_per_task": round((ended_cpu - started_cpu) / tasks * 1_000_000),
        "idle_ms_median": round(statistics.median(waits) * 1000, 2),
        "idle_ms_p99": round(waits[int(len(waits) * 0.99)] * 1000, 2),
    }


def print_line(found: dict[str, Any]) -> None:
    """Print what was measured before clearing up, which takes longer than one likes to wait."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure each size and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--parallel", type=int, default=64)
    parser.add_argument("--state-dir", type=Path, help="default: a temporary folder")
    options = parser.parse_args()
    for tasks in options.tasks:
        with tempfile.TemporaryDirectory(dir=options.state_dir) as folder:
            print_line(measure(tasks, options.parallel, Path(folder)))


if __name__ == "__main__":
    main()
