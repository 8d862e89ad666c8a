"""One odd value in a partition column is that partition's affair, not the table's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.values import Target
from spark_runtime.errors import SchemaMismatchError, TableError, UnexpectedPartitionError
from spark_runtime.logs.changes import changes
from spark_runtime.session import settings
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.fingerprint import SETTING
from spark_runtime.tables.tables import Tables
from spark_runtime.write.checks import WriteOptions, not_null, unique
from spark_runtime.write.writer import write_partitions
from tests.sampling import a_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = [
    ("DATE", "DATE'+12024-06-01'", "+12024-06-01", "2024-06-01"),
    ("DATE", "DATE'-0044-03-15'", "-0044-03-15", "2024-06-01"),
    (
        "DECIMAL(38,0)",
        "99999999999999999999999999999999999999",
        "99999999999999999999999999999999999999",
        "7",
    ),
]


def numbers(made: Any) -> list[int]:
    """Return what the rows hold; Python's own dates are none of years like these."""
    rows = made.spark.read.format("delta").load(made.path).select("n").collect()
    return sorted(row["n"] for row in rows)


@pytest.mark.parametrize(("kind", "literal", "text", "key"), ODD)
def test_an_odd_partition_is_left_alone(
    spark: SparkSession, table: Callable[..., Any], kind: str, literal: str, text: str, key: str
) -> None:
    made = table("p")
    spark.sql(f"CREATE TABLE delta.`{made.path}` (p {kind}, n INT) USING delta PARTITIONED BY (p)")
    spark.sql(
        f"INSERT INTO delta.`{made.path}` VALUES ({literal}, 1), (CAST('{key}' AS {kind}), 2)"
    )
    frame = spark.sql(f"SELECT CAST('{key}' AS {kind}) p, 3 n")
    result = made.write(frame, [key])
    assert [one.rows_before for one in result.partitions] == [1]
    assert numbers(made) == [1, 3]
    assert (text,) in made.state().partitions
    assert (text,) in changes(DeltaLog(made.path), after=0).partitions
    # Rows of it are outside the run, and named.
    odd = spark.sql(f"SELECT {literal} p, 4 n")
    if kind == "DATE":
        for fingerprints in ("true", "false"):
            spark.conf.set("spark.lineageBackfill.fingerprints", fingerprints)
            try:
                with pytest.raises(UnexpectedPartitionError, match=text.replace("+", ".")):
                    made.write(odd, [key], run_id=f"r-{fingerprints}")
            finally:
                spark.conf.unset("spark.lineageBackfill.fingerprints")
    else:
        assert made.write(odd, [text], run_id="r-2").partitions[0].rows == 1
    assert numbers(made) == ([1, 3] if kind == "DATE" else [3, 4])


@pytest.mark.parametrize("kind", ["delta"])
@pytest.mark.parametrize("names", [("__rows", "__low"), ("__key1", "__key0"), ("held", "new")])
def test_a_column_may_be_called_like_what_is_counted(
    spark: SparkSession, table: Callable[..., Any], names: tuple[str, str], kind: str
) -> None:
    made, first, second = table(*names, kind=kind), *names
    frame = spark.sql(f"SELECT p {first}, '1' {second}, 3 n FROM VALUES ('a'), ('b') AS t(p)")
    scope = [{first: p, second: "1"} for p in "ab"]
    result = made.write(frame, scope)
    assert [one.rows for one in result.partitions] == [1, 1]
    merging = WriteOptions(merge_on=names)
    made.write(frame.selectExpr(*names, "4 AS n"), scope, merging, mode="merge", run_id="r-2")
    assert made.rows() == [("a", "1", 4), ("b", "1", 4)]


def test_an_odd_partition_within_an_open_scope_is_named(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("d", "p")
    spark.sql(
        f"CREATE TABLE delta.`{made.path}` (d STRING, p DATE, n INT) USING delta "
        "PARTITIONED BY (d, p)"
    )
    spark.sql(
        f"INSERT INTO delta.`{made.path}` VALUES ('a', DATE'+12024-06-01', 1), "
        "('b', DATE'+12024-06-01', 2), ('a', DATE'2024-06-01', 3)"
    )
    frame = spark.sql("SELECT 'a' d, DATE'2024-06-01' p, 9 n")
    result = made.write(frame, [{"d": "a"}])
    assert {str(one.key): one.rows for one in result.partitions} == {
        "d=a/p=+12024-06-01": 0,
        "d=a/p=2024-06-01": 1,
    }
    assert numbers(made) == [2, 9]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a_view", "is a view"),
        ("a_temporary_view", "is a view"),
        ("a_parquet_table", "is not a Delta table"),
        ("nowhere.db.t", "cannot be looked up in the catalog"),
        ("no such name", "cannot be looked up in the catalog"),
        ("default.not_there", "does not exist in the catalog"),
    ],
)
def test_what_is_no_table_is_refused_with_what_to_do(
    spark: SparkSession, tmp_path: Path, name: str, said: str
) -> None:
    spark.sql("CREATE OR REPLACE TEMP VIEW a_temporary_view AS SELECT 1 AS n")
    spark.sql("CREATE TABLE IF NOT EXISTS a_parquet_table (n INT) USING parquet")
    spark.sql("CREATE OR REPLACE VIEW a_view AS SELECT * FROM a_parquet_table")
    try:
        target = Target(dataset=DatasetRef("test", "t"), format="delta", columns=(), table=name)
        with pytest.raises(TableError, match=said) as caught:
            Tables(spark).location(target)
        assert caught.value.hint
    finally:
        spark.sql("DROP VIEW a_view")
        spark.sql("DROP TABLE a_parquet_table")
        spark.catalog.dropTempView("a_temporary_view")


@pytest.mark.parametrize("name", a_part(["a.b", "a`b", "a b", "ä", "a-b"], every=3))
def test_a_partition_column_may_have_an_odd_name(
    spark: SparkSession, table: Callable[..., Any], name: str
) -> None:
    made = named(spark, table, name)
    quoted = "`" + name.replace("`", "``") + "`"

    def rows(*values: tuple[str, int, str]) -> Any:
        return spark.createDataFrame(list(values), "p STRING, id INT, v STRING").selectExpr(
            f"p AS {quoted}", "id", "v"
        )

    made.write(rows(("x", 1, "new")), ["x"])
    assert held(made) == [("x", 1, "new"), ("y", 2, "old")]
    match = WriteOptions(merge_on=("id",))
    made.write(rows(("x", 1, "newer"), ("x", 3, "added")), ["x"], match, mode="merge", run_id="r-2")
    assert held(made) == [("x", 1, "newer"), ("x", 3, "added"), ("y", 2, "old")]


@pytest.mark.parametrize("name", ["`", "b`", "`b", "`b`"])
def test_a_name_by_which_delta_reads_nothing_is_refused(
    spark: SparkSession, table: Callable[..., Any], name: str
) -> None:
    made = named(spark, table, name)
    quoted = "`" + name.replace("`", "``") + "`"
    frame = spark.sql(f"SELECT 'x' AS {quoted}, 1 AS id, 'new' AS v")
    for mode in ("overwrite", "merge"):
        match = WriteOptions(merge_on=("id",)) if mode == "merge" else WriteOptions()
        with pytest.raises(TableError, match="begins or ends with a backtick"):
            made.write(frame, ["x"], match, mode=mode)
    assert held(made) == [("x", 1, "old"), ("y", 2, "old")]


def test_a_first_write_of_a_name_that_delta_forbids_says_what_to_do(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("p")
    with pytest.raises(SchemaMismatchError, match="column whose name holds") as raised:
        made.write(spark.sql("SELECT 'x' AS p, 1 AS `a b`"), ["x"])
    assert "columnMapping" in (raised.value.hint or "")
    assert not Path(made.path, "_delta_log").exists()


@pytest.mark.parametrize("place", ["no_such_schema.t", "file/t"])
def test_a_table_that_can_lie_nowhere_is_refused_with_what_to_do(
    spark: SparkSession, table: Callable[..., Any], tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    run = table("p", name=place).run_spec(["x"])
    (output,) = run.outputs
    if place != "file/t":
        output = replace(output, location=None, table=place)
    with pytest.raises(TableError, match="cannot be created") as raised:
        write_partitions(spark.sql("SELECT 'x' AS p, 1 AS v"), output, run, Tables(spark))
    assert "schema" in (raised.value.hint or "")


#: What no Delta table can hold.
NOT_STORABLE = (
    "named_struct('a', 1, 'A', 2)",
    "make_interval(1, 2, 3)",
    "array(NULL)",
    "map('a', named_struct('b', NULL))",
    "INTERVAL 1 DAY",
    "named_struct('a', INTERVAL 1 YEAR)",
    "'a' COLLATE UTF8_LCASE",
)


@pytest.mark.parametrize("kind", ["delta"])
@pytest.mark.parametrize("fingerprints", ["true", "false"])
def test_a_first_write_that_is_refused_leaves_no_table_and_says_what_to_do(
    spark: SparkSession, table: Callable[..., Any], kind: str, fingerprints: str
) -> None:
    made = table("p", kind=kind)
    with settings(spark, {SETTING: fingerprints}):
        for column in NOT_STORABLE:
            with pytest.raises(SchemaMismatchError) as raised:
                made.write(spark.sql(f"SELECT 'x' AS p, {column} AS v"), ["x"])
            assert raised.value.hint
            assert made.version is None, column
        with pytest.raises(SchemaMismatchError, match="partition columns"):
            made.write(spark.sql("SELECT 'x' AS p"), ["x"])
        with pytest.raises(SchemaMismatchError, match="no type"):
            made.write(spark.createDataFrame([("x", ())], "p STRING, v STRUCT<>"), ["x"])
        with pytest.raises(UnexpectedPartitionError):
            made.write(spark.sql("SELECT 'y' AS p, 1 AS v"), ["x"])
        assert made.version is None
        # No column of those refused counts.
        right = spark.sql(
            "SELECT 'x' AS p, named_struct('avoided', 1L) AS v, DATE'2024-01-01' AS d"
        )
        result = made.write(right, ["x"], attempt=2)
    assert [part.rows for part in result.partitions] == [1]
    assert made.rows() == sorted(tuple(row) for row in right.collect())


def test_a_check_of_a_column_that_is_not_there_says_what_to_do(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("p")
    frame = spark.sql("SELECT 'x' AS p, 1 AS amount")
    for check in (unique("amonut"), not_null("amonut")):
        with pytest.raises(SchemaMismatchError, match=r"amonut.*nothing was written") as raised:
            made.write(frame, ["x"], WriteOptions(checks=[check]))
        assert raised.value.hint


def named(spark: SparkSession, table: Callable[..., Any], name: str) -> Any:
    """Return a table that is partitioned by a column of this name, with two partitions."""
    made = table(name)
    quoted = "`" + name.replace("`", "``") + "`"
    spark.sql(
        f"CREATE TABLE delta.`{made.path}` ({quoted} STRING, id INT, v STRING) USING delta "
        f"PARTITIONED BY ({quoted}) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{made.path}` VALUES ('x', 1, 'old'), ('y', 2, 'old')")
    return made


def held(made: Any) -> list[tuple[Any, ...]]:
    frame = made.spark.read.format("delta").load(made.path)
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.parametrize("mode", ["overwrite", "merge"])
def test_a_value_that_is_too_long_for_a_folder_is_refused(
    spark: SparkSession, table: Callable[..., Any], mode: str
) -> None:
    made, long = table("p"), "x" * 300
    made.write(spark.sql("SELECT 'a' p, 1 n"), ["a"])
    frame = spark.sql(f"SELECT '{long}' p, 2 n")
    with pytest.raises(TableError, match="cannot be created; nothing was written"):
        made.write(frame, [long], WriteOptions(merge_on=["n"]), mode=mode, run_id="r-2")
    assert made.rows() == [("a", 1)]
