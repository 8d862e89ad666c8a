"""Tables of every kind that Delta knows are written exactly, or refused with the reason."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.runspec.values import InputSpec, Partition
from spark_runtime.errors import (
    ConstraintError,
    SchemaMismatchError,
    TableError,
    UndoRefusedError,
    UnexpectedPartitionError,
)
from spark_runtime.read.reader import Inputs
from spark_runtime.undo import undo_runs
from spark_runtime.write.checks import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from spark_runtime.tables.tables import Tables

ONE, TWO = "2024-01-01", "2024-01-02"


def test_generated_columns_are_computed_or_checked(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    from delta.tables import DeltaTable

    made = table("day")
    builder = DeltaTable.create(spark).location(made.path).addColumn("at", "TIMESTAMP")
    builder = builder.addColumn("day", "DATE", generatedAlwaysAs="CAST(at AS DATE)")
    builder = builder.addColumn("n", "INT").addColumn("twice", "INT", generatedAlwaysAs="n * 2")
    builder.partitionedBy("day").execute()
    at = datetime(2024, 1, 1, 5)  # noqa: DTZ001 (the session's zone is UTC)
    made.write(spark.createDataFrame([(at, 3)], "at TIMESTAMP, n INT"), [ONE, TWO])
    assert made.rows() == [(at, date(2024, 1, 1), 3, 6)]
    given = spark.createDataFrame(
        [(at, date(2024, 1, 1), 4, 8)], "at TIMESTAMP, day DATE, n INT, twice INT"
    )
    made.write(given, [ONE], run_id="r-2")
    assert made.rows() == [(at, date(2024, 1, 1), 4, 8)]
    with pytest.raises(UnexpectedPartitionError, match=f"day={ONE}"):
        made.write(spark.createDataFrame([(at, 3)], "at TIMESTAMP, n INT"), [TWO], run_id="r-3")
    wrong = spark.createDataFrame(
        [(at, date(2024, 1, 1), 4, 9)], "at TIMESTAMP, day DATE, n INT, twice INT"
    )
    with pytest.raises(ConstraintError):
        made.write(wrong, [ONE], run_id="r-4")
    undo_runs(spark, tokens=["b-1-r-2-1"], location=made.path)
    assert made.rows() == [(at, date(2024, 1, 1), 3, 6)]


def test_texts_of_a_fixed_length_are_filled_up_as_others_do_it(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    """Else a merge never finds the row that it is to replace, and adds it once more each time."""
    made = table("day")
    name = f"delta.`{made.path}`"
    spark.sql(
        f"CREATE TABLE {name} (day STRING, id CHAR(3), v VARCHAR(9), at INT) USING delta "
        "PARTITIONED BY (day)"
    )
    spark.sql(f"INSERT INTO {name} VALUES ('d1', 'a', 'x', 1), ('d1', 'b', 'x', 1)")
    by_id = WriteOptions(merge_on=("id",), newest_by="at")
    for at in (2, 3):
        new = spark.createDataFrame(
            [("d1", "a", "y", at)], "day STRING, id STRING, v STRING, at INT"
        )
        made.write(new, ["d1"], by_id, mode="merge", run_id=f"r-{at}")
    assert made.rows() == [("d1", "a  ", "y", 3), ("d1", "b  ", "x", 1)]
    long = spark.createDataFrame(
        [("d1", "abcd", "y", 4)], "day STRING, id STRING, v STRING, at INT"
    )
    with pytest.raises(ConstraintError):
        made.write(long, ["d1"], run_id="r-4")


def test_a_text_of_a_fixed_length_is_no_key(
    spark: SparkSession, table: Callable[..., Any], tables: Tables
) -> None:
    """The key `a` would be another partition than the `a` that others have filled up by blanks."""
    made = table("day")
    name = f"delta.`{made.path}`"
    spark.sql(f"CREATE TABLE {name} (day CHAR(3), n INT) USING delta PARTITIONED BY (day)")
    spark.sql(f"INSERT INTO {name} VALUES ('a', 1)")
    frame = spark.createDataFrame([("a", 2)], "day STRING, n INT")
    with pytest.raises(
        TableError, match=r"'day' is of type char\(3\), whose values have more than one text"
    ):
        made.write(frame, ["a"])
    assert made.rows() == [("a  ", 1)]
    read = InputSpec(
        **{name: getattr(made.target, name) for name in ("dataset", "format", "columns")},
        location=made.path,
        table=None,
        partitions=(Partition(key="a", values={"day": "a"}),),
    )
    with pytest.raises(TableError, match=r"char\(3\)"):
        Inputs(spark, (read,), tables).read("t")


@pytest.mark.parametrize("needed", ["read", "write"])
def test_a_table_of_a_later_delta_is_refused_with_what_to_do(
    spark: SparkSession,
    table: Callable[..., Any],
    tables: Tables,
    needed: str,
) -> None:
    """Its log is given another place, for Delta remembers the one that it has seen."""
    older, made = table("day", name="older"), table("day")
    rows = spark.createDataFrame([("d1", 1)], "day STRING, n INT")
    older.write(rows, ["d1"])
    features = {"writerFeatures": ["appendOnly", "invariants", "ofALaterTime"]}
    if needed == "read":
        features["readerFeatures"] = ["ofALaterTime"]
    versions = {"minReaderVersion": 3 if needed == "read" else 1, "minWriterVersion": 7}
    shutil.move(older.path, made.path)
    for checksum in Path(made.path, "_delta_log").glob("*.crc"):
        checksum.unlink()
    with Path(made.path, "_delta_log", f"{1:020}.json").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"protocol": {**versions, **features}}) + "\n")
    refusal, hint = r"Delta refuses .*: ofALaterTime", "newer Delta"
    if needed == "read":  # by the log alone, before Delta is asked
        refusal, hint = "needs the table feature ofALaterTime", "Drop the feature"
    for mode in ("overwrite", "append", "merge"):
        options = WriteOptions(merge_on=("n",)) if mode == "merge" else None
        with pytest.raises(TableError, match=refusal) as raised:
            made.write(rows, ["d1"], options, mode=mode, run_id=f"r-{mode}")
        assert hint in str(raised.value.hint)


@pytest.mark.parametrize("mode", ["overwrite", "append", "merge"])
@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("'insert' AS _change_type", r"reserved columns \[_change_type\]"),
        ("TIMESTAMP_NTZ'2024-01-01 00:00:00' AS at", "timestampNtz"),
    ],
)
def test_what_delta_refuses_is_said_without_a_stack(
    spark: SparkSession, table: Callable[..., Any], mode: str, column: str, said: str
) -> None:
    made = table("day")
    spark.sql(
        f"CREATE TABLE delta.`{made.path}` (day STRING, n INT) USING delta PARTITIONED BY (day) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    rows = spark.sql(f"SELECT 'd1' AS day, 1 AS n, {column}")
    options = WriteOptions(merge_on=("n",)) if mode == "merge" else None
    with pytest.raises(TableError, match=said) as raised:
        made.write(rows, ["d1"], options, mode=mode, on_drift="add")
    assert raised.value.hint
    assert "\n" not in str(raised.value)
    assert made.rows() == []


@pytest.mark.parametrize("kind", ["TIMESTAMP", "DOUBLE", "CHAR(30)"])
def test_an_input_may_be_partitioned_by_anything_if_it_is_read_whole(
    spark: SparkSession, table: Callable[..., Any], tables: Tables, kind: str
) -> None:
    made = table("part")
    name = f"delta.`{made.path}`"
    spark.sql(f"CREATE TABLE {name} (part {kind}, n INT) USING delta PARTITIONED BY (part)")
    value = {"TIMESTAMP": "TIMESTAMP'2024-01-01 05:00:00'", "DOUBLE": "1.5", "CHAR(30)": "'a'"}[
        kind
    ]
    spark.sql(f"INSERT INTO {name} VALUES ({value}, 1), (NULL, 2)")
    for columns in ((), ("part",)):
        whole = InputSpec(
            dataset=made.target.dataset,
            format="delta",
            columns=columns,
            location=made.path,
            table=None,
            partitions=None,
        )
        inputs = Inputs(spark, (whole,), tables)
        frame = inputs.read("t")
        assert frame is not None
        assert sorted(row["n"] for row in frame.collect()) == [1, 2]
        (result,) = inputs.results()
        assert len(result.partitions) == 2
        assert result.types == {"part": kind.lower()}
        keyed = replace(
            whole, columns=("part",), partitions=(Partition(key="a", values={"part": "a"}),)
        )
        with pytest.raises(TableError, match="whose values have more than one text"):
            Inputs(spark, (keyed,), tables).read("t")


def test_a_table_that_numbers_its_rows_is_written_and_not_undone(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    spark.sql(
        f"CREATE TABLE delta.`{made.path}` (day STRING, id BIGINT GENERATED ALWAYS AS IDENTITY, "
        "n INT, more BIGINT GENERATED ALWAYS AS IDENTITY) USING delta PARTITIONED BY (day)"
    )
    frame = spark.createDataFrame([("d1", 1), ("d2", 2)], "day STRING, n INT")
    first = made.write(frame, ["d1", "d2"])
    made.write(frame.where("day = 'd1'"), ["d1"], run_id="r-2")
    again = made.write(frame.where("day = 'd1'"), ["d1"], run_id="r-2", attempt=2)
    assert [(day, n) for day, _id, n, _more in made.rows()] == [("d1", 1), ("d2", 2)]
    # The numbers are new, the rows are not: a reader need not run again for them.
    assert again.partitions[0].fingerprint == first.partitions[0].fingerprint
    with pytest.raises(UndoRefusedError, match="'id'"):
        undo_runs(spark, tokens=["b-1-r-2-2"], location=made.path)
    with pytest.raises(SchemaMismatchError, match="id is an identity column"):
        made.write(frame.selectExpr("day", "1L AS id", "n"), ["d1", "d2"], run_id="r-3")


def test_change_feed_deletion_vectors_and_constraints_go_along(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    name = f"delta.`{made.path}`"
    spark.sql(
        f"CREATE TABLE {name} (day STRING, n INT NOT NULL, v VARCHAR(3)) USING delta "
        "PARTITIONED BY (day) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', "
        "'delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true')"
    )
    spark.sql(f"INSERT INTO {name} VALUES ('d1', 1, 'a'), ('d1', 2, 'b'), ('d2', 3, 'c')")
    spark.sql(f"DELETE FROM {name} WHERE n = 2")
    schema = "day STRING, n INT, v STRING"
    result = made.write(spark.createDataFrame([("d1", 9, "x")], schema), ["d1"])
    assert made.rows() == [("d1", 9, "x"), ("d2", 3, "c")]
    assert [(part.rows_before, part.rows) for part in result.partitions] == [(1, 1)]
    feed = spark.read.format("delta").option("readChangeFeed", "true")
    changed = feed.option("startingVersion", result.version).load(made.path)
    told = sorted((row.n, row._change_type) for row in changed.collect())
    assert told == [(1, "delete"), (9, "insert")]
    undo_runs(spark, tokens=["b-1-r-1-1"], location=made.path)
    assert made.rows() == [("d1", 1, "a"), ("d2", 3, "c")]
    for row, run in ((("d1", None, "x"), "r-2"), (("d1", 1, "long"), "r-3")):
        with pytest.raises(ConstraintError):
            made.write(spark.createDataFrame([row], schema), ["d1"], run_id=run)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(TableError, match="append-only"):
        made.write(spark.createDataFrame([("d1", 5, "x")], schema), ["d1"], run_id="r-4")
    made.write(spark.createDataFrame([("d1", 5, "x")], schema), ["d1"], run_id="r-5", mode="append")
    assert made.rows() == [("d1", 1, "a"), ("d1", 5, "x"), ("d2", 3, "c")]


def test_a_clustered_table_is_replaced_whole_or_not_at_all(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    name = f"delta.`{made.path}`"
    spark.sql(f"CREATE TABLE {name} (day STRING, n INT) USING delta CLUSTER BY (day)")
    spark.sql(f"INSERT INTO {name} VALUES ('d1', 1), ('d2', 2)")
    frame = spark.createDataFrame([("d1", 7)], "day STRING, n INT")
    with pytest.raises(TableError, match="is clustered, not partitioned"):
        made.write(frame, ["d1"])
    whole = type(made)(spark, made.tables, made.path, ())
    whole.path = made.path
    result = whole.write(frame, [{}])
    assert made.rows() == [("d1", 7)]
    assert [(part.rows_before, part.rows) for part in result.partitions] == [(2, 1)]
    undo_runs(spark, tokens=["b-1-r-1-1"], location=made.path)
    assert made.rows() == [("d1", 1), ("d2", 2)]
    whole.write(frame.where("false"), [{}], run_id="r-2")
    assert made.rows() == []
    # Delta's own overwrite without a condition forgets the columns.
    assert spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["clusteringColumns"] == ["day"]


@pytest.fixture(params=["delta"])
def filled(spark: SparkSession, table: Callable[..., Any], request: Any) -> Any:
    made = table("day", kind=request.param)
    frame = spark.createDataFrame([("d1", 1, 1.5), ("d2", 2, 2.5)], "day STRING, n LONG, x DOUBLE")
    made.write(frame, ["d1", "d2"], run_id="r-0", token="t-0")
    return made


def test_new_columns_are_added_only_where_that_is_allowed(spark: SparkSession, filled: Any) -> None:
    frame = spark.createDataFrame([("d1", 7, 7.5, "new")], "day STRING, n LONG, x DOUBLE, V STRING")
    with pytest.raises(SchemaMismatchError, match="V is not in the table"):
        filled.write(frame, ["d1"])
    with pytest.raises(UnexpectedPartitionError):
        filled.write(frame, ["d2"], on_drift="add")
    assert len(filled.rows()[0]) == 3  # nothing was written, no column came of it
    result = filled.write(frame, ["d1"], on_drift="add", token="t-1")
    assert result.drift == ("V was added",)
    assert filled.rows() == [("d1", 7, 7.5, "new"), ("d2", 2, 2.5, None)]
    narrower = spark.createDataFrame([("d1", 7)], "day STRING, n INT")
    with pytest.raises(SchemaMismatchError, match="n is int, in the table bigint; x is missing"):
        filled.write(narrower, ["d1"], on_drift="add", run_id="r-2")
    relaxed = filled.write(narrower, ["d1"], on_drift="relax", run_id="r-3", token="t-3")
    assert relaxed.drift == (
        "n was cast from int to bigint",
        "x is missing: NULL was written",
        "V is missing: NULL was written",
    )
    assert filled.rows() == [("d1", 7, None, None), ("d2", 2, 2.5, None)]
    wrong = spark.createDataFrame([("d1", 7, "x")], "day STRING, n LONG, x STRING")
    with pytest.raises(SchemaMismatchError, match="x is string, in the table double"):
        filled.write(wrong, ["d1"], on_drift="relax", run_id="r-4")
    for token, left in (("t-3", ("d1", 7, 7.5, "new")), ("t-1", ("d1", 1, 1.5, None))):
        undo_runs(spark, tokens=[token], location=filled.path, format=filled.kind)
        assert filled.rows()[0] == left
