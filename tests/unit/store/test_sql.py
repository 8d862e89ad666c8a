"""The run store in a database: its schema, its file, its refusals."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from lineage_backfill.errors import (
    ConflictError,
    StoreError,
    StoreUnreachableError,
    UnknownNameError,
)
from lineage_backfill.model import JobRef
from lineage_backfill.ports import Lease, RunStore
from lineage_backfill.store import schema, sql, upgrade
from lineage_backfill.store.empty import EmptyRunStore
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from tests.fakes import NOW, backfill_record, planned_run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state/runs.db"


def test_what_was_written_is_there_after_opening_again(url: str) -> None:
    store = SqlRunStore(url)
    name = store.id
    store.create(backfill_record(), {"kind": "plan"}, [planned_run("r")])
    store.close()
    again = SqlRunStore(url)
    assert again.id == name
    assert [run.run_id for run in again.runs("b-1")] == ["r"]
    again.close()


@pytest.mark.parametrize(
    "value", ["größe 日本", "half \ud800", float("inf"), 10**30, -0.0, 1.1, [], {"a": [None, True]}]
)
def test_a_value_of_a_plan_comes_back_as_it_was(url: str, value: object) -> None:
    with closing(SqlRunStore(url)) as store:
        store.create(backfill_record("b"), {"value": value}, [planned_run("r")])
    with closing(SqlRunStore(url)) as store:
        found = store.plan("b")["value"]
    assert (repr(found), type(found)) == (repr(value), type(value))


def test_the_migrations_make_the_tables_of_the_schema(url: str) -> None:
    SqlRunStore(url).close()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, schema.metadata) == []
        tables = sa.inspect(connection).get_table_names()
    engine.dispose()
    assert all(table.startswith("lb_") for table in tables)


def test_a_store_without_an_audit_gets_one_and_keeps_its_backfills(url: str) -> None:
    with closing(SqlRunStore(url)) as store:
        store.create(backfill_record("b"), {}, [planned_run("r")])
        with store._write() as connection:  # as the first revision left it
            for later in (schema.acts, schema.tokens, schema.saved_plans):
                later.drop(connection)
            first = schema.REVISIONS[0]
            connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '{first}'")
    with closing(SqlRunStore(url)) as store:
        assert store.acts(1) == ()
        assert [one.id for one in store.backfills()] == ["b"]


def test_the_known_revisions_are_those_that_there_are() -> None:
    config = Config()
    folder = Path(upgrade.__file__).with_name("migrations")
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    revisions = [one.revision for one in script.walk_revisions()]
    assert tuple(reversed(revisions)) == schema.REVISIONS


def test_a_store_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    SqlRunStore(f"sqlite:///{file}").close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"UPDATE {schema.VERSION_TABLE} SET version_num = '0004'")
        connection.commit()
        before = list(connection.iterdump())
    with pytest.raises(StoreError, match=r"another version .*schema 0004") as caught:
        SqlRunStore(f"sqlite:///{file}")
    assert f"move or remove {file}:" in caught.value.hint
    with closing(sqlite3.connect(file)) as connection:
        assert list(connection.iterdump()) == before


def test_two_processes_may_open_a_new_store_at_once(url: str) -> None:
    code = f"from lineage_backfill.store.sql import SqlRunStore; print(SqlRunStore({url!r}).id)"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    names = {process.communicate(timeout=60)[0] for process in started}
    assert len(names) == 1
    assert names.pop().strip()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.db").write_text("this is no database, and it is long enough to be read" * 9)
    with pytest.raises(StoreError, match="cannot be used") as caught:
        SqlRunStore(f"sqlite:///{tmp_path}/runs.db")
    assert "Restore a copy of the file" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "nosuch://x",
        "sqlite:////proc/nowhere/runs.db",
        "sqlite+aiosqlite:////proc/nowhere/runs.db",
        "sqlite+pysqlcipher:////proc/nowhere/runs.db",
        "postgresql+psycopg_async://me@127.0.0.1:9/x",
    ],
)
def test_an_address_that_cannot_be_opened_says_what_to_do(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        SqlRunStore(url)
    assert caught.value.hint


def test_an_empty_store_knows_no_backfill() -> None:
    store: RunStore = EmptyRunStore()
    lease = Lease(backfill_id="b-1", owner="me", fence=1)
    assert (store.backfills(), store.past_runs(9), store.traces(JobRef("n", "j"), ())) == ((),) * 3
    assert store.tallies(["b-1"]) == {"b-1": {}}
    for ask in (store.backfill, store.plan, store.tails, store.runs, store.attempts, store.events):
        with pytest.raises(UnknownNameError, match="no backfill b-1"):
            ask("b-1")
    with pytest.raises(UnknownNameError):
        store.request_control("b-1", None, now=NOW)
    with pytest.raises(UnknownNameError):
        store.acquire("b-1", "me", now=NOW, ttl=timedelta(seconds=1))
    with pytest.raises(ConflictError):
        store.record(lease, (), now=NOW)
    with pytest.raises(StoreError, match="b-1 cannot be kept"):
        store.create(backfill_record(), {}, [])
    store.close()


def test_a_writer_waits_for_another_one(url: str, tmp_path: Path) -> None:
    store = SqlRunStore(url)
    other = sqlite3.connect(tmp_path / "state" / "runs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    done = threading.Event()

    def create() -> None:
        store.create(backfill_record(), {}, [])
        done.set()

    thread = threading.Thread(target=create)
    thread.start()
    time.sleep(0.2)
    assert not done.is_set()
    other.execute("COMMIT")
    other.close()
    thread.join(10)
    assert done.is_set()
    store.close()


def test_a_database_that_accepts_and_says_nothing_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert sql._LIMITS["connect_timeout"] == 10
    monkeypatch.setitem(sql._LIMITS, "connect_timeout", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://me@127.0.0.1:{silent.getsockname()[1]}/runs"
        began = time.monotonic()
        with pytest.raises(StoreUnreachableError, match="does not answer"):
            SqlRunStore(url)
    assert time.monotonic() - began < 30


def test_an_address_may_set_its_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(
        sa, "create_engine", lambda _url, connect_args, **_: given.update(connect_args)
    )
    sql._connect("postgresql+psycopg://me@db/runs?connect_timeout=60")
    assert given.keys() == sql._LIMITS.keys() - {"connect_timeout"}


def test_a_store_in_memory_is_closed_between_two_uses_only() -> None:
    store = SqlRunStore(IN_MEMORY)
    inside, go_on = threading.Event(), threading.Event()

    def hold(_connection: object) -> None:
        inside.set()
        go_on.wait(10)

    sa.event.listen(store._engine, "begin", hold)
    reader, closer = threading.Thread(target=store.backfills), threading.Thread(target=store.close)
    reader.start()
    assert inside.wait(10)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    go_on.set()
    for thread in (reader, closer):
        thread.join(10)
        assert not thread.is_alive()
    with pytest.raises(StoreError, match="was closed"):  # a new connection would be an empty store
        store.backfills()
