"""Writes to several tables in a Spark of its own, each up to another step, and waits to be killed.

    python tests/write_driver.py FOLDER

The tables are `FORMAT-STEP` in the folder. Starting a Spark takes longer than all else here: one
dies in all its steps at once.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from lineage_backfill.runspec.parse import parse_spec
from spark_runtime.session import get_session
from spark_runtime.tables.delta import format as delta
from spark_runtime.tables.tables import Tables
from spark_runtime.write.checks import WriteOptions
from spark_runtime.write.writer import write_partitions

FORMATS = ("delta",)
#: Where a write is when the process dies: with the rows at hand and checked, once they are visible
#: and before anybody has been told, and while files are being written.
STEPS = ("checked", "published", "writing")


def reached(path: str) -> Path:
    """The file that says that the write to a table has come as far as it gets."""
    return Path(f"{path}.reached")


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


def endless(frame: Any, path: str) -> Any:
    """The same rows, but that of d2 never comes; that of d1 has been written by then."""
    from pyspark.sql import functions as F

    started = reached(path)

    def slow(n: int) -> int:
        if n == 8:
            started.touch()
            time.sleep(300)
        return n

    return frame.withColumn("n", F.udf(slow, "int")("n"))


def stay(path: str) -> None:
    """Get no further."""
    reached(path).touch()
    threading.Event().wait()


def write(spark: Any, path: str, kind: str, step: str) -> None:
    """Write to a table as far as the step."""
    frame = rows(spark)
    checks = [lambda _: stay(path)] if step == "checked" else []
    run = spec(path, kind)
    (output,) = run.outputs
    write_partitions(frame, output, run, Tables(spark), WriteOptions(checks=checks))


def main(folder: str) -> None:
    """Begin to write to all tables; no write ends."""
    # Each endless write keeps a core busy.
    spark = get_session({"spark.master": "local[4]", "spark.sql.shuffle.partitions": "2"})
    replace = delta.replace

    def replacing(frame: Any, location: str, *rest: Any) -> None:
        replace(
            endless(frame, location) if location.endswith("writing") else frame, location, *rest
        )
        stay(location)

    patch.object(delta, "replace", replacing).start()
    for step in STEPS:
        for kind in FORMATS:
            path = f"{folder}/{kind}-{step}"
            writer = threading.Thread(target=write, args=(spark, path, kind, step), daemon=True)
            writer.start()
            while not reached(path).exists():
                assert writer.is_alive(), path
                time.sleep(0.02)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
