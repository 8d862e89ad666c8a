"""Parquet tables are read from any file system, and overwritten where the job accepts its risks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import (
    EmptyPartitionError,
    SchemaMismatchError,
    TableError,
    UndoRefusedError,
    UnexpectedPartitionError,
    VerificationError,
)
from spark_runtime.logs.history import parquet_history
from spark_runtime.tables.parquet.log import ParquetFolder
from spark_runtime.tables.places import place
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write.checks import WriteOptions, expect_rows
from tests.spark.conftest import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A file system of another scheme, which only Hadoop's settings lead to."""
    host = f"elsewhere{abs(hash(tmp_path))}"  # Hadoop keeps a file system by its name
    name = f"fs.viewfs.mounttable.{host}.link./data"
    spark.conf.set(name, tmp_path.as_uri())
    yield f"viewfs://{host}/data"
    spark.conf.unset(name)


@pytest.fixture(params=["near", "far"])
def made(
    request: pytest.FixtureRequest, spark: SparkSession, elsewhere: str, tmp_path: Path
) -> Any:
    """A table of this machine, and one that only Hadoop reaches."""
    table = Table(spark, Tables(spark), tmp_path / "t", ["day"], "parquet")
    if request.param == "far":
        table.path = f"{elsewhere}/t"
    return table


def days(spark: SparkSession, *rows: tuple[str | None, int], kind: str = "STRING") -> DataFrame:
    frame = spark.createDataFrame(list(rows), "day STRING, n INT")
    return frame.selectExpr(f"CAST(day AS {kind}) AS day", "n")


def write(made: Any, frame: DataFrame, *scope: Any, **more: Any) -> Any:
    more = {"unsafe_overwrite": True, "result_path": "/none", **more}
    return made.write(frame, list(scope), **more)


def held(spark: SparkSession, made: Any) -> list[tuple[str | None, int]]:
    """The rows as anybody reads them."""
    frame = spark.read.schema("n INT, day STRING").parquet(made.path)
    rows = frame.select("day", "n").collect()
    return sorted((tuple(row) for row in rows), key=repr)


@pytest.mark.core
def test_exactly_the_partitions_of_the_run_are_overwritten(
    spark: SparkSession, made: Any, tmp_path: Path
) -> None:
    odd = "a:b 100%/{x}*"
    result = write(
        made, days(spark, ("d1", 1), (odd, 2), (None, 3)), "d1", odd, {"day": None}, "d4"
    )
    assert [(one.rows_before, one.rows) for one in result.partitions] == [(0, 1)] * 3 + [(0, 0)]
    result = write(made, days(spark, (odd, 7), (odd, 8)), "d1", odd)
    assert [(one.rows_before, one.rows, one.emptied) for one in result.partitions] == [
        (1, 0, True),
        (1, 2, False),
    ]
    assert result.version > result.version_before > 0
    assert held(spark, made) == sorted([(odd, 7), (odd, 8), (None, 3)], key=repr)
    assert not (tmp_path / "t" / "day=d1").exists()
    storage = Tables(spark).storage(made.target)
    assert storage.log.latest_version() is not None
    read = storage.held(0, [(odd,), ("d1",)])
    assert sorted(row["n"] for row in read.collect()) == [7, 8]
    assert storage.held(0, [("d1",)]).collect() == []


@pytest.mark.core
def test_nothing_is_written_unless_the_checks_pass(
    spark: SparkSession, made: Any, tmp_path: Path
) -> None:
    write(made, days(spark, ("d1", 1), ("d2", 2)), "d1", "d2")
    before = sorted((tmp_path / "t").rglob("*.parquet"))
    with pytest.raises(UnexpectedPartitionError, match="day=d2; nothing was written"):
        write(made, days(spark, ("d1", 3), ("d2", 4)), "d1")
    with pytest.raises(EmptyPartitionError):
        write(made, days(spark), "d1", on_empty="fail")
    with pytest.raises(SchemaMismatchError, match="m is not in the table"):
        write(made, days(spark, ("d1", 3)).selectExpr("*", "1 AS m"), "d1")
    with pytest.raises(Exception, match="fewer than 5 rows"):
        write(
            made,
            days(spark, ("d1", 3)),
            "d1",
            options=WriteOptions(checks=[expect_rows(at_least=5)]),
        )
    write(made, days(spark), "d1", on_empty="keep")
    assert sorted((tmp_path / "t").rglob("*.parquet")) == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"unsafe_overwrite": False}, "a killed write may leave a partition"),
        ({"mode": "merge"}, "is only overwritten"),
        ({"mode": "append"}, "is only overwritten"),
    ],
)
def test_what_parquet_cannot_do_is_refused_with_what_to_do(
    spark: SparkSession, made: Any, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(TableError, match=message) as raised:
        write(made, days(spark, ("d1", 1)), "d1", **more)
    assert "Make it a Delta table" in (raised.value.hint or "")
    assert made.version is None


def test_no_write_is_undone(spark: SparkSession, made: Any) -> None:
    write(made, days(spark, ("d1", 1)), "d1")
    with pytest.raises(UndoRefusedError, match="keeps no old rows"):
        undo_runs(spark, tokens=["t"], location=made.path, format="parquet")


def test_folders_of_others_that_are_the_same_key_are_replaced_too(
    spark: SparkSession, made: Any, tmp_path: Path
) -> None:
    frame = spark.range(1).selectExpr("'05' AS hour", "1 AS n")
    frame.write.partitionBy("hour").parquet(made.path)
    made.columns = ("hour",)
    write(made, spark.range(2).selectExpr("5 AS hour", "2 AS n"), "5")
    assert [one.name for one in (tmp_path / "t").glob("hour=*")] == ["hour=5"]


@pytest.mark.parametrize("kind", ["DATE", "STRING"])
def test_a_date_is_written_to_its_folder_and_read_as_text(
    spark: SparkSession, made: Any, kind: str
) -> None:
    for n in (1, 2):
        write(made, days(spark, ("2024-01-01", n), kind=kind), "2024-01-01")
    storage = Tables(spark).storage(made.target)
    assert storage.log.state().columns[0].type == "string"
    rows = storage.held(0, [("2024-01-01",)]).select("day", "n").collect()
    assert [tuple(row) for row in rows] == [("2024-01-01", 2)]


def test_open_dimensions_and_whole_tables_are_overwritten(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day", "region", kind="parquet")
    rows = [("d1", "eu", 1), ("d1", "us", 2), ("d2", "eu", 3)]
    frame = spark.createDataFrame(rows, "day STRING, region STRING, n INT")
    write(made, frame, {"day": "d1"}, {"day": "d2"})
    result = write(made, frame.where("region = 'us'"), {"day": "d1"})
    assert {str(one.key): (one.rows, one.emptied) for one in result.partitions} == {
        "day=d1/region=eu": (0, True),
        "day=d1/region=us": (1, False),
    }
    with pytest.raises(TableError, match="would drop partitions that are not planned"):
        write(made, frame, {"day": "d1"}, mode="full")
    whole = table(kind="parquet", name="whole")
    for n in (1, 2):
        write(whole, spark.range(n).selectExpr("id AS n"), {}, mode="full")
    assert spark.read.parquet(whole.path).count() == 2


def test_files_that_are_no_part_of_the_table_are_named(spark: SparkSession, made: Any) -> None:
    write(made, days(spark, ("d1", 1)), "d1")
    stray = f"{made.path}/other=1"
    spark.range(1).write.parquet(stray)
    with pytest.raises(TableError, match=r"other=1/.* does not lie in a folder of day"):
        Tables(spark).latest_version(made.target)


def test_rows_of_a_writer_at_the_same_time_are_noticed(
    spark: SparkSession, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_runtime.tables.parquet.format import ParquetOutput

    real = ParquetOutput.overwrite

    def disturbed(self: Any, rows: Any, scope: Any) -> None:
        real(self, rows, scope)
        days(spark, ("d2", 9)).write.mode("append").partitionBy("day").parquet(made.path)

    monkeypatch.setattr(ParquetOutput, "overwrite", disturbed)
    with pytest.raises(VerificationError, match="day=d2: another writer was at work"):
        write(made, days(spark, ("d1", 1)), "d1", "d2")


def test_the_times_of_files_are_the_history(spark: SparkSession, made: Any, tmp_path: Path) -> None:
    folder = ParquetFolder(made.path, place(made.path, spark))
    assert parquet_history(folder).version is None
    write(made, days(spark, ("d1", 1), ("d2", 2)), "d1", "d2")
    for number, day in enumerate(("d1", "d2"), 1):
        for file in (tmp_path / "t" / f"day={day}").iterdir():
            os.utime(file, (number, number))
    found = parquet_history(folder)
    assert [(one.at.timestamp(), one.made) for one in found.events] == [
        (1.0, (("d1",),)),
        (2.0, (("d2",),)),
    ]
    assert found.version == 2000
