"""Undo puts back the partitions of one run, newest first, and harms nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.deltalog import DeltaLog
from spark_runtime.errors import StaleAttemptError, UndoRefusedError
from spark_runtime.undo import preflight, undo_run, undo_runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def rows(spark: SparkSession, *values: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(list(values), "day STRING, n INT")


@pytest.fixture(params=["delta", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def delta(spark: SparkSession, table: Callable[..., Any]) -> Any:
    return fill(spark, table("day"))


@pytest.fixture
def twice(spark: SparkSession, table: Callable[..., Any], kind: str) -> Any:
    return fill(spark, table("day", kind=kind))


def fill(spark: SparkSession, made: Any) -> Any:
    """A table with a first state, then run `t-1` over d1 and d2, then run `t-2` over d2."""
    made.write(rows(spark, ("d1", 0), ("d2", 0), ("d3", 0)), ["d1", "d2", "d3"], token="t-0")
    made.write(rows(spark, ("d1", 1)), ["d1", "d2"], run_id="r-1b", token="t-1")
    made.write(rows(spark, ("d2", 2)), ["d2"], run_id="r-2", token="t-2")
    return made


def test_newest_first_everything_is_as_it_was(spark: SparkSession, twice: Any) -> None:
    with pytest.raises(UndoRefusedError, match="day=d2"):
        undo_run(spark, token="t-1", location=twice.path, format=twice.kind)
    undone = undo_run(spark, token="t-2", location=twice.path, format=twice.kind)
    assert undone["partitions"] == ["day=d2"]
    assert twice.rows() == [("d1", 1), ("d3", 0)]
    assert undo_run(spark, token="t-2", location=twice.path, format=twice.kind) == undone
    undo_run(spark, token="t-1", location=twice.path, format=twice.kind)
    assert twice.rows() == [("d1", 0), ("d2", 0), ("d3", 0)]
    before, after = twice.state(1), twice.state()
    assert [after.contents((d,)).fingerprint for d in ("d1", "d2", "d3")] == [
        before.contents((d,)).fingerprint for d in ("d1", "d2", "d3")
    ]
    with pytest.raises(StaleAttemptError):
        twice.write(rows(spark, ("d2", 2)), ["d2"], run_id="r-2", token="t-2")


def test_somebody_elses_later_change_is_not_undone(spark: SparkSession, delta: Any) -> None:
    rows(spark, ("d2", 9)).write.format("delta").mode("append").save(delta.path)
    with pytest.raises(
        UndoRefusedError, match=r"version 4 \(WRITE by Apache-Spark/.* changed day=d2"
    ):
        undo_run(spark, token="t-2", location=delta.path)
    assert ("d2", 9) in delta.rows()


def test_files_that_are_gone_are_found_before_anything_is_changed(
    spark: SparkSession, delta: Any
) -> None:
    state = DeltaLog(delta.path).state(1)
    ((path, _vector),) = state.contents(("d1",)).files or {}
    (Path(delta.path) / path).unlink()
    undo_run(spark, token="t-2", location=delta.path)
    with pytest.raises(UndoRefusedError, match="day=d1"):
        undo_run(spark, token="t-1", location=delta.path)
    assert ("d1", 1) in delta.rows()


def test_a_run_that_wrote_nothing_has_nothing_to_undo(spark: SparkSession, twice: Any) -> None:
    assert undo_run(spark, token="never", location=twice.path, format=twice.kind) == {
        "version": None,
        "partitions": [],
    }


def test_runs_are_undone_together_in_one_commit(spark: SparkSession, twice: Any, kind: str) -> None:
    def undo(*tokens: str) -> dict[str, object]:
        return undo_runs(spark, tokens=tokens, location=twice.path, format=kind)

    before = twice.version
    twice.write(rows(spark, ("d3", 3), ("d4", 3)), ["d3", "d4"], run_id="r-3", token="t-3")
    twice.write(rows(spark, ("d3", 9)), ["d3"], run_id="other", token="theirs", backfill_id="b-2")
    with pytest.raises(UndoRefusedError, match=r"of backfill b-2 at .*\) of .* changed day=d3"):
        undo("t-1", "t-2", "t-3")
    assert twice.version == before + 2
    undo("theirs")
    undo("t-2")  # one of them by itself, before the others
    undone = undo("t-3", "never", "t-1", "t-2")
    assert undone == {
        "version": before + 5,
        "partitions": ["day=d1", "day=d2", "day=d3", "day=d4"],
    }
    assert undo("t-1", "t-2", "t-3") == undone
    assert twice.version == before + 5
    assert twice.rows() == [("d1", 0), ("d2", 0), ("d3", 0)]


def test_what_somebody_else_did_between_two_runs_stays(
    spark: SparkSession, table: Callable[..., Any], kind: str
) -> None:
    made = table("day", kind=kind)
    made.write(rows(spark, ("d1", 0), ("d2", 0)), ["d1", "d2"], token="t-0")
    made.write(rows(spark, ("d1", 1)), ["d1"], run_id="r-1b", token="t-1")
    made.write(rows(spark, ("d2", 5)), ["d2"], run_id="other", token="theirs", backfill_id="b-2")
    made.write(rows(spark, ("d2", 2)), ["d2"], run_id="r-2", token="t-2")
    undo_runs(spark, tokens=["t-1", "t-2"], location=made.path, format=kind)
    assert made.rows() == [("d1", 0), ("d2", 5)]


def test_what_would_keep_an_undo_from_working_is_said_beforehand(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    name = f"delta.`{made.path}`"
    spark.sql(
        f"CREATE TABLE {name} (day STRING, id BIGINT GENERATED ALWAYS AS IDENTITY) USING delta "
        "PARTITIONED BY (day)"
    )
    log = DeltaLog(made.path)
    assert preflight(log) == ["its rows are numbered by 'id', and would be numbered anew"]
    retention = "'delta.deletedFileRetentionDuration' = 'interval 36 hours'"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({retention})")
    problems = preflight(log)
    assert problems[1:] == [
        "delta.deletedFileRetentionDuration is 1.5 days: later the old rows may be gone"
    ]
    assert len(preflight(log, days=60)) == 3
    assert len(preflight(log, days=1)) == 1
