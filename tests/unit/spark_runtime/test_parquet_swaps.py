"""A write to a Parquet table is old or new at any step, and loses nothing that others do.

Each file operation is a step: the interpreter announces them all. Before any of them the writer is
killed or interrupted, others add, remove or replace files, and a plain reader looks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from spark_runtime.tables.parquet import log as parquetlog
from spark_runtime.tables.parquet.log import ParquetLog
from spark_runtime.tables.state import Transaction, undo_token
from tests.parquet_files import SCHEMA, publish

#: The texts of the files of each day; `all` is a table without partitions.
Rows = Mapping[str, frozenset[str]]
THEIRS = "theirs"


@dataclass
class Steps:
    """Counts the file operations around a table, and calls something before each of them."""

    root: Path
    before: Callable[[int], None]
    count: int = 0
    busy: bool = False

    def announced(self, event: str, arguments: tuple[Any, ...]) -> None:
        name = str(self.root)
        if not self.busy and any(name in str(one) for one in arguments[:2]):
            self.busy = True
            try:
                self.count += 1
                self.before(self.count)
            finally:
                self.busy = False


_EVENTS = frozenset(
    f"os.{name}" for name in ("link", "mkdir", "remove", "rename", "rmdir", "scandir")
) | {"open", "exchange", "shutil.rmtree"}
_watching: list[Steps] = []


def _announced(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in _EVENTS:
        _watching[-1].announced(event, arguments)


sys.addaudithook(_announced)


@pytest.fixture(autouse=True)
def announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announce the one step that the interpreter does not know."""
    exchange = parquetlog.exchange

    def announcing(one: Path, other: Path) -> None:
        sys.audit("exchange", one, other)
        exchange(one, other)

    monkeypatch.setattr(parquetlog, "exchange", announcing)


def look(root: Path) -> Rows:
    """What a plain reader sees: the texts of all files."""
    found = {}
    folders = {path.name.removeprefix("day="): path for path in root.glob("day=*")}
    for day, folder in (folders or {"all": root}).items():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            texts = {one.read_text() for one in folder.iterdir() if one.name[0] not in "._"}
            if texts:
                found[day] = frozenset(texts)
    return found


def rows(**days: str) -> Rows:
    """Rows by day, those of several files with a comma between them."""
    return {day: frozenset(texts.split(",")) for day, texts in days.items()}


@dataclass(frozen=True)
class Case:
    """A write to a table, and what it makes of it."""

    act: Callable[[ParquetLog], object]
    token: str
    old: Rows
    new: Rows
    earlier: Callable[[ParquetLog], object] = field(default=lambda _: None)

    @property
    def days(self) -> list[str]:
        """The days that it touches."""
        return sorted(d for d in {*self.old, *self.new} if self.old.get(d) != self.new.get(d))


def overwrite(log: ParquetLog) -> None:
    publish(log, "new", "d1 d2 d5", scope="d1 d2 d3 d5")


def add(log: ParquetLog) -> None:
    publish(log, "new", "d1 d5", scope="d1 d5", adds=True)


def undo(log: ParquetLog) -> None:
    metadata = {"token": undo_token("new"), "undo_of": ["new"]}
    log.undo([2], Transaction(app_id="undo", version=1, metadata=metadata))


def overwrite_all(log: ParquetLog) -> None:
    publish(log, "new", "all", scope="all")


def add_all(log: ParquetLog) -> None:
    publish(log, "new", "all", scope="all", adds=True)


OLD = rows(d1="old d1", d2="old d2", d3="old d3", d4="old d4")
NEW = rows(d1="new d1", d2="new d2", d4="old d4", d5="new d5")
ADDED = {**OLD, **rows(d1="old d1,new d1", d5="new d5")}
WHOLE, WHOLE_NEW, WHOLE_ADDED = (rows(all=t) for t in ("old all", "new all", "old all,new all"))
CASES = {
    "overwrite": Case(overwrite, "new", OLD, NEW),
    "append": Case(add, "new", OLD, ADDED),
    "undo": Case(undo, "undo:new", NEW, OLD, earlier=overwrite),
    "undo of an append": Case(undo, "undo:new", ADDED, OLD, earlier=add),
    "without partitions": Case(overwrite_all, "new", WHOLE, WHOLE_NEW),
    "append without partitions": Case(add_all, "new", WHOLE, WHOLE_ADDED),
    "undo without partitions": Case(undo, "undo:new", WHOLE_NEW, WHOLE, earlier=overwrite_all),
}


class World:
    """A table as it is before a case, copied for each schedule."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.made = folder / "made"
        self.now = folder / "now"
        self.root = self.now / "t"
        log = ParquetLog(str(self.made / "t"))
        days = " ".join(OLD) if "d1" in case.old else "all"
        log.create(SCHEMA, () if days == "all" else ("day",))
        publish(log, "old", days, scope=days)
        case.earlier(log)
        assert look(log.root) == case.old

    def renew(self) -> None:
        """Make the table as it was."""
        shutil.rmtree(self.now, ignore_errors=True)
        shutil.copytree(self.made, self.now)

    def run(
        self, act: Callable[[ParquetLog], object], before: Callable[[int], None]
    ) -> tuple[int, str]:
        """Let a process of its own act; return its steps (-1: killed) and its error's class."""
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            steps, error = Steps(self.now, before), ""
            try:
                _watching.append(steps)
                act(ParquetLog(str(self.root)))
            except BaseException as raised:  # noqa: BLE001 (told to the parent)
                error = type(raised).__name__
            os.write(tell, json.dumps([steps.count, error]).encode())
            os._exit(0)
        os.close(tell)
        with os.fdopen(told) as answer:
            said = answer.read()
        os.waitpid(child, 0)
        return tuple(json.loads(said)) if said else (-1, "")

    def survivor(self) -> tuple[Rows, bool]:
        """Look as the next process does; return the rows, and whether the write counts."""
        log = ParquetLog(str(self.root))
        state = log.state()
        assert not log._path("journal.json").exists()
        return look(self.root), self.case.token in state.tokens

    def check_usable(self) -> None:
        """The next write goes well, and leaves nothing of the dead one."""
        log = ParquetLog(str(self.root))
        day = "all" if "all" in self.case.old else "d4"
        publish(log, "next", day, scope=day)
        assert look(self.root)[day] == {f"next {day}"}
        assert not list(log._path("staging").iterdir())
        for record in log._load():
            for path in record.left:
                assert log._trash(record.version).exists(), (record.version, path)


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt(_: int) -> None:
    raise KeyboardInterrupt


def fill_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def at(step: int, act: Callable[[int], None]) -> Callable[[int], None]:
    return lambda number: act(number) if number == step else None


#: Those that go all ways through the code.
SOME = ("overwrite", "append", "undo without partitions")


@pytest.fixture(params=CASES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(CASES[request.param], tmp_path)


def test_a_reader_sees_old_or_new_at_every_step(world: World) -> None:
    world.renew()
    case, seen = world.case, []

    def reader(_: int) -> None:
        seen.append(look(world.root))

    steps, error = world.run(case.act, lambda _: None)
    assert (error, look(world.root)) == ("", case.new)
    world.renew()
    _watching.append(Steps(world.now, reader))
    try:
        case.act(ParquetLog(str(world.root)))
    finally:
        _watching.pop()
    assert len(seen) == steps > 20
    for found in seen:
        for day in {*case.old, *case.new}:
            assert found.get(day) in (case.old.get(day), case.new.get(day))
    assert seen[0] == case.old
    changes = [one for one, other in pairwise(seen) if one != other]
    assert len(changes) <= len(case.days)


def stop(step: int) -> None:
    """Be interrupted, or find the disk full."""
    (interrupt if step % 2 else fill_disk)(step)


@pytest.mark.parametrize(
    ("world", "end"),
    [*((name, die) for name in CASES), *((name, stop) for name in SOME)],
    indirect=["world"],
)
def test_a_writer_stopped_at_any_step_leaves_old_or_new(
    world: World, end: Callable[[int], None]
) -> None:
    case, outcomes = world.case, list[bool]()
    for step in count(1):
        world.renew()
        steps, error = world.run(case.act, at(step, end))
        if end is not die and error:  # an exception leaves nothing to the next look
            assert look(world.root) in (case.old, case.new)
            assert error in ("KeyboardInterrupt", "TableError", "OSError")
        found, counts = world.survivor()
        assert found == (case.new if counts else case.old), (step, error)
        if step % 8 == 0:
            world.check_usable()
        if -1 < steps < step:
            break
        outcomes.append(counts)
    assert outcomes.count(False) > 20
    if end is die:  # it counts from one step on
        assert outcomes == sorted(outcomes)


@pytest.mark.parametrize("world", SOME, indirect=True)
def test_taking_back_can_be_stopped_at_any_step(world: World) -> None:
    """By a kill, and by another one of who looks next, until somebody gets through."""
    case, journalled, step = world.case, 0, 0
    while True:
        step += 1
        world.renew()
        if world.run(case.act, at(step, die))[0] >= 0:
            break
        journal = ParquetLog(str(world.root))._path("journal.json")
        if not journal.exists():
            continue
        journalled, inner = journalled + 1, 1
        while world.run(ParquetLog.recover, at(inner, die))[0] < 0:
            inner += 1
        assert world.survivor() == (case.old, False)
    assert journalled >= 4


def they_add(root: Path, day: str) -> None:
    folder = _folder(root, day)
    folder.mkdir(exist_ok=True)
    (folder / ".theirs.parquet.crc").touch()
    (folder / "theirs.parquet").write_text(THEIRS)


def they_remove(root: Path, day: str) -> None:
    for file in sorted(_folder(root, day).glob("[!._]*"))[:1]:
        file.unlink()


def they_replace(root: Path, day: str) -> None:
    folder = _folder(root, day)
    for file in folder.glob("*.parquet"):
        file.unlink()
    if day != "all":
        shutil.rmtree(folder, ignore_errors=True)
    they_add(root, day)


def they_empty(root: Path, day: str) -> None:
    for file in _folder(root, day).glob("*.parquet"):
        file.unlink()


def _folder(root: Path, day: str) -> Path:
    return root if day == "all" else root / f"day={day}"


@dataclass
class Foreign:
    """What others do to a day before a step of the writer, and whether the writer had listed it."""

    root: Path
    day: str
    what: Callable[[Path, str], None]
    step: int
    end: Callable[[int], None] = lambda _: None
    end_step: int = 0

    def act(self) -> None:
        """Do it, once."""
        with contextlib.suppress(FileExistsError):
            (self.root.parent / "acted").touch(exist_ok=False)
            self.what(self.root, self.day)

    def __call__(self, number: int) -> None:
        if number == self.step:
            self.act()
        if number == self.end_step:
            self.end(number)


def check_foreign(world: World, foreign: Foreign, error: str) -> str:
    """What others did is there, and all other days are old, or all new; return which."""
    case = world.case
    found, counts = world.survivor()
    base = case.new if counts else case.old
    for day in {*case.old, *case.new} - {foreign.day}:
        assert found.get(day) == base.get(day), day
    held, before = found.get(foreign.day, frozenset()), base.get(foreign.day, frozenset())
    if error == "WriteConflictError":
        assert not counts
    if foreign.what is they_add:
        if THEIRS in held:
            assert held - {THEIRS} == before
            return "seen"
        # It was there before the writer listed the table: it was replaced, and is kept.
        assert counts
        assert held == before
    elif foreign.what is they_replace:
        if held == {THEIRS}:
            return "seen"
        assert counts
        assert held - {THEIRS} <= before
        if THEIRS in held:
            return "seen"
    else:
        assert held <= before
        return "seen"
    kept = ParquetLog(str(world.root))._trash(3 if "undo" in case.token else 2)
    assert (_folder(kept, foreign.day) / "theirs.parquet").exists()
    return "replaced"


ACTIONS = (they_add, they_remove, they_replace, they_empty)


def test_what_others_do_at_any_step_stays(world: World) -> None:
    case = world.case
    world.renew()
    steps, _ = world.run(case.act, lambda _: None)
    errors = set()
    for step in range(1, steps + 1):
        rounds, which = divmod(step, len(ACTIONS))
        world.renew()
        foreign = Foreign(world.root, case.days[rounds % len(case.days)], ACTIONS[which], step)
        _, error = world.run(case.act, foreign)
        assert error in ("", "WriteConflictError", "UndoRefusedError"), error
        check_foreign(world, foreign, error)
        errors.add(error)
    assert errors >= {"", "WriteConflictError"}


def schedules(seed: int, number: int, folder: Path) -> None:
    """Let others act at a random step, the writer die at another, and who looks next at a third."""
    chance = random.Random(seed)
    worlds = []
    for name, case in CASES.items():
        world = World(case, folder / name)
        world.renew()
        worlds.append((world, world.run(case.act, lambda _: None)[0]))
    for schedule in range(number):
        world, steps = chance.choice(worlds)
        world.renew()
        foreign = Foreign(
            world.root,
            chance.choice(world.case.days),
            chance.choice(ACTIONS),
            chance.randint(1, steps),
            chance.choice((die, interrupt, fill_disk)),
            chance.randint(1, steps),
        )
        told = f"schedule {schedule} of seed {seed}: {foreign}"
        _, error = world.run(world.case.act, foreign)
        again = at(chance.randint(1, 20), chance.choice((die, interrupt)))
        foreign.act()  # unless it was done before the writer ended
        world.run(ParquetLog.recover, again)
        try:
            check_foreign(world, foreign, error)
            if schedule % 10 == 0:
                world.check_usable()
        except BaseException as problem:
            raise AssertionError(f"{told}, which ended in {error!r}: {problem!r}") from problem


@pytest.mark.parametrize("seed", range(4))
def test_random_schedules_of_others_and_deaths(seed: int, tmp_path: Path) -> None:
    schedules(seed, 40, tmp_path)
