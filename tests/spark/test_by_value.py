"""Tables that are not partitioned by their keys: what is particular to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_runtime.errors import (
    PartitionValueError,
    TableError,
    UndoRefusedError,
    UnexpectedPartitionError,
    WriteConflictError,
)
from spark_runtime.tables.state import Since
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write.checks import WriteOptions
from tests.lakes import FORM, Lake, Row, session_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    since = Since.of(Tables(spark).state(lake.input()))
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
    state = Tables(spark).state(lake.input())
    assert state is not None
    assert state.partitioned_by == ()
