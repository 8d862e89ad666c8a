"""What changed in a table is told by its log alone, whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_runtime.__main__ import main
from spark_runtime.errors import TableError
from spark_runtime.logs import changes as module
from spark_runtime.logs.changes import Changes, changes
from spark_runtime.tables.delta.log import DeltaLog
from tests.delta_logs import METADATA, SCHEMA, Log, add, remove

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


def info(operation: str = "WRITE", **more: Any) -> dict[str, Any]:
    return {"commitInfo": {"operation": operation, **more}}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Five versions, an hour apart, the newest at noon; version 3 moves files and no rows."""
    made = Log(tmp_path / "t")
    made.commit(METADATA, info("CREATE TABLE"))
    made.commit(add("a", "d1"), add("b", "d2"), info())
    made.commit(remove("a", "d1"), add("c", "d1"), add("e", None), info())
    made.commit(
        remove("b", "d2", dataChange=False), add("f", "d2", dataChange=False), info("OPTIMIZE")
    )
    made.commit(remove("e", None), info("DELETE"))
    for version in range(5):
        at = (NOON - timedelta(hours=4 - version)).timestamp()
        os.utime(made.path(version), (at, at))
    return made


def told(log: Log, **asked: Any) -> Changes:
    return changes(DeltaLog(str(log.root)), **asked)


def days(found: Changes) -> list[str | None]:
    return [day for (day,) in found.partitions]


@pytest.mark.parametrize(
    ("after", "changed", "commits"),
    [
        (-1, ["d1", "d2", None], 3),
        (1, ["d1", None], 2),
        (2, [None], 1),
        (3, [None], 1),
        (4, [], 0),
    ],
)
def test_changes_after_a_version(
    log: Log, after: int, changed: list[str | None], commits: int
) -> None:
    found = told(log, after=after)
    assert (days(found), found.commits, found.after, found.version) == (changed, commits, after, 4)
    assert [(column.name, column.type) for column in found.columns] == [("day", "string")]


@pytest.mark.parametrize(
    ("since", "after"),
    [
        (NOON - timedelta(hours=9), None),  # the creation itself is as new
        (NOON - timedelta(hours=2), 1),
        (NOON - timedelta(minutes=119), 2),
        (NOON + timedelta(seconds=1), 4),
    ],
)
def test_changes_since_an_instant(log: Log, since: datetime, after: int | None) -> None:
    assert told(log, since=since).after == (-1 if after is None else after)


def test_a_clock_that_went_back_hides_no_commit(log: Log) -> None:
    """As in Delta's own time travel, no commit is older than the one before it."""
    os.utime(log.path(3), (0, 0))
    os.utime(log.path(4), (0, 0))
    assert told(log, since=NOON - timedelta(hours=3)).after == 0
    assert told(log, since=NOON - timedelta(hours=2)).after == 1


def test_times_within_the_commits_win_over_those_of_the_files(log: Log) -> None:
    for hour in (1, 2, 3):
        stamp = int((NOON + timedelta(hours=hour)).timestamp() * 1000)
        log.commit(info(inCommitTimestamp=stamp), add(f"i{hour}", f"i{hour}"))
        os.utime(log.path(log.version), (0, 0))
    assert days(told(log, since=NOON + timedelta(hours=2))) == ["i2", "i3"]
    # Kept only since version 5: for those before it, the files tell.
    assert told(log, since=NOON - timedelta(hours=1)).after == 2
    assert told(log, since=NOON + timedelta(minutes=1)).after == 4


def test_a_cleaned_up_log_answers_in_full_or_not_at_all(log: Log) -> None:
    log.checksum()
    log.path(0).unlink()
    log.path(1).unlink()
    assert days(told(log, after=1)) == ["d1", None]
    with pytest.raises(TableError, match=r"version 1 .* is no longer in its log"):
        told(log, after=0)
    assert told(log, since=NOON - timedelta(hours=1)).after == 2
    with pytest.raises(TableError, match="reaches back to version 2 only"):
        told(log, since=NOON - timedelta(hours=2))


def test_columns_come_from_the_checksum_and_else_from_a_checkpoint(log: Log) -> None:
    log.checksum()
    for version in range(4):
        log.path(version).unlink()
    (log.root / "_delta_log" / f"{3:020}.checkpoint.parquet").touch()
    assert days(told(log, after=3)) == [None]
    log.path(4).with_suffix(".crc").unlink()
    with pytest.raises(TableError, match="in a checkpoint only"):
        told(log, after=3)
    read: list[list[str]] = []

    def reader(files: list[str]) -> list[dict[str, Any]]:
        read.append([Path(file).name for file in files])
        return [METADATA]

    assert days(changes(DeltaLog(str(log.root), checkpoint_reader=reader), after=3)) == [None]
    assert read == [[f"{3:020}.checkpoint.parquet"]]


def test_a_table_partitioned_anew_has_no_changed_partitions_to_name(log: Log) -> None:
    schema = json.loads(json.dumps(SCHEMA))
    again = {"schemaString": json.dumps(schema), "partitionColumns": ["n"], "configuration": {}}
    log.commit({"metaData": again}, info("CREATE OR REPLACE TABLE"))
    moved = {"path": "x", "partitionValues": {"n": "1"}, "stats": '{"numRecords":3}'}
    log.commit({"add": moved}, info())
    with pytest.raises(TableError, match=r"version 5 \(CREATE OR REPLACE TABLE\)"):
        told(log, after=3)
    found = told(log, after=5)
    assert found.partitions == (("1",),)
    state = DeltaLog(str(log.root)).state()
    assert {values: held.rows for values, held in state.partitions.items()} == {("1",): 3}


def test_a_renamed_partition_column_is_the_same_column(log: Log) -> None:
    schema = json.loads(json.dumps(SCHEMA))
    schema["fields"][0].update(name="date", metadata={"delta.columnMapping.physicalName": "day"})
    renamed = {"schemaString": json.dumps(schema), "partitionColumns": ["date"]}
    log.commit({"metaData": renamed}, info("RENAME COLUMN"))
    found = told(log, after=0)
    assert (days(found), found.columns[0].name) == (["d1", "d2", None], "date")
    assert DeltaLog(str(log.root)).state().contents(("d1",)).rows == 1


@pytest.mark.parametrize("feature", ["catalogManaged", "coordinatedCommits-preview"])
def test_a_log_whose_newest_commits_are_elsewhere_is_refused(log: Log, feature: str) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature]}
    log.commit({"protocol": protocol}, info("SET TBLPROPERTIES"))
    with pytest.raises(TableError, match=feature):
        told(log, after=0)
    log.checksum(protocol=protocol)
    with pytest.raises(TableError, match=feature):
        told(log, after=0)


@pytest.mark.parametrize("after", [-2, 5])
def test_a_version_that_never_was_is_refused(log: Log, after: int) -> None:
    with pytest.raises(TableError, match=rf"has no version {after}: it is at 4"):
        told(log, after=after)


def test_the_newest_whole_checkpoint_counts_and_parts_do_not(tmp_path: Path) -> None:
    made = Log(tmp_path / "t")
    for _ in range(4):
        made.commit(add("x", "d1"))
    for version in range(4):
        made.path(version).unlink()
    made.commit(add("last", "d9"))
    folder = made.root / "_delta_log"
    uuid = "80a083e8-7026-4e79-81be-64bd76c43a11"
    manifest = [METADATA, {"sidecar": {"path": "one.parquet"}}, {"sidecar": {"path": "b.parquet"}}]
    (folder / f"{1:020}.checkpoint.{uuid}.json").write_text("\n".join(map(json.dumps, manifest)))
    for part in ("1.0000000002", "2.0000000002"):
        (folder / f"{2:020}.checkpoint.000000000{part}.parquet").touch()
    (folder / f"{3:020}.checkpoint.0000000001.0000000002.parquet").touch()  # half of one

    read: list[list[str]] = []

    def reader(files: list[str]) -> list[dict[str, Any]]:
        read.append([Path(file).name for file in files])
        return [METADATA, add("c", f"part{len(read)}", 2)]

    log = DeltaLog(str(made.root), checkpoint_reader=reader)
    with pytest.raises(TableError, match=r"version 3 .* no longer"):
        log.state()  # from 2 on, version 3 is missing
    assert len(read[0]) == 2
    for part in ("1.0000000002", "2.0000000002"):
        (folder / f"{2:020}.checkpoint.000000000{part}.parquet").unlink()
    (folder / f"{1:020}.checkpoint.{uuid}.json").rename(folder / f"{3:020}.checkpoint.{uuid}.json")
    state = log.state()
    assert read[1:] == [["one.parquet", "b.parquet"]]
    assert state.complete
    assert {values: held.rows for values, held in state.partitions.items()} == {
        ("part2",): 2,
        ("d9",): 1,
    }
    assert not DeltaLog(str(made.root)).state().complete


def test_the_command_prints_one_document(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["changes", "--location", str(log.root), "--after", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "schema_version": module.SCHEMA_VERSION,
        "kind": "changes",
        "location": str(log.root),
        "after": 2,
        "version": 4,
        "commits": 1,
        "columns": [{"name": "day", "type": "string"}],
        "partitions": [[None]],
    }
    assert main(["changes", "--location", str(log.root) + "x", "--after", "2"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"].startswith("there is no Delta table at")
    assert "location" in error["hint"]


@pytest.mark.parametrize("text", ["2024-03-01T11:00:00", "2024-03-01", "soon", "9999-12-31T00:00Z"])
def test_a_time_that_is_not_one_instant_is_refused(
    log: Log, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["changes", "--location", str(log.root), "--since", text]) == 1
    shown = capsys.readouterr()
    assert repr(text) in shown.out + shown.err
    assert "Write it like" in shown.out + shown.err


def test_no_spark_is_started_for_it(log: Log) -> None:
    program = (
        "import sys; from spark_runtime.__main__ import main;"
        f"main(['changes', '--location', {str(log.root)!r}, '--since', '2024-03-01T11:00:00Z']);"
        "sys.exit('pyspark' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_cost_is_that_of_the_commits_looked_at(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.checksum()
    read: list[str] = []
    original = Path.read_text

    def spy(path: Path, *args: Any, **more: Any) -> str:
        read.append(path.name)
        return original(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", spy)
    told(log, after=2)
    assert sorted({*read}) == [f"{3:020}.json", f"{4:020}.crc", f"{4:020}.json"]
