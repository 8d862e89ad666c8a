"""The demo as a user runs it, and going on by hand in its folder, on real Spark and Delta."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.documents import fits

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
HOUR = "2013-03-20T14"
DOWNSTREAM = {
    "flights": 1,
    "flights_clean": 1,
    "flights_weather": 1,
    "flights_daily": 1,
    "rolling_week": 7,
    "flights_weekly": 1,
    "flights_monthly": 1,
    "running_total": 2,  # the 12th and the 13th week
    "carriers": 1,
    "carrier_daily": 31,
}


@dataclass(frozen=True)
class Demo:
    folder: Path
    output: str

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        return run(*command, folder=self.folder)


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "COLUMNS": "140", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    above = tmp_path_factory.mktemp("demo")
    ended = run("examples.demo", "here", folder=above)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Demo(above / "here", ended.stdout)


def test_both_checks_hold_and_the_next_steps_are_told(demo: Demo) -> None:
    assert "13 of 13 tables are equal" in demo.output
    assert "55 partitions rewritten" in demo.output
    assert f"lineage-backfill impact flights_hourly --from {HOUR} --to {HOUR}" in demo.output


def test_the_report_says_that_touched_is_planned(demo: Demo) -> None:
    report = json.loads(demo.call("lineage_backfill", "report", "--json").stdout)
    assert report["state"] == "succeeded"
    assert report["touched_is_planned"] is True


def test_the_report_shows_rows_before_and_after(demo: Demo) -> None:
    asked = ("lineage_backfill", "report", "--rows", "flights_daily@2013-03-10", "--json")
    found = json.loads(demo.call(*asked).stdout)
    assert fits(found, "rows")
    (found,) = found["outputs"]
    assert found["rows_before"] == found["rows_after"] == 15
    assert found["added"]["count"] == found["removed"]["count"] == 11
    sums = {one["column"]: (one["before"], one["after"]) for one in found["sums"]}
    assert (sums["flights"], sums["late_minutes"]) == (("908", "908"), ("74956", "12062"))
    many = demo.call(*asked[:3], "carrier_daily")
    assert (many.returncode, "Name one: --rows carrier_daily@2013-03-01" in many.stderr) == (
        64,
        True,
    )
    none = demo.call(*asked[:3], "weather@2013-03-10")
    assert (none.returncode, "rewrote no partition of" in none.stderr) == (64, True)


def test_the_history_and_the_backfill_are_in_the_lineage_and_in_the_run_store(demo: Demo) -> None:
    events = [
        json.loads(line)
        for file in (demo.folder / "lineage").glob("*.ndjson")
        for line in file.read_text().splitlines()
    ]
    completed = [event["job"]["name"] for event in events if event["eventType"] == "COMPLETE"]
    assert completed.count("running_total") == 4 + 4
    assert completed.count("weather_daily") == 1, "it was built, and left alone by the fix"
    assert (
        len(json.loads(demo.call("lineage_backfill", "history", "--json").stdout)["backfills"]) == 2
    )


def test_one_more_hour_changed_by_hand_plans_exactly_what_it_broke(demo: Demo) -> None:
    assert demo.call("pipeline.feed", "spoil", HOUR).returncode == 0
    stale = demo.call("pipeline.check")
    assert stale.returncode == 1, stale.stdout + stale.stderr

    change = ("flights_hourly", "--from", HOUR, "--to", HOUR)
    plan: dict[str, Any] = json.loads(
        demo.call("lineage_backfill", "impact", *change, "--json").stdout
    )
    planned = {
        write["dataset"]["name"]: sum(
            one["count"] for one in plan["jobs"] if one["job"]["name"] == produced["job"]["name"]
        )
        for produced in plan["runs"]
        for write in produced["writes"]
    }
    assert planned == DOWNSTREAM


def test_a_folder_of_somebody_else_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    ended = run("examples.demo", "mine", folder=tmp_path)
    assert ended.returncode == 64
    assert "was not made by the demo" in ended.stderr
