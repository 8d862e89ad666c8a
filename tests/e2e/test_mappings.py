"""Mappings of the project file through the command line: what is planned, read and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main

HEAD = '[project]\nnamespace = "w"\nzone = "UTC"\n'
NOW = "2024-04-01T12:00:00Z"


def impact(folder: Path, toml: str, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Return the plan that the command line prints for a project file."""
    (folder / "lineage-backfill.toml").write_text(HEAD + toml)
    config = ("--config", str(folder / "lineage-backfill.toml"))
    assert main(["impact", *words, *config, "--json", "--now", NOW]) == 0
    return json.loads(capsys.readouterr().out)


def planned(plan: Any, job: str) -> Any:
    (found,) = (one for one in plan["jobs"] if one["job"]["name"] == job)
    return found["partitions"]


def reads(plan: Any, key: str) -> dict[str, Any]:
    (run,) = (one for one in plan["runs"] if one["partitions"] == [key])
    return {part["dataset"]["name"]: part.get("partitions") for part in run["reads"]}


ATTRIBUTION = """
[[dataset]]
name = "*"
grain = "day"
start = "2024-01-01"
[[job]]
name = "attribute"
[[job.reads]]
dataset = "clicks"
mapping = "window"
before = 29
[[job.reads]]
dataset = "orders"
lookback = 7
[[job.writes]]
dataset = "credit"
"""


def test_a_lookback_of_one_input_widens_that_input_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = impact(tmp_path, ATTRIBUTION, capsys, "clicks", "--partitions", "2024-02-01")
    assert planned(plan, "attribute") == ["2024-02-01..2024-03-01"]
    assert reads(plan, "2024-02-01") == {
        "clicks": ["2024-01-03..2024-02-01"],
        "orders": ["2024-02-01..2024-02-08"],
    }
    plan = impact(tmp_path, ATTRIBUTION, capsys, "orders", "--partitions", "2024-02-10")
    assert planned(plan, "attribute") == ["2024-02-03..2024-02-10"]
