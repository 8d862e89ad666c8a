"""Jobs and scripts under their ordinary schedule, without a backfill: same reads, same writes."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.errors import BackfillError
from lineage_backfill.runspec.values import RunResult
from spark_runtime import RunContext
from spark_runtime.configuration import load_project
from spark_runtime.errors import EntrypointError, InputMissingError, NothingToRunError
from spark_runtime.job import script
from spark_runtime.job.decorator import load_job
from spark_runtime.job.runner import run
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from spark_runtime.read.reader import Inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_runtime.tables.tables import Tables

PROJECT = """
[project]
namespace = "test"

[lineage]
outbox = "outbox"

[[dataset]]
name = "hours"
grain = "hour"
start = "2024-01-01T00"
columns = { hour = "%Y-%m-%dT%H" }
location = "hours"

[[dataset]]
name = "days"
grain = "day"
start = "2024-01-01"
column = "day"
location = "days"

[[job]]
name = "scripted"
entrypoint = "scripted.py"

[[job.reads]]
dataset = "hours"

[[job.writes]]
dataset = "days"

[[job]]
name = "bare"
entrypoint = "bare.sql"

[[job.reads]]
dataset = "hours"

[[job.writes]]
dataset = "days"
"""

JOBS = """
from pyspark.sql import DataFrame, functions as F
from spark_runtime import all_partitions, job

DAY = F.substring("hour", 1, 10).alias("day")

@job(inputs={"hours": "hours"}, output="days", batch="range")
def days(hours: DataFrame) -> DataFrame:
    return hours.groupBy(DAY).agg(F.sum("n").alias("n"))

@job(inputs={"hours": all_partitions("hours")}, output="days")
def share(hours: DataFrame, backfill_key: str) -> DataFrame:
    return hours.groupBy(F.lit(backfill_key).alias("day")).agg(F.sum("n").alias("n"))
"""

SCRIPT = """
import sys
from pyspark.sql import functions as F
from spark_runtime import read, run_context, write_partitions

run = run_context("scripted")
print("asked for", [key.key for key in run.keys], sys.argv[1:])
hours = read("hours")
if run.parameters.get("leave"):
    sys.exit()
day = F.substring("hour", 1, 10).alias("day")
write_partitions(hours.groupBy(day).agg(F.sum("n").alias("n")), "days")
"""


QUERY = """
--@ inputs = { h = "hours" }
--@ output = "days"
--@ batch = "range"
SELECT day, sum(n) AS n
FROM (SELECT substr(hour, 1, 10) AS day, n FROM h)  -- a view, by the name given above
GROUP BY day
"""

BARE_QUERY = """
-- What it reads and writes is declared in the project file.
SELECT :backfill_key AS day, count(*) AS n FROM hours
WHERE to_timestamp(hour, "yyyy-MM-dd'T'HH") BETWEEN :start AND :end AND n >= :least
"""


@pytest.fixture
def project(
    tmp_path: Path,
    spark: SparkSession,
    table: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    (tmp_path / "lineage-backfill.toml").write_text(PROJECT)
    (tmp_path / "jobs_of_test.py").write_text(JOBS)
    (tmp_path / "scripted.py").write_text(SCRIPT)
    (tmp_path / "query.sql").write_text(QUERY)
    (tmp_path / "bare.sql").write_text(BARE_QUERY)
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    keys = [f"2024-01-0{day}T{hour:02}" for day in (1, 2) for hour in (0, 1)]
    frame = spark.createDataFrame([(key, 1) for key in keys], "hour STRING, n INT")
    table("hour", name="hours").write(frame, keys, run_id="r-0")
    yield tmp_path
    sys.modules.pop("jobs_of_test", None)
    script._running.clear()


def ordinary(
    spark: SparkSession, tables: Tables, entrypoint: str, *keys: str, **asked: Any
) -> RunResult:
    project, job = load_project(Path()), load_job(entrypoint)
    declared = declare(
        project, entrypoint, entrypoint=entrypoint, reads=job.reads, writes=job.writes
    )
    (spec,) = run_specs(declared, project, StartRequest(keys=keys, **asked), datetime.now(UTC))
    return run(spark, spec, tables)


def days(spark: SparkSession) -> list[tuple[Any, ...]]:
    frame = spark.read.format("delta").load(str(Path.cwd() / "days"))
    return sorted(tuple(row) for row in frame.collect())


def events() -> list[dict[str, Any]]:
    files = Path("outbox").glob("*.ndjson")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.core
def test_a_job_runs_as_a_planned_one_does(
    spark: SparkSession, tables: Tables, project: Path
) -> None:
    result = ordinary(spark, tables, "jobs_of_test:days", "2024-01-02")
    assert result.error is None
    assert days(spark) == [("2024-01-02", 2)]
    (read,) = result.inputs
    assert [part.key for part in read.partitions] == [f"2024-01-02T{h:02}" for h in range(24)]
    start, complete = events()
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    facets = complete["run"]["facets"]
    assert facets["lineageBackfill_run"]["keys"] == ["2024-01-02"]
    assert "backfillId" not in facets["lineageBackfill_run"]
    assert facets["nominalTime"]["nominalStartTime"] == "2024-01-02T00:00:00Z"
    (written,) = complete["outputs"]
    assert written["facets"]["lineageBackfill_partitioning"]["grain"] == "day"
    assert written["name"] == "days"


def test_a_job_may_read_every_partition(spark: SparkSession, tables: Tables, project: Path) -> None:
    result = ordinary(spark, tables, "jobs_of_test:share", "2024-01-02")
    assert days(spark) == [("2024-01-02", 4)]
    (read,) = result.inputs
    assert len(read.partitions) == 4
    (input_,) = events()[1]["inputs"]
    assert "subset" not in input_.get("inputFacets", {})


def test_what_is_read_is_pruned_unless_it_is_asked_not_to_be(
    spark: SparkSession, tables: Tables, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    declared = declare(load_project(project), "scripted")
    (spec,) = run_specs(
        declared, load_project(project), StartRequest(keys=["2024-01-02"]), datetime.now(UTC)
    )
    inputs = Inputs(spark, spec.inputs, tables)

    def filters(**options: bool) -> str:
        frame = inputs.read("hours", **options)
        assert frame is not None
        return str(frame._jdf.queryExecution().executedPlan())

    assert "PartitionFilters: [hour" in filters()
    with caplog.at_level(logging.WARNING, "spark_runtime"):
        assert "PartitionFilters: []" in filters(auto_filter=False)
    assert "input test:hours is not filtered to the partitions of the run: filter it by hour" in (
        caplog.text
    )
    # Who filters for himself still needs only what the run needs; who reads all needs all.
    assert len(inputs.results()[0].partitions) == 24
    assert "PartitionFilters: []" in filters(all_partitions=True)
    assert len(inputs.results()[0].partitions) == 4


def test_a_script_finds_its_own_partitions(
    spark: SparkSession,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(EntrypointError, match="has no run"):
        script.read("hours")
    context = script.run_context(
        "scripted", arguments=["--backfill_key=2024-01-01", "own", "--arguments"], spark=spark
    )
    assert script.run_context("scripted") is context  # there is one run in a process
    assert context.key == "2024-01-01"
    assert context.interval[0] == datetime(2024, 1, 1, tzinfo=UTC)
    hours = script.read("hours")
    assert hours is not None
    result = script.write_partitions(hours.selectExpr("substr(hour, 1, 10) AS day", "n"))
    assert [part.rows for part in result.partitions] == [2]
    assert [event["eventType"] for event in events()] == ["START", "COMPLETE"]
    assert context.result is not None
    assert context.result.state == "succeeded"


def test_a_script_that_raises_or_leaves_an_output_unwritten_has_failed(
    spark: SparkSession, project: Path
) -> None:
    arguments = ["--backfill-key", "2024-01-01"]

    def give_up() -> None:
        with script.run_context("scripted", arguments=arguments, spark=spark) as run:
            run.read("hours")
            raise ValueError("no such luck")

    def forget() -> None:
        with script.run_context("scripted", arguments=arguments, spark=spark):
            pass

    with pytest.raises(ValueError, match="no such luck"):
        give_up()
    with pytest.raises(EntrypointError, match="ended without writing test:days"):
        forget()
    context = script.run_context("scripted", arguments=arguments, spark=spark)
    script._left(context._attempt)  # what happens when the process ends
    fails = [event for event in events() if event["eventType"] == "FAIL"]
    said = [event["run"]["facets"]["errorMessage"]["message"] for event in fails]
    assert [text.split(". ")[0] for text in said] == [
        "no such luck",
        "scripted.py ended without writing test:days",
        "scripted.py ended without writing test:days",
    ]


def test_a_notebook_begins_another_run_where_it_asks_for_one(
    spark: SparkSession, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(day: str) -> RunContext:
        return script.run_context("scripted", arguments=["--backfill-key", day], spark=spark)

    first = begin("2024-01-01")
    assert begin("2024-01-01") is first
    assert script.run_context() is first
    second = begin("2024-01-02")
    assert second.key == "2024-01-02"
    assert first.result is not None
    assert first.result.error is not None
    assert "began another run" in first.result.error.message
    # A cell fails, and is run again: its inputs are pinned anew.
    error = ValueError("a cell failed")
    monkeypatch.setattr("sys.last_value", error, raising=False)
    third = begin("2024-01-02")
    assert third is not second
    assert second.result is not None
    assert second.result.error is not None
    assert second.result.error.message == "a cell failed"
    assert begin("2024-01-02") is third  # nothing has failed since
    with pytest.raises(InputMissingError):  # no arguments are other ones: by the clock
        script.run_context("scripted", arguments=[], spark=spark)
    assert third.result is not None
    assert [one["eventType"] for one in events()].count("FAIL") == 4


def test_a_request_that_is_refused_leaves_the_run_as_it_is(
    spark: SparkSession, project: Path
) -> None:
    first = script.run_context("scripted", arguments=["--backfill-key=2024-01-01"], spark=spark)
    with pytest.raises(BackfillError, match="1999-01-01 does not exist"):
        script.run_context("scripted", arguments=["--backfill-key=1999-01-01"], spark=spark)
    assert first.result is None
    assert script.run_context("scripted") is first
    first.abandon()


def test_a_script_that_has_nothing_to_do_says_so(spark: SparkSession, project: Path) -> None:
    arguments = ["--data-interval-start", "2024-01-01T01:00Z"]
    arguments += ["--data_interval_end=2024-01-01T02:00+00:00"]
    with pytest.raises(NothingToRunError, match="no key of the run's calendar became complete"):
        script.run_context("scripted", arguments=arguments, spark=spark)


@pytest.mark.parametrize("leave", [False, True])
def test_a_backfill_runs_the_same_script(
    spark: SparkSession,
    tables: Tables,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    leave: bool,
) -> None:
    (declared,) = run_specs(
        declare(load_project(project), "scripted"),
        load_project(project),
        StartRequest(keys=["2024-01-01", "2024-01-02"], parameters={"leave": leave}),
        datetime.now(UTC),
    )
    result = run(spark, declared, tables)
    assert "asked for ['2024-01-01', '2024-01-02'] []" in capsys.readouterr().out
    if leave:
        assert result.error is not None
        assert "ended without writing test:days" in result.error.message
        assert not (project / "days").exists()
    else:
        assert result.state == "succeeded"
        assert days(spark) == [("2024-01-01", 2), ("2024-01-02", 2)]


def test_a_query_is_a_job(spark: SparkSession, tables: Tables, project: Path) -> None:
    result = ordinary(spark, tables, "query.sql", "2024-01-01", "2024-01-02")
    assert result.error is None
    assert days(spark) == [("2024-01-01", 2), ("2024-01-02", 2)]
    assert spark.sql("SHOW VIEWS").where("isTemporary").collect() == []


def test_a_query_may_leave_its_edges_to_the_project_file_and_ask_for_its_key(
    spark: SparkSession, tables: Tables, project: Path
) -> None:
    result = ordinary(spark, tables, "bare.sql", "2024-01-02", parameters={"least": 1})
    assert result.error is None
    assert days(spark) == [("2024-01-02", 2)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("DROP TABLE days", "not a single query"),
        ("SELECT 1 AS n; DROP TABLE days", "not a single query"),
        ("INSERT INTO hours SELECT * FROM hours", "not a single query"),
    ],
)
def test_a_file_of_sql_that_is_no_query_changes_nothing(
    spark: SparkSession, tables: Tables, project: Path, text: str, complaint: str
) -> None:
    (project / "bare.sql").write_text(text)
    result = ordinary(spark, tables, "bare.sql", "2024-01-02")
    assert result.error is not None
    assert result.error.class_name == "EntrypointError"
    assert complaint in result.error.message
