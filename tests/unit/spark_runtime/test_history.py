"""When each partition of a table changed last, and how it was made, is told by its log."""

from __future__ import annotations

import io
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import TableLogError
from lineage_backfill.ports import TableHistory, TablePlace
from lineage_backfill.sources.table_logs import DeltaTableLogs
from spark_runtime.__main__ import main
from spark_runtime.errors import SparkMissingError, TableError
from spark_runtime.logs.history import History, history
from spark_runtime.tables.delta.log import DeltaLog
from tests.delta_logs import METADATA, Log, add, ours, remove

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
INFO = {"commitInfo": {"operation": "WRITE"}}


def stamped(log: Log) -> Log:
    """Give the commits times an hour apart, the first at noon."""
    for version in range(log.version + 1):
        at = (NOON + timedelta(hours=version)).timestamp()
        if log.path(version).exists():
            os.utime(log.path(version), (at, at))
    return log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "t")


def told(log: Log, **options: Any) -> History:
    return history(DeltaLog(str(stamped(log).root), **options))


def days(partitions: Any) -> list[str | None]:
    return [day for (day,) in partitions]


def events(found: History) -> list[tuple[int | None, list[str | None], list[str | None]]]:
    return [(one.version, days(one.changed), days(one.made)) for one in found.events]


def test_the_last_commit_over_each_partition_counts(log: Log) -> None:
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), add("b", "d2"), add("c", "d3"), INFO)
    log.commit(remove("a", "d1"), add("d", "d1"), add("e", None), INFO)
    log.commit(remove("b", "d2"), INFO)
    found = told(log)
    assert events(found) == [
        (1, ["d3"], ["d3"]),
        (2, ["d1", None], ["d1", None]),
        (3, ["d2"], ["d2"]),
    ]
    assert [one.at for one in found.events] == [NOON + timedelta(hours=n) for n in (1, 2, 3)]
    assert (found.version, found.whole, found.since, found.old) == (3, True, None, ())


def test_moving_rows_into_other_files_is_no_change(log: Log) -> None:
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), INFO)
    log.commit(remove("a", "d1", dataChange=False), add("b", "d1", dataChange=False), INFO)
    assert events(told(log)) == [(1, ["d1"], ["d1"])]


def test_our_commits_say_what_they_were_made_from_and_what_is_empty(log: Log) -> None:
    log.commit(METADATA, INFO)
    log.commit(
        add("a", "d1"),
        ours("t1", [["d1"], 1, "f1"], [["d2"], 0, "empty"], job="s:j", inputs=[["s:raw", 7]]),
    )
    found = told(log)
    assert events(found) == [(1, ["d1"], ["d1", "d2"])]
    (event,) = found.events
    assert (event.job, event.read) == ("s:j", {"s:raw": 7})


def test_the_same_contents_again_are_made_and_not_changed(log: Log) -> None:
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), ours("t1", [["d1"], 1, "same"]))
    log.commit(remove("a", "d1"), add("b", "d1"), ours("t2", [["d1"], 1, "same"]))
    assert events(told(log)) == [(1, ["d1"], []), (2, [], ["d1"])]
    log.commit(remove("b", "d1"), add("c", "d1"), ours("t3", [["d1"], 1, "other"]))
    assert events(told(log)) == [(3, ["d1"], ["d1"])]
    # What somebody else wrote in between is not known to be the same.
    log.commit(remove("c", "d1"), add("d", "d1"), INFO)
    log.commit(remove("d", "d1"), add("e", "d1"), ours("t4", [["d1"], 1, "other"]))
    assert events(told(log)) == [(5, ["d1"], ["d1"])]


@pytest.mark.parametrize("undo_of", ["t2", ["t2"], ["other", "t2"]])
def test_what_was_undone_holds_what_was_made_before(log: Log, undo_of: str | list[str]) -> None:
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), INFO)
    log.commit(remove("a", "d1"), add("b", "d1"), add("c", "d2"), ours("t2"))
    log.commit(remove("b", "d1"), add("a", "d1"), remove("c", "d2"), ours("u", undo_of=undo_of))
    found = told(log)
    # The second day was never there: nothing made it.
    assert events(found) == [(1, [], ["d1"]), (3, ["d1", "d2"], [])]


def test_a_commit_that_was_taken_back_made_nothing(log: Log) -> None:
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), ours("t1"))
    log.commit(remove("a", "d1"), ours("t1b", taken_back=1))
    assert events(told(log)) == [(2, ["d1"], [])]


def test_an_undoing_that_was_taken_back_undid_nothing(log: Log) -> None:
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), ours("t1"))
    log.commit(remove("a", "d1"), add("b", "d1"), ours("t2"))
    log.commit(remove("b", "d1"), add("a", "d1"), ours("u", undo_of=["t2"]))
    log.commit(remove("a", "d1"), add("b", "d1"), ours("v", taken_back=3))
    assert events(told(log)) == [(2, [], ["d1"]), (4, ["d1"], [])]


def test_other_partition_columns_are_a_new_table(log: Log) -> None:
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), INFO)
    other = json.loads(json.dumps(METADATA).replace("day", "month"))
    log.commit(other, remove("a", "d1"), add("b", "m1", column="month"), INFO)
    assert events(told(log)) == [(2, ["m1"], ["m1"])]


def test_no_table_has_no_history(tmp_path: Path) -> None:
    found = history(DeltaLog(str(tmp_path / "nothing")))
    assert (found.version, found.events, found.whole) == (None, (), True)


def cleaned(log: Log, checkpoint: str) -> Log:
    """Leave the commits from version 2 on, and a checkpoint of that version."""
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), add("b", "d2"), INFO)
    log.commit(add("c", "d3"), INFO)
    log.checksum()
    log.commit(remove("a", "d1"), add("d", "d1"), INFO)
    log.checksum()
    for version in (0, 1):
        log.path(version).unlink()
    (log.root / "_delta_log" / f"{2:020}.checkpoint.{checkpoint}").touch()
    return log


def test_what_the_log_does_not_reach_back_to_is_old(log: Log) -> None:
    cleaned(log, "parquet")
    held = [METADATA, add("a", "d1"), add("b", "d2"), add("c", "d3")]
    found = told(log, checkpoint_reader=lambda files: held)
    assert events(found) == [(2, ["d3"], ["d3"]), (3, ["d1"], ["d1"])]
    assert (days(found.old), found.since, found.whole) == (["d2"], NOON + timedelta(hours=2), True)


def test_without_a_reader_for_checkpoints_there_may_be_more(log: Log) -> None:
    found = told(cleaned(log, "parquet"))
    assert events(found) == [(2, ["d3"], ["d3"]), (3, ["d1"], ["d1"])]
    assert (found.old, found.whole) == ((), False)


def test_a_log_without_commits_is_an_error(log: Log) -> None:
    log.commit(METADATA, INFO)
    log.checksum()
    log.path(0).unlink()
    (log.root / "_delta_log" / f"{0:020}.checkpoint.parquet").touch()
    with pytest.raises(TableError, match="has no commits left"):
        told(log)


def test_times_never_go_back(log: Log) -> None:
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), INFO)
    stamped(log)
    early = (NOON - timedelta(hours=5)).timestamp()
    os.utime(log.path(1), (early, early))
    assert DeltaLog(str(log.root)).times(0, 1) == {0: NOON, 1: NOON}
    with pytest.raises(TableError, match="ends with version 1, a later one"):
        DeltaLog(str(log.root)).times(0, 2)


# --- as the tool asks ---------------------------------------------------------------------------


def test_the_tool_is_told_of_many_tables_at_once(log: Log, tmp_path: Path) -> None:
    log.commit(METADATA, INFO)
    log.commit(add("a", "d1"), ours("t1", [["d1"], 1, "f"], job="s:j", inputs=[["s:raw", 3]]))
    stamped(log)
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "file").touch()
    places = [str(log.root), str(tmp_path / "nothing"), str(strange)]
    found, none, error = DeltaTableLogs().histories([TablePlace(place) for place in places])
    assert isinstance(found, TableHistory)
    (commit,) = found.commits
    assert (commit.version, commit.at, commit.job) == (1, NOON + timedelta(hours=1), "s:j")
    assert (commit.changed, commit.made, commit.read) == (
        ({"day": "d1"},),
        ({"day": "d1"},),
        {"s:raw": 3},
    )
    assert found.columns == {"day": "string"}
    assert isinstance(none, TableHistory)
    assert none.version is None
    assert isinstance(error, TableLogError)
    assert "is not a Delta table" in str(error)
    assert DeltaTableLogs().histories([]) == []


def test_an_answer_that_is_none_is_an_error() -> None:
    logs = DeltaTableLogs(command=["true"])
    with pytest.raises(TableLogError, match="cannot be read"):
        logs.histories([TablePlace("x")])


def test_the_command_prints_one_table_on_a_line(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_: object) -> None:
        raise SparkMissingError("there is no Spark", hint="install it")

    log.commit(METADATA, INFO)
    asked = json.dumps([{"location": str(log.root)}, {"location": "s3://b/t"}])
    monkeypatch.setattr("sys.stdin", io.StringIO(asked))
    monkeypatch.setattr("spark_runtime.__main__.get_session", missing)  # a store takes a session
    assert main(["history"]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["kind"], first["version"], first["commits"]) == ("table_history", 0, [])
    assert second["error"] == {"message": "there is no Spark", "hint": "install it"}


def test_parquet_tables_are_asked_beside_delta_tables(log: Log, tmp_path: Path) -> None:
    log.commit(METADATA, add("a", "d1"), INFO)
    file = tmp_path / "p" / "day=d1" / "one.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    os.utime(file, (NOON.timestamp(),) * 2)
    places = [TablePlace(str(log.root)), TablePlace(str(tmp_path / "p"), format="parquet")]
    delta, found, nowhere = DeltaTableLogs().histories(
        [*places, TablePlace(None, "db.t", "parquet")]
    )
    assert isinstance(delta, TableHistory)
    assert isinstance(found, TableHistory)
    (commit,) = found.commits
    assert (commit.at, commit.version, commit.made) == (NOON, None, ({"day": "d1"},))
    assert isinstance(nowhere, TableLogError)
    assert "location" in nowhere.hint
