"""A user's own session: checked by what really holds, and as it was once a run is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import SessionError, UnexpectedPartitionError
from spark_runtime.session import (
    SAFE_CONF,
    assert_safe,
    effective,
    guarded,
    session_of_its_own,
)
from spark_runtime.write.checks import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNSAFE = {
    "spark.sql.variable.substitute": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",
    "spark.databricks.delta.replaceWhere.dataColumns.enabled": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "true",
    # No value is computed by a write of plain columns.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "Asia/Tokyo",
}
#: What a person's own notebook does: a plain session with Delta, in a machine in New York.
NOTEBOOK = """
import json, sys
from pyspark.sql import SparkSession
from spark_runtime.session import LOCAL_CONF, SAFE_CONF, assert_safe, find_jars, get_session
conf = {**LOCAL_CONF, "spark.jars": ",".join(map(str, find_jars()))}
conf["spark.driver.extraJavaOptions"] += " -Duser.timezone=America/New_York"
builder = SparkSession.builder
for name, value in conf.items():
    builder = builder.config(name, value)
own = builder.getOrCreate()
before = {name: own.conf.get(name, None) for name in SAFE_CONF}
found = get_session({"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "7"})
try:
    assert_safe(found)
    said = None
except Exception as error:
    said = str(error)
after = {name: own.conf.get(name, None) for name in SAFE_CONF}
is_own = found._jsparkSession.equals(own._jsparkSession)
print(json.dumps([said, before == after, is_own]))
"""


def test_what_is_not_set_counts_as_what_it_means(spark: SparkSession) -> None:
    name = "spark.sql.session.timeZone"
    mine = spark.newSession()
    mine.conf.unset(name)
    zone = mine.sql("SELECT current_timezone()").collect()[0][0]
    assert effective(mine, name) == zone
    assert effective(mine, "spark.databricks.delta.of.no.release") is None


def test_an_unset_zone_of_a_machine_in_new_york_is_refused_and_left_as_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    said, is_as_before, is_own = json.loads(done.stdout.splitlines()[-1])
    assert "spark.sql.session.timeZone = America/New_York, but a safe write needs UTC" in said
    assert 'spark.conf.set("spark.sql.session.timeZone", "UTC")' in said
    assert is_as_before
    assert is_own


@pytest.mark.parametrize("name", ["session.timeZone", "ansi.enabled", "caseSensitive"])
def test_what_the_rows_of_a_job_mean_is_checked(spark: SparkSession, name: str) -> None:
    mine = spark.newSession()
    mine.conf.set(f"spark.sql.{name}", {"session.timeZone": "Asia/Tokyo"}.get(name, "false"))
    if name == "caseSensitive":
        mine.conf.set(f"spark.sql.{name}", "true")
    with pytest.raises(SessionError, match=name):
        assert_safe(mine)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT", "Z", "+00:00"])
def test_every_name_of_utc_is_that_zone(spark: SparkSession, zone: str) -> None:
    mine = spark.newSession()
    mine.conf.set("spark.sql.session.timeZone", zone)
    assert_safe(mine)
    (row,) = mine.sql(
        "SELECT TIMESTAMP'2024-07-01 12:00:00' = TIMESTAMP'2024-07-01T12:00:00Z'"
    ).collect()
    assert row[0]


def settings_of(spark: SparkSession) -> dict[str, str | None]:
    return {name: spark.conf.get(name, None) for name in {*SAFE_CONF, *UNSAFE}}


@pytest.fixture
def unsafe(spark: SparkSession) -> Any:
    before = settings_of(spark)
    for name, value in UNSAFE.items():
        spark.conf.set(name, value)
    yield
    for name, found in before.items():
        if found is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, found)


def test_a_write_is_safe_in_any_session_and_leaves_it_as_it_was(
    spark: SparkSession, table: Callable[..., Any], unsafe: None
) -> None:
    before = settings_of(spark)
    made = table("ds")
    odd = "it's ${spark.app.name} \\n"
    frame = spark.createDataFrame([(odd, 1), ("b", 2)], "ds STRING, n INT")
    made.write(frame, [odd, "b"], run_id="r-1")
    made.write(frame.where("n = 1"), [odd], run_id="r-2")
    assert made.rows() == sorted([(odd, 1), ("b", 2)], key=repr)
    assert settings_of(spark) == before


@pytest.mark.parametrize("kind", ["delta"])
def test_rows_of_a_damaged_file_are_never_left_out(
    spark: SparkSession, table: Callable[..., Any], unsafe: None, kind: str
) -> None:
    """A merge reads what its partitions hold; without those rows nothing is written."""
    made = table("ds", kind=kind)
    frame = spark.createDataFrame([("a", 1, 0), ("b", 2, 0)], "ds STRING, id INT, n INT")
    made.write(frame, ["a", "b"], run_id="r-1")
    (file,) = Path(made.path, "ds=a").glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(b"PAR1" + bytes(len(whole) - 4))
    before = made.version
    new = spark.createDataFrame([("a", 3, 0)], frame.schema)
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|not a Parquet file"):
        made.write(new, ["a"], WriteOptions(merge_on=("id",)), mode="merge", run_id="r-2")
    assert made.version == before


def test_a_write_that_fails_leaves_the_session_as_it_was(
    spark: SparkSession, table: Callable[..., Any], unsafe: None
) -> None:
    before = settings_of(spark)
    made = table("ds")
    frame = spark.createDataFrame([("a", 1)], "ds STRING, n INT")
    with pytest.raises(UnexpectedPartitionError):
        made.write(frame, ["b"])
    assert settings_of(spark) == before


def test_others_overwrite_partitions_meanwhile_as_their_session_says(
    spark: SparkSession, unsafe: None, tmp_path: Path
) -> None:
    """Another thread's dynamic overwrite replaces its partitions, and not the whole table."""
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "p STRING, n INT")
    path = str(tmp_path / "theirs")
    frame.write.partitionBy("p").parquet(path)
    with guarded(spark):
        theirs = frame.where("p = 'a'").write.mode("overwrite")
        theirs.partitionBy("p").parquet(path)
    assert spark.read.parquet(path).count() == 2


def test_of_two_at_once_the_last_puts_the_settings_back(spark: SparkSession, unsafe: None) -> None:
    before = settings_of(spark)
    first, second = guarded(spark), guarded(spark)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert effective(spark, "spark.sql.variable.substitute") == "false"
    second.__exit__(None, None, None)
    assert settings_of(spark) == before


def cached(session: SparkSession) -> list[str]:
    rdds = session.sparkContext._jsc.getPersistentRDDs().values()
    return [str(rdd.name()) for rdd in rdds]


def is_deltas(name: str) -> bool:
    return name.startswith("Delta Table State")


def test_the_logs_of_tables_stay_in_memory_for_the_next_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "t")
    before = set(cached(spark))
    with session_of_its_own(spark) as own:
        own.range(3).write.format("delta").save(table)
        assert own.read.format("delta").load(table).count() == 3
        own.range(4).cache().count()
    assert [is_deltas(name) for name in set(cached(spark)) - before] == [True]


def test_a_run_leaves_nothing_in_a_session_of_its_own(spark: SparkSession) -> None:
    kind = type(spark)

    def found(session: SparkSession) -> dict[str, object]:
        views = [one.name for one in session.catalog.listTables() if one.isTemporary]
        shared = [one.name for one in session.catalog.listTables("global_temp") if one.isTemporary]
        return {
            "conf": (session.conf.get("mine", None), session.conf.get("spark.sql.ansi.enabled")),
            "views": sorted({*views, *shared}),
            "catalog": (session.catalog.currentCatalog(), session.catalog.currentDatabase()),
            "cached": sum(not is_deltas(name) for name in cached(session)),
        }

    with session_of_its_own(spark) as own:
        before = found(own)
        assert kind.builder.getOrCreate() is own
        assert kind.getActiveSession() is own
        own.conf.set("mine", "left")
        own.conf.set("spark.sql.ansi.enabled", "false")
        own.range(1).createOrReplaceTempView("left")
        own.range(1).createOrReplaceGlobalTempView("left_for_all")
        own.range(1).cache().count()
        own.sparkContext.parallelize([1]).cache().count()
        own.sql("CREATE DATABASE elsewhere")
        own.catalog.setCurrentDatabase("elsewhere")
        assert own.catalog.tableExists("global_temp.left_for_all")
    assert kind.getActiveSession() is spark
    with session_of_its_own(spark) as next_one:
        assert found(next_one) == {**before, "cached": 0}  # also of what others had cached
        next_one.sql("DROP DATABASE elsewhere")
    assert before["views"] == []
