"""Where tables lie: one rule for the project file, run specs and table logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage_backfill.project.locations import absolute
from lineage_backfill.project.reader import read_dataset


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


def test_the_name_of_a_single_table_stands_in_its_place(tmp_path: Path) -> None:
    single = read_dataset({"name": "shop.orders", "location": "data/{name}"}, "", tmp_path)
    assert single.location == str(tmp_path / "data" / "shop.orders")
    several = read_dataset({"name": "shop.*", "table": "db.{name}"}, "", tmp_path)
    assert [several.of(name).table for name in ("shop.a", "shop.b")] == ["db.shop.a", "db.shop.b"]
