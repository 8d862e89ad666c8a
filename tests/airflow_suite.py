"""Tests of the Airflow engine that run against the fake server and a real Airflow."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
import requests
from msgspec import structs

from lineage_backfill.engines import create_engine
from lineage_backfill.engines.airflow.engine import AirflowEngine
from lineage_backfill.errors import (
    ConflictError,
    EngineError,
    GuardRailError,
    ServiceUnreachableError,
)
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import parse
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, Engine, EngineRun, Origin
from lineage_backfill.project.declarations import DagTasks
from tests.fakes import log_of
from tests.unit.partitions.support import calendar, labels

#: The DAGs begin before it.
DAY = datetime(2026, 3, 1, tzinfo=UTC)
#: The run keys of the jobs.
HOURS = calendar(datetime(2027, 1, 1, tzinfo=UTC), grain="hour", start="2026-01-01T00")


class Crash(BaseException):
    """The process has died."""


@dataclass(frozen=True)
class Place:
    """A running Airflow: its address, and the folder of its journal."""

    url: str
    folder: Path
    used: list[int] = field(default_factory=lambda: [0])

    def fresh(self) -> datetime:
        """Return an hour that has no run, also where this Airflow has served tests before."""
        self.used[0] = max(self.used[0] + 1, len(self.journal()) if self.used == [0] else 0)
        return DAY + timedelta(hours=self.used[0])

    def journal(self) -> list[dict[str, Any]]:
        """Return what has started, in order."""
        path = self.folder / "journal"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def started(self, task: str, start: datetime) -> list[dict[str, Any]]:
        """Return the tries of a task for the interval that begins so."""
        return [
            line for line in self.journal() if line["task"] == task and line["start"] == str(start)
        ]

    def token(self, account: str) -> str:
        """Log in."""
        login = {"username": account, "password": account}
        answer = requests.post(f"{self.url}/auth/token", json=login, timeout=60)
        return str(answer.json()["access_token"])

    def ask(self, method: str, path: str, body: Any = None, account: str = "admin") -> Any:
        """Do what a person does in Airflow."""
        headers = {"Authorization": f"Bearer {self.token(account)}"}
        answer = requests.request(
            method, f"{self.url}/api/v2{path}", json=body, headers=headers, timeout=60
        )
        assert answer.ok, answer.text
        return answer.json()

    def start(self, dag: str, at: datetime, run: str, **more: Any) -> None:
        """Start a run by hand, as somebody else."""
        body = {
            "dag_run_id": run,
            "logical_date": at.isoformat(),
            "data_interval_start": at.isoformat(),
            "data_interval_end": (at + timedelta(hours=1)).isoformat(),
            **more,
        }
        self.ask("POST", f"/dags/{dag}/dagRuns", body)

    def start_key(self, dag: str, key: str) -> str:
        """Start a run of a partition key by hand, as somebody else; returns its id."""
        run = f"theirs-{uuid4().hex}"
        body = {"dag_run_id": run, "logical_date": None, "partition_key": key}
        self.ask("POST", f"/dags/{dag}/dagRuns", body)
        return run

    def of_key(self, task: str, key: str) -> list[tuple[str, int]]:
        """Return the run and number of each try of a task for a partition key."""
        found = [line for line in self.journal() if (line["task"], line["key"]) == (task, key)]
        return [(line["run"], line["try"]) for line in found]

    def runs(self, dag: str) -> list[str]:
        """Return the ids of the runs of a DAG."""
        runs = self.ask("GET", f"/dags/{dag}/dagRuns?limit=100&order_by=-run_after")["dag_runs"]
        return [run["dag_run_id"] for run in runs]

    @contextmanager
    def scheduler_late(self, is_late: bool) -> Iterator[Callable[[], None]]:
        """Let Airflow start no consumers of assets for a while.

        The scheduler of a real one starts the tasks, too: it stands still once it is called.
        """
        process = self.folder / "scheduler.pid"

        def send(number: int) -> None:
            if is_late and process.exists():
                os.killpg(int(process.read_text()), number)

        (self.folder / "late").touch() if is_late else None
        try:
            yield lambda: send(signal.SIGSTOP)
        finally:
            (self.folder / "late").unlink(missing_ok=True)
            send(signal.SIGCONT)

    def state(self, dag: str, run: str) -> str:
        """Return the state of a run."""
        return str(self.ask("GET", f"/dags/{dag}/dagRuns/{run}")["state"])


class Wire:
    """The requests of one engine, which dies at the one of this number: unsent, or unanswered.

    Those that only describe a DAG are not counted.
    """

    def __init__(self, limit: int | None = None, *, arrives: bool = False) -> None:
        self.sent: list[str] = []
        self.runs = 0
        self.is_dead = False
        self._limit = limit
        self._arrives = arrives

    def tap(self, http: Any) -> None:
        """Let the requests of a client pass over this wire."""
        passed = http.send

        def send(method: str, path: str, **how: Any) -> Any:
            counts = "dagRuns" in path or "/clear" in path
            if not self.is_dead and (not counts or self.runs != self._limit):
                self.sent.append(f"{method} {path.partition('?')[0]}")
                self.runs += counts
                return passed(method, path, **how)
            if not self.is_dead and self._arrives:
                passed(method, path, **how)
            self.is_dead = True
            if threading.current_thread() is threading.main_thread():
                raise Crash
            raise ServiceUnreachableError("the process has died")

        http.send = send


class Memory:
    """What the run store keeps of engines' runs, by run id."""

    def __init__(self) -> None:
        self.known: dict[str, EngineRun] = {}

    def keep(self, run_id: str, _attempt: int, found: EngineRun) -> None:
        """Store a run, as JSON would."""
        self.known[run_id] = replace(found, facts=json.loads(json.dumps(found.facts)))


def until(condition: Callable[[], object], seconds: float = 180) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Desk:
    """Makes engines, and run specs of jobs named `dag.task`; all share one run store."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.folder = folder
        self.memory = Memory()
        self.backfill = f"b-{uuid4().hex[:8]}"
        self._open: list[Engine] = []

    def engine(
        self, wire: Wire | None = None, *, kind: str | None = None, of: Any = None, **more: Any
    ) -> Engine:
        """Make an engine whose requests pass over a wire; `of` are more members of its tasks.

        Without `of` and `kind`, the tasks of a shape have its own.
        """
        shapes = {} if of or kind else {shape.dag: shape.of for shape in SHAPES}

        def task(job: JobRef) -> DagTasks:
            dag, _, name = job.name.partition(".")
            given = {"slice": kind, **shapes.get(dag, {}), **(of or {})}
            return DagTasks(dag=dag, tasks=tuple(name.split("+")), **given)

        login = {} if "token" in more else {"username": "op", "password": "op"}
        settings = {"url": self.place.url, "poll": 0.3, "tasks": task, **login, **more}
        days = calendar(datetime(2027, 1, 1, tzinfo=UTC), grain="day", zone="Europe/Berlin")
        in_berlin = ("berlin", "two_", "day_", "slow_day", "month_keys")
        settings["calendar"] = lambda job: days if job.name.startswith(in_berlin) else HOURS
        engine = create_engine("airflow", settings, project=self.folder, state_dir=self.folder)
        assert isinstance(engine, AirflowEngine)
        if wire is not None:
            wire.tap(engine._api._http)
        engine.remember(self.memory.known, self.memory.keep)
        self._open.append(engine)
        return engine

    def spec(
        self, job: str, at: datetime, *, attempt: int = 1, key: str = "", hours: float = 1,
        run: str = "", **more: Any,
    ) -> Path:  # fmt: skip
        """Write the run spec of an hour, of more hours, or of a key."""
        token = uuid4().hex[:20]
        path = self.folder / f"{run or token}-{attempt}.spec.json"
        interval = {"start": at.isoformat(), "end": (at + timedelta(hours=hours)).isoformat()}
        spec = {
            "run_id": run or token,
            "backfill_id": self.backfill,
            "store": "store",
            "attempt": attempt,
            "token": token,
            "job": {"namespace": "n", "name": job, "entrypoint": ""},
            "keys": [{"key": key or f"{at:%Y-%m-%dT%H}", **interval}],
            "parameters": {},
            "result_path": str(path.with_name(f"{token}-{attempt}.result.json")),
            **more,
        }
        path.write_text(json.dumps(spec))
        return path

    def whole(self, job: str, **more: Any) -> Path:
        """Write the run spec of a job without partitions."""
        return self.spec(job, DAY, keys=[{"key": "*", "start": None, "end": None}], **more)

    def live(self, engine: Engine, job: str) -> set[str]:
        """Return the keys of a job that runs under way are for."""
        told = engine.live(JobRef("n", job))
        assert told is not None
        return labels(HOURS, parse(HOURS, told))

    def day(self, job: str, day: str) -> Path:
        """Write the run spec of a day in Berlin."""
        at, end = berlin(day), berlin(day, days=1)
        return self.spec(job, at, key=day, hours=(end - at) / timedelta(hours=1))

    def check(
        self, engine: Engine, *paths: Path, above: Sequence[str] = (), in_turn: bool = True
    ) -> list[str]:
        """Let an engine check the runs of some specs, each after the one before; returns their ids.

        The first one comes after runs of other engines; none does unless they run `in_turn`.
        """
        specs = {(spec := json.loads(path.read_text()))["run_id"]: spec for path in paths}
        ids = list(specs)
        upstream = [tuple(above), *((name,) if in_turn else () for name in ids)]
        runs = [
            structs.replace(planned(spec["job"]["name"]), id=name, upstream=over)
            for (name, spec), over in zip(specs.items(), upstream, strict=False)
        ]
        engine.check(runs, lambda run: specs[run.id])
        return ids

    def submit(self, engine: Engine, path: Path) -> str:
        """Submit a run spec."""
        return engine.submit(path, json.loads(path.read_text())["token"])

    def run(self, job: str, at: datetime, **more: Any) -> AttemptState:
        """Run a job to its end, as a backfill of its own."""
        self.backfill = f"b-{uuid4().hex[:8]}"
        engine = self.engine(kind=more.pop("kind", None), of=more.pop("of", None))
        path = self.spec(job, at, **more)
        self.check(engine, path)
        return self.wait(engine, self.submit(engine, path))

    def wait(self, engine: Engine, handle: str) -> AttemptState:
        """Wait for the end of an attempt."""
        until(lambda: engine.poll(handle).state.is_final)
        if (found := engine.identify(handle)) is not None:
            self.memory.keep(json.loads(Path(handle).read_text())["run_id"], 0, found)
        return engine.poll(handle).state

    def close(self) -> None:
        """Close all engines."""
        for engine in self._open:
            engine.close()


def berlin(day: str, *, days: int = 0, hour: int = 0) -> datetime:
    """Return a local time in Berlin: the second of two, the next one if the clock skips it."""
    at = datetime.fromisoformat(day) + timedelta(days=days, hours=hour)
    zone = ZoneInfo("Europe/Berlin")
    return max(at.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))


#: A 29 February, a week with a clock change that ends a month, and the days around the other one.
DAYS = (
    "2024-02-29",
    *(f"2026-03-{number}" for number in range(25, 32)),
    *(f"2026-10-{number}" for number in (24, 25, 26)),
)
#: Those of the clock changes.
CHANGES = ("2026-03-29", "2026-10-25")


@dataclass(frozen=True)
class Shape:
    """A kind of DAG of days in Berlin.

    `planned` and `along` are its tasks, with the executions that each needs in a new run; in a run
    that is cleared, the planned ones need `again`. `since` is its first day, `begins` the day and
    hour at which the interval of a key begins.
    """

    dag: str
    planned: tuple[str, int] = ("build", 1)
    along: tuple[str, ...] = ()
    again: int = 1
    of: dict[str, Any] = field(default_factory=lambda: {"slice": "interval"})
    begins: tuple[int, int] = (0, 0)
    since: str = ""

    @property
    def job(self) -> str:
        """The name of its planned job."""
        return f"{self.dag}.{self.planned[0]}"

    def expected(self, days: Sequence[str]) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the executions of each task and slice in a new run, and when it is cleared."""
        on, hour = self.begins
        starts = [str(berlin(day, days=on, hour=hour)) for day in days if day >= self.since]
        if "partition_key" in self.of.values():
            length = 7 if self.dag.startswith("month") else 10
            starts = sorted({day[:length] for day in days})
        ran = {self.planned[0]: (self.planned[1], self.again), **dict.fromkeys(self.along, (1, 0))}
        return {(f"{self.dag}.{name}", at): count for name, count in ran.items() for at in starts}


_KEYS = {"slice": "partition_key"}
SHAPES = (
    Shape("berlin", of={"slice": "logical_date + 1d"}, begins=(1, 0)),
    Shape("two_am", begins=(0, 2)),
    Shape("two_plain", of={"slice": "logical_date + 2h"}, begins=(0, 2)),
    Shape("day_taskflow", planned=("load", 1), along=("extract", "notify")),
    Shape("day_mapped", planned=("build", 2), again=2),
    Shape("day_chained"),
    Shape("day_failing", planned=("build", 2)),
    Shape("day_param", of={"slice": "interval", "conf": {"day": "{key}"}}),
    Shape("day_later", since="2026-01-01"),
    Shape("day_keys", of=_KEYS),
    Shape("month_keys", of=_KEYS),
)


PROJECT = """
[project]
namespace = "n"

[engines.airflow]
kind = "airflow"
url = "{url}"
username = "op"
password = "op"
poll = 0.3

[[dataset]]
name = "*"
grain = "hour"
start = "2026-01-01T00"
columns = {{ key = "%Y-%m-%dT%H" }}
location = "data/{{name}}"

[[job]]
name = "{dag}.{task}"
engine = "airflow"
dag = "{dag}"
task = "{task}"
slice = "interval"
batch = "key"
reads = [{{ dataset = "raw" }}]
writes = [{{ dataset = "made" }}]
"""


def backfill(
    place: Place, folder: Path, job: str, hour: datetime, **settings: str
) -> subprocess.Popen[str]:
    """Run the hour of a job by the command line."""
    dag, _, task = job.partition(".")
    text = PROJECT.format(url=place.url, dag=dag, task=task)
    (folder / "lineage-backfill.toml").write_text(text)
    key = f"{hour:%Y-%m-%dT%H}"
    return subprocess.Popen(
        [sys.executable, "-m", "lineage_backfill", "run", "raw", "--partitions", key, "--yes"],
        cwd=folder,
        env={**os.environ, **settings},
        stderr=subprocess.PIPE,
        text=True,
    )


def planned(job: str) -> PlannedRun:
    """Return a planned run of a job."""
    return PlannedRun(
        id="r-1",
        job=JobRef("n", job),
        partitions=("k",),
        count=1,
        wave=0,
        upstream=(),
        engine="airflow",
        reads=(),
        writes=(),
    )


class AirflowSuite:
    """The promises; a subclass has the fixture `place`."""

    #: Whether the last request of a process that dies arrives.
    arrivals: Sequence[bool]
    #: The days of the shapes.
    days: Sequence[str]

    @abstractmethod
    @pytest.fixture
    def place(self) -> Any:
        """A running Airflow."""

    @pytest.fixture
    def hour(self, place: Place) -> datetime:
        """An hour that no other test uses."""
        return place.fresh()

    @pytest.fixture
    def desk(self, place: Place, tmp_path: Path) -> Iterator[Desk]:
        for name in ("go", "fails"):
            (place.folder / name).unlink(missing_ok=True)
        made = Desk(place, tmp_path)
        yield made
        made.close()

    # One rule: a missing run is created, one that has ended is cleared, an active one awaited

    def test_a_missing_run_is_made_with_both_ends_of_its_interval_and_conf(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        state = desk.run("one.build", hour, of={"conf": {"day": "{key}"}})
        assert state is AttemptState.SUCCEEDED
        (line,) = place.started("one.build", hour)
        assert line["run"].startswith("lb__store.b-")
        assert line["end"] == str(hour + timedelta(hours=1))
        assert line["conf"]["day"] == f"{hour:%Y-%m-%dT%H}"
        assert line["conf"]["lineage_backfill"]["spec"]["job"]["name"] == "one.build"

    def test_a_run_that_is_there_is_cleared_each_time(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        place.start("one", hour, f"theirs-{uuid4().hex}")
        until(lambda: place.started("one.build", hour))
        for tries in (2, 3):
            assert desk.run("one.build", hour) is AttemptState.SUCCEEDED
            assert [line["try"] for line in place.started("one.build", hour)] == [
                *range(1, tries + 1)
            ]

    def test_the_whole_dag_runs_in_a_new_run_so_that_tasks_find_what_others_hand_over(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        assert desk.run("taskflow.load", hour) is AttemptState.SUCCEEDED
        names = ("extract", "load", "notify")
        until(lambda: place.started("taskflow.notify", hour))
        assert [len(place.started(f"taskflow.{name}", hour)) for name in names] == [1, 1, 1]
        assert desk.run("taskflow.load", hour) is AttemptState.SUCCEEDED
        assert [len(place.started(f"taskflow.{name}", hour)) for name in names] == [1, 2, 1]
        assert [line["rows"] for line in place.started("taskflow.load", hour)] == [3, 3]

    def test_a_new_run_is_refused_if_it_would_write_more_than_is_planned(
        self, place: Place, desk: Desk, hour: datetime, caplog: pytest.LogCaptureFixture
    ) -> None:
        writers = {name: [DatasetRef("n", name)] for name in "ab"}
        engine = desk.engine(writers=lambda _dag: writers)
        with pytest.raises(GuardRailError, match=r"not planned for it: three\.a") as refused:
            desk.check(engine, desk.spec("three.b", hour))
        assert "whole_dag = true" in refused.value.hint
        ids = desk.check(engine, desk.spec("three.a", hour), desk.spec("three.b", hour))
        assert engine.waits() == {name: frozenset() for name in ids}
        assert "also run in them: c" in caplog.text
        whole = desk.engine(writers=lambda _dag: writers, of={"whole_dag": True})
        (run,) = desk.check(whole, desk.spec("three.b", hour))
        assert whole.also_writes() == {run: [DatasetRef("n", "a")]}
        place.start("three", hour, run := f"theirs-{uuid4().hex}")
        until(lambda: place.state("three", run) == "success")
        desk.check(engine, desk.spec("three.b", hour))  # it is only cleared

    def test_the_jobs_of_a_new_run_run_once_after_all_that_they_read_from_outside(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine = desk.engine()
        paths = [desk.spec(f"three.{name}", hour) for name in "ab"]
        first, second = desk.check(engine, *paths, above=["elsewhere"])
        assert engine.waits() == {first: frozenset(), second: {"elsewhere"}}
        origins = []
        for path in paths:
            handle = desk.submit(engine, path)
            assert desk.wait(engine, handle) is AttemptState.SUCCEEDED, engine.poll(handle)
            found = engine.identify(handle)
            origins.append(found and found.origin)
        until(lambda: place.started("three.c", hour))
        assert [len(place.started(f"three.{name}", hour)) for name in "abc"] == [1, 1, 1]
        assert origins[0] is Origin.CREATED
        assert len({line["run"] for line in place.started("three.b", hour)}) == 1
        # Of an existing run, each is cleared by itself.
        desk.backfill = "b-again"
        again = [desk.spec(f"three.{name}", hour) for name in "ab"]
        desk.check(engine, *again)
        assert not engine.waits()
        for path in again:
            assert desk.wait(engine, desk.submit(engine, path)) is AttemptState.SUCCEEDED
        assert [len(place.started(f"three.{name}", hour)) for name in "abc"] == [2, 2, 1]

    def test_a_run_of_an_older_version_of_its_dag(self, place: Place, desk: Desk) -> None:
        newer, renamed = place.folder / "newer", place.folder / "renamed"

        def deployed(*names: str) -> None:
            def now() -> set[str]:
                tasks = place.ask("GET", "/dags/day_versioned/tasks")["tasks"]
                return {one["task_id"] for one in tasks}

            until(lambda: now() == set(names), 120)

        try:
            engine = desk.engine()
            handle = desk.submit(engine, desk.day("day_versioned.build", CHANGES[0]))
            assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
            desk.backfill = "b-later"
            desk.check(engine, desk.day("day_versioned.build", CHANGES[0]))
            newer.touch()
            deployed("build", "check")
            with pytest.raises(EngineError, match="is older than task check") as refused:
                desk.submit(engine, desk.day("day_versioned.build", CHANGES[0]))
            assert "delete the DAG run" in refused.value.hint
            newer.unlink()
            renamed.touch()
            deployed("built")
            for day in CHANGES:
                with pytest.raises(EngineError, match=r"no task build \(any more\)"):
                    desk.submit(engine, desk.day("day_versioned.build", day))
        finally:
            for file in (newer, renamed):
                file.unlink(missing_ok=True)
        found = [len(place.started("day_versioned.build", berlin(day))) for day in CHANGES]
        assert found == [1, 0]

    @pytest.mark.parametrize("kind", ["interval", "asset"])
    def test_what_is_under_way_counts_only_if_it_began_later(
        self, place: Place, desk: Desk, hour: datetime, kind: str
    ) -> None:
        """Also what Airflow has started for an asset before the other inputs were written."""
        undated = dict.fromkeys(("logical_date", "data_interval_start", "data_interval_end"))
        run = f"theirs-{uuid4().hex}"
        place.start("slow", hour, run, **(undated if kind == "asset" else {}))

        def tries() -> list[int]:
            return [line["try"] for line in place.journal() if line["run"] == run]

        until(tries)
        engine = desk.engine(kind=kind)
        handle = desk.submit(engine, desk.spec("slow.build", hour))
        found = engine.identify(handle)
        assert (found and found.origin) is Origin.ADOPTED
        time.sleep(1)
        assert tries() == [1]
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        assert tries() == [1, 2]
        found = engine.identify(handle)
        assert (found and found.origin) is Origin.RERUN

    def test_what_begins_after_the_inputs_were_written_counts(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine = desk.engine()
        above, own = desk.spec("one.build", hour), desk.spec("slow.build", hour)
        desk.check(engine, above, own)
        assert desk.wait(engine, desk.submit(engine, above)) is AttemptState.SUCCEEDED
        place.start("slow", hour, run := f"theirs-{uuid4().hex}")
        until(lambda: place.started("slow.build", hour))
        handle = desk.submit(engine, own)
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        found = engine.identify(handle)
        assert found is not None
        assert (found.origin, found.id) == (Origin.ADOPTED, f"slow/{run}")
        assert len(place.started("slow.build", hour)) == 1

    # Slices

    def test_each_shape_of_a_dag_runs_what_is_planned_once_on_any_day(
        self, place: Place, desk: Desk
    ) -> None:
        expected = {
            one: count for shape in SHAPES for one, count in shape.expected(self.days).items()
        }
        there = {(one["task"], one["key"] or one["start"]) for one in place.journal()}
        begun = len(place.journal())
        months = sorted({day[:7] for day in self.days})
        for number in (0, 1):
            desk.backfill = f"b-{uuid4().hex[:8]}"
            engine = desk.engine(poll=1)
            for shape in SHAPES:
                if self.days[0] < shape.since and not number:
                    with pytest.raises(EngineError, match="would run no task"):
                        desk.check(engine, desk.day(shape.job, self.days[0]))
            paths = [
                desk.day(shape.job, day)
                for shape in SHAPES
                for day in self.days
                if day >= shape.since and shape.dag != "month_keys"
            ]
            rollups = [
                desk.spec("month_keys.build", berlin(f"{one}-01"), key=one) for one in months
            ]
            desk.check(engine, *paths, *rollups, in_turn=False)
            for part in (paths, rollups):
                handles = [desk.submit(engine, path) for path in part]
                for handle in handles:
                    assert desk.wait(engine, handle) is AttemptState.SUCCEEDED, engine.poll(handle)
            wanted = Counter(
                {
                    one: (again if one in there else first) + number * again
                    for one, (first, again) in expected.items()
                }
            )
            until(lambda: _ran(place, begun, expected) >= wanted, 60)  # noqa: B023
            assert _ran(place, begun, expected) == wanted
        loads = [
            one["rows"] for one in place.journal()[begun:] if one["task"] == "day_taskflow.load"
        ]
        assert {*loads} == {3}
        param = [one for one in place.journal()[begun:] if one["task"] == "day_param.build"]
        assert {one["conf"]["day"] for one in param} == {*self.days}

    @pytest.mark.parametrize("day", CHANGES)
    def test_what_others_do_at_a_clock_change_makes_no_execution_more(
        self, place: Place, desk: Desk, day: str
    ) -> None:
        """The producer of the fixed table is in the DAG; its consumer waits for an asset.

        A person clears what a run is to clear, and the scheduler is late.
        """
        at, end = berlin(day), berlin(day, days=1)
        ends = {"data_interval_end": end.isoformat()}
        tables = {"a": [DatasetRef("n", "fixed")], "b": [DatasetRef("n", "b")]}
        engine = desk.engine(writers=lambda dag: tables if dag == "day_three" else {})
        producer, reader = desk.day("day_three.b", day), desk.whole("day_reader.read")
        with pytest.raises(GuardRailError, match=r"not planned for it: day_three\.a"):
            desk.check(engine, producer)
        runs = {name: f"theirs-{uuid4().hex}" for name in ("day_three", "slow_day")}
        for name, run in runs.items():
            place.start(name, at, run, **ends)
        until(lambda: place.started("slow_day.build", at))
        slow = desk.engine(kind="interval")
        handle = desk.submit(slow, desk.day("slow_day.build", day))
        body = {"dag_run_id": runs["slow_day"], "task_ids": ["build"], "dry_run": False}
        body |= {"only_failed": False, "reset_dag_runs": True, "prevent_running_task": False}
        place.ask("POST", "/dags/slow_day/clearTaskInstances", body)
        until(lambda: len(place.started("slow_day.build", at)) == 2)
        (place.folder / "go").touch()
        assert desk.wait(slow, handle) is AttemptState.SUCCEEDED
        assert len(place.started("slow_day.build", at)) == 2
        found = slow.identify(handle)
        assert (found and found.origin) is Origin.ADOPTED
        until(lambda: place.state("day_three", runs["day_three"]) == "success")
        until(lambda: place.runs("day_reader"))
        reads = place.runs("day_reader")
        until(lambda: place.state("day_reader", reads[0]) == "success")
        with place.scheduler_late(True) as stand_still:
            desk.check(engine, producer, reader)
            assert desk.wait(engine, desk.submit(engine, producer)) is AttemptState.SUCCEEDED
            stand_still()
            handle = desk.submit(engine, reader)
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED, engine.poll(handle)
        assert len(place.runs("day_reader")) == len(reads) + 1
        assert [len(place.started(f"day_three.{name}", at)) for name in "ab"] == [1, 2]

    def test_a_slice_without_a_run_in_the_timetable_is_refused(
        self, place: Place, desk: Desk
    ) -> None:
        at = berlin("2024-05-01")
        for kind, text in (("logical_date + 90m", "has no run at"), (None, "does not say")):
            engine = desk.engine(kind=kind)
            path = desk.spec(f"{'berlin' if kind else 'plain'}.build", at, hours=24)
            with pytest.raises(EngineError, match=text):
                desk.submit(engine, path)
        hourly = desk.spec("one.build", at, hours=24)
        with pytest.raises(EngineError, match="no data interval of the DAG is for the key"):
            desk.check(desk.engine(), hourly)
        assert not place.started("berlin.build", at + timedelta(minutes=90))

    def test_a_run_of_another_interval_is_refused(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        run, early = f"theirs-{uuid4().hex}", hour - timedelta(hours=1)
        ends = {"data_interval_start": early.isoformat(), "data_interval_end": hour.isoformat()}
        place.start("one", hour, run, **ends)
        with pytest.raises(
            EngineError, match=r"has a run of the logical date .* that covers another"
        ):
            desk.submit(desk.engine(), desk.spec("one.build", hour))

    @pytest.mark.parametrize(
        ("dag", "key", "form"),
        [
            ("hourly", "{hour:%Y-%m-%dT%H}", "%Y-%m-%dT%H:%M:%S"),
            ("monthly", "{hour:%Y-%m-%d}", "%Y-%m"),
            ("by_hand", "eu-{hour:%d-%H}", ""),
        ],
    )
    def test_a_partition_key_is_created_and_then_cleared_as_its_dag_writes_it(
        self, place: Place, desk: Desk, hour: datetime, dag: str, key: str, form: str
    ) -> None:
        at = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=31 * place.used[0])
        label = key.format(hour=at)
        text = at.strftime(form) if form else label
        kind = f"partition_key {form}".strip()
        for number in (1, 2):
            state = desk.run(f"{dag}.build", at, key=label, kind=kind)
            assert state is AttemptState.SUCCEEDED
            assert [tries for _, tries in place.of_key(f"{dag}.build", text)] == [
                *range(1, number + 1)
            ]

    def test_of_several_runs_of_a_key_none_run_at_once(self, place: Place, desk: Desk) -> None:
        key = f"{place.fresh():%Y-%m-%dT%H}"
        first = place.start_key("slow_key", key)
        until(lambda: place.of_key("slow_key.build", key))
        engine = desk.engine()
        handle = desk.submit(engine, desk.spec("slow_key.build", DAY, key=key))
        second = place.start_key("slow_key", key)
        until(lambda: len(place.of_key("slow_key.build", key)) == 2)
        time.sleep(1)
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        tries = place.of_key("slow_key.build", key)
        assert tries[:2] == [(first, 1), (second, 1)]
        assert tries[2:] == [(second, 2)]

    def test_a_run_of_the_key_that_airflow_starts_meanwhile_ends_ours(
        self, place: Place, desk: Desk
    ) -> None:
        key = f"{place.fresh():%Y-%m-%dT%H}"
        engine = desk.engine()
        handle = desk.submit(engine, desk.spec("slow_key.build", DAY, key=key))
        until(lambda: place.of_key("slow_key.build", key))
        ours = place.of_key("slow_key.build", key)[0][0]
        theirs = place.start_key("slow_key", key)
        until(lambda: place.state("slow_key", ours) == "failed")
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        assert place.of_key("slow_key.build", key) == [(ours, 1), (theirs, 1)]

    # Assets

    @pytest.mark.parametrize("is_late", [False, True])
    def test_a_consumer_that_airflow_starts_is_awaited_and_counts(
        self, place: Place, desk: Desk, hour: datetime, is_late: bool
    ) -> None:
        with place.scheduler_late(is_late) as stand_still:
            engine = desk.engine()
            above, own = desk.spec("three.b", hour), desk.whole("follower.read")
            desk.check(engine, above, own)
            begun = len(place.runs("follower"))
            assert desk.wait(engine, desk.submit(engine, above)) is AttemptState.SUCCEEDED
            stand_still()
            handle = desk.submit(engine, own)
            time.sleep(2 * is_late)  # several polls, in which nothing may be created
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        found = engine.identify(handle)
        assert (found and found.origin) is Origin.ADOPTED
        assert len(place.runs("follower")) == begun + 1

    def test_a_consumer_that_airflow_does_not_start_in_time_fails_by_name(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        with place.scheduler_late(True):
            engine = desk.engine(wait=1)
            above, own = desk.spec("three.b", hour), desk.whole("follower.read")
            desk.check(engine, above, own)
            assert desk.wait(engine, desk.submit(engine, above)) is AttemptState.SUCCEEDED
            handle = desk.submit(engine, own)
            assert desk.wait(engine, handle) is AttemptState.FAILED
        text = engine.poll(handle).error or ""
        assert "DAG follower is to start its run for the asset file:///lake/b" in text

    def test_a_consumer_that_waits_for_more_is_started_by_us(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine = desk.engine()
        above, own = desk.spec("three.b", hour), desk.whole("both.read")
        desk.check(engine, above, own)
        assert desk.wait(engine, desk.submit(engine, above)) is AttemptState.SUCCEEDED
        handle = desk.submit(engine, own)
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        found = engine.identify(handle)
        assert (found and found.origin) is Origin.CREATED

    def test_a_rollup_is_started_by_us_and_a_consumer_of_each_key_by_airflow(
        self, place: Place, desk: Desk
    ) -> None:
        at = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=len(place.journal()))
        day, hour = f"{at:%Y-%m-%d}", f"{at:%Y-%m-%dT%H}"
        engine = desk.engine(kind="partition_key %Y-%m-%dT%H:%M:%S")
        days = desk.engine(kind="partition_key")
        for rollup, reader in ((Origin.CREATED, Origin.ADOPTED), (Origin.RERUN, Origin.ADOPTED)):
            desk.backfill = f"b-{uuid4().hex[:8]}"
            above, own = (desk.spec(f"{d}.build", at, key=hour) for d in ("hourly", "reader"))
            desk.check(engine, above, own)
            assert desk.wait(engine, desk.submit(engine, above)) is AttemptState.SUCCEEDED
            handle = desk.submit(engine, own)
            assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
            found = engine.identify(handle)
            assert (found and found.origin) is reader
            path = desk.spec("rollup.build", at, key=day)
            handle = desk.submit(days, path)
            assert desk.wait(days, handle) is AttemptState.SUCCEEDED
            found = days.identify(handle)
            assert (found and found.origin) is rollup
        assert len(place.of_key("reader.build", f"{hour}:00:00")) == 2
        assert [tries for _, tries in place.of_key("rollup.build", day)] == [1, 2]

    # What tasks do

    def test_each_instance_of_a_mapped_task_runs_once(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        for number in (2, 4):
            assert desk.run("mapped.build", hour) is AttemptState.SUCCEEDED
            assert len(place.started("mapped.build", hour)) == number

    def test_a_failure_is_one_and_the_next_attempt_clears_it(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        (place.folder / "fails").touch()
        engine = desk.engine()
        handle = desk.submit(engine, desk.spec("one.build", hour, run="r"))
        assert desk.wait(engine, handle) is AttemptState.FAILED
        assert (
            engine.poll(handle).error
            == "task build is failed after try 1: ValueError: no such column"
        )
        assert "task build, try 1:" in log_of(handle)
        (place.folder / "fails").unlink()
        handle = desk.submit(engine, desk.spec("one.build", hour, attempt=2, run="r"))
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        assert [line["try"] for line in place.started("one.build", hour)] == [1, 2]

    def test_tries_that_airflow_makes_again_are_waited_for(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        (place.folder / "fails").touch()
        engine = desk.engine()
        handle = desk.submit(engine, desk.spec("retrying.build", hour))
        until(lambda: place.started("retrying.build", hour))
        time.sleep(0.7)
        (place.folder / "fails").unlink()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        assert len(place.started("retrying.build", hour)) >= 2

    def test_a_job_that_a_task_stores_is_submitted_again_when_the_task_is_cleared(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        for number in (1, 2):
            assert desk.run("durable.build", hour) is AttemptState.SUCCEEDED
            assert len(place.started("durable.build", hour)) == number

    def test_what_the_job_says_in_its_result_file_is_the_outcome(
        self, desk: Desk, hour: datetime
    ) -> None:
        path = desk.spec("one.build", hour)
        spec = json.loads(path.read_text())
        result = {"schema_version": 1, "run_id": spec["run_id"], "attempt": 1, "inputs": []}
        result |= {"token": spec["token"], "state": "succeeded", "outputs": [], "error": None}
        result |= dict.fromkeys(("started_at", "ended_at"), "2026-01-01T00:00:00Z")
        Path(spec["result_path"]).write_text(json.dumps(result))
        engine = desk.engine()
        handle = desk.submit(engine, path)
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        assert engine.poll(handle).result == result

    def test_an_undo_is_the_run_spec_of_a_run_of_its_own(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        with pytest.raises(EngineError, match="cannot be undone") as refused:
            desk.submit(
                desk.engine(undo=True), desk.spec("one.build", hour, undo=[{"run_id": "r"}])
            )
        assert 'slice = "conf"' in refused.value.hint
        engine = desk.engine(undo=True, kind="conf")
        handle = desk.submit(engine, desk.spec("plain.build", hour, undo=[{"run_id": "r"}]))
        assert desk.wait(engine, handle) is AttemptState.FAILED
        assert "has left no result of an undo" in str(engine.poll(handle).error)
        line = [one for one in place.journal() if one["task"] == "plain.build"][-1]
        assert line["conf"]["lineage_backfill"]["spec"]["undo"] == [{"run_id": "r"}]

    # Cancel, token, refusals

    def test_cancel_stops_what_is_ours(self, place: Place, desk: Desk, hour: datetime) -> None:
        for origin in (Origin.CREATED, Origin.CREATED):
            engine = desk.engine()
            handle = desk.submit(engine, desk.spec("slow.build", hour, run="r"))
            until(lambda: engine.poll(handle).state is AttemptState.RUNNING)  # noqa: B023
            found = engine.identify(handle)
            assert (found and found.origin) is origin
            engine.cancel(handle)
            assert desk.wait(engine, handle) is AttemptState.CANCELLED
            assert engine.poll(handle).error == "stopped by the user"

    def test_cancel_leaves_what_others_have_started(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        place.start("slow", hour, run := f"theirs-{uuid4().hex}")
        until(lambda: place.started("slow.build", hour))
        engine = desk.engine()
        handle = desk.submit(engine, desk.spec("slow.build", hour))
        engine.cancel(handle)
        assert desk.wait(engine, handle) is AttemptState.CANCELLED
        assert "someone else started it" in str(engine.poll(handle).error)
        assert place.state("slow", run) == "running"
        (place.folder / "go").touch()
        until(lambda: place.state("slow", run) == "success")
        assert len(place.started("slow.build", hour)) == 1

    def test_a_token_is_asked_for_again_once_it_has_expired(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        tokens = ["stale", place.token("op")]
        engine = desk.engine(token=lambda: tokens.pop(0))
        engine.open()
        handle = desk.submit(engine, desk.spec("one.build", hour))
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED

    def test_a_token_that_stays_expired_ends_the_backfill_which_loses_nothing(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        token = [place.token("op")]
        engine = desk.engine(token=lambda: token[0], poll=0.1)
        path = desk.spec("slow.build", hour)
        handle = desk.submit(engine, path)
        told: queue.SimpleQueue[str] = queue.SimpleQueue()
        engine.listen(told.put)
        token[0] = engine._api._token = "stale"  # type: ignore[attr-defined]
        assert told.get(timeout=60) == handle
        with pytest.raises(ServiceUnreachableError, match="has expired") as stale:
            engine.poll(handle)
        assert "resume" in stale.value.hint
        (place.folder / "go").touch()
        later = desk.engine()
        assert desk.wait(later, str(later.find(path, spec_of(path)["token"]))) is (
            AttemptState.SUCCEEDED
        )
        assert len(place.started("slow.build", hour)) == 1

    def test_a_required_parameter_of_a_dag_is_given_by_conf(
        self, desk: Desk, hour: datetime
    ) -> None:
        with pytest.raises(EngineError, match="Invalid input for param day") as refused:
            desk.submit(desk.engine(kind="interval"), desk.spec("param.build", hour))
        assert 'conf = { NAME = "{key}" }' in refused.value.hint
        state = desk.run("param.build", hour, kind="interval", of={"conf": {"day": "{key}"}})
        assert state is AttemptState.SUCCEEDED

    @pytest.mark.parametrize(
        ("job", "more", "text"),
        [
            ("none.build", {}, "has no DAG none"),
            ("one.none", {}, "has no task none"),
            ("paused.build", {}, "DAG paused is paused"),
            ("only_scheduled.build", {}, "allows no manual runs"),
            ("one.build", {"years": -9}, "runs from 2024-01-01"),
            ("one.build", {"years": 9}, "until now"),
            ("hourly.build", {"kind": "interval"}, "is partitioned"),
        ],
    )
    def test_what_would_do_nothing_is_refused_before_anything_starts(
        self, desk: Desk, hour: datetime, job: str, more: dict[str, Any], text: str
    ) -> None:
        engine = desk.engine(kind=more.get("kind"))
        at = hour.replace(year=hour.year + more.get("years", 0))
        with pytest.raises(EngineError, match=text) as refused:
            desk.check(engine, desk.spec(job, at))
        assert refused.value.hint

    def test_a_partition_key_that_airflow_does_not_take_is_its_refusal(
        self, desk: Desk, hour: datetime
    ) -> None:
        for job, kind in (
            ("one.build", "partition_key"),
            ("slow_key.build", "partition_key %Y-%m"),
        ):
            with pytest.raises(EngineError, match=r"\(400\)"):
                desk.submit(desk.engine(kind=kind), desk.spec(job, hour))

    def test_an_account_that_may_not_start_runs_is_refused(
        self, desk: Desk, hour: datetime
    ) -> None:
        engine = desk.engine(username="viewer", password="viewer")
        with pytest.raises(EngineError, match="403"):
            desk.check(engine, desk.spec("one.build", hour))

    def test_secrets_and_parameters_are_refused_where_they_would_show_or_be_lost(
        self, desk: Desk, hour: datetime
    ) -> None:
        engine = desk.engine()
        with pytest.raises(EngineError, match="a secret parameter"):
            desk.submit(engine, desk.spec("one.build", hour, parameters={"password": "hunter2"}))
        assert desk.run("one.build", hour) is AttemptState.SUCCEEDED
        desk.backfill = "b-other"
        with pytest.raises(EngineError, match="passes no parameters"):
            desk.submit(engine, desk.spec("one.build", hour, parameters={"rate": 2}))

    def test_keys_of_queued_and_running_runs_are_live(self, place: Place, desk: Desk) -> None:
        first, second = place.fresh(), place.fresh()
        place.start("slow", first, f"theirs-{uuid4().hex}")
        until(lambda: place.started("slow.build", first))
        engine = desk.engine()
        assert desk.live(engine, "slow.build") == {f"{first:%Y-%m-%dT%H}"}
        (place.folder / "go").touch()
        until(lambda: not desk.live(engine, "slow.build"))
        desk.submit(engine, desk.spec("slow.build", second))
        assert not desk.live(engine, "slow.build")  # one of ours

    # Crashes and costs

    @pytest.mark.parametrize("kills", [(1, 0), (3, 2), (5, 4)])
    @pytest.mark.parametrize("scene", ["created", "cleared", "awaited", "retried"])
    def test_a_process_that_dies_between_any_two_requests_is_taken_over(
        self, place: Place, desk: Desk, scene: str, kills: tuple[int, int]
    ) -> None:
        """Killed twice, on machines that share only the run store; each time it runs once."""
        for arrives in self.arrivals:
            hour = place.fresh()
            job, expected = "one.build", 1
            attempt = 1
            if scene == "cleared":
                place.start("one", hour, run := f"theirs-{uuid4().hex}")
                until(lambda: place.state("one", run) == "success")
                expected = 2
            elif scene == "awaited":
                place.start("slow", hour, f"theirs-{uuid4().hex}")
                job, expected = "slow.build", 2
                until(lambda: place.started("slow.build", hour))  # noqa: B023
            elif scene == "retried":
                (place.folder / "fails").touch()
                path = desk.spec(job, hour, run=f"r{hour:%d%H}")
                engine = desk.engine()
                assert desk.wait(engine, desk.submit(engine, path)) is AttemptState.FAILED
                (place.folder / "fails").unlink()
                attempt, expected = 2, 2
            path = desk.spec(job, hour, run=f"r{hour:%d%H}", attempt=attempt)
            for number in kills:
                engine = desk.engine(wire := Wire(number, arrives=arrives))
                with suppress(Crash, EngineError, ServiceUnreachableError):
                    engine.find(path, spec_of(path)["token"])
                    until(lambda: wire.is_dead or _is_over(engine, path), 2)  # noqa: B023
                engine.close()
            (place.folder / "go").touch()
            last = desk.engine()
            handle = last.find(path, spec_of(path)["token"])
            assert handle is not None
            assert desk.wait(last, handle) is AttemptState.SUCCEEDED, last.poll(handle)
            time.sleep(0.5)
            assert len(place.started(job, hour)) == expected, (arrives, place.started(job, hour))
            (place.folder / "go").unlink()

    def test_many_runs_take_few_requests_each(self, place: Place, desk: Desk) -> None:
        hours = [place.fresh() for _ in range(10)]
        for number in range(2):
            engine = desk.engine(wire := Wire())
            paths = [desk.spec("one.build", hour) for hour in hours]
            desk.check(engine, *paths)
            handles = [desk.submit(engine, path) for path in paths]
            for handle in handles:
                assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
            polls = Counter(wire.sent)["POST /api/v2/dags/~/dagRuns/list"]
            assert len(wire.sent) - 2 * polls <= 10 * len(hours) + 10, (number, Counter(wire.sent))

    def test_a_backfill_waits_for_a_run_of_others_or_is_refused(
        self, place: Place, desk: Desk, hour: datetime, tmp_path: Path
    ) -> None:
        place.start("slow", hour, f"theirs-{uuid4().hex}")
        until(lambda: place.started("slow.build", hour))
        refused = backfill(
            place, tmp_path, "slow.build", hour, LINEAGE_BACKFILL_RUN_LIVE_RUNS="refuse"
        )
        _, text = refused.communicate(timeout=120)
        assert refused.returncode == ConflictError.exit_code, text
        assert "is being run by others, according to engine 'airflow'" in text
        waiting = backfill(place, tmp_path, "slow.build", hour)
        time.sleep(3)
        assert len(place.started("slow.build", hour)) == 1
        (place.folder / "go").touch()
        _, text = waiting.communicate(timeout=120)
        assert waiting.returncode == 0, text
        assert len(place.started("slow.build", hour)) == 2


def _ran(
    place: Place, begun: int, expected: Mapping[tuple[str, str], object]
) -> Counter[tuple[str, str]]:
    """Return the executions of the expected tasks, by slice, without what Airflow schedules."""
    tasks = {task for task, _ in expected}
    return Counter(
        (one["task"], one["key"] or one["start"])
        for one in place.journal()[begun:]
        if one["task"] in tasks and not one["run"].startswith("scheduled__")
    )


def spec_of(path: Path) -> dict[str, Any]:
    """Read a run spec."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _is_over(engine: Engine, path: Path) -> bool:
    return engine.poll(str(path)).state.is_final
