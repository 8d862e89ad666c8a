"""Where tables lie: one rule for the project file, run specs and table logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage_backfill.project.locations import absolute


@pytest.mark.parametrize("url", ["dbfs:/lake/t", "s3a://bucket/t", "file:///lake/t", "hdfs:///t"])
def test_a_url_stays_as_it_is(url: str, tmp_path: Path) -> None:
    assert absolute(url, tmp_path) == url


@pytest.mark.parametrize("path", ["lake/t", "lake/../lake/t", "./lake/t"])
def test_a_path_is_taken_from_the_base(path: str, tmp_path: Path) -> None:
    assert absolute(path, tmp_path) == str(tmp_path / "lake" / "t")


def test_a_link_and_what_it_points_to_are_one_place(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to("lake")
    assert absolute("link/t", tmp_path) == absolute("lake/t", tmp_path)
