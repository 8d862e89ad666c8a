"""The Spark engine over a real Spark Connect server: what it runs, and what a kill leaves."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.attempt import AttemptFiles, kill_group
from lineage_backfill.ports import AttemptState, Outcome
from spark_runtime.tables.delta.log import DeltaLog
from tests import sampling
from tests.connect import Server, free_port, server
from tests.e2e.test_spark_cluster import Bench

#: One job computes its rows for some seconds, in a task of the server.
JOBS = """
import time
from pathlib import Path

from pyspark.sql import functions as F

from pipeline.helper import twice
from spark_runtime import RunContext, job


@job(output="days", batch="range")
def days(context: RunContext):
    rows = [(str(key.key), 1) for key in context.keys]
    frame = context.spark.createDataFrame(rows, "day string, n long")
    return frame.withColumn("n", F.udf(twice, "long")("n"))


def slowly(n):
    time.sleep(6)
    return n


@job(output="days", batch="range")
def slow(context: RunContext):
    Path("computes").touch()
    return days(context).withColumn("n", F.udf(slowly, "long")("n"))
"""


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture
def bench(connect: Server, tmp_path: Path) -> Iterator[Bench]:
    one = Bench(tmp_path / "project", connect.address, JOBS, conf={}, env={})
    yield one
    one.engine.close()


def rows(bench: Bench, table: str) -> dict[Any, int | None]:
    """The number of rows of each partition, by the table's log."""
    place = bench.folder / table
    if not place.exists():
        return {}
    state = DeltaLog(str(place)).state()
    return {values[0]: held.rows for values, held in state.partitions.items()}


def until_it_computes(bench: Bench) -> None:
    until = time.monotonic() + 60
    while not (bench.folder / "computes").exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def ended(bench: Bench, handle: str) -> Outcome:
    bench.wait(handle)
    return bench.engine.poll(handle)


def test_packages_scripts_and_queries_run_on_the_server(bench: Bench) -> None:
    handles = [
        bench.submit("days", "days", "2024-03-01", "2024-03-02"),
        bench.submit("daily", "scripted", "2024-03-01", entrypoint="scripts/daily.py"),
        bench.submit("queried", "queried", "2024-03-01", entrypoint="sql/queried.sql"),
        bench.submit(
            "reports", "reported", "2024-03-01", entrypoint="reports.jobs:reports", name="reports"
        ),
    ]
    bench.wait(*handles)
    for handle in handles:
        outcome = bench.engine.poll(handle)
        assert outcome.state is AttemptState.SUCCEEDED, AttemptFiles(Path(handle)).log()
    assert rows(bench, "days") == {"2024-03-01": 1, "2024-03-02": 1}
    undone = bench.submit("days", "days", "2024-03-01", undo="t-days")
    assert ended(bench, undone).state is AttemptState.SUCCEEDED
    assert rows(bench, "days") == {}


def test_a_server_commits_nothing_for_a_client_that_was_killed(bench: Bench) -> None:
    chance = random.Random(7)
    for number in range(60):
        if not sampling.is_run(number, every=20):
            continue
        (bench.folder / "computes").unlink(missing_ok=True)
        key = f"2024-{number // 28 + 1:02}-{number % 28 + 1:02}"
        handle = bench.submit("slow", "days", key, name=f"slow-{number}")
        until_it_computes(bench)
        time.sleep(chance.uniform(0, 8))
        kill_group(AttemptFiles(Path(handle)).claimed_by()["pid"])  # type: ignore[index]
        outcome = ended(bench, handle)
        found = rows(bench, "days")
        assert (outcome.state is AttemptState.SUCCEEDED) == (key in found), outcome
        time.sleep(0 if key in found else 7)
        assert rows(bench, "days") == found


def test_another_process_ends_what_a_dead_one_has_left(bench: Bench) -> None:
    handle = bench.submit("slow", "days", "2024-03-01", name="left")
    until_it_computes(bench)
    claim = AttemptFiles(Path(handle)).claimed_by()
    assert claim is not None
    bench.engine.close()
    kill_group(claim["pid"])
    bench.engine = bench.new_engine()
    assert bench.engine.find(Path(handle), "t-left") == handle
    assert bench.engine.poll(handle).state is AttemptState.LOST
    time.sleep(8)
    assert rows(bench, "days") == {}


def test_a_run_that_was_cancelled_commits_nothing(bench: Bench) -> None:
    handle = bench.submit("slow", "days", "2024-03-01", name="cancelled")
    until_it_computes(bench)
    bench.engine.cancel(handle)
    assert ended(bench, handle).state is AttemptState.CANCELLED
    time.sleep(8)
    assert rows(bench, "days") == {}


def test_a_server_that_says_nothing_leaves_a_run_in_doubt(bench: Bench, connect: Server) -> None:
    handle = bench.submit("slow", "days", "2024-03-01", name="doubted")
    until_it_computes(bench)
    os.killpg(connect.process.pid, signal.SIGSTOP)
    try:
        kill_group(AttemptFiles(Path(handle)).claimed_by()["pid"])  # type: ignore[index]
        outcome = ended(bench, handle)
    finally:
        os.killpg(connect.process.pid, signal.SIGCONT)
    assert outcome.state is AttemptState.LOST
    assert "whether it goes on, and commits, is unknown" in str(outcome.error)


def test_a_run_fails_with_its_server_and_succeeds_on_the_next(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port=port) as first:
        bench = Bench(tmp_path / "project", first.address, JOBS, conf={}, env={})
        handle = bench.submit("slow", "days", "2024-03-01")
        until_it_computes(bench)
        first.kill()
        outcome = ended(bench, handle)
        assert (outcome.state, outcome.transient) == (AttemptState.FAILED, True)
    with server(tmp_path, port=port):
        again = bench.submit("days", "days", "2024-03-01")
        assert ended(bench, again).state is AttemptState.SUCCEEDED
        bench.engine.close()
    assert rows(bench, "days") == {"2024-03-01": 1}
