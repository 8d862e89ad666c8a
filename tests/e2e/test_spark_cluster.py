"""Warm workers whose tasks run on a real standalone cluster of one master and two workers."""

from __future__ import annotations

import json
import queue
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines import create_engine
from lineage_backfill.ports import AttemptState, Engine
from spark_runtime.tables.delta.log import DeltaLog
from tests.fakes import log_of

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

SCRIPT = Path(__file__).parents[2] / "scripts" / "spark-cluster"
JOBS = """
import os
import signal
import time

from pyspark.sql import functions as F

from pipeline.helper import twice
from spark_runtime import RunContext, job
from spark_runtime.job import attempt


@job(output="days", batch="range")
def days(context: RunContext):
    rows = [(str(key.key), 1) for key in context.keys]
    frame = context.spark.createDataFrame(rows, "day string, n long")
    return frame.withColumn("n", F.udf(twice, "long")("n"))


@job(output="others")
def dies_after_its_commit(context: RunContext):
    attempt.Emitter.complete = lambda *_: os.killpg(0, signal.SIGKILL)
    return days(context)


@job(output="days", batch="range")
def slow(context: RunContext):
    time.sleep(300)
"""
REPORTS = """
import os
import sys

from spark_runtime import RunContext, job


@job(output="reported", batch="range")
def reports(context: RunContext):
    assert "LEFT" not in os.environ
    assert sys.argv[1:] != ["--left"]
    print("reports", flush=True)
    rows = [(str(key.key), 1) for key in context.keys]
    return context.spark.createDataFrame(rows, "day string, n long")
"""
SCRIPT_JOB = """
import os
import sys

from spark_runtime import run_context

assert (__name__, sys.argv) == ("__main__", [__file__])
print("script", flush=True)
run = run_context()
run.write(run.spark.createDataFrame([(str(run.keys[0].key), 1)], "day string, n long"))
sys.argv.append("--left")
os.environ["LEFT"] = "by the script"
os.chdir("/")
"""
QUERY = """
--@ output = "queried"
SELECT :backfill_key AS day, 1L AS n
"""
# Small: the machine runs master, workers, two drivers and their executors at once.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: dict[str, Any] = {
    "conf": {
        "spark.cores.max": "1",
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    },
    "env": {"SPARK_LOCAL_IP": "127.0.0.1"},
}


class Bench:
    """A project with jobs, and an engine that runs them on a cluster."""

    def __init__(self, folder: Path, master: str, jobs: str = JOBS, **settings: Any) -> None:
        self.folder = folder
        self.settings = {**SETTINGS, **settings, "master": master}
        code = folder / "pipeline"
        code.mkdir(parents=True)
        (code / "__init__.py").touch()
        (code / "jobs.py").write_text(jobs)
        (code / "helper.py").write_text("def twice(n):\n    return 2 * n\n")
        for name, text in (
            ("reports/__init__.py", ""),
            ("reports/jobs.py", REPORTS),
            ("scripts/daily.py", SCRIPT_JOB),
            ("sql/queried.sql", QUERY),
        ):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        state = self.folder / "state"
        engine = create_engine("spark", self.settings, project=self.folder, state_dir=state)
        engine.listen(self.ended.put)
        engine.open()
        return engine

    def submit(self, job: str, table: str, *keys: str, **more: Any) -> str:
        spec = self.spec(job, table, *keys, **more)
        return self.engine.submit(spec, f"t-{spec.parent.name}")

    def spec(
        self,
        job: str,
        table: str,
        *keys: str,
        undo: str | None = None,
        name: str = "",
        entrypoint: str = "",
    ) -> Path:
        """Write the run spec of a run that is named after its job, if not otherwise."""
        name = name or (f"undo-{job}" if undo else job)
        folder = self.folder / "runs" / name
        folder.mkdir(parents=True)
        output = {
            "dataset": {"namespace": "n", "name": table},
            "format": "delta",
            "location": str(self.folder / table),
            "columns": ["day"],
            "scope": [{"key": key, "values": {"day": key}} for key in keys],
        }
        spec: dict[str, Any] = {
            "schema_version": 1,
            "backfill_id": "b-1",
            "run_id": f"r-{name}",
            "attempt": 1,
            "token": f"t-{name}",
            "job": {
                "namespace": "n",
                "name": job,
                "entrypoint": entrypoint or f"pipeline.jobs:{job}",
            },
            "partitions": list(keys),
            "keys": [{"key": key} for key in keys],
            "outputs": [output],
            "inputs": [],
            "lineage": {"outbox": str(folder / "lineage")},
            "result_path": str(folder / "result.json"),
        }
        if undo:
            spec |= {"undo": [undo], "lineage": {"outbox": None}}
        (folder / "spec.json").write_text(json.dumps(spec))
        return folder / "spec.json"

    def wait(self, *handles: str) -> None:
        left = set(handles)
        while left:
            left.discard(self.ended.get(timeout=600))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("cluster")
    up = subprocess.run([SCRIPT, "up", folder], capture_output=True, text=True, check=False)
    assert up.returncode == 0, up.stderr
    try:
        bench = Bench(tmp_path_factory.mktemp("project"), up.stdout.strip())
        yield bench
        bench.engine.close()
    finally:
        subprocess.run([SCRIPT, "down", folder], check=True)


def test_one_worker_runs_packages_scripts_and_queries(bench: Bench) -> None:
    handles = [
        bench.submit("days", "days", "2024-03-01", "2024-03-02"),
        bench.submit("daily", "scripted", "2024-03-01", entrypoint="scripts/daily.py"),
        bench.submit("queried", "queried", "2024-03-01", entrypoint="sql/queried.sql"),
        bench.submit("reports", "reported", "2024-03-01", entrypoint="reports.jobs:reports"),
    ]
    bench.wait(*handles)
    for handle, rows in zip(handles, (2, 1, 1, 1), strict=True):
        outcome = bench.engine.poll(handle)
        assert outcome.state is AttemptState.SUCCEEDED, log_of(handle)
        assert outcome.result is not None
        (written,) = outcome.result["outputs"]
        assert [one["rows"] for one in written["partitions"]] == [1] * rows
        assert bench.engine.identify(handle) == bench.engine.identify(handles[0])
    application = bench.engine.identify(handles[0])
    assert application is not None
    assert str(application.id).startswith("app-")
    assert len(list((bench.folder / "state" / "workers").glob("*.log"))) == 1
    logs = [log_of(handle).split() for handle in handles]
    assert [[word for word in log if word in ("script", "reports")] for log in logs] == [
        [],
        ["script"],
        [],
        ["reports"],
    ]


def test_the_tables_log_is_the_truth_about_a_dead_worker(bench: Bench) -> None:
    dead = bench.submit("dies_after_its_commit", "others", "2024-03-01")
    bench.wait(dead)
    outcome = bench.engine.poll(dead)
    assert outcome.state is AttemptState.SUCCEEDED, log_of(dead)
    assert outcome.result is not None
    (written,) = outcome.result["outputs"]
    log = DeltaLog(str(bench.folder / "others"))
    assert log.state().tokens == {"t-dies_after_its_commit": written["version"]}
    events = "".join(
        path.read_text() for path in Path(dead).with_name("lineage").iterdir()
    ).splitlines()
    assert sorted(json.loads(event)["eventType"] for event in events) == ["COMPLETE", "START"]
    assert len({json.loads(event)["run"]["runId"] for event in events}) == 1


def test_what_a_worker_wrote_is_put_back_by_another(bench: Bench) -> None:
    """After the tests above: the table holds what the first worker wrote."""
    log = DeltaLog(str(bench.folder / "days"))
    assert ("2024-03-01",) in log.state().partitions
    handle = bench.submit("days", "days", "2024-03-01", "2024-03-02", undo="t-days")
    bench.wait(handle)
    outcome = bench.engine.poll(handle)
    assert outcome.state is AttemptState.SUCCEEDED, log_of(handle)
    assert log.state().partitions == {}


def test_a_later_engine_finds_a_run_and_stops_it(bench: Bench) -> None:
    handle = bench.submit("slow", "days", "2024-03-03")
    lineage = Path(handle).with_name("lineage")
    while "START" not in "".join(path.read_text() for path in lineage.glob("*")):
        assert not bench.engine.poll(handle).state.is_final, log_of(handle)
        time.sleep(0.1)
    later = bench.new_engine()
    assert later.find(Path(handle), "t-slow") == handle
    assert later.poll(handle).state is AttemptState.RUNNING
    later.cancel(handle)
    for _each_engine in range(2):
        bench.wait(handle)
    later.close()
    assert later.poll(handle).state.is_final
    assert "t-slow" not in DeltaLog(str(bench.folder / "days")).state().tokens
    assert bench.engine.find(Path(handle), "t-other") is None
