"""Delta tables on another file system are reached through the session's Hadoop, as Spark does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import TableError
from spark_runtime.logs.changes import changes
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.places import place
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from tests.spark.conftest import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

DAYS = ["a:b", "d 2", "100%"]


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A file system of another scheme, which only Hadoop's settings lead to."""
    name = "fs.viewfs.mounttable.elsewhere.link./data"
    spark.conf.set(name, tmp_path.as_uri())
    yield "viewfs://elsewhere/data"
    spark.conf.unset(name)


def rows(spark: SparkSession, *values: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(list(values), "day STRING, n INT")


def test_a_table_elsewhere_is_written_read_and_undone(
    spark: SparkSession, tables: Tables, elsewhere: str
) -> None:
    made: Any = Table(spark, tables, Path("t"), ["day"])
    made.path = f"{elsewhere}/t"
    assert made.version is None
    made.tables = Tables(spark)
    made.write(rows(spark, *[(day, 0) for day in DAYS]), DAYS, result_path="/none")
    result = made.write(
        rows(spark, (DAYS[0], 7)), DAYS[:2], run_id="r-2", token="t-2", result_path="/none"
    )
    assert [(p.rows_before, p.rows) for p in result.partitions] == [(1, 1), (1, 0)]
    assert made.rows() == sorted([(DAYS[2], 0), (DAYS[0], 7)], key=repr)

    log = DeltaLog(made.path, root=place(made.path, spark))
    assert changes(log, after=1).partitions == ((DAYS[0],), (DAYS[1],))
    undo_runs(spark, tokens=["t-2"], location=made.path)
    assert made.rows() == sorted([(day, 0) for day in DAYS], key=repr)
    with pytest.raises(TableError, match="can be read within a Spark session"):
        Tables().log(made.target)


def test_a_store_that_cannot_be_reached_is_an_error_and_no_empty_table(
    spark: SparkSession, tables: Tables
) -> None:
    for location in ("nowhere://bucket/t", "viewfs://unheard-of/t"):
        log = DeltaLog(location, root=place(location, spark))
        with pytest.raises(TableError, match="cannot be read"):
            log.latest_version()
