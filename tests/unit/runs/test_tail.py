"""Keys that became complete while a backfill ran are planned again before it ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.model import BackfillState, JobRef, RunState
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import Request
from lineage_backfill.ports import Reporter, Settings, Submission
from lineage_backfill.runs.context import ExecutionContext
from lineage_backfill.runs.drive.executor import Executor
from lineage_backfill.runs.tail import same_roots, tail_of
from lineage_backfill.runs.watching import follow
from lineage_backfill.store.sql import SqlRunStore
from tests.tables import TableEngine, Tables
from tests.unit.planning.world import NOW, declarations, lineage, plan, request, runs_of, summary

EDGES = "raw > clean > days\ndays > rolling > windows\nwindows > weekly > weeks"
TOML = """
    [[dataset]]
    name = "weeks"
    grain = "week"
    start = "2024-W12"
    [[dataset]]
    name = "*"
    grain = "day"
    start = "2024-03-20"
    [[job]]
    name = "clean"
    engine = "local"
    batch = "range"
    [[job]]
    name = "rolling"
    engine = "local"
    batch = "range"
    [[job.reads]]
    dataset = "days"
    mapping = "window"
    before = 6
    [[job]]
    name = "weekly"
    engine = "local"
"""
LINEAGE, DECLARED = lineage(EDGES), declarations(TOML)


def later(days: int) -> datetime:
    return NOW + timedelta(days=days)


def tail(made: Plan, days: int, *earlier: Plan) -> Plan | None:
    then = Resolver(LINEAGE, DECLARED, now=datetime.fromisoformat(made.now))
    now = later(days)
    fresh = plan(same_roots(made, then), LINEAGE, DECLARED, now=now)
    return tail_of([made, *earlier], fresh, Resolver(LINEAGE, DECLARED, now=now))


@pytest.mark.parametrize(
    ("sentence", "asked", "days", "expected"),
    [
        ("nothing has become complete", request({"raw": "2024-03-29"}), 0, None),
        (
            "two days more read the repaired one",
            request({"raw": "2024-03-29"}),
            2,
            {"rolling": "2024-04-01..2024-04-02"},
        ),
        (
            "a week that was not complete, too",
            request({"raw": "2024-03-29"}),
            7,
            {"rolling": "2024-04-01..2024-04-04", "weekly": "2024-W14"},
        ),
        ("what reads it no more does not count", request({"raw": "2024-03-24"}), 9, None),
        (
            "an open range ends where it ended then",
            request({"raw": "2024-03-31.."}),
            1,
            {"rolling": "2024-04-01"},
        ),
        (
            "so do keys of a job that was asked for",
            request(jobs={"clean": "2024-03-31.."}),
            1,
            {"rolling": "2024-04-01"},
        ),
        (
            "jobs that were left out stay out",
            request({"raw": "2024-03-29"}, exclude=("rolling",)),
            2,
            None,
        ),
    ],
)
def test_what_has_become_complete(
    sentence: str, asked: Request, days: int, expected: dict[str, str] | None
) -> None:
    found = tail(plan(asked, LINEAGE, DECLARED), days)
    assert (found and summary(found)) == expected, sentence


def test_runs_hold_new_keys_only_and_wait_for_each_other() -> None:
    made = plan(request({"raw": "2024-03-29"}), LINEAGE, DECLARED)
    found = tail(made, 7)
    assert found is not None
    (rolling,), (weekly,) = runs_of(found, "rolling"), runs_of(found, "weekly")
    assert rolling.partitions == ("2024-04-01..2024-04-04",)
    assert rolling.reads[0].keys == ("2024-03-26..2024-04-04",)
    assert rolling.writes[0].keys == ("2024-04-01..2024-04-04",)
    assert weekly.upstream == (rolling.id,)
    assert rolling.id not in {run.id for run in made.runs or ()}
    assert found.totals == {"jobs": 2, "runs": 2, "partitions": 5}
    assert tail(made, 7, found) is None


class Hands:
    """A clock that is moved on by hand."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


class Bench:
    """A backfill on tables in memory, whose clock goes on while it runs."""

    def __init__(self, folder: Path, store: SqlRunStore) -> None:
        self.clock = Hands()
        self.store = store
        self.folder = folder
        resolver = Resolver(LINEAGE, DECLARED, now=later(30))
        functions: dict[str, Callable[..., Any]] = {
            name: lambda held: sorted(map(str, held.values()))
            for name in ("clean", "rolling", "weekly")
        }
        self.engine = TableEngine(Tables(resolver, functions))
        self.made = plan(request({"raw": "2024-03-29"}), LINEAGE, DECLARED)

    def executor(self, reporter: Reporter | None = None) -> Executor:
        backfills = self.store.backfills()
        plans = [self.made]
        if backfills:
            from lineage_backfill.plans.document import plan_from_dict

            plans += map(plan_from_dict, self.store.tails(backfills[0].id))
        context = ExecutionContext(
            LINEAGE,
            DECLARED,
            plans,
            store=self.store,
            functions={},
            root=self.folder,
            is_ours=lambda _: True,
            logs=lambda _resolver, _datasets: {},
        )
        return Executor(
            store=self.store,
            engines={"local": self.engine},
            spec_builder=self.engine.spec,
            state_dir=self.folder,
            clock=self.clock,
            cutoff=context.cutoff,
            tail=context.tail,
            reporter=reporter or Reporter(),
        )

    def passes(self, days: int, *, during: str) -> None:
        """Let so many days pass while that job runs."""

        def before_run(ref: JobRef, _keys: list[str]) -> None:
            if ref.name == during:
                self.clock.time = later(days)

        self.engine.before_run = before_run

    @property
    def ran(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, key in sorted(self.engine.ran):
            found.setdefault(name, []).append(key)
        return found


@pytest.fixture
def bench(tmp_path: Path, new_store: Callable[[], SqlRunStore]) -> Bench:
    return Bench(tmp_path, new_store())


class Told(Reporter):
    def __init__(self) -> None:
        self.extended: list[Plan] = []
        self.finished: list[str] = []

    def backfill_extended(self, made: Plan) -> None:
        self.extended.append(made)

    def run_finished(self, run: Any, state: RunState, detail: str) -> None:
        self.finished.append(run.job.name)


def test_the_tail_is_run_before_the_end(bench: Bench) -> None:
    bench.passes(2, during="rolling")
    told = Told()
    executor = bench.executor(told)
    backfill_id = executor.start(bench.made)
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    assert bench.ran["rolling"] == [f"2024-03-{day}" for day in (29, 30, 31)] + [
        "2024-04-01",
        "2024-04-02",
    ]
    assert [summary(one) for one in told.extended] == [{"rolling": "2024-04-01..2024-04-02"}]
    runs = bench.store.runs(backfill_id)
    assert [run.job.name for run in runs] == ["clean", "rolling", "weekly", "rolling"]
    assert bench.store.backfill(backfill_id).left == ()
    bench.engine.ran.clear()
    again = bench.executor()
    assert again.resume(backfill_id) is BackfillState.SUCCEEDED
    assert bench.ran == {}


def test_without_a_tail_it_is_listed(bench: Bench) -> None:
    bench.passes(2, during="rolling")
    executor = bench.executor()
    backfill_id = executor.start(bench.made, Submission(settings=Settings(tail=False)))
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    (left,) = bench.store.backfill(backfill_id).left
    assert left == {
        "job": {"namespace": "w", "name": "rolling"},
        "partitions": ["2024-04-01..2024-04-02"],
        "count": 2,
    }


def test_a_plan_as_of_a_named_instant_has_no_tail(bench: Bench) -> None:
    bench.passes(2, during="rolling")
    made = plan(request({"raw": "2024-03-29"}, as_of=True), LINEAGE, DECLARED)
    executor = bench.executor()
    backfill_id = executor.start(made)
    assert executor.drive(backfill_id) is BackfillState.SUCCEEDED
    assert len(bench.store.runs(backfill_id)) == len(made.runs or ())


def test_a_tail_that_was_interrupted_is_resumed(bench: Bench) -> None:
    bench.passes(2, during="rolling")
    executor = bench.executor()
    backfill_id = executor.start(bench.made)

    class Stops(Reporter):
        def backfill_extended(self, made: Plan) -> None:
            executor.stop()

    executor.reporter = Stops()
    assert executor.drive(backfill_id) is BackfillState.INTERRUPTED
    assert "2024-04-01" not in bench.ran["rolling"]
    told = Told()
    follow(bench.store, backfill_id, told, now=lambda: NOW, wait=lambda: False)
    assert told.finished == []
    assert bench.executor().resume(backfill_id) is BackfillState.SUCCEEDED
    assert "2024-04-02" in bench.ran["rolling"]


def test_after_a_failure_there_is_no_tail_until_it_is_mended(bench: Bench) -> None:
    from tests.fakes import failed

    bench.passes(2, during="rolling")
    (weekly,) = runs_of(bench.made, "weekly")
    bench.engine.outcomes = {(weekly.id, 1): failed("no such column")}
    executor = bench.executor()
    backfill_id = executor.start(bench.made)
    assert executor.drive(backfill_id) is BackfillState.FAILED
    assert len(bench.store.runs(backfill_id)) == 3
    assert bench.executor().retry(backfill_id) is BackfillState.SUCCEEDED
    assert len(bench.store.runs(backfill_id)) == 4


def test_whoever_watches_sees_the_tail(bench: Bench) -> None:
    bench.passes(2, during="rolling")
    executor = bench.executor()
    backfill_id = executor.start(bench.made)
    told = Told()
    driven = False

    def wait() -> bool:
        nonlocal driven
        if not driven:
            driven = True
            executor.drive(backfill_id)
        return True

    state = follow(bench.store, backfill_id, told, now=lambda: NOW, wait=wait)
    assert state is BackfillState.SUCCEEDED
    assert [summary(one) for one in told.extended] == [{"rolling": "2024-04-01..2024-04-02"}]
    assert told.finished == ["clean", "rolling", "weekly", "rolling"]


def test_the_world_is_as_these_tests_say() -> None:
    made = plan(request({"raw": "2024-03-29"}), LINEAGE, DECLARED)
    assert summary(made) == {
        "clean": "2024-03-29",
        "rolling": "2024-03-29..2024-03-31",
        "weekly": "2024-W13",
    }
