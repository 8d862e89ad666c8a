"""Somebody else commits, an attempt fails or is killed, at each step: every row by value.

What the table may hold then is said by a model: the rows of exactly one attempt or of none, and
always those of somebody else, unless an attempt that began after them has replaced them.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from spark_runtime.errors import (
    RuntimeFailure,
    StaleAttemptError,
    UndoRefusedError,
    VerificationError,
    WriteConflictError,
)
from spark_runtime.tables.delta import format as delta
from tests.races import (
    MODES,
    REPLACING,
    STEPS,
    Steps,
    Templates,
    model,
    newest_version,
    steps_of,
    table_rows,
    written,
)
from tests.sampling import a_part, is_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


DRIVER = Path(__file__).parents[1] / "race_driver.py"
WAYS = (*MODES, "undo")


class Boom(BaseException):
    """The end of an attempt, whatever it is at."""


def boom() -> None:
    raise Boom


@pytest.fixture(scope="module")
def templates(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(tmp_path_factory.mktemp("races") / "templates").make(spark)


def check_between(spark: SparkSession, path: Path, mode: str, *, foreign: bool = True) -> list[Any]:
    """One attempt's rows or none are there, and the foreign ones."""
    held = table_rows(spark, path)
    ways = "overwrite" if mode == "undo" else mode
    assert held in [model(ways, own, foreign=foreign) for own in (None, 1, 2)]
    return held


def check_next(spark: SparkSession, path: Path, mode: str) -> None:
    """Whatever happened, the next attempt is exact, or is refused where it cannot be."""
    before = table_rows(spark, path)
    try:
        Steps().write(spark, path, mode, 3)
    except (WriteConflictError, UndoRefusedError):
        assert mode in ("merge", "undo")
        after = check_between(spark, path, mode)
        assert after != model("overwrite", None, foreign=True)  # what it would have taken out
        return
    after = table_rows(spark, path)
    if mode == "undo":
        assert after == model("overwrite", None, foreign=True)
    else:
        assert after == model(mode, 3, foreign=mode not in REPLACING)
    assert mode != "undo" or before == after


def test_whoever_cannot_take_a_wrong_commit_back_says_that_it_stands(
    spark: SparkSession, templates: Templates, tmp_path: Path
) -> None:
    """A putting back came over somebody's commit, and somebody else has built on it."""
    path = templates.copy("undo", tmp_path / "t")
    steps = Steps()
    for step in ("taking back", "taken back"):
        steps.actions[str(path), step] = lambda: templates.add_foreign(path)
    with steps.watched(), pytest.raises(VerificationError, match="could not be reverted") as raised:
        steps.write(spark, path, "undo", 1)
    check_stands(spark, path, raised.value, ours=4)


def test_a_mending_that_comes_over_another_commit_is_said_to_stand(
    spark: SparkSession, templates: Templates, tmp_path: Path
) -> None:
    """It is not mended in its turn, so that two programs do not go on for ever."""
    path = templates.copy("undo", tmp_path / "t")
    steps = Steps()

    def act() -> None:
        templates.add_foreign(path)
        steps.actions[str(path), "taking back"] = lambda: templates.add_foreign(path)

    steps.actions[str(path), "taking back"] = act
    with steps.watched(), pytest.raises(VerificationError, match="not reverted again") as raised:
        steps.write(spark, path, "undo", 1)
    assert not steps.actions
    check_stands(spark, path, raised.value, ours=6)


def test_two_that_take_an_undoing_back_at_once_do_it_once(
    spark: SparkSession, templates: Templates, tmp_path: Path
) -> None:
    path = templates.copy("undo", tmp_path / "t")
    steps = Steps()

    def undo() -> None:
        with pytest.raises(UndoRefusedError, match="the undo was reverted") as raised:
            steps.write(spark, path, "undo", 1)
        assert not raised.value.stands

    def act() -> None:
        templates.add_foreign(path)
        steps.actions[str(path), "taking back"] = undo

    steps.actions[str(path), "taking back"] = act
    with steps.watched():
        undo()
    assert not steps.actions
    assert table_rows(spark, path) == model("overwrite", 1, foreign=True)
    # The attempt, somebody else's commit, the undoing and what takes it back.
    assert newest_version(path) == 5


def check_stands(spark: SparkSession, path: Path, error: RuntimeFailure, *, ours: int) -> None:
    """The error says so, and where the rows are that the commit has taken out."""
    assert error.stands
    assert f"version {ours - 1}," in error.hint
    for version, has_theirs in ((ours - 1, True), (ours, False)):
        held = spark.read.format("delta").option("versionAsOf", version).load(str(path))
        theirs = f"day=d1/foreign-{ours - 1}.parquet"
        assert any(file.endswith(theirs) for file in held.inputFiles()) == has_theirs


@pytest.mark.parametrize(
    ("mode", "step", "end"),
    a_part(
        [(m, s, end) for m in WAYS for s in steps_of(m) for end in ("goes on", "raises")], every=9
    ),
)
def test_no_row_is_lost_where_somebody_else_commits(
    spark: SparkSession, templates: Templates, tmp_path: Path, mode: str, step: str, end: str
) -> None:
    path = templates.copy(mode, tmp_path / "t")
    steps = Steps()

    def act() -> None:
        templates.add_foreign(path)
        if end == "raises":
            boom()

    steps.actions[str(path), step] = act
    error: BaseException | None = None
    with steps.watched():
        try:
            steps.write(spark, path, mode, 2)
        except (Boom, RuntimeFailure) as raised:
            error = raised
    assert not steps.actions
    held = check_between(spark, path, mode)
    assert isinstance(error, Boom) == (end == "raises")
    if error is None:  # a commit that came after its own, or added to what it adds
        assert step in ("committed", "taken back") or mode == "append"
        own = None if mode == "undo" else 2
        assert held == model("overwrite" if mode == "undo" else mode, own, foreign=True)
    elif end == "goes on" and mode != "undo":
        assert isinstance(error, WriteConflictError)
        assert held != model(mode, 2, foreign=True)
    check_next(spark, path, mode)


@pytest.mark.parametrize(
    ("mode", "step", "part"),
    [
        *((mode, "committing", "") for mode in MODES),
        ("overwrite", "committing", "_delta_log"),
        ("append", "committed", ""),
    ],
)
def test_a_table_that_is_deleted_during_a_write_is_a_conflict(
    spark: SparkSession, templates: Templates, tmp_path: Path, mode: str, step: str, part: str
) -> None:
    """Delta itself creates a new table, which must not count as the old one."""
    path, steps = templates.copy("old", tmp_path / "t"), Steps()
    steps.actions[str(path), step] = lambda: shutil.rmtree(path / part)
    with steps.watched(), pytest.raises(WriteConflictError) as raised:
        steps.write(spark, path, mode, 1)
    message, is_new = str(raised.value), (path / "_delta_log").exists()
    assert "was deleted while this run wrote to it" in message
    assert is_new == (step == "committing" and mode != "merge")
    assert raised.value.stands == is_new == ("Delete the new table" in message)
    assert not is_new or table_rows(spark, path) == written(1)


def test_no_fence_is_raised_in_a_table_that_it_has_created(
    spark: SparkSession, templates: Templates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original = templates.copy("old", tmp_path / "t"), delta.append

    def late(*given: Any) -> None:
        shutil.rmtree(path)
        original(*given)

    monkeypatch.setattr(delta, "append", late)
    with Steps().watched(), pytest.raises(WriteConflictError, match="Delete the new table"):
        Steps().write(spark, path, "overwrite", 2)
    assert newest_version(path) == 0
    assert table_rows(spark, path) == []


@pytest.mark.parametrize(
    ("mode", "outer", "step"),
    a_part(
        [
            *itertools.product(
                MODES, [2], [s for s in STEPS if s not in ("taking back", "taken back")]
            ),
            *itertools.product(MODES, [1], ["staged", "committing", "committed"]),
        ],
        every=8,
    ),
)
def test_of_two_attempts_at_once_the_later_one_stands_alone(
    spark: SparkSession, templates: Templates, tmp_path: Path, mode: str, outer: int, step: str
) -> None:
    """The other attempt does all of its work at one step of this one."""
    path = templates.copy("old", tmp_path / "t")
    steps, ended = Steps(), {}

    def attempt(number: int) -> None:
        try:
            steps.write(spark, path, mode, number)
            ended[number] = "succeeded"
        except StaleAttemptError:
            ended[number] = "given up"

    steps.actions[str(path), step] = lambda: attempt(3 - outer)
    with steps.watched():
        attempt(outer)
    # Only one that committed before the later one had begun may think that it has succeeded.
    earlier = "succeeded" if (outer, step) == (2, "begun") else "given up"
    assert ended == {1: earlier, 2: "succeeded"}
    assert table_rows(spark, path) == [
        row for row in model(mode, 2, foreign=False) if row[0] != "d9"
    ]


@pytest.mark.parametrize(("step", "ended"), [("staged", "succeeded"), ("committing", "given up")])
def test_two_attempts_that_create_the_table_do_not_both_add_their_rows(
    spark: SparkSession, tmp_path: Path, step: str, ended: str
) -> None:
    path, steps, seen = tmp_path / "t", Steps(), []

    def attempt() -> None:
        try:
            steps.write(spark, path, "append", 1)
            seen.append("succeeded")
        except StaleAttemptError:
            seen.append("given up")

    steps.actions[str(path), step] = attempt
    with steps.watched():
        try:
            steps.write(spark, path, "append", 2)
        except WriteConflictError as error:
            seen.append(str(error))
    assert seen[0] == ended
    assert table_rows(spark, path) == written(1 if ended == "succeeded" else 2)
    assert [text for text in seen[1:] if "of another attempt of this run" not in text] == []
    assert len(seen) == (2 if ended == "succeeded" else 1)
    steps.write(spark, path, "append", 3)
    assert table_rows(spark, path) == written(3)


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_an_attempt_that_is_writing_when_a_later_one_begins_does_not_commit(
    spark: SparkSession,
    templates: Templates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    """Its transaction has begun before the later one has said so."""
    path = templates.copy("old", tmp_path / "t")
    started, go = tmp_path / "started", tmp_path / "go"
    name = "append" if mode == "append" else "replace"
    original: Callable[..., None] = getattr(delta, name)

    def wait(n: int) -> int:
        started.touch()
        while not go.exists():
            time.sleep(0.02)
        return n

    def slowly(frame: Any, *rest: Any) -> None:
        if threading.current_thread() is zombie:
            frame = frame.coalesce(1).withColumn("n", F.udf(wait, "int")("n"))
        original(frame, *rest)

    monkeypatch.setattr(delta, name, slowly)
    ended: list[object] = []

    def attempt() -> None:
        try:
            Steps().write(spark, path, mode, 1)
            ended.append("succeeded")
        except BaseException as error:  # noqa: BLE001 (looked at below)
            ended.append(error)

    zombie = threading.Thread(target=attempt)
    with Steps().watched():
        zombie.start()
        while not started.exists():
            assert zombie.is_alive(), ended
            time.sleep(0.02)
        Steps().write(spark, path, mode, 2)
        go.touch()
        zombie.join()
    assert isinstance(ended[0], StaleAttemptError), ended
    assert table_rows(spark, path) == [
        row for row in model(mode, 2, foreign=False) if row[0] != "d9"
    ]


#: Each dies where the foreign commit comes, or where its own is made and not yet verified.
KILLED = [
    *((mode, step, step) for mode in WAYS for step in steps_of(mode)),
    *((mode, "committing", "committed") for mode in MODES),
    *((mode, "taking back", "taken back") for mode in ("append", "merge", "undo")),
]


_EVERY = 7


@pytest.fixture(scope="module")
def killed(spark: SparkSession, templates: Templates) -> Path:
    folder = templates._folder.parent
    cases = []
    for number, (mode, foreign, last) in enumerate(KILLED):
        if not is_run(number, every=_EVERY):
            continue
        templates.copy(mode, folder / f"t{number}")
        cases.append([f"t{number}", mode, foreign, last])
    process = subprocess.Popen(
        [sys.executable, str(DRIVER), str(folder), json.dumps(cases)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    deadline = time.monotonic() + 900
    while not (folder / "all-reached").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    _, talk = process.communicate(timeout=60)
    assert (folder / "all-reached").exists(), talk
    return folder


@pytest.mark.parametrize(
    "case", a_part(range(len(KILLED)), every=_EVERY), ids=lambda n: "-".join(KILLED[n])
)
def test_no_row_is_lost_where_a_process_is_killed(
    spark: SparkSession, killed: Path, case: int
) -> None:
    mode, foreign, last = KILLED[case]
    path = killed / f"t{case}"
    if foreign == last:
        check_between(spark, path, mode)
    check_next(spark, path, mode)
