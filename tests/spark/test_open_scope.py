"""A column that the run spec leaves open: every value, present and future, and no other column."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import InputSpec, Partition, ProductKey
from spark_runtime.errors import (
    CheckFailedError,
    EmptyPartitionError,
    UnexpectedPartitionError,
    UnstampedRowsError,
    WriteConflictError,
)
from spark_runtime.job.runner import run
from spark_runtime.read.reader import Inputs
from spark_runtime.session import settings
from spark_runtime.tables.fingerprint import SETTING
from spark_runtime.tables.state import Since
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_attempts, undo_runs
from spark_runtime.write.checks import WriteOptions, expect_rows
from spark_runtime.write.reconcile import reconcile
from spark_runtime.write.stamp import stamped

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from lineage_backfill.runspec.values import OutputResult

Row = tuple[str, str | None, int]
OLD: list[Row] = [("d1", "eu", 0), ("d1", "us", 0), ("d2", "eu", 0)]
NEW: list[Row] = [("d1", "asia", 1), ("d1", "eu", 1)]
D1 = {"day": "d1"}
OPEN_D1 = ProductKey({"day": "d1", "region": "*"})


def rows(spark: SparkSession, *values: Row) -> DataFrame:
    return spark.createDataFrame(list(values), "day STRING, region STRING, n INT")


def told(result: OutputResult) -> dict[str, tuple[int | None, int | None, bool]]:
    return {str(p.key): (p.rows_before, p.rows, p.emptied) for p in result.partitions}


@pytest.fixture(params=["delta"])
def filled(spark: SparkSession, table: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    made = table("day", "region", kind=request.param)
    scope = [{"day": day, "region": region} for day, region, _ in OLD]
    made.write(rows(spark, *OLD), scope, run_id="r-0")
    return made


def test_a_key_stays_one_appears_one_vanishes_and_nothing_else_is_touched(
    spark: SparkSession, filled: Any
) -> None:
    started = WriteOptions(started_at=datetime(2024, 1, 1, tzinfo=UTC))
    result = filled.write(rows(spark, *NEW), [D1], started, token="t-1")
    assert filled.rows() == [*NEW, OLD[2]]
    assert told(result) == {
        "day=d1/region=eu": (1, 1, False),
        "day=d1/region=asia": (0, 1, False),
        "day=d1/region=us": (1, 0, True),
    }
    assert {part.within for part in result.partitions} == {(OPEN_D1,)}
    assert {"day": "d1", "region": "us"} in [part.values for part in result.partitions]
    assert result.types == {"day": "string", "region": "string"}
    assert filled.state().contents(("d2", "eu")) == filled.state(1).contents(("d2", "eu"))

    # Whoever finds the commit without its result comes to the same, and so does the same attempt.
    spec = filled.run_spec([D1], token="t-1")
    assert reconcile(spec, Tables(spark)).outputs == (result,)
    assert filled.write(rows(spark), [D1], token="t-1") == result

    # The next attempt writes again; undone, both the new key and the old one are as before.
    filled.write(rows(spark, NEW[0]), [D1], attempt=2, token="t-2")
    for token in ("t-2", "t-1"):
        undone = undo_attempts(spark, spec.outputs[0], [token], filled.tables)
    assert told(undone) == {
        "day=d1/region=eu": (1, 1, False),
        "day=d1/region=asia": (1, 0, True),
        "day=d1/region=us": (0, 1, False),
    }
    assert filled.rows() == OLD


@pytest.mark.parametrize("fingerprints", ["true", "false"])
def test_a_row_outside_the_fixed_column_is_refused(
    spark: SparkSession, filled: Any, fingerprints: str
) -> None:
    with settings(spark, {SETTING: fingerprints}):
        with pytest.raises(UnexpectedPartitionError, match="day=d2/region=asia"):
            filled.write(rows(spark, *NEW, ("d2", "asia", 1)), [D1])
        assert filled.rows() == OLD
        filled.write(rows(spark, *NEW), [D1], run_id="r-2")
    assert filled.rows() == [*NEW, OLD[2]]


def test_what_is_named_and_fits_as_well_is_written_once(spark: SparkSession, filled: Any) -> None:
    named = [{"day": day, "region": "eu"} for day in ("d1", "d2")]
    result = filled.write(rows(spark, *NEW, ("d2", "eu", 1)), [named[0], D1, named[1]])
    assert filled.rows() == [*NEW, ("d2", "eu", 1)]
    assert [(str(p.key), p.rows, p.values is None, p.within) for p in result.partitions] == [
        ("day=d1/region=eu", 1, True, (OPEN_D1,)),
        ("day=d2/region=eu", 1, True, ()),
        *[(str(p.key), p.rows, False, (OPEN_D1,)) for p in result.partitions[2:]],
    ]
    with pytest.raises(UnexpectedPartitionError, match="day=d2/region=asia"):
        filled.write(rows(spark, ("d2", "asia", 1)), [D1, named[1]], run_id="r-2")


def test_where_nothing_was_and_nothing_came_the_open_key_says_so(
    spark: SparkSession, filled: Any
) -> None:
    result = filled.write(rows(spark), [{"day": "d9"}])
    assert told(result) == {"day=d9/region=*": (0, 0, False)}
    assert [part.values for part in result.partitions] == [{"day": "d9"}]
    for options, changes, error in (
        (None, {"on_empty": "fail"}, EmptyPartitionError),
        (WriteOptions(checks=[expect_rows()]), {}, CheckFailedError),
    ):
        with pytest.raises(error):
            filled.write(rows(spark), [{"day": "d9"}], options, run_id="r-2", **changes)


def test_a_key_that_came_out_empty_is_cleared_kept_or_refused(
    spark: SparkSession, filled: Any
) -> None:
    with pytest.raises(EmptyPartitionError, match="day=d1/region=us"):
        filled.write(rows(spark, *NEW), [D1], on_empty="fail")
    result = filled.write(rows(spark, *NEW), [D1], on_empty="keep", run_id="r-2")
    assert filled.rows() == [*NEW, OLD[1], OLD[2]]
    assert told(result).keys() == {"day=d1/region=eu", "day=d1/region=asia"}
    filled.write(rows(spark), [D1], run_id="r-3")
    assert filled.rows() == [OLD[2]]


def test_rows_are_appended_and_merged_to_any_key(spark: SparkSession, filled: Any) -> None:
    added = filled.write(rows(spark, *NEW), [D1], mode="append", run_id="r-1")
    assert told(added) == {"day=d1/region=asia": (0, 1, False), "day=d1/region=eu": (1, 2, False)}
    options = WriteOptions(merge_on=["region"], newest_by="n")
    filled.write(rows(spark, ("d1", "eu", 2)), [D1], options, mode="merge", run_id="r-2")
    # The key stands there twice, and both rows are updated, as by SQL.
    assert filled.rows() == [NEW[0], ("d1", "eu", 2), ("d1", "eu", 2), OLD[1], OLD[2]]


def test_a_change_of_any_key_that_fits_is_a_conflict_and_others_are_none(
    spark: SparkSession, filled: Any
) -> None:
    since = filled.version
    for run_id, row in (("x-1", ("d2", "asia", 5)), ("x-2", ("d1", "asia", 5))):
        key = {"day": row[0], "region": row[1]}
        filled.write(rows(spark, row), [key], run_id=run_id, backfill_id="theirs")
    late = WriteOptions(since=Since(since))
    with pytest.raises(WriteConflictError, match="day=d1/region=asia"):
        filled.write(rows(spark, *NEW), [D1], late, run_id="r-2")
    filled.write(rows(spark, ("d3", "eu", 1)), [{"day": "d3"}], late, run_id="r-3")


@pytest.mark.parametrize("kind", ["delta"])
def test_every_value_is_a_key_and_a_star_is_only_a_text(
    spark: SparkSession, table: Callable[..., Any], kind: str
) -> None:
    made = table("region", kind=kind)

    def frame(*values: tuple[str | None, int]) -> DataFrame:
        return spark.createDataFrame(list(values), "region STRING, n INT")

    first = made.write(frame(("eu", 0), ("*", 0), (None, 0)), [{}], token="t-0")
    assert told(first) == {
        "eu": (0, 1, False),
        "*": (0, 1, False),
        "__HIVE_DEFAULT_PARTITION__": (0, 1, False),
    }
    # As a value that is named it is itself, and no other.
    made.write(frame(("*", 1)), ["*"], run_id="r-2", token="t-1")
    assert made.rows() == [("*", 1), ("eu", 0), (None, 0)]
    with pytest.raises(UnexpectedPartitionError, match="region=us"):
        made.write(frame(("us", 1)), ["*"], run_id="r-3")
    # What others have added since stays out of it when the first run is undone… and now it is not.
    last = made.write(frame(("us", 2)), [{}], run_id="r-4", token="t-4")
    assert made.rows() == [("us", 2)]
    assert {part.key for part in last.partitions if part.emptied} == {
        "eu",
        "*",
        "__HIVE_DEFAULT_PARTITION__",
    }
    undo_runs(spark, tokens=["t-4"], location=made.path, format=kind)
    assert made.rows() == [("*", 1), ("eu", 0), (None, 0)]

    target = InputSpec(**vars_of(made.target), partitions=(Partition(key="*", values={}),))
    inputs = Inputs(spark, (target,), made.tables)
    read = inputs.read(made.target.dataset.name)
    assert read is not None
    assert sorted((row["region"] or "", row["n"]) for row in read.collect()) == [
        ("", 0),
        ("*", 1),
        ("eu", 0),
    ]
    (told_,) = inputs.results()
    assert sorted(str(one.values) for one in told_.partitions) == [
        "{'region': '*'}",
        "{'region': 'eu'}",
        "{'region': None}",
    ]
    assert inputs.rows() == 3


def vars_of(target: Any) -> dict[str, Any]:
    return {name: getattr(target, name) for name in ("dataset", "format", "columns", "location")}


class Killed(BaseException):
    """The end of the process in the middle of a write."""


def test_a_writer_that_dies_in_the_middle_leaves_all_or_nothing(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as context:
        context.setattr("spark_runtime.tables.delta.format.replace", die)
        with pytest.raises(Killed):
            filled.write(rows(spark, *NEW), [D1], token="t-1")
    filled.tables = Tables(spark)
    filled.state()  # the next look takes back what is left
    assert filled.rows() == OLD
    first = filled.write(rows(spark, *NEW), [D1], token="t-1")
    assert told(first)["day=d1/region=us"] == (1, 0, True)
    again = filled.write(rows(spark, NEW[0]), [D1], attempt=2, token="t-2")
    assert told(again)["day=d1/region=eu"] == (1, 0, True)
    assert filled.rows() == [NEW[0], OLD[2]]


PIPELINE = """
from spark_runtime import job

@job(inputs={"scores": "scores"}, output="t", batch="range")
def predict(scores):
    return scores.selectExpr("day", "upper(region) AS region", "n + 1 AS n")
"""


def test_a_job_over_an_open_dimension_reads_writes_and_tells_the_keys_that_there_are(
    spark: SparkSession,
    table: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "pipeline_open.py").write_text(PIPELINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    scores, made = table("day", "region", name="scores"), table("day", "region")
    scope = [{"day": day, "region": region} for day, region, _ in OLD]
    scores.write(rows(spark, *OLD), scope, run_id="r-0")
    output = {
        "dataset": {"namespace": "test", "name": "t"},
        "format": "delta",
        "location": made.path,
        "columns": ["day", "region"],
        "scope": made.scope([D1]),
    }
    document: dict[str, Any] = {
        "schema_version": 1,
        "backfill_id": "b-1",
        "run_id": "r-1",
        "attempt": 1,
        "token": "t-1",
        "job": {"namespace": "test", "name": "predict", "entrypoint": "pipeline_open:predict"},
        "partitions": ["*"],
        "keys": [{"key": {"day": "d1", "region": "*"}}],
        "outputs": [output],
        "inputs": [
            {
                **output,
                "dataset": {"namespace": "test", "name": "scores"},
                "location": scores.path,
                "partitions": scores.scope([D1]),
            }
        ],
        "lineage": {"outbox": str(tmp_path / "outbox")},
        "result_path": str(tmp_path / "result.json"),
    }
    del document["inputs"][0]["scope"]
    assert run(spark, parse_spec(document), Tables(spark)).state == "succeeded"
    assert made.rows() == [("d1", "EU", 1), ("d1", "US", 1)]
    result = json.loads((tmp_path / "result.json").read_text())
    (written,), (read,) = result["outputs"], result["inputs"]
    keys = [{"day": "d1", "region": region} for region in ("EU", "US", "eu", "us")]
    told = [one["key"] for one in (*written["partitions"], *read["partitions"])]
    assert sorted(told, key=str) == keys
    assert written["partitions"][0]["within"] == [{"day": "d1", "region": "*"}]

    (file,) = (tmp_path / "outbox").iterdir()
    start, complete = map(json.loads, file.read_text().splitlines())

    def dimensions(event: Any) -> list[list[dict[str, str]]]:
        facets = [
            event["inputs"][0]["inputFacets"]["subset"]["inputCondition"],
            event["outputs"][0]["outputFacets"]["subset"]["outputCondition"],
        ]
        return [[part["dimensions"] for part in facet["partitions"]] for facet in facets]

    assert dimensions(start) == [keys[2:], [D1]]
    assert dimensions(complete) == [keys[2:], keys[:2]]


def test_rows_without_their_key_are_not_stamped_where_it_may_be_any(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("backfill_key")
    (output,) = made.run_spec([{}]).outputs
    with pytest.raises(UnstampedRowsError, match="writes any key"):
        stamped(spark.range(1), output, None)
