"""A whole run: inputs pinned and pruned, job called, output written, lineage and result left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.sources.events import EventSource
from spark_runtime import worker
from spark_runtime.errors import EntrypointError
from spark_runtime.job.runner import run
from spark_runtime.session import JARS_VARIABLE, find_jars, jars_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from spark_runtime.tables.tables import Tables

PIPELINE = """
import time

from pyspark.sql import DataFrame, functions as F
from spark_runtime import RunContext, job

@job(inputs={"hours": "hours", "names": "test:names"}, output="days", batch="range")
def days(hours: DataFrame, names: DataFrame | None, context: RunContext) -> DataFrame:
    print("a job may print", [key.key for key in context.keys], names)
    if context.parameters.get("look"):
        found = context.spark.catalog.listTables()
        print("views", [one.name for one in found if one.isTemporary])
    if context.parameters.get("leave"):
        context.spark.range(1).createOrReplaceTempView("left")
    if context.parameters.get("fail"):
        raise ValueError("as asked")
    if context.parameters.get("hang"):
        context.spark.range(1).foreach(lambda row: time.sleep(300))
    return hours.groupBy(F.substring("hour", 1, 10).alias("day")).agg(F.sum("n").alias("n"))

def versions(spark, path):
    return spark.read.format("delta").load(path).count()
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"pipeline_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(PIPELINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.fixture
def hours(spark: SparkSession, table: Callable[..., Any]) -> Any:
    made = table("hour", name="hours")
    keys = [f"2024-01-0{day}T{hour:02}" for day in (1, 2) for hour in range(3)]
    frame = spark.createDataFrame([(key, 1) for key in keys], "hour STRING, n INT")
    made.write(frame, keys, run_id="r-0")
    return made


def spec(hours: Any, pipeline: str, **changes: Any) -> dict[str, Any]:
    folder = Path(hours.path).parent
    document: dict[str, Any] = {
        "schema_version": 1,
        "backfill_id": "b-1",
        "run_id": "r-1",
        "attempt": 1,
        "token": "t-1",
        "job": {"namespace": "test", "name": "days", "entrypoint": f"{pipeline}:days"},
        "partitions": ["2024-01-01"],
        "keys": [
            {"key": "2024-01-01", "start": "2024-01-01T00:00:00Z", "end": "2024-01-02T00:00:00Z"}
        ],
        "outputs": [
            {
                "dataset": {"namespace": "test", "name": "days"},
                "format": "delta",
                "location": str(folder / "days"),
                "columns": ["day"],
                "scope": [{"key": "2024-01-01", "values": {"day": "2024-01-01"}}],
                "mode": "overwrite",
                "on_empty": "clear",
            }
        ],
        "inputs": [
            {
                "dataset": {"namespace": "test", "name": "hours"},
                "format": "delta",
                "location": hours.path,
                "columns": ["hour"],
                "partitions": hours.scope([f"2024-01-01T{hour:02}" for hour in range(3)]),
                "version": None,
            },
            {
                "dataset": {"namespace": "test", "name": "names"},
                "format": "delta",
                "location": str(folder / "names"),
                "columns": [],
                "partitions": [],
                "version": None,
            },
        ],
        "parameters": {},
        "lineage": {
            "outbox": str(folder / "outbox"),
            "url": None,
            "facets": {
                "job": {"partitioning": {"grain": "day"}},
                "datasets": [
                    {
                        "dataset": {"namespace": "test", "name": "hours"},
                        "partitioning": {"grain": "hour"},
                    }
                ],
            },
        },
        "result_path": str(folder / "result.json"),
    }
    return document | changes


def events(hours: Any) -> list[dict[str, Any]]:
    files = (Path(hours.path).parent / "outbox").glob("*.ndjson")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.core
def test_a_run_leaves_its_result_and_its_lineage(
    spark: SparkSession, tables: Tables, hours: Any, pipeline: str
) -> None:
    document = spec(hours, pipeline)
    run(spark, parse_spec(document), tables)
    result = json.loads(Path(document["result_path"]).read_text())
    assert result["state"] == "succeeded"
    assert result["error"] is None
    (output,) = result["outputs"]
    (part,) = output["partitions"]
    assert (part["key"], part["rows_before"], part["rows"]) == ("2024-01-01", 0, 1)
    read, unread = result["inputs"]
    assert read["version"] == 1
    assert [p["key"] for p in read["partitions"]] == [f"hour=2024-01-01T{h:02}" for h in range(3)]
    assert all(p["fingerprint"].startswith("lb2:") for p in read["partitions"])
    assert not any("values" in p for p in read["partitions"])
    assert unread == {
        "dataset": {"namespace": "test", "name": "names"},
        "version": None,
        "partitions": [],
    }

    start, complete = events(hours)
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    for event in (start, complete):
        assert [d["name"] for d in event["inputs"]] == ["hours", "names"]
        assert [d["name"] for d in event["outputs"]] == ["days"]
        assert "parent" not in event["run"]["facets"]
        facets = event["run"]["facets"]
        assert facets["nominalTime"]["nominalStartTime"] == "2024-01-01T00:00:00Z"
        assert facets["lineageBackfill_run"]["backfillId"] == "b-1"
        assert event["job"]["facets"]["jobType"]["jobType"] == "JOB"
        assert event["job"]["facets"]["lineageBackfill_partitioning"]["grain"] == "day"
        condition = event["inputs"][0]["inputFacets"]["subset"]["inputCondition"]
        assert len(condition["partitions"]) == 3
        assert event["inputs"][0]["facets"]["version"]["datasetVersion"] == "1"
        assert event["inputs"][0]["facets"]["lineageBackfill_partitioning"]["grain"] == "hour"
    written = complete["outputs"][0]
    assert [f["name"] for f in written["facets"]["schema"]["fields"]] == ["day", "n"]
    columns = written["facets"]["columnLineage"]["fields"]
    made_from = {
        name: [one["field"] for one in said["inputFields"]] for name, said in columns.items()
    }
    assert made_from == {"day": ["hour"], "n": ["n"]}
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 1


def test_a_job_that_raises_leaves_a_result_an_event_and_the_old_rows(
    spark: SparkSession, tables: Tables, hours: Any, pipeline: str
) -> None:
    document = spec(hours, pipeline, parameters={"fail": True})
    result = run(spark, parse_spec(document), tables)
    assert result.state == "failed"
    written = json.loads(Path(document["result_path"]).read_text())
    assert written["error"] == {"class": "ValueError", "message": "as asked", "transient": False}
    assert not (Path(hours.path).parent / "days").exists()
    _start, fail = events(hours)
    assert fail["eventType"] == "FAIL"
    assert fail["run"]["facets"]["errorMessage"]["message"] == "as asked"
    assert [d["name"] for d in fail["inputs"]] == ["hours", "names"]


def test_what_is_read_whole_is_told_by_the_values_of_its_partitions(
    spark: SparkSession, tables: Tables, hours: Any, pipeline: str
) -> None:
    """A run that is told no keys cannot name them; whoever compares contents finds them so."""
    from spark_runtime.read.reader import Inputs

    told, _ = parse_spec(spec(hours, pipeline)).inputs
    whole = replace(told, partitions=None, columns=("HOUR",))
    (read,) = Inputs(spark, (whole,), tables).results()
    held = tables.state(told)
    assert held is not None
    assert len(read.partitions) == len(held.partitions) >= 3
    for part in read.partitions:
        assert part.values is not None
        assert part.fingerprint == held.contents((part.values["HOUR"],)).fingerprint is not None


def test_inputs_are_pruned_and_stay_at_their_version(
    spark: SparkSession, tables: Tables, hours: Any, pipeline: str
) -> None:
    from spark_runtime.read.reader import Inputs

    inputs = Inputs(spark, parse_spec(spec(hours, pipeline)).inputs, tables)
    frame = inputs.read("hours")
    assert frame is not None
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [hour" in plan
    hours.write(spark.createDataFrame([], "hour STRING, n INT"), ["2024-01-01T00"])
    assert len(hours.rows()) == 5
    assert frame.count() == 3
    assert inputs.rows() == 3  # by the logs; the other input does not exist
    inputs.read("hours", auto_filter=False)
    assert inputs.rows() is None  # the job reads what it likes
    assert Inputs(spark, (), tables).rows() is None


def test_a_part_of_a_partition_is_read_only_by_a_job_that_filters_rows(
    spark: SparkSession, tables: Tables, hours: Any, pipeline: str
) -> None:
    from spark_runtime.read.reader import Inputs

    told, other = parse_spec(spec(hours, pipeline)).inputs
    mixed = replace(told, mixed="2024-01-01T00 and 2024-01-01T05")
    inputs = Inputs(spark, (mixed, other), tables)
    with pytest.raises(
        EntrypointError, match="2024-01-01T00 and 2024-01-01T05 of input test:hours"
    ):
        inputs.read("hours")
    for options in ({"auto_filter": False}, {"all_partitions": True}):
        frame = inputs.read("hours", **options)
        assert frame is not None
        assert frame.count() == 6


def test_a_missing_input_and_a_wrong_entrypoint_are_named(
    spark: SparkSession, tables: Tables, hours: Any, pipeline: str
) -> None:
    document = spec(hours, pipeline)
    document["inputs"][1]["columns"] = ["name"]
    document["inputs"][1]["partitions"] = [{"key": "a", "values": {"name": "a"}}]
    result = run(spark, parse_spec(document), tables)
    assert result.error is not None
    assert result.error.class_name == "InputMissingError"
    assert "test:names" in result.error.message
    document = spec(hours, pipeline)
    document["job"]["entrypoint"] = f"{pipeline}:versions"
    result = run(spark, parse_spec(document), tables)
    assert result.error is not None
    assert result.error.class_name == "EntrypointError"


def test_a_vacuumed_file_of_an_input_is_named_with_what_to_do(
    spark: SparkSession, tables: Tables, hours: Any, pipeline: str
) -> None:
    gone, *_ = Path(hours.path).glob("hour=2024-01-01T01/*.parquet")
    gone.unlink()
    result = run(spark, parse_spec(spec(hours, pipeline)), tables)
    assert result.error is not None
    assert result.error.class_name == "InputMissingError"
    assert result.error.message == (
        f"file:{gone} is missing, and the version to read needs it. It was vacuumed or"
        " deleted: plan again to read the newest version, or restore it."
    )


def test_a_place_that_is_no_table_fails_the_run_and_still_leaves_a_result(
    spark: SparkSession, tables: Tables, hours: Any, pipeline: str, tmp_path: Path
) -> None:
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "part-0.parquet").touch()
    document = spec(hours, pipeline)
    result = run(spark, parse_spec(document), tables)
    assert result.error is not None
    assert result.error.class_name == "TableError"
    assert json.loads(Path(document["result_path"]).read_text())["state"] == "failed"
    assert [event["eventType"] for event in events(hours)] == ["START", "FAIL"]


@dataclass(frozen=True)
class Heard:
    """OpenLineage's own listener, which tells its events to a file."""

    file: Path

    @property
    def conf(self) -> tuple[str, ...]:
        transport = "spark.openlineage.transport"
        where = (f"{transport}.type=file", f"{transport}.location={self.file}")
        return ("spark.lineageBackfill.listener=true", *where)

    def changes_nothing(self, outbox: Path) -> None:
        """Assert that its events are there, and that lineage is the same with and without them."""
        ended = [json.loads(line) for line in self.file.read_text().splitlines()]
        assert any("days" in out["name"] for one in ended for out in one["outputs"])
        alone = EventSource([outbox]).read()
        both = EventSource([outbox, self.file]).read()
        assert alone.jobs
        assert (both.jobs, both.datasets) == (alone.jobs, alone.datasets)


def listen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Heard:
    jars = [*find_jars(), *(jars_folder() / "listener").glob("*.jar")]
    assert len(jars) == 3, "scripts/fetch-jars --listener fetches it"
    monkeypatch.setenv(JARS_VARIABLE, os.pathsep.join(map(str, jars)))
    return Heard(folder / "heard.ndjson")


def test_a_list_does_each_run_in_a_session_of_its_own_whatever_the_others_did(
    hours: Any, pipeline: str, tmp_path: Path
) -> None:
    runs = []
    for number, parameters in enumerate(({"leave": 1}, {"fail": 1}, {}), start=1):
        asked = {"look": 1, **parameters}
        made = spec(hours, pipeline, parameters=asked, token=f"t.{number}")
        runs.append({**made, "run_id": f"r-{number}", "result_path": f"{tmp_path}/{number}.json"})
    (tmp_path / "list.json").write_text(json.dumps({"token": "t", "runs": runs}))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "spark_runtime", "run", "--spec", str(tmp_path / "list.json")),
            *("--project", str(tmp_path), "--conf", "spark.master=local[1]"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    results = [json.loads((tmp_path / f"{number}.json").read_text()) for number in (1, 2, 3)]
    assert [one["state"] for one in results] == ["succeeded", "failed", "succeeded"], done.stderr
    assert [one["token"] for one in results] == ["t.1", "t.2", "t.3"]
    assert results[1]["error"]["message"] == "as asked"
    assert done.stdout.count("views []") == 3, "what the first run left is gone"


def test_a_worker_collects_the_garbage_of_many_runs(
    spark: SparkSession, hours: Any, pipeline: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_collections() -> int:
        jvm: Any = spark._jvm
        beans = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
        return sum(b.getCollectionCount() for b in beans if b.getName() == "MarkSweepCompact")

    monkeypatch.setattr(worker, "run", lambda *_: SimpleNamespace(state="succeeded"))
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec(hours, pipeline)))
    one, before = worker.Worker(spark), full_collections()
    for _number in range(100):
        request = {"op": "run", "spec": str(file)}
        assert one.answer(json.dumps(request))["state"] == "succeeded"
    assert full_collections() - before >= 2


def test_a_worker_serves_many_requests_and_survives_a_job_that_raises(
    hours: Any, pipeline: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = listen(tmp_path, monkeypatch)

    def request(number: int, **changes: Any) -> dict[str, Any]:
        file = tmp_path / f"{number}.json"
        named = {"token": f"t-{number}", "run_id": f"r-{number}"}
        file.write_text(json.dumps(spec(hours, pipeline, **named, **changes)))
        return {"op": "run", "spec": str(file)}

    reading, writing = os.pipe()
    command = [sys.executable, "-m", "spark_runtime", "worker", "--reply-fd", str(writing)]
    command += ["--project", str(tmp_path), "--conf", "spark.master=local[1]"]
    command += [part for setting in heard.conf for part in ("--conf", setting)]
    call = {"op": "call", "entrypoint": f"{pipeline}:versions"}
    requests = [
        request(1, parameters={"fail": 1}),
        request(2),
        {"op": "run", "spec": str(tmp_path / "none.json")},
        call | {"arguments": {"path": hours.path}},
        request(5, parameters={"hang": 1}),
    ]
    printed = tmp_path / "printed"
    with printed.open("w") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            text=True,
        )
    os.close(writing)
    assert process.stdin is not None
    with os.fdopen(reading) as stream:
        for one in requests:
            print(json.dumps(one), file=process.stdin, flush=True)
        ready, first, second, third, fourth = [json.loads(stream.readline()) for _ in range(5)]
        while not any(
            e["run"]["facets"]["lineageBackfill_run"]["runId"] == "r-5" for e in events(hours)
        ):
            assert process.poll() is None, printed.read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)  # as a run is cancelled
        assert stream.readline() == ""
    process.stdin.close()
    assert process.wait(60) == 128 + signal.SIGTERM, printed.read_text()
    assert ready["op"] == "ready"
    assert ready["application"].startswith("local-")
    result_path = spec(hours, pipeline)["result_path"]
    assert first == {"op": "finished", "state": "failed", "result_path": result_path}
    assert second == {"op": "finished", "state": "succeeded", "result_path": result_path}
    assert (third["op"], third["error"]["class"]) == ("raised", "SpecError")
    assert fourth == {"op": "returned", "value": 6}
    assert "a job may print ['2024-01-01'] None" in printed.read_text()
    kinds = [event["eventType"] for event in events(hours)]
    assert kinds == ["START", "FAIL", "START", "COMPLETE", "START", "ABORT"]
    message = events(hours)[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "stopped by signal 15"
    heard.changes_nothing(Path(hours.path).parent / "outbox")
