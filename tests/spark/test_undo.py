"""Undo puts back the partitions of one run, newest first, and harms nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.deltalog import DeltaLog
from spark_runtime.errors import StaleAttemptError, TableError, UndoRefusedError
from spark_runtime.undo import undo_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def rows(spark: SparkSession, *values: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(list(values), "day STRING, n INT")


@pytest.fixture
def twice(spark: SparkSession, table: Callable[..., Any]) -> Any:
    """A table with a first state, then run `t-1` over d1 and d2, then run `t-2` over d2."""
    made = table("day")
    made.write(rows(spark, ("d1", 0), ("d2", 0), ("d3", 0)), ["d1", "d2", "d3"], token="t-0")
    made.write(rows(spark, ("d1", 1)), ["d1", "d2"], run_id="r-1b", token="t-1")
    made.write(rows(spark, ("d2", 2)), ["d2"], run_id="r-2", token="t-2")
    return made


def test_newest_first_everything_is_as_it_was(spark: SparkSession, twice: Any) -> None:
    with pytest.raises(UndoRefusedError, match="day=d2"):
        undo_run(spark, token="t-1", location=twice.path)
    undone = undo_run(spark, token="t-2", location=twice.path)
    assert undone["partitions"] == ["day=d2"]
    assert twice.rows() == [("d1", 1), ("d3", 0)]
    assert undo_run(spark, token="t-2", location=twice.path) == undone
    undo_run(spark, token="t-1", location=twice.path)
    assert twice.rows() == [("d1", 0), ("d2", 0), ("d3", 0)]
    before, after = DeltaLog(twice.path).state(1), DeltaLog(twice.path).state()
    assert [after.contents((d,)).fingerprint for d in ("d1", "d2", "d3")] == [
        before.contents((d,)).fingerprint for d in ("d1", "d2", "d3")
    ]
    with pytest.raises(StaleAttemptError):
        twice.write(rows(spark, ("d2", 2)), ["d2"], run_id="r-2", token="t-2")


def test_somebody_elses_later_change_is_not_undone(spark: SparkSession, twice: Any) -> None:
    rows(spark, ("d2", 9)).write.format("delta").mode("append").save(twice.path)
    with pytest.raises(UndoRefusedError, match=r"version 4 \(WRITE\)"):
        undo_run(spark, token="t-2", location=twice.path)
    assert ("d2", 9) in twice.rows()


def test_files_that_are_gone_are_found_before_anything_is_changed(
    spark: SparkSession, twice: Any
) -> None:
    state = DeltaLog(twice.path).state(1)
    ((path, _vector),) = state.contents(("d1",)).files or {}
    (Path(twice.path) / path).unlink()
    undo_run(spark, token="t-2", location=twice.path)
    with pytest.raises(TableError, match="day=d1"):
        undo_run(spark, token="t-1", location=twice.path)
    assert ("d1", 1) in twice.rows()


def test_a_run_that_wrote_nothing_has_nothing_to_undo(spark: SparkSession, twice: Any) -> None:
    assert undo_run(spark, token="never", location=twice.path) == {
        "version": None,
        "partitions": [],
    }
