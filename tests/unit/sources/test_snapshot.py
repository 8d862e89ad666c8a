"""A saved snapshot comes back the same, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.snapshot import (
    AirflowTask,
    DatasetNode,
    JobNode,
    LineageSnapshot,
    ObservedRun,
)
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources.events import EventSource
from lineage_backfill.sources.snapshot import SnapshotSource, save_snapshot

DATA = Path(__file__).parents[2] / "data" / "lineage"


@pytest.fixture(scope="module")
def taken() -> LineageSnapshot:
    return EventSource([DATA]).read()


@pytest.fixture
def saved(taken: LineageSnapshot, tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "lineage.json.gz"
    save_snapshot(taken, path)
    return path


def test_it_comes_back_the_same(taken: LineageSnapshot, saved: Path) -> None:
    back = SnapshotSource(saved).read()
    assert back.jobs == taken.jobs
    assert back.datasets == taken.datasets
    assert back.column_edges == taken.column_edges
    assert back.history == taken.history
    assert (back.warnings, back.taken_at) == (taken.warnings, taken.taken_at)
    assert (back.source, back.content_hash) == ("snapshot", taken.content_hash)


def test_every_member_comes_back(tmp_path: Path) -> None:
    table = DatasetRef("d", "t")
    node = JobNode(
        ref=JobRef("n", "j"),
        reads=(table,),
        writes=(table,),
        former_reads=(table,),
        former_writes=(table,),
        parent=JobRef("n", "p"),
        processing="BATCH",
        owners=("o",),
        tags=("t",),
        partitioning={"run": {"grain": "day"}},
        airflow=AirflowTask(dag="d", task="t", outlets=("s3://b/t",), timetable={"x": [1]}),
    )
    dataset = DatasetNode(ref=table, fields=("a",))
    run = ObservedRun(job=node.ref, run_id="r", state="COMPLETE", written="2024-01-01,2024-01-02")
    save_snapshot(LineageSnapshot.of([node], [dataset], history=(run,)), tmp_path / "s")
    back = SnapshotSource(tmp_path / "s").read()
    assert (back.jobs, back.taken_at) == ({node.ref: node}, None)
    assert (back.datasets[table], back.history) == (dataset, (run,))


def test_the_same_snapshot_gives_the_same_bytes(taken: LineageSnapshot, saved: Path) -> None:
    before = saved.read_bytes()
    save_snapshot(taken, saved)
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]


def repack(data: bytes, old: bytes, new: bytes) -> bytes:
    return gzip.compress(gzip.decompress(data).replace(old, new, 1))


def forged(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return a snapshot with something else in it, and with the hash of that."""
    *lines, _ = gzip.decompress(data).replace(old, new, 1).splitlines(keepends=True)
    closing = json.dumps({"sha256": hashlib.sha256(b"".join(lines)).hexdigest()})
    return gzip.compress(b"".join([*lines, closing.encode(), b"\n"]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1000], "not a valid"),
        (lambda data: repack(data, b'{"sha256"', b"{"), "not a valid"),
        (lambda data: repack(data, gzip.decompress(data)[-80:], b""), "not a valid"),
        (
            lambda data: repack(data, gzip.decompress(data).splitlines(True)[-1], b""),
            "it is incomplete",
        ),
        (lambda data: repack(data, b"etl_", b"elt_"), "its hash differs"),
        (lambda data: repack(data, b'"version":1', b'"version":2'), "version is 2"),
        (lambda _: b"hello", "not a valid"),
        (lambda _: gzip.compress(b"{}\n"), "first line is not that"),
        (lambda _: gzip.compress(b"[]\n"), "first line is not that"),
        (lambda _: b"", "not a valid"),
        (lambda data: data + data, "data follows its end"),
        (lambda data: data + b"x", "not a valid"),
        (lambda data: data + gzip.compress(b"x"), "data follows its end"),
        (lambda _: gzip.compress(b"[" * 100_000), "nested too deep"),
        (lambda data: forged(data, b"+00:00", b""), "with a timezone"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(
    saved: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    saved.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(LineageError, match=message) as caught:
        SnapshotSource(saved).read()
    assert "lineage pull" in caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LineageError, match="no such file"):
        SnapshotSource(tmp_path / "gone").read()
