"""Without fingerprints rows are written in one pass, and are held to the scope all the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from spark_runtime.errors import CheckFailedError, SessionError, UnexpectedPartitionError
from spark_runtime.tables.delta.format import replace
from spark_runtime.tables.fingerprint import SETTING
from spark_runtime.tables.tables import Tables
from spark_runtime.write.checks import WriteOptions, expect_rows
from spark_runtime.write.reconcile import reconcile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

DAYS = ["d1", "d2", "it's\n${x} \\"]


@pytest.fixture(autouse=True)
def without(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(SETTING, "false")
    yield
    spark.conf.unset(SETTING)


def days(spark: SparkSession, *rows: tuple[str | None, int]) -> DataFrame:
    return spark.createDataFrame(list(rows), "day STRING, n INT")


@pytest.fixture
def filled(spark: SparkSession, table: Callable[..., Any]) -> Any:
    made = table("day")
    made.write(days(spark, *[(day, i) for i, day in enumerate(DAYS)]), DAYS, run_id="r-0")
    return made


def test_the_scope_is_replaced_and_nothing_else(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("no rows are looked at beforehand")

    monkeypatch.setattr("spark_runtime.write.writer.computed_once", never)
    result = filled.write(days(spark, ("d1", 7), ("d1", 8)), DAYS[:2])
    assert set(filled.rows()) == {("d1", 7), ("d1", 8), (DAYS[2], 2)}
    found = [(p.rows_before, p.rows, p.fingerprint, p.emptied) for p in result.partitions]
    assert found == [(1, 2, None, False), (1, 0, "empty", True)]
    assert filled.write(days(spark, ("d1", 0)), DAYS[:2]) == result
    assert filled.state().contents(("d1",)).fingerprint is None


@pytest.mark.parametrize("outside", [None, "", "a'b\\\n\"${spark.app.name}", DAYS[2]])
def test_a_row_outside_the_scope_is_named_and_nothing_is_written(
    spark: SparkSession, filled: Any, outside: str | None
) -> None:
    before = filled.version
    with pytest.raises(UnexpectedPartitionError) as raised:
        filled.write(days(spark, ("d1", 7), (outside, 8)), DAYS[:2])
    assert f"the partitions of this run: day={outside or 'NULL'};" in str(raised.value)
    assert filled.version == before


@pytest.mark.parametrize("keys", [DAYS[:1], DAYS[:2]])
def test_rows_that_a_join_drops_are_not_outside(
    spark: SparkSession, filled: Any, keys: list[str]
) -> None:
    everything = days(spark, ("d1", 7), ("d9", 8))
    wanted = spark.createDataFrame([("d1",)], "day STRING")
    filled.write(everything.join(wanted, "day").where("n < 100"), keys)
    assert ("d1", 7) in filled.rows()


def test_rows_that_a_limit_drops_are_not_outside(spark: SparkSession, filled: Any) -> None:
    first = spark.range(0, 8, 1, 4).selectExpr("if(id < 4, 'd1', 'd9') AS day", "INT(id) AS n")
    filled.write(first.limit(4).withColumn("n", F.col("n") + 10), DAYS[:2])
    assert set(filled.rows()) == {*[("d1", n) for n in (10, 11, 12, 13)], (DAYS[2], 2)}


@pytest.mark.parametrize("ends_in", ["sort", "sort and filter", "shuffle"])
def test_a_sort_or_a_shuffle_that_a_job_ends_in_is_not_made_beside_the_write_s_own(
    spark: SparkSession,
    table: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    ends_in: str,
) -> None:
    plans: list[str] = []

    def noted(frame: DataFrame, *rest: Any) -> None:
        plans.append(frame._jdf.queryExecution().optimizedPlan().toString())
        replace(frame, *rest)

    frame = spark.range(8).selectExpr("date_add(DATE'2024-01-01', INT(id % 2)) AS day", "id AS n")
    ended = {
        "sort": frame.orderBy("n"),
        "sort and filter": frame.orderBy("n").where("n % 7 < 9"),
        "shuffle": frame.repartition(4, "day"),
    }[ends_in]
    made = table("day")
    made.write(frame, ["2024-01-01", "2024-01-02"], run_id="r-0")  # the rows that make it are kept
    monkeypatch.setattr("spark_runtime.tables.delta.format.replace", noted)
    made.write(ended, ["2024-01-01", "2024-01-02"], run_id="r-1")
    (plan,) = plans
    assert (plan.count("Sort ["), plan.count("Repartition")) == (0, 1), plan
    assert len(made.rows()) == 8


def test_rows_are_counted_where_the_log_does_not_tell(spark: SparkSession, filled: Any) -> None:
    name = "spark.databricks.delta.stats.collect"
    spark.conf.set(name, "false")
    try:
        result = filled.write(days(spark, ("d1", 7), ("d1", 8)), DAYS[:2])
    finally:
        spark.conf.unset(name)
    assert [(p.rows_before, p.rows) for p in result.partitions] == [(1, 2), (1, 0)]


def test_checks_see_the_rows_before_anybody_else_does(spark: SparkSession, filled: Any) -> None:
    before = filled.rows()
    with pytest.raises(CheckFailedError):
        filled.write(
            days(spark, ("d1", 7)), DAYS[:1], WriteOptions(checks=[expect_rows(at_least=2)])
        )
    assert filled.rows() == before


def test_the_log_still_proves_what_a_run_has_done(spark: SparkSession, filled: Any) -> None:
    options = WriteOptions(started_at=datetime.now(UTC))
    result = filled.write(days(spark, ("d1", 7)), DAYS[:2], options)
    assert reconcile(filled.run_spec(DAYS[:2]), Tables()).outputs == (result,)


def test_a_setting_that_means_nothing_is_refused(spark: SparkSession, filled: Any) -> None:
    spark.conf.set(SETTING, "maybe")
    with pytest.raises(SessionError, match="maybe"):
        filled.write(days(spark), DAYS[:1])
