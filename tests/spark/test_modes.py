"""Merge, append, full replacement and checks keep to the scope as overwriting does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.runspec.values import Recorded
from spark_runtime.errors import (
    AppendedBeforeError,
    CheckFailedError,
    RuntimeFailure,
    StaleAttemptError,
    TableError,
    UndoRefusedError,
    WriteConflictError,
)
from spark_runtime.errors import UnexpectedPartitionError as Unexpected
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_attempts, undo_runs
from spark_runtime.write import checks
from spark_runtime.write.checks import WriteOptions
from spark_runtime.write.writer import write_partitions
from tests.sampling import a_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

BY_ID = WriteOptions(merge_on=("id",), newest_by="at")


def rows(spark: SparkSession, *values: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), "day STRING, id INT, at INT, v STRING")


@pytest.fixture(params=["delta"])
def filled(spark: SparkSession, table: Callable[..., Any], request: Any) -> Any:
    made = table("day", kind=request.param)
    frame = rows(spark, ("d1", 1, 10, "a"), ("d1", 2, 10, "b"), ("d2", 3, 10, "c"))
    made.write(frame, ["d1", "d2"], run_id="r-0")
    return made


def test_a_merge_updates_inserts_and_never_overwrites_newer_rows(
    spark: SparkSession, filled: Any
) -> None:
    new = rows(spark, ("d1", 1, 9, "older"), ("d1", 2, 11, "newer"), ("d1", 4, 1, "added"))
    result = filled.write(new, ["d1"], BY_ID, mode="merge")
    expected = [("d1", 1, 10, "a"), ("d1", 2, 11, "newer"), ("d1", 4, 1, "added")]
    assert filled.rows() == [*expected, ("d2", 3, 10, "c")]
    assert [(p.rows_before, p.rows) for p in result.partitions] == [(2, 3)]
    again = filled.write(new, ["d1"], BY_ID, mode="merge", run_id="r-2")
    assert filled.rows() == [*expected, ("d2", 3, 10, "c")]
    assert again.partitions[0].fingerprint == result.partitions[0].fingerprint


def test_rows_that_are_held_have_nothing_in_a_column_that_a_merge_adds(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    made.write(rows(spark, ("d1", 1, 10, "a"), ("d1", 2, 10, "b")), ["d1"], run_id="r-0")
    # Names that a merge might have taken for columns of its own.
    new = rows(spark, ("d1", 1, 11, "c")).selectExpr("*", "7 AS rank", "8 AS Age")
    result = made.write(new, ["d1"], BY_ID, mode="merge", on_drift="add")
    expected = [("d1", 1, 11, "c", 7, 8), ("d1", 2, 10, "b", None, None)]
    assert made.rows() == expected
    assert result.drift == ("rank was added", "Age was added")
    made.write(new.selectExpr("*"), ["d1"], BY_ID, mode="merge", run_id="r-2")
    assert made.rows() == expected


def test_what_is_kept_is_not_what_an_earlier_attempt_has_written(
    spark: SparkSession, filled: Any
) -> None:
    """A retry leaves partitions without rows as they were before the run, not after it."""
    before = filled.rows()
    first = rows(spark, ("d1", 5, 1, "x"), ("d2", 5, 1, "x"))
    filled.write(first, ["d1", "d2"], on_empty="keep")
    filled.write(first.where("day = 'd1'"), ["d1", "d2"], on_empty="keep", attempt=2)
    assert filled.rows() == [("d1", 5, 1, "x"), ("d2", 3, 10, "c")]
    filled.write(first.where("false"), ["d1", "d2"], on_empty="keep", attempt=3)
    assert filled.rows() == before


def test_a_merge_keeps_to_its_scope_and_needs_a_key(spark: SparkSession, filled: Any) -> None:
    with pytest.raises(Unexpected, match="day=d2"):
        filled.write(rows(spark, ("d2", 3, 99, "x")), ["d1"], BY_ID, mode="merge")
    with pytest.raises(RuntimeFailure, match="names no key"):
        filled.write(rows(spark, ("d1", 1, 99, "x")), ["d1"], mode="merge")
    assert len(filled.rows()) == 3


def test_an_append_adds_its_rows_once(spark: SparkSession, filled: Any) -> None:
    new = rows(spark, ("d1", 9, 1, "added"))
    result = filled.write(new, ["d1"], mode="append")
    assert filled.write(new, ["d1"], mode="append") == result
    assert len(filled.rows()) == 4
    (part,) = result.partitions
    assert (part.rows_before, part.rows, part.fingerprint) == (2, 3, None)
    again = {"mode": "append", "run_id": "r-2"}
    with pytest.raises(AppendedBeforeError, match=r"run r-1 of backfill b-1 has .* day=d1"):
        filled.write(new, ["d1"], **again)
    with pytest.raises(Unexpected):
        filled.write(rows(spark, ("d3", 9, 1, "x")), ["d1"], append_again=True, **again)
    undo_runs(spark, tokens=["b-1-r-1-1"], location=filled.path)
    filled.write(new, ["d1"], **again)
    assert len(filled.rows()) == 4


@pytest.mark.classic
def test_a_later_attempt_adds_its_rows_instead_of_those_of_an_earlier_one(
    spark: SparkSession, filled: Any
) -> None:
    """An attempt may fail after it has added its rows: at its next output, say."""
    before = filled.rows()
    filled.write(rows(spark, ("d1", 8, 1, "wrong"), ("d2", 9, 1, "x")), ["d1", "d2"], mode="append")
    new = rows(spark, ("d1", 9, 1, "right"))
    result = filled.write(new, ["d1", "d2"], mode="append", attempt=2)
    assert filled.rows() == sorted([*before, ("d1", 9, 1, "right")], key=repr)
    assert [(part.rows_before, part.rows) for part in result.partitions] == [(2, 3), (1, 1)]
    third = filled.write(new, ["d1", "d2"], mode="append", attempt=3)
    assert filled.rows() == sorted([*before, ("d1", 9, 1, "right")], key=repr)
    assert filled.write(new, ["d1", "d2"], mode="append", attempt=3) == third
    # Another run adds its own beside them.
    filled.write(new, ["d1", "d2"], mode="append", run_id="r-2", append_again=True)
    assert len(filled.rows()) == len(before) + 2
    # What the first run has added is in files of its own; once they are compacted it is not.
    filled.write(new, ["d1", "d2"], mode="append", attempt=4)
    assert len(filled.rows()) == len(before) + 2
    new.write.format("delta").mode("append").save(filled.path)
    spark.sql(f"OPTIMIZE delta.`{filled.path}`")
    with pytest.raises(WriteConflictError, match=r"an earlier attempt .* changed day=d1"):
        filled.write(new, ["d1", "d2"], mode="append", attempt=5)
    assert len(filled.rows()) == len(before) + 3


def test_an_attempt_that_the_log_has_forgotten_is_not_added_to(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    made.write(rows(spark, ("d1", 1, 10, "a")), ["d1"], run_id="r-0")
    made.write(rows(spark, ("d1", 8, 1, "x")), ["d1"], mode="append")
    name = f"delta.`{made.path}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    spark.sql(f"INSERT INTO {name} VALUES ('d2', 1, 1, 'y')")
    log = Path(made.path) / "_delta_log"
    assert (log / f"{4:020}.checkpoint.parquet").exists()
    for version in range(4):
        (log / f"{version:020}.json").unlink()
    before = made.rows()
    tables = Tables(spark)  # as another process would
    run = made.run_spec(["d1"], mode="append")
    with pytest.raises(StaleAttemptError, match="no longer says whether its rows stand"):
        write_partitions(rows(spark, ("d1", 8, 1, "x")), run.outputs[0], run, tables)
    run = made.run_spec(["d1"], mode="append", attempt=2)
    with pytest.raises(WriteConflictError, match="does not reach back"):
        write_partitions(rows(spark, ("d1", 9, 1, "z")), run.outputs[0], run, tables)
    # Another run: only the run store knows that one has appended to the key.
    run = made.run_spec(["d1", "d9"], mode="append", run_id="r-2", appended=[[0, 1]])
    new = rows(spark, ("d1", 9, 1, "z"), ("d9", 1, 1, "z"))
    with pytest.raises(AppendedBeforeError, match="a recorded run has appended to day=d1 of"):
        write_partitions(new, run.outputs[0], run, tables)
    assert made.rows() == before


def test_an_attempt_far_back_in_a_long_log_is_known(
    spark: SparkSession, table: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a log is read from a near checkpoint, which does not say who wrote."""
    monkeypatch.setattr("spark_runtime.tables.delta.log._REACH", 0)
    made = table("day")
    made.write(rows(spark, ("d1", 1, 10, "a")), ["d1"], run_id="r-0")
    new = rows(spark, ("d1", 8, 1, "x"))
    first = made.write(new, ["d1"], mode="append")
    name = f"delta.`{made.path}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    for value in ("d2", "d3"):
        spark.sql(f"INSERT INTO {name} VALUES ('{value}', 1, 1, 'y')")
    before = made.rows()
    near = Tables(spark).log(made.target).state()
    assert (near.first_read, near.tokens) == (4, {})
    run = made.run_spec(["d1"], mode="append")
    again = write_partitions(new, run.outputs[0], run, Tables(spark))
    assert (again.version, made.rows()) == (first.version, before)
    run = made.run_spec(["d1"], mode="append", run_id="r-2")
    with pytest.raises(AppendedBeforeError, match="run r-1 of backfill b-1"):
        write_partitions(new, run.outputs[0], run, Tables(spark))
    undo_runs(spark, tokens=["b-1-r-1-1"], location=made.path)
    assert made.rows() == [row for row in before if row != ("d1", 8, 1, "x")]


#: What the run store knows of an attempt that the log does not show: its versions, how many hours
#: ago it began, and the refusal to undo it, None where it has written nothing.
FORGOTTEN: list[tuple[dict[str, int | None] | None, int, str | None]] = [
    (None, 1, "whether the run wrote before that is no longer known"),
    (None, -1, None),
    ({"test:t": 1}, 1, "only: the run wrote version 1, after 20"),
    ({"test:t": None}, 1, None),
]


def test_what_the_run_store_knows_of_an_attempt_counts_where_the_log_is_silent(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    made.write(rows(spark, ("d1", 1, 10, "a")), ["d1"], run_id="r-1", token="t-1")
    spark.sql(f"ALTER TABLE delta.`{made.path}` SET TBLPROPERTIES (delta.checkpointInterval = 3)")
    made.write(rows(spark, ("d2", 2, 20, "b")), ["d2"], run_id="r-2", token="t-2")
    for version in range(3):
        (Path(made.path) / "_delta_log" / f"{version:020}.json").unlink()
    (output,) = made.run_spec(["d1"]).outputs
    before, tables = made.rows(), Tables(spark)
    for versions, ago, match in FORGOTTEN:
        since = datetime.now(UTC) - timedelta(hours=ago)
        known = [Recorded(token="t-1", since=since, versions=versions)]
        if match is None:
            assert undo_attempts(spark, output, ["t-1"], tables, known).version is None
        else:
            with pytest.raises(UndoRefusedError, match=match):
                undo_attempts(spark, output, ["t-1"], tables, known)
    assert made.rows() == before


def test_a_full_replacement_needs_every_partition_planned(spark: SparkSession, filled: Any) -> None:
    new = rows(spark, ("d1", 1, 1, "only"))
    with pytest.raises(TableError, match="day=d2"):
        filled.write(new, ["d1"], mode="full")
    filled.write(new, ["d1", "d2"], mode="full")
    assert filled.rows() == [("d1", 1, 1, "only")]


@pytest.mark.parametrize(
    ("check", "complaint"),
    a_part(
        [
            (checks.expect_rows(at_least=3), "fewer than 3 rows in day=d1"),
            (checks.expect_rows(at_most=0), "more than 0 rows in day=d1"),
            (checks.within(20), r"day=d1 \(2 -> 1\)"),
            (checks.not_null("v"), "NULL in v"),
            (checks.unique("at"), None),
            (lambda audit: f"{audit.frame.count()} rows", "1 rows"),
            (lambda audit: audit.frame.count() > 1, "the check <lambda> failed"),
            (lambda audit: audit.rows == {"day=d1": 1}, None),
        ],
        every=3,
    ),
)
def test_a_check_that_fails_leaves_the_old_rows(
    spark: SparkSession, filled: Any, check: checks.Check, complaint: str | None
) -> None:
    new, options = rows(spark, ("d1", 7, 7, None)), WriteOptions(checks=[check])
    if complaint is None:
        filled.write(new, ["d1"], options)
        assert len(filled.rows()) == 2
        return
    with pytest.raises(CheckFailedError, match=complaint):
        filled.write(new, ["d1"], options)
    assert len(filled.rows()) == 3


def test_a_check_that_raises_or_says_nothing_stops_the_write(
    spark: SparkSession, filled: Any
) -> None:
    new = rows(spark, ("d1", 7, 7, None))
    with pytest.raises(ZeroDivisionError):
        filled.write(new, ["d1"], WriteOptions(checks=[lambda audit: str(1 // 0)]))
    with pytest.raises(RuntimeFailure, match="a check returned 0"):
        filled.write(new, ["d1"], WriteOptions(checks=[lambda audit: 0]))  # type: ignore[list-item, return-value]
    assert len(filled.rows()) == 3


def test_rows_that_are_not_unique_are_not_published(spark: SparkSession, filled: Any) -> None:
    twice = rows(spark, ("d1", None, 1, "x"), ("d1", None, 1, "y"))
    with pytest.raises(CheckFailedError, match="several rows with the same id"):
        filled.write(twice, ["d1"], WriteOptions(checks=[checks.unique("id")]))
