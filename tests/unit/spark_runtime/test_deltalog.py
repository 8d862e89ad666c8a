"""The log is read without Spark: rows, partitions, who wrote them, and what is not known."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spark_runtime.errors import TableError
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.locks import exclusively
from spark_runtime.tables.places import local_path
from spark_runtime.tables.state import EMPTY_FINGERPRINT
from tests.delta_logs import METADATA, SCHEMA, Log, add, ours, remove


@pytest.fixture
def log(tmp_path: Path) -> Log:
    made = Log(tmp_path / "t")
    made.commit(METADATA)
    return made


def rows(reader: DeltaLog, *days: str | None, version: int | None = None) -> list[int | None]:
    state = reader.state(version)
    return [state.contents((day,)).rows for day in days]


def test_rows_per_partition_follow_adds_and_removes(log: Log) -> None:
    log.commit(add("a", "d1", 3), add("b", "d2", 4), add("c", None, 5))
    log.commit(remove("a", "d1"), remove("c", None), add("d", "d1", 1), add("e", "d1", 1))
    reader = DeltaLog(str(log.root))
    assert rows(reader, "d1", "d2", None) == [2, 4, 0]
    assert rows(reader, "d1", "d2", None, version=1) == [3, 4, 5]
    assert reader.latest_version() == 2
    touched = {commit.version: commit.touched for commit in reader.commits(0, 2)}
    assert touched == {1: {("d1",), ("d2",), (None,)}, 2: {("d1",), (None,)}}


def test_threads_that_share_a_log_read_what_each_asks_for(log: Log) -> None:
    """As runs do that one application makes at once; older states are dropped meanwhile."""
    newest = 30
    for number in range(newest):
        log.commit(add(f"f{number}", "d1", 1))
    reader = DeltaLog(str(log.root))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            asked = [number * 7 % newest + 1 for number in range(240)]
            found = list(pool.map(lambda v: reader.state(v).contents(("d1",)).rows, asked))
    finally:
        sys.setswitchinterval(before)
    assert found == asked


def test_a_file_may_be_removed_without_a_word_of_its_partition(log: Log) -> None:
    """The format lets a writer name the file only."""
    log.commit(add("a", "d1", 3), add("b", None, 4), ours("t", [["d1"], 3, "f"]))
    log.commit({"remove": {"path": "a"}}, {"remove": {"path": "never there"}})
    log.commit({"remove": {"path": "b", "dataChange": False}}, add("c", None, 4, dataChange=False))
    log.commit({"remove": {"path": "c"}})
    reader = DeltaLog(str(log.root))
    assert rows(reader, "d1", None) == [0, 0]
    assert rows(reader, "d1", None, version=3) == [0, 4]
    touched = [commit.touched for commit in DeltaLog(str(log.root)).commits(1, 4)]
    assert touched == [{("d1",)}, frozenset(), {(None,)}]
    log.path(0).unlink()
    log.path(1).with_name(f"{1:020}.checkpoint.parquet").touch()
    checksum = json.dumps({"metadata": METADATA["metaData"]})
    log.path(1).with_suffix(".crc").write_text(checksum)
    log.path(4).with_suffix(".crc").write_text(checksum)
    with pytest.raises(TableError, match=r"version 2 .* removes a file without saying"):
        DeltaLog(str(log.root)).state()
    with pytest.raises(TableError, match=r"version 2 .* removes a file without saying"):
        list(DeltaLog(str(log.root)).commits(1, 4))


def test_rows_without_statistics_are_unknown(log: Log) -> None:
    log.commit(add("a", "d1", None), add("b", "d1", 2), add("c", "d2", 1))
    assert rows(DeltaLog(str(log.root)), "d1", "d2") == [None, 1]


def test_deletion_vectors_count_and_replace_the_same_path(log: Log) -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "cardinality": 4}
    log.commit(add("a", "d1", 10))
    log.commit(remove("a", "d1"), add("a", "d1", 10, deletionVector=vector))
    assert rows(DeltaLog(str(log.root)), "d1") == [6]


def test_a_fingerprint_lives_until_somebody_else_changes_the_rows(log: Log) -> None:
    log.commit(add("a", "d1"), add("b", "d2"), ours("t-1", [["d1"], 1, "f1"], [["d2"], 1, "f2"]))
    log.commit(remove("a", "d1", dataChange=False), add("c", "d1", dataChange=False))
    log.commit(add("d", "d2"))
    reader = DeltaLog(str(log.root))
    assert [reader.state(v).contents(("d1",)).fingerprint for v in (1, 2, 3)] == ["f1"] * 3
    assert [reader.state(v).contents(("d2",)).fingerprint for v in (1, 2, 3)] == ["f2", "f2", None]
    assert reader.state().contents(("d9",)).fingerprint == EMPTY_FINGERPRINT
    assert reader.state().tokens == {"t-1": 1}
    assert [commit.touched for commit in reader.commits(1, 2)] == [frozenset()]


def test_only_new_commits_are_read_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = DeltaLog(str(log.root))
    log.commit(add("a", "d1", 1))
    reader.state()
    read: list[Path] = []
    original = Path.read_text

    def spy(path: Path, *args: Any, **more: Any) -> str:
        read.append(path)
        return original(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", spy)
    log.commit(add("b", "d1", 1))
    assert rows(reader, "d1") == [2]
    assert read == [log.path(2)]
    assert rows(reader, "d1", version=1) == [1]
    assert len(read) == 1


def test_a_table_made_anew_under_the_same_name_is_another_table(log: Log) -> None:
    log.commit(add("a", "d1", 7))
    reader = DeltaLog(str(log.root))
    assert rows(reader, "d1") == [7]
    for version in (0, 1):
        log.path(version).unlink()
    log.version = -1
    log.commit(METADATA)
    log.commit(add("b", "d1", 2))
    os.utime(log.path(1), ns=(1, 1))
    assert rows(reader, "d1") == [2]


def test_column_mapping_names_are_translated(tmp_path: Path) -> None:
    made = Log(tmp_path / "t")
    schema = json.loads(json.dumps(SCHEMA))
    schema["fields"][0]["metadata"]["delta.columnMapping.physicalName"] = "col-1"
    metadata = {"schemaString": json.dumps(schema), "partitionColumns": ["day"]}
    made.commit({"metaData": metadata})
    made.commit(
        {"add": {"path": "x", "partitionValues": {"col-1": "d1"}, "stats": '{"numRecords":2}'}}
    )
    assert rows(DeltaLog(str(made.root)), "d1") == [2]


def test_a_log_without_its_checkpoint_is_damaged(log: Log) -> None:
    for number in range(3):
        log.commit(add(f"f{number}", "d1"))
    for version in range(3):
        log.path(version).unlink()
    reader = DeltaLog(str(log.root))
    for asked in (None, 3):
        with pytest.raises(TableError, match="damaged: version 3 is there") as caught:
            reader.state(asked)
        assert "from a backup" in str(caught.value.hint)


def test_below_a_cleaned_up_log_things_are_unknown_not_empty(log: Log) -> None:
    log.commit(add("a", "d1", 3))
    log.commit(add("b", "d2", 1), ours("t-2", [["d2"], 1, "f"]))
    log.commit(add("c", "d3", 1))
    log.path(0).unlink()
    log.path(1).unlink()
    (log.root / "_delta_log" / f"{1:020}.checkpoint.parquet").touch()
    reader = DeltaLog(str(log.root))
    assert reader.latest_version() == 3
    state = reader.state()
    assert not state.complete
    assert state.first_read == 2
    assert state.contents(("d1",)).rows is None
    with pytest.raises(TableError, match=r"version 0 .* no longer in its log"):
        reader.state(0)
    for fresh in (reader, DeltaLog(str(log.root))):
        with pytest.raises(TableError, match="ends with version 3, a later one"):
            fresh.state(9)

    def checkpoint(files: list[str]) -> list[dict[str, Any]]:
        assert len(files) == 1
        found = add("a", "d1", 3, dataChange=False)
        return [METADATA, found, {"txn": {"appId": "app", "version": 4}}]

    whole = DeltaLog(str(log.root), checkpoint_reader=checkpoint).state()
    assert whole.complete
    assert [whole.contents((d,)).rows for d in ("d1", "d2", "d3", "d4")] == [3, 1, 1, 0]
    assert whole.transactions == {"app": 4}
    assert [whole.contents((d,)).fingerprint for d in ("d1", "d2")] == [None, "f"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b'{"add": {"pa',
        b'{}\n{"add"',
        b'"add"\n',
        b'{"add": 3}',
        b"\xff\xfe{}",
        b"[" * 10**5,
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_damaged_commit_is_named_with_what_to_do(log: Log, text: bytes, version: int) -> None:
    log.commit(add("a", "d1", 3))
    log.path(version).write_bytes(text)
    reader = DeltaLog(str(log.root))
    reads = (
        reader.state,
        lambda: list(reader.commits(-1, 1)),
        lambda: reader.times(0, 1),
    )
    for read in reads[: 2 if text.startswith(b"{}") else 3]:
        with pytest.raises(TableError, match=rf"{log.path(version)} is damaged") as raised:
            read()
        assert raised.value.hint is not None
        assert "Restore this file" in raised.value.hint


def _schema(**members: Any) -> dict[str, Any]:
    return {"metaData": {**METADATA["metaData"], **members}}


_FILE = {"path": "a", "partitionValues": {"day": "d1"}}
_FIELDS = '{"type": "struct", "fields": [%s]}'


@pytest.mark.parametrize(
    "action",
    [
        {},
        {"metaData": {"partitionColumns": ["day"]}},
        *(
            _schema(schemaString=text)
            for text in (3, "{", "[]", '{"type": "struct"}', '{"fields": {}}', _FIELDS % "")
        ),
        *(
            _schema(schemaString=_FIELDS % field)
            for field in ('{"name": "day"}', '{"type": "string"}', '{"name": "day", "type": 4}')
        ),
        *(_schema(partitionColumns=names) for names in (["other"], "day", [1])),
        _schema(configuration=["a"]),
        *({kind: {"partitionValues": {"day": "d1"}}} for kind in ("add", "remove")),
        *({kind: {**_FILE, "path": 3}} for kind in ("add", "remove")),
        *({"add": {**_FILE, "partitionValues": values}} for values in (["d"], {"day": 3}, None)),
        {"add": {"path": "a"}},
        {"add": {**_FILE, "dataChange": "false"}},
        {"add": {**_FILE, "deletionVector": {"cardinality": "3"}}},
        {"remove": {**_FILE, "deletionVector": {"storageType": "u"}}},
        {"txn": {"appId": "a"}},
        {"txn": {"version": 1}},
        {"txn": {"appId": "a", "version": "1"}},
        {"protocol": {"writerFeatures": "x"}},
        {"protocol": {"minReaderVersion": 1}},
        {"commitInfo": [1]},
    ],
)
def test_an_action_without_what_it_needs_is_damage(log: Log, action: dict[str, Any]) -> None:
    log.commit(add("a", "d1", 3))
    log.path(1).write_text(json.dumps(action) + "\n")
    log.commit(add("b", "d1", 1))
    reads: tuple[Callable[[DeltaLog], object], ...] = (
        DeltaLog.state,
        lambda reader: list(reader.commits(-1, 2)),
        lambda reader: reader.layout(2),
    )
    for read in reads:
        with pytest.raises(TableError, match=rf"{log.path(1)} is damaged") as raised:
            read(DeltaLog(str(log.root)))
        assert "Restore this file" in (raised.value.hint or "")


def test_a_commit_that_cannot_be_read_is_named(log: Log) -> None:
    log.commit(add("a", "d1", 3))
    log.path(1).unlink()
    log.path(1).mkdir()
    for read in (DeltaLog.state, lambda reader: reader.times(0, 1)):
        with pytest.raises(TableError, match=rf"{log.path(1)} cannot be read") as raised:
            read(DeltaLog(str(log.root)))
        assert raised.value.hint


@pytest.mark.parametrize("lacking", ["protocol", "metaData"])
def test_a_first_commit_describes_its_table(log: Log, lacking: str) -> None:
    lines = log.path(0).read_text().splitlines(keepends=True)
    log.path(0).write_text("".join(line for line in lines if lacking not in line))
    log.commit(add("a", "d1", 3))
    with pytest.raises(TableError, match=rf"{log.path(0)} is damaged: .* no `{lacking}`"):
        DeltaLog(str(log.root)).state()


def test_a_commit_that_is_missing_in_the_middle_is_damage(log: Log) -> None:
    for number in range(1, 5):
        log.commit(add(f"f{number}", f"d{number}", number))
    log.path(2).unlink()
    for reads in (DeltaLog.state, lambda reader: list(reader.commits(0, 4))):
        with pytest.raises(TableError, match=rf"{log.path(2)} is damaged: it is missing"):
            reads(DeltaLog(str(log.root)))
    # What a later checkpoint holds needs no earlier commit.
    (log.root / "_delta_log" / f"{3:020}.checkpoint.parquet").touch()
    held = [METADATA, *(add(f"f{number}", f"d{number}", number) for number in range(1, 4))]
    reader = DeltaLog(str(log.root), checkpoint_reader=lambda _: held)
    assert rows(reader, "d1", "d2", "d3", "d4") == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "info",
    [
        {"timestamp": "1700000000000"},
        {"timestamp": 10**30},
        {"inCommitTimestamp": {}},
        {"operation": 4, "userName": [1]},
        *({"userMetadata": held} for held in (3, {"lineage_backfill": {"token": "t"}})),
        {"operation": "MERGE", "operationMetrics": [1]},
        {"operation": "MERGE", "operationMetrics": {"numTargetRowsInserted": "x"}},
        *(
            {"userMetadata": json.dumps({"lineage_backfill": held})}
            for held in (
                {"token": 3},
                {"token": "t", "partitions": 7},
                {"token": "t", "partitions": [[["d1"], 1]]},
                {"undo_of": 3},
                {"undo_of": [[1]]},
                {"taken_back": [1]},
            )
        ),
    ],
)
def test_what_a_commit_says_about_itself_may_be_anything(log: Log, info: dict[str, Any]) -> None:
    log.commit(add("a", "d1", 3), {"commitInfo": info})
    reader = DeltaLog(str(log.root))
    (commit,) = reader.commits(0, 1)
    assert (commit.at, commit.by, commit.merged) == (None,) * 3
    assert not commit.metadata
    assert rows(reader, "d1") == [3]
    assert reader.times(0, 1)


def test_no_table_and_no_access_are_different_things(tmp_path: Path) -> None:
    assert DeltaLog(str(tmp_path / "none")).latest_version() is None
    assert DeltaLog(str(tmp_path)).latest_version() is None
    with pytest.raises(TableError, match="there is no Delta table"):
        DeltaLog(str(tmp_path)).state()
    (tmp_path / "data.parquet").touch()
    for path in (tmp_path, tmp_path / "data.parquet"):
        with pytest.raises(TableError, match="holds files and is not a Delta table"):
            DeltaLog(str(path)).latest_version()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(TableError, match="cannot be read") as raised:
        DeltaLog(str(loop)).latest_version()
    assert raised.value.hint


@pytest.mark.parametrize(
    ("location", "path"),
    [("/a b", "/a b"), ("file:/a%20b", "/a b"), ("file:///a", "/a"), ("rel/x", "rel/x")],
)
def test_locations_are_paths_or_file_urls(location: str, path: str) -> None:
    assert local_path(location) == Path(path)


def test_other_file_systems_are_refused() -> None:
    with pytest.raises(TableError, match="not on a local"):
        local_path("s3a://bucket/t")


def test_metadata_of_others_is_no_metadata_of_ours(log: Log) -> None:
    for text in ("{", "[]", '{"lineage_backfill": 3}', '"x"'):
        log.commit({"commitInfo": {"operation": "WRITE", "userMetadata": text}})
    assert all(not commit.metadata for commit in DeltaLog(str(log.root)).commits(0, 4))


def test_commits_to_one_table_wait_for_each_other(tmp_path: Path) -> None:
    entered: list[str] = []

    def second() -> None:
        with exclusively(tmp_path):
            entered.append("second")

    with exclusively(tmp_path):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        entered.append("first")
    waiting.join()
    assert entered == ["first", "second"]
    with exclusively(tmp_path / "not there"):
        pass
