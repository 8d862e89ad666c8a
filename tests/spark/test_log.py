"""What Delta itself writes is read right, and other writers are noticed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import StaleAttemptError, VerificationError, WriteConflictError
from spark_runtime.tables.delta.format import merge, replace
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.write.checks import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def rows(spark: SparkSession, *values: tuple[str | None, int]) -> DataFrame:
    return spark.createDataFrame(list(values), "day STRING, n INT")


@pytest.fixture
def filled(spark: SparkSession, table: Callable[..., Any]) -> Any:
    made = table("day")
    made.write(
        rows(spark, ("d1", 1), ("d2", 2), (None, 3)), ["d1", "d2", {"day": None}], run_id="r-0"
    )
    return made


def test_a_delete_and_an_optimize_are_counted_as_what_they_are(
    spark: SparkSession, filled: Any
) -> None:
    name = f"delta.`{filled.path}`"
    spark.sql(f"INSERT INTO {name} VALUES ('d1', 9)")
    spark.sql(f"OPTIMIZE {name}").collect()
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {name} WHERE n = 9")
    log = DeltaLog(filled.path)
    state = log.state()
    assert state.contents(("d1",)).rows == 1
    touched = [(commit.operation, commit.touched) for commit in log.commits(1, state.version)]
    assert touched == [
        ("WRITE", {("d1",)}),
        ("OPTIMIZE", frozenset()),
        ("SET TBLPROPERTIES", frozenset()),
        ("DELETE", {("d1",)}),
    ]


def test_a_conflict_is_retried_only_if_the_scope_is_as_it_was(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile: list[Callable[[], object]] = []

    def slow(*arguments: Any) -> None:
        # What another writer does after our last look and before Delta's own commit check:
        # Delta itself reports it as a conflict, here it is raised in Delta's words.
        if meanwhile:
            meanwhile.pop()()
            raise RuntimeError("[DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT] files were added")
        replace(*arguments)

    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", slow)
    name = f"delta.`{filled.path}`"
    spark.sql(f"INSERT INTO {name} VALUES ('d1', 9)")
    meanwhile.append(lambda: spark.sql(f"OPTIMIZE {name}").collect())
    filled.write(rows(spark, ("d1", 7)), ["d1"])
    assert ("d1", 7) in filled.rows()
    meanwhile.append(lambda: spark.sql(f"INSERT INTO {name} VALUES ('d1', 8)"))
    with pytest.raises(WriteConflictError, match=r"\(WRITE by .* changed day=d1"):
        filled.write(rows(spark, ("d1", 0)), ["d1"], run_id="r-2")
    assert filled.rows()[:2] == [("d1", 7), ("d1", 8)]


def test_a_commit_that_slips_in_unseen_is_found_afterwards_and_kept(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    def late(*arguments: Any) -> None:
        monkeypatch.undo()
        spark.sql(f"INSERT INTO delta.`{filled.path}` VALUES ('d1', 8)")
        replace(*arguments)

    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", late)
    with pytest.raises(WriteConflictError, match="changed day=d1"):
        filled.write(rows(spark, ("d1", 7)), ["d1"])
    assert [row for row in filled.rows() if row[0] == "d1"] == [("d1", 1), ("d1", 8)]


def test_an_error_after_the_commit_is_no_failure(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    def lost(*arguments: Any) -> None:
        replace(*arguments)
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", lost)
    result = filled.write(rows(spark, ("d1", 7)), ["d1"])
    assert result.version == filled.version
    assert ("d1", 7) in filled.rows()


def test_a_commit_outside_the_scope_is_taken_back(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    def too_much(frame: Any, location: Any, columns: Any, scope: Any, *rest: Any) -> None:
        replace(frame, location, columns, [*scope, ("d2",)], *rest)

    before = filled.rows()
    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", too_much)
    with pytest.raises(VerificationError, match="touched day=d2 outside its scope"):
        filled.write(rows(spark, ("d1", 7)), ["d1"])
    assert filled.rows() == before
    # Whoever starts the same attempt again is not told that it has succeeded.
    monkeypatch.undo()
    with pytest.raises(StaleAttemptError):
        filled.write(rows(spark, ("d1", 7)), ["d1"])
    filled.write(rows(spark, ("d1", 7)), ["d1"], attempt=2)
    assert ("d1", 7) in filled.rows()


class Killed(BaseException):
    """Ends a write as a killed process ends."""


def kill_after_a_foreign_commit(
    spark: SparkSession,
    filled: Any,
    monkeypatch: pytest.MonkeyPatch,
    publish: Callable[..., None] = replace,
) -> None:
    """Let somebody else write `d1` just before each write of ours, which is killed after it."""

    def late(*arguments: Any) -> None:
        spark.sql(f"INSERT INTO delta.`{filled.path}` VALUES ('d1', 8)")
        publish(*arguments)
        raise Killed

    monkeypatch.setattr(f"spark_runtime.tables.delta.format.{publish.__name__}", late)


def test_a_commit_that_nobody_could_look_at_is_looked_at_by_the_next(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its commit and the look at it, a process finds its own token in the log."""
    kill_after_a_foreign_commit(spark, filled, monkeypatch)
    with pytest.raises(Killed):
        filled.write(rows(spark, ("d1", 7)), ["d1"])
    assert filled.rows()[0] == ("d1", 7)
    monkeypatch.undo()
    with pytest.raises(VerificationError, match="differs from what the run had to write") as raised:
        filled.write(rows(spark, ("d1", 7)), ["d1"])
    assert not raised.value.stands
    assert [row for row in filled.rows() if row[0] == "d1"] == [("d1", 1), ("d1", 8)]
    with pytest.raises(StaleAttemptError):
        filled.write(rows(spark, ("d1", 7)), ["d1"])


def test_a_later_attempt_brings_back_what_an_earlier_one_has_overwritten_unseen(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_after_a_foreign_commit(spark, filled, monkeypatch, merge)
    by_n = WriteOptions(merge_on=("n",))
    with pytest.raises(Killed):
        filled.write(rows(spark, ("d1", 7)), ["d1"], by_n, mode="merge")
    assert [n for day, n in filled.rows() if day == "d1"] == [1, 7, 8]
    monkeypatch.undo()
    filled.write(rows(spark, ("d1", 7)), ["d1"], by_n, mode="merge", attempt=2)
    assert [n for day, n in filled.rows() if day == "d1"] == [1, 7, 8]


def test_what_others_have_built_on_a_wrong_commit_is_not_taken_back(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_after_a_foreign_commit(spark, filled, monkeypatch)
    with pytest.raises(Killed):
        filled.write(rows(spark, ("d1", 7)), ["d1"])
    monkeypatch.undo()
    spark.sql(f"INSERT INTO delta.`{filled.path}` VALUES ('d1', 9)")
    for _ in range(2):
        with pytest.raises(
            VerificationError, match="differs from what the run had to write"
        ) as raised:
            filled.write(rows(spark, ("d1", 7)), ["d1"])
        assert raised.value.stands
    assert [row for row in filled.rows() if row[0] == "d1"] == [("d1", 7), ("d1", 9)]


def test_a_job_that_computes_other_rows_each_time_is_found_out(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    def other(frame: Any, *arguments: Any) -> None:
        replace(frame.limit(1), *arguments)

    before = filled.rows()
    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", other)
    with pytest.raises(VerificationError, match="does not have the counted rows in day=d1"):
        filled.write(rows(spark, ("d1", 7), ("d1", 8)), ["d1"])
    assert filled.rows() == before


def test_two_writers_of_different_partitions_do_not_disturb_each_other(
    spark: SparkSession, filled: Any
) -> None:
    errors: list[BaseException] = []

    def write(day: str) -> None:
        try:
            for i in range(3):
                frame = rows(spark, (day, 10 + i))
                filled.write(frame, [day], run_id=f"{day}-{i}")
        except BaseException as error:  # noqa: BLE001 (shown by the assertion below)
            errors.append(error)

    threads = [threading.Thread(target=write, args=(day,)) for day in ("d1", "d2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert filled.rows() == [("d1", 12), ("d2", 12), (None, 3)]
