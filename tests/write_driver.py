"""Writes to a table in a Spark of its own and dies, JVM and all, where it is told to.

    python tests/write_driver.py TABLE FORMAT STEP

STEP is one of STEPS.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from spark_runtime import delta
from spark_runtime.parquetlog import ParquetLog
from spark_runtime.session import get_session
from spark_runtime.spec import parse_spec
from spark_runtime.tables import Tables
from spark_runtime.writer import WriteOptions, write_partitions

#: Where the process dies: while files are being written, with the rows at hand and checked, and
#: once they are visible, before anybody has been told.
STEPS = ("writing", "checked", "published")


def die() -> None:
    """Kill this process and its JVM, which are a group of their own."""
    assert os.getpgrp() == os.getpid()
    os.killpg(os.getpid(), signal.SIGKILL)


def spec(path: str, kind: str, attempt: int = 1) -> Any:
    """The run: it replaces d1 and d2, and clears d3."""
    days = ("d1", "d2", "d3")
    return parse_spec(
        {
            "schema_version": 1,
            "backfill_id": "b-1",
            "run_id": "killed",
            "attempt": attempt,
            "token": f"killed-{attempt}",
            "job": {"namespace": "test", "name": "job", "entrypoint": "jobs:job"},
            "partitions": list(days),
            "keys": [],
            "inputs": [],
            "outputs": [
                {
                    "dataset": {"namespace": "test", "name": "t"},
                    "format": kind,
                    "location": path,
                    "columns": ["day"],
                    "scope": [{"key": day, "values": {"day": day}} for day in days],
                }
            ],
            "result_path": f"{path}.result.json",
        }
    )


def rows(spark: Any) -> Any:
    """The new rows."""
    return spark.createDataFrame([("d1", 7), ("d2", 8)], "day STRING, n INT")


def endless(frame: Any, started: str) -> Any:
    """The same rows, but that of d2 never comes; that of d1 has been written by then."""
    from pyspark.sql import functions as F

    def slow(n: int) -> int:
        if n == 8:
            Path(started).touch()
            time.sleep(300)
        return n

    return frame.withColumn("n", F.udf(slow, "int")("n"))


def fatal(original: Callable[..., Any]) -> Callable[..., None]:
    """Make a function the last thing that this process does."""

    def call(*arguments: Any) -> None:
        original(*arguments)
        die()

    return call


def main(path: str, kind: str, step: str) -> None:
    """Write, and die on the way."""
    os.setpgid(0, 0)
    spark = get_session({"spark.master": "local[2]"})
    frame, checks = rows(spark), []
    started = f"{path}.started"
    if step == "writing" and kind == "parquet":
        frame = endless(frame, started)
    if step == "writing" and kind == "delta":
        replace = delta.replace
        setattr(delta, "replace", lambda f, *rest: replace(endless(f, started), *rest))  # noqa: B010
    if step == "checked":
        checks.append(lambda audit: die())
    if step == "published":
        owner, name = (delta, "replace") if kind == "delta" else (ParquetLog, "publish")
        setattr(owner, name, fatal(getattr(owner, name)))
    run = spec(path, kind)
    (output,) = run.outputs
    write_partitions(frame, output, run, Tables(spark), WriteOptions(checks=checks))


if __name__ == "__main__":
    main(*sys.argv[1:])
