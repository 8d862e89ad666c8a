"""Tests of the Airflow engine that run against the fake server and a real Airflow."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
from msgspec import structs

from lineage_backfill.engines import create_engine
from lineage_backfill.engines.airflow import api as airflow_api
from lineage_backfill.engines.airflow import engine as airflow
from lineage_backfill.errors import ConflictError, EngineError
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.text import parse
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, Engine, Origin
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

    def state(self, dag: str, run: str) -> str:
        """Return the state of a run."""
        return str(self.ask("GET", f"/dags/{dag}/dagRuns/{run}")["state"])


class Wire(requests.Session):
    """The requests of one engine, which dies at the one of this number: unsent, or unanswered.

    Those that only describe a DAG are not counted.
    """

    def __init__(self, limit: int | None = None, *, arrives: bool = False) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.runs = 0
        self.is_dead = False
        self._limit = limit
        self._arrives = arrives

    def send(self, request: Any, **settings: Any) -> Any:
        """Send a request, as long as the engine lives."""
        counts = "dagRuns" in request.path_url or "/clear" in request.path_url
        if not self.is_dead and (not counts or self.runs != self._limit):
            self.sent.append(f"{request.method} {request.path_url.partition('?')[0]}")
            self.runs += counts
            return super().send(request, **settings)
        if not self.is_dead and self._arrives:
            super().send(request, **settings)
        self.is_dead = True
        if threading.current_thread() is threading.main_thread():
            raise Crash
        raise requests.ConnectionError("the process has died")


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Desk:
    """Makes engines, and run specs of jobs named `dag.task`."""

    def __init__(self, place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.folder = folder
        self._patch = monkeypatch
        self._open: list[Engine] = []

    def engine(self, wire: Wire | None = None, *, kind: str | None = None, **more: Any) -> Engine:
        """Make an engine whose requests pass over a wire."""

        def task(job: JobRef) -> DagTasks:
            dag, _, name = job.name.partition(".")
            return DagTasks(dag=dag, tasks=tuple(name.split("+")), slice=kind)

        login = {"username": "op", "password": "op", **more}
        settings = {"url": self.place.url, "poll": 0.3, "tasks": task, **login}
        settings["calendar"] = lambda _job: HOURS
        with self._patch.context() as patch:
            if wire is not None:
                patch.setattr(requests, "Session", lambda: wire)
            engine = create_engine("airflow", settings, project=self.folder, state_dir=self.folder)
        self._open.append(engine)
        return engine

    def spec(self, job: str, at: datetime, *, attempt: int = 1, key: str = "", **more: Any) -> Path:
        """Write the run spec of an hour, or of a key."""
        token = uuid4().hex[:20]
        path = self.folder / f"{token}-{attempt}.spec.json"
        interval = {"start": at.isoformat(), "end": (at + timedelta(hours=1)).isoformat()}
        spec = {
            "run_id": token,
            "backfill_id": "b-1",
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

    def began(self, path: Path, ago: float = 5) -> Path:
        """Let the inputs of a run spec be written seconds ago; returns its path."""
        since = datetime.now(UTC) - timedelta(seconds=ago)
        claim = {"engine": "airflow", "since": since.isoformat()}
        path.with_name(path.name.replace("spec.json", "claim.json")).write_text(json.dumps(claim))
        return path

    def live(self, engine: Engine, job: str) -> set[str]:
        """Return the keys of a job that runs under way are for."""
        told = engine.live(JobRef("n", job))
        assert told is not None
        return labels(HOURS, parse(HOURS, told))

    def check(self, engine: Engine, paths: Sequence[Path]) -> None:
        """Let an engine check the runs of some run specs, each on its own."""
        specs = {(spec := json.loads(path.read_text()))["run_id"]: spec for path in paths}
        runs = [
            structs.replace(planned(spec["job"]["name"]), id=name) for name, spec in specs.items()
        ]
        engine.check(runs, lambda run: specs[run.id])

    def submit(self, engine: Engine, path: Path) -> str:
        """Submit a run spec."""
        return engine.submit(path, json.loads(path.read_text())["token"])

    def run(self, job: str, at: datetime, **more: Any) -> AttemptState:
        """Run a job to its end."""
        engine = self.engine(kind=more.pop("kind", None))
        return self.wait(engine, self.submit(engine, self.spec(job, at, **more)))

    def wait(self, engine: Engine, handle: str) -> AttemptState:
        """Wait for the end of an attempt."""
        until(lambda: engine.poll(handle).state.is_final)
        return engine.poll(handle).state

    def close(self) -> None:
        """Close all engines."""
        for engine in self._open:
            engine.close()


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
location = "data"

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

    #: Seconds that a run is held for whose other tasks are marked.
    hold: float
    #: Whether the last request of a process that dies arrives.
    arrivals: Sequence[bool]

    @abstractmethod
    @pytest.fixture
    def place(self) -> Any:
        """A running Airflow."""

    @pytest.fixture
    def hour(self, place: Place) -> datetime:
        """An hour that no other test uses."""
        return place.fresh()

    @pytest.fixture
    def desk(self, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
        monkeypatch.setattr(airflow, "HOLD", timedelta(seconds=self.hold))
        for name in ("go", "fails"):
            (place.folder / name).unlink(missing_ok=True)
        made = Desk(place, tmp_path, monkeypatch)
        yield made
        made.close()

    def test_a_missing_run_is_made_with_the_interval_of_its_key(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        assert desk.run("one.build", hour) is AttemptState.SUCCEEDED
        (line,) = place.started("one.build", hour)
        assert line["run"].startswith("lb__")
        assert line["end"] == str(hour + timedelta(hours=1))
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

    def test_only_the_wanted_task_of_a_new_run_runs_and_the_next_one_is_cleared(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        assert desk.run("three.b", hour) is AttemptState.SUCCEEDED
        assert [len(place.started(f"three.{name}", hour)) for name in "abc"] == [0, 1, 0]
        assert desk.run("three.c", hour) is AttemptState.SUCCEEDED
        assert desk.run("three.a+b", hour) is AttemptState.SUCCEEDED
        assert [len(place.started(f"three.{name}", hour)) for name in "abc"] == [1, 2, 1]

    def test_the_jobs_of_a_dag_run_that_follow_each_other_are_started_at_once(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        for number, origin in enumerate([Origin.CREATED, Origin.RERUN], start=1):
            wire = Wire()
            engine = desk.engine(wire)
            told: dict[str, Any] = {"backfill_id": f"b-{uuid4().hex}", "parameters": {"rate": "2"}}
            if number == 2:
                del told["parameters"]
            paths = [desk.spec(f"three.{name}", hour, **told) for name in "abc"]
            ids = [path.name.partition("-")[0] for path in paths]
            upstream = [(), *((name,) for name in ids)]
            specs = {
                name: json.loads(path.read_text()) for name, path in zip(ids, paths, strict=True)
            }
            runs = [
                structs.replace(planned(f"three.{task}"), id=name, upstream=above)
                for task, name, above in zip("abc", ids, upstream[:3], strict=True)
            ]
            engine.check(runs, lambda run: specs[run.id])  # noqa: B023
            wire.sent.clear()
            for path in paths:
                handle = desk.submit(engine, path)
                assert desk.wait(engine, handle) is AttemptState.SUCCEEDED, engine.poll(handle)
                found = engine.identify(handle)
                assert (found and found.origin) is origin, (path, found)
            lines = [place.started(f"three.{name}", hour) for name in "abc"]
            assert [[line["try"] for line in one] for one in lines] == [[*range(1, number + 1)]] * 3
            assert len({line["run"] for one in lines for line in one}) == 1
            create = "POST /api/v2/dags/three/dagRuns"
            clear = "POST /api/v2/dags/three/clearTaskInstances"
            begun = [line for line in wire.sent if line in (create, clear)]
            expected = [create] if number == 1 else [clear, clear]  # one only asks
            assert begun == expected, (number, wire.sent)

    def test_a_task_below_one_that_was_skipped_runs(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        for task in "abc":
            if task != "b":
                assert desk.run(f"three.{task}", hour) is AttemptState.SUCCEEDED
        assert [len(place.started(f"three.{name}", hour)) for name in "abc"] == [1, 0, 1]

    def test_a_run_of_an_older_version_of_its_dag(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        """What clears it would run the tasks that came later, too."""
        place.start("versioned", hour, run := f"theirs-{uuid4().hex}")
        until(lambda: place.state("versioned", run) == "success")
        (place.folder / "newer").touch()
        try:
            until(lambda: len(place.ask("GET", "/dags/versioned/tasks")["tasks"]) == 2)
            engine = desk.engine()
            handle = desk.submit(engine, desk.spec("versioned.check", hour))
            assert desk.wait(engine, handle) is AttemptState.FAILED
            assert "of an older version of the DAG" in str(engine.poll(handle).error)
            with pytest.raises(EngineError, match="is older than task check: clearing it would"):
                desk.submit(engine, desk.spec("versioned.build", hour))
        finally:
            (place.folder / "newer").unlink()
        assert [one["try"] for one in place.started("versioned.build", hour)] == [1]

    def test_a_task_runs_with_its_setup_and_teardown(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        for tries in (1, 2):  # created, and cleared
            assert desk.run("framed.build", hour) is AttemptState.SUCCEEDED
            until(lambda: len(place.started("framed.end", hour)) == tries)  # noqa: B023
            run = place.started("framed.end", hour)[-1]["run"]
            until(lambda: place.state("framed", run) == "success")  # noqa: B023
            lines = [place.started(f"framed.{name}", hour) for name in ("begin", "build", "before")]
            assert [[line["try"] for line in one] for one in lines] == [
                [*range(1, tries + 1)],
                [*range(1, tries + 1)],
                [],
            ]

    @pytest.mark.parametrize("state", ["succeeded", "failed"])
    def test_what_the_job_says_in_its_result_file_is_the_outcome(
        self, place: Place, desk: Desk, hour: datetime, state: str
    ) -> None:
        engine, path = desk.engine(kind="conf"), desk.spec("slow.build", hour)
        handle = desk.submit(engine, path)
        until(lambda: engine.poll(handle).state is AttemptState.RUNNING)
        spec = json.loads(path.read_text())
        error = {"class": "InputChangedError", "message": "rows are no more", "transient": True}
        result = {"state": state, "token": spec["token"], "outputs": [], "inputs": []}
        result["error"] = error if state == "failed" else None
        Path(spec["result_path"]).write_text(json.dumps(result))
        if state == "failed":
            (place.folder / "fails").touch()
        (place.folder / "go").touch()
        assert desk.wait(engine, handle).value == state
        outcome = engine.poll(handle)
        if state == "succeeded":
            assert outcome.result == result
        else:
            assert outcome.transient
            said = "task build is failed after try 1: InputChangedError: rows are no more"
            assert outcome.error == said

    def test_an_undo_is_the_run_spec_of_a_run_of_its_own(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        assert not desk.engine().can_undo
        path = desk.spec("one.build", hour, undo=["t-1"])
        spec = json.loads(path.read_text())
        with pytest.raises(EngineError, match=r"one\.build cannot be undone: with slice interval"):
            desk.engine(undo=True).check([planned("one.build")], lambda _run: spec)
        engine = desk.engine(undo=True, kind="conf")
        assert engine.can_undo
        handle = desk.submit(engine, path)
        assert desk.wait(engine, handle) is AttemptState.FAILED  # this task has heeded nothing
        assert "left no result of an undo" in str(engine.poll(handle).error)
        confs = [line["conf"].get("lineage_backfill", {}) for line in place.journal()]
        assert [one["spec"]["undo"] for one in confs if one.get("token") == spec["token"]] == [
            ["t-1"]
        ]

    def test_what_is_under_way_counts_only_if_it_began_later(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        place.start("slow", hour, f"theirs-{uuid4().hex}")
        until(lambda: place.started("slow.build", hour))
        engine = desk.engine()
        handle = desk.submit(engine, desk.spec("slow.build", hour))
        time.sleep(1)
        assert not engine.poll(handle).state.is_final
        assert len(place.started("slow.build", hour)) == 1
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED, engine.poll(handle)
        assert len(place.started("slow.build", hour)) == 2

    def test_what_begins_after_the_inputs_were_written_is_followed(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine = desk.engine()
        path = desk.began(desk.spec("slow.build", hour))
        place.start("slow", hour, f"theirs-{uuid4().hex}")
        until(lambda: place.started("slow.build", hour))
        handle = desk.submit(engine, path)
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        assert len(place.started("slow.build", hour)) == 1

    @pytest.mark.parametrize(
        ("job", "kind", "form", "written"),
        [
            ("hourly.build", "partition_key %Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H", None),
            ("rollup.build", None, "%Y-%m-%d", None),
            ("monthly.build", "partition_key %Y-%m", "%Y-%m-01", None),
            (
                "by_hand.build",
                "partition_key",
                "an odd | %%_ %Y-%m-%dT%H",
                "an odd | %%_ %Y-%m-%dT%H",
            ),
        ],
    )
    def test_a_partition_key_is_created_and_then_cleared_as_its_dag_writes_it(
        self, place: Place, desk: Desk, job: str, kind: str | None, form: str, written: str | None
    ) -> None:
        number = (place.fresh() - DAY) // timedelta(hours=1)
        at = datetime(2000 + number // 12, 1 + number % 12, 1, tzinfo=UTC)  # a month of its own
        text = at.strftime(written or (kind or "").partition(" ")[2] or form)
        for _ in range(2):
            state = desk.run(job, at, kind=kind, key=at.strftime(form))
            assert state is AttemptState.SUCCEEDED
        first, second = place.of_key(job, text)
        assert first[0].startswith("lb__")
        assert second == (first[0], 2)

    def test_of_several_runs_of_a_key_none_run_at_once(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine, key = desk.engine(), f"{hour:%Y-%m-%dT%H}"
        older = place.start_key("slow_key", key)
        until(lambda: place.of_key("slow_key.build", key))
        path = desk.began(desk.spec("slow_key.build", hour), ago=0)
        newer = place.start_key("slow_key", key)
        until(lambda: len(place.of_key("slow_key.build", key)) == 2)
        assert key in desk.live(engine, "slow_key.build")
        handle = desk.submit(engine, path)
        time.sleep(1)
        assert len(place.of_key("slow_key.build", key)) == 2
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        # The newer one began after the inputs were written, and while the older one still ran.
        assert place.of_key("slow_key.build", key) == [(older, 1), (newer, 1), (newer, 2)]

    def test_the_newest_run_of_a_key_counts_if_it_began_after_the_others(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine, key = desk.engine(), f"{hour:%Y-%m-%dT%H}"
        (place.folder / "go").touch()
        older = place.start_key("slow_key", key)
        until(lambda: place.state("slow_key", older) == "success")
        (place.folder / "go").unlink()
        path = desk.began(desk.spec("slow_key.build", hour), ago=0)
        newer = place.start_key("slow_key", key)
        until(lambda: len(place.of_key("slow_key.build", key)) == 2)
        handle = desk.submit(engine, path)
        found = engine.identify(handle)
        assert found is not None
        assert (found.origin, found.id) == (Origin.ADOPTED, f"slow_key/{newer}")
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        assert place.of_key("slow_key.build", key) == [(older, 1), (newer, 1)]

    def test_a_run_of_a_key_stays_that_of_the_attempt_when_others_start_one(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine, key, path = desk.engine(), f"{hour:%Y-%m-%dT%H}", desk.spec("slow_key.build", hour)
        (place.folder / "go").touch()
        ours = place.start_key("slow_key", key)
        until(lambda: place.state("slow_key", ours) == "success")
        (place.folder / "go").unlink()
        handle = desk.submit(engine, path)
        until(lambda: place.of_key("slow_key.build", key) == [(ours, 1), (ours, 2)])
        theirs = place.start_key("slow_key", key)
        until(lambda: (theirs, 1) in place.of_key("slow_key.build", key))
        engine.close()
        other = desk.engine()
        assert other.find(path, json.loads(path.read_text())["token"]) == handle
        found = other.identify(handle)
        assert found is not None
        assert (found.origin, found.id) == (Origin.RERUN, f"slow_key/{ours}")
        (place.folder / "go").touch()
        assert desk.wait(other, handle) is AttemptState.SUCCEEDED
        until(lambda: place.state("slow_key", theirs) == "success")
        assert len(place.of_key("slow_key.build", key)) == 3

    @pytest.mark.parametrize(
        ("job", "kind", "said"),
        [
            ("hourly.build", "partition_key", "writes partition keys as .*T.*:00:00, and not as"),
            ("rollup.build", "interval", "DAG rollup is partitioned"),
            ("one.build", "partition_key", "DAG one is not partitioned"),
        ],
    )
    def test_a_key_that_would_be_another_one_is_refused_before_anything_starts(
        self, place: Place, desk: Desk, job: str, kind: str, said: str
    ) -> None:
        if job == "hourly.build":
            place.start_key("hourly", "2001-01-01T00:00:00")
        spec = json.loads(desk.spec(job, DAY).read_text())
        with pytest.raises(EngineError, match=said) as refused:
            desk.engine(kind=kind).check([planned(job)], lambda _run: spec)
        assert refused.value.hint

    def test_each_instance_of_a_mapped_task_runs_once(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        (place.folder / "fails").touch()
        assert desk.run("mapped.build", hour) is AttemptState.FAILED
        (place.folder / "fails").unlink()
        for _ in range(2):
            assert desk.run("mapped.build", hour) is AttemptState.SUCCEEDED
        tries = [line["try"] for line in place.started("mapped.build", hour)]
        assert sorted(tries) == [1, 1, 2, 2, 3, 3]

    def test_a_mapped_task_of_others_is_adopted_whole(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine, path = desk.engine(), desk.began(desk.spec("mapped.build", hour))
        place.start("mapped", hour, f"theirs-{uuid4().hex}")
        until(lambda: place.started("mapped.build", hour))
        handle = desk.submit(engine, path)
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED, engine.poll(handle)
        found = engine.identify(handle)
        assert found is not None
        assert found.origin is Origin.ADOPTED
        assert [line["try"] for line in place.started("mapped.build", hour)] == [1, 1]

    def test_a_failure_is_one_and_the_next_attempt_clears_it(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        (place.folder / "fails").touch()
        engine = desk.engine()
        handle = desk.submit(engine, desk.spec("one.build", hour))
        assert desk.wait(engine, handle) is AttemptState.FAILED
        failed = "task build is failed after try 1: ValueError: no such column"
        assert engine.poll(handle).error == failed
        assert "no such column" in log_of(handle)
        assert "task build, try 1:" in log_of(handle)
        (place.folder / "fails").unlink()
        assert desk.run("one.build", hour, attempt=2) is AttemptState.SUCCEEDED
        assert [line["try"] for line in place.started("one.build", hour)] == [1, 2]

    def test_tries_that_airflow_makes_again_are_waited_for(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        assert desk.run("retrying.build", hour) is AttemptState.SUCCEEDED
        (place.folder / "fails").touch()
        engine = desk.engine()
        path = desk.spec("retrying.build", hour)
        handle = desk.submit(engine, path)
        until(lambda: len(place.started("retrying.build", hour)) >= 2)
        assert not engine.poll(handle).state.is_final
        until(lambda: len(place.started("retrying.build", hour)) >= 3)
        (place.folder / "fails").unlink()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        last = place.started("retrying.build", hour)[-1]["try"]
        tries = re.findall(r"^task build, try (\d+):$", log_of(handle), re.MULTILINE)
        assert [*map(int, tries)] == [*range(2, last + 1)]  # the first was of another attempt
        engine.close()
        other = desk.engine()
        found = other.find(path, json.loads(path.read_text())["token"])
        assert found is not None
        assert desk.wait(other, found) is AttemptState.SUCCEEDED

    def test_a_job_that_a_task_stores_is_submitted_again_when_the_task_is_cleared(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        """Unless an earlier attempt of the run has submitted it, and could not wait for its end."""
        assert desk.run("durable.build", hour) is AttemptState.SUCCEEDED
        (place.folder / "fails").touch()
        name = uuid4().hex
        assert desk.run("durable.build", hour, run_id=name) is AttemptState.FAILED
        (place.folder / "fails").unlink()
        state = desk.run("durable.build", hour, run_id=name, attempt=2)
        assert state is AttemptState.SUCCEEDED
        assert [line["try"] for line in place.started("durable.build", hour)] == [1, 2]
        assert desk.run("durable.build", hour) is AttemptState.SUCCEEDED
        assert [line["try"] for line in place.started("durable.build", hour)] == [1, 2, 4]

    def test_cancel_stops_what_is_ours(self, place: Place, desk: Desk, hour: datetime) -> None:
        engine = desk.engine()
        for tries in (1, 2):  # created, and cleared
            handle = desk.submit(engine, desk.spec("slow.build", hour))
            until(lambda: len(place.started("slow.build", hour)) == tries)  # noqa: B023
            engine.cancel(handle)
            assert desk.wait(engine, handle) is AttemptState.CANCELLED
            run = place.started("slow.build", hour)[-1]["run"]
            until(lambda: place.state("slow", run) == "failed")  # noqa: B023

    @pytest.mark.parametrize("is_late", [False, True])
    def test_cancel_leaves_what_others_have_started(
        self, place: Place, desk: Desk, hour: datetime, is_late: bool
    ) -> None:
        path = desk.spec("slow.build", hour)
        if is_late:  # it counts, and is adopted; else it is waited for
            desk.began(path)
        run = f"theirs-{uuid4().hex}"
        place.start("slow", hour, run)
        until(lambda: place.started("slow.build", hour))
        engine = desk.engine()
        handle = desk.submit(engine, path)
        found = engine.identify(handle)
        assert (found and (found.origin, found.id)) == (
            (Origin.ADOPTED, f"slow/{run}") if is_late else None
        )
        engine.cancel(handle)
        assert desk.wait(engine, handle) is AttemptState.CANCELLED
        assert engine.poll(handle).error == "left running: someone else started it in Airflow"
        (place.folder / "go").touch()
        until(lambda: place.state("slow", run) == "success")
        assert len(place.started("slow.build", hour)) == 1

    def test_what_an_attempt_runs_as_is_known_to_each_engine(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        expected = [Origin.CREATED, Origin.RERUN, Origin.ADOPTED]
        places = [(hour, 1), (hour, 2), (place.fresh(), 1)]
        for origin, (at, tries) in zip(expected, places, strict=True):
            (place.folder / "go").unlink(missing_ok=True)
            engine, path = desk.engine(), desk.spec("slow.build", at)
            if origin is Origin.ADOPTED:
                desk.began(path)
                place.start("slow", at, f"theirs-{uuid4().hex}")
                until(lambda: place.started("slow.build", at))  # noqa: B023
            handle = desk.submit(engine, path)
            found = engine.identify(handle)
            assert found is not None
            assert found.origin is origin
            until(lambda: len(place.started("slow.build", at)) == tries)  # noqa: B023
            until(lambda: engine.poll(handle).state is AttemptState.RUNNING)  # noqa: B023
            engine.close()
            assert found.id == f"slow/{place.started('slow.build', at)[-1]['run']}"
            other = desk.engine()
            taken = other.find(path, json.loads(path.read_text())["token"])
            assert taken is not None
            assert other.identify(taken) == found
            (place.folder / "go").touch()
            assert desk.wait(other, taken) is AttemptState.SUCCEEDED
            assert other.identify(taken) == found

    def test_it_is_told_when_a_wait_has_become_a_run(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        run = f"theirs-{uuid4().hex}"
        place.start("slow", hour, run)
        until(lambda: place.started("slow.build", hour))
        engine = desk.engine()
        told: queue.SimpleQueue[str] = queue.SimpleQueue()
        engine.listen(told.put)
        handle = desk.submit(engine, desk.spec("slow.build", hour))
        assert engine.identify(handle) is None
        assert told.empty()
        (place.folder / "go").touch()
        assert told.get(timeout=60) == handle
        found = engine.identify(handle)
        assert found is not None
        assert (found.origin, found.id) == (Origin.RERUN, f"slow/{run}")
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED

    def test_what_an_earlier_attempt_of_the_run_has_started_is_ours_to_stop(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        for tries, origin in ((1, Origin.CREATED), (2, Origin.RERUN)):
            first, name = desk.engine(), uuid4().hex
            desk.submit(first, desk.spec("slow.build", hour, run_id=name))
            until(lambda: len(place.started("slow.build", hour)) == tries)  # noqa: B023
            first.close()
            engine = desk.engine()
            path = desk.began(desk.spec("slow.build", hour, attempt=2, run_id=name))
            handle = desk.submit(engine, path)
            found = engine.identify(handle)
            assert found is not None
            assert found.origin is origin
            engine.cancel(handle)
            assert desk.wait(engine, handle) is AttemptState.CANCELLED
            assert engine.poll(handle).error == "stopped by the user"
            run = place.started("slow.build", hour)[-1]["run"]
            until(lambda: place.state("slow", run) == "failed")  # noqa: B023

    def test_a_token_that_has_expired_is_renewed(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine = desk.engine(token="stale")
        engine.open()
        handle = desk.submit(engine, desk.spec("one.build", hour))
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED

    def test_an_airflow_that_stays_away_is_reported_once(
        self,
        place: Place,
        desk: Desk,
        hour: datetime,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(airflow_api, "_BACKOFF", 0.01)
        engine = desk.engine(wire := Wire())
        handle = desk.submit(engine, desk.spec("slow.build", hour))
        wire.is_dead = True
        time.sleep(2)
        wire.is_dead = False
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        said = [one.getMessage() for one in caplog.records if "retrying every" in one.getMessage()]
        assert len(said) == 1
        assert said[0].endswith("Check `url` of this engine and that its api-server runs.")

    @pytest.mark.parametrize(
        ("job", "more", "said"),
        [
            ("paused.build", {}, "DAG paused is paused"),
            ("nowhere.build", {}, "has no DAG nowhere"),
            ("one.bild", {}, "DAG one has no task bild"),
            ("only_scheduled.build", {}, "allows no manual runs"),
            ("plain.build", {}, "does not say which slice"),
            ("one.build", {"at": datetime(2025, 12, 31, tzinfo=UTC)}, "before the start_date"),
            ("one.build", {"at": datetime(2096, 1, 1, tzinfo=UTC)}, "in the future"),
            ("one.build", {"account": "viewer"}, "403"),
            ("one.build", {"account": "nobody"}, "401"),
            ("one.build", {"keys": []}, "has 0 keys"),
        ],
    )
    def test_what_would_do_nothing_is_refused_before_anything_starts(
        self, desk: Desk, job: str, more: dict[str, Any], said: str
    ) -> None:
        account = more.pop("account", "op") if "account" in more else "op"
        at = more.get("at", DAY)
        given = {"keys": more["keys"]} if "keys" in more else {}
        engine = desk.engine(username=account, password=account)
        spec = json.loads(desk.spec(job, at, **given).read_text())
        with pytest.raises(EngineError, match=said) as refused:
            engine.check([planned(job)], lambda _run: spec)
        assert refused.value.hint

    def test_a_good_run_is_not_refused(self, desk: Desk, hour: datetime) -> None:
        engine = desk.engine()
        engine.open()
        spec = json.loads(desk.spec("three.b", hour).read_text())
        engine.check([planned("three.b")], lambda _run: spec)

    def test_keys_of_queued_and_running_runs_are_live(self, place: Place, desk: Desk) -> None:
        running, queued, ended = (place.fresh() for _ in range(3))
        names = [f"theirs-{uuid4().hex}" for _ in range(3)]
        place.start("slow", ended, names[2])
        until(lambda: place.started("slow.build", ended))
        (place.folder / "go").touch()
        until(lambda: place.state("slow", names[2]) == "success")
        (place.folder / "go").unlink()
        place.start("slow", running, names[0])
        place.start("slow", queued, names[1], run_after="2090-01-01T00:00:00Z")
        until(lambda: place.started("slow.build", running))
        of = [f"{hour:%Y-%m-%dT%H}" for hour in (running, queued, ended)]
        engine = desk.engine()
        assert desk.live(engine, "slow.build") & {*of} == {*of[:2]}
        assert desk.live(desk.engine(kind="logical_date + 1h"), "slow.build") >= {
            f"{hour - timedelta(hours=1):%Y-%m-%dT%H}" for hour in (running, queued)
        }
        assert len(desk.live(desk.engine(kind="conf"), "slow.build")) > len(of)
        (place.folder / "go").touch()
        until(lambda: place.state("slow", names[0]) == "success")
        place.ask("PATCH", f"/dags/slow/dagRuns/{names[1]}?update_mask=state", {"state": "failed"})
        assert desk.live(engine, "slow.build").isdisjoint(of)

    def test_a_run_that_is_held_for_one_job_is_not_live_for_another(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine, key = desk.engine(), f"{hour:%Y-%m-%dT%H}"
        wire = Wire(2)
        with suppress(Crash):
            desk.submit(desk.engine(wire), desk.spec("three.b", hour))
        assert wire.sent[-1] == "POST /api/v2/dags/three/dagRuns"  # and its tasks are not marked
        assert key in desk.live(engine, "three.b")
        assert key not in desk.live(engine, "three.a")

    def test_a_backfill_of_airflow_is_under_way_on_all_keys(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        at = f"{hour:%FT%TZ}"
        body = {"dag_id": "slow", "from_date": at, "to_date": at}
        number = place.ask("POST", "/backfills", body)["id"]
        engine = desk.engine()
        assert len(desk.live(engine, "slow.build")) > 1
        with pytest.raises(ConflictError, match=rf"backfill {number} .* is under way on DAG slow"):
            engine.check([planned("slow.build")], lambda _run: {})
        place.ask("PUT", f"/backfills/{number}/pause")
        with pytest.raises(ConflictError, match=rf"backfill {number} .* is paused on DAG slow"):
            engine.live(JobRef("n", "slow.build"))
        place.ask("PUT", f"/backfills/{number}/cancel")
        desk.live(engine, "slow.build")

    def test_a_backfill_waits_for_a_run_of_others_or_is_refused(
        self, place: Place, tmp_path: Path, desk: Desk, hour: datetime
    ) -> None:
        run, said = (
            f"theirs-{uuid4().hex}",
            f"n:slow.build {hour:%Y-%m-%dT%H} is being run by others",
        )
        place.start("slow", hour, run)
        until(lambda: place.started("slow.build", hour))
        refuse = {"LINEAGE_BACKFILL_RUN_LIVE_RUNS": "refuse"}
        refused = backfill(place, tmp_path, "slow.build", hour, **refuse)
        _, told = refused.communicate(timeout=60)
        assert refused.returncode == 6
        assert said in told
        waits = backfill(place, tmp_path, "slow.build", hour)
        assert waits.stderr is not None
        assert any(said in line for line in waits.stderr)
        assert place.state("slow", run) == "running"
        (place.folder / "go").touch()
        _, told = waits.communicate(timeout=120)
        assert waits.returncode == 0, told
        lines = place.started("slow.build", hour)
        assert [(line["run"], line["try"]) for line in lines] == [(run, 1), (run, 2)]

    def test_what_is_refused_is_not_waited_for(self, desk: Desk) -> None:
        with pytest.raises(EngineError, match="DAG paused is paused"):
            desk.engine().live(JobRef("n", "paused.build"))

    def test_secrets_and_parameters_are_refused_where_they_would_show_or_be_lost(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        engine = desk.engine()
        secret = desk.spec("one.build", hour, parameters={"password": "s3cr3t-value"})
        with pytest.raises(EngineError, match="secret parameter"):
            desk.submit(engine, secret)
        told = desk.spec("one.build", hour, parameters={"rate": "2"})
        assert desk.wait(engine, desk.submit(engine, told)) is AttemptState.SUCCEEDED
        with pytest.raises(EngineError, match="passes no parameters"):
            desk.submit(engine, desk.spec("one.build", hour, parameters={"rate": "3"}))
        (line,) = place.started("one.build", hour)
        assert line["conf"]["lineage_backfill"]["spec"]["parameters"] == {"rate": "2"}

    def test_a_run_of_another_interval_is_refused(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        body = {"dag_run_id": f"theirs-{uuid4().hex}", "logical_date": hour.isoformat()}
        place.ask("POST", "/dags/one/dagRuns", body)
        engine = desk.engine()
        with pytest.raises(EngineError, match=r"covers .* not "):
            desk.submit(engine, desk.spec("one.build", hour))

    @pytest.mark.slow
    @pytest.mark.parametrize("limit", range(5))
    @pytest.mark.parametrize("scene", ["created", "held", "cleared", "waited"])
    def test_a_process_that_dies_between_any_two_requests_is_taken_over(
        self, place: Place, desk: Desk, scene: str, limit: int
    ) -> None:
        for arrives in self.arrivals:
            hour = place.fresh()
            self._dies_at(place, desk, scene, Wire(limit, arrives=arrives), hour)

    def _dies_at(self, place: Place, desk: Desk, scene: str, wire: Wire, hour: datetime) -> None:
        """Let an engine die at a request, and another one take over."""
        job = {"held": "three.b", "waited": "slow.build"}.get(scene, "one.build")
        (place.folder / "go").unlink(missing_ok=True)
        if scene in ("cleared", "waited"):
            place.start(job.partition(".")[0], hour, f"theirs-{uuid4().hex}")
            until(lambda: place.started(job, hour))
        if scene == "cleared":
            until(lambda: self._has_ended(place, hour))
        before = len(place.started(job, hour))
        path = desk.spec(job, hour)
        token = json.loads(path.read_text())["token"]
        first = desk.engine(wire)
        with suppress(Crash):
            handle = first.submit(path, token)
            (place.folder / "go").touch()
            until(lambda: wire.is_dead or first.poll(handle).state.is_final)
        first.close()
        (place.folder / "go").touch()
        second = desk.engine()
        found = second.find(path, token)
        if found is None:
            found = desk.submit(second, desk.spec(job, hour, attempt=2))
        assert desk.wait(second, found) is AttemptState.SUCCEEDED, second.poll(found)
        second.close()
        assert len(place.started(job, hour)) == before + 1
        if scene == "held":
            assert not place.started("three.a", hour)
            assert not place.started("three.c", hour)

    def _has_ended(self, place: Place, hour: datetime) -> bool:
        run = place.started("one.build", hour)[-1]["run"]
        return place.state("one", run) == "success"

    def test_a_run_that_appears_after_the_runs_were_listed_is_run_again(
        self, place: Place, desk: Desk
    ) -> None:
        hours = [place.fresh() for _ in range(3)]
        wire = Wire()
        engine = desk.engine(wire)
        paths = [desk.spec("one.build", hour) for hour in hours]
        desk.check(engine, paths)
        wire.sent.clear()
        assert desk.wait(engine, desk.submit(engine, paths[0])) is AttemptState.SUCCEEDED
        place.start("one", hours[1], f"theirs-{uuid4().hex}")
        until(lambda: place.started("one.build", hours[1]) and self._has_ended(place, hours[1]))
        assert desk.wait(engine, desk.submit(engine, paths[1])) is AttemptState.SUCCEEDED
        wire.sent.clear()
        assert desk.wait(engine, desk.submit(engine, paths[2])) is AttemptState.SUCCEEDED
        assert wire.sent[0] == "POST /api/v2/dags/one/dagRuns"  # the list said that it is free
        lines = [place.started("one.build", hour) for hour in hours]
        assert [[line["try"] for line in tries] for tries in lines] == [[1], [1, 2], [1]]
        assert [len({line["run"] for line in tries}) for tries in lines] == [1, 1, 1]

    def test_what_is_being_started_is_not_looked_at_meanwhile(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        """What was read before a clear would else be judged after it, and cleared again."""

        class Slow(Wire):
            def send(self, request: Any, **settings: Any) -> Any:
                time.sleep(1 if "/clear" in request.path_url else 0)
                return super().send(request, **settings)

        assert desk.run("one.build", hour) is AttemptState.SUCCEEDED
        engine = desk.engine(wire := Slow())
        handle = desk.submit(engine, desk.spec("one.build", hour))
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        assert wire.sent.count("GET /api/v2/dags/one/dagRuns") == 1

    def test_tasks_of_a_key_that_ran_after_they_were_listed_are_read_again(
        self, place: Place, desk: Desk
    ) -> None:
        hours = [place.fresh() for _ in range(4)]
        keys = [f"{hour:%Y-%m-%dT%H}" for hour in hours]
        (place.folder / "go").touch()
        theirs = [place.start_key("slow_key", key) for key in keys]
        until(lambda: all(place.state("slow_key", run) == "success" for run in theirs))
        engine = desk.engine(wire := Wire())
        paths = [desk.spec("slow_key.build", hour) for hour in hours]
        specs = {(spec := json.loads(path.read_text()))["run_id"]: spec for path in paths}
        first, *_ = specs
        runs = [
            structs.replace(
                planned("slow_key.build"), id=name, upstream=() if name == first else (first,)
            )
            for name in specs
        ]
        engine.check(runs, lambda run: specs[run.id])
        assert desk.wait(engine, desk.submit(engine, paths[0])) is AttemptState.SUCCEEDED
        clear: dict[str, Any] = {"dag_run_id": theirs[1], "task_ids": ["build"], "note": "by hand"}
        clear |= {"dry_run": False, "only_failed": False, "prevent_running_task": True}
        place.ask("POST", "/dags/slow_key/clearTaskInstances", clear)
        until(lambda: len(place.of_key("slow_key.build", keys[1])) == 2)
        handle = desk.submit(engine, paths[1])
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        found = engine.identify(handle)
        assert found is not None
        assert found.origin is Origin.ADOPTED
        wire.sent.clear()
        assert desk.wait(engine, desk.submit(engine, paths[2])) is AttemptState.SUCCEEDED
        begun = wire.sent[: wire.sent.index("POST /api/v2/dags/slow_key/clearTaskInstances")]
        assert [line.partition(" ")[0] for line in begun] == ["GET", "DELETE"]
        tries = [[number for _, number in place.of_key("slow_key.build", key)] for key in keys]
        assert tries == [[1, 2], [1, 2], [1, 2], [1]]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("job", "kind"),
        [
            ("one.build", "interval"),
            ("plain.build", "logical_date"),
            ("slow_key.build", "partition_key"),
        ],
    )
    def test_many_runs_take_few_requests_each(
        self, place: Place, desk: Desk, job: str, kind: str
    ) -> None:
        """Twenty runs at once: those of a DAG that runs two at once wait in Airflow."""
        (place.folder / "go").touch()
        hours = [place.fresh() for _ in range(20)]
        for tries in (1, 2):  # created, and cleared
            sent = self.requests_of(place, desk, job, hours, tries, kind=kind)
            assert sent.total() <= 5 * 20, sent

    @pytest.mark.slow
    def test_runs_whose_asset_starts_nothing_yet_take_few_requests_too(
        self, place: Place, desk: Desk
    ) -> None:
        """One hour of each of many days: a rollup of the days starts none of them."""
        numbers = [(place.fresh() - DAY) // timedelta(hours=1) for _ in range(12)]
        hours = [datetime(1960, 1, 1, tzinfo=UTC) + timedelta(days=number) for number in numbers]
        form = "partition_key %Y-%m-%dT%H:%M:%S"
        for tries in (1, 2):
            sent = self.requests_of(place, desk, "hourly.build", hours, tries, kind=form)
            assert sent.total() <= 5 * 12, sent
            assert sent["GET /api/v2/assets/events"] <= 6, sent

    def requests_of(
        self,
        place: Place,
        desk: Desk,
        job: str,
        hours: Sequence[datetime],
        tries: int = 1,
        kind: str | None = None,
    ) -> Counter[str]:
        """Run a job once for each hour; return how often each request was sent."""
        wire = Wire()
        engine = desk.engine(wire, kind=kind, poll=4)
        ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        engine.listen(ended.put)
        paths = [desk.spec(job, hour) for hour in hours]
        desk.check(engine, paths)
        wire.sent.clear()
        before = len(place.journal())
        left = {desk.submit(engine, path) for path in paths}
        while left:
            handle = ended.get(timeout=120)
            if engine.poll(handle).state.is_final:
                assert engine.poll(handle).state is AttemptState.SUCCEEDED
                left.discard(handle)
        lines = place.journal()[before:]
        ran = [
            one for one in lines if one["task"] == job and not one["run"].startswith("scheduled")
        ]
        assert [line["try"] for line in ran] == [tries] * len(hours)
        assert len({(line["start"], line["key"]) for line in ran}) == len(hours)
        return Counter(wire.sent)
