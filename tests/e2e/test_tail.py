"""Keys that become complete while a backfill runs, by the clock on the wall."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.test_cli import Shop, table

pytestmark = pytest.mark.e2e

ADDING = """
[[job]]
name = "adding"
engine = "here"
entrypoint = "any:thing"
batch = "range"

[[job.reads]]
dataset = "ticks"
mapping = "window"
before = 3
"""


def test_the_tail_is_run_or_listed(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    begun = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=40)
    start = begun.strftime("%Y-%m-%dT%H:%M:%S")
    for name in ("ticks", "sums"):
        shop.declare(table(name, f'every = "2s"\nstart = "{start}"', "%Y-%m-%dT%H:%M:%S"))
    shop.declare(ADDING)
    shop.lineage(("adding", "ticks", "sums"))
    shop.does({"adding": "sleep 5"})
    recent = datetime.now(UTC) - timedelta(seconds=4)
    number = int((recent - begun).total_seconds()) // 2
    key = (begun + timedelta(seconds=2 * number)).strftime("%Y-%m-%dT%H:%M:%S")
    run = ("run", "ticks", "--partitions", key, "--yes")

    listed = shop(*run, "--no-tail", code=3)
    assert "Became complete meanwhile, not run: adding" in listed.stderr
    status = shop.document("status", schema="status")
    assert (status["state"], len(status["runs"])) == ("succeeded", 1)
    (left,) = status["left"]
    assert left["job"]["name"] == "adding"

    recent = datetime.now(UTC) - timedelta(seconds=4)
    number = int((recent - begun).total_seconds()) // 2
    key = (begun + timedelta(seconds=2 * number)).strftime("%Y-%m-%dT%H:%M:%S")
    done = shop("run", "ticks", "--partitions", key, "--yes")
    assert "keys became complete meanwhile" in done.stderr
    status = shop.document("status", schema="status")
    assert (status["state"], status["left"]) == ("succeeded", [])
    assert len(status["runs"]) >= 2
    report = shop.document("report", schema="report")
    assert report["touched_is_planned"]
    assert report["outputs"][0]["touched"]["count"] == 4  # all that read it: itself and three more
