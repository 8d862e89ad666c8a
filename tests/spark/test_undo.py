"""Undo puts back the partitions of one run, newest first, and harms nobody else's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import (
    ConstraintError,
    StaleAttemptError,
    TableError,
    UndoRefusedError,
    VerificationError,
    WriteConflictError,
)
from spark_runtime.tables.delta.format import replace
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.places import local_path
from spark_runtime.tables.state import Since
from spark_runtime.undo import undo_attempts, undo_runs
from spark_runtime.write.checks import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from spark_runtime.tables.tables import Tables


def rows(spark: SparkSession, *values: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(list(values), "day STRING, n INT")


@pytest.fixture(params=["delta"])
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


@pytest.mark.core
def test_newest_first_everything_is_as_it_was(spark: SparkSession, twice: Any) -> None:
    with pytest.raises(UndoRefusedError, match="day=d2"):
        undo_runs(spark, tokens=["t-1"], location=twice.path, format=twice.kind)
    undone = undo_runs(spark, tokens=["t-2"], location=twice.path, format=twice.kind)
    assert undone["partitions"] == ["day=d2"]
    assert twice.rows() == [("d1", 1), ("d3", 0)]
    assert undo_runs(spark, tokens=["t-2"], location=twice.path, format=twice.kind) == undone
    undo_runs(spark, tokens=["t-1"], location=twice.path, format=twice.kind)
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
        undo_runs(spark, tokens=["t-2"], location=delta.path)
    assert ("d2", 9) in delta.rows()


def test_a_change_that_slips_in_unseen_stays_and_so_does_what_was_to_be_undone(
    spark: SparkSession, delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: Any) -> None:
        if meanwhile:
            rows(spark, meanwhile.pop()).write.format("delta").mode("append").save(delta.path)
        replace(*arguments)

    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", late)
    before = delta.rows()
    meanwhile = [("d2", 9)]
    with pytest.raises(UndoRefusedError, match=r"\(WRITE by .* changed the same partitions"):
        undo_runs(spark, tokens=["t-2"], location=delta.path)
    assert delta.rows() == sorted([*before, ("d2", 9)])
    # It was not undone: that can still be tried, and is still refused.
    with pytest.raises(UndoRefusedError, match="changed day=d2"):
        undo_runs(spark, tokens=["t-2"], location=delta.path)
    spark.sql(f"DELETE FROM delta.`{delta.path}` WHERE n = 9")
    assert delta.rows() == before


@pytest.mark.parametrize("twice_wrong", [False, True])
def test_an_undo_that_does_not_bring_all_rows_back_says_so(
    spark: SparkSession, delta: Any, monkeypatch: pytest.MonkeyPatch, twice_wrong: bool
) -> None:
    def losing(frame: DataFrame, *rest: Any) -> None:
        replace(frame.limit(0) if losses.pop() else frame, *rest)

    before = delta.rows()
    with monkeypatch.context() as patched:
        patched.setattr("spark_runtime.tables.delta.format.replace", losing)
        losses = [twice_wrong, True]
        kind = VerificationError if twice_wrong else UndoRefusedError
        with pytest.raises(kind, match="the previous rows of day=d1, day=d2") as raised:
            undo_runs(spark, tokens=["t-1", "t-2"], location=delta.path)
    assert getattr(raised.value, "stands", False) is twice_wrong
    assert (delta.rows() == before) is not twice_wrong
    if not twice_wrong:
        undo_runs(spark, tokens=["t-1", "t-2"], location=delta.path)
        assert delta.rows() == [("d1", 0), ("d2", 0), ("d3", 0)]


def test_an_undoing_that_was_taken_back_can_be_done_again(
    spark: SparkSession, delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: Any) -> None:
        if meanwhile:
            said = json.dumps({"lineage_backfill": {"token": meanwhile.pop(), "partitions": []}})
            writer = rows(spark, ("d2", 9)).write.format("delta").mode("append")
            writer.option("userMetadata", said).save(delta.path)
        replace(*arguments)

    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", late)
    meanwhile = ["theirs"]
    with pytest.raises(UndoRefusedError, match="changed the same partitions"):
        undo_runs(spark, tokens=["t-2"], location=delta.path)
    undo_runs(spark, tokens=["theirs"], location=delta.path)
    undo_runs(spark, tokens=["t-2"], location=delta.path)
    undo_runs(spark, tokens=["t-1"], location=delta.path)
    assert delta.rows() == [("d1", 0), ("d2", 0), ("d3", 0)]


def test_nobody_goes_on_with_a_table_that_was_partitioned_anew_meanwhile(
    spark: SparkSession, delta: Any
) -> None:
    """Also where its columns are by now what they were: all its rows are somebody else's."""
    since = delta.version
    for column in ("n", "day"):
        frame = spark.read.format("delta").load(delta.path)
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.partitionBy(column).save(delta.path)
    before = delta.rows()
    # Of a partition that none of it had: only the change of columns tells.
    with pytest.raises(WriteConflictError, match="changed day=d9"):
        delta.write(rows(spark, ("d9", 1)), ["d9"], WriteOptions(since=Since(since)), run_id="r-9")
    with pytest.raises(UndoRefusedError):
        undo_runs(spark, tokens=["t-2"], location=delta.path)
    assert delta.rows() == before


def test_old_rows_come_back_under_the_columns_that_the_table_has_by_now(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    name = f"delta.`{made.path}`"
    spark.sql(
        f"CREATE TABLE {name} (day STRING, n INT, v INT, s STRUCT<a: INT>, gone INT) USING delta "
        "PARTITIONED BY (day) TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.enableTypeWidening' = 'true')"
    )
    shape = "day STRING, n INT, v INT, s STRUCT<a: INT>, gone INT"
    for number, v in enumerate((10, 11)):
        frame = spark.createDataFrame([("d1", 1, v, (v,), v), ("d2", 2, v, (v,), v)], shape)
        made.write(frame, ["d1", "d2"], run_id=f"r-{number}", token=f"t-{number}")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN v TO w")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN day TO date")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE BIGINT")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN gone")
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (v STRING, s.b STRING)")
    undo_runs(spark, tokens=["t-1"], location=made.path)
    assert [row[:3] for row in made.rows()] == [("d1", 1, 10), ("d2", 2, 10)]
    assert [row[4] for row in made.rows()] == [None, None]
    assert [row[3].asDict() for row in made.rows()] == [{"a": 10, "b": None}] * 2


def test_an_undo_that_is_told_other_partition_columns_changes_nothing(
    spark: SparkSession, delta: Any, tables: Tables
) -> None:
    name = f"delta.`{delta.path}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN day TO date")
    before = delta.rows()
    (output,) = delta.run_spec(["d2"]).outputs
    with pytest.raises(TableError, match=r"partitioned by \['date'\], the run spec says \['day'\]"):
        undo_attempts(spark, output, ["t-2"], tables)
    assert delta.rows() == before


def test_old_rows_that_do_not_fit_any_more_are_refused(spark: SparkSession, delta: Any) -> None:
    name = f"delta.`{delta.path}`"
    undo_runs(spark, tokens=["t-2"], location=delta.path)
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT more CHECK (n > 1 OR day <> 'd2')")
    before = delta.rows()
    with pytest.raises(ConstraintError, match="old rows break a constraint") as raised:
        undo_runs(spark, tokens=["t-1"], location=delta.path)
    assert raised.value.hint == "Drop the constraint and undo again, or keep the new rows."
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT more")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(UndoRefusedError, match="append-only"):
        undo_runs(spark, tokens=["t-1"], location=delta.path)
    assert delta.rows() == before


def test_files_that_are_gone_are_found_before_anything_is_changed(
    spark: SparkSession, delta: Any
) -> None:
    state = DeltaLog(delta.path).state(1)
    ((path, _vector),) = state.contents(("d1",)).files or {}
    (Path(delta.path) / path).unlink()
    undo_runs(spark, tokens=["t-2"], location=delta.path)
    with pytest.raises(UndoRefusedError, match="day=d1"):
        undo_runs(spark, tokens=["t-1"], location=delta.path)
    assert ("d1", 1) in delta.rows()


def test_a_run_that_wrote_nothing_has_nothing_to_undo(spark: SparkSession, twice: Any) -> None:
    assert undo_runs(spark, tokens=["never"], location=twice.path, format=twice.kind) == {
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


def test_a_run_on_a_shallow_clone_is_undone(
    spark: SparkSession, delta: Any, table: Callable[..., Any], tmp_path: Path
) -> None:
    """Its log names the files of the table that it was cloned from by their URLs."""
    odd = "d 1?#%25"
    delta.write(rows(spark, (odd, 7)), [odd], run_id="r-5", token="t-5")
    clone = table("day", name="clone")
    spark.sql(f"CREATE TABLE delta.`{clone.path}` SHALLOW CLONE delta.`{delta.path}`")
    before = clone.rows()
    clone.write(rows(spark, ("d1", 8), (odd, 8)), ["d1", odd], run_id="r-6", token="t-6")
    ((path, _vector),) = clone.state(0).contents(("d1",)).files
    aside = local_path(path).rename(tmp_path / "aside")
    with pytest.raises(UndoRefusedError, match="a file of day=d1"):
        undo_runs(spark, tokens=["t-6"], location=clone.path)
    aside.rename(local_path(path))
    undo_runs(spark, tokens=["t-6"], location=clone.path)
    assert clone.rows() == before
