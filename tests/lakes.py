"""Tables of days in every layout, with rows of local times, and a model of what they hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import InputSpec, OutputResult, Partition
from spark_runtime.read.reader import Inputs
from spark_runtime.tables.tables import Tables
from spark_runtime.write.writer import write_partitions

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
    "partitioned": ("DATE", "PARTITIONED BY (ts)", {}),
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

    def __init__(
        self, spark: SparkSession, path: Path, layout: str, by: str | None = "time"
    ) -> None:
        """`by` says what the table is scoped by; the partitioned one is by its partitions."""
        self.kind, clause, properties = LAYOUTS[layout]
        by = None if clause == "PARTITIONED BY (ts)" else by
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

    def copy(self, path: Path) -> Lake:
        """Make one like it."""
        shutil.copytree(self.path, path)
        copied = Lake.__new__(Lake)
        copied.__dict__.update(self.__dict__)
        copied.path, copied.tables = str(path), Tables(self.spark)
        return copied

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
        column = "region" if self.by == "key" else "ts"
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
            first, last = (SPRING + timedelta(days=int(key) + one) for one in (0, 1))
            values = {"ts": f"{first.isoformat()}/{last.isoformat()}"}
            if self.by is None:
                values = {"ts": f"{first:%Y-%m-%d}"}
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
        wanted = tuple(Partition(**one) for one in self.partitions(keys))
        found = Inputs(self.spark, (self.input(wanted),), Tables(self.spark)).read("t")
        assert found is not None
        return self.rows(found)

    def input(self, partitions: tuple[Partition, ...] | None = None) -> InputSpec:
        """The spec of a run that reads it."""
        target = self.target()
        target["dataset"] = DatasetRef(**target["dataset"])
        target["columns"] = tuple(target["columns"])
        return InputSpec(**target, partitions=partitions)

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
