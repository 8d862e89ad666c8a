"""Events in the logs of programs: each is found after its logger's prefix, or refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import LineageError
from lineage_backfill.sources.events import EventSource


def made(job: str) -> dict[str, Any]:
    facets = {"spark_properties": {"properties": {"spark.app.name": "{load}"}}}
    return {
        "eventTime": "2024-01-01T00:00:00Z",
        "producer": "https://example.org",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
        "eventType": "COMPLETE",
        "run": {"runId": job, "facets": facets},
        "job": {"namespace": "n", "name": job},
        "inputs": [],
        "outputs": [{"namespace": "n", "name": job}],
    }


ONE, TWO = json.dumps(made("one"), separators=(",", ":")), json.dumps(made("two"))
#: What Spark reports of a stream, over several lines: no event of ours.
PROGRESS = '{\n  "runId" : "7",\n  "eventTime" : {\n    "avg" : "2024-01-01T00:00:00Z"\n  }\n}\n'
LOGS = {
    "log4j of Spark": (
        "24/06/15 10:00:00 INFO SparkContext: Running Spark version 3.5.1\n"
        f"24/06/15 10:00:01 INFO ConsoleTransport: {ONE}\n"
        "24/06/15 10:00:02 WARN TaskSetManager: Lost task {0.0} in stage 1.0\n"
        "java.lang.IllegalStateException: no\n\tat org.apache.spark.Main.run(Main.java:7)\n"
        f"24/06/15 10:00:03 INFO ConsoleTransport: {TWO}\n"
    ),
    "log4j of a Databricks driver": (
        "24/06/15 10:00:00 INFO DriverDaemon$: Started Log4j2\n"
        f"24/06/15 10:00:00 INFO MicroBatchExecution: Streaming query made progress: {PROGRESS}"
        f"24/06/15 10:00:01 INFO ConsoleTransport: {ONE}\r\n"
        f"24/06/15 10:00:01 INFO ConsoleTransport: {TWO}\r\n"
    ),
    "Python's logging": (
        "DEBUG:openlineage.client.transport:Constructing a transport\n"
        f"INFO:openlineage.client.transport.console:{ONE}\n"
        f"2024-06-15 10:00:01,123 - openlineage - INFO - {TWO}"
    ),
    "a task of Airflow": (
        "[2024-06-15T10:00:00.000+0000] {taskinstance.py:1308} INFO - Starting attempt 1 of 1\n"
        f"[2024-06-15T10:00:01.000+0000] {{console.py:29}} INFO - {ONE}\n"
        f"[2024-06-15T10:00:02.000+0000] {{console.py:29}} INFO - {TWO}\n"
    ),
    "a task of Airflow 3": "".join(
        json.dumps({"timestamp": "2024-06-15T10:00:00Z", "level": "info", "event": text}) + "\n"
        for text in ("DAG bundles loaded: dags", ONE, f"sent {TWO}")
    ),
    "a container": "".join(
        json.dumps({"log": text + "\n", "stream": "stdout"}) + "\n"
        for text in ("starting", ONE, f"INFO {TWO}")
    ),
    "journald": "".join(
        json.dumps({"MESSAGE": text, "PRIORITY": "6"}) + "\n" for text in ("starting", ONE, TWO)
    ),
    "Google Cloud": "".join(
        json.dumps({"severity": "INFO", "jsonPayload": payload}) + "\n"
        for payload in ({"message": "starting"}, {"message": f"INFO {ONE}"}, json.loads(TWO))
    ),
}


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("name", ["driver.log", "driver.log.gz", "stdout"])
def test_events_in_a_log_are_read(kind: str, name: str, tmp_path: Path) -> None:
    file, text = tmp_path / name, LOGS[kind].encode()
    file.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    snapshot = EventSource([file]).read()
    assert [ref.name for ref in snapshot.jobs] == ["one", "two"]


@pytest.mark.parametrize("cut", [1, 20, 150])
@pytest.mark.parametrize("end", ["", "\n24/06/15 10:00:02 INFO SparkContext: stopped\n"])
def test_an_event_that_is_cut_off_in_a_log_is_an_error(cut: int, end: str, tmp_path: Path) -> None:
    file = tmp_path / "driver.log"
    file.write_text(f"24/06/15 INFO Main: x\n24/06/15 INFO ConsoleTransport: {TWO[:-cut]}{end}")
    with pytest.raises(LineageError, match=r"driver\.log:2: not JSON: the line names an event"):
        EventSource([file]).read()


def test_a_damaged_file_of_events_is_no_log(tmp_path: Path) -> None:
    for name, text in (("a.ndjson", f"x {ONE}\n{TWO}\n"), ("b.log", f"{ONE}\nx\n{TWO}\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(LineageError, match="not JSON"):
            EventSource([tmp_path / name]).read()
