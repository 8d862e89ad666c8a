"""The journal of a Parquet table: versions, tokens, what others did, what can be undone."""

from __future__ import annotations

import ctypes
import errno
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_runtime.errors import (
    StaleAttemptError,
    TableError,
    UndoRefusedError,
    WriteConflictError,
)
from spark_runtime.tables.parquet import log as parquetlog
from spark_runtime.tables.parquet.log import FOLDER, ParquetLog, Record
from spark_runtime.tables.state import EMPTY_FINGERPRINT
from tests.parquet_files import SCHEMA, publish, transaction

OLD = {"d1": "old d1", "d2": "old d2", "d3": "old d3", "d4": "old d4"}


@pytest.fixture
def log(tmp_path: Path) -> ParquetLog:
    """A table with four days; a write of ours replaced them before."""
    made = ParquetLog(str(tmp_path / "t"))
    made.create(SCHEMA, ("day",))
    publish(made, "old", "d1 d2 d3 d4", scope="d1 d2 d3 d4")
    return made


def seen(log: ParquetLog) -> dict[str, str]:
    """What any reader sees: the text of each day's only file."""
    found = {}
    for folder in sorted(log.root.glob("day=*")):
        texts = [file.read_text() for file in folder.iterdir() if file.is_file()]
        assert len(texts) <= 1, texts
        if texts:
            found[folder.name.partition("=")[2]] = texts[0]
    return found


def test_each_version_tells_what_it_held_and_who_touched_what(log: ParquetLog) -> None:
    publish(log, "new", "d1", scope="d1 d2")
    assert log.latest_version() == 2
    old, new = log.state(1), log.state()
    assert [old.contents((day,)).rows for day in ("d1", "d2")] == [1, 1]
    assert [new.contents((day,)).rows for day in ("d1", "d2")] == [1, 0]
    assert new.contents(("d2",)).fingerprint == EMPTY_FINGERPRINT
    assert new.tokens == {"old": 1, "new": 2}
    assert new.transactions == {"old": 1, "new": 1}
    (commit,) = log.commits(1, 2)
    assert commit.touched == {("d1",), ("d2",)}
    assert commit.metadata["run_id"] == "r"


def test_the_same_token_is_not_published_twice_and_an_old_attempt_not_at_all(
    log: ParquetLog,
) -> None:
    assert publish(log, "old", "d1", scope="d1") == 1
    with pytest.raises(StaleAttemptError):
        publish(log, "late", "d1", scope="d1", run="old")
    assert seen(log) == OLD


def test_what_others_do_to_the_files_is_noticed(log: ParquetLog) -> None:
    (log.root / "day=d1" / "theirs.parquet").write_text("theirs")
    shutil.rmtree(log.root / "day=d2")
    (log.root / "day=d9").mkdir()
    (log.root / "day=d9" / "theirs.parquet").write_text("theirs")
    state = log.state()
    assert [state.contents((d,)).rows for d in ("d1", "d2", "d3", "d9")] == [None, 0, 1, None]
    publish(log, "new", "d3", scope="d3")
    assert [log.state(1).contents((d,)).rows for d in ("d1", "d2", "d9")] == [None, 0, None]


def test_undo_is_refused_where_somebody_changed_the_files_or_the_trash_is_empty(
    log: ParquetLog,
) -> None:
    undoing = transaction("undo:x")
    publish(log, "new", "d1 d2", scope="d1 d2")
    (log.root / "day=d2" / "theirs.parquet").write_text("theirs")
    with pytest.raises(UndoRefusedError, match="day=d2"):
        log.undo([2], undoing)
    (log.root / "day=d2" / "theirs.parquet").unlink()
    log.purge(timedelta(days=1))
    assert (log.root / FOLDER / "trash" / "2").exists()
    log.purge(timedelta(0))
    with pytest.raises(UndoRefusedError, match="is gone"):
        log.undo([2], undoing)
    assert seen(log) == OLD | {"d1": "new d1", "d2": "new d2"}


def test_what_others_did_between_two_versions_is_not_undone_with_them(log: ParquetLog) -> None:
    theirs = log.root / "day=d1" / "theirs.parquet"
    publish(log, "one", "d1 d2", scope="d1 d2")
    theirs.write_text("theirs")
    publish(log, "two", "d1", scope="d1")
    now = seen(log)
    with pytest.raises(UndoRefusedError, match=r"day=d1 .* after version 2"):
        log.undo([2, 3], transaction("undo:both"))
    assert seen(log) == now
    log.undo([3], transaction("undo:two"))
    assert theirs.read_text() == "theirs"
    theirs.unlink()
    publish(log, "three", "d1", scope="d1")
    log.undo([2, 5], transaction("undo:rest"))  # what they did is gone by then
    assert seen(log) == OLD


def test_no_attempt_writes_or_undoes_below_a_fence(log: ParquetLog) -> None:
    """The fence is a version of its own, and no lower one is recorded after it."""
    fence = replace(transaction("", run="job"), version=7, metadata={"fence": 2})
    log.fence(fence)
    (commit,) = log.commits(1, 2)
    assert (commit.touched, commit.metadata, log.state().transactions["job"]) == (
        frozenset(),
        fence.metadata,
        7,
    )
    for lower in (7, 6):
        log.fence(replace(fence, version=lower))
        with pytest.raises(StaleAttemptError, match="replaced by a later one"):
            publish(log, "zombie", "d1", scope="d1 d2", run="job", version=lower)
        log.undo([1], replace(fence, version=lower))
    assert (seen(log), log.latest_version()) == (OLD, 2)
    publish(log, "next", "d1", scope="d1", run="job", version=8)
    assert seen(log) == OLD | {"d1": "next d1"}


def test_a_living_writers_staging_is_left_alone_and_its_attempt_is_its_own(
    log: ParquetLog,
) -> None:
    with log.staging("a") as mine:
        mine.mkdir()
        with log.staging("b") as theirs:
            assert mine.exists()
            assert theirs != mine
        with pytest.raises(WriteConflictError, match="same attempt"), log.staging("a"):
            pass
        assert mine.exists()
    assert not mine.exists()


def test_publishing_takes_turns(log: ParquetLog) -> None:
    order: list[str] = []

    def second() -> None:
        publish(log, "second", "d2", scope="d2")
        order.append("second")

    with log.exclusively():
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_folders_and_values_are_told_apart_as_spark_writes_them(tmp_path: Path) -> None:
    root = tmp_path / "t"
    names = ["a%2Fb", "x y", "%C3%A9", "é", "__HIVE_DEFAULT_PARTITION__", "%255C"]
    for name in names:
        (root / f"Day={name}").mkdir(parents=True)
        (root / f"Day={name}" / "f.parquet").touch()
    (root / "_temporary" / "0").mkdir(parents=True)
    (root / ".hidden").touch()
    (root / "_SUCCESS").touch()
    log = ParquetLog(str(root))
    assert log.latest_version() == 0
    state = log.state()
    assert [column.name for column in state.columns] == ["Day"]
    assert set(state.partitions) == {("a/b",), ("x y",), ("Ã©",), ("é",), (None,), ("%5C",)}
    assert not (root / FOLDER).exists()  # looking leaves nothing behind


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("day=d1/hour=1/f", "is a folder within a partition"),
        ("f", "is not of the form day="),
        ("month=1/f", "is not of the form day="),
    ],
)
def test_what_is_no_partition_of_the_table_is_an_error(
    log: ParquetLog, path: str, complaint: str
) -> None:
    (log.root / path).parent.mkdir(parents=True, exist_ok=True)
    (log.root / path).touch()
    with pytest.raises(TableError, match=complaint):
        log.state()


def test_a_delta_table_is_no_parquet_table(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(TableError, match="is a Delta table"):
        ParquetLog(str(tmp_path)).latest_version()
    assert ParquetLog(str(tmp_path / "none")).latest_version() is None


def test_a_place_where_nothing_can_be_locked_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").touch()
    with pytest.raises(TableError, match="cannot be locked"):
        ParquetLog(str(tmp_path / "t")).create(SCHEMA, ("day",))


def test_a_job_that_writes_into_a_partition_now_keeps_its_folder(log: ParquetLog) -> None:
    (log.root / "day=d1" / "_temporary").mkdir()
    with pytest.raises(WriteConflictError, match="day=d1/_temporary") as raised:
        publish(log, "new", "d1 d2", scope="d1 d2")
    assert "if it died" in str(raised.value.hint)
    assert seen(log) == OLD
    assert (log.root / "day=d1" / "_temporary").exists()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS])
def test_a_file_system_that_cannot_exchange_folders_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def unable(*_: object) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(parquetlog, "_LIBC", SimpleNamespace(renameat2=unable))
    with pytest.raises(TableError, match="cannot be exchanged") as raised:
        ParquetLog(str(tmp_path / "t")).create(SCHEMA, ("day",))
    assert "Delta" in str(raised.value.hint)
    monkeypatch.setattr(parquetlog, "_LIBC", SimpleNamespace())  # a system without the call
    with pytest.raises(TableError, match="cannot be exchanged"):
        ParquetLog(str(tmp_path / "t")).create(SCHEMA, ("day",))


def test_a_log_of_another_version_is_refused(log: ParquetLog) -> None:
    path = log.root / FOLDER / "log" / f"{1:020}.json"
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 1'))
    with pytest.raises(TableError, match="records of version 1") as raised:
        ParquetLog(str(log.root)).state()
    assert FOLDER in str(raised.value.hint)


@pytest.mark.parametrize("fenced", [False, True])
def test_columns_of_a_refused_first_write_do_not_count(tmp_path: Path, fenced: bool) -> None:
    refused = ParquetLog(str(tmp_path / "t"))
    refused.create({"type": "struct", "fields": []}, ("month",))
    if fenced:  # by a second attempt, which was refused as well
        refused.fence(transaction("fence", "run", version=5))
    made = ParquetLog(str(tmp_path / "t"))
    assert (made.latest_version(), made.is_recorded()) == (None, False)
    made.create(SCHEMA, ("day",))
    assert [column.name for column in made.state().columns] == ["day"]
    publish(made, "new", "d1", scope="d1")
    version = made.latest_version()
    made.create({"type": "struct", "fields": []}, ("day",))
    assert (made.latest_version(), made.state().schema) == (version, SCHEMA)
    assert made.state().transactions.get("run") == (5 if fenced else None)


def test_a_table_without_partitions_has_its_log_beside_it(tmp_path: Path) -> None:
    made = ParquetLog(str(tmp_path / "t"))
    made.create(SCHEMA, ())
    publish(made, "old", "all", scope="all")
    assert {one.name for one in made.root.iterdir()} == {"_SUCCESS", "old.parquet"}
    shutil.rmtree(made.root)  # dropped: what it was is not what comes next
    again = ParquetLog(str(tmp_path / "t"))
    assert not again.is_recorded()
    again.create(SCHEMA, ())
    assert again.state().version == 0
    publish(again, "new", "all", scope="all")
    assert {one.name for one in made.root.iterdir()} == {"_SUCCESS", "new.parquet"}


@pytest.mark.parametrize(("columns", "again"), [(("day",), True), (("day",), False), ((), True)])
def test_a_table_that_is_dropped_during_a_write_is_missing(
    tmp_path: Path, columns: tuple[str, ...], again: bool
) -> None:
    day = "d1" if columns else "all"

    class Meddler(ParquetLog):
        """Somebody else drops the table once the rows are staged, and may make it again."""

        def publish(self, *arguments: Any, **named: Any) -> int:
            shutil.rmtree(self.root)
            if again:
                other = ParquetLog(self.location)
                other.create(SCHEMA, columns)
                publish(other, "other", day, scope=day)
            return super().publish(*arguments, **named)

    made = Meddler(str(tmp_path / "t"))
    made.create(SCHEMA, columns)
    with pytest.raises(TableError, match="no log of ours any more") as raised:
        publish(made, "new", day, scope=day)
    assert raised.value.is_missing
    texts = [one.read_text() for one in made.root.rglob("*.parquet") if FOLDER not in str(one)]
    assert texts == ([f"other {day}"] if again else [])


def test_versions_are_dated(log: ParquetLog) -> None:
    record = Record.from_json((log.root / FOLDER / "log" / f"{1:020}.json").read_text())
    assert abs(record.at - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.parametrize("scheme", ["s3a", "abfss", "gs", "hdfs", "dbfs"])
def test_a_parquet_table_on_a_store_is_refused(scheme: str) -> None:
    """Before anything is read or written, with what to do instead."""
    with pytest.raises(TableError, match="exchanging folders under a lock") as raised:
        ParquetLog(f"{scheme}://bucket/t")
    assert "Delta" in str(raised.value.hint)
