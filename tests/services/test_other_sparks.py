"""The writer's own tests over a Spark Connect server, and on the newest Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Tests of the writer that say most about another Spark.
LANE = [
    "tests/spark/test_modes.py",
    "tests/spark/test_merge.py::test_others_write_in_the_same_session_during_a_merge_as_ever",
    "tests/spark/test_merge.py::test_a_change_feed_deletes_rows_by_a_condition",
]


@pytest.mark.parametrize(
    "command",
    [[sys.executable, "-m", "pytest", "--connect"], ["scripts/newest-spark"]],
    ids=["over Spark Connect", "on the newest Spark"],
)
def test_the_writer_on_another_spark(command: list[str]) -> None:
    found = subprocess.run(
        [*command, "-q", "-p", "no:cacheprovider", *LANE],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-1000:]
    assert " passed" in found.stdout
