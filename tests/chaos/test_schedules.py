"""Some random schedules of writes; `scripts/chaos --schedules` plays as many as are wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.schedules import Schedule, Templates, play
from tests.sampling import a_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A seed, whether the keys are values of a column, and whether the log begins with a checkpoint.
CASES = a_part(((1002, False, True), (3, False, False), (2, True, False), (8, True, True)), every=2)


@pytest.mark.parametrize(("seed", "by_value", "cleaned"), CASES)
def test_every_version_is_what_its_commit_should_have_made(
    spark: SparkSession, tmp_path: Path, seed: int, by_value: bool, cleaned: bool
) -> None:
    templates = Templates(spark, tmp_path, by_value=by_value, cleaned=cleaned)
    assert play(Schedule([spark], templates, tmp_path / "t", seed)) >= 2
