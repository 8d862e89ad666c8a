"""The Databricks engine on a workspace that speaks the vendor's wire format."""

from __future__ import annotations

import json
import queue
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk.clock import RealClock
from databricks.sdk.service import jobs
from databricks.sdk.service.jobs import TerminationCodeCode as Code
from databricks.sdk.service.jobs import TerminationTypeType as Type

from lineage_backfill.engines import create_engine, lists
from lineage_backfill.engines.databricks import api
from lineage_backfill.engines.databricks.engine import DatabricksEngine
from lineage_backfill.engines.databricks.jobs import MAIN
from lineage_backfill.engines.lists import ListEngine
from lineage_backfill.engines.spark.shipping import pack_code, pack_runtime
from lineage_backfill.errors import (
    ConfigError,
    EngineRefusalError,
    ServiceUnreachableError,
    UnfitRunError,
)
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.ports import AttemptState, Engine, EngineRun, Origin, Outcome
from tests.fake_databricks import GOOD, VOLUME, Ends, FakeRun, FakeWorkspace, serve
from tests.fakes import log_of, planned_run
from tests.unit.partitions.support import calendar

DAILY = JobRef("n", "daily")


@dataclass
class Bench:
    """An engine on a fake workspace, and the ends that it reports."""

    fake: FakeWorkspace
    folder: Path
    url: str
    ended: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    engines: list[DatabricksEngine] = field(default_factory=list)

    def engine(self, **settings: Any) -> DatabricksEngine:
        given = {"host": self.url, "token": "dapi-1", "poll": 0.01, **settings}
        handed = {name: given.pop(name) for name in ("calendar", "conf") if name in given}
        made = DatabricksEngine(
            project=self.folder, state_dir=self.folder / "state", **handed, **given
        )
        made.listen(self.ended.put)
        self.engines.append(made)
        return made

    def spec(self, token: str = "t-1", *, job: str = "daily", **more: Any) -> Path:
        folder = self.folder / "runs" / token
        folder.mkdir(parents=True, exist_ok=True)
        day = more.pop("key", "2024-06-15")
        spec = {
            "run_id": f"r-{token}",
            "attempt": 1,
            "token": token,
            "job": {"namespace": "n", "name": job, "entrypoint": ""},
            "keys": [{"key": day, "start": f"{day}T00:00:00Z", "end": None}],
            "outputs": [],
            "result_path": str(folder / "result.json"),
            **more,
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        return folder / "spec.json"

    def end(self, engine: DatabricksEngine, handle: str) -> Outcome:
        while not (outcome := engine.poll(handle)).state.is_final:
            assert self.ended.get(timeout=10) in (handle, *self.handles(engine))
        return outcome

    def handles(self, engine: DatabricksEngine) -> list[str]:
        return [str(path) for path in self.folder.glob("runs/*/spec.json")]

    def run(self, engine: DatabricksEngine, **spec: Any) -> Outcome:
        """Run one attempt to its end."""
        return self.end(engine, engine.submit(self.spec(**spec), spec.get("token", "t-1")))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    hasten(monkeypatch)
    fake = FakeWorkspace(tmp_path)
    with serve(fake) as url:
        made = Bench(fake, tmp_path, url)
        yield made
        for engine in made.engines:
            engine.close()


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK's pauses between its requests take no time."""
    slept = [0.0]

    def sleep(_self: RealClock, seconds: float) -> None:
        slept[0] += seconds

    monkeypatch.setattr(RealClock, "sleep", sleep)
    monkeypatch.setattr(RealClock, "time", lambda _self: time.time() + slept[0])


def three_months() -> Calendar:
    return calendar(grain="day", start="2024-01-01", end="2024-03-31")


# Jobs that exist


def test_a_job_that_exists_runs_with_the_key_and_its_own_token(bench: Bench) -> None:
    bench.fake.job("daily", "backfill_key")
    engine = bench.engine()
    assert bench.run(engine).state is AttemptState.SUCCEEDED
    (run,) = bench.fake.started("daily")
    assert (run.parameters, run.token, run.only) == ({"backfill_key": "2024-06-15"}, "t-1", [])
    handle = str(bench.folder / "runs" / "t-1" / "spec.json")
    facts = {"token": "t-1"}
    created = EngineRun(origin=Origin.CREATED, id=str(run.id), facts=facts)
    assert engine.identify(handle) == created
    assert "did load" in log_of(handle)


def test_conf_and_only_of_the_project_decide_what_runs(bench: Bench) -> None:
    number = bench.fake.job("shop", "day", "since")
    engine = bench.engine(
        jobs={"daily": {"job": number, "only": ["load"]}},
        conf=lambda _job: {"day": "{key}", "since": "from {start}"},
    )
    assert bench.run(engine).state is AttemptState.SUCCEEDED
    (run,) = bench.fake.started("shop")
    assert run.parameters == {"day": "2024-06-15", "since": "from 2024-06-15T00:00:00Z"}
    assert run.only == ["load"]


def test_a_job_that_takes_the_run_spec_reads_it_in_the_volume_and_leaves_its_result_there(
    bench: Bench,
) -> None:
    bench.fake.job("daily", "backfill_key", "lineage_backfill_spec")
    bench.fake.does["daily"] = lambda run: leave_result(bench.fake, run)
    outcome = bench.run(bench.engine(volume=VOLUME))
    assert outcome.state is AttemptState.SUCCEEDED
    assert outcome.result is not None
    assert outcome.result["token"] == "t-1"


def leave_result(fake: FakeWorkspace, run: FakeRun, **more: Any) -> Ends:
    """Do what spark_runtime does with a run spec."""
    there = fake.volume / run.parameters["lineage_backfill_spec"].removeprefix(VOLUME + "/")
    spec = json.loads(there.read_text())
    result = {"token": spec["token"], "state": "succeeded", "outputs": [], "inputs": [], **more}
    path = fake.volume / spec["result_path"].removeprefix(VOLUME + "/")
    path.write_text(json.dumps(result))
    return GOOD


@pytest.mark.parametrize(
    ("deployed", "settings", "spec", "message"),
    [
        ((), {}, {}, "has no job daily"),
        (("Daily", "backfill_key"), {}, {}, "has no job daily"),
        (("daily",), {}, {}, "takes no key, and would run for one of its own"),
        (("daily", "day"), {"conf": lambda _job: {"date": "{key}"}}, {}, "no parameter date"),
        (("daily", "backfill_key"), {}, {"parameters": {"mode": "x"}}, "no parameter mode"),
        (("daily", "backfill_key"), {}, {"keys": [{"key": "a"}, {"key": "b"}]}, "has 2 keys"),
        (("daily", "backfill_key"), {}, {"undo": [{}]}, "cannot be undone"),
        (("daily", "lineage_backfill_spec"), {}, {}, "has no `volume`"),
        (
            ("daily", "backfill_key"),
            {"jobs": {"daily": {"job": "daily", "only": ["lod"]}}},
            {},
            "has no task lod",
        ),
        (
            ("daily", "backfill_key", "token"),
            {},
            {"parameters": {"token": "env:TOKEN"}},
            "a secret parameter cannot be passed",
        ),
        ((), {}, {"job": {"namespace": "n", "name": "d", "entrypoint": "m:f"}}, "no `cluster`"),
    ],
)
def test_what_would_run_for_other_keys_is_refused_before_anything_starts(
    bench: Bench,
    deployed: tuple[str, ...],
    settings: dict[str, Any],
    spec: dict[str, Any],
    message: str,
) -> None:
    if deployed:
        bench.fake.job(*deployed)
    made = json.loads(bench.spec(**spec).read_text()) if "job" not in spec else None
    made = made or {**json.loads(bench.spec().read_text()), **spec}
    with pytest.raises(UnfitRunError, match=message):
        bench.engine(**settings).check([planned_run("r-1", job="daily")], lambda _run: made)
    assert not bench.fake.runs


def test_a_serverless_task_that_takes_the_run_spec_is_refused_by_name(bench: Bench) -> None:
    task = jobs.Task(
        task_key="load",
        environment_key="default",
        python_wheel_task=jobs.PythonWheelTask("main", "shop"),
    )
    bench.fake.job("daily", "lineage_backfill_spec", tasks=[task])
    spec = json.loads(bench.spec().read_text())
    with pytest.raises(UnfitRunError, match="task load of job daily runs on serverless"):
        bench.engine(volume=VOLUME).check([planned_run("r", job="daily")], lambda _run: spec)


def test_two_jobs_of_the_lineage_that_are_one_job_there_need_their_tasks_named(
    bench: Bench,
) -> None:
    bench.fake.job("shop", "backfill_key")
    runs = [planned_run("r-1", job="a"), planned_run("r-2", job="b")]

    def check(**named: Any) -> None:
        bench.engine(jobs=named).check(
            runs, lambda run: json.loads(bench.spec(job=run.job.name).read_text())
        )

    with pytest.raises(UnfitRunError, match="a and b are one job in Databricks, shop"):
        check(a="shop", b="shop")
    check(a={"job": "shop", "only": ["load"]}, b={"job": "shop", "only": ["check"]})


def test_names_of_a_development_target_are_found_and_never_guessed(bench: Bench) -> None:
    bench.fake.job("[dev ana_maria] daily", "backfill_key")
    with pytest.raises(UnfitRunError, match="has no job daily") as refused:
        bench.engine().submit(bench.spec(), "t-1")
    assert 'There is "[dev ana_maria] daily"' in refused.value.hint
    assert bench.run(bench.engine(development=True)).state is AttemptState.SUCCEEDED
    bench.fake.job("[dev ana_maria] daily", "backfill_key")
    with pytest.raises(UnfitRunError, match=r"has 2 jobs .*: 100, 101"):
        bench.engine(development=True).submit(bench.spec("t-2"), "t-2")


# Jobs that do not


def own(bench: Bench, **settings: Any) -> DatabricksEngine:
    return bench.engine(volume=VOLUME, cluster={"existing_cluster_id": "c-1"}, **settings)


def entry(action: str) -> Mapping[str, str]:
    return {"namespace": "n", "name": "mine", "entrypoint": f"fake:{action}"}


def test_a_job_with_an_entrypoint_is_submitted_with_its_code(bench: Bench) -> None:
    (bench.folder / "shop.py").write_text("def daily(): ...\n")
    path = bench.spec()
    path.write_text(json.dumps({**json.loads(path.read_text()), "job": entry("succeed")}))
    engine = own(bench)
    outcome = bench.end(engine, engine.submit(path, "t-1"))
    assert outcome.state is AttemptState.SUCCEEDED
    assert outcome.result is not None
    names = sorted(one.name.partition("-")[2] for one in bench.fake.volume.glob("*-*.*"))
    assert {"code.zip", "run_spec.py", "spark_runtime.zip"} <= set(names)


def test_what_is_put_into_the_volume_runs_without_any_package_of_the_cluster(
    tmp_path: Path,
) -> None:
    (tmp_path / "project").mkdir()
    archives = [
        pack_runtime(tmp_path),
        pack_code(tmp_path / "project", tmp_path, without=tmp_path),
    ]
    (tmp_path / "main.py").write_bytes(MAIN)
    program = [sys.executable, "-E", "-S", *map(str, (tmp_path / "main.py", *archives))]
    asked = [*program, "run", "--spec", "none"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "run spec none cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cluster": {"environment_key": "default"}}, "existing_cluster_id or new_cluster"),
        ({"cluster": {"new_cluster": {"workers": 2}}}, "does not know"),
        ({"volume": "/dbfs/tmp"}, "must begin with /Volumes/"),
        ({"jobs": {"daily": {"id": 3}}}, "`jobs` of daily"),
        ({"poll": 0}, "poll"),
        ({"profil": "x"}, "no setting 'profil'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        create_engine("databricks", settings, project=tmp_path, state_dir=tmp_path)


# How runs end


@pytest.mark.parametrize(
    ("end", "state", "passes"),
    [
        ((Code.SUCCESS, Type.SUCCESS, ""), AttemptState.SUCCEEDED, False),
        ((Code.SUCCESS_WITH_FAILURES, Type.SUCCESS, ""), AttemptState.FAILED, False),
        ((Code.RUN_EXECUTION_ERROR, Type.CLIENT_ERROR, "boom"), AttemptState.FAILED, False),
        ((Code.USER_CANCELED, Type.CLIENT_ERROR, "by Ana"), AttemptState.FAILED, False),
        ((Code.CANCELED, Type.CLIENT_ERROR, "timed out"), AttemptState.FAILED, False),
        ((Code.CLUSTER_ERROR, Type.CLOUD_FAILURE, "no spot"), AttemptState.FAILED, True),
        ((Code.INTERNAL_ERROR, Type.INTERNAL_ERROR, ""), AttemptState.FAILED, True),
        ((Code.MAX_JOB_QUEUE_SIZE_EXCEEDED, Type.CLIENT_ERROR, ""), AttemptState.FAILED, True),
        ((Code.UNAUTHORIZED_ERROR, Type.CLIENT_ERROR, ""), AttemptState.FAILED, False),
    ],
)
def test_how_a_run_ended_tells_whether_to_try_again(
    bench: Bench, end: Ends, state: AttemptState, passes: bool
) -> None:
    bench.fake.job("daily", "backfill_key")
    bench.fake.does["daily"] = lambda _run: end
    bench.fake.outputs["check"] = jobs.RunOutput(error="ValueError: no such column", logs="read")
    outcome = bench.run(bench.engine())
    assert (outcome.state, outcome.transient) == (state, passes)
    if state is AttemptState.FAILED:
        assert end[0].value in (outcome.error or "")
        assert "ValueError: no such column" in (outcome.error or "")
    log = log_of(str(bench.folder / "runs" / "t-1" / "spec.json"))
    assert "task load, run" in log
    assert "ValueError: no such column" in log


def test_without_repair_a_retry_is_a_run_of_its_own(bench: Bench) -> None:
    bench.fake.job("daily", "backfill_key")
    bench.fake.does["daily"] = lambda run: (
        GOOD if run.token == "t-2" else (Code.RUN_EXECUTION_ERROR, Type.CLIENT_ERROR, "boom")
    )
    engine = bench.engine()
    assert bench.run(engine).state is AttemptState.FAILED
    assert bench.run(engine, token="t-2").state is AttemptState.SUCCEEDED
    assert [run.token for run in bench.fake.started("daily")] == ["t-1", "t-2"]
    assert not [one for one in bench.fake.requests if "repair" in one]


# Repairs


REPAIRED = {"daily": {"job": "shop", "repair": True}}
BAD: Ends = (Code.RUN_EXECUTION_ERROR, Type.CLIENT_ERROR, "boom")


class Shop:
    """A job with the tasks `load`, `check` and `send`: `load` succeeds, `check` fails.

    `ends` are how its tries end, the last one again and again. `store` has the runs that its
    attempts have recorded; the first attempt has failed.
    """

    def __init__(self, bench: Bench, *ends: Ends | None) -> None:
        after = [jobs.TaskDependency("check")]
        tasks = [jobs.Task(task_key="load"), jobs.Task(task_key="check")]
        bench.fake.job("shop", "backfill_key", tasks=[*tasks, jobs.Task("send", depends_on=after)])
        bench.fake.bad = ["check"]
        self.bench, self.ends = bench, [BAD, *ends]
        bench.fake.does["shop"] = lambda run: self.ends[
            min(len(run.tries or [1]), len(self.ends)) - 1
        ]
        self.store: dict[str, EngineRun] = {}
        assert self.attempt(1).state is AttemptState.FAILED

    def engine(self) -> DatabricksEngine:
        engine = self.bench.engine(jobs=REPAIRED)
        engine.remember(self.store, lambda *_: None)
        return engine

    def attempt(self, number: int, engine: DatabricksEngine | None = None) -> Outcome:
        """Run an attempt to its end with an engine, by default that of a new driver."""
        engine, token = engine or self.engine(), f"t-{number}"
        path = self.bench.spec(token, run_id="r-1", attempt=number)
        outcome = self.bench.end(engine, engine.submit(path, token))
        found = engine.identify(str(path))
        assert found is not None
        self.store["r-1"] = found
        return outcome

    @property
    def run(self) -> FakeRun:
        return self.bench.fake.started("shop")[0]


def test_a_later_attempt_repairs_the_run_of_the_first_with_its_parameters(bench: Bench) -> None:
    shop = Shop(bench, BAD, GOOD)
    began = shop.run.began
    assert shop.attempt(2).state is AttemptState.FAILED
    assert shop.attempt(3).state is AttemptState.SUCCEEDED
    assert shop.run.tries == [["load", "check", "send"], ["check", "send"], ["check", "send"]]
    assert shop.run.parameters == {"backfill_key": "2024-06-15"}
    assert len(bench.fake.runs) == 1
    found = shop.store["r-1"]
    assert (found.id, found.facts["token"], found.facts["repair"]) == (str(shop.run.id), "t-3", 2)
    assert found.read_since is not None
    assert found.read_since.timestamp() == pytest.approx(began / 1000)
    log = log_of(str(bench.folder / "runs" / "t-3" / "spec.json"))
    assert [log.count(f"task {one},") for one in ("load", "check", "send")] == [1, 1, 1]


def test_one_driver_repairs_as_well(bench: Bench) -> None:
    shop = Shop(bench, GOOD)
    engine = bench.engines[0]
    assert shop.attempt(2, engine).state is AttemptState.SUCCEEDED
    assert len(shop.run.repairs) == len(bench.fake.runs) == 1


@pytest.mark.parametrize("fault", [429, 503, 500, "lost"])
@pytest.mark.parametrize("path", ["runs/repair", "runs/get$"])
def test_no_lost_answer_repairs_twice(bench: Bench, fault: int | str, path: str) -> None:
    shop = Shop(bench, GOOD)
    bench.fake.faults.append((path, fault))
    assert shop.attempt(2).state is AttemptState.SUCCEEDED
    assert len(shop.run.repairs) == len(bench.fake.runs) == 1
    assert not bench.fake.faults


@pytest.mark.parametrize("when", ["before", "at the request"])
@pytest.mark.parametrize(("end", "state"), [(GOOD, "succeeded"), (BAD, "failed")])
def test_a_repair_of_others_is_followed_and_not_requested_again(
    bench: Bench, when: str, end: Ends, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(bench, end, GOOD)

    def repair() -> None:
        shop.run.tries.append(["check", "send"])
        shop.run.repairs.append(70)
        shop.run.end = None

    bench.fake.meanwhile.append(("runs/repair", repair))
    if when == "before":
        bench.fake.meanwhile.clear()
        repair()
    with caplog.at_level("INFO", "lineage_backfill"):
        assert shop.attempt(2).state == state
    assert shop.run.repairs == [70]
    assert ("has been repaired already" in caplog.text) == (when == "before")
    if state == "failed":
        assert shop.attempt(3).state is AttemptState.SUCCEEDED
        assert len(shop.run.repairs) == 2


def deleted(shop: Shop) -> None:
    shop.bench.fake.delete(shop.run)


def parameters(shop: Shop) -> None:
    shop.run.parameters = {"backfill_key": "2024-06-14"}


def succeeded(shop: Shop) -> None:
    shop.run.end = GOOD  # the attempt had timed out before


@pytest.mark.parametrize(
    ("cause", "why"),
    [(deleted, "deleted"), (parameters, "has other parameters"), (succeeded, "has succeeded")],
)
def test_what_cannot_be_repaired_runs_again_as_a_whole(
    bench: Bench, cause: Callable[[Shop], None], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(bench, GOOD)
    shop.ends[0] = GOOD
    cause(shop)
    assert shop.attempt(2).state is AttemptState.SUCCEEDED
    assert why in caplog.text
    assert "is not repaired, and the job runs again" in caplog.text
    assert shop.store["r-1"].facts == {"token": "t-2"}
    assert [run.token for run in bench.fake.runs.values()][-1:] == ["t-2"]


def test_a_refused_repair_fails_and_the_next_attempt_requests_it_again(bench: Bench) -> None:
    shop = Shop(bench, GOOD)
    bench.fake.faults.append(("runs/repair", 400))
    with pytest.raises(EngineRefusalError, match="out of order"):
        shop.attempt(2)
    assert not shop.run.repairs
    assert shop.attempt(3).state is AttemptState.SUCCEEDED
    assert len(shop.run.repairs) == len(bench.fake.runs) == 1


def test_an_attempt_waits_for_the_end_of_the_run_that_it_repairs(bench: Bench) -> None:
    shop = Shop(bench, GOOD)
    engine, shop.run.end, shop.ends[0] = shop.engine(), None, None
    handle = engine.submit(bench.spec("t-2", run_id="r-1", attempt=2), "t-2")
    seen = len(bench.fake.requests)
    while len(bench.fake.requests) < seen + 6:
        time.sleep(0.01)
    assert not engine.poll(handle).state.is_final
    assert not shop.run.repairs
    shop.ends[0] = BAD
    assert bench.end(engine, handle).state is AttemptState.SUCCEEDED
    assert len(shop.run.repairs) == 1


def test_a_cancelled_attempt_requests_no_repair(bench: Bench) -> None:
    shop = Shop(bench, GOOD)
    engine, shop.run.end, shop.ends[0] = shop.engine(), None, None
    handle = engine.submit(bench.spec("t-2", run_id="r-1", attempt=2), "t-2")
    engine.cancel(handle)
    assert bench.end(engine, handle).state is AttemptState.CANCELLED
    assert not shop.run.repairs


@pytest.mark.parametrize(
    ("settings", "parameter", "error", "message"),
    [
        ({"repair": True}, "lineage_backfill_spec", UnfitRunError, "takes a run spec, which names"),
        ({"repair": True, "tasks": 1}, "backfill_key", UnfitRunError, "has one task, so its runs"),
        ({"repair": True, "only": ["load"]}, "", ValueError, "a repair also runs what depends on"),
        ({"repair": "yes"}, "", ValueError, "repair = true"),
    ],
)
def test_jobs_whose_repair_could_do_something_else_are_refused(
    bench: Bench, settings: dict[str, Any], parameter: str, error: type[Exception], message: str
) -> None:
    tasks = [jobs.Task("load"), jobs.Task("check")][: settings.pop("tasks", 2)]
    bench.fake.job("shop", parameter, tasks=tasks)
    spec = json.loads(bench.spec().read_text())
    with pytest.raises(error, match=message):
        bench.engine(volume=VOLUME, jobs={"daily": {"job": "shop", **settings}}).check(
            [planned_run("r-1", job="daily")], lambda _run: spec
        )


def test_a_run_that_waits_in_the_queue_is_queued_and_not_skipped(bench: Bench) -> None:
    bench.fake.job("daily", "backfill_key", max_concurrent_runs=1)
    going: list[Ends | None] = [None]
    bench.fake.does["daily"] = lambda _run: going[0]
    engine = bench.engine()
    first = engine.submit(bench.spec("t-1"), "t-1")
    second = engine.submit(bench.spec("t-2"), "t-2")
    while engine.poll(first).state is not AttemptState.RUNNING:
        time.sleep(0.01)
    assert engine.poll(second).state is AttemptState.QUEUED
    going[0] = GOOD
    assert bench.end(engine, second).state is AttemptState.SUCCEEDED


def test_cancel_stops_the_run_in_the_workspace(bench: Bench) -> None:
    bench.fake.job("daily", "backfill_key")
    bench.fake.does["daily"] = lambda _run: None
    engine = bench.engine()
    handle = engine.submit(bench.spec(), "t-1")
    engine.cancel(handle)
    assert bench.end(engine, handle).state is AttemptState.CANCELLED
    (run,) = bench.fake.started("daily")
    assert run.end is not None
    engine.cancel(handle)


def test_a_run_that_somebody_deleted_fails_as_unknown(bench: Bench) -> None:
    bench.fake.job("daily", "backfill_key")
    bench.fake.does["daily"] = lambda _run: None
    engine = bench.engine()
    handle = engine.submit(bench.spec(), "t-1")
    bench.fake.delete(bench.fake.started("daily")[0])
    outcome = bench.end(engine, handle)
    assert (outcome.state, outcome.transient) == (AttemptState.FAILED, False)
    assert "was deleted in Databricks: what it did is unknown" in (outcome.error or "")
    later = bench.engine()  # asks with the token of the deleted run
    found = later.find(bench.spec(), "t-1")
    assert found is not None
    assert "was deleted" in (bench.end(later, found).error or "")
    assert not bench.fake.runs


def test_a_job_that_was_deployed_again_under_way_keeps_its_run(bench: Bench) -> None:
    bench.fake.job("daily", "backfill_key")
    bench.fake.does["daily"] = lambda _run: None
    handle = bench.engine().submit(bench.spec(), "t-1")
    (run,) = bench.fake.started("daily")
    later = bench.engine()
    known = bench.engines[0].identify(handle)
    assert known is not None
    later.remember({"r-t-1": known}, lambda *_: None)
    bench.fake.does["daily"] = lambda _run: GOOD
    found = later.find(bench.spec(), "t-1")
    assert found is not None
    assert bench.end(later, found).state is AttemptState.SUCCEEDED
    assert [one.id for one in bench.fake.runs.values()] == [run.id]


# Runs of others


@pytest.mark.parametrize(
    ("parameter", "seen"), [("2024-02-15", ["2024-02-15"]), ("", ["2024-01-01..2024-03-31"])]
)
def test_active_runs_of_others_are_found_with_their_keys(
    bench: Bench, parameter: str, seen: list[str]
) -> None:
    number = bench.fake.job("daily", "backfill_key")
    bench.fake.does["daily"] = lambda _run: None
    bench.fake.runs[1] = FakeRun(1, None, number, {"backfill_key": parameter}, [])
    engine = bench.engine(calendar=lambda _job: three_months())
    assert list(engine.live(DAILY) or ()) == seen
    engine.submit(bench.spec(key="2024-03-01"), "t-1")
    assert list(engine.live(DAILY) or ()) == seen  # its own are none of them
    bench.fake.runs[1].end = GOOD
    assert list(engine.live(DAILY) or ()) == []


# Faults


@pytest.mark.parametrize("fault", [429, 503, 500, 504, "lost"])
@pytest.mark.parametrize(
    "path", ["run-now", "runs/get$", "get-output", "fs/files", "jobs/list", "Me"]
)
def test_no_answer_and_no_refusal_of_a_busy_workspace_ends_or_doubles_a_run(
    bench: Bench, fault: int | str, path: str
) -> None:
    bench.fake.job("daily", "backfill_key", "lineage_backfill_spec")
    bench.fake.does["daily"] = lambda run: leave_result(bench.fake, run)
    bench.fake.faults.append((path, fault))
    engine = bench.engine(volume=VOLUME)
    try:
        handle = engine.submit(bench.spec(), "t-1")
    except ServiceUnreachableError:  # before anything was started: the attempt is tried again
        assert path in ("jobs/list", "Me")
        assert not bench.fake.runs
        handle = engine.submit(bench.spec(), "t-1")
    assert bench.end(engine, handle).state is AttemptState.SUCCEEDED
    assert len(bench.fake.runs) == 1
    assert not bench.fake.faults


def test_a_token_that_expires_ends_the_backfill_and_a_new_one_continues(bench: Bench) -> None:
    bench.fake.job("daily", "backfill_key")
    bench.fake.does["daily"] = lambda _run: None
    tokens = ["dapi-1"]
    engine = bench.engine(token=lambda: tokens[0])
    handle = engine.submit(bench.spec(), "t-1")
    bench.fake.tokens = {"dapi-2"}
    assert bench.ended.get(timeout=10) == handle
    with pytest.raises(ServiceUnreachableError, match="token for Databricks has expired"):
        engine.poll(handle)
    bench.fake.does["daily"] = lambda _run: GOOD
    tokens[0] = "dapi-2"
    assert bench.ended.get(timeout=10) == handle
    assert engine.poll(handle).state is AttemptState.SUCCEEDED
    assert len(bench.fake.runs) == 1


def test_an_account_without_rights_is_refused_with_what_it_lacks(bench: Bench) -> None:
    bench.fake.job("daily", "backfill_key")
    bench.fake.faults.append(("run-now", 403))
    with pytest.raises(EngineRefusalError, match="out of order") as refused:
        bench.engine().submit(bench.spec(), "t-1")
    assert "CAN MANAGE RUN" in refused.value.hint
    assert refused.value.exit_code == 4


def test_stale_lists_start_nothing_twice(bench: Bench) -> None:
    bench.fake.job("daily", "backfill_key")
    bench.fake.does["daily"] = lambda _run: None
    bench.fake.is_stale = True
    bench.engine().submit(bench.spec(), "t-1")
    later = bench.engine(calendar=lambda _job: three_months())
    assert list(later.live(DAILY) or ()) == []
    assert later.find(bench.spec(), "t-1") is not None
    assert len(bench.fake.runs) == 1


class Campaign:
    """Drivers that die at random requests, before or after the workspace did them.

    `recorded` is what the run store holds: the tokens, and the name of the run of each; `kept` is
    what their last attempts run as.
    """

    def __init__(self, bench: Bench, seed: int, **settings: Any) -> None:
        self.bench, self.chance = bench, random.Random(seed)
        self.settings = {"volume": VOLUME, "poll": 0.001, **settings}
        self.recorded: dict[str, str] = {}
        self.done: dict[str, Outcome] = {}
        self.kept: dict[str, EngineRun] = {}

    def record(self, *tokens: str) -> dict[str, Path]:
        self.recorded |= {token: f"r-{len(self.recorded) + n}" for n, token in enumerate(tokens)}
        return {token: self.spec(token) for token in tokens}

    def spec(self, token: str) -> Path:
        spec = json.loads(self.bench.spec("any").read_text())
        spec |= {"token": token, "run_id": self.recorded[token]}
        if "cluster" in self.settings:
            spec["job"] = entry("succeed")
        path = self.bench.folder / "runs" / f"{token}.spec.json"
        spec["result_path"] = str(path).replace("spec", "result")
        whole = path.with_suffix(".new")
        whole.write_text(json.dumps(spec))
        whole.replace(path)  # the watcher may be reading it
        return path

    def drive(self, engine: Engine, begin: Callable[[Engine], object]) -> None:
        """Find what is under way, or begin more, until all has ended or the driver is dead."""
        open_ = [one for one in self.recorded if one not in self.done]
        if not open_:
            begin(engine)
            open_ = [one for one in self.recorded if one not in self.done]
        handles = {one: engine.find(self.spec(one), one) for one in open_}
        while handles:
            for token, handle in list(handles.items()):
                assert handle is not None
                if (outcome := engine.poll(handle)).state.is_final:
                    self.done[token] = outcome
                    if (found := engine.identify(handle)) is not None:
                        self.kept[self.recorded[token]] = found
                    del handles[token]
            with suppress(queue.Empty):
                self.bench.ended.get(timeout=0.01)
            fuse = self.bench.fake.fuse
            if fuse is not None and len(self.bench.fake.requests) > fuse:
                raise ServiceUnreachableError("killed")

    def run(self, begin: Callable[[Engine], object], kills: int = 50) -> None:
        fake = self.bench.fake
        while kills:
            engine = self.engine()
            fake.fuse = len(fake.requests) + self.chance.randint(1, 12)
            fake.fuse_after = self.chance.random() < 0.5
            try:
                while True:
                    self.drive(engine, begin)
            except ServiceUnreachableError:
                kills -= 1
                engine.close()
                fake.fuse = None
        self.drive(self.engine(), lambda _engine: None)

    def engine(self) -> Engine:
        made = self.bench.engine(**self.settings)
        found = ListEngine(made) if made.lists else made
        found.listen(self.bench.ended.put)
        found.remember(self.kept, lambda *_: None)
        return found


@pytest.mark.parametrize("seed", range(4))
def test_kills_of_the_driver_at_any_request_submit_nothing_twice_and_lose_nothing(
    bench: Bench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_REPEATED", 1)
    one = Campaign(bench, seed)
    number = bench.fake.job("daily", "backfill_key", "lineage_backfill_spec")
    bench.fake.does["daily"] = lambda run: one.chance.choice([None, leave_result(bench.fake, run)])
    one.run(lambda _engine: one.record(*(f"t-{len(one.recorded) + n}" for n in range(2))))
    assert {outcome.state for outcome in one.done.values()} == {AttemptState.SUCCEEDED}
    tokens = [run.token for run in bench.fake.started_by(number)]
    assert sorted(map(str, tokens)) == sorted(one.recorded)


@pytest.mark.parametrize("seed", range(2))
def test_kills_of_the_driver_do_no_run_of_a_list_twice_and_lose_none(
    bench: Bench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_REPEATED", 1)
    monkeypatch.setattr(lists, "_LOOK", 0.01)
    one = Campaign(bench, seed, lists=True, cluster={"existing_cluster_id": "c-1"})
    worked: list[str] = []  # runs, by name

    def task(spec: Mapping[str, Any]) -> Ends:
        for run in spec.get("runs", [spec]):
            result = {"token": run["token"], "state": "succeeded", "outputs": []}
            Path(run["result_path"]).write_text(json.dumps(result))
            worked.append(run["run_id"])
        return GOOD

    def begin(engine: Engine) -> None:
        again = [
            token
            for token, outcome in one.done.items()
            if outcome.state is not AttemptState.SUCCEEDED
        ]
        for token in again:  # alone, as a run loop does; it is the same run
            one.recorded[f"{token.replace('.', '-')}-again"] = one.recorded[token]
            del one.done[token], one.recorded[token]
        if not again:
            name = f"t-{len(one.recorded)}"
            engine.submit_list(one.record(*(f"{name}.{n}" for n in (1, 2, 3))))

    bench.fake.task = task
    one.run(begin, kills=25)
    while any(outcome.state is not AttemptState.SUCCEEDED for outcome in one.done.values()):
        one.drive(one.engine(), begin)
    assert sorted(worked) == sorted(one.recorded.values())
    tokens = [run.token for run in bench.fake.runs.values()]
    assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize("seed", range(2))
def test_kills_of_the_driver_repair_nothing_twice_and_lose_no_repair(
    bench: Bench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_REPEATED", 1)
    one = Campaign(bench, seed, jobs=REPAIRED)
    tasks = [jobs.Task(task_key="load"), jobs.Task(task_key="check")]
    bench.fake.job("shop", "backfill_key", tasks=tasks)
    bench.fake.bad = ["check"]
    bench.fake.does["shop"] = lambda _run: one.chance.choice([None, BAD, BAD, GOOD])

    def begin(engine: Engine) -> None:
        """Begin the next attempt of what has failed, else a run."""
        last = list(one.done)[-1:]
        failed = [token for token in last if one.done[token].state is AttemptState.FAILED]
        (token,) = one.record(f"t-{len(one.recorded)}")
        if failed:
            one.recorded[token] = one.recorded[failed[0]]
        engine.submit(one.spec(token), token)

    one.run(begin, kills=40)
    last = one.engine()
    while list(one.done.values())[-1].state is AttemptState.FAILED:
        one.drive(last, begin)
    states = {outcome.state for outcome in one.done.values()}
    assert states <= {AttemptState.SUCCEEDED, AttemptState.FAILED}
    names = list(one.recorded.values())
    tries = [len(run.repairs) + 1 for run in bench.fake.started("shop")]
    assert tries == [names.count(name) for name in dict.fromkeys(names)]
    assert sum(tries) > len(tries)
