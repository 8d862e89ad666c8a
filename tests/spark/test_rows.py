"""Rows of a partition are compared between two versions of its table."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import TableError
from spark_runtime.logs.rows import RowsRequest, difference

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "day string, id long, email string, price decimal(10,2), tags map<string,string>"
BEFORE = [
    ("d1", 1, "a@x", Decimal(10), {"k": "v"}),
    ("d1", 2, "b@x", Decimal(20), None),
    ("d1", 3, "c@x", Decimal(30), {}),
    ("d2", 9, "z@x", Decimal(90), None),
]
AFTER = [
    ("d1", 1, "a@x", Decimal(10), {"k": "v"}),
    ("d1", 2, "new@x", Decimal(25), None),
    ("d1", 4, None, Decimal(40), None),
    ("d2", 9, "z@x", Decimal(99), None),
]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("rows") / "orders")
    for rows in (BEFORE, AFTER):
        frame = spark.createDataFrame(rows, SCHEMA)
        frame.write.format("delta").partitionBy("day").mode("overwrite").save(folder)
    return folder


def asked(table: str, **more: Any) -> RowsRequest:
    return RowsRequest(
        **{"location": table, "before": 0, "after": 1, "partitions": [{"day": "d1"}], **more}
    )


def test_rows_with_a_key_are_added_removed_and_changed(spark: SparkSession, table: str) -> None:
    found = difference(spark, asked(table, row_key=["id"], mask=["email"]))
    assert (found["rows_before"], found["rows_after"]) == (3, 3)
    assert found["added"] == {
        "count": 1,
        "rows": [{"day": "d1", "id": "4", "price": "40.00"}],
    }
    assert [row["id"] for row in found["removed"]["rows"]] == ["3"]
    assert found["changed"] == {
        "count": 1,
        "rows": [
            {
                "id": "2",
                "email": {"before": "***", "after": "***"},
                "price": {"before": "20.00", "after": "25.00"},
            }
        ],
    }
    assert found["sums"] == [{"column": "price", "before": "60.00", "after": "75.00"}]
    assert "@x" not in json.dumps(found)


def test_rows_without_a_unique_key_are_compared_whole(spark: SparkSession, table: str) -> None:
    for given in ({}, {"row_key": ["day"]}):
        found = difference(spark, asked(table, **given))
        assert (found["row_key"], found["key_is_unique"]) == ([], not given)
        assert (found["added"]["count"], found["removed"]["count"]) == (2, 2)
        assert found["changed"]["count"] == 0
        ids = [[row["id"] for row in found[side]["rows"]] for side in ("removed", "added")]
        assert ids == [["2", "3"], ["2", "4"]]


def test_a_new_table_and_a_bound(spark: SparkSession, table: str) -> None:
    found = difference(spark, asked(table, before=None, row_key=["id"], most=2))
    assert (found["rows_before"], found["added"]["count"]) == (0, 3)
    assert len(found["added"]["rows"]) == 2
    with pytest.raises(TableError, match="has no column nope"):
        difference(spark, asked(table, mask=["nope"]))


def test_names_of_columns_may_hold_dots(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    for n in (1, 2):
        frame = spark.createDataFrame([("d1", n)], "`the.day` string, `a.n` int")
        frame.write.format("delta").mode("overwrite").save(folder)
    request = asked(folder, partitions=[{"the.day": "d1"}], row_key=["the.day"])
    found = difference(spark, request)
    changed = {"the.day": "d1", "a.n": {"before": "1", "after": "2"}}
    assert found["changed"] == {"count": 1, "rows": [changed]}
    assert found["sums"] == [{"column": "a.n", "before": "1", "after": "2"}]
