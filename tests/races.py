"""Writes and undoings of one Delta table that do something else at one of their steps, and a model.

The table has rows of d1, d2 and d3; the run writes d1 and d2, each attempt its own values. Somebody
else adds a row to d1, which the run writes, and one to d9, in one commit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lineage_backfill.runspec.parse import parse_spec
from spark_runtime.tables.delta.format import DeltaStorage
from spark_runtime.tables.state import Since
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs
from spark_runtime.write.checks import WriteOptions
from spark_runtime.write.writer import _Write, write_partitions

Row = tuple[str, int, int]

SCHEMA = "day STRING, id INT, n INT"
OLD: list[Row] = [("d1", 1, 0), ("d2", 2, 0), ("d3", 3, 0)]
FOREIGN: list[Row] = [("d1", 9, 99), ("d9", 9, 99)]
MODES = ("overwrite", "append", "merge", "full")
#: Those whose later attempts need not take out what earlier ones have written.
REPLACING = ("overwrite", "full")
#: What a later attempt goes through; a replacing one leaves what an earlier one has replaced.
STEPS = ("begun", "fenced", "taking back", "taken back", "staged", "committing", "committed")
UNDO_STEPS = ("taking back", "taken back")


def steps_of(mode: str) -> tuple[str, ...]:
    """The steps of an attempt after another one, or of an undoing."""
    if mode == "undo":
        return UNDO_STEPS
    return tuple(s for s in STEPS if mode not in REPLACING or s not in UNDO_STEPS)


def written(attempt: int) -> list[Row]:
    """The rows of an attempt."""
    return [("d1", 1, attempt), ("d1", 4, attempt)]


def model(mode: str, attempt: int | None, *, foreign: bool) -> list[Row]:
    """What the table holds once this attempt (None: none) has written, with the foreign rows."""
    new, old = [] if attempt is None else written(attempt), list(OLD)
    if attempt is not None and mode == "overwrite":
        old = [row for row in OLD if row[0] == "d3"]
    if mode == "merge":
        old = [row for row in OLD if row[:2] not in {one[:2] for one in new}]
    if attempt is not None and mode == "full":  # all that was there before it, theirs too
        return sorted([*new, *(FOREIGN if foreign else ())])
    # Nobody writes to d9 but they, so that what they add there stays in any case.
    return sorted([*old, *new, *(FOREIGN if foreign else FOREIGN[1:])])


class Steps:
    """Another writer at one step of a write: once, at the first arrival."""

    def __init__(self) -> None:
        self.actions: dict[tuple[str, str], Callable[[], object]] = {}

    def at(self, location: str, step: str) -> None:
        """Come to a step."""
        action = self.actions.pop((location, step), None)
        if action is not None:
            action()

    @contextmanager
    def watched(self, kind: Any = DeltaStorage) -> Iterator[None]:
        """Come to the steps wherever a write or an undoing does.

        At those of a Delta table no lock keeps others away.
        """
        at, fence, publish = self.at, kind.fence, kind.publish
        put_back, verify = kind.put_back, _Write._verify

        def fencing(storage: Any, *rest: Any) -> None:
            at(storage.log.location, "begun")
            fence(storage, *rest)
            at(storage.log.location, "fenced")

        def publishing(storage: Any, rows: Any, publication: Any) -> Any:
            def recheck(state: Any) -> None:
                publication.recheck(state)
                at(storage.log.location, "committing")

            return publish(storage, rows, replace(publication, recheck=recheck))

        def putting_back(storage: Any, *rest: Any) -> None:
            at(storage.log.location, "taking back")
            put_back(storage, *rest)
            at(storage.log.location, "taken back")

        def verifying(write: _Write, *rest: Any) -> None:
            at(write.log.location, "committed")
            verify(write, *rest)

        with (
            patch.object(kind, "fence", fencing),
            patch.object(kind, "publish", publishing),
            patch.object(kind, "put_back", putting_back),
            patch.object(DeltaStorage, "_alone", lambda _: nullcontext()),
            patch.object(_Write, "_verify", verifying),
        ):
            yield

    def write(self, spark: Any, path: Path, mode: str, attempt: int) -> None:
        """Write as an attempt of the run does, or undo its first one."""
        if mode == "undo":
            undo_runs(spark, tokens=["t-1"], location=str(path))
            return
        run = spec(path, mode, attempt)
        (output,) = run.outputs
        tables = Tables(spark)
        since = Since.of(tables.state(output))
        options = WriteOptions(
            since=since,
            checks=[lambda _: self.at(str(path), "staged")],
            merge_on=("id",),
        )
        write_partitions(rows(spark, attempt), output, run, tables, options)


def rows(spark: Any, attempt: int) -> Any:
    """The rows of an attempt, as a job returns them."""
    return spark.createDataFrame(written(attempt), SCHEMA)


def spec(path: Path, mode: str, attempt: int, run_id: str = "r-1") -> Any:
    """The spec of one attempt; that of `r-0` fills the table."""
    days = ["d1", "d2", "d3"] if run_id == "r-0" else ["d1", "d2"]
    if mode == "full":
        days = ["d1", "d2", "d3", "d9"]
    output = {
        "dataset": {"namespace": "test", "name": "t"},
        "location": str(path),
        "columns": ["day"],
        "mode": mode,
        "scope": [{"key": day, "values": {"day": day}} for day in days],
    }
    return parse_spec(
        {
            "schema_version": 1,
            "backfill_id": "b-1",
            "run_id": run_id,
            "attempt": attempt,
            "token": f"{run_id}-t" if run_id == "r-0" else f"t-{attempt}",
            "job": {"namespace": "test", "name": "job", "entrypoint": "jobs:job"},
            "partitions": days,
            "keys": [],
            "inputs": [],
            "outputs": [output],
            "result_path": f"{path}.result.json",
        }
    )


class Templates:
    """Tables to copy: as they were, and with the first attempt's rows, by mode."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, spark: Any) -> Templates:
        """Make them, once."""
        folder, old = self._folder, self._folder / "old"
        run = spec(old, "overwrite", 1, "r-0")
        fill = spark.createDataFrame(OLD, SCHEMA)
        write_partitions(fill, run.outputs[0], run, Tables(spark))
        for mode in MODES:
            shutil.copytree(old, folder / mode)
            Steps().write(spark, folder / mode, mode, 1)
        frame = spark.createDataFrame(FOREIGN, SCHEMA).coalesce(1)
        frame.write.partitionBy("day").parquet(str(folder / "foreign"))
        return self

    def copy(self, name: str, path: Path) -> Path:
        """Make a table like one of these; that of `undo` has replaced rows."""
        shutil.copytree(self._folder / ("overwrite" if name == "undo" else name), path)
        return path

    def add_foreign(self, path: Path) -> None:
        """Commit the foreign rows, as a program of its own does."""
        folder = self._folder / "foreign"
        files = [(day, next((folder / f"day={day}").glob("*.parquet"))) for day, _, _ in FOREIGN]
        commit_files(path, files)


def newest_version(table: Path) -> int:
    """The version of the last commit in a table's log."""
    return max(int(file.stem) for file in (table / "_delta_log").glob("*.json"))


def commit_files(
    table: Path, files: Iterable[tuple[str, Path]], *, is_partitioned: bool = True
) -> int:
    """Add a file of one row to each of these days in one commit, as a program of its own does."""
    version = newest_version(table) + 1
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "WRITE", "userName": "them"}}]
    for day, file in files:
        target = table / f"day={day}" / f"foreign-{version}.parquet"
        target.parent.mkdir(exist_ok=True)
        shutil.copy(file, target)
        ends = {} if is_partitioned else {"minValues": {"day": day}, "maxValues": {"day": day}}
        body = {
            "path": str(target.relative_to(table)),
            "partitionValues": {"day": day} if is_partitioned else {},
            "size": target.stat().st_size,
            "modificationTime": int(target.stat().st_mtime * 1000),
            "dataChange": True,
            "stats": json.dumps({"numRecords": 1, **ends}),
        }
        actions.append({"add": body})
    with (table / "_delta_log" / f"{version:020}.json").open("x") as commit:
        commit.writelines(json.dumps(action) + "\n" for action in actions)
    return version


def table_rows(spark: Any, path: Path) -> list[Row]:
    """All rows, as anybody reads them."""
    frame = spark.read.format("delta").load(str(path)).select("day", "id", "n")
    return sorted(tuple(row) for row in frame.collect())
