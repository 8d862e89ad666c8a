"""Plans and engines that tests make up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.errors import EngineError
from lineage_backfill.model import BackfillState, DatasetRef, JobRef
from lineage_backfill.plans.plan import DatasetPartitions, Listed, Plan, PlannedRun
from lineage_backfill.ports import (
    AttemptState,
    BackfillRecord,
    Engine,
    EngineRun,
    Origin,
    Outcome,
)

NOW = datetime(2024, 4, 1, tzinfo=UTC)


def log_of(handle: str) -> str:
    """Return the log of an attempt."""
    return AttemptFiles(Path(handle)).log()


def planned_run(
    run_id: str,
    *upstream: str,
    job: str | None = None,
    wave: int = 1,
    keys: Sequence[str] = ("2024-03-01",),
    engine: str | None = "fake",
) -> PlannedRun:
    """A run that writes a dataset with the name of its job."""
    name = job or run_id
    return PlannedRun(
        id=run_id,
        job=JobRef("n", name),
        partitions=tuple(keys),
        count=len(keys),
        wave=wave,
        upstream=upstream,
        engine=engine,
        reads=(),
        writes=(DatasetPartitions(dataset=DatasetRef("n", name), keys=tuple(keys)),),
    )


def plan_of(*runs: PlannedRun) -> Plan:
    """A plan of these runs and nothing else."""
    return Plan(
        now="2024-04-01T00:00:00Z",
        request={},
        changed=(),
        totals={"jobs": len({run.job for run in runs}), "runs": len(runs), "partitions": 0},
        details=Listed(
            jobs=(),
            runs=runs,
            lineage={"source": "events", "hash": "sha256:1", "taken_at": "2024-04-01T00:00:00Z"},
        ),
    )


def backfill_record(backfill_id: str = "b-1", **values: Any) -> BackfillRecord:
    """A backfill as `start` makes it."""
    given = {"plan_id": "sha256:0", "state": BackfillState.RUNNING, **values}
    return BackfillRecord(id=backfill_id, **{"submitted_at": NOW, "updated_at": NOW, **given})


def spec_of(run: PlannedRun, attempt: int, token: str, result_path: Path) -> dict[str, Any]:
    """A run spec with what the engines and the report look at."""
    return {
        "schema_version": 1,
        "run_id": run.id,
        "attempt": attempt,
        "token": token,
        "job": {"namespace": "n", "name": run.job.name, "entrypoint": "fake:succeed"},
        "partitions": list(run.partitions),
        "outputs": [
            {
                "dataset": {"namespace": write.dataset.namespace, "name": write.dataset.name},
                "scope": [{"key": key, "values": {}} for key in write.keys or ()],
            }
            for write in run.writes
        ],
        "inputs": [],
        "result_path": str(result_path),
    }


class FakeEngine(Engine):
    """Ends each attempt at once, as `outcomes` says for (run id, attempt); else it succeeds.

    With `holds`, attempts stay under way until `end` is called or they are cancelled. `runs` are
    what they run as, by run id; those that they have adopted are left running.
    """

    def __init__(
        self, outcomes: Mapping[tuple[str, int], Outcome] | None = None, *, holds: bool = False
    ) -> None:
        self.outcomes = dict(outcomes or {})
        self.holds = holds
        self.submitted: list[tuple[str, int]] = []
        self.ended: dict[str, Outcome] = {}
        self.known: dict[str, tuple[str, int]] = {}
        self.runs: dict[str, EngineRun | None] = {}
        self.left_running: list[str] = []
        self.opened = 0
        self.on_submit: Callable[[str], None] = lambda _run_id: None
        self.listener: Callable[[str], None] = lambda _handle: None
        self.arrived = threading.Condition()

    def open(self) -> None:
        self.opened += 1

    def listen(self, listener: Callable[[str], None]) -> None:
        self.listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        spec = json.loads(spec_path.read_text())
        run = (spec["run_id"], spec["attempt"])
        self.on_submit(spec["run_id"])
        with self.arrived:
            self.submitted.append(run)
            self.known[token] = run
            self.arrived.notify_all()
        if not self.holds:
            self.end(token)
        return token

    def end(self, token: str, outcome: Outcome | None = None) -> None:
        good = Outcome(state=AttemptState.SUCCEEDED, result={"token": token})
        self.ended[token] = outcome or self.outcomes.get(self.known[token], good)
        self.listener(token)

    def release(self) -> None:
        """Hold no more: what is under way ends, and so does what comes."""
        self.holds = False
        for token in list(self.known):
            if token not in self.ended:
                self.end(token)

    def wait_for(self, count: int) -> None:
        """Wait until that many attempts were submitted."""
        with self.arrived:
            if not self.arrived.wait_for(lambda: len(self.submitted) >= count, timeout=10):
                raise TimeoutError(f"only {self.submitted}")

    def find(self, spec_path: Path, token: str) -> str | None:
        return token if token in self.known else None

    def poll(self, handle: str) -> Outcome:
        return self.ended.get(handle, Outcome(state=AttemptState.RUNNING))

    def identify(self, handle: str) -> EngineRun | None:
        run, _ = self.known.get(handle, ("", 0))
        return self.runs.get(run, EngineRun(origin=Origin.CREATED))

    def cancel(self, handle: str) -> None:
        if handle in self.ended:
            return
        found = self.identify(handle)
        is_adopted = found is not None and found.origin is Origin.ADOPTED
        if is_adopted:
            self.left_running.append(handle)
        said = "left running" if is_adopted else "stopped"
        self.end(handle, Outcome(state=AttemptState.CANCELLED, error=said))

    def close(self) -> None:
        pass


class RefusingEngine(FakeEngine):
    """Takes no attempt at all."""

    def submit(self, spec_path: Path, token: str) -> str:
        raise EngineError("the queue is closed", hint="Open it.")


def failed(error: str = "boom", *, transient: bool = False) -> Outcome:
    """An outcome that is a failure."""
    return Outcome(state=AttemptState.FAILED, error=error, transient=transient)
