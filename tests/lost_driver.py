"""Loses the rows that a write has shuffled, once they were looked at, in a Spark of its own.

    python tests/lost_driver.py FOLDER

It prints what the write failed with. A local Spark that misses a file takes its only executor for
lost, and ends minutes later: not in the session of other tests.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.sql import functions as F

from spark_runtime.session import get_session
from spark_runtime.tables.tables import Tables
from spark_runtime.write.checks import Audit, WriteOptions
from spark_runtime.write.writer import write_partitions
from tests.sessions import INTERPRETED
from tests.write_driver import spec


def main() -> None:
    """Write a table, then other rows each time that they are computed, whose files get lost."""
    path = f"{sys.argv[1]}/t"
    spark = get_session({"spark.master": "local[2]", **INTERPRETED})
    tables = Tables(spark)
    jvm: Any = spark.sparkContext._jvm
    disk = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()

    def lose(audit: Audit) -> None:
        found = disk.getAllFiles().toList()
        for file in [Path(found.apply(i).getPath()) for i in range(found.size())]:
            if file.name.startswith("shuffle_"):
                file.unlink(missing_ok=True)  # Spark removes those of earlier jobs meanwhile

    def write(rows: Any, attempt: int, options: WriteOptions) -> None:
        run = spec(path, "delta", attempt)
        write_partitions(rows, run.outputs[0], run, tables, options)

    rows = spark.createDataFrame([("d1", 0), ("d2", 0)], "day STRING, n INT")
    write(rows, 1, WriteOptions())
    others = rows.withColumn("n", (F.rand() * 1e9).cast("int"))
    try:
        write(others, 2, WriteOptions(checks=[lose]))
    except Exception as error:  # noqa: BLE001 (it is what this is about)
        sys.stdout.write(f"{error}\n")
    left = spark.read.format("delta").load(path).collect()
    sys.stdout.write(f"{sorted(map(tuple, left))}\n")
    spark.stop()


if __name__ == "__main__":
    main()
