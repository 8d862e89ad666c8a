"""What became of an attempt that died after its commit is told by the tables' logs alone."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.runspec.parse import parse_spec
from spark_runtime.__main__ import main
from spark_runtime.errors import RuntimeFailure
from spark_runtime.tables.scope import Scope
from spark_runtime.tables.tables import Tables
from spark_runtime.tables.values import PartitionColumn
from spark_runtime.write.reconcile import reconcile

FIELDS = [
    {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
]
CREATED = {
    "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
    "metaData": {
        "schemaString": json.dumps({"type": "struct", "fields": FIELDS}),
        "partitionColumns": ["day"],
        "configuration": {},
    },
}
STARTED, ENDED = "2024-04-01T00:00:00+00:00", "2024-04-01T00:01:00+00:00"


def add(day: str, rows: int = 1) -> dict[str, Any]:
    stats = json.dumps({"numRecords": rows})
    return {"add": {"path": f"{day}-{rows}", "partitionValues": {"day": day}, "stats": stats}}


def info(**ours: Any) -> dict[str, Any]:
    text = json.dumps({"lineage_backfill": ours})
    return {"commitInfo": {"operation": "WRITE", "userMetadata": text}}


def write(table: Path, *commits: list[dict[str, Any]]) -> None:
    folder = table / "_delta_log"
    folder.mkdir(parents=True)
    for version, actions in enumerate(commits):
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        (folder / f"{version:020}.json").write_text(lines)


#: The commit of the attempt `t-1`, which counted two rows and started at version 0.
OURS = {
    "token": "t-1",
    "backfill_id": "b-1",
    "run_id": "r-1",
    "partitions": [[["2024-01-01"], 2, "f-2"]],
    "inputs": [["n:hours", 1]],
    "since": 0,
    "started_at": STARTED,
    "ended_at": ENDED,
    "drift": ["m was added"],
}


@pytest.fixture
def spec(document: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The run spec of `t-1`; its input has moved on to version 2 since."""
    hour = "2024-01-01T05"
    fields = json.loads(json.dumps(CREATED).replace("day", "hour"))
    inputs = json.loads(json.dumps([add(hour), add(hour, 3)]).replace("day", "hour"))
    read = info(token="t-0", partitions=[[[hour], 1, "f-hour"]])
    write(tmp_path / "hours", [fields], [inputs[0], read], [inputs[1]])
    del document["inputs"][1]
    return document


def test_the_result_is_what_the_run_would_have_left(spec: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "days", [CREATED], [info(**OURS), add("2024-01-01", 2)])
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert main(["reconcile", "--spec", str(tmp_path / "spec.json")]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["state"], result["token"], result["error"]) == ("succeeded", "t-1", None)
    assert result["started_at"] == STARTED.replace("+00:00", "Z")
    assert result["ended_at"] == ENDED.replace("+00:00", "Z")
    (output,) = result["outputs"]
    assert (output["version_before"], output["version"]) == (0, 1)
    assert output["drift"] == ["m was added"]
    (part,) = output["partitions"]
    assert (part["rows_before"], part["rows"], part["fingerprint"]) == (0, 2, "f-2")
    assert result["inputs"] == [
        {
            "dataset": {"namespace": "n", "name": "hours"},
            "version": 1,
            "partitions": [{"key": "2024-01-01T05", "fingerprint": "f-hour"}],
        }
    ]
    events = "".join(path.read_text() for path in (tmp_path / "outbox").iterdir())
    assert json.loads(events)["eventType"] == "COMPLETE"


GOOD = add("2024-01-01", 2)


@pytest.mark.parametrize(
    ("sentence", "commits"),
    [
        ("another attempt wrote", [[info(**{**OURS, "token": "t-2"}), GOOD]]),
        ("nobody wrote", []),
        ("other rows than were counted", [[info(**OURS), add("2024-01-01", 3)]]),
        ("a partition outside the scope", [[info(**OURS), GOOD, add("2024-01-02")]]),
        ("it was undone", [[info(**OURS), GOOD], [info(token="undo:t-1")]]),
        ("it was taken back", [[info(**OURS), GOOD], [info(run_id="r-1", taken_back=1)]]),
        (
            "a backfill of the same plan wrote meanwhile",
            [[info(**{**OURS, "token": "x", "backfill_id": "b-2"}), GOOD], [info(**OURS), GOOD]],
        ),
        ("somebody wrote meanwhile", [[add("2024-01-01", 0)], [info(**OURS), GOOD]]),
    ],
)
def test_without_proof_nothing_is_claimed(
    sentence: str, commits: list[list[dict[str, Any]]], spec: dict[str, Any], tmp_path: Path
) -> None:
    write(tmp_path / "days", [CREATED], *commits)
    with pytest.raises(RuntimeFailure):
        reconcile(parse_spec(spec), Tables())
    assert not (tmp_path / "result.json").exists()


def test_an_earlier_attempt_of_the_same_run_is_no_stranger(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    earlier = [info(**{**OURS, "token": "t-0"}), add("2024-01-01")]
    removed = {"remove": {"path": "2024-01-01-1", "partitionValues": {"day": "2024-01-01"}}}
    write(tmp_path / "days", [CREATED], earlier, [info(**OURS), removed, GOOD])
    assert reconcile(parse_spec(spec), Tables()).state == "succeeded"
    assert (tmp_path / "result.json").exists()


@pytest.fixture
def scheduled(tmp_path: Path) -> Path:
    """A file with a commit of the same partitions that a scheduled run of the job made."""
    scope = Scope((PartitionColumn("day", "string"),), {("2024-01-01",): "2024-01-01"})
    told = {"backfill_id": "", "run_id": "x", "token": "x", "job": "n:days", "scope": scope.digest}
    commit = [info(**{**OURS, **told}), GOOD]
    write(tmp_path / "days", [CREATED], commit)
    return tmp_path / "days" / "_delta_log" / f"{1:020}.json"


EARLIER = datetime.fromisoformat(STARTED) - timedelta(seconds=1)


def test_a_scheduled_run_may_have_done_what_the_attempt_was_to_do(
    spec: dict[str, Any], scheduled: Path, tmp_path: Path
) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    asked = ["reconcile", "--spec", str(tmp_path / "spec.json")]
    assert main(asked) == 1
    assert main([*asked, "--since", EARLIER.replace(tzinfo=None).isoformat()]) == 1
    assert main([*asked, "--since", EARLIER.isoformat()]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["token"], result["run_id"]) == ("t-1", "r-1")
    assert [one["rows"] for one in result["outputs"][0]["partitions"]] == [2]
    assert not (tmp_path / "outbox").exists()  # it has told its own lineage


@pytest.mark.parametrize(
    ("sentence", "was", "now"),
    [
        ("it began earlier", STARTED, f"{EARLIER - timedelta(seconds=1):%FT%T+00:00}"),
        ("of another job", '"n:days', '"n:weeks'),
        ("of other partitions", "sha256:", "sha256:0"),
        ("of a backfill", 'backfill_id\\": \\"', 'backfill_id\\": \\"b-2'),
    ],
)
def test_another_run_has_not(
    sentence: str, was: str, now: str, spec: dict[str, Any], scheduled: Path, tmp_path: Path
) -> None:
    text = scheduled.read_text()
    assert was.strip('"') in text
    scheduled.write_text(text.replace(was.strip('"'), now.strip('"')))
    with pytest.raises(RuntimeFailure):
        reconcile(parse_spec(spec), Tables(), EARLIER)
    assert not (tmp_path / "result.json").exists()


def test_nor_has_one_that_was_undone(spec: dict[str, Any], scheduled: Path) -> None:
    undo = json.dumps(info(undo_of=["x"]))
    scheduled.with_name(f"{2:020}.json").write_text(undo)
    with pytest.raises(RuntimeFailure):
        reconcile(parse_spec(spec), Tables(), EARLIER)


@pytest.mark.parametrize("change", [{"table": "db.days", "location": None}, {"location": "s3://b"}])
def test_a_table_out_of_sight_says_nothing(
    change: dict[str, Any], spec: dict[str, Any], tmp_path: Path
) -> None:
    spec["outputs"][0] |= change
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert main(["reconcile", "--spec", str(tmp_path / "spec.json")]) == 1


def test_logs_are_read_without_spark() -> None:
    """Its import alone takes longer than all that the tool asks of a log."""
    code = "import sys, spark_runtime.__main__; print({'pyspark', 'delta'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
