"""A driver as a service outlives what goes wrong with one backfill, with its store and its file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lineage_backfill.errors import BackfillError, ConfigError, StoreUnreachableError
from lineage_backfill.ports import Reporter, RunStore, Settings
from lineage_backfill.runs.drive.owner import LEASE
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from lineage_backfill.workspace import service as module
from lineage_backfill.workspace.service import Service, ServiceReporter
from tests.fakes import NOW, backfill_record, planned_run


class Told(ServiceReporter):
    """Keeps a line for each call."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def refused(self, backfill_id: str, why: str) -> None:
        self.lines.append(f"{backfill_id} {why}")

    def unreachable(self, error: BackfillError) -> None:
        self.lines.append(str(error))


class Runner:
    """Drives as `does` says for a backfill: "wait" until it is let go, or raises an error."""

    does: dict[str, Exception | str] = {}  # noqa: RUF012 - each test sets its own
    adopted: list[str] = []  # noqa: RUF012

    def __init__(self, *_: Any) -> None:
        self.over = Event()

    def adopt(self, backfill: str) -> None:
        self.adopted.append(backfill)
        what = self.does.get(backfill)
        if isinstance(what, Exception):
            raise what
        if what == "wait":
            self.over.wait(30)

    def let_go(self) -> None:
        self.over.set()

    def notifying(self, _store: RunStore) -> AbstractContextManager[None]:
        return nullcontext()


class Bench:
    """A service over a store with backfills that have no driver."""

    def __init__(self, store: SqlRunStore, *ids: str, slots: int = 4) -> None:
        self.store = store
        self.told = Told()
        self.broken: BackfillError | None = None
        engines = [SimpleNamespace(name="fake")]
        self.project = SimpleNamespace(
            name="shop", target="", declarations=SimpleNamespace(engines=engines)
        )
        for id_ in ids:
            self.add(id_)
        self.service = Service(
            open_workspace=cast(Any, self.workspace),
            reporter_of=lambda _: Reporter(),
            reporter=self.told,
            slots=slots,
        )

    def add(self, id_: str, engine: str = "fake", project: str = "shop") -> None:
        settings = Settings(project=project)
        record = backfill_record(id_, settings=settings, updated_at=NOW - LEASE)
        self.store.create(record, {}, [planned_run("r", engine=engine)])

    def workspace(self) -> Any:
        if self.broken is not None:
            raise self.broken

        @contextmanager
        def open_store(*, create: bool) -> Iterator[RunStore]:
            yield self.store

        return SimpleNamespace(project=self.project, open_store=open_store)

    def look(self) -> None:
        self.service._look(self.store, cast(Any, self.project))

    def settle(self) -> None:
        for drive in self.service._drives.values():
            drive.thread.join(30)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlRunStore]:
    monkeypatch.setattr(module, "Runner", Runner)
    monkeypatch.setattr(Runner, "does", {})
    monkeypatch.setattr(Runner, "adopted", [])
    with closing(SqlRunStore(IN_MEMORY)) as made:
        yield made


def test_one_backfill_that_breaks_ends_no_other_and_is_tried_again_later(
    store: SqlRunStore,
) -> None:
    bench = Bench(store, "b-1", "b-2")
    Runner.does = {"b-1": ZeroDivisionError("oh"), "b-2": "wait"}
    bench.look()
    bench.service._drives["b-1"].thread.join(30)
    bench.look()
    assert bench.told.lines == ["b-1 oh"]
    assert Runner.adopted == ["b-1", "b-2"]  # not at once again
    bench.service._refusals["b-1"].again = 0.0
    bench.look()
    bench.service._drives["b-1"].thread.join(30)
    bench.look()
    assert Runner.adopted == ["b-1", "b-2", "b-1"]
    assert bench.service._refusals["b-1"].wait == 10.0  # twice as long as before
    bench.service._let_go()


def test_it_drives_no_more_than_its_slots_and_lets_go_in_the_end(store: SqlRunStore) -> None:
    bench = Bench(store, "b-1", "b-2", "b-3", slots=2)
    Runner.does = dict.fromkeys(("b-1", "b-2", "b-3"), "wait")
    bench.look()
    bench.look()
    assert Runner.adopted == ["b-1", "b-2"]
    assert len(store.drivers()) == 1
    stopped = Event()
    stopped.set()
    bench.service.run(stopped)
    assert not any(one.thread.is_alive() for one in bench.service._drives.values())
    assert store.drivers() == ()


def test_a_store_that_does_not_answer_is_asked_again(
    store: SqlRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, stopped = Bench(store, "b-1"), Event()
    monkeypatch.setattr(module, "_LOOK", 0.01)
    asked, looks = store.open_claims, iter([True, True, False])

    def claims() -> Any:
        if next(looks, None):
            raise StoreUnreachableError("gone")
        stopped.set()
        return asked()

    monkeypatch.setattr(store, "open_claims", claims)
    bench.service.run(stopped)
    assert bench.told.lines == ["gone", "gone"]
    assert Runner.adopted == ["b-1"]


def test_a_broken_project_file_and_a_foreign_backfill_are_left_alone(store: SqlRunStore) -> None:
    bench = Bench(store, "b-1")
    bench.add("b-2", engine="other")
    bench.add("b-3", project="elsewhere")
    bench.broken = ConfigError("not valid TOML")
    bench.look()
    assert bench.told.lines == ["b-1 not valid TOML", "b-2 not valid TOML"]
    bench.broken = None
    for refused in bench.service._refusals.values():
        refused.again = 0.0
    bench.look()
    bench.settle()
    assert bench.told.lines[2:] == ["b-2 engine 'other' is not declared here"]
    assert Runner.adopted == ["b-1"]
