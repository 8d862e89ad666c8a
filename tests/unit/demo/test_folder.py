"""The demo's folder is made again, and no other folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo.folder import MARKER, prepare
from examples.demo.period import MARCH, YEAR
from lineage_backfill.errors import UsageError
from lineage_backfill.workspace.configuration import load_project


def test_a_new_folder_holds_a_project_that_loads(tmp_path: Path) -> None:
    folder = prepare(tmp_path / "demo", MARCH)
    project = load_project(folder, environ={}, user_file=tmp_path / "none")
    assert project.file == folder / "lineage-backfill.toml"
    assert project.outbox == folder / "lineage"
    for job in project.declarations.jobs:
        module, _, function = (job.entrypoint or "").partition(":")
        source = (folder / module.replace(".", "/")).with_suffix(".py").read_text()
        assert f"def {function}(" in source
    assert not list(folder.rglob("__pycache__"))


def test_a_second_demo_begins_afresh_in_the_same_folder(tmp_path: Path) -> None:
    folder = prepare(tmp_path / "demo", MARCH)
    inode = folder.stat().st_ino
    (folder / "data").mkdir()
    (folder / "data" / "old").write_text("old")
    (folder / "pipeline" / "mine.py").write_text("")
    prepare(folder, YEAR)
    assert not (folder / "data").exists()
    assert not (folder / "pipeline" / "mine.py").exists()
    assert 'end = "2013-12-31"' in (folder / "lineage-backfill.toml").read_text()
    assert folder.stat().st_ino == inode, "a terminal may stand in it"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert (prepare(tmp_path, MARCH) / MARKER).is_file()


@pytest.mark.parametrize("name", ["letter.txt", "data/table/part.parquet"])
def test_a_folder_of_somebody_else_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("dear")
    with pytest.raises(UsageError, match="was not made by the demo") as refusal:
        prepare(tmp_path, MARCH)
    assert "another folder" in refusal.value.hint
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


def test_a_file_in_its_place_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "demo"
    file.write_text("dear")
    with pytest.raises(UsageError):
        prepare(file, MARCH)
    assert file.read_text() == "dear"


def test_what_a_link_in_the_folder_points_to_survives(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("")
    folder = prepare(tmp_path / "demo", MARCH)
    (folder / "link").symlink_to(outside)
    prepare(folder, MARCH)
    assert not (folder / "link").exists()
    assert (outside / "precious").exists()
