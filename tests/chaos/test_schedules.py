"""Some random schedules of writes; `scripts/chaos --schedules` plays as many as are wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.schedules import Schedule, Templates, play
from tests.sampling import a_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = a_part((3, 8, 21), every=2)


@pytest.fixture(scope="module")
def templates(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(spark, tmp_path_factory.mktemp("schedules"))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_version_is_what_its_commit_should_have_made(
    spark: SparkSession, templates: Templates, tmp_path: Path, seed: int
) -> None:
    assert play(Schedule([spark], templates, tmp_path / "t", seed)) >= 2
