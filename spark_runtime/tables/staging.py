"""Keeps computed rows for the duration of a write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from spark_runtime.session import keeps_shuffles


@contextmanager
def computed_once(spark: SparkSession, rows: DataFrame) -> Iterator[DataFrame]:
    """Store the rows so that Spark never recomputes them.

    Not in a cache: that compresses columns (more work than writing them), and recomputes what
    an executor has lost: perhaps other rows than those that were checked.
    """
    plan = rows._jdf.queryExecution()
    if keeps_shuffles(spark) and plan.executedPlan().nodeName() == "Exchange":
        # Shuffled rows are in files: reading them twice costs less than one copy.
        made = spark._jsparkSession.internalCreateDataFrame(plan.toRdd(), rows._jdf.schema(), False)
        yield DataFrame(made, spark)
        return
    kept = rows.localCheckpoint(eager=False)
    try:
        yield kept
    finally:
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)
