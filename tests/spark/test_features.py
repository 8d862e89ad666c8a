"""Tables with many features of Delta, with their whole log and with a cleaned one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import TableError, UndoRefusedError
from spark_runtime.logs.changes import changes
from spark_runtime.logs.history import history
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from tests.sampling import a_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table: columns beside `day` and `n` with their values, properties, what is done to it."""

    columns: str = ""
    values: str = ""
    properties: Mapping[str, object] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    #: What the columns are then.
    named: str = ""
    clone: bool = False


MAPPED = {"columnMapping.mode": "name", "minReaderVersion": 2, "minWriterVersion": 5}
CASES = {
    "vectors, change feed, row tracking, check, v2 checkpoints": Case(
        columns="v VARCHAR(3) NOT NULL",
        values="'a' v",
        properties={
            **dict.fromkeys(("enableDeletionVectors", "enableChangeDataFeed"), "true"),
            "enableRowTracking": "true",
            "checkpointPolicy": "v2",
        },
        after=("ALTER TABLE {t} ADD CONSTRAINT some CHECK (n > 0)", "DELETE FROM {t} WHERE n = 2"),
    ),
    "ids, generated, Iceberg's rules": Case(
        columns="v INT GENERATED ALWAYS AS (n * 2)",
        properties={**MAPPED, "columnMapping.mode": "id", "enableIcebergCompatV1": "true"},
    ),
    "times in commits, vectors removed": Case(
        properties={"enableInCommitTimestamps": "true", "enableDeletionVectors": "true"},
        after=("DELETE FROM {t} WHERE n = 2", "REORG TABLE {t} APPLY (PURGE)"),
    ),
    "names, renamed, dropped, widened": Case(
        columns="gone INT, v SMALLINT",
        values="1 gone, 1S v",
        named="1 w",
        properties={**MAPPED, "enableTypeWidening": "true"},
        after=(
            "ALTER TABLE {t} RENAME COLUMN v TO w",
            "ALTER TABLE {t} DROP COLUMN gone",
            "ALTER TABLE {t} ALTER COLUMN w TYPE INT",
            "UPDATE {t} SET w = 70000 WHERE n = 2",
        ),
    ),
    "variants, compacted": Case(
        columns="v VARIANT",
        values="parse_json('[1]') v",
        after=("OPTIMIZE {t}",),
    ),
    "restored": Case(
        after=("UPDATE {t} SET n = 9 WHERE n = 2", "RESTORE TABLE {t} TO VERSION AS OF 1")
    ),
    "vacuumed": Case(
        after=(
            "SET spark.databricks.delta.retentionDurationCheck.enabled = false",
            "DELETE FROM {t} WHERE n = 2",
            "VACUUM {t} RETAIN 0 HOURS",
        )
    ),
    "checkpoints of several parts": Case(
        after=("SET spark.databricks.delta.checkpoint.partSize = 1",)
    ),
    "a shallow clone": Case(clone=True),
}


@pytest.fixture
def made(spark: SparkSession, table: Callable[..., Any], request: Any) -> Any:
    case: Case = CASES[request.param]
    one = table("day")
    one.case = case
    properties = {"checkpointInterval": 1000, **case.properties}
    listed = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    columns = ", ".join(filter(None, ("day STRING, n INT", case.columns)))
    name = f"delta.`{one.path}`"
    spark.sql(
        f"CREATE TABLE {name} ({columns}) USING delta PARTITIONED BY (day) TBLPROPERTIES ({listed})"
    )
    insert(spark, one, "('d1', 1), ('d1', 2), ('d2', 3)", case.values)
    if case.clone:
        one = table("day", name="clone")
        one.case = case
        spark.sql(f"CREATE TABLE delta.`{one.path}` SHALLOW CLONE {name}")
    for step in case.after:
        spark.sql(step.format(t=name))
    yield one
    for step in case.after:
        if step.startswith("SET "):
            spark.conf.unset(step.split()[1])


def rows_of(spark: SparkSession, values: str, more: str) -> Any:
    more = f", {more}" if more else ""
    return spark.sql(f"SELECT day, n{more} FROM VALUES {values} AS r(day, n)").coalesce(1)


def insert(spark: SparkSession, made: Any, values: str, more: str) -> None:
    rows_of(spark, values, more).write.format("delta").mode("append").save(made.path)


def look(spark: SparkSession, made: Any, log: DeltaLog) -> list[str]:
    """Return all rows; the log alone tells how many each partition has."""
    held = spark.read.format("delta").load(made.path).selectExpr("day", "to_json(struct(*)) AS row")
    rows = held.collect()
    found = {values[0]: one.rows for values, one in log.state().partitions.items()}
    assert found == Counter(row.day for row in rows)
    return sorted(row.row for row in rows)


@pytest.mark.parametrize("made", a_part(CASES, every=3), indirect=True)
def test_a_table_with_features_is_read_written_and_undone(spark: SparkSession, made: Any) -> None:
    case = made.case
    more = case.named or case.values
    new = rows_of(spark, "('d1', 7)", more)

    before = look(spark, made, DeltaLog(made.path))
    made.write(new, ["d1"], run_id="r-1")
    version, log = int(made.version), DeltaLog(made.path)
    assert changes(log, after=version - 1).partitions == (("d1",),)
    event = history(log).events[-1]
    assert (event.version, event.made, event.job) == (version, (("d1",),), "test:job")
    undo_runs(spark, tokens=["b-1-r-1-1"], location=made.path)
    assert look(spark, made, log) == before

    # The same with a log that begins with a commit of another writer.
    insert(spark, made, "('d2', 9)", more)
    first = clean(spark, made)
    made.tables = Tables(spark)
    log = made.tables.log(made.target)
    before = look(spark, made, log)
    made.write(new, ["d1"], run_id="r-2")
    version = int(made.version)
    assert (log.state().first_read, log.state().complete) == (first, True)
    assert changes(log, after=version - 1).partitions == (("d1",),)
    with pytest.raises(TableError, match="no longer in its log"):
        changes(log, after=0)
    known = history(log)
    assert (known.events[-1].version, known.events[-1].made) == (version, (("d1",),))
    with pytest.raises(UndoRefusedError, match=f"reaches back to version {first} only"):
        undo_runs(spark, tokens=["b-1-r-1-1"], location=made.path)
    undo_runs(spark, tokens=["b-1-r-2-1"], location=made.path)
    assert look(spark, made, log) == before


def clean(spark: SparkSession, made: Any) -> int:
    """Make a checkpoint, and delete all older files of the log; return where it begins."""
    delta: Any = spark._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
    delta.DeltaLog.forTable(spark._jsparkSession, made.path).checkpoint()
    first = int(made.version)
    for file in Path(made.path, "_delta_log").glob("0*"):
        if int(file.name[:20]) < first:
            file.unlink()
    return first
