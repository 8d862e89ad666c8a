"""A whole Spark process is killed in the middle of writes: each table is as before or as after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.tables.tables import Tables
from spark_runtime.write.writer import write_partitions
from tests.sampling import a_part
from tests.write_driver import FORMATS, STEPS, reached, rows, spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


DRIVER = Path(__file__).parents[1] / "write_driver.py"
DAYS = ["d1", "d2", "d3", "d4"]
OLD = [(day, 0) for day in DAYS]
NEW = [("d1", 7), ("d2", 8), ("d4", 0)]


@pytest.fixture(scope="module")
def killed(
    spark: SparkSession,
    make_table: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, str], Any]:
    """Tables whose writer was killed, all at once, each in another step."""
    folder = tmp_path_factory.mktemp("killed")
    made = {}
    for kind in FORMATS:
        for step in STEPS:
            table = made[kind, step] = make_table(folder / f"{kind}-{step}", ["day"], kind)
            table.write(spark.createDataFrame(OLD, "day STRING, n INT"), DAYS, run_id="r-0")
    process = subprocess.Popen(
        [sys.executable, str(DRIVER), str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    deadline = time.monotonic() + 300
    while not all(reached(table.path).exists() for table in made.values()):
        if process.poll() is not None or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    _, talk = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, talk
    assert all(reached(table.path).exists() for table in made.values()), talk
    return lambda kind, step: made[kind, step]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("step", a_part(STEPS, every=2))
def test_a_killed_writer_leaves_old_or_new_and_the_next_attempt_writes(
    spark: SparkSession, killed: Callable[[str, str], Any], kind: str, step: str
) -> None:
    made = killed(kind, step)
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
