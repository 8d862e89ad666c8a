"""Tables that are not partitioned by their keys: whole tables, by value, against a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import InputSpec, OutputResult, Partition
from spark_runtime.errors import (
    PartitionValueError,
    TableError,
    UndoRefusedError,
    UnexpectedPartitionError,
    WriteConflictError,
)
from spark_runtime.read.reader import Inputs
from spark_runtime.tables.state import Since
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write.checks import WriteOptions
from spark_runtime.write.writer import write_partitions
from tests.sampling import a_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOME = ZoneInfo("America/New_York")
SPRING = datetime(2024, 3, 9, tzinfo=HOME)  # the clock jumps on the second day
TYPES = {
    "TIMESTAMP": "timestamp_micros(us)",
    "TIMESTAMP_NTZ": "CAST(wall AS TIMESTAMP_NTZ)",
    "DATE": "CAST(wall AS DATE)",
    "STRING": "substring(wall, 1, 19)",
}
#: The layout of a table, and the column that says which key a row has.
LAYOUTS = {
    "generated": ("TIMESTAMP", "PARTITIONED BY (day)", {}),
    "plain": ("TIMESTAMP", "", {}),
    "clustered": ("TIMESTAMP_NTZ", "CLUSTER BY (ts)", {"delta.enableDeletionVectors": "true"}),
    "by region": ("STRING", "PARTITIONED BY (region)", {}),
    "dates": ("DATE", "", {"delta.columnMapping.mode": "name"}),
}
FORM = "%Y-%m-%d %H:%M:%S"

#: id, instant in seconds since 1970 (None: NULL), region, n.
Row = tuple[int, int | None, str, int]


ZONES = ("UTC", "Asia/Tokyo", "America/Los_Angeles")


@contextmanager
def session_in(spark: SparkSession, zone: str) -> Iterator[None]:
    """Set the zone of the session, which means nothing."""
    before = spark.conf.get("spark.sql.session.timeZone") or ""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def frame(spark: SparkSession, rows: Sequence[Row], kind: str) -> DataFrame:
    """Return rows with the instant in a column of this type; local times are of New York."""
    texts = [
        (
            one[0],
            None if one[1] is None else one[1] * 1_000_000,
            None
            if one[1] is None
            else datetime.fromtimestamp(one[1], HOME).replace(tzinfo=None).isoformat(" "),
            one[2],
            one[3],
        )
        for one in rows
    ]
    made = spark.createDataFrame(texts, "id INT, us LONG, wall STRING, region STRING, n INT")
    return made.selectExpr("id", f"{TYPES[kind]} AS ts", "region", "n")


class Lake:
    """A table that holds four days, hour by hour, two rows of no time, and a model of it."""

    def __init__(self, spark: SparkSession, path: Path, layout: str, by: str = "time") -> None:
        self.kind, clause, properties = LAYOUTS[layout]
        self.spark, self.path, self.by = spark, str(path), by
        self.tables = Tables(spark)
        generated = ", day DATE GENERATED ALWAYS AS (CAST(ts AS DATE))" if "day" in clause else ""
        spark.sql(
            f"CREATE TABLE delta.`{path}` (id INT, ts {self.kind}, region STRING, n INT{generated})"
            f" USING delta {clause}"
        )
        for name, value in properties.items():
            spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{name}' = '{value}')")
        start = int(SPRING.timestamp())
        self.model: list[Row] = [
            (n, start + 3600 * n, ("eu", "us")[n % 2], n) for n in range(4 * 24)
        ]
        if self.kind == "DATE":
            days = {datetime.fromtimestamp(one[1] or 0, HOME).date() for one in self.model}
            noon = [datetime(d.year, d.month, d.day, tzinfo=HOME) for d in sorted(days)]
            self.model = [
                (n, int(one.timestamp()), ("eu", "us")[n % 2], n) for n, one in enumerate(noon * 3)
            ]
        self.model += [(1000, None, "eu", 0), (1001, None, "us", 0)]
        for part in (self.model[:30], self.model[30:]):
            self.append(part)

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows as another writer does."""
        if rows:
            made = frame(self.spark, rows, self.kind)
            made.write.format("delta").mode("append").save(self.path)

    def clean(self) -> None:
        """Make a checkpoint, and delete all older files of the log."""
        delta: Any = self.spark._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
        log = delta.DeltaLog.forTable(self.spark._jsparkSession, self.path)
        log.checkpoint()
        for file in Path(self.path, "_delta_log").glob("0*"):
            if int(file.name[:20]) < log.snapshot().version():
                file.unlink()

    def copies(self, number: int) -> None:
        """Gather all rows in few files, and change the row of id `number`: others are copied."""
        self.spark.sql(f"OPTIMIZE delta.`{self.path}`")
        self.spark.sql(f"UPDATE delta.`{self.path}` SET n = -1 WHERE id = {number}")
        self.model = [(*one[:3], -1) if one[0] == number else one for one in self.model]

    def day(self, number: int) -> tuple[int, int]:
        """The first instant of a day, and that of the next."""
        first, last = (SPRING + timedelta(days=number + one) for one in (0, 1))
        return int(first.timestamp()), int(last.timestamp())

    def target(self, **more: Any) -> dict[str, Any]:
        column = "ts" if self.by == "time" else "region"
        return {
            "dataset": {"namespace": "test", "name": "t"},
            "format": "delta",
            "location": self.path,
            "columns": [column],
            "scoped_by": self.by,
            **({"time_format": FORM} if self.kind == "STRING" and self.by == "time" else {}),
            **more,
        }

    def partitions(self, keys: Sequence[int | str]) -> list[dict[str, Any]]:
        if self.by == "key":
            return [{"key": str(key), "values": {"region": str(key)}} for key in keys]
        found = []
        for key in keys:
            ends = (SPRING + timedelta(days=int(key) + one) for one in (0, 1))
            values = {"ts": "/".join(one.isoformat() for one in ends)}
            found.append({"key": f"day {key}", "values": values})
        return found

    def write(
        self, run: str, keys: Sequence[int | str], rows: Sequence[Row], **output: Any
    ) -> OutputResult:
        """Write as one run does."""
        options, attempt = output.pop("options", None), output.pop("attempt", 1)
        scope = self.partitions(keys)
        spec = parse_spec(
            {
                "schema_version": 1,
                "backfill_id": "b",
                "run_id": run,
                "attempt": attempt,
                "token": run if attempt == 1 else f"{run} {attempt}",
                "job": {"namespace": "test", "name": "job", "entrypoint": "jobs:job"},
                "partitions": [one["key"] for one in scope],
                "keys": [],
                "inputs": [],
                "outputs": [self.target(scope=scope, **output)],
            }
        )
        made = frame(self.spark, rows, self.kind)
        return write_partitions(made, spec.outputs[0], spec, self.tables, options)

    def read(self, keys: Sequence[int | str]) -> list[Row]:
        """Read as a run does."""
        target = self.target()
        target["dataset"] = DatasetRef(**target["dataset"])
        wanted = tuple(Partition(**one) for one in self.partitions(keys))
        target["columns"] = tuple(target["columns"])
        found = Inputs(
            self.spark, (InputSpec(**target, partitions=wanted),), Tables(self.spark)
        ).read("t")
        assert found is not None
        return self.rows(found)

    def rows(self, held: DataFrame | None = None) -> list[Row]:
        """All rows, with their instants."""
        held = self.spark.read.format("delta").load(self.path) if held is None else held
        told = "unix_seconds(ts)" if self.kind == "TIMESTAMP" else "CAST(ts AS STRING)"
        texts = held.selectExpr("id", told, "region", "n")
        found = ((row[0], _instant(row[1]), row[2], row[3]) for row in texts.collect())
        return sorted(found, key=str)

    def holds(self, key: int | str, row: Row) -> bool:
        if self.by == "key":
            return row[2] == key
        first, last = self.day(int(key))
        return row[1] is not None and first <= row[1] < last

    def of(self, keys: Sequence[int | str]) -> list[Row]:
        found = (one for one in self.model if any(self.holds(key, one) for key in keys))
        return sorted(found, key=str)

    def replaced(self, keys: Sequence[int | str], rows: Sequence[Row]) -> list[Row]:
        gone = set(self.of(keys))
        return sorted([*(one for one in self.model if one not in gone), *rows], key=str)

    def is_model(self) -> bool:
        return sorted(self.rows(), key=str) == sorted(self.model, key=str)


def _instant(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return value
    return int(datetime.fromisoformat(value).replace(tzinfo=HOME).timestamp())


@pytest.mark.parametrize(
    ("layout", "zone", "cleaned"), a_part(product(LAYOUTS, ZONES, (False, True)), every=15)
)
def test_a_run_changes_exactly_the_rows_of_its_keys(
    spark: SparkSession, tmp_path: Path, layout: str, zone: str, cleaned: bool
) -> None:
    """Overwrite, merge, append, retry, clear and undo, also beside the commits of others."""
    with session_in(spark, zone):
        lake = Lake(spark, tmp_path / "t", layout)
        if cleaned:
            lake.clean()
        _changes_exactly(spark, lake)


def _changes_exactly(spark: SparkSession, lake: Lake) -> None:
    first, last = lake.day(1)
    step = 3600 if lake.kind != "DATE" else 86400
    edge = last - 1 if lake.kind in ("TIMESTAMP", "TIMESTAMP_NTZ", "STRING") else first

    assert lake.read([1]) == lake.of([1])
    assert lake.read([0, 1, 3]) == lake.of([0, 1, 3])

    held = len(lake.of([1]))
    new: list[Row] = [(2000, first, "eu", 1), (2001, edge, "us", 2), (2002, first, "us", 3)]
    result = lake.write("overwrite", [1], new)
    assert [(one.rows_before, one.rows) for one in result.partitions] == [(held, 3)]
    assert result.partitions[0].fingerprint is not None
    before, lake.model = lake.model, lake.replaced([1], new)
    assert lake.is_model()

    history = spark.sql(f"DESCRIBE HISTORY delta.`{lake.path}`").collect()
    (made,) = (one.operationParameters for one in history if one.version == result.version)
    is_dated = "day" in spark.read.format("delta").load(lake.path).columns
    assert ("`day` >= DATE'2024-03-" in made["predicate"]) is is_dated

    again = lake.write("overwrite", [1], new)
    assert (again.version, lake.is_model()) == (result.version, True)

    for run, at in (("after", last), ("before", first - step), ("null", None)):
        row = (3000, at, "eu", 0)
        with pytest.raises(UnexpectedPartitionError):
            lake.write(run, [1], [*new, row])
    assert lake.is_model()

    merged: list[Row] = [(2000, first, "eu", 10), (2003, first, "eu", 4)]
    lake.write("merge", [1], merged, mode="merge", merge_on=["id"])
    lake.model = [one for one in lake.model if one[0] != 2000] + merged
    assert lake.is_model()

    only: list[Row] = [(2001, edge, "us", 20)]
    lake.write("only", [1], only, mode="merge", merge_on=["id"], delete_missing=True)
    lake.model = lake.replaced([1], only)
    assert lake.is_model()

    more: list[Row] = [(2004, first, "eu", 5)]
    result = lake.write("append", [1], more, mode="append")
    assert [(one.rows_before, one.rows) for one in result.partitions] == [(1, 2)]
    lake.model = [*lake.model, *more]
    assert lake.is_model()

    lake.write("append", [1], more, mode="append", attempt=2)  # as after a crash
    assert lake.is_model()

    other: list[Row] = [(4000, lake.day(3)[0], "eu", 7), (4001, None, "us", 7)]
    lake.append(other)
    lake.model = [*lake.model, *other]
    result = lake.write("empty", [0, 2], [])
    assert {one.rows for one in result.partitions} == {0}
    lake.model = lake.replaced([0, 2], [])
    assert lake.is_model()

    since = Since.of(Tables(spark).state(_target(lake)))
    lake.copies(4000)  # also the rows of day 1, which it does not change
    lake.write("beside", [1], lake.of([1]), options=WriteOptions(since=since))
    assert lake.is_model()

    tokens = ["overwrite", "merge", "only", "append", "append 2", "beside"]
    undo_runs(spark, tokens=tokens, location=lake.path)
    gone = set(lake.of([1]))
    lake.model = [one for one in lake.model if one not in gone]
    lake.model += [one for one in before if lake.holds(1, one)]
    assert lake.is_model()


@pytest.mark.parametrize("layout", ["plain", "by region"])
def test_static_keys_are_values_of_a_column(
    spark: SparkSession, tmp_path: Path, layout: str
) -> None:
    """Also where the table is partitioned by that column, which costs nothing more."""
    lake = Lake(spark, tmp_path / "t", layout, by="key")
    new: list[Row] = [(2000, lake.day(1)[0], "eu", 1), (2001, None, "eu", 2)]
    result = lake.write("one", ["eu"], new)
    assert [one.rows for one in result.partitions] == [2]
    lake.model = lake.replaced(["eu"], new)
    assert lake.is_model()
    with pytest.raises(UnexpectedPartitionError, match="region=us"):
        lake.write("two", ["eu"], [(1, None, "us", 1)])
    assert lake.read(["us"]) == lake.of(["us"])
    lake.write("three", ["eu", "us"], [(1, None, "us", 1)])
    lake.model = [(1, None, "us", 1)]
    assert lake.is_model()


def test_a_commit_of_another_writer_in_the_scope_is_a_conflict(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One beside it is none, nor are rows that come while ours are appended."""
    lake = Lake(spark, tmp_path / "t", "plain")
    held = len(lake.of([0]))
    late: Row = (5002, lake.day(0)[0], "eu", 1)
    options = WriteOptions(checks=[lambda _: lake.append([late])])
    ours: Row = (5003, lake.day(0)[0], "eu", 1)
    result = lake.write("append", [0], [ours], mode="append", options=options)
    assert [one.rows for one in result.partitions] == [held + 2]
    lake.write("after it", [0], [])
    since = Since.of(Tables(spark).state(_target(lake)))
    lake.append([(5000, lake.day(3)[0], "eu", 1)])
    lake.write("beside", [1], [], options=WriteOptions(since=since))
    lake.append([(5001, lake.day(2)[0], "eu", 1)])
    with pytest.raises(WriteConflictError, match="ts=2024"):
        lake.write("within", [2], [], options=WriteOptions(since=since))


def test_an_undo_is_refused_where_others_changed_the_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Their change is named, and stays."""
    lake = Lake(spark, tmp_path / "t", "clustered")
    lake.write("one", [1], [])
    late: Row = (5000, lake.day(1)[0], "eu", 1)
    lake.append([late])
    with pytest.raises(UndoRefusedError, match="after the run that is to be undone"):
        undo_runs(spark, tokens=["one"], location=lake.path)
    lake.model = lake.replaced([1], [late])
    assert lake.is_model()


def test_a_date_that_another_zone_computed_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta would leave out rows, also where newer files fit both zones, or newer days this one."""
    with session_in(spark, "America/Los_Angeles"):
        lake = Lake(spark, tmp_path / "t", "generated")
        noons = [(5000 + day, lake.day(day)[0] + 12 * 3600, "eu", 1) for day in range(-1, 4)]
        lake.append(noons)
        lake.model += noons
    with pytest.raises(TableError, match="in another time zone"):
        lake.read([1])
    late = (6000, lake.day(9)[0], "eu", 1)
    lake.append([late])
    lake.model.append(late)
    monkeypatch.setattr("spark_runtime.tables.delta.format._SAMPLES", 1)
    with pytest.raises(TableError, match="in another time zone"):
        lake.read([1])
    with pytest.raises(TableError, match="in another time zone"):
        lake.write("one", [1], [])
    assert lake.is_model()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": ["missing"]}, "has no column 'missing'"),
        ({"columns": ["n"]}, "is of type integer"),
        ({"time_format": FORM}, "is of type timestamp, and has a `time_format`"),
        ({"mode": "full"}, "rows without a key would stay"),
    ],
)
def test_a_column_that_cannot_hold_the_keys_is_refused(
    spark: SparkSession, tmp_path: Path, changes: Mapping[str, Any], message: str
) -> None:
    """Before anything is written."""
    lake = Lake(spark, tmp_path / "t", "plain")
    target: Callable[..., dict[str, Any]] = lake.target
    column = changes.get("columns", ["ts"])[0]

    def changed(**more: Any) -> dict[str, Any]:
        scope = [{"key": "k", "values": {column: one["values"]["ts"]}} for one in more["scope"]]
        return target(**{**more, "scope": scope, **changes})

    lake.target = changed  # type: ignore[method-assign]  # as a wrong declaration says
    with pytest.raises(TableError, match=message):
        lake.write("one", [1], [])


def test_local_times_that_occur_twice_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Instants are distinct."""
    twice = "2024-11-03T01-0400 and 2024-11-03T01-0500"
    lake = Lake(spark, tmp_path / "t", "clustered")
    with pytest.raises(PartitionValueError, match="have the same local times"):
        lake.write("one", [1], [], mixed=twice)
    Lake(spark, tmp_path / "u", "plain").write("one", [1], [], mixed=twice)


def test_the_first_run_creates_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """Without partitions."""
    lake = Lake(spark, tmp_path / "t", "plain")
    lake.path = str(tmp_path / "new")
    new: list[Row] = [(1, lake.day(1)[0], "eu", 1)]
    lake.write("one", [1], new)
    lake.model = new
    assert lake.is_model()
    state = Tables(spark).state(_target(lake))
    assert state is not None
    assert state.partitioned_by == ()


def _target(lake: Lake) -> InputSpec:
    target = lake.target()
    target["dataset"] = DatasetRef(**target["dataset"])
    target["columns"] = tuple(target["columns"])
    return InputSpec(**target, partitions=None)
