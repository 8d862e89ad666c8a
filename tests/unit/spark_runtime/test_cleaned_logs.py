"""Logs whose first commits Delta has deleted: what they still tell, and what they do not."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.values import InputSpec, Partition, RunKey
from spark_runtime.errors import TableError
from spark_runtime.logs.history import history
from spark_runtime.read.missing import Missing, find_missing
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.write.outcome import before_commit
from tests.delta_logs import METADATA, PROTOCOL, SCHEMA, Log, add, ours, remove

BEGAN = datetime(2024, 3, 1, tzinfo=UTC)


class Cleaned:
    """A log with checkpoints, whose commits below the oldest of them are gone."""

    def __init__(self, folder: Path) -> None:
        self.log = Log(folder / "t")
        self.held: dict[int, list[dict[str, Any]]] = {}

    def checkpoint(self, *actions: dict[str, Any]) -> None:
        version = self.log.version
        self.held[version] = [PROTOCOL, METADATA, *actions]
        self.log.path(version).with_name(f"{version:020}.checkpoint.parquet").touch()

    def clean(self, version: int, began: datetime = BEGAN) -> None:
        """Delete the commits below a version, which was made at an instant."""
        for older in range(version):
            self.log.path(older).unlink(missing_ok=True)
        os.utime(self.log.path(version), (began.timestamp(),) * 2)

    def open(self, *, by_spark: bool = True) -> DeltaLog:
        def read(files: list[str]) -> Sequence[dict[str, Any]]:
            return self.held[int(Path(files[0]).name[:20])]

        return DeltaLog(str(self.log.root), checkpoint_reader=read if by_spark else None)


@pytest.fixture
def cleaned(tmp_path: Path) -> Cleaned:
    """Commits 0 to 7 with checkpoints at 2 and 5; those below 2 are gone.

    d1 is written in 1, d2 by us in 2, emptied in 3, d3 by us in 5, d4 by us in 7.
    """
    made = Cleaned(tmp_path)
    made.log.commit(METADATA)
    made.log.commit(add("a", "d1", 1))
    made.log.commit(add("b", "d2", 2), ours("t-2", [["d2"], 2, "f2"]))
    made.checkpoint(add("a", "d1", 1), add("b", "d2", 2))
    made.log.commit(remove("b", "d2"))
    made.log.commit({"commitInfo": {"operation": "OPTIMIZE"}})
    made.log.commit(add("c", "d3", 3), ours("t-5", [["d3"], 3, "f3"]))
    made.checkpoint(add("a", "d1", 1), add("c", "d3", 3))
    made.log.commit(add("e", "d5", 5))
    made.log.commit(add("d", "d4", 4), ours("t-7", [["d4"], 4, "f4"]))
    made.clean(2)
    return made


def test_own_commits_are_known_from_the_oldest_checkpoint_on(cleaned: Cleaned) -> None:
    state = cleaned.open().state()
    assert (state.complete, state.first_read) == (True, 2)
    assert state.tokens == {"t-2": 2, "t-5": 5, "t-7": 7}
    fingerprints = [state.contents((day,)).fingerprint for day in ("d1", "d3", "d4", "d5")]
    assert fingerprints == [None, "f3", "f4", None]
    assert [state.contents((f"d{n}",)).rows for n in range(1, 6)] == [1, 0, 3, 4, 5]


def test_what_was_there_before_the_oldest_commit_is_unknown(cleaned: Cleaned) -> None:
    log = cleaned.open()
    before = before_commit(log, 2)
    assert (before.version, before.contents(("d2",)).rows) == (1, None)
    assert before_commit(log, 7).contents(("d4",)).rows == 0


def test_a_gap_above_an_old_checkpoint_leaves_the_newer_one(cleaned: Cleaned) -> None:
    """Some clean up by age alone: what is below the gap counts as gone."""
    cleaned.log.path(4).unlink()
    state = cleaned.open().state()
    assert (state.first_read, state.tokens) == (5, {"t-5": 5, "t-7": 7})
    assert state.contents(("d1",)).rows == 1


def spec(*days: str, on_missing: Any = "guard", version: int = 7, **more: Any) -> InputSpec:
    """An input of these days; d1 to d9 are days of January, e1 to e9 of April."""
    months = {"d": 1, "e": 4}
    partitions = tuple(
        Partition(
            key=day,
            values={"day": day},
            start=datetime(2024, months[day[0]], int(day[1]), tzinfo=UTC),
        )
        for day in days
    )
    return InputSpec(
        dataset=DatasetRef("n", "raw"),
        format="delta",
        columns=("day",),
        location="raw",
        partitions=partitions,
        version=version,
        on_missing=on_missing,
        **more,
    )


def judged(found: Missing, *keys: str) -> str:
    problem = found.problem([RunKey(key=key) for key in keys or ("k",)])
    return "" if problem is None else problem.message


def test_a_day_of_a_sparse_input_before_one_that_was_written_is_not_missing(
    cleaned: Cleaned,
) -> None:
    later = spec("d5", "d6").partitions  # d5 was written
    found = find_missing(spec("d3", "e1", later=later), cleaned.open())
    assert found.keys(found.never | found.unknown) == ("e1",)
    found = find_missing(spec("d6", "d9", later=spec("e1").partitions), cleaned.open())
    assert found.keys(found.never | found.unknown) == ("d6", "d9")
    cleaned.log.commit(add("f", "e1", 1))
    found = find_missing(spec("d6", "d9", "e2", later=(), version=8), cleaned.open())
    assert found.keys(found.never | found.unknown) == ("d6", "d9", "e2")
    found = find_missing(spec("d6", "d9", later=spec("e1").partitions, version=8), cleaned.open())
    assert found.keys(found.never | found.unknown) == ()


def test_a_day_after_the_oldest_commit_that_none_wrote_was_never_written(
    cleaned: Cleaned,
) -> None:
    found = find_missing(spec("d1", "d2", "d9", "e1"), cleaned.open())
    assert found.keys(found.never) == ("e1",)
    assert found.keys(found.unknown) == ("d9",)  # d2 was emptied by a commit that is known
    assert judged(found) == ""  # d1 is there
    assert "e1" in next(found.warnings())


@pytest.mark.parametrize(
    ("on_missing", "days", "message"),
    [
        ("fail", ["d1", "e1"], "were never written: e1"),
        ("fail", ["d1", "d9"], "which begins at 2024-03-01T00:00:00Z, does not tell"),
        ("fail", ["d1", "d2"], ""),
        ("guard", ["e1"], "nothing that the run needs for k .* was ever written: e1"),
        ("guard", ["d9"], "is known to have been written: it is empty, and the log"),
        ("guard", ["d9", "e1"], "is known to have been written"),
        ("guard", ["d9", "d2"], ""),
        ("read", ["d9", "e1"], ""),
    ],
)
def test_what_is_not_known_to_have_been_written_stops_the_run(
    cleaned: Cleaned, on_missing: str, days: list[str], message: str
) -> None:
    problem = find_missing(spec(*days, on_missing=on_missing), cleaned.open()).problem(
        [RunKey(key="k")]
    )
    if not message:
        assert problem is None
        return
    assert problem is not None
    assert problem.hint
    with pytest.raises(type(problem), match=message):
        raise problem


def test_each_key_is_judged_by_what_it_requires(cleaned: Cleaned) -> None:
    found = find_missing(spec("d1", "d9", needs=(((0, 0),), ((1, 1),))), cleaned.open())
    assert judged(found, "k1", "k2").startswith("nothing that the run needs for k2 of n:raw")


def test_what_recorded_runs_have_written_is_not_missing(cleaned: Cleaned) -> None:
    for on_missing in ("guard", "fail"):
        asked = spec("d8", "d9", "e1", on_missing=on_missing, written=((0, 2),))
        assert judged(find_missing(asked, cleaned.open())) == ""
        assert judged(find_missing(asked, None)) == ""  # a Parquet table that was emptied


def test_without_its_checkpoint_nothing_counts_as_never_written(cleaned: Cleaned) -> None:
    checksum = json.dumps({"metadata": METADATA["metaData"]})
    cleaned.log.path(2).with_suffix(".crc").write_text(checksum)
    found = find_missing(spec("e1"), cleaned.open(by_spark=False))
    assert (found.never, found.keys(found.unknown)) == (frozenset(), ("e1",))


def test_a_wider_partition_column_is_no_other_partitioning(tmp_path: Path) -> None:
    def typed(kind: str) -> dict[str, Any]:
        fields = [{**field, "type": kind} for field in SCHEMA["fields"][:1]] + SCHEMA["fields"][1:]
        text = json.dumps({"type": "struct", "fields": fields})
        return {"metaData": {**METADATA["metaData"], "schemaString": text}}

    log = Log(tmp_path / "t")
    log.commit(typed("decimal(3,1)"), add("a", "1.5", 1), add("b", "2.5", 2))
    log.commit(typed("decimal(5,2)"))
    log.commit(remove("a", "1.5"), add("c", "1.50", 3), ours("t", [["1.50"], 3, "f"]))
    reader = DeltaLog(str(log.root))
    state = reader.state()
    assert {values: held.rows for values, held in state.partitions.items()} == {
        ("1.50",): 3,
        ("2.50",): 2,
    }
    commits = list(reader.commits(0, 2))
    assert [commit.repartitioned for commit in commits] == [False, False]
    assert commits[1].touched == {("1.50",)}
    assert {values for event in history(reader).events for values in event.made} == {
        ("1.50",),
        ("2.50",),
    }


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        ({"minReaderVersion": 99, "minWriterVersion": 7}, "reader version 99"),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors", "fancyRows"],
                "writerFeatures": ["deletionVectors", "fancyRows"],
            },
            "the table feature fancyRows",
        ),
    ],
)
def test_what_a_reader_must_know_and_does_not_is_refused(
    tmp_path: Path, protocol: dict[str, Any], named: str
) -> None:
    log = Log(tmp_path / "t")
    log.commit(METADATA, add("a", "d1", 1))
    log.commit({"protocol": protocol})
    with pytest.raises(TableError, match=f"needs {named} of Delta") as raised:
        DeltaLog(str(log.root)).state()
    assert raised.value.hint


def test_features_for_writers_alone_do_not_matter_to_a_reader(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    features = ["deletionVectors", "columnMapping", "v2Checkpoint", "typeWidening"]
    log.commit(
        METADATA,
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": [*features, "fancyWrites"],
            }
        },
    )
    assert DeltaLog(str(log.root)).state().version == 0


def test_a_log_may_begin_with_a_change_of_the_schema(tmp_path: Path) -> None:
    made = Cleaned(tmp_path)
    made.log.commit(METADATA, add("a", "d1", 1))
    made.log.commit(METADATA, add("b", "d2", 2))
    made.checkpoint(add("a", "d1", 1), add("b", "d2", 2))
    made.clean(1)
    (event,) = history(made.open()).events
    assert (event.version, event.changed) == (1, (("d2",),))


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cleaned:
    """A whole log: commits 0 to 6, and a checkpoint at 4; only commits after it are near.

    d1 is written by us in 1 and appended to in 2, d2 written in 1 and emptied in 3.
    """
    monkeypatch.setattr("spark_runtime.tables.delta.log._REACH", 1)
    made = Cleaned(tmp_path)
    made.log.commit(METADATA)
    made.log.commit(add("a", "d1", 1), add("b", "d2", 2), ours("t-1", [["d1"], 1, "f1"]))
    appended = {"mode": "append", "job": "j", "run_id": "r-2"}
    made.log.commit(add("c", "d1", 1), ours("t-2", [["d1"], 2, None], **appended))
    made.log.commit(remove("b", "d2"))
    made.log.commit({"commitInfo": {"operation": "OPTIMIZE"}})
    made.checkpoint(add("a", "d1", 1), add("c", "d1", 1))
    made.log.commit(add("d", "d3", 3), ours("t-5", [["d3"], 3, "f3"]))
    made.log.commit(add("e", "d4", 4))
    return made


def test_a_long_log_is_read_from_a_near_checkpoint(busy: Cleaned) -> None:
    log = busy.open()
    near = log.state()
    assert (near.first_read, near.tokens, near.complete) == (4, {"t-5": 5}, True)
    assert log.deepen()
    assert not log.deepen()
    whole = log.state()
    assert (whole.first_read, whole.tokens) == (0, {"t-1": 1, "t-2": 2, "t-5": 5})
    assert whole.appended.values() != near.appended.values()
    files = [{values: held.files for values, held in s.partitions.items()} for s in (near, whole)]
    assert files[0] == files[1]


def test_a_long_log_is_read_whole_where_it_is_asked_beforehand(busy: Cleaned) -> None:
    log = busy.open()
    assert not log.deepen()
    assert log.state().first_read == 0


def test_a_short_log_has_no_more_to_read(cleaned: Cleaned) -> None:
    log = cleaned.open()
    log.state()
    assert not log.deepen()


def test_an_emptied_partition_is_found_far_back_in_the_log(busy: Cleaned) -> None:
    """It is in no file, and no near commit wrote to it."""
    found = find_missing(spec("d2", "d3", "d9", version=6), busy.open())
    assert [found.needed[place] for place in found.never] == ["d9"]
    assert not found.unknown
