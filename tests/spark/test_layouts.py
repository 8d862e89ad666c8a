"""One contract for tables in every layout: which rows a run changes, whatever happens beside it.

All rows of the table are compared by value with a model.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_runtime.errors import (
    RuntimeFailure,
    UndoRefusedError,
    UnexpectedPartitionError,
    WriteConflictError,
)
from spark_runtime.tables.state import Since
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write.checks import WriteOptions
from tests.lakes import LAYOUTS, ZONES, Lake, Row, session_in
from tests.races import Steps, steps_of
from tests.sampling import a_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("layout", "zone", "cleaned"), a_part(product(LAYOUTS, ZONES, (False, True)), every=17)
)
def test_a_run_changes_exactly_the_rows_of_its_keys(
    spark: SparkSession, tmp_path: Path, layout: str, zone: str, cleaned: bool
) -> None:
    """Overwrite, merge, append, retry, clear and undo, also beside the commits of others."""
    with session_in(spark, zone):
        lake = Lake(spark, tmp_path / "t", layout)
        if cleaned:
            lake.clean()
        _changes_exactly(spark, lake)


def _changes_exactly(spark: SparkSession, lake: Lake) -> None:
    first, last = lake.day(1)
    step = 3600 if lake.kind != "DATE" else 86400
    edge = last - 1 if lake.kind in ("TIMESTAMP", "TIMESTAMP_NTZ", "STRING") else first

    assert lake.read([1]) == lake.of([1])
    assert lake.read([0, 1, 3]) == lake.of([0, 1, 3])

    held = len(lake.of([1]))
    new: list[Row] = [(2000, first, "eu", 1), (2001, edge, "us", 2), (2002, first, "us", 3)]
    result = lake.write("overwrite", [1], new)
    assert [(one.rows_before, one.rows) for one in result.partitions] == [(held, 3)]
    assert result.partitions[0].fingerprint is not None
    before, lake.model = lake.model, lake.replaced([1], new)
    assert lake.is_model()

    history = spark.sql(f"DESCRIBE HISTORY delta.`{lake.path}`").collect()
    (made,) = (one.operationParameters for one in history if one.version == result.version)
    is_dated = "day" in spark.read.format("delta").load(lake.path).columns
    assert ("`day` >= DATE'2024-03-" in made["predicate"]) is is_dated

    again = lake.write("overwrite", [1], new)
    assert (again.version, lake.is_model()) == (result.version, True)

    for run, at in (("after", last), ("before", first - step), ("null", None)):
        row = (3000, at, "eu", 0)
        with pytest.raises(UnexpectedPartitionError):
            lake.write(run, [1], [*new, row])
    assert lake.is_model()

    merged: list[Row] = [(2000, first, "eu", 10), (2003, first, "eu", 4)]
    lake.write("merge", [1], merged, mode="merge", merge_on=["id"])
    lake.model = [one for one in lake.model if one[0] != 2000] + merged
    assert lake.is_model()

    only: list[Row] = [(2001, edge, "us", 20)]
    lake.write("only", [1], only, mode="merge", merge_on=["id"], delete_missing=True)
    lake.model = lake.replaced([1], only)
    assert lake.is_model()

    more: list[Row] = [(2004, first, "eu", 5)]
    result = lake.write("append", [1], more, mode="append")
    assert [(one.rows_before, one.rows) for one in result.partitions] == [(1, 2)]
    lake.model = [*lake.model, *more]
    assert lake.is_model()

    lake.write("append", [1], more, mode="append", attempt=2)  # as after a crash
    assert lake.is_model()

    other: list[Row] = [(4000, lake.day(3)[0], "eu", 7), (4001, None, "us", 7)]
    lake.append(other)
    lake.model = [*lake.model, *other]
    result = lake.write("empty", [0, 2], [])
    assert {one.rows for one in result.partitions} == {0}
    lake.model = lake.replaced([0, 2], [])
    assert lake.is_model()

    since = Since.of(Tables(spark).state(lake.input()))
    lake.copies(4000)  # also the rows of day 1, which it does not change
    lake.write("beside", [1], lake.of([1]), options=WriteOptions(since=since))
    assert lake.is_model()

    tokens = ["overwrite", "merge", "only", "append", "append 2", "beside"]
    undo_runs(spark, tokens=tokens, location=lake.path)
    gone = set(lake.of([1]))
    lake.model = [one for one in lake.model if one not in gone]
    lake.model += [one for one in before if lake.holds(1, one)]
    assert lake.is_model()


#: An empty result is one of a replacing mode.
MODES = {"overwrite": "overwrite", "empty": "overwrite", "append": "append", "merge": "merge"}
WAYS = {**MODES, "undo": "undo"}
CASES = [
    (layout, log, way, step, end)
    for layout, log in product([one for one in LAYOUTS if one != "dates"], ("whole", "cleaned"))
    for way, mode in WAYS.items()
    for step in steps_of(mode)
    for end in ("goes on", "raises")
]


class Boom(BaseException):
    """The end of an attempt, whatever it is at."""


class Attempts:
    """A table to which one attempt of a run has written, and what later ones make of it."""

    def __init__(self, lake: Lake, way: str) -> None:
        self.lake, self.way, self.old = lake, way, list(lake.model)
        first, _ = lake.day(1)
        self.foreign: list[Row] = [(9000, first, "eu", 99), (9001, lake.day(3)[0], "eu", 99)]
        self._gone = lake.of([1])[0]

    def copy(self, path: Path) -> Attempts:
        """Make one like it."""
        return Attempts(self.lake.copy(path), self.way)

    def write(self, number: int, steps: Steps | None = None) -> None:
        """Write as an attempt does, or undo the first one."""
        lake, at = self.lake, steps or Steps()
        if self.way == "undo" and number > 1:
            undo_runs(lake.spark, tokens=["run"], location=lake.path)
            return
        options = WriteOptions(
            since=Since.of(Tables(lake.spark).state(lake.input())),
            checks=[lambda _: at.at(lake.path, "staged")],
        )
        mode = MODES.get(self.way, "overwrite")
        more = {"merge_on": ["id"], "delete_when": "n < 0"} if mode == "merge" else {}
        rows = self._written(number)
        lake.write("run", [1], rows, mode=mode, attempt=number, options=options, **more)

    def _written(self, number: int) -> list[Row]:
        first, _ = self.lake.day(1)
        rows: list[Row] = [(2000, first, "eu", number), (2001, first, "us", number)]
        gone: list[Row] = [(*self._gone[:3], -1)] if self.way == "merge" else []
        return [] if self.way == "empty" else rows + gone

    def made(self, number: int | None, foreign: list[Row]) -> list[Row]:
        """What the table holds once this attempt (None: none) has written, with others' rows."""
        if number is None:
            return sorted([*self.old, *foreign], key=str)
        new, day = self._written(number), self.lake.of([1])
        if self.way == "merge":
            ids = {row[0] for row in new}
            kept = [row for row in self.old if row[0] not in ids]
            new = [row for row in new if row[3] >= 0]
        else:
            kept = [row for row in self.old if self.way == "append" or row not in day]
        return sorted([*kept, *new, *foreign], key=str)

    def check_between(self) -> list[Row]:
        """One attempt's rows or none are there, and those of others."""
        held = self.lake.rows()
        assert held in [self.made(own, self.foreign) for own in (None, 1, 2)]
        return held

    def check_next(self) -> None:
        """Whatever happened, the next attempt is exact, or is refused where it cannot be."""
        before = self.lake.rows()
        try:
            self.write(3)
        except (WriteConflictError, UndoRefusedError):
            assert self.way in ("merge", "undo")
            assert self.check_between() != self.made(None, self.foreign)
            return
        if self.way == "undo":
            assert before == self.lake.rows() == self.made(None, self.foreign)
        else:
            is_replaced = MODES[self.way] == "overwrite"
            assert self.lake.rows() == self.made(3, self.foreign[is_replaced:])


@pytest.fixture(scope="module")
def attempts(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str, str], Attempts]:
    """Makes each table once, and the first attempt of each way to write to it."""
    folder = tmp_path_factory.mktemp("layouts")
    lakes: dict[tuple[str, ...], Lake] = {}
    made: dict[tuple[str, ...], Attempts] = {}

    def first(layout: str, log: str, way: str) -> Attempts:
        if (layout, log) not in lakes:
            lake = Lake(spark, folder / f"{layout} {log}", layout)
            if log == "cleaned":
                lake.clean()
            lakes[layout, log] = lake
        key = layout, log, way
        if key not in made:
            made[key] = Attempts(lakes[layout, log].copy(folder / " ".join(key)), way)
            made[key].write(1)
        return made[key]

    return first


@pytest.mark.parametrize(("layout", "log", "way", "step", "end"), a_part(CASES, every=len(CASES)))
def test_no_row_is_lost_where_others_commit_or_an_attempt_ends(
    attempts: Callable[[str, str, str], Attempts],
    tmp_path: Path,
    layout: str,
    log: str,
    way: str,
    step: str,
    end: str,
) -> None:
    """Others commit, or they do and the attempt ends, at a step of the second attempt."""
    made, steps = attempts(layout, log, way).copy(tmp_path / "t"), Steps()

    def act() -> None:
        made.lake.append(made.foreign)
        if end == "raises":
            raise Boom

    steps.actions[made.lake.path, step] = act
    error: BaseException | None = None
    with steps.watched():
        try:
            made.write(2, steps)
        except (Boom, RuntimeFailure) as raised:
            error = raised
    assert not steps.actions
    held = made.check_between()
    assert isinstance(error, Boom) == (end == "raises")
    if error is None:  # a commit that came after its own, or added to what it adds
        assert step in ("committed", "taken back") or way == "append"
        assert held == made.made(None if way == "undo" else 2, made.foreign)
    elif end == "goes on" and way not in ("undo", "empty"):
        assert isinstance(error, WriteConflictError)
        assert held != made.made(2, made.foreign)
    made.check_next()
