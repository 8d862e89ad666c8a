"""What a pool of warm workers tells of their starts, without any process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import cast

import pytest

from lineage_backfill.engines.spark.pool import PoolEngine
from lineage_backfill.engines.spark.seating import WarmWorker
from lineage_backfill.errors import EngineError
from lineage_backfill.ports import Start
from tests.unit.engines.test_seating import Worker


class Slow(Worker):
    """A worker that is ready, or has failed, once a test says so."""

    def __init__(self, key: str, *, is_new: bool) -> None:
        super().__init__(key)
        self.is_new = is_new
        self.is_busy = self.fails = False
        self.goes_on, self.waits = threading.Event(), threading.Event()

    def wait_until_ready(self) -> None:
        self.waits.set()
        assert self.goes_on.wait(10)
        if self.fails:
            raise EngineError("no room")


class Pool(PoolEngine):
    """Starts such workers."""

    def __init__(self) -> None:
        super().__init__(slots=3, idle_seconds=60)
        self.made: list[Slow] = []
        self.takes_over = False
        self.leave = threading.Event()
        self._asked: list[threading.Thread] = []

    def new_worker(self, key: str, *, own: bool = False) -> WarmWorker:
        self.made.append(Slow(key, is_new=not self.takes_over))
        return cast(WarmWorker, self.made[-1])

    def ask(self, key: str = "k") -> Slow:
        """Ask for a seat, and return the worker that is started for it."""
        number = len(self.made)

        def sit() -> None:
            with ExitStack() as stack:
                try:
                    stack.enter_context(self._seat(key))
                except EngineError:
                    return
                assert self.leave.wait(10)

        self._asked.append(threading.Thread(target=sit, daemon=True))
        self._asked[-1].start()
        while len(self.made) <= number:
            time.sleep(0.01)
        assert self.made[number].waits.wait(10)
        return self.made[number]

    def after(self, worker: Slow, *, fails: bool = False) -> list[Start]:
        """Let a start end, and return what is reported after it."""
        worker.fails = fails
        worker.goes_on.set()
        told: list[Start] = []
        while not any(one.is_over for one in told):
            time.sleep(0.01)
            told = list(self.starts())
        return told


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool()
    yield made
    made.leave.set()
    for thread in made._asked:
        thread.join(10)
    made.close()


def facts(starts: list[Start]) -> list[tuple[bool, bool]]:
    return [(one.is_over, one.has_failed) for one in starts]


def test_starts_at_once_are_told_apart(pool: Pool) -> None:
    first, second = pool.ask(), pool.ask()
    told = list(pool.starts())
    assert facts(told) == [(False, False)] * 2
    ids = [one.id for one in told]
    assert len(set(ids)) == 2
    told = pool.after(first)
    assert [one.id for one in told] == ids
    assert facts(told) == [(True, False), (False, False)]
    assert facts(pool.after(second)) == [(True, False)]
    assert pool.starts() == []


def test_a_start_that_fails_is_over_and_so_it_is_told(pool: Pool) -> None:
    assert facts(pool.after(pool.ask(), fails=True)) == [(True, True)]
    assert pool.starts() == []


def test_a_worker_that_was_taken_over_had_no_start(pool: Pool) -> None:
    pool.takes_over = True
    worker = pool.ask()
    assert pool.starts() == []
    worker.goes_on.set()
    assert pool.starts() == []
