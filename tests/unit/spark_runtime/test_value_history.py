"""What changed in a table by value: the keys of our commits, the files of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.values import InputSpec, Partition
from spark_runtime.logs.changes import changes
from spark_runtime.logs.history import history
from spark_runtime.read.missing import find_missing
from spark_runtime.tables.by_value import ByValue
from spark_runtime.tables.delta.log import DeltaLog
from tests.delta_logs import Log, ours

INFO = {"commitInfo": {"operation": "WRITE"}}
BY = ["ts", "timestamp", "time", None]
DAYS = [[f"2024-01-0{n}T00:00:00.000000", f"2024-01-0{n + 1}T00:00:00.000000"] for n in range(9)]


def metadata() -> dict[str, Any]:
    field = {"name": "ts", "type": "timestamp", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    return {"metaData": {"schemaString": schema, "partitionColumns": [], "configuration": {}}}


def add(path: str, least: str | None, most: str | None, **more: Any) -> dict[str, Any]:
    stats = {"numRecords": 2, "minValues": {"ts": least}, "maxValues": {"ts": most}}
    held = {"stats": json.dumps(stats)} if least else {}
    return {"add": {"path": path, "partitionValues": {}, "modificationTime": 1, **held, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "partitionValues": {}, **more}}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    made = Log(tmp_path / "t")
    made.commit(metadata(), INFO)
    return made


def read(log: Log) -> DeltaLog:
    return DeltaLog(str(log.root), by=ByValue(name="ts", by="time"))


def changed(log: Log, after: int) -> list[list[str | None]]:
    found = changes(read(log), after=after).to_dict()
    assert found["columns"] == [
        {"name": "first", "type": "timestamp"},
        {"name": "last", "type": "timestamp"},
    ]
    parts: list[list[str | None]] = found["partitions"]
    return parts


def test_a_removed_file_changed_what_it_held(log: Log) -> None:
    """It has no bounds itself; a greatest value is cut to milliseconds, in the writer's zone."""
    log.commit(add("a", "2024-01-01T09:00:00.000+09:00", "2024-01-02T08:59:59.999+09:00"), INFO)
    log.commit(remove("a"), INFO)
    whole = ["2024-01-01T00:00:00.000000+00:00", "2024-01-02T00:00:00.000000+00:00"]
    assert changed(log, 0) == changed(log, 1) == [whole]


def test_files_without_bounds_may_hold_any_value_and_moved_rows_are_no_change(log: Log) -> None:
    """The answer is never smaller than what changed."""
    log.commit(add("a", None, None), INFO)
    log.commit(
        remove("a", dataChange=False),
        add("b", "2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.000Z", dataChange=False),
        INFO,
    )
    assert changed(log, 0) == [[None, None]]
    assert changed(log, 1) == []


def test_our_commits_name_their_keys_and_others_copy_rows_that_were_there(log: Log) -> None:
    """A later file of others over the same rows has changed them, and has not made them."""
    first = ours("t1", [DAYS[1], 1, "f"], job="s:j", by=BY, inputs=[["s:raw", 3]])
    log.commit(add("a", "2024-01-01T00:00:00.000Z", "2024-01-05T00:00:00.000Z"), INFO)
    log.commit(add("b", "2024-01-01T00:00:00.000Z", "2024-01-01T01:00:00.000Z"), first)
    log.commit(remove("a"), add("c", "2024-01-01T00:00:00.000Z", "2024-01-05T00:00:00.000Z"), INFO)
    log.commit(
        remove("b"),
        add("d", "2024-01-01T00:00:00.000Z", "2024-01-01T01:00:00.000Z"),
        ours("t2", [DAYS[1], 1, "f"], job="s:j", by=BY, inputs=[]),
    )
    told = history(read(log)).to_dict()
    day = [f"{end}+00:00" for end in DAYS[1]]
    every = ["2024-01-01T00:00:00.000000+00:00", "2024-01-05T00:00:00.001000+00:00"]
    assert [(one["version"], one["changed"], one["made"]) for one in told["commits"]] == [
        (1, [], [every]),
        (3, [every], []),
        # Equal to what it held before the other's commit, and not to what it held after that.
        (4, [day], [day]),
    ]


@pytest.mark.parametrize(
    ("day", "has_rows", "never", "unknown"),
    [
        (1, False, False, False),  # a file has its least value there
        (5, False, False, False),
        (3, True, False, False),
        (3, False, False, True),
        (7, True, True, False),
    ],
)
def test_a_key_between_the_bounds_of_a_file_is_missing_if_it_has_no_rows(
    log: Log, day: int, has_rows: bool, never: bool, unknown: bool
) -> None:
    """Only the rows tell whether it was written."""
    log.commit(add("a", "2024-01-01T00:00:00.000Z", "2024-01-05T00:00:00.000Z"), INFO)
    ends = (f"2024-01-0{n}T00:00:00+00:00" for n in (day, day + 1))
    spec = InputSpec(
        dataset=DatasetRef("s", "t"),
        columns=("ts",),
        location=str(log.root),
        scoped_by="time",
        partitions=(Partition(key=str(day), values={"ts": "/".join(ends)}),),
        version=1,
    )
    found = find_missing(spec, read(log), lambda asked: asked if has_rows else ())
    assert (bool(found.never), bool(found.unknown)) == (never, unknown)
    assert bool(found.problem([])) is (never or unknown)


@pytest.mark.parametrize(
    ("properties", "seconds"), [({}, 86_400 * 10), ({"delta.enableDeletionVectors": "true"}, None)]
)
def test_how_much_time_a_file_spans_tells_what_a_write_of_a_key_copies(
    tmp_path: Path, properties: dict[str, str], seconds: int | None
) -> None:
    made = Log(tmp_path / "t")
    made.commit({"metaData": metadata()["metaData"] | {"configuration": properties}}, INFO)
    ends = "2024-01-01T00:00:00.000Z", "2024-01-10T23:59:59.999Z"
    made.commit(add("a", *ends), add("b", *ends), add("c", None, None), INFO)
    made.commit(add("d", "2024-01-01T00:00:00.000Z", "2024-03-01T00:00:00.000Z"), INFO)
    made.commit(remove("d"), INFO)
    assert history(read(made), spans=True).file_seconds == seconds
    assert history(read(made)).file_seconds is None
