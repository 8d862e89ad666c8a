"""Warm applications on a real standalone cluster: what they share, and what one takes with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines import create_engine
from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.ports import AttemptState
from spark_runtime.tables.delta.log import DeltaLog
from tests.e2e.test_spark_submit import SCRIPT, SETTINGS, Bench
from tests.fakes import log_of
from tests.services.proxy import Proxy

JOBS = """
import json
import os
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.helper import twice
from spark_runtime import RunContext, job


@job(output="days", batch="range")
def days(context: RunContext):
    rows = [(str(key.key), 1) for key in context.keys]
    frame = context.spark.createDataFrame(rows, "day string, n long")
    return frame.withColumn("n", F.udf(twice, "long")("n"))


@job(output="days", batch="range")
def slow(context: RunContext):
    wait = F.udf(lambda n: time.sleep(4) or n, "long")
    return days(context).withColumn("n", wait("n"))


@job(output="days", batch="range")
def idle(context: RunContext):
    while True:
        time.sleep(0.1)


@job(output="days", batch="range")
def deadly(context: RunContext):
    os._exit(3)


@job(output="days", batch="range")
def hungry(context: RunContext):
    gateway = context.spark.sparkContext._gateway
    for _ in range(40):
        days(context).collect()
        gateway.new_array(gateway.jvm.long, 2**29)  # 4 GB of the driver's memory
    return days(context)


@job(output="days", batch="range")
def leaky(context: RunContext):
    spark = context.spark
    context_ = spark.sparkContext
    same = SparkSession.builder.getOrCreate()
    found = {
        "conf": [spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("mine", None)],
        "views": [one.name for one in spark.catalog.listTables() if one.isTemporary],
        "global": [one.name for one in spark.catalog.listTables("global_temp")],
        "database": spark.catalog.currentDatabase(),
        "property": context_.getLocalProperty("mine"),
        "cached": sum(
            not str(rdd.name()).startswith("Delta Table State")
            for rdd in context_._jsc.getPersistentRDDs().values()
        ),
        "is default": same._jsparkSession.sessionUUID() == spark._jsparkSession.sessionUUID(),
        "function": spark.catalog.functionExists("twice"),
        "kept": [context_.getConf().get(f"spark.ui.retained{what}") for what in ("Jobs", "Tasks")],
    }
    print("FOUND " + json.dumps(found), flush=True)
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    spark.conf.set("mine", "left")
    frame = days(context)
    frame.createOrReplaceTempView("left")
    frame.createOrReplaceGlobalTempView("left_for_all")
    frame.cache().count()
    spark.sql("create database if not exists other")
    spark.udf.register("twice", twice)
    context_.setLocalProperty("mine", "left")
    spark.catalog.setCurrentDatabase("other")
    return frame


def meet(context: RunContext, where: str) -> None:
    Path(f"{where}-{context.keys[0].key}").touch()
    until = time.monotonic() + 120
    while len(list(Path().glob(f"{where}-*"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)


@job(output="days", batch="range")
def together(context: RunContext):
    spark, key = context.spark, str(context.keys[0].key)
    name = "d" + key.replace("-", "")
    spark.conf.set("mine", key)
    frame = days(context)
    frame.createOrReplaceTempView("mine")
    spark.udf.register("whose", lambda: key)
    spark.sql(f"create database if not exists {name}")
    spark.catalog.setCurrentDatabase(name)
    meet(context, "begun")
    spark.createDataFrame([(1,)], "n long").count()
    sessions = spark, SparkSession.builder.getOrCreate(), SparkSession.getActiveSession()
    found = {
        "conf": [one.conf.get("mine", None) for one in sessions],
        "view": spark.table("mine").first()[0],
        "function": spark.sql("select whose()").first()[0],
        "database": spark.catalog.currentDatabase(),
        "group": spark.sparkContext.getLocalProperty("spark.jobGroup.id"),
        "pool": spark.sparkContext.getLocalProperty("spark.scheduler.pool"),
    }
    print("FOUND " + json.dumps(found), flush=True)
    meet(context, "found")
    return frame
"""

#: Reads `days` if it is an input, writes the day of its run, and meets the other run at each step.
TOGETHER = """
from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from pyspark.sql import functions as F

from spark_runtime import read, run_context, write_partitions


@dataclass
class Plus:
    kind: ClassVar[str] = "plus"
    day: str

    def __call__(self, n: int) -> int:
        return 10 * n + int(self.day[-1])


def meet(where: str) -> None:
    Path(f"script-{where}-{run.spec.outputs[0].dataset.name}-{run.key}").touch()
    until = time.monotonic() + 120
    while len(list(Path().glob(f"script-{where}-{run.spec.outputs[0].dataset.name}-*"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)


if __name__ == "__main__":
    argparse.ArgumentParser().parse_args()
    run = run_context("together")
    meet("begun")
    if run.spec.inputs:
        frame = read("days")
    else:
        frame = run.spark.createDataFrame([(str(run.key), 0)], "day string, n long")
    meet("read")
    frame = frame.withColumn("n", F.udf(Plus(str(run_context().key)), "long")("n"))
    found = [list(row) for row in frame.collect()]
    meet("computed")
    written = write_partitions(frame)
    meet("written")
    print("FOUND " + json.dumps({
        "rows": found,
        "written": [str(part.key) for part in written.partitions],
        "fields": [one.name for one in fields(Plus)],
        "is main": vars(sys.modules["__main__"]) is globals(),
        "arguments": sys.argv[1:],
    }), flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cluster")
    up = subprocess.run([SCRIPT, "up", folder], capture_output=True, text=True, check=False)
    assert up.returncode == 0, up.stderr
    yield folder
    subprocess.run([SCRIPT, "down", folder], check=True)


@pytest.fixture(scope="module")
def bench(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    master = (cluster / "address").read_text().strip()
    settings = {"conf": {**SETTINGS["conf"], "spark.ui.retainedTasks": "77"}, "reuse": True}
    bench = Bench(tmp_path_factory.mktemp("project"), master, JOBS, orphan_seconds=20, **settings)
    yield bench
    bench.engine.close()


def applications(bench: Bench) -> set[str]:
    return {one.name for one in (bench.folder / "state" / "applications").iterdir()}


def state_of(bench: Bench, handle: str) -> AttemptState:
    bench.wait(handle)
    return bench.engine.poll(handle).state


def tokens(bench: Bench) -> set[str]:
    return set(DeltaLog(str(bench.folder / "days")).state().tokens)


def wait_until_begun(bench: Bench, handle: str) -> Path:
    """Wait until an application has begun an attempt, and return its folder."""
    while bench.engine.poll(handle).state is AttemptState.QUEUED:
        time.sleep(0.05)
    claim = json.loads(AttemptFiles(Path(handle)).claim_path.read_text())
    return Path(claim["application"])


def test_runs_share_an_application_and_nothing_else(bench: Bench) -> None:
    handles = [bench.submit("leaky", "days", f"2024-03-0{n}", name=f"leaky-{n}") for n in (1, 2, 3)]
    bench.wait(*handles)
    found: list[Any] = []
    for handle in handles:
        outcome = bench.engine.poll(handle)
        assert outcome.state is AttemptState.SUCCEEDED, log_of(handle)
        lines = [line for line in log_of(handle).splitlines() if "FOUND" in line]
        assert len(lines) == 1
        found.append(json.loads(lines[0].partition("FOUND ")[2]))
    assert len(applications(bench)) == 1
    assert found[0]["is default"]
    assert found[0] == found[1] == found[2]
    assert found[0]["views"] == found[0]["global"] == []
    assert found[0]["kept"] == ["100", "77"]  # little for the UI, if nothing else is set
    assert tokens(bench) == {"t-leaky-1", "t-leaky-2", "t-leaky-3"}


@pytest.mark.parametrize("job", ["slow", "idle"])
def test_a_cancelled_run_leaves_its_application(bench: Bench, job: str) -> None:
    before = applications(bench)
    handle = bench.submit(job, "days", "2024-03-04", name=f"cancelled-{job}")
    wait_until_begun(bench, handle)
    time.sleep(3)
    bench.engine.cancel(handle)
    assert state_of(bench, handle) is AttemptState.CANCELLED, log_of(handle)
    after = bench.submit("days", "days", "2024-03-04", name=f"after-{job}")
    assert state_of(bench, after) is AttemptState.SUCCEEDED
    assert applications(bench) == before
    assert f"t-cancelled-{job}" not in tokens(bench)


def test_an_executor_and_a_worker_that_die_cost_a_run_nothing(bench: Bench, cluster: Path) -> None:
    before = applications(bench)
    handle = bench.submit("slow", "days", "2024-03-05", name="executor")
    wait_until_begun(bench, handle)
    time.sleep(3)
    (executor,) = executors(cluster)
    os.kill(executor, signal.SIGKILL)
    assert state_of(bench, handle) is AttemptState.SUCCEEDED, log_of(handle)
    handle = bench.submit("slow", "days", "2024-03-06", name="worker")
    wait_until_begun(bench, handle)
    time.sleep(3)
    (executor,) = executors(cluster)
    name = next(one for one in ("worker-1", "worker-2") if one in Path(folder_of(executor)).parts)
    os.kill(int((cluster / f"{name}.pid").read_text()), signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)
    assert state_of(bench, handle) is AttemptState.SUCCEEDED, log_of(handle)
    assert applications(bench) == before
    assert {"t-executor", "t-worker"} <= tokens(bench)


def executors(cluster: Path) -> list[int]:
    """Return the process ids of the executors of this cluster."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            command = (one / "cmdline").read_bytes()
        except OSError:
            continue
        is_executor = b"CoarseGrainedExecutorBackend" in command
        if is_executor and folder_of(int(one.name)).startswith(str(cluster.resolve())):
            found.append(int(one.name))
    return found


def folder_of(process: int) -> str:
    return str(Path(f"/proc/{process}/cwd").readlink())


def test_a_run_whose_application_dies_is_tried_once_more_in_one_of_its_own(bench: Bench) -> None:
    first = bench.engine.submit(attempt_of(bench, "slow", 1), "t-deadly-1")
    other = bench.submit("days", "days", "2024-03-08", name="other")
    folder = wait_until_begun(bench, first)
    time.sleep(2)
    pid = json.loads((folder / "process.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)  # the JVM; its Python must end with it
    bench.wait(first, other)
    outcome = bench.engine.poll(first)
    assert (outcome.state, outcome.transient) == (AttemptState.FAILED, True), outcome
    assert bench.engine.poll(other).state is AttemptState.SUCCEEDED
    before = applications(bench)
    handle = bench.engine.submit(attempt_of(bench, "deadly", 2), "t-deadly-2")
    assert state_of(bench, handle) is AttemptState.FAILED
    outcome = bench.engine.poll(handle)
    assert not outcome.transient
    assert "two applications in a row" in (outcome.error or "")
    assert len(applications(bench) - before) == 1
    assert "t-other" in tokens(bench)
    assert not {"t-deadly-1", "t-deadly-2"} & tokens(bench)


def test_a_run_that_fills_the_memory_of_its_driver_ends_it_and_no_other_run(bench: Bench) -> None:
    outcomes = []
    for attempt in (1, 2):
        path = attempt_of(bench, "hungry", attempt, name="hungry")
        handle = bench.engine.submit(path, f"t-hungry-{attempt}")
        assert state_of(bench, handle) is AttemptState.FAILED
        outcomes.append(bench.engine.poll(handle).transient)
    assert outcomes == [True, False], log_of(handle)
    after = bench.submit("days", "days", "2024-03-09", name="after-hungry")
    assert state_of(bench, after) is AttemptState.SUCCEEDED
    assert not {"t-hungry-1", "t-hungry-2"} & tokens(bench)


def attempt_of(bench: Bench, job: str, attempt: int, name: str = "deadly") -> Path:
    """Write the spec of an attempt where the executor does, beside those before it."""
    path = bench.spec(job, "days", "2024-03-07", name=f"{name}-{attempt}")
    path.write_text(json.dumps({**json.loads(path.read_text()), "attempt": attempt}))
    return path.rename(bench.folder / "runs" / f"r-{name}-{attempt}.spec.json")


def test_an_application_outlives_its_tool_and_the_next_one_goes_on_with_it(bench: Bench) -> None:
    bench.engine.close()
    before = applications(bench)
    spec = bench.spec("slow", "days", "2024-03-10", name="adopted")
    settings = json.dumps(bench.settings)
    command = [sys.executable, "-m", __name__, str(bench.folder), str(spec), "t-adopted", settings]
    tool = subprocess.Popen(command, cwd=SCRIPT.parents[1])
    claim = spec.with_name("claim.json")
    while not claim.exists() or not taken(json.loads(claim.read_text())):
        assert tool.poll() is None
        time.sleep(0.05)
    tool.kill()
    tool.wait()
    bench.engine = bench.new_engine()
    handle = bench.engine.find(spec, "t-adopted")
    assert handle is not None
    assert bench.engine.poll(handle).state is AttemptState.RUNNING
    assert state_of(bench, handle) is AttemptState.SUCCEEDED, log_of(handle)
    after = bench.submit("days", "days", "2024-03-11", name="after-adopted")
    assert state_of(bench, after) is AttemptState.SUCCEEDED
    assert len(applications(bench) - before) == 1
    assert {"t-adopted", "t-after-adopted"} <= tokens(bench)


@pytest.fixture
def fair(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Bench, tuple[Proxy, Proxy]]]:
    """An application that does two runs at once, whose network can be cut."""
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    proxies = [Proxy(("127.0.0.1", port), ("127.0.0.2", port)) for port in ports]
    names = ("spark.driver.port", "spark.driver.blockManager.port")
    network = {"spark.driver.host": "127.0.0.2", "spark.driver.bindAddress": "127.0.0.1"}
    conf = {**SETTINGS["conf"], **network, **dict(zip(names, map(str, ports), strict=True))}
    settings = {"conf": conf, "reuse": True, "runs_at_once": 2, "orphan_seconds": 20}
    folder = tmp_path_factory.mktemp("fair")
    fair = Bench(folder, bench.settings["master"], JOBS, **settings)
    bench.engine.close()  # what it keeps warm holds the cores of the cluster
    bench.engine = bench.new_engine()
    yield fair, (proxies[0], proxies[1])
    fair.engine.close()
    for proxy in proxies:
        proxy.close()


def test_runs_at_once_share_an_application_whose_network_fails(
    fair: tuple[Bench, tuple[Proxy, Proxy]],
) -> None:
    bench, proxies = fair
    days = ("2024-03-01", "2024-03-02")
    handles = [bench.submit("together", "days", day, name=f"at-{day}") for day in days]
    bench.wait(*handles)
    pools = set()
    for handle, day in zip(handles, days, strict=True):
        log = log_of(handle)
        assert bench.engine.poll(handle).state is AttemptState.SUCCEEDED, log
        (line,) = [line for line in log.splitlines() if "FOUND" in line]
        found = json.loads(line.partition("FOUND ")[2])
        pools.add(found.pop("pool"))
        assert found == {
            "conf": [day, day, day],
            "view": day,
            "function": day,
            "database": "d" + day.replace("-", ""),
            "group": f"t-at-{day}",
        }
    assert pools == {"seat-0", "seat-1"}

    beside = bench.submit("slow", "days", "2024-03-03", name="beside")
    stopped = bench.submit("idle", "days", "2024-03-04", name="stopped")
    for handle in (beside, stopped):
        wait_until_begun(bench, handle)
    bench.engine.cancel(stopped)
    bench.wait(beside, stopped)
    assert bench.engine.poll(stopped).state is AttemptState.CANCELLED
    assert bench.engine.poll(beside).state is AttemptState.SUCCEEDED, log_of(beside)

    for number, fault in enumerate(("cut", "reset")):
        handle = bench.submit("slow", "days", f"2024-03-0{5 + number}", name=fault)
        wait_until_begun(bench, handle)
        time.sleep(2)
        for proxy in proxies:
            getattr(proxy, fault)()
        time.sleep(5)
        assert bench.engine.poll(handle).state is AttemptState.RUNNING
        for proxy in proxies:
            proxy.heal()
        assert state_of(bench, handle) is AttemptState.SUCCEEDED, log_of(handle)
    assert len(applications(bench)) == 1
    expected = {*(f"t-at-{day}" for day in days), "t-beside", "t-cut", "t-reset"}
    assert tokens(bench) == expected


def test_scripts_at_once_read_and_write_for_their_own_runs(
    fair: tuple[Bench, tuple[Proxy, Proxy]],
) -> None:
    bench, _proxies = fair
    (bench.folder / "together.py").write_text(TOGETHER)
    days = ("2024-03-01", "2024-03-02")
    for table, sums in (("days", (1, 2)), ("copies", (11, 22))):
        handles = [script_run(bench, table, day) for day in days]
        bench.wait(*handles)
        for handle, day, n in zip(handles, days, sums, strict=True):
            log = log_of(handle)
            assert bench.engine.poll(handle).state is AttemptState.SUCCEEDED, log
            (line,) = [line for line in log.splitlines() if "FOUND" in line]
            assert json.loads(line.partition("FOUND ")[2]) == {
                "rows": [[day, n]],
                "written": [day],
                "fields": ["day"],
                "is main": True,
                "arguments": [],
            }
        log_of_table = DeltaLog(str(bench.folder / table))
        assert set(log_of_table.state().tokens) == {f"t-{table}-{day}" for day in days}
    assert len(applications(bench)) == 1


def script_run(bench: Bench, table: str, day: str) -> str:
    """Submit a run of the script, which reads `days` unless it writes that."""
    path = bench.spec("together", table, day, name=f"{table}-{day}")
    spec = json.loads(path.read_text())
    spec["job"]["entrypoint"] = "together.py"
    if table != "days":
        partitions = [{"key": day, "values": {"day": day}}]
        days = {"dataset": {"namespace": "n", "name": "days"}, "partitions": partitions}
        place = {"format": "delta", "location": str(bench.folder / "days"), "columns": ["day"]}
        spec["inputs"] = [{**days, **place, "version": None}]
    path.write_text(json.dumps(spec))
    return bench.engine.submit(path, spec["token"])


def taken(claim: dict[str, str]) -> bool:
    return Path(claim["application"], "taken", f"{claim['request']}.json").exists()


def main(folder: str, spec: str, token: str, settings: str) -> None:
    """Be a tool that submits an attempt, and waits until it is killed."""
    project = Path(folder)
    engine = create_engine(
        "spark-submit", json.loads(settings), project=project, state_dir=project / "state"
    )
    engine.submit(Path(spec), token)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])


def test_runs_go_on_while_the_master_is_dead_and_after_it(
    bench: Bench, cluster: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench.engine.close()  # what it keeps warm holds the cores of the cluster
    settings = {"reuse": True, "stranded_seconds": 5}
    one = Bench(tmp_path_factory.mktemp("master"), bench.settings["master"], JOBS, **settings)
    handle = one.submit("slow", "days", "2024-03-12", name="during")
    first = wait_until_begun(one, handle)
    time.sleep(3)
    os.kill(int((cluster / "master.pid").read_text()), signal.SIGKILL)
    assert state_of(one, handle) is AttemptState.SUCCEEDED, log_of(handle)
    handle = one.submit("days", "days", "2024-03-13", name="without")
    assert state_of(one, handle) is AttemptState.SUCCEEDED, log_of(handle)
    assert wait_until_begun(one, handle) == first
    before = executors(cluster)
    subprocess.run([SCRIPT, "master", cluster], check=True)
    # This master does not know the application, and takes its executors away.
    while set(before) & set(executors(cluster)):
        time.sleep(0.1)
    for attempt in (1, 2, 3):
        handle = one.submit("days", "days", "2024-03-14", name=f"after-{attempt}")
        if state_of(one, handle) is AttemptState.SUCCEEDED:
            break
        assert one.engine.poll(handle).transient, log_of(handle)
    assert wait_until_begun(one, handle) != first
    assert tokens(one) == {"t-during", "t-without", f"t-after-{attempt}"}
    one.engine.close()
    bench.engine = bench.new_engine()
