"""Random schedules of writes to one Delta table, and what must be true of each of its versions.

Attempts of two runs, their undoings and somebody else take turns at the steps of a write. An
attempt may be stopped by an exception, be killed, or go on long after it was given up. In the end
what has not succeeded is tried once more, undisturbed. Then every version is compared, by its rows,
with what its commit should have made of the version before it.

The table is partitioned by the keys, or they are values of a column; its log is whole, or begins
with a checkpoint.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from lineage_backfill.runspec.values import OutputSpec
from spark_runtime.tables.state import Since
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write.checks import WriteOptions
from spark_runtime.write.writer import write_partitions
from tests.chaos.versions import Checks, Commit, End, Rows, Run
from tests.races import MODES, SCHEMA, Steps, commit_files, newest_version, spec

DAYS = ("d1", "d2", "d3")
_TURNS, _ATTEMPTS, _FOREIGN_FILES = 16, 2, 3
_PATIENCE = 300.0


class Stopped(BaseException):
    """The end of an attempt, whatever it is at."""


class Killed(Stopped):
    """The end of an attempt whose process is no more: it changes no file from then on."""


class Actor:
    """An attempt or an undoing in a thread of its own, which waits for its turn at each step."""

    def __init__(self, end: End, work: Callable[[End], None], newest: Callable[[], int]) -> None:
        self.end = end
        self._work, self._newest = work, newest
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._end: Stopped | None = None
        self.is_dead = False
        threading.Thread(target=self._go, name=end.name, daemon=True).start()

    def _go(self) -> None:
        self._turn.acquire()
        try:
            self._work(self.end)
        except Stopped:
            self.end.is_stopped = True
        except BaseException as error:  # noqa: BLE001 (looked at in the end)
            self.end.error = error
        if not self.is_dead:
            self.end.version = self._newest()
        self._back.release()

    def arrive(self) -> None:
        """Wait for the next turn."""
        self._back.release()
        self._turn.acquire()
        end, self._end = self._end, None
        if end is not None:
            raise end

    def advance(self, end: Stopped | None = None) -> None:
        """Give it a turn: up to its next step, or to its end."""
        self._end, self.is_dead = end, isinstance(end, Killed)
        self._turn.release()
        assert self._back.acquire(timeout=_PATIENCE), f"{self.end.name} hangs"


class Turns(Steps):
    """Hands each step to the actor of the thread that comes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.actors: dict[str, Actor] = {}

    def at(self, location: str, step: str) -> None:
        actor = self.actors.get(threading.current_thread().name)
        if actor is not None:
            actor.arrive()


def clean_log(spark: Any, table: Path) -> None:
    """Make a checkpoint of the newest version, and delete the commits before it."""
    delta = spark._jvm.org.apache.spark.sql.delta
    delta.DeltaLog.forTable(spark._jsparkSession, str(table)).checkpoint()
    newest = newest_version(table)
    for file in (table / "_delta_log").glob("0*"):
        if int(file.name[:20]) < newest:
            file.unlink()


class Templates:
    """A table to copy, and the files that somebody else adds."""

    def __init__(
        self, spark: Any, folder: Path, *, by_value: bool = False, cleaned: bool = False
    ) -> None:
        self.folder, self.by_value = folder, by_value
        run = spec(folder / "table", "overwrite", 1, "r-0")
        output = self.scoped(run.outputs[0])
        rows = [(day, n, 0) for n, day in enumerate(DAYS)] + [("d1", 7, 0)]
        frame = spark.createDataFrame(rows, SCHEMA)
        write_partitions(frame, output, run, Tables(spark))
        foreign = [(day, 7 + n, 900 + n) for day in DAYS for n in range(_FOREIGN_FILES)]
        for day, one, n in foreign:
            frame = spark.createDataFrame([(day, one, n)], SCHEMA).coalesce(1)
            frame = frame if by_value else frame.drop("day")
            frame.write.parquet(str(folder / "foreign" / day / str(one)))
        if cleaned:
            clean_log(spark, folder / "table")

    def scoped(self, output: OutputSpec) -> OutputSpec:
        """Return an output in the layout of the table."""
        return replace(output, scoped_by="key") if self.by_value else output

    def copy(self, path: Path) -> None:
        shutil.copytree(self.folder / "table", path)

    def foreign_file(self, day: str, number: int) -> Path:
        return next((self.folder / "foreign" / day / str(7 + number)).glob("*.parquet"))


class Schedule:
    """One table, what is done to it in turns, and whether it came out right."""

    def __init__(self, sessions: list[Any], templates: Templates, path: Path, seed: int) -> None:
        """`sessions` holds those that are free; the first one is used to make more."""
        self.sessions, self.templates, self.path = sessions, templates, path
        self.chance = random.Random(seed)
        templates.copy(path)
        self.story: list[str] = []
        self.runs = [self._drawn(f"r-{number}") for number in (1, 2)]
        self.actors: list[Actor] = []
        self.live: list[Actor] = []
        self._number = 0
        self.turns = self._watching()
        self.oldest = self._newest()

    def _watching(self) -> Turns:
        return Turns()

    def _drawn(self, name: str) -> Run:
        days = self.chance.sample(DAYS, self.chance.randint(1, len(DAYS)))
        modes = [mode for mode in MODES if mode != "full"]  # which needs every day planned
        return Run(name, self.chance.choice(modes), tuple(sorted(days)))

    # What happens.

    def play(self) -> None:
        """Take all turns, then finish what is not done."""
        with self._watched():
            for _ in range(_TURNS):
                self.chance.choice(list(self._choices()))()
            while self.live:
                self._advance(self.chance.choice(self.live))
            for run in self.runs:
                self._finish(run)
        self.newest = self._newest()

    def _watched(self) -> AbstractContextManager[None]:
        return self.turns.watched()

    def release(self) -> None:
        """End the threads that were killed; the table may change by it."""
        for actor in self.actors:
            while actor.end.version is None and not actor.is_dead:
                actor.advance(Stopped())

    def _choices(self) -> Iterator[Callable[[], None]]:
        yield partial(self._add, self.chance.choice(DAYS))
        for run in self.runs:
            if not run.is_done and len(run.rows) < _ATTEMPTS:
                yield partial(self._begin, run)
            elif run.is_done and not run.is_undone:
                yield partial(self._begin_undo, run)
        for actor in self.live:
            yield from [partial(self._advance, actor)] * 6
            yield partial(self._advance, actor, Stopped())
            yield partial(self._kill, actor)

    def _begin(self, run: Run) -> None:
        attempt = len(run.rows) + 1
        days = self.chance.choices(run.scope, k=self.chance.randint(1, 3))
        run.rows[attempt], run.is_done = [], False
        for one, day in enumerate(days):
            self._number += 1
            run.rows[attempt].append((day, self.chance.choice([one, 7]) + 10 * one, self._number))
        self._act(run, attempt, self._write)

    def _begin_undo(self, run: Run) -> None:
        run.is_undone = True
        self._act(run, 0, self._undo)

    def _act(self, run: Run, attempt: int, work: Callable[[End], None]) -> None:
        what = f"{run.id} attempt {attempt}" if attempt else f"undo {run.id}"
        end = End(f"{what} ({len(self.actors)})", run, attempt)
        self.story.append(f"begin {end.name}: {run.mode} {run.scope} {run.rows.get(attempt, '')}")
        actor = self.turns.actors[end.name] = Actor(end, work, self._newest)
        self.actors.append(actor)
        self.live.append(actor)
        self._advance(actor)

    def _advance(self, actor: Actor, stop: Stopped | None = None) -> None:
        before, end = self._newest(), actor.end
        actor.advance(stop)
        told = [f"{'advance' if stop is None else type(stop).__name__} {end.name}"]
        told += [f"version {version}" for version in range(before + 1, self._newest() + 1)]
        if end.version is not None or actor.is_dead:
            self.live.remove(actor)
            told += [f"ended {end.error!r}"]
        self.story.append(", ".join(told))

    def _kill(self, actor: Actor) -> None:
        self.story.append(f"kill {actor.end.name}")
        self.live.remove(actor)

    def _write(self, end: End) -> None:
        run, spark = end.run, self._session()
        told = spec(self.path, run.mode, end.attempt, run.id)
        (output,) = told.outputs
        scope = [replace(output.scope[0], key=day, values={"day": day}) for day in run.scope]
        output = self.templates.scoped(replace(output, scope=tuple(scope)))
        told = replace(told, token=run.token(end.attempt), outputs=(output,), partitions=run.scope)
        told = replace(told, append_again=True)  # two runs may append to one day
        tables = Tables(spark)
        since = Since.of(tables.state(output))
        end.since = self._newest()
        options = WriteOptions(since=since, checks=[lambda _: self._stage(end)], merge_on=("id",))
        # Rows that stand in the query itself need no process of Python.
        values = ", ".join(map(str, run.rows[end.attempt]))
        frame = spark.sql(f"SELECT * FROM VALUES {values} AS rows(day, id, n)")
        try:
            write_partitions(frame, output, told, tables, options)
        finally:
            self.sessions.append(spark)
        run.is_done |= end.attempt == len(run.rows)

    def _stage(self, end: End) -> None:
        end.staged = self._newest()
        self.turns.at("", "staged")

    def _undo(self, end: End) -> None:
        spark = self._session()
        try:
            undo_runs(spark, tokens=end.run.tokens, location=str(self.path))
        finally:
            self.sessions.append(spark)

    def _session(self) -> Any:
        """Return a session that no other actor uses; the first one only makes others."""
        return self.sessions.pop() if len(self.sessions) > 1 else self.sessions[0].newSession()

    def _finish(self, run: Run) -> None:
        if run.is_undone:
            self._act(run, 0, self._undo)
        elif not run.is_done:
            self._begin(run)
        while self.live:
            self._advance(self.live[0])

    def _add(self, day: str) -> None:
        file = self.templates.foreign_file(day, self.chance.randrange(_FOREIGN_FILES))
        is_partitioned = not self.templates.by_value
        version = commit_files(self.path, [(day, file)], is_partitioned=is_partitioned)
        self.story.append(f"foreign {version}: {day}")

    def _newest(self) -> int:
        return newest_version(self.path)

    def _file(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020}.json"

    # Whether it came out right.

    def check(self) -> None:
        """Raise AssertionError where a version or an end is wrong."""
        ends = [actor.end for actor in self.actors]
        for end in ends:
            if isinstance(end.error, AssertionError):
                raise end.error
        commits, rows = self._history()
        Checks(commits, rows, self.runs, ends, self.oldest).all()

    def _history(self) -> tuple[list[Commit], list[Rows]]:
        """Return each version, and its rows by the files that the log names."""
        there = [number for number in range(self.newest + 1) if self._file(number).exists()]
        commits = [Commit.read(self._file(number)) for number in there]
        held = self._held([f"{self.path}/{name}" for commit in commits for name in commit.added])
        active: dict[str, str | None] = {}
        gone = range(there[0])
        made = [Commit(number, frozenset(), {}, {}, {}, frozenset()) for number in gone]
        rows: list[Rows] = [Counter() for _ in gone]
        for commit in commits:
            active = {name: day for name, day in active.items() if name not in commit.removed}
            active |= commit.added
            new = Counter(
                (day or one.day, one.id, one.n)
                for name, day in active.items()
                for one in held.get(name.rpartition("/")[2], ())
            )
            before = rows[-1] if rows else Counter()
            made.append(commit.over(before, new) if self.templates.by_value else commit)
            rows.append(new)
        return made, rows

    def _held(self, paths: Sequence[str]) -> dict[str, list[Any]]:
        """Return the rows of data files, by name."""
        frame = self.sessions[0].read.schema(SCHEMA).parquet(*paths)
        held: dict[str, list[Any]] = {}
        for row in frame.withColumn("file", F.col("_metadata.file_name")).collect():
            held.setdefault(row.file, []).append(row)
        return held


def play(schedule: Schedule) -> int:
    """Play a schedule and return how many attempts it took.

    Raises AssertionError, with the story, where a version or an end is wrong.
    """
    try:
        schedule.play()
        schedule.check()
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *schedule.story])) from error
    finally:
        schedule.release()
    return len(schedule.actors)
