"""Fingerprints tell contents apart and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.tables.fingerprint import Fingerprint
from spark_runtime.tables.state import EMPTY_FINGERPRINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

EVERY_TYPE = """
SELECT id AS n, CAST(id AS TINYINT) AS b, CAST(id AS DOUBLE) AS d, CAST('NaN' AS FLOAT) AS f,
  CAST(id AS DECIMAL(20,3)) AS dec, CAST(id AS STRING) AS s, CAST('x' AS BINARY) AS bin,
  id % 2 = 0 AS bool, DATE'2024-01-01' AS date, TIMESTAMP'2024-01-01 00:00:00Z' AS ts,
  TIMESTAMP_NTZ'2024-01-01 00:00:00' AS ntz, INTERVAL '1' DAY AS i, parse_json('{"a":1}') AS v,
  array(id, NULL) AS a, map('x', id, 'y', NULL) AS m, named_struct('p', id, 'q', array('z')) AS st,
  array(named_struct('m', map(id, array(id)))) AS deep
FROM range(100)
"""


def fingerprint(frame: DataFrame, *ignore: str) -> str | None:
    taken = Fingerprint(frame.schema, ignore=ignore)
    return taken.text(frame.agg(*taken.aggregates()).collect()[0].asDict())


def test_order_files_and_column_order_do_not_count(spark: SparkSession) -> None:
    frame = spark.sql(EVERY_TYPE)
    other = frame.repartition(7).orderBy("s").select(*reversed(frame.columns))
    assert fingerprint(frame) == fingerprint(other)
    assert fingerprint(frame.limit(0)) == EMPTY_FINGERPRINT
    kinds = spark.sql("SELECT 1 AS s, 2 AS st").schema
    assert Fingerprint(kinds, ignore="st")._schema == Fingerprint(kinds, ignore=["ST"])._schema


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NULL AS a, 'x' AS b", "'x' AS a, NULL AS b"),
        ("array(1, NULL) AS a", "array(NULL, 1) AS a"),
        ("array(1) AS a, array() AS b", "array() AS a, array(1) AS b"),
        ("array(1, 1) AS a", "array(1) AS a"),
        ("CAST(NULL AS ARRAY<INT>) AS a", "CAST(array() AS ARRAY<INT>) AS a"),
        ("CAST(NULL AS STRUCT<x: INT>) AS a", "named_struct('x', CAST(NULL AS INT)) AS a"),
        ("map('a', 1, 'b', NULL) AS a", "map('a', NULL, 'b', 1) AS a"),
        ("1 AS a", "1L AS a"),
        ("CAST('a' AS BINARY) AS a", "'a' AS a"),
        ("'' AS a", "CAST(NULL AS STRING) AS a"),
        ("'a' AS a, 'bc' AS b", "'ab' AS a, 'c' AS b"),
    ],
)
def test_different_rows_differ(spark: SparkSession, one: str, other: str) -> None:
    assert fingerprint(spark.sql(f"SELECT {one}")) != fingerprint(spark.sql(f"SELECT {other}"))


#: Pairs that look the same as JSON.
ALIKE = [
    ("DATE'2024-01-01'", "'2024-01-01'"),
    ("TIMESTAMP'2024-01-01 00:00:00Z'", "'2024-01-01 00:00:00+00:00'"),
    ("TIMESTAMP_NTZ'2024-01-01 00:00:00'", "'2024-01-01 00:00:00'"),
    ("TIMESTAMP_NTZ'2024-01-01 00:00:00'", "TIMESTAMP'2024-01-01 00:00:00Z'"),
    ("1.0", "1.00"),
    ("1.0", "1"),
    ("CAST('1' AS FLOAT)", "CAST('1' AS DOUBLE)"),
    ("1D", "CAST(1 AS DECIMAL(2,1))"),
    ("X'00'", "'AA=='"),
    ("1", "'1'"),
    ("true", "'true'"),
]


@pytest.mark.parametrize(
    "within",
    [
        "CAST({} AS VARIANT)",
        "CAST(array({}) AS VARIANT)",
        "to_variant_object(named_struct('a', named_struct('b', array({}))))",
        "named_struct('a', array(CAST({} AS VARIANT), NULL))",
        "map('a', CAST({} AS VARIANT))",
    ],
)
def test_types_and_values_within_a_variant_count(spark: SparkSession, within: str) -> None:
    pairs = [(within.format(one), within.format(other)) for one, other in ALIKE]
    taken = [[fingerprint(spark.sql(f"SELECT {text} AS v")) for text in pair] for pair in pairs]
    same = [pair for pair, (one, other) in zip(pairs, taken, strict=True) if one == other]
    assert same == []


def test_no_variant_is_not_a_variant_that_is_null(spark: SparkSession) -> None:
    missing, null = (
        spark.sql(f"SELECT {text} AS v") for text in ("CAST(NULL AS VARIANT)", "parse_json('null')")
    )
    assert fingerprint(missing) != fingerprint(null)


def test_how_a_variant_was_encoded_does_not_count(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    ways = [
        """parse_json('{"a":1,"b":{"c":[1.5,"x",null],"d":{}}}')""",
        """parse_json(' {"b": {"d": {}, "c": [1.5, "x", null]}, "a": 1} ')""",
        """variant_get(parse_json('{"z":0,"y":{"a":1,"b":{"c":[1.5,"x",null],"d":{}}}}'), '$.y')""",
    ]
    made = table()
    made.write(spark.sql(f"SELECT {ways[1]} AS v"), [{}])
    stored = spark.read.format("delta").load(made.path)
    frames = [*[spark.sql(f"SELECT {way} AS v") for way in ways], stored]
    assert len({fingerprint(frame) for frame in frames}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("map('a', 1, 'b', 2) AS a", "map('b', 2, 'a', 1) AS a"),
        ("0.0D AS a", "-0.0D AS a"),
        ("double('NaN') AS a", "double('NaN') + 1 AS a"),
        ("1 AS a, 2 AS b", "2 AS b, 1 AS a"),
    ],
)
def test_equal_rows_are_equal(spark: SparkSession, one: str, other: str) -> None:
    assert fingerprint(spark.sql(f"SELECT {one}")) == fingerprint(spark.sql(f"SELECT {other}"))


def test_which_of_many_columns_is_null_counts(spark: SparkSession) -> None:
    def wide(null: int) -> str:
        return ", ".join(
            f"{'CAST(NULL AS INT)' if i == null else 7} AS c{i:03}" for i in range(130)
        )

    found = {fingerprint(spark.sql(f"SELECT {wide(null)}")) for null in (0, 61, 62, 63, 124, 129)}
    assert len(found) == 6


def test_whether_a_column_might_be_null_does_not_count(spark: SparkSession) -> None:
    never = spark.range(3).selectExpr("id AS a", "'x' AS b")
    maybe = spark.range(3).selectExpr("if(id < 9, id, NULL) AS a", "nullif('x', 'y') AS b")
    assert [f.nullable for f in never.schema] != [f.nullable for f in maybe.schema]
    assert fingerprint(never) == fingerprint(maybe)


def test_how_often_a_row_stands_there_counts(spark: SparkSession) -> None:
    frame = spark.sql("SELECT explode(array(5, 5, 7, 7)) AS a")
    assert fingerprint(frame) != fingerprint(frame.distinct())
    assert fingerprint(frame) != fingerprint(spark.sql("SELECT explode(array(5, 5, 5, 7)) AS a"))


def test_ignored_columns_do_not_count(spark: SparkSession) -> None:
    one, other = spark.sql("SELECT 1 AS a, 2 AS at"), spark.sql("SELECT 1 AS a, 3 AS at")
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one, "AT") == fingerprint(other, "at")
