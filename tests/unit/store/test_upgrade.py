"""A run store that the first schema has made is opened with nothing lost, and gone on with."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from lineage_backfill.model import BackfillState, JobRef, RunState
from lineage_backfill.ports import AttemptState, ControlRequest, Move, Settings, Trace
from lineage_backfill.store import schema
from lineage_backfill.store.sql import SqlRunStore
from tests.fakes import NOW

FIRST = Path(__file__).parents[2] / "data" / "store" / "first_schema.sql"
ID = "b-20240401-000000-abcd"


@pytest.fixture
def url(tmp_path: Path) -> str:
    connection = sqlite3.connect(tmp_path / "runs.db")
    connection.executescript(FIRST.read_text())
    connection.close()
    return f"sqlite:///{tmp_path}/runs.db"


def test_the_first_schema_becomes_the_present_one(url: str) -> None:
    SqlRunStore(url).close()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, schema.metadata) == []
    engine.dispose()


def test_nothing_is_lost_and_the_backfill_goes_on(url: str) -> None:
    store = SqlRunStore(url)
    assert store.id == "316f509f67da41fb85ba426809317657"
    (record,) = store.backfills()
    assert (record.id, record.state, record.wish) == (
        ID,
        BackfillState.RUNNING,
        ControlRequest.PAUSE,
    )
    assert (record.description, record.submitted_by) == ("three bad hours", "ann")
    assert (record.parameters, record.code_version) == ({"rate": 2}, "abc")
    assert record.settings == Settings()
    assert store.plan(ID)["kind"] == "plan"
    states = [(run.run_id, run.state, run.token, run.cut_off) for run in store.runs(ID)]
    assert states == [
        ("r0", RunState.SUCCEEDED, "t-1", ()),
        ("r1", RunState.SUBMITTED, "t-2", ()),
        ("r2", RunState.PENDING, None, ()),
    ]
    first, second = store.attempts(ID)
    assert (first.state, first.result) == (AttemptState.SUCCEEDED, {"outputs": [], "inputs": []})
    assert second.state is AttemptState.QUEUED
    assert len(store.events(ID)) == 7
    assert store.traces(JobRef("n", "r0"), ("2024-03-01..2024-03-03",)) == ()

    later = NOW + timedelta(minutes=1)
    lease = store.acquire(ID, "me", now=later, ttl=timedelta(seconds=30))
    assert lease.fence == 2
    lost = Move(run_id="r1", state=RunState.PENDING, attempt=1, attempt_state=AttemptState.LOST)
    trace = Trace(job=JobRef("n", "r1"), keys=("2024-03-01",))
    again = Move(run_id="r1", state=RunState.SUBMITTED, attempt=2, token="t-3", trace=trace)
    store.record(lease, [lost, again], now=later)
    assert store.runs(ID)[1].attempt == 2
    assert len(store.traces(JobRef("n", "r1"), ("2024-03-01",))) == 1
    store.close()
