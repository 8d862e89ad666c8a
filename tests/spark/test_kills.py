"""A whole Spark process is killed in the middle of a write: the table is as before or as after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.tables import Tables
from spark_runtime.writer import write_partitions
from tests.write_driver import STEPS, rows, spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).parents[1] / "write_driver.py"
DAYS = ["d1", "d2", "d3", "d4"]
OLD = [(day, 0) for day in DAYS]
NEW = [("d1", 7), ("d2", 8), ("d4", 0)]


def kill(path: str, kind: str, step: str) -> None:
    """Run the driver until it dies; in step `writing` the death comes from outside."""
    process = subprocess.Popen(
        [sys.executable, str(DRIVER), path, kind, step],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if step == "writing":
        deadline = time.monotonic() + 240
        while not Path(f"{path}.started").exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert os.getpgid(process.pid) == process.pid  # a group of its own, made by itself
        os.killpg(process.pid, signal.SIGKILL)
    _, talk = process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL, talk


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_writer_leaves_old_or_new_and_the_next_attempt_writes(
    spark: SparkSession, table: Callable[..., Any], kind: str, step: str
) -> None:
    made = table("day", kind=kind)
    made.write(spark.createDataFrame(OLD, "day STRING, n INT"), DAYS, run_id="r-0")
    kill(made.path, kind, step)
    published = step == "published"
    tables = Tables(spark)
    state = tables.log(made.target).state()  # whoever looks next finishes what was journalled
    assert made.rows() == (NEW if published else OLD)
    assert ("killed-1" in state.tokens) == published
    assert all(held.rows is not None for held in state.partitions.values())

    for attempt in (1, 2):
        run = spec(made.path, kind, attempt)
        (output,) = run.outputs
        result = write_partitions(rows(spark), output, run, tables)
        assert made.rows() == NEW
        # The same attempt, asked for again, finds its commit; the next one writes over it.
        before = [1, 1, 1] if attempt == 1 else [1, 1, 0]
        assert [part.rows_before for part in result.partitions] == before
        assert [part.rows for part in result.partitions] == [1, 1, 0]
    assert not list(Path(made.path).glob("_lineage_backfill/staging/*"))
