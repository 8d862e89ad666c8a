"""Where columns come from, by real plans of Spark: all of it is right, or nothing is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lineage_backfill.model import DatasetRef
from spark_runtime.emit.columns import ColumnTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    Query = Callable[[SparkSession, DataFrame, DataFrame], DataFrame]


@pytest.fixture(autouse=True)
def views(spark: SparkSession) -> Iterator[None]:
    """The session is shared: the view that `traced` makes for queries goes with each test."""
    yield
    spark.catalog.dropTempView("sales")


def traced(spark: SparkSession, query: Query) -> tuple[Mapping[str, str], str] | None:
    """The lineage of what a query makes of two inputs, in short: `s.n` is column n of `sales`."""
    sales = spark.createDataFrame([("d1", "eu", 1)], "day STRING, region STRING, n INT")
    names = spark.createDataFrame([("eu", "Europe")], "region STRING, name STRING")
    sales.createOrReplaceTempView("sales")
    trace = ColumnTrace(spark)
    for frame, name in ((sales, "sales"), (names, "names")):
        trace.take(DatasetRef("ns", name), frame)
    found = trace.of(query(spark, sales, names))
    if found is None:
        return None

    def short(origins: Any) -> str:
        return " ".join(sorted(f"{dataset.name[0]}.{column}" for dataset, column in origins))

    return {name: short(origins) for name, origins in found.fields.items()}, short(found.rows)


def in_sql(spark: SparkSession, sales: DataFrame, names: DataFrame) -> DataFrame:
    return spark.sql("SELECT day, 1 AS one FROM sales WHERE n > 1")


def collected(_: SparkSession, sales: DataFrame, names: DataFrame) -> DataFrame:
    (row,) = names.collect()
    return sales.select("day", F.lit(row["name"]).alias("name"))


SAID: dict[str, tuple[Query, tuple[dict[str, str], str]]] = {
    "chosen, renamed, computed": (
        lambda _, s, n: s.where("n > 0").select("day", (F.col("n") + 1).alias("m")),
        ({"day": "s.day", "m": "s.n"}, "s.n"),
    ),
    "joined and grouped": (
        lambda _, s, n: s.join(n, "region").groupBy("name").agg(F.sum("n"), F.count("*")),
        ({"name": "n.name", "sum(n)": "s.n", "count(1)": ""}, "n.name n.region s.region"),
    ),
    "put together": (
        lambda _, s, n: s.select("day").union(n.select("name")),
        ({"day": "n.name s.day"}, ""),
    ),
    "numbered in a window": (
        lambda _, s, n: s.select(
            "day", F.row_number().over(Window.partitionBy("region").orderBy("n")).alias("r")
        ),
        ({"day": "s.day", "r": "s.n s.region"}, ""),
    ),
    "one row for each member": (
        lambda _, s, n: s.select("day", F.explode(F.array("n", F.length("region"))).alias("m")),
        ({"day": "s.day", "m": "s.n s.region"}, "s.n s.region"),
    ),
    "each row once": (
        lambda _, s, n: s.select("day", "region").distinct().drop("region"),
        ({"day": "s.day"}, "s.day s.region"),
    ),
    "in a half join": (
        lambda _, s, n: s.join(n, "region", "left_semi").select("day"),
        ({"day": "s.day"}, "n.region s.region"),
    ),
    "in SQL": (in_sql, ({"day": "s.day", "one": ""}, "s.n")),
}

UNKNOWN: dict[str, Query] = {
    "the same input twice": lambda _, s, n: s.select("day").union(s.select("region")),
    "a table that is no input": lambda spark, s, n: s.crossJoin(spark.range(1)).select("day", "id"),
    "a query within": lambda spark, s, n: in_sql(spark, s, n).where(
        "day = (SELECT max(day) FROM sales)"
    ),
    "a function over whole rows": lambda spark, s, n: spark.createDataFrame(s.rdd, s.schema),
    "a value collected from an input": collected,
    "rows computed beforehand": lambda _, s, n: s.localCheckpoint(),
}


@pytest.mark.parametrize("case", SAID)
def test_where_columns_come_from(spark: SparkSession, case: str) -> None:
    query, expected = SAID[case]
    assert traced(spark, query) == expected


@pytest.mark.parametrize("case", UNKNOWN)
def test_where_something_is_not_known_nothing_is_said(spark: SparkSession, case: str) -> None:
    assert traced(spark, UNKNOWN[case]) is None
