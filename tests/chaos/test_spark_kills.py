"""Executor, Spark worker and JVM are killed around real commits to Delta tables: nine times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.delta import DeltaTables
from tests.chaos.driver import SUCCEEDED
from tests.chaos.scenario import Scenario

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DAYS = ("2024-03-01", "2024-03-02")


def test_killed_around_its_commits_it_ends_as_if_nothing_had_been(
    sqlite_url: str, tmp_path: Path
) -> None:
    tables = DeltaTables(tmp_path, DAYS)
    scenario = Scenario(tmp_path, sqlite_url, tables, days=DAYS, per_key=("a",))
    worker_kills = [
        ("JVM before commit", 1),
        ("before commit", 2),
        ("JVM in commit", 3),
        ("JVM before result", 2),
        ("before result", 3),
        ("before reply", 4),
    ]
    assert scenario.run(worker_kills=worker_kills) == SUCCEEDED
    assert scenario.kills >= 6
    scenario.check()
