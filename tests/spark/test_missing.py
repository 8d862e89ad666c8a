"""An input that was never written is no empty input: nothing is cleared on account of it."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.runspec.values import InputSpec, Partition, ProductKey, RunResult
from spark_runtime.configuration import load_project
from spark_runtime.job.decorator import load_job
from spark_runtime.job.runner import run
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from spark_runtime.read.missing import find_missing
from spark_runtime.tables.tables import Tables
from tests.sampling import a_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """
[project]
namespace = "test"

[[dataset]]
name = "raw"
grain = "day"
start = "2024-01-01"
column = "day"
location = "raw"
format = "{kind}"
data_lag = {lag}

[[dataset]]
name = "hours"
grain = "hour"
start = "2024-01-01T00"
column = "hour"
location = "hours"
format = "{kind}"

[[dataset]]
name = "names"
grain = "none"
location = "names"

[[dataset]]
name = "out"
grain = "day"
start = "2024-01-01"
data_lag = {out_lag}
column = "day"
location = "out"

[[job]]
name = "{job}"
batch = "range"

[[job.reads]]
dataset = "{dataset}"
{read}
"""

JOBS = """
from pyspark.sql import DataFrame, functions as F
from spark_runtime import RunContext, job

@job(inputs={"raw": "raw"}, output="out", batch="range")
def days(raw: DataFrame) -> DataFrame:
    return raw.groupBy("day").agg(F.sum("n").alias("n"))

@job(inputs={"hours": "hours"}, output="out", batch="range")
def hours(hours: DataFrame) -> DataFrame:
    return hours.groupBy(F.substring("hour", 1, 10).alias("day")).agg(F.sum("n").alias("n"))

@job(inputs={"names": "names"}, output="out", batch="range")
def whole(names: DataFrame, context: RunContext) -> DataFrame:
    days = context.spark.createDataFrame([(str(one.key),) for one in context.keys], "day STRING")
    return days.crossJoin(names.agg(F.count("*").alias("n")))
"""
Runs = Callable[..., RunResult]


@pytest.fixture(params=["delta"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runs(
    tmp_path: Path,
    spark: SparkSession,
    table: Callable[..., Any],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Runs]:
    """Runs a job of these by its schedule; `out` holds two good days."""
    (tmp_path / "missing_jobs.py").write_text(JOBS)
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    good = spark.createDataFrame([("2024-01-01", 10), ("2024-01-02", 20)], "day STRING, n LONG")
    table("day", name="out").write(good, ["2024-01-01", "2024-01-02"], run_id="r-0")

    def start(job: str, *keys: str, read: str = "", lag: int = 0, out_lag: int = 0) -> RunResult:
        dataset = {"days": "raw", "whole": "names"}.get(job, job)
        text = PROJECT.format(
            kind=kind, job=job, dataset=dataset, read=read, lag=lag, out_lag=out_lag
        )
        (tmp_path / "lineage-backfill.toml").write_text(text)
        entrypoint = f"missing_jobs:{job}"
        project, found = load_project(Path()), load_job(entrypoint)
        declared = declare(
            project, job, entrypoint=entrypoint, reads=found.reads, writes=found.writes
        )
        request = StartRequest(keys=keys)
        (spec,) = run_specs(declared, project, request, datetime.now(UTC), batch="range")
        return run(spark, spec, Tables(spark))

    yield start
    sys.modules.pop("missing_jobs", None)


@pytest.fixture
def fill(spark: SparkSession, table: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """Writes rows of an input, each with n = 1."""

    def write(name: str, column: str, *keys: str, scope: tuple[str, ...] = ()) -> Any:
        made = table(column, name=name, kind=kind)
        frame = spark.createDataFrame([(key, 1) for key in keys], f"{column} STRING, n INT")
        made.write(frame, list(scope or keys), run_id=f"fill-{len(keys)}-{keys[:1]}")
        return made

    return write


def out(spark: SparkSession) -> dict[str, int]:
    rows = spark.read.format("delta").load(str(Path.cwd() / "out")).collect()
    return {row["day"]: row["n"] for row in rows}


GOOD = {"2024-01-01": 10, "2024-01-02": 20}


@pytest.mark.core
def test_a_day_whose_raw_day_never_arrived_clears_nothing(
    spark: SparkSession, runs: Runs, fill: Callable[..., Any]
) -> None:
    fill("raw", "day", "2024-01-01")
    result = runs("days", "2024-01-02")
    assert result.error is not None
    assert result.error.class_name == "InputMissingError"
    assert "needs for 2024-01-02 of test:raw" in result.error.message
    assert "on_missing = \"read\" in [[job.reads]] of 'raw'" in result.error.message
    assert not result.error.transient
    assert result.inputs[0].missing == ("2024-01-02",)
    assert result.to_dict()["inputs"][0]["missing"] == ["2024-01-02"]
    assert out(spark) == GOOD


def test_each_key_of_a_run_is_judged_by_itself(
    spark: SparkSession, runs: Runs, fill: Callable[..., Any]
) -> None:
    fill("raw", "day", "2024-01-01", "2024-01-04")
    result = runs("days", "2024-01-01..2024-01-04")
    assert result.error is not None
    assert "needs for 2024-01-02, 2024-01-03 of test:raw" in result.error.message
    assert out(spark) == GOOD


def test_a_part_that_was_never_written_is_warned_of_and_named(
    spark: SparkSession, runs: Runs, fill: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    fill("hours", "hour", *(f"2024-01-02T{hour:02}" for hour in range(22)))
    with caplog.at_level(logging.WARNING, "spark_runtime"):
        result = runs("hours", "2024-01-02")
    assert result.error is None
    assert result.inputs[0].missing == ("2024-01-02T22", "2024-01-02T23")
    assert "never written, and are read as empty: 2024-01-02T22, 2024-01-02T23" in caplog.text
    assert out(spark) == {**GOOD, "2024-01-02": 22}


@pytest.mark.parametrize(
    ("on_missing", "outcome"),
    [("guard", "needs for 2024-01-03"), ("fail", "never written: 2024-01-02T22"), ("read", None)],
)
def test_what_is_declared_decides(
    spark: SparkSession, runs: Runs, fill: Callable[..., Any], on_missing: str, outcome: str | None
) -> None:
    fill("hours", "hour", *(f"2024-01-02T{hour:02}" for hour in range(22)))
    result = runs("hours", "2024-01-02..2024-01-03", read=f'on_missing = "{on_missing}"')
    if outcome is None:
        assert result.error is None
        assert out(spark) == {"2024-01-01": 10, "2024-01-02": 22}
    else:
        assert result.error is not None
        assert outcome in result.error.message
        assert out(spark) == GOOD
    missing = result.inputs[0].missing
    assert missing is not None
    assert len(missing) == 26


def test_what_was_written_without_rows_is_not_missing(
    spark: SparkSession, runs: Runs, fill: Callable[..., Any]
) -> None:
    fill("raw", "day", "2024-01-01", scope=("2024-01-01", "2024-01-02"))
    result = runs("days", "2024-01-02")
    assert result.error is None
    assert result.inputs[0].missing == ()
    assert out(spark) == {"2024-01-01": 10}


def test_what_somebody_emptied_is_not_missing(
    spark: SparkSession, runs: Runs, fill: Callable[..., Any], kind: str
) -> None:
    made = fill("raw", "day", "2024-01-01", "2024-01-02")
    if kind == "delta":
        spark.sql(f"DELETE FROM delta.`{made.path}` WHERE day = '2024-01-02'")
    else:
        shutil.rmtree(Path(made.path) / "day=2024-01-02")
    result = runs("days", "2024-01-02")
    assert result.error is None
    assert out(spark) == {"2024-01-01": 10}


@pytest.mark.parametrize("kind", ["delta"])
@pytest.mark.parametrize("job", ["days", "whole"])
def test_a_table_that_does_not_exist_was_never_written(
    spark: SparkSession, runs: Runs, job: str
) -> None:
    result = runs(job, "2024-01-02")
    assert result.error is not None
    assert result.error.class_name == "InputMissingError"
    assert result.inputs[0].missing == (("2024-01-02",) if job == "days" else ("*",))
    assert out(spark) == GOOD


@pytest.mark.parametrize("kind", ["delta"])
def test_a_table_without_partitions_that_nothing_was_added_to_is_missing(
    spark: SparkSession, runs: Runs, tmp_path: Path
) -> None:
    place = str(tmp_path / "names")
    spark.sql(f"CREATE TABLE delta.`{place}` (name STRING) USING delta")
    result = runs("whole", "2024-01-02")
    assert result.error is not None
    assert out(spark) == GOOD
    spark.sql(f"INSERT INTO delta.`{place}` VALUES ('a')")
    spark.sql(f"DELETE FROM delta.`{place}`")
    assert runs("whole", "2024-01-02").error is None
    assert out(spark) == {**GOOD, "2024-01-02": 0}


@pytest.mark.parametrize(
    ("on_missing", "message"), [("guard", None), ("fail", "were never written: {}"), ("read", None)]
)
def test_all_existing_keys_of_an_input_are_required(
    spark: SparkSession,
    runs: Runs,
    fill: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    on_missing: str,
    message: str | None,
) -> None:
    fill("raw", "day", "2024-01-01", scope=("2024-01-01", "2024-01-04"))
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    lost = f"2024-01-02..2024-01-03, 2024-01-05..{yesterday}"
    read = f'mapping = "all"\non_missing = "{on_missing}"'
    with caplog.at_level(logging.WARNING, "spark_runtime"):
        result = runs("days", "2024-01-01", read=read)
    assert ", ".join(map(str, result.inputs[0].missing or ())) == lost
    if message is None:
        assert result.error is None
        assert (f"read as empty: {lost}" in caplog.text) is (on_missing == "guard")
    else:
        assert result.error is not None
        assert message.format(lost) in result.error.message
        assert out(spark) == GOOD


@pytest.mark.parametrize("on_missing", ["guard", "fail"])
@pytest.mark.parametrize("is_created", [True, False])
def test_all_of_an_input_that_nothing_was_written_to_is_missing(
    spark: SparkSession,
    runs: Runs,
    fill: Callable[..., Any],
    tmp_path: Path,
    on_missing: str,
    is_created: bool,
    kind: str,
) -> None:
    if is_created and kind == "delta":
        place = tmp_path / "raw"
        columns = "(day STRING, n INT) USING delta PARTITIONED BY (day)"
        spark.sql(f"CREATE TABLE delta.`{place}` {columns}")
    result = runs("days", "2024-01-01", read=f'mapping = "all"\non_missing = "{on_missing}"')
    assert result.error is not None
    assert "ever written" in result.error.message
    assert out(spark) == GOOD


@pytest.mark.parametrize("kind", ["delta"])
def test_an_input_that_is_read_whole_may_have_other_partition_columns(
    spark: SparkSession, runs: Runs, tmp_path: Path
) -> None:
    place = tmp_path / "raw"
    spark.sql(f"CREATE TABLE delta.`{place}` (day STRING, n INT) USING delta")
    read = 'mapping = "all"'
    result = runs("days", "2024-01-01", read=read)
    assert result.inputs[0].missing == ("*",)
    spark.sql(f"INSERT INTO delta.`{place}` VALUES ('2024-01-01', 3)")
    result = runs("days", "2024-01-01", read=read)
    assert result.error is None
    assert result.inputs[0].missing == ()
    assert out(spark) == {"2024-01-01": 3, "2024-01-02": 20}


@pytest.mark.core
@pytest.mark.parametrize("kind", ["delta"])
@pytest.mark.parametrize(
    ("began", "message"),
    [
        (datetime(2024, 1, 1, 12, tzinfo=UTC), "was ever written"),
        (datetime(2024, 2, 1, tzinfo=UTC), "is known to have been written: it is empty"),
    ],
)
def test_a_cleaned_log_stops_a_run_of_a_day_that_none_is_known_to_have_written(
    spark: SparkSession, runs: Runs, fill: Callable[..., Any], began: datetime, message: str
) -> None:
    """The day before the oldest commit is not known, the one after it was never written."""
    made = fill("raw", "day", "2024-01-01")
    spark.sql(f"ALTER TABLE delta.`{made.path}` SET TBLPROPERTIES (delta.checkpointInterval = 2)")
    for day in ("2024-01-03", "2024-01-04", "2024-01-05"):
        fill("raw", "day", day)
    log = Path(made.path) / "_delta_log"
    newest = max(int(one.name[:20]) for one in log.glob("*.checkpoint*.parquet"))
    for version in range(newest):
        (log / f"{version:020}.json").unlink()
        (log / f"{version:020}.crc").unlink(missing_ok=True)
    os.utime(log / f"{newest:020}.json", (began.timestamp(),) * 2)
    before = out(spark)
    result = runs("days", "2024-01-02..2024-01-03")
    assert result.error is not None
    assert message in result.error.message
    assert out(spark) == before
    result = runs("days", "2024-01-02..2024-01-03", read='on_missing = "read"')
    assert result.error is None
    known = (result.inputs[0].missing, result.inputs[0].unknown)
    assert known == ((("2024-01-02",), ()) if "ever" in message else ((), ("2024-01-02",)))


@pytest.mark.parametrize("kind", ["delta"])
@pytest.mark.parametrize(
    ("lag", "out_lag", "ago"), a_part([(0, -1, 0), (1, 0, 1), (5, 0, 1)], every=2)
)
def test_a_key_that_has_begun_is_read(
    spark: SparkSession, runs: Runs, fill: Callable[..., Any], lag: int, out_lag: int, ago: int
) -> None:
    day = (datetime.now(UTC) - timedelta(days=ago)).date().isoformat()
    fill("raw", "day", day)
    result = runs("days", day, lag=lag, out_lag=out_lag)
    assert result.error is None
    assert [one.key for one in result.inputs[0].partitions] == [day]
    assert out(spark) == {**GOOD, day: 1}
    assert runs("days", lag=lag, out_lag=out_lag).error is None  # the clock tells the same key
    assert out(spark) == {**GOOD, day: 1}


def test_many_thousand_keys_are_judged_at_once(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    from lineage_backfill.runspec.parse import parse_spec

    keys = [f"k{number:06}" for number in range(40_000)]
    made = table("k", name="many")
    made.write(spark.createDataFrame([("k000000", 1)], "k STRING, n INT"), ["k000000"])
    document = made.run_spec(["k000000"]).to_dict()
    document["inputs"] = [
        {
            **made.run_spec(keys).to_dict()["outputs"][0],
            "partitions": made.scope(keys),
            "needs": [[[number, number]] for number in range(40_000)],
            "version": made.version,
        }
    ]
    for name in ("scope", "mode", "on_empty", "on_drift"):
        del document["inputs"][0][name]
    document["keys"] = [{"key": key, "start": None, "end": None} for key in keys]
    spec = parse_spec(document)
    (source,) = spec.inputs
    log = Tables(spark).log(source)
    log.state()
    found = find_missing(source, log)
    problem = found.problem(spec.keys)
    assert len(found.never) == 39_999
    assert problem is not None
    assert "k000001, k000002, k000003, k000004, k000005 and 39,994 more" in problem.message


def test_missing_keys_of_a_product_are_ranges_of_its_time(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    days = [f"2024-01-{number:02}" for number in range(1, 10)]
    made = table("day", "region", name="sales")
    rows = [(day, "eu", 1) for day in days[:3]] + [(days[5], "us", 1)]
    frame = spark.createDataFrame(rows, "day STRING, region STRING, n INT")
    made.write(frame, [{"day": day, "region": region} for day, region, _ in rows])
    keys = [ProductKey({"day": day, "region": one}) for day in days for one in ("eu", "us")]
    target = made.run_spec([{"day": "2024-01-01", "region": "eu"}]).outputs[0]
    source = InputSpec(
        dataset=target.dataset,
        format="delta",
        columns=target.columns,
        location=target.location,
        partitions=None,
        version=made.version,
        required=tuple(Partition(key=key, values=key) for key in keys),
        along="day",
    )
    found = find_missing(source, Tables(spark).log(source))
    assert found.keys(found.never) == (
        {"region": "us", "day": "2024-01-01..2024-01-05"},
        {"region": "us", "day": "2024-01-07..2024-01-09"},
        {"region": "eu", "day": "2024-01-04..2024-01-09"},
    )
    (warning,) = found.warnings()
    assert ": day=2024-01-01..2024-01-05/region=us, day=2024-01-07..2024-01-09/region=us" in warning
