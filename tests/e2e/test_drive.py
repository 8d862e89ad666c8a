"""`drive` takes what has no driver: submitted, due, or left by a process that died."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from lineage_backfill.store.sql import SqlRunStore
from tests.e2e.test_cli import FIX, Shop, read_until, wait_for
from tests.processes import Command

pytestmark = pytest.mark.e2e


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def drive(shop: Shop) -> Iterator[Callable[..., Command]]:
    """Starts drives, which are there once this returns; all are ended in the end."""
    with ExitStack() as stack:

        def start(*arguments: str, ready: str = "Driving") -> Command:
            process = shop.start("drive", *arguments)
            stack.callback(end, process)
            read_until(process, ready)
            wait_for(lambda: pid_of(process) in drivers(shop))
            return process

        yield start


def end(process: Command) -> None:
    """Kill a process that may have ended, and close its streams."""
    process.kill()
    process.communicate(timeout=30)


def pid_of(process: Command) -> str:
    return str(process.pid)


def drivers(shop: Shop) -> list[str]:
    """Return the process ids of the drivers that the store knows."""
    file = shop.folder / ".lineage-backfill" / "runs.db"
    if not file.exists():
        return []
    with closing(SqlRunStore(f"sqlite:///{file}")) as store:
        return [one.owner.rpartition(" ")[2] for one in store.drivers()]


def submit(shop: Shop, *more: str) -> str:
    return shop("run", *FIX, "--yes", "--detach", *more).stdout.strip()


def state(shop: Shop, backfill: str) -> str:
    return str(shop.document("status", backfill, schema="status")["state"])


def test_a_drive_takes_what_is_submitted_and_leaves_cleanly(
    shop: Shop, drive: Callable[..., Command]
) -> None:
    process = drive()
    done = shop("run", *FIX, "--yes", "--detach")
    assert "The `drive` service picks it up." in done.stderr
    backfill = done.stdout.strip()
    assert "succeeded" in shop("watch", backfill).stderr
    assert not (shop.folder / ".lineage-backfill" / "backfills" / backfill / "driver.log").exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert drivers(shop) == []
    assert "its log:" in shop("run", *FIX, "--yes", "--detach").stderr  # a driver of its own
    shop("watch")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_drive_leaves_under_way_is_adopted_by_the_next(
    shop: Shop, drive: Callable[..., Command], number: int
) -> None:
    shop.does({"clean": "wait"})
    first = drive()
    backfill = submit(shop)
    wait_for(lambda: bool(shop.journal()))
    wait_for(lambda: '"running"' in shop("status", backfill, "--json").stdout.split("runs")[1])
    first.send_signal(number)
    assert first.wait(30) == (0 if number == signal.SIGTERM else -number)
    second = drive(ready="Driving")
    shop.go()
    assert "succeeded" in shop("watch", backfill).stderr
    assert shop.started() == ["clean", "daily"]  # each once
    assert state(shop, backfill) == "succeeded"
    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_drive_goes_on_with_what_a_foreground_run_has_left(
    shop: Shop, drive: Callable[..., Command], number: int
) -> None:
    shop.does({"clean": "wait"})
    running = shop.start("run", *FIX, "--yes")
    wait_for(lambda: bool(shop.journal()))
    drive()
    time.sleep(2.5)  # it looks each second, and leaves alone what is driven
    assert shop.started() == ["clean"]
    running.send_signal(number)
    said = running.communicate(timeout=30)[1]
    if number == signal.SIGTERM:
        assert running.returncode == 130
        assert "those under way continue" in said
        assert "`drive` service resumes it" in said
    shop.go()
    shop("watch")
    assert shop.started() == ["clean", "daily"]


def test_what_a_person_has_stopped_is_left_to_a_person(
    shop: Shop, drive: Callable[..., Command]
) -> None:
    shop.does({"clean": "wait"})
    running = shop.start("run", *FIX, "--yes")
    wait_for(lambda: bool(shop.journal()))
    shop("pause")
    end(running)  # before it has paused
    drive()
    shop.go()
    wait_for(lambda: state(shop, newest(shop)) == "paused")
    time.sleep(2.5)
    assert shop.started() == ["clean"]
    assert "succeeded daily" in shop("resume").stderr


def newest(shop: Shop) -> str:
    return str(shop.document("history", schema="history")["backfills"][0]["id"])


def test_a_backfill_of_another_time_begins_when_it_is_due_and_only_if_its_plan_holds(
    shop: Shop, drive: Callable[..., Command]
) -> None:
    drive()
    later = submit(shop, "--at", "10s")
    assert state(shop, later) == "scheduled"
    assert shop.journal() == []
    shop("watch", later)
    assert shop.started() == ["clean", "daily"]
    moved = submit(shop, "--at", "10s")
    shop.lineage(("clean", "feed", "clean"), ("daily", "clean", "daily"), ("new", "clean", "cnew"))
    assert "interrupted" in shop("watch", moved, code=130).stderr
    assert shop.started() == ["clean", "daily"]


def test_an_idle_drive_delivers_what_others_left(shop: Shop, drive: Callable[..., Command]) -> None:
    shop.declare(
        '[[notify]]\non = ["finished"]\ncommand = ["sh", "-c", "test -e up && cat > got"]\n'
    )
    shop("run", *FIX, "--yes")
    (shop.folder / "up").touch()
    drive()
    wait_for((shop.folder / "got").exists)


def test_two_drives_on_one_postgresql_never_drive_a_backfill_twice(
    shop: Shop, postgres_url: str
) -> None:
    environment = shop.surroundings()["env"] | {"LINEAGE_BACKFILL_STORE_URL": postgres_url}
    drives = [shop.start("drive", env=environment) for _ in range(2)]
    try:
        with closing(SqlRunStore(postgres_url)) as store:
            wait_for(lambda: len(store.drivers()) == 2)
            backfills = []
            for day in range(2, 5):
                keys = ("feed", "--from", f"2024-01-0{day}T00", "--to", f"2024-01-0{day}T01")
                command = ("run", *keys, "--now", FIX[-1], "--yes", "--detach")
                done = shop.start(*command, env=environment)
                out, err = done.communicate(timeout=120)
                assert done.returncode == 0, err
                backfills.append(out.strip())
            wait_for(lambda: all(store.backfill(one).state == "succeeded" for one in backfills))
            events = [event for one in backfills for event in store.events(one)]
    finally:
        for process in drives:
            process.send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=60)[1] for process in drives]
    assert [process.returncode for process in drives] == [0, 0], said
    begun = [event for event in events if event.run_id is None and event.kind == "running"]
    assert len(begun) == len(backfills)
    assert set(Counter(shop.journal()).values()) == {1}
    assert len(shop.journal()) == 6
