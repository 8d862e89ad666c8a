"""The cache of names: one file a project, of those that were read lately."""

from __future__ import annotations

import os
from pathlib import Path

from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources.names import keep_names, kept_names

_DAILY = JobNode(ref=JobRef("shop", "daily"), writes=(DatasetRef("shop", "sales"),))


def file_of(folder: Path, number: int) -> Path:
    return folder / f"names-{number:04}.json"


def test_names_of_projects_that_were_not_read_for_long_are_removed(tmp_path: Path) -> None:
    snapshot = LineageSnapshot.of([_DAILY])
    (tmp_path / "jars").mkdir()
    for number in range(250):
        file = file_of(tmp_path, number)
        file.write_text("[[], []]")
        os.utime(file, (number, number))
    keep_names(snapshot, file_of(tmp_path, 0))
    kept = {file_of(tmp_path, number) for number in (0, *range(151, 250))}
    assert set(tmp_path.iterdir()) == {tmp_path / "jars", *kept}
    assert kept_names(file_of(tmp_path, 0)) == ([DatasetRef("shop", "sales")], [_DAILY.ref])


def test_names_that_did_not_change_count_as_read(tmp_path: Path) -> None:
    snapshot = LineageSnapshot.of([_DAILY])
    file = file_of(tmp_path, 0)
    keep_names(snapshot, file)
    os.utime(file, (0, 0))
    keep_names(snapshot, file)
    assert file.stat().st_mtime > 0


def test_a_damaged_file_is_replaced_and_a_missing_folder_is_no_failure(tmp_path: Path) -> None:
    snapshot = LineageSnapshot.of([_DAILY])
    file_of(tmp_path, 0).write_bytes(b"\xff")
    keep_names(snapshot, file_of(tmp_path, 0))
    assert kept_names(file_of(tmp_path, 0))[1] == [_DAILY.ref]
    (tmp_path / "file").touch()
    keep_names(snapshot, tmp_path / "file" / "names-1.json")
