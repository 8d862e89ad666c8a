"""One backfill of the small world, whose processes are disturbed, and what it must come to."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.project.notify import NotifyDeclaration
from lineage_backfill.store.sql import SqlRunStore
from tests.chaos import world
from tests.chaos.driver import STEPS, SUCCEEDED, Drive, drive
from tests.processes import server

DAYS = ("2024-03-01", "2024-03-02", "2024-03-03")
_TIMEOUT = 600  # seconds; a drive that takes longer hangs


class Scenario:
    """A backfill in a folder; `store` is the address of an empty run store of its own."""

    def __init__(
        self,
        folder: Path,
        store: str,
        tables: world.Tables | None = None,
        *,
        days: Sequence[str] = DAYS,
        per_key: Sequence[str] = ("a", "c", "e"),
    ) -> None:
        self.folder = folder
        self.store = store
        self.days = days
        self.plan = world.plan(days, per_key)
        self.tables = tables or world.FileTables(folder, days)
        self.hooks: Sequence[NotifyDeclaration] = ()
        self.executors_killed = 0
        self.tables.make()
        self.before = self.tables.stamps()

    @property
    def id(self) -> str | None:
        """The id of the backfill, None before it stands in the store."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "id").read_text()
        return None

    @property
    def kills(self) -> int:
        """How many executors and workers were killed."""
        return self.executors_killed + self.workers_killed

    @property
    def workers_killed(self) -> int:
        """How many workers were killed; they may outlive the executor that started them."""
        return self._killed.stat().st_size if self._killed.exists() else 0

    @property
    def _killed(self) -> Path:
        return self.folder / "workers-killed"

    def start(
        self,
        disturb: Mapping[tuple[str, int], str] | None = None,
        worker_kills: Sequence[tuple[str, int]] = (),
    ) -> ForkServerProcess:
        """Start a process that begins the backfill, or goes on with it."""
        for reached in self.folder.glob("reached *"):
            reached.unlink()
        asked = Drive(
            folder=self.folder,
            store=self.store,
            plan=self.plan,
            tables=self.tables,
            backfill_id=self.id,
            disturb=disturb or {},
            worker_kills=worker_kills,
            hooks=self.hooks,
        )
        process: ForkServerProcess = server().Process(target=drive, args=(asked,))
        process.start()
        return process

    def end(self, process: ForkServerProcess) -> int:
        """Wait for the end of a process; returns its exit code, negative for a signal."""
        process.join(_TIMEOUT)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"it hangs:\n{self.log()}")
        self.executors_killed += process.exitcode == -signal.SIGKILL
        return process.exitcode

    def run(
        self,
        *steps: tuple[str, int],
        action: str = "kill",
        worker_kills: Sequence[tuple[str, int]] = (),
    ) -> int:
        """Drive with a disturbance at each of these steps, as often as they were reached."""
        return self.end(self.start(dict.fromkeys(steps, action), worker_kills))

    def check(self, *, rewritten: int = 0) -> None:
        """Check tables, store, and that so many runs at most have written a second time."""
        assert self.tables.read() == world.expected(self.days), self.log()
        assert self.tables.stamps() == self.before
        journal = self.tables.journal()
        runs = Counter(run for run, _ in journal)
        planned = Counter(run.id for run in self.plan.runs or ())
        assert planned - runs == Counter(), self.log()
        assert (runs - planned).total() <= rewritten, (runs - planned, self.log())
        assert set(Counter(token for _, token in journal).values()) == {1}
        assert self.id is not None
        store = SqlRunStore(self.store)
        try:
            world.check_store(store, self.id, self.plan)
        finally:
            store.close()

    def kill_a_worker(self) -> bool:
        """Kill a worker that is at work now, with all its children; False if there is none."""
        for path in self.folder.glob("state/backfills/*/runs/*.claim.json"):
            attempt = AttemptFiles(path.with_name(path.name.replace("claim", "spec")))
            claim = attempt.claimed_by()
            if claim is not None and attempt.outcome() is None and attempt.life_sign():
                if (pid := claim.get("pid")) is None:
                    continue  # it is just being started
                os.killpg(pid, signal.SIGKILL)
                with self._killed.open("a") as file:
                    file.write(".")
                return True
        return False

    def log(self) -> str:
        """What the drives and the runs have said."""
        paths = [self.folder / "driver.log", *self.folder.glob("state/backfills/*/runs/*.log.txt")]
        return "".join(path.read_text() for path in paths if path.exists())


def disturb_at_random(
    scenario: Scenario, chance: random.Random, *, kills: int, patience: float = 0.6, times: int = 4
) -> None:
    """Kill executors and workers until so many died or the backfill is done.

    One that is killed at a step has reached it up to so many `times`, another one is killed within
    `patience` seconds.
    """
    while scenario.kills < kills:
        what = chance.choice(("step", "worker", "both", "moment", "moment of a worker"))
        disturb = {(chance.choice(STEPS), chance.randint(1, times)): "kill"}
        worker_kills = [(chance.choice(scenario.tables.worker_steps), chance.randint(1, times))]
        process = scenario.start(
            disturb if what in ("step", "both") else {},
            worker_kills if what in ("worker", "both") else (),
        )
        if what.startswith("moment"):
            time.sleep(chance.uniform(0, patience))
            if what == "moment":
                process.kill()
            else:
                scenario.kill_a_worker()
        code = scenario.end(process)
        assert code in (SUCCEEDED, -signal.SIGKILL), scenario.log()
        if code == SUCCEEDED:
            break
