"""A merge changes the rows that it matches and adds the others, whatever else the table holds."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from spark_runtime.errors import (
    CheckFailedError,
    ConstraintError,
    EmptyPartitionError,
    EntrypointError,
    TableError,
    UnexpectedPartitionError,
    WriteConflictError,
)
from spark_runtime.ingest import latest_by_key
from spark_runtime.session import settings
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.fingerprint import SETTING
from spark_runtime.tables.merge import Match
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write import checks
from spark_runtime.write.checks import WriteOptions
from spark_runtime.write.writer import write_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]
COLUMNS = "day STRING, id INT, at INT, v STRING"
BY_ID = WriteOptions(merge_on=("id",), newest_by="at")


def rows(spark: SparkSession, *values: Row) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def in_order(found: Iterable[Row]) -> list[Row]:
    return sorted(found, key=repr)


def age(row: Row) -> tuple[bool, int]:
    return row[2] is not None, row[2] or 0


def merged(held: list[Row], new: list[Row], scope: set[Any]) -> tuple[list[Row], dict[str, int]]:
    """What SQL's MERGE makes of a table, row by row."""
    newest: dict[int, Row] = {}
    for row in new:
        if row[1] is not None:
            newest[row[1]] = max(
                newest.get(row[1], row), row, key=lambda r: (age(r), r[3] or "", r[0])
            )
    table, updated = [], 0
    for row in held:
        match = newest.get(row[1]) if row[0] in scope else None
        replaced = match is not None and age(match) >= age(row)
        updated += replaced
        table.append(match if match is not None and replaced else row)
    known = {row[1] for row in held if row[0] in scope}
    added = [row for row in newest.values() if row[1] not in known]
    added += [row for row in new if row[1] is None]
    counts = {"inserted": len(added), "updated": updated, "deleted": 0}
    return in_order([*table, *added]), counts


@pytest.fixture(params=["delta"])
def any_table(table: Callable[..., Any], request: Any) -> Any:
    return table("day", kind=request.param)


@pytest.mark.core
@pytest.mark.parametrize("fingerprints", ["true", "false"])
def test_rows_that_a_merge_does_not_touch_stay(
    spark: SparkSession, any_table: Any, fingerprints: str
) -> None:
    held = [
        ("d1", None, 1, "nameless"),
        ("d1", None, 1, "nameless"),
        ("d1", 7, 1, "twice"),
        ("d1", 7, 1, "twice"),
        ("d1", 8, 1, "matched twice"),
        ("d1", 8, 9, "one of them is newer"),
        ("d2", 1, 1, "elsewhere"),
    ]
    new = [("d1", 1, 1, "added"), ("d1", 8, 5, "corrected"), ("d1", None, 1, "nameless")]
    any_table.write(rows(spark, *held), ["d1", "d2"], run_id="r-0")
    with settings(spark, {SETTING: fingerprints}):
        result = any_table.write(rows(spark, *new), ["d1"], BY_ID, mode="merge")
    expected, counts = merged(held, new, {"d1"})
    assert any_table.rows() == expected
    assert len(expected) == len(held) + 2
    assert result.merged == (counts if any_table.kind == "delta" else None)
    (part,) = result.partitions
    assert (part.rows_before, part.rows) == (6, 8)


def test_any_table_is_what_sql_makes_of_it(spark: SparkSession, any_table: Any) -> None:
    draw = random.Random(7)

    def some(days: list[str], count: int) -> list[Row]:
        return [
            (
                draw.choice(days),
                draw.choice([None, *range(8)]),
                draw.choice([None, *range(4)]),
                draw.choice("abc"),
            )
            for _ in range(count)
        ]

    held = some(["d1", "d2", "d3"], 20)
    any_table.write(rows(spark, *held), ["d1", "d2", "d3"], run_id="r-0")
    plain = any_table.spark.conf.get(SETTING, "true")
    for number in range(6):
        new = some(["d1", "d2"], draw.randrange(9))
        held, counts = merged(held, new, {"d1", "d2"})
        with settings(spark, {SETTING: plain if number % 2 else "false"}):
            result = any_table.write(
                rows(spark, *new), ["d1", "d2"], BY_ID, mode="merge", run_id=f"r-{number + 1}"
            )
        assert any_table.rows() == held, new
        assert result.merged == counts


def test_a_merged_partition_has_the_fingerprint_of_its_rows(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made, other = table("day"), table("day", name="other")
    made.write(rows(spark, ("d1", 1, 1, "a"), ("d1", 2, 1, "b")), ["d1"], run_id="r-0")
    new = rows(spark, ("d1", 2, 2, "c"), ("d2", 3, 1, "d"))
    merging = made.write(new, ["d1", "d2"], BY_ID, mode="merge")
    plain = other.write(rows(spark, *made.rows()), ["d1", "d2"])
    told = [[part.fingerprint for part in one.partitions] for one in (merging, plain)]
    assert told[0] == told[1]
    held = made.state().partitions
    assert [held[day,].fingerprint for day in ("d1", "d2")] == told[0]


def test_undo_and_retry_are_exact(spark: SparkSession, any_table: Any) -> None:
    before = [("d1", 1, 1, "a"), ("d1", None, 1, "n"), ("d2", 2, 1, "b")]
    any_table.write(rows(spark, *before), ["d1", "d2"], run_id="r-0")
    wrong = rows(spark, ("d1", 1, 9, "x"), ("d1", 5, 1, "x"), ("d1", None, 1, "m"))
    first = any_table.write(wrong, ["d1", "d2"], BY_ID, mode="merge")
    assert any_table.write(wrong, ["d1", "d2"], BY_ID, mode="merge") == first
    right = [("d1", 1, 2, "c"), ("d1", None, 1, "m")]
    for attempt in (2, 3):  # each in place of the one before
        any_table.write(rows(spark, *right), ["d1", "d2"], BY_ID, mode="merge", attempt=attempt)
        assert any_table.rows() == merged(before, right, {"d1", "d2"})[0]
    token = "b-1-r-1-3"
    undo_runs(spark, tokens=[token], location=any_table.path, format=any_table.kind)
    assert any_table.rows() == in_order(before)


def test_what_others_added_to_a_merge_is_not_lost_by_a_retry(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    made.write(rows(spark, ("d1", 1, 1, "a")), ["d1"], run_id="r-0")
    made.write(rows(spark, ("d1", None, 1, "x")), ["d1"], BY_ID, mode="merge")
    spark.sql(f"INSERT INTO delta.`{made.path}` VALUES ('d1', 9, 9, 'theirs')")
    before = made.rows()
    with pytest.raises(WriteConflictError, match=r"an earlier attempt .* changed day=d1"):
        made.write(rows(spark, ("d1", None, 1, "x")), ["d1"], BY_ID, mode="merge", attempt=2)
    assert made.rows() == before


def test_a_merge_reads_and_writes_the_scope_alone(spark: SparkSession, any_table: Any) -> None:
    """A key that another partition holds is another row; a row outside the scope is refused."""
    hostile = "it's ${env:HOME} \\ `d1`"
    held: list[Row] = [(hostile, 1, 1, "a"), ("d1", 1, 1, "b"), (None, 1, 1, "c")]
    any_table.write(rows(spark, *held), [hostile, "d1", {"day": None}], run_id="r-0")
    new = [(hostile, 1, 2, "x"), (None, 1, 2, "x")]
    for number, row in enumerate(new):
        scope = [row[0]] if row[0] else [{"day": None}]
        result = any_table.write(
            rows(spark, row), scope, BY_ID, mode="merge", run_id=f"r-{number + 1}"
        )
        held, _ = merged(held, [row], {row[0]})
        assert any_table.rows() == held
        assert [part.rows for part in result.partitions] == [1]
    for outside in (("d2", 9, 1, "x"), ("d1", 1, 0, "older"), (None, 1, 1, "x")):
        for fingerprints in ("true", "false"):
            twice = rows(spark, (hostile, 1, 9, "x"), outside)  # the other row of the key wins
            with (
                settings(spark, {SETTING: fingerprints}),
                pytest.raises(UnexpectedPartitionError, match=f"day={outside[0] or 'NULL'}"),
            ):
                any_table.write(twice, [hostile], BY_ID, mode="merge", run_id="r-9")
    assert any_table.rows() == held


def test_the_session_is_as_it_was_after_a_merge(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    name = "spark.databricks.delta.commitInfo.userMetadata"
    counter = "spark.databricks.delta.lastCommitVersionInSession"  # Delta's own
    before = {**spark.conf.getAll, counter: "0"}
    made.write(rows(spark, ("d1", 1, 1, "a")), ["d1"], BY_ID, mode="merge")
    assert {**spark.conf.getAll, counter: "0"} == before
    with settings(spark, {name: "mine"}):
        made.write(rows(spark, ("d1", 1, 1, "b")), ["d1"], BY_ID, mode="merge", run_id="r-2")
        assert spark.conf.get(name) == "mine"
    assert made.state().tokens.keys() >= {"b-1-r-1-1", "b-1-r-2-1"}


def test_others_write_in_the_same_session_during_a_merge_as_ever(
    spark: SparkSession, table: Callable[..., Any], tmp_path: Path
) -> None:
    """Delta skips a write of a transaction that a table has, and a merge names its own."""
    made, other = table("day"), str(tmp_path / "other")
    made.write(rows(spark, ("d1", 1, 1, "a")), ["d1"], run_id="r-0")
    begun, goes_on = tmp_path / "begun", tmp_path / "goes on"

    def waiting(value: str) -> str:
        begun.touch()
        until = time.monotonic() + 120
        while not goes_on.exists() and time.monotonic() < until:
            time.sleep(0.02)
        return value

    new = rows(spark, ("d1", 1, 2, "b")).withColumn("v", F.udf(waiting, "string")("v"))
    with settings(spark, {SETTING: "false"}), ThreadPoolExecutor(1) as pool:
        merging = pool.submit(made.write, new, ["d1"], BY_ID, mode="merge")
        while not begun.exists() and not merging.done():
            time.sleep(0.02)
        for _ in range(2):
            spark.range(1).write.format("delta").mode("append").save(other)
        goes_on.touch()
        merging.result()
    assert spark.read.format("delta").load(other).count() == 2
    assert DeltaLog(other).state().transactions == {}
    assert made.rows() == [("d1", 1, 2, "b")]


@pytest.mark.parametrize(
    ("options", "complaint", "hint"),
    [
        ({"merge_on": ["idd"]}, "merge_on names 'idd'", "Did you mean `id`?"),
        ({"merge_on": "idd"}, "merge_on names 'idd'", "Did you mean `id`?"),
        ({"merge_on": ["id"], "newest_by": "att"}, "newest_by names 'att'", "`at`"),
        ({"merge_on": ["id"], "newest_by": ["at", "x"]}, "'x'", "Known here: `day`, `id`"),
        ({"merge_on": []}, "names no key", "merge_on="),
        ({"merge_on": ["m"]}, "map<string,int> have no order", "can be compared"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    spark: SparkSession, any_table: Any, options: dict[str, Any], complaint: str, hint: str
) -> None:
    frame = rows(spark, ("d1", 1, 1, "a")).selectExpr("*", "map('a', 1) AS m")
    with pytest.raises(EntrypointError, match=complaint) as raised:
        any_table.write(frame, ["d1"], WriteOptions(**options), mode="merge")
    assert hint in raised.value.hint


def test_checks_see_what_the_partitions_will_hold(spark: SparkSession, any_table: Any) -> None:
    any_table.write(rows(spark, *[("d1", n, 1, "a") for n in range(10)]), ["d1"], run_id="r-0")
    new = rows(spark, ("d1", 3, 2, "b"), ("d1", None, 1, "c"))
    before = any_table.rows()

    def write(check: checks.Check) -> None:
        options = WriteOptions(merge_on=("id",), newest_by="at", checks=[check])
        any_table.write(new, ["d1"], options, mode="merge")

    for check in (checks.not_null("id"), checks.expect_rows(at_most=10), checks.within(5)):
        with pytest.raises(CheckFailedError):
            write(check)
    assert any_table.rows() == before
    write(checks.within(10))
    assert len(any_table.rows()) == 11


def test_an_empty_merge_changes_nothing(spark: SparkSession, any_table: Any) -> None:
    held = [("d1", 1, 1, "a")]
    any_table.write(rows(spark, *held), ["d1"], run_id="r-0")
    for empty in ("clear", "keep", "fail"):
        for fingerprints in ("true", "false") if empty == "clear" else ("true",):
            with settings(spark, {SETTING: fingerprints}):
                any_table.write(
                    rows(spark), ["d1"], BY_ID, mode="merge", on_empty=empty,
                    run_id=f"r-{empty}-{fingerprints}",
                )  # fmt: skip
            assert any_table.rows() == held
    with pytest.raises(EmptyPartitionError, match="day=d2"):
        any_table.write(rows(spark), ["d1", "d2"], BY_ID, mode="merge", on_empty="fail")


def test_a_merge_keeps_what_a_table_does_by_itself(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    """Generated columns, names of files' own, deletion vectors, the change feed, constraints."""
    made = table("day")
    name = f"delta.`{made.path}`"
    spark.sql(
        f"CREATE TABLE {name} (at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), "
        "`the id` INT, v STRING, twice INT GENERATED ALWAYS AS (`the id` * 2)) USING delta "
        "PARTITIONED BY (day) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', "
        "'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name', "
        "'delta.enableRowTracking' = 'true')"
    )
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT known CHECK (v <> 'bad')")

    def some(*values: tuple[str, int, str]) -> DataFrame:
        texts = spark.createDataFrame(list(values), "at STRING, `the id` INT, v STRING")
        return texts.selectExpr("CAST(at AS TIMESTAMP) AS at", "`the id`", "v")

    def held() -> list[Row]:
        frame = spark.read.format("delta").load(made.path)
        texts = frame.selectExpr(
            "CAST(at AS STRING)", "CAST(day AS STRING)", "`the id`", "v", "twice"
        )
        return in_order(tuple(row) for row in texts.collect())

    days = ["2024-01-01", "2024-01-02"]
    first = [("2024-01-01 08:00:00", n, "a") for n in range(50)]
    made.write(some(*first, ("2024-01-02 08:00:00", 99, "b")), days, run_id="r-0")
    spark.sql(f"DELETE FROM {name} WHERE `the id` = 49")
    before = held()
    by_id = WriteOptions(merge_on=("THE ID",), newest_by="at")
    new = some(("2024-01-01 09:00:00", 3, "c"), ("2024-01-01 07:00:00", 4, "old"),
               ("2024-01-01 09:00:00", 49, "again"))  # fmt: skip
    result = made.write(new, days[:1], by_id, mode="merge")
    expected = [row for row in before if row[2] != 3]
    expected += [
        ("2024-01-01 09:00:00", "2024-01-01", 3, "c", 6),
        ("2024-01-01 09:00:00", "2024-01-01", 49, "again", 98),
    ]
    assert held() == in_order(expected)
    assert result.merged == {"inserted": 1, "updated": 1, "deleted": 0}
    assert [(part.rows_before, part.rows) for part in result.partitions] == [(49, 50)]
    with pytest.raises(ConstraintError):
        made.write(
            some(("2024-01-01 09:00:00", 3, "bad")), days[:1], by_id, mode="merge", run_id="r-2"
        )
    undo_runs(spark, tokens=["b-1-r-1-1"], location=made.path)
    assert held() == before
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(TableError, match="append-only"):
        made.write(new, days[:1], by_id, mode="merge", run_id="r-3")
    assert held() == before


def test_rows_that_a_table_numbers_keep_their_numbers(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    spark.sql(
        f"CREATE TABLE delta.`{made.path}` (day STRING, number BIGINT GENERATED ALWAYS AS "
        "IDENTITY, id INT, v STRING) USING delta PARTITIONED BY (day)"
    )
    frame = spark.createDataFrame([("d1", 1, "a"), ("d1", 2, "b")], "day STRING, id INT, v STRING")
    by_id = WriteOptions(merge_on=("id",))
    made.write(frame, ["d1"], by_id, mode="merge")
    numbers = {row[2]: row[1] for row in made.rows()}
    new = frame.selectExpr("day", "id + 1 AS id", "'new' AS v")
    for fingerprints, run in (("true", "r-2"), ("false", "r-3")):
        with settings(spark, {SETTING: fingerprints}):
            made.write(new, ["d1"], by_id, mode="merge", run_id=run)
        held = {row[2]: (row[1], row[3]) for row in made.rows()}
        assert [(id_, v) for id_, (_, v) in sorted(held.items())] == [
            (1, "a"),
            (2, "new"),
            (3, "new"),
        ]
        assert {id_: held[id_][0] for id_ in (1, 2)} == numbers
        assert held[3][0] not in numbers.values()
    wider = new.selectExpr("*", "5 AS more")
    made.write(wider, ["d1"], by_id, mode="merge", run_id="r-4", on_drift="add")
    assert sorted((row[2], row[4]) for row in made.rows()) == [(1, None), (2, 5), (3, 5)]


def test_a_change_that_came_in_between_stops_a_merge(
    spark: SparkSession, table: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = table("day")
    held = [("d1", 1, 1, "a"), ("d2", 2, 1, "b")]
    made.write(rows(spark, *held), ["d1", "d2"], run_id="r-0")
    newest = Match.newest
    theirs: list[Row] = []

    def newest_and_a_foreign_commit(self: Match, frame: DataFrame) -> DataFrame:
        spark.sql(f"INSERT INTO delta.`{made.path}` VALUES {theirs[-1]}")
        return newest(self, frame)

    monkeypatch.setattr(Match, "newest", newest_and_a_foreign_commit)
    for fingerprints in ("true", "false"):
        theirs.append(("d1", 9, 9, "theirs"))
        held.append(theirs[-1])
        new = rows(spark, ("d1", 1, 2, "x"))
        with settings(spark, {SETTING: fingerprints}), pytest.raises(WriteConflictError):
            made.write(new, ["d1"], BY_ID, mode="merge", run_id=f"r-{fingerprints}")
        assert made.rows() == in_order(held)
    theirs.append(("d2", 9, 9, "theirs"))  # is no matter of ours
    made.write(rows(spark, ("d1", 1, 2, "x")), ["d1"], BY_ID, mode="merge")
    held.append(theirs[-1])
    assert made.rows() == merged(held, [("d1", 1, 2, "x")], {"d1"})[0]


def test_a_table_without_partitions_is_merged_into(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table()
    held = [("d1", 1, 1, "a"), ("d2", None, 1, "b")]
    made.write(rows(spark, *held), [{}], run_id="r-0")
    new = [("d3", 1, 2, "x"), ("d3", None, 2, "y")]
    tables = Tables(spark)
    run = made.run_spec([{}], mode="merge")
    result = write_partitions(rows(spark, *new), run.outputs[0], run, tables, BY_ID)
    one = {"d1", "d2", "d3"}  # no partition is another
    expected, counts = merged(held, new, one)
    assert made.rows() == expected
    assert result.merged == counts


def test_the_newest_row_is_told_by_types_and_several_columns(spark: SparkSession) -> None:
    """As text 5 comes before 500 or behind it by what follows; as a number it is the lesser one."""
    text = "id INT, at INT, seen INT, n INT, d DECIMAL(5,1), v STRING, m MAP<STRING, INT>"
    frame = spark.createDataFrame(
        [
            (1, 5, 1, 9, None, "a", {"x": 1}),
            (1, 5, 1, 10, None, "a", {"x": 1}),
            (2, 5, 1, 500, None, "a", None),
            (2, 5, 2, 5, None, "b", None),
            (3, None, 1, 1, None, "a", None),
            (3, None, 2, 0, None, "a", None),
            (4, None, 9, 1, None, "a", None),
            (4, 1, 1, 2, None, "a", None),
        ],
        text,
    )

    def numbers(*newest_by: Any) -> list[int]:
        found = latest_by_key(frame.repartition(5), ["id"], newest_by=newest_by).orderBy("id")
        return [row["n"] for row in found.collect()]

    assert numbers("at") == [10, 5, 0, 2]
    assert numbers("at", "seen") == [10, 5, 0, 2]
    assert numbers("at", frame["n"]) == [10, 500, 1, 2]
    assert numbers("seen") == [10, 5, 0, 1]
    maps = frame.where("id = 1").selectExpr("id", "1 AS at", "map('x', n) AS m")
    taken = {
        str(latest_by_key(maps.repartition(n, "m"), ["id"], newest_by="at").first())
        for n in (1, 2, 3)
    }
    assert len(taken) == 1
    assert latest_by_key(frame, "id", newest_by="at").count() == 4
    for keys, newest_by in ((["ids"], "at"), (["id"], "att"), (["id"], "m"), (["m"], "at")):
        with pytest.raises(EntrypointError):
            latest_by_key(frame, keys, newest_by=newest_by)


HELD = [("d1", 1, 1, "a"), ("d1", 2, 5, "b"), ("d1", None, 1, "n"), ("d2", 9, 1, "z")]


@pytest.fixture
def feed(spark: SparkSession, table: Callable[..., Any]) -> Any:
    """A table of two days, for changes of the first one."""
    made = table("day")
    made.write(rows(spark, *HELD), ["d1", "d2"], run_id="r-0")
    return made


@pytest.mark.core
@pytest.mark.parametrize("fingerprints", ["true", "false"])
def test_a_change_feed_deletes_rows_by_a_condition(
    spark: SparkSession, feed: Any, fingerprints: str
) -> None:
    changes = [
        ("d1", 1, 2, "", "D"),
        ("d1", 2, 3, "older than the held row", "D"),
        ("d1", 3, 1, "c", "I"),
        ("d1", 4, 1, "never there", "D"),
        ("d1", None, 1, "of no key", "D"),
    ]
    frame = spark.createDataFrame(changes, f"{COLUMNS}, op STRING")
    with settings(spark, {SETTING: fingerprints}):
        result = feed.write(
            frame, ["d1"], BY_ID, mode="merge", delete_when="op = 'D'", run_id="r-1"
        )
    assert feed.rows() == in_order([*HELD[1:], ("d1", 3, 1, "c")])
    assert result.merged == {"inserted": 1, "updated": 0, "deleted": 1}
    assert result.partitions[0].rows == 3
    with pytest.raises(EntrypointError, match="delete_when does not fit the rows"):
        feed.write(frame, ["d1"], BY_ID, mode="merge", delete_when="oops", run_id="r-2")


@pytest.mark.parametrize("fingerprints", ["true", "false"])
def test_rows_of_the_scope_that_the_source_lacks_are_deleted(
    spark: SparkSession, feed: Any, fingerprints: str
) -> None:
    with settings(spark, {SETTING: fingerprints}):
        feed.write(
            rows(spark, ("d1", 1, 1, "new")),
            ["d1"],
            BY_ID,
            mode="merge",
            delete_missing=True,
            run_id="r-1",
        )
    assert feed.rows() == in_order([("d1", 1, 1, "new"), HELD[3]])


@pytest.mark.parametrize("fingerprints", ["true", "false"])
def test_a_merge_keeps_the_values_of_columns_that_the_rows_lack(
    spark: SparkSession, feed: Any, fingerprints: str
) -> None:
    new = rows(spark, ("d1", 1, 2, ""), ("d1", 3, 1, "")).drop("v")
    with settings(spark, {SETTING: fingerprints}):
        feed.write(new, ["d1"], BY_ID, mode="merge", on_drift="relax", run_id="r-1")
    assert feed.rows() == in_order([("d1", 1, 2, "a"), ("d1", 3, 1, None), *HELD[1:]])
