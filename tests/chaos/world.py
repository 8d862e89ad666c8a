"""A small world to be disturbed: tables, a plan over them, and what must be true in the end.

Each table has a value for each day: one more than the sum of what its inputs have for that day. On
the process engine a partition is a file, on Spark it is one of a Delta table.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from lineage_backfill.model import ALLOWED_MOVES, BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.plans.plan import DatasetPartitions, Plan, PlannedRun
from lineage_backfill.ports import AttemptState, RunStore
from tests.fakes import NOW, plan_of

#: What each table is made from, in an order in which they can be made.
INPUTS: Mapping[str, tuple[str, ...]] = {
    "raw": (),
    "a": ("raw",),
    "b": ("a",),
    "c": ("a", "raw"),
    "d": ("b", "c"),
    "e": ("raw",),
}
#: Held by every table, and planned for none but `raw`.
OUTSIDE = "2024-03-31"

#: The values by table and day.
Contents = Mapping[str, Mapping[str, int]]

FAKE_WORKER = Path(__file__).parents[1] / "fake_worker.py"


def expected(days: Sequence[str]) -> Contents:
    """What the tables hold after a backfill that nothing disturbed."""
    tables: dict[str, dict[str, int]] = {"raw": {day: n for n, day in enumerate([*days, OUTSIDE])}}
    for name, inputs in INPUTS.items():
        if inputs:
            tables[name] = {day: 1 + sum(tables[one][day] for one in inputs) for day in days}
            tables[name][OUTSIDE] = -1
    return tables


def plan(days: Sequence[str], per_key: Sequence[str]) -> Plan:
    """A plan that makes all tables from `raw`: key by key, or all keys in one run."""
    runs: list[PlannedRun] = []
    writers: dict[str, dict[str, str]] = defaultdict(dict)
    for name, inputs in INPUTS.items():
        batches = [[day] for day in days] if name in per_key else [list(days)]
        for number, keys in enumerate(batches if inputs else ()):
            upstream = {writers[one][key]: None for one in inputs for key in keys if writers[one]}
            run = PlannedRun(
                id=f"{name}{number}",
                job=JobRef("n", name),
                partitions=tuple(keys),
                count=len(keys),
                wave=1 + max((one.wave for one in runs if one.id in upstream), default=0),
                upstream=tuple(upstream),
                engine="local",
                reads=tuple(_part(one, keys) for one in inputs),
                writes=(_part(name, keys),),
            )
            runs.append(run)
            writers[name] |= dict.fromkeys(keys, run.id)
    return plan_of(*runs)


def _part(name: str, keys: Sequence[str]) -> DatasetPartitions:
    return DatasetPartitions(dataset=DatasetRef("n", name), keys=tuple(keys))


@dataclass(frozen=True)
class Specs:
    """Makes run specs over the tables in a folder."""

    folder: Path
    tables: Tables
    seconds: float = 0.0

    def __call__(
        self, run: PlannedRun, attempt: int, token: str, result_path: Path
    ) -> dict[str, Any]:
        """The run spec of an attempt."""
        return {
            "schema_version": 1,
            "backfill_id": "",
            "run_id": run.id,
            "attempt": attempt,
            "token": token,
            "job": {
                "namespace": "n",
                "name": run.job.name,
                "entrypoint": self.tables.entrypoint.format(job=run.job.name),
            },
            "partitions": list(run.partitions),
            "keys": [{"key": key} for key in run.partitions],
            "outputs": [
                self._table(write) | {"scope": self._values(write)} for write in run.writes
            ],
            "inputs": [
                self._table(read) | {"partitions": self._values(read), "version": None}
                for read in run.reads
            ],
            "parameters": {"seconds": self.seconds},
            "result_path": str(result_path),
        }

    def _table(self, part: DatasetPartitions) -> dict[str, Any]:
        return {
            "dataset": {"namespace": "n", "name": part.dataset.name},
            "format": "delta",
            "location": str(self.folder / "tables" / part.dataset.name),
            "columns": ["day"],
        }

    def _values(self, part: DatasetPartitions) -> list[dict[str, Any]]:
        return [{"key": key, "values": {"day": key}} for key in part.keys or ()]


class Tables(Protocol):
    """The tables of one world, as one engine keeps them."""

    @property
    def entrypoint(self) -> str:
        """Where a job is found, by its name."""

    @property
    def worker_steps(self) -> Sequence[str]:
        """Where workers can be killed."""

    def make(self) -> None:
        """Make them as they are before a backfill."""

    def settings(self) -> dict[str, Any]:
        """Return the settings of the engine whose workers write them."""

    def read(self) -> Contents:
        """Return what they hold."""

    def stamps(self) -> Mapping[str, object]:
        """Return what changes when a partition outside every plan is written, even the same."""

    def journal(self) -> list[tuple[str, str]]:
        """Return run and token of each write, in no order."""


@dataclass(frozen=True)
class FileTables:
    """Each partition is a file; a worker or command without Spark replaces them one by one."""

    folder: Path
    days: Sequence[str]
    entrypoint: str = "fake:succeed"
    engine: str = "local"
    worker_steps: Sequence[str] = (
        "before start",
        "before commit",
        "in commit",
        "before result",
        "before reply",
    )

    def make(self) -> None:
        """Write `raw`, and the partition of each table that is outside the plan."""
        for name, held in expected(self.days).items():
            table = self.folder / "tables" / name
            table.mkdir(parents=True)
            for day, value in held.items():
                if name == "raw" or day == OUTSIDE:
                    (table / day).write_text(str(value))

    def settings(self) -> dict[str, Any]:
        """Two workers, started without what they do not need."""
        if self.engine == "command":
            command = FAKE_WORKER.with_name("fake_command.py")
            return {"kind": "command", "argv": [sys.executable, str(command), "{spec}"]}
        return {"command": (sys.executable, "-S", str(FAKE_WORKER)), "workers": 2}

    def read(self) -> Contents:
        """Read all files; what a dead writer left aside is no partition."""
        return {
            table.name: {part.name: int(part.read_text()) for part in table.glob("[!.]*")}
            for table in (self.folder / "tables").iterdir()
        }

    def stamps(self) -> Mapping[str, object]:
        """Return inode and time of the files."""
        parts = [*self.folder.glob(f"tables/*/{OUTSIDE}"), *self.folder.glob("tables/raw/[!.]*")]
        stats = {str(part): part.stat() for part in parts}
        return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}

    def journal(self) -> list[tuple[str, str]]:
        """Read what the workers have noted."""
        journal = self.folder / "journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [(line.split()[0], line.split()[1]) for line in lines]


def check_store(store: RunStore, backfill_id: str, plan: Plan) -> None:
    """Every run has succeeded by its last attempt, and the store has no loose ends."""
    assert store.backfill(backfill_id).state is BackfillState.SUCCEEDED
    runs = store.runs(backfill_id)
    assert [run.run_id for run in runs] == [run.id for run in plan.runs or ()]
    attempts = {(one.run_id, one.attempt): one for one in store.attempts(backfill_id)}
    assert len({one.token for one in attempts.values()}) == len(attempts)
    assert all(one.state.is_final for one in attempts.values())
    for run in runs:
        assert run.state is RunState.SUCCEEDED
        numbers = sorted(number for run_id, number in attempts if run_id == run.run_id)
        assert numbers == list(range(1, run.attempt + 1))
        states = [attempts[run.run_id, number].state for number in numbers]
        assert states[-1] is AttemptState.SUCCEEDED
        assert AttemptState.SUCCEEDED not in states[:-1]
    _check_events(store, backfill_id)
    _check_lease_and_locks(store, backfill_id, plan)


def _check_events(store: RunStore, backfill_id: str) -> None:
    """The events of each run are moves that it may make, from the first state to the last."""
    states = {run.run_id: RunState.PENDING for run in store.runs(backfill_id)}
    for event in store.events(backfill_id):
        if event.run_id is not None and event.kind in set(RunState):
            state = RunState(event.kind)
            assert state in ALLOWED_MOVES[states[event.run_id]]
            states[event.run_id] = state
    assert set(states.values()) == {RunState.SUCCEEDED}


def _check_lease_and_locks(store: RunStore, backfill_id: str, plan: Plan) -> None:
    """Nobody holds the backfill or one of its partitions any more."""
    record = replace(store.backfill(backfill_id), id="b-other")
    store.create(record, {}, plan.runs or ())
    for one in (backfill_id, "b-other"):
        lease = store.acquire(one, "a checker", now=NOW, ttl=timedelta(seconds=1))
        store.lock(lease, [write for run in plan.runs or () for write in run.writes])
        store.release(lease)
    store.delete("b-other", now=NOW)
