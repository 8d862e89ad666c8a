"""What a pool of warm workers tells of their starts, without any process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.spark.pool import PoolEngine
from lineage_backfill.engines.spark.worker import Worker
from lineage_backfill.errors import EngineError
from lineage_backfill.ports import AttemptState, Start


class Slow:
    """A worker that is ready, or has failed, once a test says so."""

    has_ended = is_worn = False

    def __init__(self, key: str) -> None:
        self.key, self.began, self.fails = key, time.monotonic(), False
        self.goes_on, self.waits = threading.Event(), threading.Event()

    def wait_until_ready(self) -> None:
        self.waits.set()
        assert self.goes_on.wait(10)
        if self.fails:
            raise EngineError("no room")

    def close(self, timeout: float = 5.0) -> None:
        self.has_ended = True

    let_go = close


class Pool(PoolEngine):
    """Starts such workers."""

    def __init__(self) -> None:
        super().__init__(3, idle_seconds=60, max_age=60)
        self.made: list[Slow] = []
        self.leave = threading.Event()
        self._asked: list[threading.Thread] = []

    def key(self) -> str:
        return "k"

    def new_worker(self, key: str) -> Worker:
        self.made.append(Slow(key))
        return cast(Worker, self.made[-1])

    def ask(self) -> Slow:
        """Ask for a worker, and return the one that is started."""
        number = len(self.made)

        def sit() -> None:
            with ExitStack() as stack:
                try:
                    stack.enter_context(self._worker())
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


@pytest.mark.parametrize("doubt", [None, "whether it goes on is unknown"])
def test_what_a_dead_worker_has_left_elsewhere_is_ended_before_its_attempt_is_judged(
    tmp_path: Path, doubt: str | None
) -> None:
    ended: list[Path] = []

    class Remote(Pool):
        def end_remains(self, files: AttemptFiles) -> str | None:
            ended.append(files.spec_path)
            return doubt

    files = AttemptFiles(tmp_path / "spec.json")
    files.spec_path.write_text(json.dumps({"token": "t", "result_path": str(tmp_path / "none")}))
    files.claim({"pid": 1, "life_sign": str(tmp_path / "gone")})
    pool = Remote()
    assert pool.find(files.spec_path, "t") == str(files.spec_path)
    outcome = pool.poll(str(files.spec_path))
    assert ended == [files.spec_path]
    assert outcome.state is AttemptState.LOST
    assert outcome.error == (doubt or "the worker ended with its executor and left no result")
    pool.close()
