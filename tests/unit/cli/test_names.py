"""Names of jobs and prints of user code, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lineage_backfill.cli.main import main
from tests.events import event, write_events

PROJECT = """
[project]
namespace = "shop"
[lineage]
events = ["events.ndjson"]
[[dataset]]
name = "*"
namespace = "*"
grain = "day"
start = "2024-06-01"
"""


@pytest.mark.parametrize("job", ["shop:daily", "daily"])
def test_the_namespace_of_the_change_does_not_bind_the_job_that_is_explained(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    one = event("daily", [], ["totals"])
    one["inputs"] = [{"namespace": "dbfs", "name": "/raw"}]
    write_events(tmp_path / "events.ndjson", one)
    (tmp_path / "lineage-backfill.toml").write_text(PROJECT)
    change = ["impact", "/raw", "--namespace", "dbfs", "--partitions", "2024-06-05"]
    assert main([*change, "--now", "2024-06-20T00:00:00Z", "--why", f"{job}@2024-06-05"]) == 0
    assert "daily" in capsys.readouterr().out


def test_what_a_mapping_function_prints_is_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_events(tmp_path / "events.ndjson", event("daily", ["raw"], ["regions"]))
    (tmp_path / "loud_maps.py").write_text(
        "print('imported')\ndef newest(key):\n    print('called', key)\n    return ['2024-06-19']\n"
    )
    (tmp_path / "lineage-backfill.toml").write_text(
        PROJECT
        + '[[dataset]]\nname = "regions"\nkeys = ["eu", "us"]\n[[job]]\nname = "daily"\n'
        + '[[job.reads]]\ndataset = "raw"\nmapping = "python"\nfunction = "loud_maps:newest"\n'
    )
    change = ["impact", "raw", "--partitions", "2024-06-19", "--now", "2024-06-20T12:00:00Z"]
    assert main([*change, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["totals"]["partitions"] == 2
    assert "imported" in printed.err
    assert "called eu" in printed.err


def test_a_spark_job_that_builds_on_its_own_table_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    one = event("total", ["weeks", "totals"], ["totals"])
    kind = {"processingType": "BATCH", "integration": "SPARK", "jobType": "JOB"}
    one["job"]["facets"] = {"jobType": {"_producer": "urn:x", "_schemaURL": "urn:x", **kind}}
    write_events(tmp_path / "events.ndjson", one)
    assert main(["graph", "--json", "--events", "events.ndjson"]) == 0
    graph = json.loads(capsys.readouterr().out)
    ids = {(node["kind"], node["name"]): node["id"] for node in graph["nodes"]}
    assert {"from": ids["job", "total"], "to": ids["dataset", "totals"]} in graph["edges"]
