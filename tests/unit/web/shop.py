"""A project with backfills in its run store, as executors leave them, to be shown on pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lineage_backfill import plan_to_dict
from lineage_backfill.model import BackfillState, DatasetRef, RunState
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.ports import AttemptState, BackfillRecord, Lease, Move
from lineage_backfill.project import Project
from lineage_backfill.runs.drive.owner import owner
from lineage_backfill.runs.drive.run_loop import spec_file
from lineage_backfill.store.sql import SqlRunStore
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace
from tests.events import event, write_events

NOW = datetime(2024, 1, 5, tzinfo=UTC)
#: Lineage is not ours: this is how somebody may call a job.
HOSTILE = "<script>alert('x')</script>\u202edlog"
PROJECT = """
[project]
namespace = "shop"
[lineage]
events = ["events.ndjson"]
[engines.here]
kind = "command"
argv = ["true"]
[target.prod.limits]
max_parallel = 2
[[dataset]]
name = "feed"
grain = "hour"
start = "2024-01-01T00"
columns = { ds = "%Y-%m-%dT%H" }
location = "data/feed"
[[dataset]]
name = "clean*"
grain = "hour"
start = "2024-01-01T00"
columns = { ds = "%Y-%m-%dT%H" }
location = "data/clean"
[[dataset]]
name = "daily*"
grain = "day"
start = "2024-01-01"
columns = { ds = "%Y-%m-%d" }
location = "data/daily"
[[job]]
name = "*"
engine = "here"
entrypoint = "any:thing"
"""


@dataclass
class Shop:
    """The project, and the store that others write."""

    folder: Path
    project: Project
    leases: dict[str, Lease] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, jobs: Sequence[tuple[str, str, str]] = (), *, more: str = "") -> Shop:
        """Build it; each job is given with what it reads and writes; `more` is of its file."""
        (folder / "lineage-backfill.toml").write_text(PROJECT + more)
        every = jobs or (("clean", "feed", "clean"), (HOSTILE, "clean", "daily"))
        every = (*every, ("blind", "clean", "unknown_table"))
        write_events(
            folder / "events.ndjson", *(event(one, [reads], [to]) for one, reads, to in every)
        )
        return cls(folder, open_project(folder / "lineage-backfill.toml"))

    def store(self) -> closing[SqlRunStore]:
        return closing(SqlRunStore(self.project.store_url))

    def backfill(
        self, backfill_id: str = "b-1", first: str = "2024-01-02T00", **values: Any
    ) -> list[PlannedRun]:
        """Write a backfill of the hours from the first one to 2024-01-02T23, all runs pending."""
        keys = (f"{first}..2024-01-02T23",)
        asked = Request(changed=(ChangedDataset(dataset=DatasetRef("shop", "feed"), keys=keys),))
        plan = Planning(Workspace(self.project, as_of=NOW)).plan(asked)
        submitted = NOW + timedelta(minutes=int(backfill_id.removeprefix("b-")))
        record = BackfillRecord(
            id=backfill_id,
            plan_id=plan.id,
            submitted_at=submitted,
            updated_at=submitted,
            started_at=submitted,
            **{"state": BackfillState.RUNNING, **values},
        )
        with self.store() as store:
            store.create(record, plan_to_dict(plan), plan.runs or ())
        return list(plan.runs or ())

    def drive(
        self,
        runs: Sequence[PlannedRun],
        state: RunState,
        *,
        backfill_id: str = "b-1",
        took: float = 0,
        **said: Any,
    ) -> None:
        """Let runs, not tried before, enter a state; their attempts leave a spec and a log."""
        with self.store() as store:
            lease = self._lease(store, backfill_id)
            for run in runs:
                self._leave_files(backfill_id, run)
                for number, move in enumerate(_moves(run, state, **said)):
                    now = NOW + number * timedelta(seconds=took)
                    store.record(lease, [move], now=now)

    def hold(self, backfill_id: str) -> None:
        """Drive a backfill, so that no other process does."""
        with self.store() as store:
            self._lease(store, backfill_id)

    def leave(self, backfill_id: str = "b-1") -> None:
        """Drive a backfill no more."""
        with self.store() as store:
            store.release(self.leases.pop(backfill_id))

    def end(self, state: BackfillState, backfill_id: str = "b-1") -> None:
        with self.store() as store:
            lease = self._lease(store, backfill_id)
            store.enter(lease, state, now=NOW + timedelta(hours=1))
            store.release(lease)

    def _lease(self, store: SqlRunStore, backfill_id: str) -> Lease:
        if backfill_id not in self.leases:
            now, ttl = datetime.now(UTC), timedelta(hours=1)
            self.leases[backfill_id] = store.acquire(backfill_id, owner(), now=now, ttl=ttl)
        return self.leases[backfill_id]

    def spec(self, run: PlannedRun, backfill_id: str = "b-1") -> Path:
        folder = self.folder / ".lineage-backfill" / "backfills" / backfill_id
        return spec_file(folder, run.id, 1)

    def log(self, run: PlannedRun) -> Path:
        spec = self.spec(run)
        return spec.with_name(spec.name.removesuffix("spec.json") + "log.txt")

    def _leave_files(self, backfill_id: str, run: PlannedRun) -> None:
        spec = self.spec(run, backfill_id)
        spec.parent.mkdir(parents=True, exist_ok=True)
        spec.write_text(json.dumps({"lineage": {"url": "http://me:secret@marquez/"}}))
        spec.with_name(spec.name.removesuffix("spec.json") + "log.txt").write_text(
            f"line one of {run.partitions[0]}\n<b>the \x1b[1mend</b>\n"
        )


def _moves(run: PlannedRun, state: RunState, **said: Any) -> list[Move]:
    """Return the moves by which a run that was not tried before comes to a state."""
    token = f"t-{run.id}"
    moves = [Move(run_id=run.id, state=RunState.SUBMITTED, attempt=1, token=token)]
    if state is RunState.SUCCEEDED:
        outputs = [
            {
                "dataset": {"namespace": part.dataset.namespace, "name": part.dataset.name},
                "version": 1,
                "partitions": [
                    {"key": key, "rows_before": 1, "rows": 2} for key in part.keys or ()
                ],
            }
            for part in run.writes
        ]
        said["result"] = {"outputs": outputs}
    if state in (RunState.BLOCKED, RunState.SKIPPED):
        return [Move(run_id=run.id, state=state, **said)]
    ended = {RunState.SUCCEEDED: AttemptState.SUCCEEDED, RunState.FAILED: AttemptState.FAILED}
    attempt = ended.get(state, AttemptState.RUNNING)
    return [*moves, Move(run_id=run.id, state=state, attempt=1, attempt_state=attempt, **said)]
