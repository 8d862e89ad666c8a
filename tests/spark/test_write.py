"""write_partitions replaces exactly the scope of a run, on real Delta and Parquet tables."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from lineage_backfill.runspec.parse import parse_spec
from spark_runtime.errors import (
    ConstraintError,
    EmptyPartitionError,
    SchemaMismatchError,
    SessionError,
    StaleAttemptError,
    TableError,
    UnexpectedPartitionError,
    WriteConflictError,
)
from spark_runtime.tables.delta.format import replace
from spark_runtime.tables.locks import TIMEOUT_SETTING
from spark_runtime.tables.state import Since
from spark_runtime.tables.tables import Tables
from spark_runtime.write.checks import Audit, WriteOptions
from spark_runtime.write.writer import write_partitions
from tests.sampling import a_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]


def days(spark: SparkSession, *rows: tuple[str | None, int]) -> DataFrame:
    return spark.createDataFrame(list(rows), "day STRING, n INT")


@pytest.fixture(params=["delta"])
def kind(request: pytest.FixtureRequest) -> str:
    """What every format promises is tested with each."""
    return str(request.param)


@pytest.fixture
def delta(spark: SparkSession, table: Callable[..., Any]) -> Any:
    """A filled table of the format that only some tests are about."""
    return fill(spark, table("day"))


@pytest.fixture
def filled(spark: SparkSession, table: Callable[..., Any], kind: str) -> Any:
    return fill(spark, table("day", kind=kind))


def fill(spark: SparkSession, made: Any) -> Any:
    made.write(days(spark, *[(day, i) for i, day in enumerate(DAYS)]), DAYS, run_id="r-0")
    return made


def test_a_first_write_creates_the_table_partitioned_and_says_what_it_wrote(
    spark: SparkSession, table: Callable[..., Any], kind: str
) -> None:
    made = table("day", kind=kind)
    result = made.write(days(spark, ("2024-01-01", 1), ("2024-01-01", 2)), DAYS[:2])
    assert made.rows() == [("2024-01-01", 1), ("2024-01-01", 2)]
    assert (result.version_before, result.version) == (0, 1)
    assert [(p.rows_before, p.rows, p.emptied) for p in result.partitions] == [
        (0, 2, False),
        (0, 0, False),
    ]
    assert [column.name for column in made.state().columns] == ["day"]


@pytest.mark.parametrize("left", [None, ".00000000000000000000.json.1f2e.tmp"])
@pytest.mark.parametrize("columns", [("day",), ()])
def test_a_first_write_follows_a_creation_that_was_killed(
    spark: SparkSession, table: Callable[..., Any], left: str | None, columns: tuple[str, ...]
) -> None:
    """Delta makes the folder of the log first, and its first commit by a rename."""
    made = table(*columns)
    log = Path(made.path, "_delta_log")
    log.mkdir(parents=True)
    if left is not None:
        (log / left).write_text('{"commitInfo":{')
    rows = spark.createDataFrame([("d1", 1)], "day STRING, n INT")
    scope: list[Any] = ["d1"] if columns else [{}]
    made.write(rows, scope, mode="overwrite" if columns else "full")
    assert made.rows() == [("d1", 1)]
    assert [column.name for column in made.state().columns] == list(columns)


@pytest.mark.classic
@pytest.mark.parametrize("written", [1, 3])
def test_rows_are_computed_once_and_kept_no_longer_than_the_write(
    spark: SparkSession, delta: Any, written: int
) -> None:
    computed = spark.sparkContext.accumulator(0)

    def noted(n: int) -> int:
        computed.add(1)
        return n

    def kept() -> set[int]:
        # Delta keeps the state of a table that was read
        stored = spark.sparkContext._jsc.getPersistentRDDs()
        return {n for n, rdd in stored.items() if "Delta Table State" not in str(rdd.name())}

    note = F.udf(noted, "INT").asNondeterministic()
    before = kept()
    frame = days(spark, *[(day, n) for day in DAYS[:written] for n in (10, 20)])
    delta.write(frame.withColumn("n", note("n")), DAYS[:written], run_id="r-1")
    assert len(delta.rows()) == len(DAYS) + written
    assert computed.value == 2 * written
    assert kept() == before


@pytest.mark.classic
def test_rows_that_get_lost_from_memory_after_they_were_looked_at_are_not_computed_anew(
    spark: SparkSession, delta: Any
) -> None:
    stored = spark.sparkContext._jsc.getPersistentRDDs
    kept, old = set(stored()), delta.rows()

    def lose(audit: Audit) -> None:
        for number in set(stored()) - kept:
            stored()[number].unpersist()

    others = days(spark, (DAYS[0], 0)).withColumn("n", (F.rand() * 1e9).cast("int"))
    with pytest.raises(Exception, match="Checkpoint block"):
        delta.write(others, DAYS[:1], WriteOptions(checks=[lose]), run_id="r-1")
    assert delta.rows() == old


@pytest.mark.classic
def test_rows_that_get_lost_from_disk_after_they_were_looked_at_are_not_computed_anew(
    tmp_path: Path,
) -> None:
    driver = Path(__file__).parents[1] / "lost_driver.py"
    command = [sys.executable, str(driver), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "failed the maximum allowable number of times: 1." in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[('d1', 0), ('d2', 0)]"


@pytest.mark.parametrize(("written", "open_files"), [(1, "2"), (2, "0")])
def test_only_a_write_into_one_partition_goes_unsorted_into_one_open_file(
    spark: SparkSession,
    delta: Any,
    monkeypatch: pytest.MonkeyPatch,
    written: int,
    open_files: str,
) -> None:
    name = "spark.sql.maxConcurrentOutputFileWriters"
    seen = []

    def noted(*what: Any) -> None:
        seen.append(spark.conf.get(name))
        replace(*what)

    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", noted)
    delta.write(days(spark, ("2024-01-01", 7)), DAYS[:written])
    assert seen == [open_files]
    assert spark.conf.get(name) == "0"


@pytest.mark.core
def test_only_the_scope_is_replaced_and_an_empty_result_clears_its_partition(
    spark: SparkSession, filled: Any
) -> None:
    result = filled.write(days(spark, ("2024-01-01", 7)), DAYS[:2])
    assert filled.rows() == [("2024-01-01", 7), ("2024-01-03", 2)]
    assert [(p.rows_before, p.rows, p.emptied) for p in result.partitions] == [
        (1, 1, False),
        (1, 0, True),
    ]
    assert filled.state().contents(("2024-01-03",)).rows == 1


@pytest.mark.parametrize("outside", ["2024-01-09", None, ""])
def test_a_row_outside_the_scope_is_named_and_nothing_is_written(
    spark: SparkSession, filled: Any, outside: str | None
) -> None:
    before = filled.version
    with pytest.raises(UnexpectedPartitionError, match=rf"day={outside or 'NULL'}"):
        filled.write(days(spark, ("2024-01-01", 7), (outside, 8)), DAYS[:1])
    assert filled.version == before
    assert len(filled.rows()) == 3


def test_the_first_write_is_checked_like_any_other(
    spark: SparkSession, table: Callable[..., Any], kind: str
) -> None:
    made = table("day", kind=kind)
    with pytest.raises(UnexpectedPartitionError):
        made.write(days(spark, ("2024-01-02", 1)), DAYS[:1])
    if kind == "delta":
        assert not Path(made.path).exists()  # not even an empty table
    else:
        assert made.rows() == []


def test_the_same_attempt_twice_is_one_commit(spark: SparkSession, filled: Any) -> None:
    first = filled.write(days(spark, ("2024-01-01", 7)), DAYS[:1])
    again = filled.write(days(spark, ("2024-01-01", 8)), DAYS[:1])
    assert again == first
    assert ("2024-01-01", 7) in filled.rows()


def test_a_later_attempt_replaces_again_and_an_earlier_one_comes_too_late(
    spark: SparkSession, filled: Any
) -> None:
    filled.write(days(spark, ("2024-01-01", 7)), DAYS[:1], attempt=2)
    with pytest.raises(StaleAttemptError):
        filled.write(days(spark, ("2024-01-01", 8)), DAYS[:1], attempt=1)
    filled.write(days(spark, ("2024-01-01", 9)), DAYS[:1], attempt=3)
    assert ("2024-01-01", 9) in filled.rows()


@pytest.mark.parametrize(("on_empty", "left"), [("clear", 1), ("keep", 3)], ids=["clear", "keep"])
def test_what_becomes_of_partitions_without_rows(
    spark: SparkSession, filled: Any, on_empty: str, left: int
) -> None:
    result = filled.write(days(spark), DAYS[:2], on_empty=on_empty)
    assert len(filled.rows()) == left
    assert [p.rows for p in result.partitions] == ([0, 0] if on_empty == "clear" else [1, 1])
    assert (result.version is None) == (on_empty == "keep")


def test_no_rows_where_rows_are_required_is_an_error(spark: SparkSession, filled: Any) -> None:
    with pytest.raises(EmptyPartitionError, match="day=2024-01-02"):
        filled.write(days(spark, ("2024-01-01", 7)), DAYS[:2], on_empty="fail")
    assert len(filled.rows()) == 3


def test_other_columns_or_types_are_refused(spark: SparkSession, filled: Any) -> None:
    wrong = spark.createDataFrame([("2024-01-01", 1, 2)], "day STRING, n LONG, m INT")
    with pytest.raises(SchemaMismatchError, match=r"n is bigint, in the table int; m is not"):
        filled.write(wrong, DAYS[:1])


def test_columns_are_matched_by_name_whatever_their_order_and_case(
    spark: SparkSession, filled: Any
) -> None:
    filled.write(spark.createDataFrame([(5, "2024-01-01")], "N INT, DAY STRING"), DAYS[:1])
    assert ("2024-01-01", 5) in filled.rows()


def test_other_partition_columns_than_the_tables_are_refused(
    spark: SparkSession, filled: Any, table: Callable[..., Any]
) -> None:
    frame = days(spark, ("2024-01-01", 7))
    with pytest.raises(TableError, match="partitioned by"):
        table("n", kind=filled.kind).write(frame, ["7"])
    with pytest.raises(TableError, match="partitioned by"):
        table(kind=filled.kind).write(frame, [{}])


def test_a_table_without_partitions_is_replaced_whole(
    spark: SparkSession, table: Callable[..., Any], kind: str
) -> None:
    made = table(kind=kind)
    made.write(days(spark, ("a", 1), ("b", 2)), [{}], run_id="r-0")
    result = made.write(days(spark, ("c", 3)), [{}])
    assert made.rows() == [("c", 3)]
    assert [(p.key, p.rows_before, p.rows) for p in result.partitions] == [("*", 2, 1)]


def test_somebody_elses_commit_to_the_scope_since_the_start_is_a_conflict(
    spark: SparkSession, delta: Any
) -> None:
    started = delta.version
    days(spark, ("2024-01-01", 5)).write.format("delta").mode("append").save(delta.path)
    with pytest.raises(WriteConflictError, match=rf"version {started + 1} \(WRITE by "):
        delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1], WriteOptions(since=Since(started)))
    delta.write(days(spark, ("2024-01-02", 7)), DAYS[1:2], WriteOptions(since=Since(started)))
    assert ("2024-01-02", 7) in delta.rows()


def test_a_backfill_of_the_same_plan_is_somebody_else(spark: SparkSession, delta: Any) -> None:
    """Its runs bear the same names; only an earlier attempt of this very run is none."""
    started = delta.version
    delta.write(days(spark, ("2024-01-01", 5)), DAYS[:1], run_id="r-7", token="t-7")
    again = {"run_id": "r-7", "attempt": 2}
    later = WriteOptions(since=Since(started))
    with pytest.raises(WriteConflictError, match="of backfill b-1 at"):
        delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1], later, **again, backfill_id="b-2")
    delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1], later, **again)
    assert ("2024-01-01", 7) in delta.rows()


def test_a_transaction_is_named_by_the_run_store_as_well(spark: SparkSession, delta: Any) -> None:
    """Two stores may call their backfills alike: Delta would drop what the second one writes."""
    for store in ("s-1", "s-2"):
        frame = days(spark, ("2024-01-01", int(store[2:])))
        delta.write(frame, DAYS[:1], store=store, run_id="r-8", token=f"{store}-t")
        assert ("2024-01-01", int(store[2:])) in delta.rows()
    assert {f"lineage-backfill/s-{n}/b-1/r-8" for n in (1, 2)} <= set(delta.state().transactions)


def test_an_optimize_in_between_is_no_conflict(spark: SparkSession, delta: Any) -> None:
    days(spark, ("2024-01-01", 5)).write.format("delta").mode("append").save(delta.path)
    started = delta.version
    spark.sql(f"OPTIMIZE delta.`{delta.path}`").collect()
    assert delta.version == started + 1
    delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1], WriteOptions(since=Since(started)))
    assert ("2024-01-01", 7) in delta.rows()


def test_a_broken_constraint_is_named_without_the_row(spark: SparkSession, delta: Any) -> None:
    spark.sql(f"ALTER TABLE delta.`{delta.path}` ADD CONSTRAINT small CHECK (n < 100)")
    with pytest.raises(ConstraintError, match="DELTA_VIOLATE_CONSTRAINT") as raised:
        delta.write(days(spark, ("2024-01-01", 12345)), DAYS[:1])
    assert "12345" not in str(raised.value)
    assert len(delta.rows()) == 3


@pytest.mark.parametrize("mode", a_part(["overwrite", "append", "merge"], every=2))
def test_every_kind_of_broken_constraint_has_its_name(
    spark: SparkSession, table: Callable[..., Any], mode: str
) -> None:
    made = table("day")
    spark.sql(
        f"CREATE TABLE delta.`{made.path}` (day STRING, n INT NOT NULL, text VARCHAR(3), "
        "twice INT GENERATED ALWAYS AS (n * 2)) USING delta PARTITIONED BY (day)"
    )
    spark.sql(f"ALTER TABLE delta.`{made.path}` ADD CONSTRAINT small CHECK (n IS NULL OR n < 100)")
    options = WriteOptions(merge_on=("n",)) if mode == "merge" else None
    for values, name in (
        ("12345 AS n, 'a' AS text", "small, DELTA_VIOLATE_CONSTRAINT"),
        ("CAST(NULL AS INT) AS n, 'a' AS text", "n, DELTA_NOT_NULL_CONSTRAINT"),
        ("1 AS n, 'secret' AS text", "text.* <= 3.*, DELTA_EXCEED_CHAR"),
        ("1 AS n, 'a' AS text, 12345 AS twice", "Generated Column, DELTA_VIOLATE_CONSTRAINT"),
    ):
        frame = spark.sql(f"SELECT 'd1' AS day, {values}")
        with pytest.raises(ConstraintError, match=rf"\({name}") as raised:
            made.write(frame, ["d1"], options, mode=mode)
        assert not any(value in str(raised.value) for value in ("12345", "secret"))
    assert made.rows() == []


def test_a_session_without_its_safeguards_has_them_while_it_writes(
    spark: SparkSession, delta: Any
) -> None:
    name = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
    seen = []

    def look(audit: Audit) -> None:
        seen.append(spark.conf.get(name))

    spark.conf.set(name, "false")
    try:
        rows = days(spark, ("2024-01-01", 7))
        delta.write(rows, DAYS[:1], WriteOptions(checks=[look]), run_id="r-1")
        assert seen == ["true"]
        assert spark.conf.get(name) == "false"
    finally:
        spark.conf.set(name, "true")


def test_a_job_that_fails_while_its_rows_are_computed_leaves_the_old_ones(
    spark: SparkSession, filled: Any
) -> None:
    bad = days(spark, ("2024-01-01", 0)).selectExpr("day", "CAST(1 / n AS INT) AS n")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        filled.write(bad, DAYS[:1])
    assert len(filled.rows()) == 3


def test_a_table_that_is_made_again_during_a_run_is_another_table(
    spark: SparkSession, delta: Any
) -> None:
    """Its log is short and says nothing of the change; only its id does."""
    state = delta.state()
    seen = WriteOptions(since=Since.of(state))
    shutil.rmtree(delta.path)
    days(spark, ("2024-01-01", 5)).write.format("delta").partitionBy("day").save(delta.path)
    days(spark, ("2024-01-02", 6)).write.format("delta").mode("append").save(delta.path)
    assert delta.version == state.version
    with pytest.raises(WriteConflictError, match="was dropped and created again") as raised:
        delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1], seen)
    assert raised.value.hint is not None
    assert delta.rows() == [("2024-01-01", 5), ("2024-01-02", 6)]


def test_a_table_that_is_dropped_during_a_run_is_not_created_by_it(
    spark: SparkSession, delta: Any
) -> None:
    state = delta.state()
    shutil.rmtree(delta.path)
    seen = WriteOptions(since=Since.of(state))
    with pytest.raises(WriteConflictError, match="was dropped"):
        delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1], seen)
    assert not Path(delta.path).exists()


def test_a_table_that_is_made_again_while_rows_are_computed_is_not_written(
    spark: SparkSession, delta: Any
) -> None:
    def again(_: Audit) -> None:
        shutil.rmtree(delta.path)
        days(spark, ("2024-01-03", 5)).write.format("delta").partitionBy("day").save(delta.path)

    with pytest.raises(WriteConflictError, match="was dropped and created again"):
        delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1], WriteOptions(checks=[again]))
    assert delta.rows() == [("2024-01-03", 5)]


def test_a_first_write_takes_nested_columns_that_are_not_null(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    shape = StructType(
        [
            StructField("day", StringType()),
            StructField("s", StructType([StructField("a", IntegerType(), False)]), False),
            StructField(
                "l", ArrayType(StructType([StructField("b", IntegerType(), False)]), False)
            ),
            StructField("m", MapType(StringType(), IntegerType(), False)),
        ]
    )
    frame = spark.createDataFrame([("d1", (1,), [(2,)], {"x": 3})], shape)
    made.write(frame, ["d1"])
    assert made.rows() == [("d1", (1,), [(2,)], {"x": 3})]
    made.write(frame, ["d1"], run_id="r-2")


def test_a_commit_that_is_taken_back_takes_no_later_rows_of_others_along(
    spark: SparkSession, delta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows came before its commit, so that it is refused, and others after it."""
    meanwhile = [("2024-01-01", 5), ("2024-01-01", 6)]

    def add() -> None:
        days(spark, meanwhile.pop(0)).write.format("delta").mode("append").save(delta.path)

    def late(*arguments: Any) -> None:
        add()
        replace(*arguments)
        add()

    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", late)
    with pytest.raises(WriteConflictError, match="could not be reverted: version") as raised:
        delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1])
    assert raised.value.hint is not None
    assert "Compare the table with its version 2" in raised.value.hint
    assert ("2024-01-01", 6) in delta.rows()


@pytest.mark.parametrize("error", ["somebody else's commit", "Spark"])
def test_a_commit_that_cannot_be_taken_back_is_said_to_stand(
    spark: SparkSession, delta: Any, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """Whatever keeps it from being taken back: it is never told that nothing was written."""
    writes = []

    def late(*arguments: Any) -> None:
        writes.append(arguments)
        if len(writes) == 2:
            raise RuntimeError("DELTA_CONCURRENT_APPEND" if error != "Spark" else "no space left")
        days(spark, ("2024-01-01", 5)).write.format("delta").mode("append").save(delta.path)
        replace(*arguments)

    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", late)
    with pytest.raises(WriteConflictError, match="could not be reverted") as raised:
        delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1])
    assert raised.value.stands
    assert "Compare the table with its version" in (raised.value.hint or "")
    monkeypatch.undo()
    delta.write(days(spark, ("2024-01-01", 8)), DAYS[:1], attempt=2)
    assert [n for day, n in delta.rows() if day == "2024-01-01"] == [8]


def test_a_limit_for_the_lock_that_is_no_number_is_refused(spark: SparkSession, delta: Any) -> None:
    spark.conf.set(TIMEOUT_SETTING, "soon")
    try:
        with pytest.raises(SessionError, match=f"{TIMEOUT_SETTING} = soon"):
            delta.write(days(spark, ("2024-01-01", 7)), DAYS[:1])
    finally:
        spark.conf.unset(TIMEOUT_SETTING)
    assert len(delta.rows()) == 3


def test_an_output_without_partitions_at_the_keys_of_a_run_gets_no_rows(
    spark: SparkSession, make_table: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    """Its bounds are others than those of an output that the run writes."""
    table = make_table(tmp_path / "t", ["day"], kind)
    table.write(spark.createDataFrame([("d1", 1)], "day STRING, n INT"), ["d1"])
    run = table.run_spec(["d1"], run_id="r-2")
    run = dataclasses.replace(
        run, outputs=(dataclasses.replace(run.outputs[0], scope=()), *run.outputs)
    )
    document = run.to_dict()
    document["outputs"][1]["location"] = str(tmp_path / "other")
    output = parse_spec(json.loads(json.dumps(document))).outputs[0]
    tables = Tables(spark)
    empty = spark.createDataFrame([], "day STRING, n INT")
    made = write_partitions(empty, output, run, tables)
    assert (made.version, made.partitions) == (None, ())
    with pytest.raises(UnexpectedPartitionError, match="no partition at the keys of this run"):
        write_partitions(spark.createDataFrame([("d1", 2)], empty.schema), output, run, tables)
    assert table.rows() == [("d1", 1)]
    assert tables.latest_version(output) == made.version_before
