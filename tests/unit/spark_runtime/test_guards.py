"""The guards of a write, on logs written by hand: none of them needs Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from lineage_backfill.runspec.parse import parse_spec
from spark_runtime.errors import StaleAttemptError, VerificationError, WriteConflictError
from spark_runtime.tables.commits import app_id, commit_number, fence_number
from spark_runtime.tables.delta.log import METADATA_KEY, DeltaLog
from spark_runtime.tables.scope import Scope
from spark_runtime.tables.state import Commit, Since, Transaction
from spark_runtime.write.writer import _Write
from tests.delta_logs import METADATA, Log, add, ours, remove

THEIRS = {"commitInfo": {"operation": "WRITE", "userName": "them"}}


class Storage:
    """Restores by a commit that removes what others added, as Delta's would."""

    removes_files = True

    def __init__(self, log: Log) -> None:
        self._log = log
        self.log = DeltaLog(str(log.root))
        self.restored: list[int] = []

    def put_back(
        self, commits: Sequence[Commit], transaction: Transaction, added: object = None
    ) -> None:
        self.restored += [commit.version for commit in commits]
        before = self.log.state(commits[0].version - 1)
        now = self.log.state()
        actions: list[dict[str, Any]] = []
        for (day,) in sorted({values for commit in commits for values in commit.touched}):
            held, wanted = now.contents((day,)).files, before.contents((day,)).files
            actions += [remove(path, day) for path, _ in held or ()]
            actions += [add(path, day, rows) for (path, _), rows in (wanted or {}).items()]
        text = json.dumps({METADATA_KEY: dict(transaction.metadata)})
        info = {"commitInfo": {"operation": "WRITE", "userMetadata": text}}
        self._log.commit(*actions, info)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A table that holds d1 to d3 at version 1."""
    made = Log(tmp_path / "days")
    made.commit(METADATA)
    made.commit(*(add(f"old-{day}", day, 1) for day in ("d1", "d2", "d3")))
    return made


@pytest.fixture
def write(log: Log, document: dict[str, Any]) -> Any:
    """A write of d1 and d2 that has begun at version 1."""
    scope = [{"key": day, "values": {"day": day}} for day in ("d1", "d2")]
    document["outputs"][0].update(scope=scope)
    run = parse_spec(document)
    made = object.__new__(_Write)
    made.run, (made.output,) = run, run.outputs
    made.storage = cast("Any", Storage(log))
    state = made.log.state()
    made.columns, made.before, made.since = state.columns, state, Since.of(state)
    made.scope = Scope.of(state, made.output, made.output.scope)
    return made


def commit(log: Log, write: Any, *days: str, rows: int = 2, **more: Any) -> int:
    """Commit new files of these days as the run does, which counted 2 rows in each."""
    names = {"backfill_id": write.run.backfill_id, "run_id": write.run.run_id}
    actions = [
        action for day in days for action in (remove(f"old-{day}", day), add(f"n-{day}", day, rows))
    ]
    counted = [[[day], 2, None] for day in ("d1", "d2")]
    log.commit(*actions, ours(write.run.token, *counted, **names, **more))
    return log.version


def test_a_commit_of_the_scope_alone_is_accepted(log: Log, write: Any) -> None:
    log.commit(add("x", "d3"), THEIRS)  # beside the scope
    log.commit(remove("old-d1", "d1", dataChange=False), add("old-d1", "d1", dataChange=False))
    write._verify(commit(log, write, "d1", "d2"))
    assert write.storage.restored == []


def test_a_commit_that_touched_another_partition_is_reverted(log: Log, write: Any) -> None:
    version = commit(log, write, "d1", "d2", "d3")
    with pytest.raises(
        VerificationError, match=r"touched day=d3 outside its scope; it was reverted"
    ):
        write._verify(version)
    assert write.storage.restored == [version]
    assert set(write.log.state().contents(("d3",)).files) == {("old-d3", None)}


def test_a_commit_without_the_counted_rows_is_reverted(log: Log, write: Any) -> None:
    version = commit(log, write, "d1", "d2", rows=3)
    with pytest.raises(VerificationError, match="does not have the counted rows in day=d1, day=d2"):
        write._verify(version)
    assert write.storage.restored == [version]


def test_a_foreign_change_before_the_commit_is_kept_and_ours_reverted(log: Log, write: Any) -> None:
    log.commit(add("x", "d2"), THEIRS)
    version = commit(log, write, "d1")
    with pytest.raises(WriteConflictError, match=r"by them\).* changed day=d2 .*it was reverted"):
        write._verify(version)
    assert write.storage.restored == [version]
    assert ("x", None) in write.log.state().contents(("d2",)).files


def test_a_foreign_change_is_found_before_anything_is_written(log: Log, write: Any) -> None:
    write._refuse_foreign_changes(write.log.state())
    log.commit(add("x", "d1"), THEIRS)
    with pytest.raises(WriteConflictError, match="changed day=d1 after this run had started"):
        write._refuse_foreign_changes(write.log.state())


@pytest.mark.parametrize("change", ["again", "back"])
def test_another_table_under_the_same_name_is_a_conflict(log: Log, write: Any, change: str) -> None:
    write.since = (
        replace(write.since, table_id="another")
        if change == "again"
        else replace(write.since, version=9)
    )
    with pytest.raises(WriteConflictError, match=r"created again|is at version 1, and was at 9"):
        write._refuse_foreign_changes(write.log.state())


def named(text: str) -> dict[str, Any]:
    return {"commitInfo": {"operation": "WRITE", "userName": "them", "txnId": text}}


def test_a_folder_put_back_from_a_copy_is_a_conflict(log: Log, write: Any) -> None:
    """It has the same id and the same version number, and other commits."""
    log.commit(add("x", "d3"), named("first"))
    write.since = Since.of(write.log.state())
    write._refuse_foreign_changes(write.log.state())
    log.version -= 1
    log.commit(add("y", "d1"), named("second"))
    for _ in range(2):  # at that version, and above it
        with pytest.raises(WriteConflictError, match="was restored from a copy"):
            write._refuse_foreign_changes(DeltaLog(str(log.root)).state())
        log.commit(add("z", "d3"), named("third"))


def fence(log: Log, run: Any, attempt: int) -> None:
    later = replace(run, attempt=attempt)
    log.commit({"txn": {"appId": app_id(run), "version": fence_number(later)}})


def test_a_later_attempt_stops_an_earlier_one(log: Log, write: Any) -> None:
    fence(log, write.run, write.run.attempt)  # its own
    write._verify(commit(log, write, "d1", "d2"))
    fence(log, write.run, write.run.attempt + 1)
    with pytest.raises(StaleAttemptError, match="a later attempt is writing"):
        write._verify(log.version - 1)
    write.before = write.log.state()
    assert write.storage.restored == []


def test_an_attempt_that_has_committed_does_not_write_again(log: Log, write: Any) -> None:
    log.commit({"txn": {"appId": app_id(write.run), "version": commit_number(write.run)}})
    write.before = write.log.state()
    with pytest.raises(StaleAttemptError, match=r"has written to .* already"):
        write._made()
