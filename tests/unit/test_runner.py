"""Cancels backfills of a project, whatever has become of it since they began."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest

from lineage_backfill.errors import StoreError
from lineage_backfill.model import BackfillState, DatasetRef, RunState
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.ports import ControlRequest, Submission
from lineage_backfill.runs.drive.owner import LEASE, owner
from lineage_backfill.store.sql import SqlRunStore
from lineage_backfill.workspace.backfills import Backfills
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.runner import DriveOptions, Runner
from lineage_backfill.workspace.workspace import Workspace
from tests.events import event, write_events
from tests.fakes import FakeEngine

PROJECT = """
[project]
namespace = "shop"
[lineage]
events = ["events.ndjson"]
[engines.here]
kind = "command"
argv = ["true"]
[[dataset]]
name = "*"
grain = "day"
start = "2024-01-01"
[[job]]
name = "*"
engine = "here"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project file: `clean` reads `feed`, `daily` reads what it writes."""
    edges = [event("clean", ["feed"], ["clean"]), event("daily", ["clean"], ["daily"])]
    write_events(tmp_path / "events.ndjson", *edges)
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(PROJECT)
    return file


def opened(project: Path) -> Workspace:
    return Workspace(open_project(project), as_of=datetime(2024, 1, 5, tzinfo=UTC))


def submitted(project: Path, engine: FakeEngine) -> Runner:
    """Submit a backfill of two runs, one after the other; no process drives it yet."""
    workspace = opened(project)
    feed = ChangedDataset(dataset=DatasetRef("shop", "feed"), keys=("2024-01-02",))
    plan = Planning(workspace).plan(Request(changed=(feed,)))
    runner = Runner(workspace, options=DriveOptions(engines={"here": engine}))
    runner.submit(plan, Submission())
    return runner


def states(project: Path) -> list[str]:
    return [run["state"] for run in Backfills(opened(project)).status()["runs"]]


def test_a_run_that_only_the_cluster_knows_is_found_to_be_cancelled(project: Path) -> None:
    """Another machine submitted it, and has its run spec."""
    engine = FakeEngine(holds=True)
    engine.is_shared = True
    runner = submitted(project, engine)
    driving = Thread(target=runner.resume)
    driving.start()
    engine.wait_for(1)
    runner.let_go()
    driving.join(timeout=30)
    with closing(sqlite3.connect(project.parent / ".lineage-backfill" / "runs.db")) as store, store:
        store.execute("UPDATE lb_leases SET owner = NULL")  # as if its driver had died
    shutil.rmtree(project.parent / ".lineage-backfill" / "backfills")
    engine.release()
    runner = Runner(opened(project), options=DriveOptions(engines={"here": engine}))
    assert runner.cancel().state is BackfillState.CANCELLED
    assert states(project) == [RunState.SUCCEEDED, RunState.CANCELLED]


def test_runs_that_have_not_begun_are_cancelled_without_their_engine(project: Path) -> None:
    submitted(project, FakeEngine())
    project.write_text(PROJECT.replace("here", "there"))
    assert Runner(opened(project)).cancel().state is BackfillState.CANCELLED
    assert states(project) == [RunState.CANCELLED, RunState.CANCELLED]


def test_what_a_project_submits_and_tells_goes_by_the_time_of_the_store(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = timedelta(hours=2)
    monkeypatch.setattr(SqlRunStore, "time", lambda _, local: local + hours)
    hook = '[[notify]]\non = ["failed"]\ncommand = ["false"]\n'
    project.write_text(PROJECT + hook)
    before = datetime.now(UTC)
    runner = submitted(project, FakeEngine())
    with opened(project).open_store() as store:
        (record,) = store.backfills()
        assert record.submitted_at >= before + hours
        assert runner._hooks(store)._clock.now() >= before + hours
    assert Backfills(opened(project)).now() >= before + hours


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def replaced(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE customers (name)").close()


@pytest.mark.parametrize("harm", [emptied, replaced])
def test_a_store_file_without_its_tables_is_no_new_store_once_backfills_ran(
    project: Path, harm: Callable[[Path], None]
) -> None:
    submitted(project, FakeEngine()).resume()
    file = project.parent / ".lineage-backfill" / "runs.db"
    log = file.with_name("runs.db-wal")
    harm(file)
    log.write_bytes(b"what could still be read")
    with pytest.raises(StoreError, match="but backfills have run"):
        Backfills(opened(project)).history()
    assert log.exists()
    file.unlink()
    log.unlink()
    assert Backfills(opened(project)).history()["backfills"] == []  # it was moved away


def test_a_store_file_without_tables_is_a_new_store_where_no_backfill_ran(project: Path) -> None:
    file = project.parent / ".lineage-backfill" / "runs.db"
    file.parent.mkdir()
    file.touch()  # as a process leaves it that was killed while it made the store
    assert Backfills(opened(project)).history()["backfills"] == []
    submitted(project, FakeEngine())
    assert states(project) == ["pending", "pending"]


def test_what_is_being_cancelled_is_not_paused(project: Path) -> None:
    submitted(project, FakeEngine())
    with opened(project).open_store() as store:
        (record,) = store.backfills()
        store.acquire(record.id, owner(), now=datetime.now(UTC), ttl=LEASE)  # its driver is busy
        store.request_control(record.id, ControlRequest.KILL, now=datetime.now(UTC))
    assert Backfills(opened(project)).pause().state is BackfillState.CANCELLED
    with opened(project).open_store() as store:
        assert store.backfill(record.id).control is ControlRequest.KILL
