"""What the Spark sessions of tests have in common.

`python -m tests.sessions` starts one, and uses it: a JVM can write down what classes that takes.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

from spark_runtime.session import get_session

#: Hundreds of queries over a handful of rows: not one is worth compiling.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def use() -> None:
    """Write a table of Delta, replace a part of it, and read it."""
    spark = get_session({"spark.master": "local[2]", **INTERPRETED})
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "n INT, day STRING")
    with TemporaryDirectory() as folder:
        rows = frame.write.format("delta").partitionBy("day")
        rows.save(f"{folder}/t")
        rows.mode("overwrite").option("replaceWhere", "day IN ('a', 'b')").save(f"{folder}/t")
        spark.read.format("delta").load(f"{folder}/t").groupBy("day").count().collect()
    spark.stop()


if __name__ == "__main__":
    use()
