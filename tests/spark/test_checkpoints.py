"""Logs as Delta itself leaves them: checksums, checkpoints of each kind, clean-up, changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import TableError
from spark_runtime.logs.changes import changes
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def rows(spark: SparkSession, *values: tuple[str | None, int]) -> DataFrame:
    return spark.createDataFrame(list(values), "day STRING, n INT")


@pytest.mark.parametrize("kind", ["classic", "parts", "v2"])
def test_a_cleaned_up_log_tells_the_same_from_every_kind_of_checkpoint(
    spark: SparkSession, table: Callable[..., Any], kind: str
) -> None:
    made = table("day")
    name = f"delta.`{made.path}`"
    policy = "v2" if kind == "v2" else "classic"
    spark.sql(
        f"CREATE TABLE {name} (day STRING, n INT) USING delta PARTITIONED BY (day) TBLPROPERTIES "
        f"('delta.checkpointPolicy' = '{policy}', 'delta.checkpointInterval' = '4')"
    )
    size = "spark.databricks.delta.checkpoint.partSize"
    if kind == "parts":
        spark.conf.set(size, "2")
    try:
        made.write(rows(spark, ("d1", 1), ("d2", 2), (None, 3)), ["d1", "d2", {"day": None}])
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        spark.sql(f"INSERT INTO {name} VALUES ('d1', 4), ('d1', 5)")
        spark.sql(f"DELETE FROM {name} WHERE n = 4")
    finally:
        spark.conf.unset(size)
    spark.sql(f"INSERT INTO {name} VALUES ('d3', 6)")
    whole = made.state()
    log = Path(made.path) / "_delta_log"
    files = [file.name for file in log.glob("0*.checkpoint.*")]
    assert len(files) == 1 or kind == "parts"
    assert all(".000000000" in file for file in files) == (kind == "parts")
    assert (log / "_sidecars").exists() == (kind == "v2")
    for version in range(4):
        (log / f"{version:020}.json").unlink()
    state = Tables(spark).log(made.target).state()
    assert state.complete
    assert state.first_read == 4  # the commit of the checkpoint is there as well
    days = ["d1", "d2", "d3", None]
    assert [state.contents((day,)).rows for day in days] == [2, 1, 1, 1]
    assert {v: c.rows for v, c in state.partitions.items()} == {
        v: c.rows for v, c in whole.partitions.items()
    }
    assert state.transactions == whole.transactions
    assert state.columns == whole.columns
    # What the commits said of themselves is gone with them.
    assert state.contents(("d2",)).fingerprint is None

    alone = DeltaLog(made.path)
    assert changes(alone, after=4).partitions == (("d3",),)
    with pytest.raises(TableError, match="no longer in its log"):
        changes(alone, after=1)
    made.write(rows(spark, ("d1", 7)), ["d1"], run_id="r-2")
    assert made.rows() == [("d1", 7), ("d2", 2), ("d3", 6), (None, 3)]


@pytest.mark.parametrize("size", [0, 100])
def test_a_damaged_checkpoint_is_named_with_what_to_do(
    spark: SparkSession, table: Callable[..., Any], size: int
) -> None:
    made = table("day")
    spark.sql(
        f"CREATE TABLE delta.`{made.path}` (day STRING, n INT) USING delta PARTITIONED BY (day) "
        "TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    )
    made.write(rows(spark, ("d1", 1)), ["d1"])
    log = Path(made.path, "_delta_log")
    checkpoint = max(log.glob("0*.checkpoint.parquet"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:size])
    for commit in log.glob("0*.json"):
        commit.unlink()
    with pytest.raises(TableError, match=f"{checkpoint} is damaged") as raised:
        made.write(rows(spark, ("d1", 2)), ["d1"], run_id="r-2")
    assert raised.value.hint


def test_changes_of_a_real_table_and_what_is_none(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day", "hour")
    name = f"delta.`{made.path}`"
    spark.sql(
        f"CREATE TABLE {name} (day DATE, hour INT, n INT) USING delta PARTITIONED BY (day, hour) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true')"
    )
    steps: list[tuple[str, list[tuple[str | None, str | None]]]] = [
        (
            (
                f"INSERT INTO {name} VALUES (DATE'2024-01-01', 0, 1), (DATE'2024-01-01', 1, 2), "
                "(NULL, 0, 3)"
            ),
            [("2024-01-01", "0"), ("2024-01-01", "1"), (None, "0")],
        ),
        (f"INSERT INTO {name} VALUES (DATE'2024-01-01', 0, 4)", [("2024-01-01", "0")]),
        (f"OPTIMIZE {name}", []),
        (f"ALTER TABLE {name} RENAME COLUMN hour TO h", []),
        (f"ALTER TABLE {name} ADD COLUMN m INT", []),
        (f"UPDATE {name} SET n = 9 WHERE day IS NULL", [(None, "0")]),
        (f"DELETE FROM {name} WHERE h = 1", [("2024-01-01", "1")]),
        (
            f"RESTORE TABLE {name} TO VERSION AS OF 6",
            [("2024-01-01", "1")],
        ),
        (f"COMMENT ON TABLE {name} IS 'x'", []),
    ]
    log = DeltaLog(made.path)
    for statement, expected in steps:
        before = log.latest_version()
        assert before is not None
        spark.sql(statement).collect()
        found = changes(log, after=before)
        assert list(found.partitions) == expected, statement
    assert [(column.name, column.type) for column in found.columns] == [
        ("day", "date"),
        ("h", "integer"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "spark_runtime", "changes", "--location", made.path, "--after=1"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["partitions"] == [
        ["2024-01-01", "0"],
        ["2024-01-01", "1"],
        [None, "0"],
    ]
