"""The local engine with real Spark workers: warm, killed, without Java."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.spark.engine import SparkEngine
from lineage_backfill.engines.spark.settings import SparkSettings
from lineage_backfill.errors import EnvironmentMissingError
from lineage_backfill.ports import AttemptState
from tests.fakes import log_of
from tests.sessions import INTERPRETED

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

JOBS = """
import time
from spark_runtime import RunContext, job


@job(output="days", batch="range")
def days(context: RunContext):
    rows = [(str(key.key), 1) for key in context.keys]
    return context.spark.createDataFrame(rows, "day string, n long")


@job(output="days")
def broken(context: RunContext):
    raise ValueError("no such column")


@job(output="days")
def greedy(context: RunContext):
    bytearray(4 << 30)


@job(output="days")
def slow(context: RunContext):
    time.sleep(60)


def count(spark, location):
    return spark.read.format("delta").load(location).count()
"""


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs.py").write_text(JOBS)
        self.table = str(folder / "days")
        state = folder / "state"
        self.engine = SparkEngine(
            SparkSettings(memory="2g", conf=INTERPRETED), project=folder, state_dir=state
        )
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.engine.listen(self.ended.put)

    def submit(self, token: str, entrypoint: str, *keys: str) -> str:
        folder = self.folder / "runs" / token
        folder.mkdir(parents=True)
        dataset = {"namespace": "n", "name": "days"}
        spec: dict[str, Any] = {
            "schema_version": 1,
            "backfill_id": "b-1",
            "run_id": f"r-{token}",
            "attempt": 1,
            "token": token,
            "job": {"namespace": "n", "name": entrypoint, "entrypoint": f"jobs:{entrypoint}"},
            "partitions": list(keys),
            "keys": [{"key": key} for key in keys],
            "outputs": [
                {
                    "dataset": dataset,
                    "format": "delta",
                    "location": self.table,
                    "columns": ["day"],
                    "scope": [{"key": key, "values": {"day": key}} for key in keys],
                    "mode": "overwrite",
                    "on_empty": "clear",
                }
            ],
            "inputs": [],
            "parameters": {},
            "lineage": {"outbox": None, "url": None, "facets": {}},
            "result_path": str(folder / "result.json"),
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        return self.engine.submit(folder / "spec.json", token)

    def wait(self, handle: str) -> AttemptState:
        assert self.ended.get(timeout=120) == handle
        return self.engine.poll(handle).state


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("project"))
    bench.engine.open()
    yield bench
    bench.engine.close()


@pytest.mark.core
def test_it_writes_partitions_fails_cleanly_and_survives_greed_and_a_killed_worker(
    bench: Bench,
) -> None:
    first = bench.submit("t-1", "days", "2024-03-01", "2024-03-02")
    assert bench.wait(first) is AttemptState.SUCCEEDED
    result = bench.engine.poll(first).result
    assert result is not None
    written = result["outputs"][0]["partitions"]
    assert [one["key"] for one in written] == ["2024-03-01", "2024-03-02"]
    assert bench.engine.call("jobs:count", {"location": bench.table}) == 2

    broken = bench.submit("t-2", "broken", "2024-03-01")
    assert bench.wait(broken) is AttemptState.FAILED
    outcome = bench.engine.poll(broken)
    assert outcome.error == "ValueError: no such column"
    assert not outcome.transient
    assert "no such column" in log_of(broken)

    greedy = bench.submit("t-4", "greedy", "2024-03-01")
    assert bench.wait(greedy) is AttemptState.FAILED
    assert "MemoryError" in (bench.engine.poll(greedy).error or "")

    slow = bench.submit("t-3", "slow", "2024-03-01")
    while bench.engine.poll(slow).state is AttemptState.QUEUED:
        time.sleep(0.01)
    bench.engine.cancel(slow)
    assert bench.wait(slow) is AttemptState.CANCELLED
    assert bench.engine.call("jobs:count", {"location": bench.table}) == 2

    begun = time.monotonic()
    bench.engine.close()
    assert time.monotonic() - begun < 8
    assert list((bench.folder / "state" / "workers").glob("*.alive")) == []


def test_without_java_it_says_so_before_anything_is_submitted(tmp_path: Path) -> None:
    given = SparkSettings(env={"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"})
    engine = SparkEngine(given, project=tmp_path, state_dir=tmp_path)
    with pytest.raises(EnvironmentMissingError, match=r"(?i)java"):
        engine.open()
    engine.close()
