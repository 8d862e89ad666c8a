"""Which warm worker does which attempt, without any worker."""

from __future__ import annotations

import threading
import time
from typing import cast

import pytest

from lineage_backfill.engines.spark.seating import Seating, Table, WarmWorker
from lineage_backfill.errors import EngineError


class Worker:
    """As much of a worker as seating needs."""

    def __init__(self, key: str = "k") -> None:
        self.key = key
        self.has_ended = False
        self.closed = 0

    def close(self, patience: float = 1) -> None:
        self.closed += 1


def started(seating: Seating, table: Table, worker: Worker | None = None) -> Worker:
    """Start the worker of a new table."""
    assert table.worker is None
    worker = worker or Worker(table.key)
    table.worker = cast(WarmWorker, worker)
    seating.ready(table)
    return worker


class Waiting:
    """Threads that ask for a seat one after another, and in which order they got it."""

    def __init__(self, seating: Seating) -> None:
        self.seating = seating
        self.got: list[tuple[str, Table]] = []
        self._threads: list[threading.Thread] = []

    def ask(self, name: str, key: str = "k", *, own: bool = False) -> None:
        def take() -> None:
            self.got.append((name, self.seating.take(key, own=own)))

        thread = threading.Thread(target=take, daemon=True)
        self._threads.append(thread)
        thread.start()
        while thread.is_alive() and len(self.seating._waiting) < len(self._threads) - len(self.got):
            time.sleep(0.01)

    def served(self, *names: str) -> bool:
        """Whether these were served so far, in this order, and no other."""
        until = time.monotonic() + 10
        while len(self.got) < len(names) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.05)
        return tuple(name for name, _ in self.got) == names


def test_one_starts_and_the_others_wait_in_their_order() -> None:
    seating = Seating(1, 2)
    waiting = Waiting(seating)
    for name in ("first", "second", "third", "fourth"):
        waiting.ask(name)
    assert waiting.served("first")
    (_, table) = waiting.got[0]
    started(seating, table)
    assert waiting.served("first", "second")
    seating.leave(table)
    assert waiting.served("first", "second", "third")
    seating.leave(table)
    assert waiting.served("first", "second", "third", "fourth")
    assert len({table for _, table in waiting.got}) == 1


def test_a_second_worker_is_started_only_where_the_first_has_no_seat() -> None:
    seating = Seating(2, 2)
    waiting = Waiting(seating)
    for name in ("first", "second", "third"):
        waiting.ask(name)
    assert waiting.served("first", "third")  # the second waits for the first one's worker
    started(seating, waiting.got[0][1])
    assert waiting.served("first", "third", "second")


def test_one_that_needs_room_comes_before_those_that_ask_later() -> None:
    seating = Seating(1, 1)
    table = seating.take("k")
    worker = started(seating, table)
    waiting = Waiting(seating)
    waiting.ask("other key", "other")
    waiting.ask("same key")
    seating.leave(table)
    assert waiting.served("other key")
    assert worker.closed == 1


@pytest.mark.parametrize("own", [False, True])
def test_an_idle_worker_makes_room(own: bool) -> None:
    seating = Seating(1, 1)
    table = seating.take("k")
    worker = started(seating, table)
    seating.leave(table)
    new = seating.take("k" if own else "other", own=own)
    assert (new.worker, worker.closed) == (None, 1)
    alone = started(seating, new)
    seating.leave(new)
    assert alone.closed == own  # one of its own does nothing else


def test_an_attempt_of_its_own_shares_no_worker_with_seats_left() -> None:
    seating = Seating(2, 4)
    started(seating, seating.take("k"))
    own = seating.take("k", own=True)
    worker = started(seating, own)
    other = seating.take("k")
    assert other is not own
    seating.leave(own)
    assert worker.closed == 1


def test_a_worker_that_takes_no_more_is_closed_after_the_last_of_its_seats() -> None:
    seating = Seating(2, 2)
    table = seating.take("k")
    worker = started(seating, table)
    worker.has_ended = True
    new = seating.take("k")
    assert new is not table
    assert worker.closed == 0
    seating.leave(table)
    assert worker.closed == 1


def test_what_an_earlier_tool_left_counts_against_the_slots() -> None:
    seating = Seating(1, 1)
    left = Worker()
    table = seating.seat(cast(WarmWorker, left))
    waiting = Waiting(seating)
    waiting.ask("first")
    assert waiting.served()
    seating.leave(table)
    assert waiting.served("first")
    assert waiting.got[0][1] is table


def test_one_that_did_not_start_gives_its_slot_to_the_next() -> None:
    seating = Seating(1, 1)
    table = seating.take("k")
    waiting = Waiting(seating)
    waiting.ask("second")
    assert waiting.served()
    assert seating.remove(table)
    assert not seating.remove(table)
    assert waiting.served("second")


def test_who_waits_when_it_is_closed_is_told_so() -> None:
    seating = Seating(1, 1)
    started(seating, seating.take("k"))
    errors: list[str] = []

    def take() -> None:
        try:
            seating.take("k")
        except EngineError as error:
            errors.append(error.message)

    thread = threading.Thread(target=take)
    thread.start()
    time.sleep(0.1)
    assert len(seating.close()) == 1
    thread.join(5)
    assert errors == ["the engine was closed"]


@pytest.mark.parametrize(("idle_for", "ends"), [(0.0, 1), (9.0, 0)])
def test_idle_workers_end_and_busy_ones_do_not(idle_for: float, ends: int) -> None:
    seating = Seating(2, 1)
    idle, busy = seating.take("k"), seating.take("k")
    for table in (idle, busy):
        started(seating, table)
    seating.leave(idle)
    old, later = seating.idle(time.monotonic() - idle_for)
    assert (len(old), later is None) == (ends, bool(ends))
