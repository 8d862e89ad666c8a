"""Keeps computed rows for the duration of a write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from spark_runtime import classic
from spark_runtime.connect import is_connect
from spark_runtime.session import keeps_shuffles


@contextmanager
def computed_once(spark: SparkSession, rows: DataFrame) -> Iterator[DataFrame]:
    """Store the rows so that Spark never recomputes them.

    Not in a cache: that compresses columns (more work than writing them), and recomputes what
    an executor has lost: perhaps other rows than those that were checked.
    """
    if keeps_shuffles(spark) and (kept := classic.shuffled_rows(spark, rows)) is not None:
        yield kept
        return
    kept = rows.localCheckpoint(eager=False)
    try:
        yield kept
    finally:
        if not is_connect(spark):  # else the server drops it with its last reference
            classic.drop_checkpoint(kept)
