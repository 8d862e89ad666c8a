"""Runs that no real change reaches are cut off, by what their jobs have read before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from lineage_backfill.lineage.snapshot import LineageSnapshot, ObservedRun
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState, named
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Plan
from lineage_backfill.ports import BackfillRecord, RunStore, Settings, Submission, Trace
from lineage_backfill.runs.cutoff import Cutoff
from lineage_backfill.runs.drive.clock import SystemClock
from lineage_backfill.runs.drive.executor import Executor
from lineage_backfill.runs.observations import RecordedRuns
from lineage_backfill.staleness.record import Change, TableRecord
from lineage_backfill.staleness.staleness import find_stale
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from tests.fakes import failed
from tests.tables import Cell, TableEngine, Tables
from tests.unit.planning.world import NOW, dataset, declarations, lineage, plan, request

EDGES = """
    raw > clean > slices
    slices > daily > days
    days > rolling > windows
    days, totals > total > totals
    windows, days > summary > whole
    slices > corrected > late
    slices > merged > gathered
    gathered > last > ends
"""
TOML = """
    [[dataset]]
    name = "raw"
    every = "6h"
    start = "2024-03-28T00:00"
    [[dataset]]
    name = "slices"
    every = "6h"
    start = "2024-03-28T00:00"
    [[dataset]]
    name = "[dwtlge][aiote]*s"
    grain = "day"
    start = "2024-03-28"
    column = "ds"
    [[dataset]]
    name = "whole"
    grain = "none"
    [[dataset]]
    name = "late"
    grain = "day"
    start = "2024-03-28"
    [[dataset]]
    name = "gathered"
    grain = "day"
    start = "2024-03-28"
    [[dataset]]
    name = "ends"
    grain = "day"
    start = "2024-03-28"
    [[job]]
    name = "clean"
    engine = "local"
    batch = 3
    [[job]]
    name = "daily"
    engine = "local"
    batch = "range"
    [[job]]
    name = "rolling"
    engine = "local"
    [[job.reads]]
    dataset = "days"
    mapping = "window"
    before = 2
    [[job]]
    name = "total"
    engine = "local"
    [[job.reads]]
    dataset = "totals"
    mapping = "offset"
    by = -1
    [[job]]
    name = "corrected"
    engine = "local"
    batch = 2
    [[job.writes]]
    dataset = "late"
    lookback = 1
    [[job]]
    name = "merged"
    engine = "local"
    every = "6h"
    start = "2024-03-28T00:00"
    [[job.writes]]
    dataset = "gathered"
    mode = "merge"
    [[job]]
    name = "*"
    engine = "local"
"""
JOBS = ("clean", "daily", "rolling", "total", "summary", "corrected", "merged", "last")
SLICES = [f"2024-03-{day}T{hour:02}:00" for day in range(28, 32) for hour in range(0, 24, 6)]


def most(held: Mapping[Cell, Any]) -> int:
    """The greatest of what is read: a small change is lost in it."""
    return max((value for value in held.values() if isinstance(value, int)), default=0)


def total(held: Mapping[Cell, Any]) -> int:
    return min(9, sum(value for value in held.values() if isinstance(value, int)))


def last(held: Mapping[Cell, Any]) -> int:
    return max((max(parts.values(), default=0) for parts in held.values()), default=0)


FUNCTIONS = {
    "clean": lambda held: most(held) // 2,
    "daily": most,
    "rolling": most,
    "total": total,
    "summary": most,
    "corrected": most,
    "merged": most,
    "last": last,
}


class World:
    """Tables, the backfills that mend them, and who read what last."""

    def __init__(self, folder: Path, store: RunStore) -> None:
        self.declared = declarations(TOML)
        self.history: tuple[ObservedRun, ...] = ()
        self.records: dict[DatasetRef, TableRecord] = {}
        self.logs_read = 0
        self.resolver = Resolver(lineage(EDGES), self.declared, now=NOW)
        self.tables = Tables(self.resolver, FUNCTIONS, merged=("merged",))
        self.store = store
        self.folder = folder
        self.engine = TableEngine(self.tables)
        for cell in SLICES:
            self.tables.content[dataset("raw"), cell] = 4
        for name in JOBS:
            job = JobRef("w", name)
            calendar = self.resolver.job(job).calendar
            assert calendar is not None
            self.tables.run(job, render(calendar, calendar.existing))

    def calendar(self, name: str) -> Calendar:
        found = self.resolver.calendar(dataset(name))
        assert found is not None
        return found

    @property
    def snapshot(self) -> LineageSnapshot:
        return lineage(EDGES, history=self.history)

    def plan(self, *slices: str, **rest: Any) -> Plan:
        asked = request({"raw": ",".join(slices)} if slices else None, **rest)
        return plan(asked, self.snapshot, self.declared)

    def executor(self) -> Executor:
        def cutoff(made: Sequence[Plan], record: BackfillRecord) -> Cutoff:
            return Cutoff(
                made,
                self.resolver,
                self.recorded(record.id),
                logs=self.logs,
                backfill_id=record.id,
                parameters=record.parameters,
            )

        return Executor(
            store=self.store,
            engines={"local": self.engine},
            spec_builder=self.engine.spec,
            max_parallel=3,
            state_dir=self.folder,
            cutoff=cutoff,
        )

    def recorded(self, *ours: str) -> RecordedRuns:
        """Return the runs by store and lineage, for which these backfills are ours."""
        return RecordedRuns(self.resolver, self.history, self.store.traces, ours.__contains__)

    def logs(self, _datasets: Iterable[DatasetRef]) -> Mapping[DatasetRef, TableRecord]:
        self.logs_read += 1
        return self.records

    def change(self, **slices: int) -> None:
        for label, value in slices.items():
            self.tables.content[dataset("raw"), SLICES[int(label[1:])]] = value

    def backfill(
        self,
        made: Plan,
        *,
        stop_after: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> str:
        """Run a plan; stopped after so many submissions, it stays as it is."""
        executor = self.executor()
        submission = Submission(settings=Settings(**options), parameters=parameters or {})
        backfill_id = executor.start(made, submission)
        count = 0

        def submitted(_run: str) -> None:
            nonlocal count
            count += 1
            if stop_after is not None and count >= stop_after:
                executor.stop()

        self.engine.on_submit = submitted
        self.engine.ran.clear()
        state = executor.drive(backfill_id)
        errors = [run.error for run in self.store.runs(backfill_id)]
        assert stop_after is not None or state is BackfillState.SUCCEEDED, errors
        return backfill_id

    def ran(self, job: str) -> list[str]:
        return sorted(key for name, key in self.engine.ran if name == job)

    def assert_right(self, made: Plan) -> None:
        """Every planned key holds what a recomputation from the tables would give."""
        for job in made.jobs:
            facts = self.resolver.job(job.job)
            assert facts.calendar is not None
            for key in parse(facts.calendar, job.partitions).singles():
                for cell, value in self.tables.made(facts, key).items():
                    assert self.tables.content[cell] == value, (job.job.name, cell)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(SqlRunStore(IN_MEMORY)) as store:
        yield World(tmp_path, store)


def test_without_a_record_everything_runs(world: World) -> None:
    world.change(s5=9)
    made = world.plan(SLICES[5])
    world.backfill(made)
    assert world.ran("daily") == ["2024-03-29"]
    assert world.ran("rolling") == ["2024-03-29", "2024-03-30", "2024-03-31"]
    assert world.ran("total") == ["2024-03-29", "2024-03-30", "2024-03-31"]
    world.assert_right(made)


def test_what_no_real_change_reaches_is_cut_off(world: World) -> None:
    made = world.plan(SLICES[5])
    world.change(s5=9)
    world.backfill(made)
    backfill_id = world.backfill(made)
    assert dict(world.engine.ran) == {("clean", SLICES[5]): 1}
    world.assert_right(made)
    runs = {run.job.name: run for run in world.store.runs(backfill_id)}
    assert runs["clean"].state is RunState.SUCCEEDED
    assert {run.state for name, run in runs.items() if name != "clean"} == {RunState.SKIPPED}
    assert runs["daily"].cut_off == ("2024-03-29",)
    assert world.store.backfill(backfill_id).state is BackfillState.SUCCEEDED


def test_partitions_of_tables_read_whole_are_known_by_the_values_of_their_columns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = world.engine._parts

    def by_values(asked: Any) -> list[dict[str, Any]]:
        said = parts(asked)
        for part in said:
            if part["dataset"]["name"] == "days":
                part["partitions"] = [
                    {**one, "key": f"ds={one['key']}", "values": {"ds": one["key"]}}
                    for one in part["partitions"]
                ]
                strange = {"key": "ds=NULL", "values": {"ds": None}, "fingerprint": "x"}
                part["partitions"].append(strange)
        return said

    monkeypatch.setattr(world.engine, "_parts", by_values)
    made = world.plan(SLICES[5])
    world.change(s5=9)
    world.backfill(made)
    world.backfill(made)
    assert dict(world.engine.ran) == {("clean", SLICES[5]): 1}


@pytest.mark.parametrize(("kind", "ran"), [("integer", 1), ("string", 6)])
def test_numbers_in_tables_read_whole_are_known_without_the_zeros_before_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    new_store: Callable[[], SqlRunStore],
    kind: str,
    ran: int,
) -> None:
    """A declared `03` is the `3` of an INT column; of texts it is another one."""
    days = """
    [[dataset]]
    name = "days"
    grain = "day"
    start = "2024-03-28"
    columns = { y = "%Y", m = "%m", d = "%d" }
"""
    monkeypatch.setattr(f"{__name__}.TOML", TOML + days)
    world = World(tmp_path, new_store())
    parts = world.engine._parts

    def by_values(asked: Any) -> list[dict[str, Any]]:
        said = parts(asked)
        for part in said:
            if part["dataset"]["name"] == "days":
                for one in part["partitions"]:
                    day = zip("ymd", one["key"].split("-"), strict=True)
                    one["values"] = {name: str(int(text)) for name, text in day}
                part["types"] = dict.fromkeys("ymd", kind)
        return said

    monkeypatch.setattr(world.engine, "_parts", by_values)
    made = world.plan(SLICES[5])
    world.change(s5=9)
    world.backfill(made)
    world.backfill(made)
    assert len(world.engine.ran) == ran


def test_a_change_is_followed_as_far_as_it_goes(world: World) -> None:
    made = world.plan(*SLICES[4:9])
    world.backfill(made)
    world.change(s5=9, s6=9, s8=5)  # the latter is lost in what `clean` makes of it
    backfill_id = world.backfill(made)
    assert world.ran("clean") == SLICES[4:9]
    assert world.ran("daily") == ["2024-03-29"]
    assert world.ran("rolling") == ["2024-03-29", "2024-03-30", "2024-03-31"]
    world.assert_right(made)
    (daily,) = (run for run in world.store.runs(backfill_id) if run.job.name == "daily")
    assert (daily.state, daily.cut_off) == (RunState.SUCCEEDED, ("2024-03-30",))
    assert daily.partitions == ("2024-03-29..2024-03-30",)


def test_a_chain_ends_where_its_values_meet_again(world: World) -> None:
    """The running total is at its limit from some day on, whatever came before."""
    made = world.plan(SLICES[0])
    world.change(**{f"s{number}": 8 for number in range(16)})
    world.backfill(world.plan(*SLICES))
    world.change(s0=18)
    world.backfill(made)
    assert world.ran("total") == ["2024-03-28", "2024-03-29", "2024-03-30"]
    world.assert_right(made)


@pytest.mark.parametrize("ends", ["interrupted", "cancelled", "deleted"])
def test_an_input_repaired_by_a_backfill_that_never_reached_the_reader(
    world: World, ends: str
) -> None:
    """The second backfill rewrites the input identically, and yet its readers must run."""
    world.backfill(world.plan(SLICES[5]))
    world.change(s5=9)
    made = world.plan(SLICES[5])
    first = world.backfill(made, stop_after=1)
    assert world.ran("daily") == []
    if ends == "cancelled":
        assert world.executor().cancel(first) is BackfillState.CANCELLED
    elif ends == "deleted":
        world.store.delete(first, now=NOW)
    before = dict(world.tables.content)
    world.backfill(made)
    assert world.ran("clean") == [SLICES[5]]
    assert (
        world.tables.content[dataset("slices"), SLICES[5]] == before[dataset("slices"), SLICES[5]]
    )
    assert world.ran("daily") == ["2024-03-29"]
    world.assert_right(made)


def test_a_reader_behind_on_an_input_that_is_not_stale_here_runs(world: World) -> None:
    """An earlier backfill has repaired another partition that this reader needs."""
    world.backfill(world.plan(SLICES[0], SLICES[5]))
    world.change(s0=9)
    world.backfill(world.plan(SLICES[0]), stop_after=1)
    made = world.plan(SLICES[5])
    world.backfill(made)
    assert world.ran("daily") == []  # the 29th reads nothing of what was repaired on the 28th
    world.backfill(world.plan(SLICES[1]))
    assert world.ran("daily") == ["2024-03-28"]


def test_no_cutoff_runs_all(world: World) -> None:
    made = world.plan(SLICES[5])
    world.backfill(made)
    world.backfill(made, cutoff=False)
    assert world.ran("rolling") == ["2024-03-29", "2024-03-30", "2024-03-31"]
    world.backfill(made)
    assert world.ran("rolling") == []


def test_keys_that_were_asked_for_run(world: World) -> None:
    world.backfill(world.plan(SLICES[5]))
    world.backfill(world.plan(jobs={"daily": "2024-03-29"}))
    assert world.ran("daily") == ["2024-03-29"]
    assert world.ran("rolling") == []


def test_after_a_failure_the_reader_is_in_doubt(world: World) -> None:
    made = world.plan(SLICES[5])
    world.backfill(made)
    (daily,) = (run for run in made.runs or () if run.job.name == "daily")
    executor = world.executor()
    world.engine.outcomes = {(daily.id, 1): failed("who knows what it wrote")}
    backfill_id = executor.start(world.plan(jobs={"daily": "2024-03-29"}))
    assert executor.drive(backfill_id) is BackfillState.FAILED
    world.engine.outcomes = {}
    world.backfill(made)
    assert world.ran("daily") == ["2024-03-29"]


@pytest.mark.parametrize(
    ("sentence", "record", "runs"),
    [
        ("a run before the last one of ours", {"ended_at": NOW - timedelta(days=9)}, False),
        ("a run since then, of the same key", {"partition_key": "2024-03-29"}, True),
        ("a run since then, of another key", {"partition_key": "2024-03-31"}, False),
        ("a run since then, of who knows which key", {}, True),
        ("one that goes on", {"state": "RUNNING", "ended_at": None}, True),
        ("one of another run store", {"backfill": "b-9"}, True),
    ],
)
def test_a_scheduled_run_since_puts_the_reader_in_doubt(
    world: World, sentence: str, record: dict[str, Any], runs: bool
) -> None:
    made = world.plan(SLICES[5])
    world.backfill(made)
    ended = {"state": "COMPLETE", "ended_at": NOW + timedelta(days=9999), **record}
    world.history = (ObservedRun(job=JobRef("w", "daily"), run_id="1", **ended),)
    world.backfill(made)
    assert (world.ran("daily") == ["2024-03-29"]) is runs, sentence


def test_other_parameters_are_not_comparable(world: World) -> None:
    made = world.plan(SLICES[5])
    for parameters, runs in (({}, True), ({"rate": 2}, True), ({"rate": 2}, False), ({}, True)):
        world.backfill(made, parameters=parameters)
        assert bool(world.ran("daily")) is runs


def test_what_somebody_is_said_to_have_changed_in_a_table_of_ours_is_followed(
    world: World,
) -> None:
    """The store knows what its own run has written there, and not what was done to it since."""
    world.backfill(world.plan(SLICES[5]))
    world.tables.content[dataset("slices"), SLICES[5]] = 7
    made = plan(request({"slices": SLICES[5]}), world.snapshot, world.declared)
    world.backfill(made)
    assert world.ran("clean") == []
    assert world.ran("daily") == ["2024-03-29"]
    world.assert_right(made)


@pytest.mark.parametrize(
    ("version", "runs"), [(1, False), (2, False), (3, True), (None, True)], ids=str
)
@pytest.mark.parametrize(
    ("table", "key"), [("slices", SLICES[4]), ("days", "2024-03-29")], ids=["read", "written"]
)
def test_what_the_log_says_that_others_have_changed_since_is_read_or_made_anew(
    world: World, table: str, key: str, version: int | None, runs: bool
) -> None:
    """None stands for files of a Parquet table that others have put there."""
    world.engine.version = 2
    world.backfill(world.plan(*SLICES[4:6]))
    assert world.logs_read == 0, "without a record nothing can be cut off"
    change = Change(keys=parse(world.calendar(table), (key,)), at=NOW, version=version)
    world.records = {dataset(table): TableRecord(changes=(change,))}
    world.backfill(world.plan(SLICES[5]))
    assert (world.ran("daily") == ["2024-03-29"]) is runs
    assert world.ran("rolling") == []
    assert world.logs_read == 1


def test_a_change_beside_the_plan_makes_the_keys_run_that_stale_lists(world: World) -> None:
    """The store has never seen that day written; its log shows a commit of others."""
    world.backfill(world.plan(SLICES[5]))
    keys = parse(world.calendar("days"), ("2024-03-28",))
    change = Change(keys=keys, at=SystemClock().now(), version=9)
    world.records = {dataset("days"): TableRecord(changes=(change,))}
    backfill_id = world.backfill(world.plan(SLICES[5]))
    assert world.ran("daily") == []
    assert world.ran("rolling") == ["2024-03-29", "2024-03-30"]
    (stale,) = find_stale(
        world.resolver,
        tables=world.records,
        runs=world.recorded(backfill_id),
        jobs=[JobRef("w", "daily")],
    )
    assert not stale.older


@pytest.mark.parametrize("pruned", [False, True])
def test_an_input_whose_changed_columns_are_not_read_makes_no_key_run(
    world: World, pruned: bool
) -> None:
    """Days change below the greatest of their windows; the summary reads both."""
    world.change(s0=9, s8=9)
    world.backfill(world.plan(SLICES[0], SLICES[5], SLICES[8]))
    world.change(s5=6)
    made = world.plan(SLICES[5])
    if pruned:
        days = [{"namespace": "w", "name": "days"}]
        jobs = [
            structs.replace(job, reason={**job.reason, "pruned": days})
            if job.job.name == "summary"
            else job
            for job in made.jobs
        ]
        made = made.detailed(jobs=tuple(jobs))
    world.backfill(made)
    assert world.ran("daily")
    assert bool(world.ran("summary")) is not pruned


@pytest.mark.parametrize(
    ("sentence", "versions", "backfills", "holds"),
    [
        ("the one that ended later wrote last, whichever was submitted first", (8, 7), "bb", 0),
        ("in the order of their submissions", (7, 8), "bb", 1),
        ("another backfill came after, its table begun anew", (8, 7), "ab", 1),
        ("a version is not known", (None, 7), "bb", 1),
        ("nor that of the other one", (8, None), "bb", 1),
    ],
)
def test_of_two_runs_that_merged_into_a_partition_one_wrote_last(
    world: World,
    sentence: str,
    versions: tuple[int | None, int | None],
    backfills: str,
    holds: int,
) -> None:
    made = world.plan(*SLICES[4:6])
    merged = [run for run in made.runs or () if run.job.name == "merged"]
    (last,) = (run for run in made.runs or () if run.job.name == "last")
    recorded: list[Trace] = []

    def judge(backfill_id: str) -> Cutoff:
        return Cutoff(
            [made],
            world.resolver,
            RecordedRuns(
                world.resolver,
                (),
                lambda job, _keys: [trace for trace in recorded if trace.job == job],
                lambda _name: True,
            ),
            logs=lambda _datasets: {},
            backfill_id=backfill_id,
        )

    def part(name: str, number: int, version: int | None = None) -> list[dict[str, Any]]:
        held = {"key": "2024-03-29", "fingerprint": str(number)}
        return [{"dataset": named(dataset(name)), "version": version, "partitions": [held]}]

    for number, (run, backfill_id) in enumerate(zip(merged, backfills, strict=True)):
        result = {"inputs": [], "outputs": part("gathered", number, versions[number])}
        trace = judge(backfill_id).closed(run, result)
        recorded.append(ended(trace, number=number + 1, backfill_id=backfill_id))
    for number in range(2):
        result = {"inputs": part("gathered", number), "outputs": part("ends", number)}
        reader = ended(judge("b").closed(last, result), number=9, backfill_id="b")
        recorded.append(reader)
        needed, _ = judge("c").judge(last)
        assert (needed is None) is (number == holds), sentence
        recorded.remove(reader)


def ended(trace: Trace, **known: Any) -> Trace:
    """Return a trace as a store returns it."""
    return replace(trace, since=NOW, ended_at=NOW, **known)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 15), st.integers(0, 9), min_size=1, max_size=4),
            st.integers(0, 14),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_tables_are_right_and_no_key_runs_without_need(
    steps: list[tuple[dict[int, int], int]],
) -> None:
    """Whatever backfills came before, to their end or not."""
    with TemporaryDirectory() as folder, closing(SqlRunStore(IN_MEMORY)) as store:
        world = World(Path(folder), store)
        behind: set[str] = set()
        rule = Rule(world)
        for changes, stop_after in steps:
            world.change(**{f"s{number}": value for number, value in changes.items()})
            behind |= {SLICES[number] for number in changes}
            made = world.plan(*sorted(behind))
            rule.plan(made)
            backfill_id = world.backfill(made, stop_after=stop_after or None)
            if world.store.backfill(backfill_id).state is BackfillState.SUCCEEDED:
                world.assert_right(made)
                behind = set()


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 15), st.integers(0, 9), min_size=1, max_size=3),
            st.integers(0, 9),
            st.sampled_from(["", "logs", "outside"]),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_what_is_cut_off_is_never_stale(steps: list[tuple[dict[int, int], int, str]]) -> None:
    """Cutoff and `stale` judge by one record: no key is cut off that `stale` would list."""
    with TemporaryDirectory() as folder, closing(SqlRunStore(IN_MEMORY)) as store:
        world = World(Path(folder), store)
        backfills: list[str] = []
        for number, (changes, stop_after, beside) in enumerate(steps):
            world.change(**{f"s{slice_}": value for slice_, value in changes.items()})
            made = world.plan(*sorted(SLICES[slice_] for slice_ in changes))
            backfills.append(world.backfill(made, stop_after=stop_after or None))
            if beside == "logs":  # others commit to a table that is read and written
                at = SystemClock().now()
                day = f"2024-03-{28 + number % 2}"
                keys = parse(world.calendar("days"), (day,))
                change = Change(keys=keys, at=at, version=number + 1)
                world.records = {dataset("days"): TableRecord(changes=(change,))}
            elif beside == "outside":
                at = SystemClock().now()
                record = ObservedRun(
                    job=JobRef("w", "daily"),
                    run_id=str(number),
                    state="COMPLETE",
                    started_at=at,
                    ended_at=at,
                    partition_key="2024-03-30",
                )
                world.history = (*world.history, record)
            found = find_stale(
                world.resolver,
                tables=world.records,
                runs=world.recorded(*backfills),
                jobs=world.resolver.edges.jobs,
            )
            stale = {one.job: one.stale for one in found}
            for asked in (SLICES, SLICES[4:6]):
                plan_ = world.plan(*asked)
                judge = Cutoff([plan_], world.resolver, world.recorded(*backfills), logs=world.logs)
                for run in plan_.runs or ():
                    calendar = world.resolver.job(run.job).calendar
                    assert calendar is not None
                    _, cut_off = judge.judge(run)
                    if cut_off:
                        both = parse(calendar, cut_off) & stale[run.job]
                        assert not both, (run.job.name, cut_off)


class Rule:
    """The rule over single keys, as plainly as it can be said."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tables = world.tables
        self.last_read: dict[tuple[str, str], dict[Cell, str]] = {}
        self.written: set[Cell] = set()
        self.stale: set[Cell] = set()
        world.engine.before_run = self.before_run

    def plan(self, made: Plan) -> None:
        self.stale = set()
        for part in made.changed:
            self._stale(part.dataset, part.keys)
        for run in made.runs or ():
            for part in run.writes:
                self._stale(part.dataset, part.keys)

    def _stale(self, dataset: Any, keys: Any) -> None:
        calendar = self.world.resolver.calendar(dataset)
        assert calendar is not None
        self.stale |= set(self.tables.cells(dataset, parse(calendar, keys)))

    def before_run(self, job: JobRef, labels: list[str]) -> None:
        facts = self.world.resolver.job(job)
        assert facts.calendar is not None
        for label in labels:
            key = parse(facts.calendar, (label,))
            reads = {cell: self.tables.fingerprint(cell) for cell in self.tables.read(facts, key)}
            last = self.last_read.get((job.name, label))
            assert last is None or any(
                (cell in self.stale and cell not in self.written)
                or (cell in self.written and last.get(cell) != now)
                for cell, now in reads.items()
            ), f"{job.name} {label} ran without need"
            self.last_read[job.name, label] = reads
            for output in facts.outputs:
                assert output.mapping is not None
                made = self.tables.cells(output.dataset, output.mapping.required(key))
                self.written |= set(made)
