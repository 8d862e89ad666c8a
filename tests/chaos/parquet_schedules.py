"""Random schedules of writes to one Parquet table, and what must be true after each change of it.

As those of a Delta table, with one step more: some operation on a file while the table is locked.
Who is killed there changes no file any more, and leaves the others what there is. Somebody else
adds files at any step, as only they do without the lock. Each change that the table's log tells of,
and each of theirs, is held against the model; a writer that is taken back changes nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from spark_runtime.tables.parquet import log as parquetlog
from spark_runtime.tables.parquet.format import ParquetStorage
from spark_runtime.tables.parquet.log import FOLDER, ParquetLog, Record
from tests.chaos.schedules import DAYS, Actor, Killed, Schedule, Turns
from tests.chaos.versions import Commit, Rows

#: At which operation on a file, of those under one lock, an attempt may wait for its next turn.
_OPERATIONS = 60
_EVENTS = frozenset(
    f"os.{name}" for name in ("link", "mkdir", "remove", "rename", "rmdir", "scandir")
) | {"open", "exchange", "shutil.rmtree"}
_watching: list[Locked] = []

#: The data files of each day, by name.
Files = dict[str, frozenset[str]]


def _announced(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in _EVENTS:
        _watching[-1].announced(event, arguments)


sys.addaudithook(_announced)


class Locked(Turns):
    """Hands out turns also at operations on files of a table that an actor has locked."""

    def __init__(self, root: Path, draw: Callable[[], int], settle: Callable[[], None]) -> None:
        super().__init__()
        self.root, self._draw, self._settle = str(root), draw, settle
        self.holder: Actor | None = None
        self._left = 0
        self._is_looking = False

    @property
    def _acting(self) -> Actor | None:
        return self.actors.get(threading.current_thread().name)

    def announced(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Wait before an operation, or refuse it to the dead."""
        actor = self._acting
        if actor is None or self._is_looking:
            return
        if not any(self.root in str(one) for one in arguments[:2]):
            return
        if actor.is_dead:
            raise Killed
        if self.holder is actor:
            self._left -= 1
            if not self._left:
                actor.arrive()

    def settle(self) -> None:
        """Look at the table, unless a dead one cannot."""
        actor = self._acting
        if self._is_looking or (actor is not None and actor.is_dead):
            return
        self._is_looking = True
        try:
            self._settle()
        finally:
            self._is_looking = False

    @contextmanager
    def watched(self, kind: Any = ParquetStorage) -> Iterator[None]:
        lock, make, take_back = ParquetLog.exclusively, ParquetLog._make, ParquetLog._take_back
        exchange = parquetlog.exchange

        @contextmanager
        def locking(log: ParquetLog, folder: Path | None = None) -> Iterator[None]:
            self.holder, self._left = self._acting, self._draw()
            try:
                with lock(log, folder):
                    yield
            finally:
                self.holder = None

        def making(log: ParquetLog, *rest: Any) -> None:
            try:
                make(log, *rest)
            finally:
                self.settle()

        def taking_back(log: ParquetLog) -> None:
            take_back(log)
            self.settle()

        def exchanging(one: Path, other: Path) -> None:
            sys.audit("exchange", one, other)
            exchange(one, other)

        with ExitStack() as stack:
            stack.enter_context(super().watched(kind))
            stack.enter_context(patch.object(ParquetLog, "exclusively", locking))
            stack.enter_context(patch.object(ParquetLog, "_make", making))
            stack.enter_context(patch.object(ParquetLog, "_take_back", taking_back))
            stack.enter_context(patch.object(parquetlog, "exchange", exchanging))
            _watching.append(self)
            try:
                yield
            finally:
                _watching.remove(self)


class ParquetSchedule(Schedule):
    """One Parquet table, what is done to it in turns, and whether it came out right."""

    turns: Locked

    def _watching(self) -> Locked:
        self._log = self.path / FOLDER
        self._archive = self.path.parent / f"{self.path.name}.seen"
        self._archive.mkdir()
        self._count = len(list((self._log / "log").iterdir()))
        self._index: dict[int, int] = {}
        #: What others added while no look could tell where it belongs.
        self._added: list[tuple[str, str]] = []
        self._files = self._look()
        nothing = Commit(0, frozenset(), {}, {}, {}, frozenset())
        self._changes: list[tuple[Commit, Files]] = [(nothing, self._files)]
        return Locked(self.path, lambda: self.chance.randint(1, _OPERATIONS), self._settle)

    def _newest(self) -> int:
        return len(self._changes) - 1

    def _watched(self) -> AbstractContextManager[None]:
        return self.turns.watched()

    def play(self) -> None:
        super().play()
        with self.turns.watched():
            ParquetLog(str(self.path)).recover()
        self.newest = self._newest()

    def _choices(self) -> Iterator[Callable[[], None]]:
        holder = self.turns.holder
        if holder is None:
            yield from super()._choices()
            return
        yield partial(self._add, self.chance.choice(DAYS))
        yield from [partial(self._advance, holder)] * 3
        yield partial(self._kill, holder)

    def _advance(self, actor: Actor, stop: Any = None) -> None:
        holder = self.turns.holder
        super()._advance(actor if holder is None else holder, stop)
        if self.turns.holder is None:
            self.turns.settle()

    def _kill(self, actor: Actor) -> None:
        self._advance(actor, Killed())

    def _add(self, day: str) -> None:
        name = f"foreign-{len(self.story)}.parquet"
        folder = self.path / f"day={day}"
        folder.mkdir(exist_ok=True)
        os.link(self.templates.foreign_file(day, self.chance.randrange(2)), folder / name)
        self.story.append(f"foreign {name}: {day}")
        self._added.append((day, name))
        if self.turns.holder is None:
            self.turns.settle()

    def _look(self) -> Files:
        """Return what a plain reader sees, and keep it."""
        found = {}
        for day in DAYS:
            files = list((self.path / f"day={day}").glob("[!._]*"))
            for file in files:
                kept = self._archive / f"{day}-{file.name}"  # files of several days share names
                if not kept.exists():
                    os.link(file, kept)
            found[day] = frozenset(file.name for file in files)
        return found

    def _settle(self) -> None:
        """Note what has changed since the last look, once no write is half done."""
        if (self._log / "journal.json").exists():
            return
        records = sorted((self._log / "log").iterdir())[self._count :]
        if not records and not self._added:
            assert self._look() == self._files, f"{self._look()} from {self._files}"
            return
        found = self._look()
        theirs = {name for _, name in self._added}
        if records:
            (file,) = records
            self._count += 1
            ours = {day: names - theirs for day, names in found.items()}
            self._note(Record.from_json(file.read_text(encoding="utf-8")), ours)
        for day, name in self._added:
            files = {**self._files, day: self._files[day] | {name}}
            self._append(frozenset([day]), {}, {}, files)
        self._added = []
        assert found == self._files, f"{found} instead of {self._files}"

    def _note(self, record: Record, files: Files) -> None:
        metadata = dict(record.transaction.metadata)
        self._index[record.version] = len(self._changes)
        if "taken_back" in metadata:
            metadata["taken_back"] = self._index[metadata["taken_back"]]
        if "seen" in metadata:  # a version of before the first turn is the first one here
            metadata["seen"] = self._index.get(metadata["seen"], 0)
        transactions = {record.transaction.app_id: record.transaction.version}
        touched = frozenset(str(day) for (day,) in record.left)
        self._append(touched, metadata, transactions, files)

    def _append(
        self, touched: frozenset[str], ours: Any, transactions: dict[str, int], files: Files
    ) -> None:
        number = len(self._changes)
        commit = Commit(number, touched, ours, transactions, {}, frozenset())
        self._changes.append((commit, files))
        self._files = files

    def _history(self) -> tuple[list[Commit], list[Rows]]:
        held = self._held([str(path) for path in self._archive.iterdir()])
        rows: list[Rows] = [
            Counter(
                (day, *values)
                for day, names in files.items()
                for name in names
                for values in held.get(f"{day}-{name}", ())
            )
            for _, files in self._changes
        ]
        return [commit for commit, _ in self._changes], rows
