"""Parquet tables: what Spark itself would lose is kept, and what others leave is not published."""

from __future__ import annotations

import errno
import os
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import OutputResult
from spark_runtime.errors import (
    InputChangedError,
    StaleAttemptError,
    TableError,
    UndoRefusedError,
    WriteConflictError,
)
from spark_runtime.tables.parquet import format as parquet
from spark_runtime.tables.parquet import log as parquetlog
from spark_runtime.tables.parquet.format import DAYS_SETTING
from spark_runtime.tables.parquet.log import FOLDER, ParquetLog
from spark_runtime.tables.state import Since
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write import writer
from spark_runtime.write.checks import WriteOptions
from spark_runtime.write.reconcile import reconcile

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def rows(spark: SparkSession, *values: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), "day STRING, n INT")


@pytest.fixture
def filled(spark: SparkSession, table: Callable[..., Any]) -> Any:
    made = table("day", kind="parquet")
    made.write(rows(spark, ("d1", 1), ("d2", 2)), ["d1", "d2"], run_id="r-0", token="t-0")
    return made


def test_a_table_of_somebody_else_is_taken_as_it_is(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("Day", "hour", kind="parquet")
    theirs = spark.createDataFrame(
        [("2024-01-01", 7, 1, "a"), ("2024-01-01", 8, 2, "b"), ("2024-01-02", 7, 3, "c")],
        "Day STRING, hour INT, n INT, v STRING",
    )
    theirs.write.partitionBy("Day", "hour").parquet(made.path)
    # Another writer with other habits: one more column, a number with a zero in front.
    other = Path(made.path, "Day=2024-01-02", "hour=08")
    spark.sql("SELECT 4 AS n, 'd' AS v, 1.5D AS x").write.parquet(str(other))
    # A job that was killed while it wrote, whose rows the next plain append would publish.
    task = Path(made.path, "_temporary", "0", "task_1", "Day=2024-01-01", "hour=7")
    task.mkdir(parents=True)
    shutil.copy(next(Path(made.path, "Day=2024-01-01", "hour=7").glob("*.parquet")), task)

    ours = spark.createDataFrame(
        [(9, "new", 2.5, date(2024, 1, 2), 8)], "n INT, v STRING, x DOUBLE, DAY DATE, HOUR INT"
    )
    scope = [{"Day": "2024-01-02", "hour": "8"}, {"Day": "2024-01-01", "hour": "8"}]
    result = made.write(ours, scope)
    assert [(part.rows_before, part.rows) for part in result.partitions] == [(1, 1), (1, 0)]
    assert (result.version_before, result.version) == (0, 1)
    plain = spark.read.parquet(made.path).select("Day", "hour", "n", "v")
    assert sorted(map(tuple, plain.collect())) == [
        ("2024-01-01", "7", 1, "a"),
        ("2024-01-02", "7", 3, "c"),
        ("2024-01-02", "8", 9, "new"),
    ]
    undo_runs(spark, tokens=["b-1-r-1-1"], location=made.path, format="parquet")
    assert other.exists()
    assert spark.read.parquet(made.path).count() == 4


@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize(
    ("owner", "step", "part", "said"),
    [
        (parquet, "_url", "", "or its log was deleted while this run wrote"),
        (ParquetLog, "publish", f"{FOLDER}/log", "or its log was deleted while this run wrote"),
        (ParquetLog, "_refuse_unseen", "", "or its log was deleted while this run wrote"),
        (ParquetLog, "_refuse_unseen", FOLDER, "the previous rows may be gone"),
        (writer._Write, "_verify", "", "or its log was deleted while this run wrote"),
        (writer._Write, "_verify", FOLDER, "or its log was deleted while this run wrote"),
    ],
)
def test_a_table_or_log_that_is_deleted_during_a_write_is_a_conflict(
    spark: SparkSession,
    filled: Any,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    step: str,
    part: str,
    said: str,
    mode: str,
) -> None:
    """It is no success, and is not said to be reverted where the previous rows are gone."""
    place, original = Path(filled.path, part), getattr(owner, step)

    def late(*given: Any, **named: Any) -> Any:
        shutil.rmtree(place)
        monkeypatch.setattr(owner, step, original)
        return original(*given, **named)

    monkeypatch.setattr(owner, step, late)
    with pytest.raises(WriteConflictError, match=said) as raised:
        filled.write(rows(spark, ("d1", 7)), ["d1"], mode=mode)
    assert raised.value.stands == ("previous rows" in said)
    if not raised.value.stands:
        is_warned = "would append them again" in str(raised.value.hint)
        assert is_warned == (mode == "append")
    assert filled.write(rows(spark, ("d1", 9)), ["d1"], run_id="r-2").partitions[0].rows == 1


def add(day: Path) -> None:
    shutil.copy(next(day.glob("*.parquet")), day / "theirs.parquet")


def remove(day: Path) -> None:
    shutil.rmtree(day)


def rewrite(day: Path) -> None:
    file = next(day.glob("*.parquet"))
    os.utime(file, (1, 1))  # the same bytes, and yet another file


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("absorbed", [False, True])
@pytest.mark.parametrize("change", [add, remove, rewrite])
def test_what_others_do_after_the_start_of_a_run_is_a_conflict(
    spark: SparkSession,
    filled: Any,
    change: Callable[[Path], None],
    absorbed: bool,
    attempt: int,
) -> None:
    """They leave no commit, and a write of ours to another partition takes theirs as it is."""
    made = {"run_id": "r-1", "token": "t-1", "attempt": 1}
    if attempt > 1:
        filled.write(rows(spark, ("d1", 5)), ["d1"], **made)
    seen = WriteOptions(since=Since.of(filled.state()))
    change(Path(filled.path, "day=d1"))
    if absorbed:
        filled.write(rows(spark, ("d3", 3)), ["d3"], run_id="r-other", token="t-other")
    theirs = filled.rows()
    again = {"run_id": "r-1", "token": f"t-{attempt}-2", "attempt": attempt}
    with pytest.raises(WriteConflictError, match=r"another writer of .* changed day=d1 after"):
        filled.write(rows(spark, ("d1", 7)), ["d1"], seen, **again)
    assert filled.rows() == theirs
    filled.write(rows(spark, ("d2", 7)), ["d2"], seen, run_id="r-2", token="t-2")
    assert ("d2", 7) in filled.rows()


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("change", [add, remove, rewrite])
def test_what_others_do_after_an_earlier_attempt_has_written_is_a_conflict(
    spark: SparkSession, filled: Any, change: Callable[[Path], None], merges: bool
) -> None:
    """The earlier attempt was given up and committed nevertheless, to the same partition."""
    seen = WriteOptions(since=Since.of(filled.state()), merge_on=("n",) if merges else ())
    late = {"run_id": "r-1", "mode": "merge" if merges else "overwrite"}
    filled.write(rows(spark, ("d1", 5)), ["d1"], seen, token="t-1", attempt=1, **late)
    change(Path(filled.path, "day=d1"))
    theirs = filled.rows()
    with pytest.raises(WriteConflictError, match=r"day=d1"):
        filled.write(rows(spark, ("d1", 7)), ["d1"], seen, token="t-2", attempt=2, **late)
    assert filled.rows() == theirs


def test_attempts_of_a_run_are_no_conflict_to_a_later_one(spark: SparkSession, filled: Any) -> None:
    seen = WriteOptions(since=Since.of(filled.state()))
    for attempt, day in enumerate(["d1", "d2", "d1"], start=1):
        made = {"run_id": "r-1", "token": f"t-{attempt}", "attempt": attempt}
        filled.write(rows(spark, (day, attempt)), ["d1", "d2"], seen, **made)
    assert filled.rows() == [("d1", 3)]


def test_a_table_that_others_make_after_the_start_of_a_run_is_a_conflict(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day", kind="parquet")
    rows(spark, ("d1", 1)).write.partitionBy("day").parquet(made.path)
    with pytest.raises(WriteConflictError, match="changed day=d1 after"):
        made.write(rows(spark, ("d1", 7)), ["d1"], WriteOptions(since=Since.of(None)))
    assert made.rows() == [(1, "d1")]


def test_newest_first_everything_is_as_it_was(spark: SparkSession, filled: Any) -> None:
    def undo(token: str) -> dict[str, object]:
        return undo_runs(spark, tokens=[token], location=filled.path, format="parquet")

    before = filled.state()
    filled.write(rows(spark, ("d1", 7), ("d3", 8)), ["d1", "d2", "d3"], token="t-1")
    filled.write(rows(spark, ("d1", 9)), ["d1"], run_id="r-2", token="t-2", mode="append")
    with pytest.raises(UndoRefusedError, match="day=d1"):
        undo("t-1")
    undone = undo("t-2")
    assert undone == {"version": 4, "partitions": ["day=d1"]} == undo("t-2")
    assert filled.rows() == [(7, "d1"), (8, "d3")] or filled.rows() == [("d1", 7), ("d3", 8)]
    assert undo("t-1")["partitions"] == ["day=d1", "day=d2", "day=d3"]
    assert filled.rows() == [("d1", 1), ("d2", 2)]
    after = filled.state()
    for day in ("d1", "d2", "d3"):
        assert after.contents((day,)) == before.contents((day,))
    with pytest.raises(StaleAttemptError):
        filled.write(rows(spark, ("d1", 7)), ["d1"], token="t-1")
    assert undo("never") == {"version": None, "partitions": []}


@pytest.mark.parametrize("absorbed", ["no", "elsewhere", "there"])
@pytest.mark.parametrize("change", [add, remove, rewrite])
def test_what_others_do_after_a_version_is_not_taken_for_what_it_left(
    spark: SparkSession, filled: Any, change: Callable[[Path], None], absorbed: str
) -> None:
    """Our own later write takes theirs as it is, and knows how many rows that makes."""
    options = WriteOptions(started_at=datetime.now(UTC))
    made = {"run_id": "r-1", "token": "t-1"}
    result = filled.write(rows(spark, ("d1", 7), ("d1", 8)), ["d1"], options, **made)
    filled.write(rows(spark, ("d2", 9)), ["d2"], run_id="r-2", token="t-2")
    undone = undo_runs(spark, tokens=["t-2"], location=filled.path, format="parquet")
    for day in ("d1", "d2"):
        change(Path(filled.path, f"day={day}"))
    later = {"no": [], "elsewhere": ["d3"], "there": ["d1", "d2"]}[absorbed]
    if later:
        frame = rows(spark, *((day, 3) for day in later))
        filled.write(frame, later, run_id="r-other", token="t-other", mode="append")
    theirs = filled.rows()
    again = undo_runs(spark, tokens=["t-2"], location=filled.path, format="parquet")
    assert again == undone
    (proven,) = reconcile(filled.run_spec(["d1"], **made), Tables()).outputs
    assert isinstance(proven, OutputResult)
    assert proven.partitions == result.partitions
    found = filled.write(rows(spark, ("d1", 7), ("d1", 8)), ["d1"], options, **made)
    assert found.partitions == result.partitions
    assert filled.rows() == theirs


def test_without_partitions_the_whole_is_replaced_and_put_back(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table(kind="parquet")
    for i, mode in enumerate(("overwrite", "overwrite", "append")):
        made.write(rows(spark, ("x", i)), [{}], run_id=f"r-{i}", token=f"t-{i}", mode=mode)
    assert made.rows() == [("x", 1), ("x", 2)]
    for token, left in (("t-2", [("x", 1)]), ("t-1", [("x", 0)]), ("t-0", [])):
        undo_runs(spark, tokens=[token], location=made.path, format="parquet")
        assert made.rows() == left


def test_what_was_replaced_is_deleted_after_some_days(spark: SparkSession, filled: Any) -> None:
    trash = Path(filled.path, FOLDER, "trash")
    filled.write(rows(spark, ("d1", 7)), ["d1"], token="t-1")
    assert (trash / "2" / "day=d1").exists()
    spark.conf.set(DAYS_SETTING, "0")
    try:
        filled.write(rows(spark, ("d2", 7)), ["d2"], run_id="r-2")
    finally:
        spark.conf.unset(DAYS_SETTING)
    assert not list(trash.iterdir())
    with pytest.raises(UndoRefusedError, match=r"day=d1 .* is gone"):
        undo_runs(spark, tokens=["t-1"], location=filled.path, format="parquet")


def test_files_that_appear_while_rows_are_computed_are_a_conflict(
    spark: SparkSession, filled: Any
) -> None:
    """The frame is computed when it is staged; somebody else writes at just that time."""
    from pyspark.sql import functions as F

    path = filled.path

    def meddle(n: int) -> int:
        source = next(Path(path, "day=d2").glob("*.parquet"))
        shutil.copy(source, Path(path, "day=d1", "theirs.parquet"))
        return n

    frame = rows(spark, ("d1", 7)).withColumn("n", F.udf(meddle, "int")("n"))
    with pytest.raises(WriteConflictError, match=r"another writer of .* changed day=d1"):
        filled.write(frame, ["d1"])
    assert filled.rows() == [("d1", 1), ("d1", 2), ("d2", 2)]
    filled.write(rows(spark, ("d1", 7)), ["d1"], run_id="r-2")
    assert filled.rows() == [("d1", 7), ("d2", 2)]


def test_a_full_disk_in_the_swap_leaves_the_old_rows(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the journal is gone with the error: the next attempt writes as if nothing had been."""
    exchange, calls = parquetlog.exchange, []

    def full(*folders: Path) -> None:
        calls.append(folders)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        exchange(*folders)

    with monkeypatch.context() as context:
        context.setattr(parquetlog, "exchange", full)
        with pytest.raises(TableError, match="No space left"):
            filled.write(rows(spark, ("d1", 7), ("d2", 8)), ["d1", "d2"])
    plain = spark.read.parquet(filled.path).select("day", "n")
    assert sorted(map(tuple, plain.collect())) == [("d1", 1), ("d2", 2)]
    assert not list(Path(filled.path, FOLDER, "staging").iterdir())
    filled.write(rows(spark, ("d1", 7), ("d2", 8)), ["d1", "d2"])
    assert filled.rows() == [("d1", 7), ("d2", 8)]


def test_inputs_are_read_as_the_run_found_them_or_not_at_all(
    spark: SparkSession, filled: Any, tables: Tables
) -> None:
    from spark_runtime.read.reader import Inputs

    document = {
        "dataset": {"namespace": "test", "name": "t"},
        "format": "parquet",
        "location": filled.path,
        "columns": ["day"],
        "partitions": filled.scope(["d1", "d9"]),
    }
    output = {
        "dataset": {"namespace": "test", "name": "o"},
        "location": "/nowhere",
        "columns": [],
        "scope": [{"key": "*", "values": {}}],
    }
    spec = {
        "schema_version": 1,
        "backfill_id": "b",
        "run_id": "r",
        "attempt": 1,
        "token": "t",
        "job": {"namespace": "test", "name": "j", "entrypoint": "m:f"},
        "partitions": [],
        "keys": [],
        "outputs": [output],
        "inputs": [document],
        "result_path": "/nowhere",
    }
    inputs = Inputs(spark, parse_spec(spec).inputs, tables)
    frame = inputs.read("t")
    assert frame is not None
    (read,) = inputs.results()
    assert read.version == 1
    assert [part.fingerprint == "empty" for part in read.partitions] == [False, True]
    filled.write(rows(spark, ("d2", 7)), ["d2"])  # another partition: no matter
    again = inputs.read("t")
    assert again is not None
    assert [tuple(row) for row in again.collect()] == [("d1", 1)]
    filled.write(rows(spark, ("d1", 8)), ["d1"], run_id="r-2")
    with pytest.raises(InputChangedError, match="came after version 1"):
        inputs.read("t")
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|FileNotFound|does not exist"):
        frame.collect()


@pytest.mark.parametrize("form", ["csv", "json", "orc", "torn"])
def test_files_of_another_format_are_named(
    spark: SparkSession, table: Callable[..., Any], form: str
) -> None:
    made = table("day", kind="parquet")
    frame = spark.createDataFrame([("d1", 1)], "day STRING, n INT")
    writer = frame.write.partitionBy("day").format("parquet" if form == "torn" else form)
    writer.save(made.path)
    (file,) = Path(made.path).glob("day=d1/part-*")
    if form == "torn":
        file.write_bytes(file.read_bytes()[:-20])
    before = file.read_bytes()
    with pytest.raises(TableError, match=f"{file.name} is damaged or not a Parquet") as caught:
        made.write(frame, ["d1"])
    assert "Move it" in str(caught.value.hint)
    assert file.read_bytes() == before


def test_a_catalog_table_and_a_delta_table_are_refused(
    spark: SparkSession, filled: Any, table: Callable[..., Any]
) -> None:
    delta = table("day", name="delta")
    delta.write(rows(spark, ("d1", 1)), ["d1"])
    as_parquet = table("day", name="delta", kind="parquet")
    with pytest.raises(TableError, match="is a Delta table"):
        as_parquet.write(rows(spark, ("d1", 1)), ["d1"])
    with pytest.raises(TableError, match="of the catalog"):
        undo_runs(spark, tokens=["t"], table="db.t", format="parquet")
