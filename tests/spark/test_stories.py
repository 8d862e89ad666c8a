"""Published stories of lost data: none of them can be told of this writer.

Each test bears the address of its story. They share one filled table per format; each keeps to
partitions of its own, and at the end everything else is as it was.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.errors import SpecError
from lineage_backfill.runspec.values import InputSpec, Target
from spark_runtime.errors import (
    RuntimeFailure,
    StaleAttemptError,
    TableError,
    UnexpectedPartitionError,
)
from spark_runtime.read.reader import Inputs
from spark_runtime.session import guarded
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write.checks import Audit, WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.core

STORIES = 30
GITHUB = "https://github.com/"


def story(url: str) -> pytest.MarkDecorator:
    """Name a test by where its story was told."""
    return pytest.mark.parametrize("url", [url])


class Shared:
    """The table of one format; `keys` gives each story partitions that nobody else touches."""

    def __init__(self, spark: SparkSession, table: Any) -> None:
        self.spark = spark
        self.table = table
        self._next = iter(range(STORIES))
        self._runs = iter(range(1000))
        self.expected = {f"s{i}-{part}": [0] for i in range(STORIES) for part in "ab"}
        self.expected[None] = [0]  # type: ignore[index]
        rows = [(key, n) for key, held in self.expected.items() for n in held]
        self.table.write(self.rows(*rows), self.scope(self.expected), run_id="fill")

    def rows(self, *rows: tuple[str | None, int]) -> DataFrame:
        return self.spark.createDataFrame(list(rows), "k STRING, n INT")

    def scope(self, keys: Any) -> list[dict[str, str | None]]:
        return [{"k": key} for key in keys]

    def keys(self) -> tuple[str, str]:
        number = next(self._next)
        return f"s{number}-a", f"s{number}-b"

    def write(self, keys: Sequence[str | None], *rows: tuple[str | None, int], **more: Any) -> Any:
        """Write as a run of its own, and expect just these partitions to be other than before."""
        more.setdefault("run_id", f"run-{next(self._runs)}")
        result = self.table.write(self.rows(*rows), self.scope(keys), **more)
        for key in keys:
            held = [n for k, n in rows if k == key]
            self.expected.pop(key, None)  # type: ignore[arg-type]
            if held:
                self.expected[key] = held  # type: ignore[index]
        return result

    def check(self) -> None:
        """Everything is as it was, but for what was written."""
        wanted = [(key, n) for key, held in self.expected.items() for n in held]
        assert self.table.rows() == sorted(wanted, key=repr)


@pytest.fixture(scope="module", params=["delta"])
def shared(
    spark: SparkSession,
    make_table: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    request: Any,
) -> Iterator[Shared]:
    path = tmp_path_factory.mktemp(f"stories-{request.param}") / "t"
    made = Shared(spark, make_table(path, ("k",), request.param))
    yield made
    made.check()


@story(GITHUB + "dbt-labs/dbt-spark/pull/117")
def test_forgotten_partition_columns_replace_nothing(shared: Shared, url: str) -> None:
    table = shared.table
    plain = type(table)(table.spark, table.tables, Path(table.path), (), table.kind)
    with pytest.raises(TableError, match="partitioned by"):
        plain.write(shared.rows(("x", 1)), [{}])


@story(GITHUB + "databricks/dbt-databricks/issues/687")
def test_no_setting_makes_an_overwrite_wider_than_its_scope(shared: Shared, url: str) -> None:
    conf, name = shared.spark.conf, "spark.sql.sources.partitionOverwriteMode"
    mine, _other = shared.keys()
    shared.write([mine], (mine, 1))
    conf.set(name, "dynamic")
    try:
        shared.write([mine], (mine, 2))  # a write states its own mode
        assert conf.get(name) == "dynamic"
    finally:
        conf.set(name, "static")


@story(GITHUB + "apache/hudi/pull/9113")
def test_a_full_replacement_wants_every_partition_named(shared: Shared, url: str) -> None:
    mine, other = shared.keys()
    with pytest.raises(TableError, match="would drop partitions that are not planned"):
        shared.write([mine, other], (mine, 1), mode="full")


@story(GITHUB + "apache/hudi/pull/9811")
def test_an_empty_result_leaves_no_old_rows(shared: Shared, url: str) -> None:
    mine, _other = shared.keys()
    result = shared.write([mine])
    assert [part.emptied for part in result.partitions] == [True]


@story(GITHUB + "smart-data-lake/smart-data-lake/issues/275")
def test_of_several_partitions_the_one_without_rows_is_cleared(shared: Shared, url: str) -> None:
    mine, other = shared.keys()
    result = shared.write([mine, other], (mine, 1))
    assert [part.rows for part in result.partitions] == [1, 0]


@story(GITHUB + "ray-project/ray/pull/54447")
def test_an_empty_write_does_not_empty_the_table(shared: Shared, url: str) -> None:
    _mine, other = shared.keys()
    shared.write([other])
    shared.check()


@story(GITHUB + "ray-project/ray/pull/64872")
def test_rows_without_a_key_replace_rows_without_a_key(shared: Shared, url: str) -> None:
    shared.write([None], (None, 7), (None, 8))
    shared.check()


@story(GITHUB + "delta-io/delta/issues/825")
def test_the_null_partition_can_be_replaced_and_cleared(shared: Shared, url: str) -> None:
    shared.write([None], (None, 5))
    shared.write([None])
    assert all(row[0] is not None for row in shared.table.rows())


@story(GITHUB + "delta-io/delta/issues/348")
def test_one_row_in_the_wrong_partition_replaces_nothing(shared: Shared, url: str) -> None:
    mine, other = shared.keys()
    with pytest.raises(UnexpectedPartitionError, match=f"k={other}"):
        shared.write([mine], (mine, 1), (mine, 2), (other, 3))


@story(GITHUB + "delta-io/delta-rs/issues/1220")
def test_rows_of_unknown_partitions_are_not_taken_in(shared: Shared, url: str) -> None:
    mine, _other = shared.keys()
    with pytest.raises(UnexpectedPartitionError, match=r"1 rows .* k=never-seen"):
        shared.write([mine], ("never-seen", 1))


@story(GITHUB + "delta-io/delta-rs/issues/4126")
def test_an_overwrite_never_becomes_an_append(shared: Shared, url: str) -> None:
    mine, _other = shared.keys()
    for n in (1, 2):
        shared.write([mine], (mine, n))
    shared.check()


@story(GITHUB + "apache/hudi/pull/19720")
def test_two_first_writers_of_a_partition_do_not_both_stay(shared: Shared, url: str) -> None:
    """Both find it empty; one of them wins, and the other one is told or comes after it."""
    key = "brand-new"
    done: list[int] = []

    def write(n: int) -> None:
        try:
            shared.table.write(shared.rows((key, n)), shared.scope([key]), run_id=f"first-{n}")
            done.append(n)
        except RuntimeFailure:
            pass

    writers = [threading.Thread(target=write, args=(n,)) for n in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    held = [n for k, n in shared.table.rows() if k == key]
    assert len(held) == 1
    assert held[0] in done
    shared.expected[key] = held


@story(GITHUB + "delta-io/delta/issues/5259")
def test_a_write_that_comes_too_late_is_told_so(shared: Shared, url: str) -> None:
    """Delta itself skips it and reports success."""
    mine, _other = shared.keys()
    shared.write([mine], (mine, 1), run_id="monotonic", attempt=2)
    with pytest.raises(StaleAttemptError):
        shared.write([mine], (mine, 2), run_id="monotonic", attempt=1)


@story(GITHUB + "apache/spark/pull/25795")
def test_an_attempt_that_was_taken_for_dead_adds_nothing_any_more(shared: Shared, url: str) -> None:
    """It commits while its successor has its rows at hand: they were there twice."""
    mine, _other = shared.keys()
    zombie = {"run_id": "zombie", "mode": "append"}

    def come_back(_: Audit) -> None:
        with pytest.raises(StaleAttemptError, match="a later attempt is writing"):
            shared.write([mine], (mine, 1), attempt=1, **zombie)

    options = WriteOptions(checks=[come_back])
    shared.write([mine], (mine, 2), attempt=2, options=options, **zombie)
    shared.expected[mine] = [0, 2]
    shared.check()


@story(GITHUB + "ClickHouse/ClickHouse/issues/111758")
def test_a_key_with_a_slash_is_not_the_key_before_it(shared: Shared, url: str) -> None:
    shared.write(["a", "a/b"], ("a", 1), ("a/b", 2))
    shared.write(["a/b"])
    shared.write(["a/b"], ("a/b", 3))
    shared.check()


@story(GITHUB + "delta-io/delta/pull/371")
def test_there_is_no_write_without_a_scope(shared: Shared, url: str) -> None:
    with pytest.raises(SpecError, match="no partition at all"):
        shared.write([], ("x", 1))


@story(GITHUB + "delta-io/delta/issues/2343")
@pytest.mark.parametrize("kind", ["delta"])
def test_another_time_zone_does_not_move_rows_between_days(
    spark: SparkSession, make_table: Callable[..., Any], tmp_path: Path, kind: str, url: str
) -> None:
    made = make_table(tmp_path / "t", ("day",), kind)
    rows = "SELECT DATE'2024-01-0{0}' AS day, TIMESTAMP'2024-01-0{0} 01:30:00Z' AS at"
    for day in (1, 2):
        made.write(spark.sql(rows.format(day)), [f"2024-01-0{day}"], run_id=f"first-{day}")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:  # where both instants are of the evening before
        made.write(spark.sql(rows.format(2)), ["2024-01-02"], run_id="second")
        with pytest.raises(UnexpectedPartitionError):
            made.write(spark.sql(rows.format(1)), ["2024-01-02"], run_id="third")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    held = spark.read.format("delta").load(str(made.path)).selectExpr("day", "CAST(at AS STRING)")
    assert sorted((str(day), at) for day, at in held.collect()) == [
        ("2024-01-01", "2024-01-01 01:30:00"),
        ("2024-01-02", "2024-01-02 01:30:00"),
    ]


@story(GITHUB + "delta-io/delta/pull/6544")
@pytest.mark.parametrize("kind", ["delta"])
def test_timestamps_whose_text_has_two_forms_are_no_keys(
    spark: SparkSession, make_table: Callable[..., Any], tmp_path: Path, kind: str, url: str
) -> None:
    made = make_table(tmp_path / "t", ("at",), kind)
    frame = spark.sql("SELECT TIMESTAMP'2024-01-01 00:00:00Z' AS at, 1 AS n")
    with pytest.raises(TableError, match="of type timestamp, whose values have more than one text"):
        made.write(frame, ["2024-01-01T00:00:00Z"])
    assert made.version is None  # not even an empty table


@story(GITHUB + "dagster-io/dagster/issues/34064")
@pytest.mark.parametrize("kind", ["delta"])
def test_a_table_that_cannot_be_looked_at_is_not_a_new_table(
    spark: SparkSession, make_table: Callable[..., Any], tmp_path: Path, kind: str, url: str
) -> None:
    folder = tmp_path / "t" / ("_delta_log" if kind == "delta" else "k=1")
    folder.parent.mkdir()
    folder.symlink_to(folder)  # reading it fails with ELOOP, not with "there is none"
    before = sorted((tmp_path / "t").iterdir())
    with pytest.raises((TableError, OSError)):
        make_table(tmp_path / "t", ("k",), kind).write(
            spark.createDataFrame([("1", 1)], "k STRING, n INT"), ["1"]
        )
    assert [path for path in sorted((tmp_path / "t").iterdir()) if path.name[0] != "."] == before


@story(GITHUB + "apache/paimon/pull/9353")
@pytest.mark.parametrize("kind", ["delta"])
def test_without_partitions_an_empty_result_leaves_an_empty_table(
    spark: SparkSession, make_table: Callable[..., Any], tmp_path: Path, kind: str, url: str
) -> None:
    made = make_table(tmp_path / "t", (), kind)
    made.write(spark.createDataFrame([(1,)], "n INT"), [{}])
    made.write(spark.createDataFrame([], "n INT"), [{}], run_id="r-2")
    assert made.rows() == []


@story(GITHUB + "delta-io/delta/pull/5022")
def test_what_a_week_old_table_held_can_be_read_and_put_back(
    spark: SparkSession, make_table: Callable[..., Any], tmp_path: Path, url: str
) -> None:
    """Delta refuses to read versions older than a week, whether their files are there or not."""
    made = make_table(tmp_path / "t", ("k",))
    made.write(spark.createDataFrame([("1", 0)], "k STRING, n INT"), ["1"])
    long_ago = time.time() - 10 * 86_400
    for file in (Path(made.path) / "_delta_log").glob("*.json"):
        os.utime(file, (long_ago, long_ago))
    made.write(spark.createDataFrame([("1", 1)], "k STRING, n INT"), ["1"], run_id="r-2")
    target = {name: getattr(made.target, name) for name in Target.__slots__}
    pinned = InputSpec(**target, partitions=None, version=1)
    with guarded(spark):  # as a run reads an input to which others commit meanwhile
        read = Inputs(spark, (pinned,), Tables(spark)).read("t")
    assert read is not None
    assert [tuple(row) for row in read.collect()] == [("1", 0)]
    undo_runs(spark, tokens=["b-1-r-2-1"], location=made.path)
    assert made.rows() == [("1", 0)]
