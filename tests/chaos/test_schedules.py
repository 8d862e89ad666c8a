"""Some random schedules of writes; `scripts/chaos --schedules` plays as many as are wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.parquet_schedules import ParquetSchedule
from tests.chaos.schedules import Schedule, Templates, play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = (3, 8, 21)


KINDS = {"delta": Schedule, "parquet": ParquetSchedule}


@pytest.fixture(scope="module")
def templates(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Templates]:
    folder = tmp_path_factory.mktemp("schedules")
    return [Templates(spark, folder / kind, kind) for kind in KINDS]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_version_is_what_its_commit_should_have_made(
    spark: SparkSession, templates: list[Templates], tmp_path: Path, kind: str, seed: int
) -> None:
    (tables,) = [one for one in templates if one.kind == kind]
    assert play(KINDS[kind]([spark], tables, tmp_path / "t", seed)) >= 2
