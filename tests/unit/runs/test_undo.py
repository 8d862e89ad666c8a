"""A backfill is taken back by the same loop: newest first, resumable, refused where it must be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import ConflictError, UsageError
from lineage_backfill.model import BackfillState, DatasetRef, RunState
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.document import plan_from_dict
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.ports import (
    AttemptRecord,
    AttemptState,
    Outcome,
    RunRecord,
    RunStore,
    Submission,
)
from lineage_backfill.runs.drive.executor import Executor
from lineage_backfill.runs.undo import UndoSpecs, undo_plan
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from tests.fakes import NOW, FakeEngine, failed, spec_of
from tests.unit.planning.world import declarations, job, lineage, plan, request

EDGES = "raw > clean > days\ndays > rolling > windows"
TOML = """
    [[dataset]]
    name = "*"
    grain = "day"
    start = "2024-03-20"
    [[job]]
    name = "rolling"
    engine = "fake"
    [[job.reads]]
    dataset = "days"
    mapping = "window"
    before = 1
    [[job]]
    name = "*"
    engine = "fake"
"""
DECLARED = declarations(TOML.replace('"fake"', '"local"'))
LINEAGE = lineage(EDGES)
CATALOG = Resolver(LINEAGE, DECLARED, now=NOW)
PLAN = plan(request({"raw": "2024-03-28..2024-03-29"}), LINEAGE, DECLARED, now=NOW)


class UndoEngine(FakeEngine):
    """Writes a version for each run, and takes back what it is told to."""

    can_undo = True

    def __init__(self, outcomes: Any = None) -> None:
        super().__init__(outcomes)
        self.version = 0
        self.undone: list[list[str]] = []
        self.recorded: list[dict[str, Any]] = []

    def end(self, token: str, outcome: Outcome | None = None) -> None:
        super().end(token, outcome or self.outcomes.get(self.known[token]) or self.made[token])

    def submit(self, spec_path: Path, token: str) -> str:
        spec = json.loads(spec_path.read_text())
        self.version += 1
        if "undo" in spec:
            self.undone.append(spec["undo"])
            self.recorded += spec["recorded"]
        outputs = [
            {"dataset": one["dataset"], "version": self.version, "partitions": []}
            for one in spec["outputs"]
        ]
        result = {"token": token, "inputs": [], "outputs": outputs}
        self.made = {token: Outcome(state=AttemptState.SUCCEEDED, result=result)}
        return super().submit(spec_path, token)


class Bench:
    def __init__(self, store: RunStore, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.engine = UndoEngine()

    def executor(self, undo_of: str | None = None, engine: FakeEngine | None = None) -> Executor:
        specs = UndoSpecs(spec_of, self.store.attempts(undo_of)) if undo_of else spec_of
        return Executor(
            store=self.store,
            engines={"local": engine or self.engine},
            spec_builder=specs,
            state_dir=self.folder,
        )

    def backfill(self) -> str:
        executor = self.executor()
        backfill_id = executor.start(PLAN)
        executor.drive(backfill_id)
        return backfill_id

    def undo_plan(self, backfill_id: str) -> Plan:
        plans = [plan_from_dict(self.store.plan(backfill_id))]
        records, attempts = self.store.runs(backfill_id), self.store.attempts(backfill_id)
        return undo_plan(plans, records, attempts, CATALOG)

    def undo(self, backfill_id: str) -> tuple[str, BackfillState]:
        executor = self.executor(undo_of=backfill_id)
        undo_id = executor.start(self.undo_plan(backfill_id), Submission(undo_of=backfill_id))
        return undo_id, executor.drive(undo_id)


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    store = SqlRunStore(IN_MEMORY)
    yield Bench(store, tmp_path)
    store.close()


def test_what_was_written_last_is_put_back_first(bench: Bench) -> None:
    backfill_id = bench.backfill()
    tokens = [one.token for one in bench.store.attempts(backfill_id)]
    by_version = sorted(
        bench.store.attempts(backfill_id),
        key=lambda one: -(one.result or {})["outputs"][0]["version"],
    )
    undo_id, state = bench.undo(backfill_id)
    assert state is BackfillState.SUCCEEDED
    assert sorted(token for undone in bench.engine.undone for token in undone) == sorted(tokens)
    # The specs hold what the store knows of them, for tables whose logs no longer go back so far.
    known = {one["token"]: [*one["versions"].values()] for one in bench.engine.recorded}
    assert known == {one.token: [(one.result or {})["outputs"][0]["version"]] for one in by_version}
    place = {undone[0]: number for number, undone in enumerate(bench.engine.undone)}
    runs = {run.id: run for run in PLAN.runs or ()}
    token_of = {one.run_id: one.token for one in by_version}
    for run in runs.values():
        for up in run.upstream:
            assert place[token_of[run.id]] < place[token_of[up]]
    for name in ("days", "windows"):
        written = [one for one in by_version if runs[one.run_id].writes[0].dataset.name == name]
        places = [place[one.token] for one in written]
        assert places == sorted(places)
    undo, done = bench.store.backfill(undo_id), bench.store.backfill(backfill_id)
    assert (undo.undo_of, done.undone_by) == (backfill_id, undo_id)


def test_an_undone_backfill_is_not_gone_on_with_and_not_undone_again(bench: Bench) -> None:
    backfill_id = bench.backfill()
    undo_id, _ = bench.undo(backfill_id)
    with pytest.raises(ConflictError, match=f"is undone by {undo_id}"):
        bench.executor().resume(backfill_id)
    with pytest.raises(ConflictError, match=f"is undone by {undo_id}"):
        bench.undo(backfill_id)
    assert len(bench.store.backfills()) == 2


def test_a_deleted_backfill_is_not_gone_on_with_and_can_still_be_undone(bench: Bench) -> None:
    backfill_id = bench.backfill()
    bench.store.delete(backfill_id, now=NOW)
    for verb in (bench.executor().resume, bench.executor().retry, bench.executor().cancel):
        with pytest.raises(UsageError, match="is deleted"):
            verb(backfill_id)
    _, state = bench.undo(backfill_id)
    assert state is BackfillState.SUCCEEDED
    assert len(bench.engine.undone) > 0


@pytest.mark.parametrize("deleted", [False, True])
def test_an_undo_that_was_refused_is_gone_on_with(bench: Bench, deleted: bool) -> None:
    backfill_id = bench.backfill()
    made = bench.undo_plan(backfill_id)
    runs = made.runs or ()
    first = next(run for run in runs if not run.upstream)
    bench.engine.outcomes = {(first.id, 1): failed("somebody else changed it since")}
    undo_id, state = bench.undo(backfill_id)
    assert state is BackfillState.FAILED
    states = {run.run_id: run.state for run in bench.store.runs(undo_id)}
    assert states[first.id] is RunState.FAILED
    assert RunState.BLOCKED in states.values()
    bench.engine.outcomes = {}
    if deleted:
        bench.store.delete(undo_id, now=NOW)
    assert bench.executor(undo_of=backfill_id).retry(undo_id) is BackfillState.SUCCEEDED
    assert len(bench.engine.undone) == len(runs) + 1


def test_a_deleted_undo_that_has_not_begun_is_not_gone_on_with(bench: Bench) -> None:
    backfill_id = bench.backfill()
    undo = Submission(undo_of=backfill_id)
    undo_id = bench.executor(undo_of=backfill_id).start(bench.undo_plan(backfill_id), undo)
    bench.store.delete(undo_id, now=NOW)
    with pytest.raises(UsageError, match="is deleted"):
        bench.executor(undo_of=backfill_id).resume(undo_id)


def test_a_driven_backfill_is_not_undone(bench: Bench) -> None:
    from datetime import UTC, datetime, timedelta

    backfill_id = bench.backfill()
    bench.store.acquire(backfill_id, "me", now=datetime.now(UTC), ttl=timedelta(seconds=60))
    with pytest.raises(ConflictError, match="is driven by me"):
        bench.undo(backfill_id)
    assert len(bench.store.backfills()) == 1


def test_an_engine_that_would_run_the_job_again_is_refused(bench: Bench) -> None:
    backfill_id = bench.backfill()
    executor = bench.executor(undo_of=backfill_id, engine=FakeEngine())
    with pytest.raises(UsageError, match="cannot be undone: engine 'local' would run it again"):
        executor.start(bench.undo_plan(backfill_id), Submission(undo_of=backfill_id))
    assert bench.store.backfill(backfill_id).undone_by is None


def record(run: PlannedRun, **rest: Any) -> RunRecord:
    return RunRecord.of(run, **{"state": RunState.SUCCEEDED, "attempt": 1, **rest})


def attempt(run: PlannedRun, number: int, state: AttemptState, **result: Any) -> AttemptRecord:
    return AttemptRecord(
        run_id=run.id,
        attempt=number,
        token=f"{run.id}-{number}",
        state=state,
        submitted_at=NOW,
        result=result or None,
    )


def test_what_may_have_written_is_among_it_and_what_has_not_is_not() -> None:
    clean, *_, last = PLAN.runs or ()
    dataset = {"namespace": "w", "name": "days"}
    attempts = [
        attempt(clean, 1, AttemptState.LOST),
        attempt(clean, 2, AttemptState.SUCCEEDED, outputs=[{"dataset": dataset, "version": 3}]),
        attempt(last, 1, AttemptState.FAILED, outputs=[]),
    ]
    made = undo_plan([PLAN], [record(clean, attempt=2), record(last)], attempts, CATALOG)
    (run,) = made.runs or ()
    assert run.id == f"u-{clean.id}"
    spec = UndoSpecs(spec_of, attempts)(run, 1, "t", Path("result.json"))
    assert spec["undo"] == [f"{clean.id}-2", f"{clean.id}-1"]
    assert (spec["inputs"], spec["lineage"]["outbox"]) == ([], None)


def test_keys_that_were_cut_off_are_not_put_back() -> None:
    made = plan(
        request({"raw": "2024-03-28..2024-03-29"}),
        LINEAGE,
        declarations(TOML.replace('"fake"', '"local"\nbatch = "range"')),
        now=NOW,
    )
    clean = (made.runs or ())[0]
    assert clean.job == job("clean")
    attempts = [attempt(clean, 1, AttemptState.SUCCEEDED, outputs=[{"dataset": {}, "version": 3}])]
    done = record(clean, cut_off=("2024-03-28",))
    (run,) = undo_plan([made], [done], attempts, CATALOG).runs or ()
    assert run.partitions == ("2024-03-29",)
    assert [(part.dataset, part.keys) for part in run.writes] == [
        (DatasetRef("w", "days"), ("2024-03-29",))
    ]
