"""Rows of a table that is partitioned by `backfill_key` get the key of their run, or say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import UnstampedRowsError
from spark_runtime.write.stamp import stamped

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

EU, US = {"region": "eu"}, {"region": "us"}


def by_key(*keys: str) -> list[dict[str, str | None]]:
    return [{"backfill_key": key} for key in keys]


def stamp(made: Any, frame: DataFrame, scope: Any) -> DataFrame:
    (output,) = made.run_spec(scope).outputs
    return stamped(frame, output, made.tables.state(output))


def test_the_rows_of_one_key_are_stamped(spark: SparkSession, table: Callable[..., Any]) -> None:
    made = table("backfill_key")
    rows = spark.createDataFrame([(1,), (2,)], "n INT")
    made.write(stamp(made, rows, by_key("2024-06-15")), by_key("2024-06-15"))
    # The table is there now, and its columns are in another order than a run's rows would be.
    made.write(stamp(made, rows.limit(1), by_key("2024-06-16")), by_key("2024-06-16"), run_id="r-2")
    assert made.rows() == [(1, "2024-06-15"), (1, "2024-06-16"), (2, "2024-06-15")]


def test_the_rows_of_several_keys_say_which_is_whose(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("backfill_key")
    keys = by_key("2024-06-15", "2024-06-16")
    unstamped = spark.createDataFrame([(1,)], "n INT")
    with pytest.raises(UnstampedRowsError, match="the run writes 2 keys of test:t, and") as raised:
        stamp(made, unstamped, keys)
    assert isinstance(raised.value, ValueError)
    own = spark.createDataFrame([(1, "2024-06-16")], "n INT, Backfill_Key STRING")
    assert stamp(made, own, keys) is own
    assert stamp(made, own, keys[:1]) is own  # what a row says is never overwritten


def test_one_key_may_be_several_partitions(spark: SparkSession, table: Callable[..., Any]) -> None:
    made = table("region", "backfill_key")
    scope = [{**EU, **key} for key in by_key("2024-06-15")] + [
        {**US, **key} for key in by_key("2024-06-15")
    ]
    rows = spark.createDataFrame([("eu", 1), ("us", 2)], "region STRING, n INT")
    assert [tuple(row) for row in stamp(made, rows, scope).collect()] == [
        ("eu", 1, "2024-06-15"),
        ("us", 2, "2024-06-15"),
    ]


def test_the_stamp_has_the_type_of_its_column(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("backfill_key")
    first = spark.createDataFrame([(1, "2024-06-15")], "n INT, day STRING")
    first = first.selectExpr("n", "CAST(day AS DATE) AS backfill_key")
    made.write(first, by_key("2024-06-15"))
    rows = stamp(made, spark.createDataFrame([(2,)], "n INT"), by_key("2024-06-16"))
    assert rows.schema["backfill_key"].dataType.simpleString() == "date"


def test_tables_without_that_column_are_left_alone(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    rows = spark.createDataFrame([("d1",)], "day STRING")
    assert stamp(made, rows, ["d1", "d2"]) is rows
