"""Self-healing ingestion, and the faults of its published forms, each as a test."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from spark_runtime.errors import EntrypointError, RuntimeFailure, SchemaMismatchError
from spark_runtime.ingest import (
    align_schema,
    infer_watermark,
    latest_by_key,
    surrogate_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

NOW = datetime(2024, 6, 15, 12, tzinfo=UTC)


@pytest.fixture
def plans(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The physical plans of what is looked up by `first`."""
    seen: list[str] = []
    kind = type(spark.range(0))
    first = kind.first

    def looked_up(frame: Any) -> Any:
        seen.append(str(frame._jdf.queryExecution().executedPlan()))
        return first(frame)

    monkeypatch.setattr(kind, "first", looked_up)
    return seen


def test_the_watermark_prunes_by_the_column_and_not_by_its_quoted_name(
    spark: SparkSession, tmp_path: Path, plans: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "bronze")
    rows = spark.createDataFrame(
        [
            (1, "2024-06-14 08:00", "2024-06-14"),
            (2, "2024-06-14 23:59", "2024-06-12"),  # arrived with a backfill of an older day
            (3, "2024-06-30 00:00", "2024-05-01"),  # too old a partition to be looked at
        ],
        "id INT, at STRING, day STRING",
    ).selectExpr("id", "CAST(at AS TIMESTAMP) AS at", "CAST(day AS DATE) AS p_extracted_at")
    rows.write.format("delta").partitionBy("p_extracted_at").save(path)
    table = spark.read.format("delta").load(path)
    found = infer_watermark(table, "at", partition="p_extracted_at", now=NOW)
    assert found is not None
    assert found.isoformat() == "2024-06-14T23:59:00+00:00"
    # The published form compared the name of the column, as a text, and filtered nothing.
    assert "PartitionFilters: [isnotnull(p_extracted_at" in plans[0]
    # A first run, and one after a long silence, read everything, and say so.
    assert infer_watermark(None, "at", partition="p_extracted_at", now=NOW) is None
    later = datetime(2025, 1, 1, tzinfo=UTC)
    assert infer_watermark(table, "at", partition="p_extracted_at", now=later) is None
    assert [record.getMessage() for record in caplog.records if "ingest" in record.name] == [
        "there is no table yet: everything is read",
        "no at in p_extracted_at since 2024-12-25: everything is read",
    ]


def test_a_watermark_is_asked_for_with_all_that_it_depends_on(spark: SparkSession) -> None:
    """The published call passed no arguments, and its function could not have known the table."""
    ask: Any = infer_watermark
    with pytest.raises(TypeError, match="'table' and 'column'"):
        ask()
    rows = spark.sql("SELECT TIMESTAMP'2024-06-14 08:00:00' AS at, DATE'2024-06-14' AS day")
    for missing in ("partition", "now"):
        given = {"partition": "day", "now": NOW}
        del given[missing]
        with pytest.raises(TypeError, match=f"'{missing}'"):
            ask(rows, "at", **given)
    found = ask(rows, "at", partition="day", now=NOW)
    assert found == datetime(2024, 6, 14, 8, tzinfo=UTC)


def test_a_table_without_partitions_has_a_watermark_too(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    rows = spark.sql("SELECT explode(array(TIMESTAMP'2020-01-01 08:00:00', NULL)) AS at")
    found = infer_watermark(rows, "at", partition=None, now=NOW)
    assert found == datetime(2020, 1, 1, 8, tzinfo=UTC)
    assert infer_watermark(rows.limit(0), "at", partition=None, now=NOW) is None
    assert "no at in the table: everything is read" in caplog.text


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_a_watermark_is_the_same_instant_wherever_the_driver_is(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    # Two instants of the repeated hour of New York, which have one local time there.
    for instant in ("2024-11-03 05:30:00", "2024-11-03 06:30:00"):
        rows = spark.sql(f"SELECT TIMESTAMP'{instant}' AS at, TIMESTAMP_NTZ'{instant}' AS plain")
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        try:
            found = infer_watermark(rows, "AT", partition=None, now=NOW)
            assert found == datetime.fromisoformat(f"{instant}+00:00")
            for query in (rows.at >= found, f"at >= '{found}'"):
                assert rows.where(query).count() == 1
            plain = infer_watermark(rows, "plain", partition=None, now=NOW)
            assert plain == datetime.fromisoformat(instant)
        finally:
            monkeypatch.undo()
            time.tzset()


def test_a_watermark_of_what_is_not_there_is_refused(spark: SparkSession) -> None:
    rows = spark.sql("SELECT TIMESTAMP'2024-06-14 08:00:00' AS at, DATE'2024-06-14' AS day, 5 AS n")
    found = infer_watermark(rows, "At", partition="Day", now=NOW)
    assert found == datetime(2024, 6, 14, 8, tzinfo=UTC)
    for column, partition, said in (
        ("att", "day", "column names 'att', but there is no such column"),
        ("at", "days", "partition names 'days', but there is no such column"),
        ("at", "n", "whose type int holds no dates"),
    ):
        with pytest.raises(EntrypointError, match=said) as caught:
            infer_watermark(rows, column, partition=partition, now=NOW)
        assert caught.value.hint


def test_the_watermark_prunes_by_texts_as_well_as_by_dates(
    spark: SparkSession, table: Callable[..., Any], plans: list[str]
) -> None:
    made = table("day")
    days = ["2024-06-01", "2024-06-14"]
    rows = [(day, number) for number, day in enumerate(days)]
    made.write(spark.createDataFrame(rows, "day STRING, n INT"), days)
    held = spark.read.format("delta").load(made.path)
    newest: Any = infer_watermark(held, "n", partition="day", now=NOW)
    assert newest == 1
    assert "PartitionFilters: [isnotnull(day" in plans[0]
    assert ">= 2024-06-08" in plans[0]


def test_the_latest_row_of_each_key(spark: SparkSession) -> None:
    rows = [(1, 10, "old"), (1, 20, "new"), (2, 5, "b"), (2, 5, "a"), (3, None, "only")]
    nameless = [(None, 1, "x"), (None, 2, "y")]
    frame = spark.createDataFrame([*rows, *nameless], "id INT, at INT, v STRING")

    def latest(**options: Any) -> list[tuple[Any, ...]]:
        found = latest_by_key(frame, ["id"], newest_by="at", **options)
        return sorted((tuple(row) for row in found.collect()), key=repr)

    known = [(1, 20, "new"), (2, 5, "b"), (3, None, "only")]
    # Rows without a key are not one thing because they all lack it.
    assert latest() == [*known, (None, 1, "x"), (None, 2, "y")]
    assert latest(null_keys="drop") == known
    with pytest.raises(Exception, match="NULL in the key id"):
        latest(null_keys="fail")
    ranked = latest_by_key(frame.selectExpr("*", "9 AS Rank"), ["id"], newest_by="at")
    assert {row["Rank"] for row in ranked.collect()} == {9}
    # Of two that are equally new it is the same one, in whatever order they come.
    turned = latest_by_key(frame.orderBy("v"), ["id"], newest_by="at", null_keys="drop")
    assert sorted(tuple(row) for row in turned.where("id = 2").collect()) == [(2, 5, "b")]


def test_a_surrogate_key_tells_apart_what_differs(spark: SparkSession) -> None:
    pairs = [
        ("a", "bc"),
        ("ab", "c"),
        ("a", None),
        ("a", ""),
        ("a", "null"),
        (None, "a"),
        ('"', ","),
    ]
    frame = spark.createDataFrame([*pairs, ("a", "bc")], "x STRING, y STRING")
    keys = [row[0] for row in frame.select(surrogate_key("x", "y")).collect()]
    assert len(set(keys)) == len(pairs)
    assert keys[0] == keys[-1]
    assert all(len(key) == 64 for key in keys)
    with pytest.raises(EntrypointError, match="names no column"):
        surrogate_key()


def test_bytes_that_are_no_text_have_keys_of_their_own(spark: SparkSession) -> None:
    values = ["X'FF'", "X'FE'", "X'FFFF'", "X'EFBFBD'", "CAST('FF' AS BINARY)", "X''", "X'C3'"]
    frame = spark.sql(f"SELECT explode(array({', '.join(values)})) AS b, 'a' AS x")
    for columns in (("b",), ("x", "b"), ("b", "b")):
        keys = {row[0] for row in frame.select(surrogate_key(*columns)).collect()}
        assert len(keys) == len(values)
    # The keys of texts stay what they were.
    text = spark.sql("SELECT 'a' AS x, NULL AS y, 7 AS z").select(surrogate_key("x", "y", "z"))
    expected = hashlib.sha256(b'["a",null,"7"]').hexdigest()
    assert [row[0] for row in text.collect()] == [expected]


def test_rows_are_brought_into_the_shape_of_their_table(spark: SparkSession) -> None:
    table = spark.createDataFrame([], "id BIGINT, Name STRING, gone DATE").schema
    rows = spark.createDataFrame([("7", "x", 1)], "id STRING, name STRING, extra INT")
    aligned = align_schema(rows, table, changed="cast")
    assert (aligned.new, aligned.missing, aligned.changed) == (("extra",), ("gone",), ("id",))
    assert [f"{f.name} {f.dataType.simpleString()}" for f in aligned.frame.schema] == [
        "id bigint",
        "Name string",
        "gone date",
        "extra int",
    ]
    assert [tuple(row) for row in aligned.frame.collect()] == [(7, "x", None, 1)]
    assert align_schema(rows, table, changed="cast", new="drop").frame.columns == [
        "id",
        "Name",
        "gone",
    ]
    assert align_schema(rows, None).frame is rows
    for policy in ({}, {"changed": "cast", "new": "fail"}, {"changed": "cast", "missing": "fail"}):
        with pytest.raises(SchemaMismatchError):
            align_schema(rows, table, **policy)  # type: ignore[arg-type]
    wrong = spark.createDataFrame([("seven", "x", 1)], "id STRING, name STRING, extra INT")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        align_schema(wrong, table, changed="cast").frame.collect()


def test_instants_keep_all_their_digits_as_text(spark: SparkSession) -> None:
    at = "2024-06-15 08:00:00.123456"
    rows = spark.sql(
        f"SELECT array(TIMESTAMP'{at}') AS a, named_struct('x', TIMESTAMP_NTZ'{at}') AS s, "
        f"TIMESTAMP'{at}' AS t"
    )
    assert list(align_schema(rows, None, types="string").frame.collect()[0]) == [
        '["2024-06-15T08:00:00.123456Z"]',
        '{"x":"2024-06-15T08:00:00.123456"}',
        at,
    ]


def test_arguments_that_do_not_fit_are_refused_with_what_to_do(spark: SparkSession) -> None:
    align: Any = align_schema
    latest: Any = latest_by_key
    rows: Any = spark.sql("SELECT 1 AS id, 2 AS at, array(3) AS a")
    keyed = spark.sql("SELECT array(named_struct('m', map('a', map(X'FF', 1)))) AS a")
    twice: Any = spark.sql("SELECT 1 AS id, 2 AS at, 3 AS At")
    wider = spark.createDataFrame([], "id INT, at INT, a INT").schema
    assert latest(rows, "ID", newest_by="AT").count() == 1
    at = rows.at
    mistakes: tuple[tuple[Callable[[], Any], type[RuntimeFailure], str], ...] = (
        (lambda: latest(rows, [], newest_by="at"), EntrypointError, "keys names no column"),
        (lambda: latest(rows, "i", newest_by="at"), EntrypointError, "keys names 'i'"),
        (lambda: latest(rows, "id", newest_by=at.desc()), EntrypointError, "a direction"),
        (
            lambda: latest(rows, "id", newest_by=F.col("nope")),
            EntrypointError,
            "does not fit",
        ),
        (lambda: latest(twice, "id", newest_by="at"), EntrypointError, "several columns"),
        (lambda: align(keyed, None, types="string"), SchemaMismatchError, "binary keys"),
        (lambda: align(twice, None), SchemaMismatchError, "a column occurs twice"),
        (
            lambda: align(rows, wider, changed="cast"),
            SchemaMismatchError,
            "a column cannot be cast",
        ),
        (lambda: align(rows, wider, new="Keep"), EntrypointError, "new is 'Keep'"),
        (lambda: align(rows, wider, missing="nul"), EntrypointError, "missing is 'nul'"),
        (lambda: align(rows, wider, changed="castt"), EntrypointError, "changed is"),
        (lambda: align(rows, None, types="text"), EntrypointError, "types is 'text'"),
        (
            lambda: latest(rows, "id", newest_by="at", null_keys="Drop"),
            EntrypointError,
            "null_keys is 'Drop'",
        ),
    )
    for call, kind, said in mistakes:
        with pytest.raises(kind, match=said) as caught:
            call()
        assert caught.value.hint


def test_everything_becomes_text_but_what_the_table_has_otherwise(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT DATE'2024-06-15' AS day, 1.50BD AS n, X'00FF' AS b, array(1, NULL) AS a, "
        "named_struct('x', 1) AS s, map('k', 2) AS m, parse_json('{\"y\": 3}') AS v, NULL AS none"
    )
    texts = ["2024-06-15", "1.50", "AP8=", "[1,null]", '{"x":1}', '{"k":2}', '{"y":3}', None]
    bronze = align_schema(rows, None, types="string").frame
    assert {field.dataType.simpleString() for field in bronze.schema} == {"string"}
    assert list(bronze.collect()[0]) == texts
    table = spark.createDataFrame([], "day DATE, n STRING").schema
    aligned = align_schema(rows.select("n", "day", "a"), table, types="string")
    assert [field.dataType.simpleString() for field in aligned.frame.schema] == [
        "date",
        "string",
        "string",
    ]
    assert (aligned.new, aligned.changed) == (("a",), ())
    with pytest.raises(SchemaMismatchError):
        align_schema(rows.selectExpr("1 AS day", "n"), table, types="string")


@pytest.mark.parametrize("is_null", [True, False])
def test_what_may_be_null_makes_no_other_type(
    spark: SparkSession, table: Callable[..., Any], is_null: bool
) -> None:
    """An array that a job has just made holds no NULL; the table's may."""
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

    words = StructField("words", ArrayType(StringType(), containsNull=is_null))
    schema = StructType([StructField("id", IntegerType(), nullable=is_null), words])
    rows = spark.sql("SELECT split('a b', ' ') AS words, CAST(id AS INT) AS id FROM range(1)")
    if not is_null:
        rows = rows.selectExpr("id", "IF(id < 0, NULL, array('a', NULL)) AS words")
    aligned = align_schema(rows, schema)
    assert (aligned.new, aligned.missing, aligned.changed) == ((), (), ())
    expected = (0, ["a", "b"] if is_null else ["a", None])
    assert [tuple(row) for row in aligned.frame.collect()] == [expected]
