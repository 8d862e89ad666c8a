"""What no real change reaches does not run: as processes with tables of files, and with Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.spark.engine import SparkEngine
from lineage_backfill.engines.spark.settings import SparkSettings
from lineage_backfill.model import BackfillState, DatasetRef
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.ports import Reporter
from lineage_backfill.workspace.backfills import BackfillOutcome, Backfills
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.runner import DriveOptions, Runner
from lineage_backfill.workspace.workspace import Workspace
from tests.e2e.test_cli import FIX, Shop, read_until, wait_for
from tests.events import event, write_events
from tests.sessions import INTERPRETED

pytestmark = pytest.mark.e2e

#: Every partition is a file; what a run writes is made of all that it reads.
PROGRAM = """
import hashlib, json, sys, time
from pathlib import Path
spec = json.loads(Path(sys.argv[1]).read_text())
job = spec["job"]["name"]
with Path("journal").open("a") as journal:
    journal.write(f"{job} {spec['partitions'][0]}\\n")
while json.loads(Path("does.json").read_text()).get(job) == "wait" and not Path("go").exists():
    time.sleep(0.05)
def place(part, key, *above):
    return Path(*above, "tables", part["dataset"]["name"], key["key"])
def text(part, key):
    return place(part, key).read_text() if place(part, key).exists() else "empty"
reads = [
    {"dataset": part["dataset"], "version": 1, "partitions": [
        {"key": key["key"], "fingerprint": text(part, key)} for key in part["partitions"]
    ]} for part in spec["inputs"]
]
said = {one["key"]: one["fingerprint"] for part in reads for one in part["partitions"]}
outputs = []
for part in spec["outputs"]:
    partitions = []
    for key in part["scope"]:
        made = said.get(key["key"], hashlib.sha256(repr(said).encode()).hexdigest())
        one = {"key": key["key"], "rows_before": 1, "rows": 1, "emptied": False}
        one |= {"fingerprint_before": text(part, key), "fingerprint": made}
        old = place(part, key, "old", spec["token"])
        for folder in (place(part, key).parent, old.parent):
            folder.mkdir(parents=True, exist_ok=True)
        for token in spec.get("undo", ()):
            made = place(part, key, "old", token).read_text()
        old.write_text(text(part, key))
        place(part, key).write_text(made)
        partitions.append(one)
    version = len(list(Path("old").iterdir()))
    outputs.append({"dataset": part["dataset"], "version": version, "partitions": partitions})
result = {
    "schema_version": 1, "run_id": spec["run_id"], "attempt": spec["attempt"],
    "token": spec["token"], "state": "succeeded", "outputs": outputs, "inputs": reads,
    "error": None,
}
path = Path(spec["result_path"])
path.with_suffix(".tmp").write_text(json.dumps(result))
path.with_suffix(".tmp").replace(path)
"""


class TableShop(Shop):
    """A shop whose tables are files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "program.py").write_text(PROGRAM)
        self.fix("as it was")

    def fix(self, text: str) -> None:
        """Correct the first hour of the feed."""
        place = self.folder / "tables" / "feed" / "2024-01-02T00"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def ran(self) -> list[str]:
        """The jobs that ran since the last look."""
        jobs = [line.split()[0] for line in self.journal()]
        (self.folder / "journal").unlink(missing_ok=True)
        return jobs


@pytest.fixture
def shop(tmp_path: Path) -> TableShop:
    return TableShop(tmp_path)


def test_an_input_repaired_by_a_backfill_that_was_cancelled_before_its_reader(
    shop: TableShop,
) -> None:
    run = ("run", *FIX, "--yes")
    shop(*run)
    assert shop.ran() == ["clean", "daily"]

    shop.fix("right at last")
    shop.does({"clean": "wait"})
    process = shop.start(*run)
    wait_for(lambda: bool(shop.journal()))
    shop("cancel")
    read_until(process, "no new runs")
    shop.go()
    process.communicate(timeout=60)
    assert process.returncode == 3
    assert shop.ran() == ["clean"]

    shop.does({})
    clean = shop.folder / "tables" / "clean" / "2024-01-02T00"
    repaired = clean.read_text()
    shop(*run)
    assert clean.read_text() == repaired  # rewritten identically, and yet its reader must run
    assert shop.ran() == ["clean", "daily"]

    said = shop(*run).stderr
    assert "skipped daily: 1 run, because its inputs are unchanged since its last run" in said
    assert shop.ran() == ["clean"]
    status = shop.document("status", schema="status")
    assert [run["state"] for run in status["runs"]] == ["succeeded", "skipped"]
    assert status["state"] == "succeeded"
    report = shop.document("report", schema="report")
    assert report["touched_is_planned"]
    daily = next(one for one in report["outputs"] if one["dataset"]["name"] == "daily")
    assert daily["cut_off"] == {"count": 1, "partitions": ["2024-01-02"]}
    assert daily["touched"]["count"] == 0
    assert "2024-01-02  1 not needed (inputs unchanged)" in shop("report").stdout

    shop(*run, "--no-cutoff")
    assert shop.ran() == ["clean", "daily"]


def test_a_backfill_is_undone_gone_on_with_and_not_resumed(shop: TableShop) -> None:
    run = ("run", *FIX, "--yes")
    assert "no backfill has been run" in shop("undo", code=64).stderr
    shop(*run)
    clean = shop.folder / "tables" / "clean" / "2024-01-02T00"
    daily = shop.folder / "tables" / "daily" / "2024-01-02"
    before = clean.read_text(), daily.read_text()
    shop.fix("a fix that was none")
    shop(*run)
    done = shop.document("status", schema="status")["id"]
    assert (clean.read_text(), daily.read_text()) != before
    refused = shop("undo", "--yes", code=64)
    assert "engine 'here' would run it again" in refused.stderr
    project = shop.folder / "lineage-backfill.toml"
    project.write_text(project.read_text().replace("[engines.here]", "[engines.here]\nundo = true"))
    assert "Pass --yes" in shop("undo", code=9).stderr

    shop.ran()
    said = shop("undo", done, "--yes").stderr
    assert "Restores what 2 runs of 2 jobs overwrote" in said
    assert (clean.read_text(), daily.read_text()) == before
    assert shop.ran() == ["daily", "clean"]
    undo = shop.document("status", schema="status")
    assert (undo["state"], undo["undo_of"]) == ("succeeded", done)
    assert shop.document("status", done, schema="status")["undone_by"] == undo["id"]
    assert f"undone by {undo['id']}" in shop("status", done).stdout
    assert shop.document("undo", done, "--yes", schema="status")["id"] == undo["id"]
    assert shop.ran() == []
    assert f"is undone by {undo['id']}" in shop("resume", done, code=6).stderr
    assert "is itself the undo of" in shop("undo", undo["id"], "--yes", code=64).stderr
    shop(*run)
    assert shop.ran() == ["clean", "daily"]  # what they read last was taken back


def test_an_undo_that_is_refused_before_it_begins_leaves_no_backfill(shop: TableShop) -> None:
    project = shop.folder / "lineage-backfill.toml"
    project.write_text(project.read_text().replace("[engines.here]", "[engines.here]\nundo = true"))
    run = ("run", *FIX, "--yes")
    shop(*run)
    done = shop.document("status", schema="status")["id"]
    shop.ran()
    shop.does({"clean": "wait"})
    other = shop.start(*run)
    wait_for(lambda: bool(shop.journal()))
    newest = shop.document("status", schema="status")["id"]
    assert "holds partitions of shop:" in shop("undo", done, "--yes", code=6).stderr
    assert shop.document("status", schema="status")["id"] == newest
    assert shop.document("status", done, schema="status")["undone_by"] is None
    shop.go()
    other.communicate(timeout=60)
    shop("undo", "--yes")


JOBS = """
from pyspark.sql import functions as F
from spark_runtime import job


@job(inputs={"raw": "raw"}, output="clean", batch="range")
def clean(raw):
    return raw.where("n > 0")


@job(inputs={"clean": "clean"}, output="daily", batch="range")
def daily(clean):
    return clean.groupBy(F.substring("hour", 1, 10).alias("day")).agg(F.sum("n").alias("n"))


def feed(spark, location, rows):
    frame = spark.createDataFrame([tuple(row) for row in rows], "hour string, n long")
    writer = frame.write.format("delta").mode("overwrite").partitionBy("hour")
    writer.option("partitionOverwriteMode", "dynamic").save(location)


def rows(spark, location):
    return sorted(list(row) for row in spark.read.format("delta").load(location).collect())
"""

PROJECT = """
[project]
namespace = "w"
[lineage]
events = ["events.ndjson"]
[engines.local]
kind = "local"
[[dataset]]
name = "raw"
grain = "hour"
start = "2024-01-01T22"
end = "2024-01-02T01"
column = "hour"
location = "data/raw"
[[dataset]]
name = "clean"
grain = "hour"
start = "2024-01-01T22"
end = "2024-01-02T01"
column = "hour"
location = "data/clean"
[[dataset]]
name = "daily"
grain = "day"
start = "2024-01-01"
end = "2024-01-02"
column = "day"
location = "data/daily"
[[job]]
name = "clean"
engine = "local"
entrypoint = "pipeline_of_cutoff:clean"
batch = "range"
[[job]]
name = "daily"
engine = "local"
entrypoint = "pipeline_of_cutoff:daily"
batch = "range"
"""
HOURS = ("2024-01-01T22", "2024-01-01T23", "2024-01-02T00", "2024-01-02T01")


class SparkShop:
    """The same with tables in Delta, whose fingerprints are in their logs."""

    def __init__(self, folder: Path, engine: SparkEngine) -> None:
        (folder / "pipeline_of_cutoff.py").write_text(JOBS)
        (folder / "lineage-backfill.toml").write_text(PROJECT)
        write_events(
            folder / "events.ndjson",
            event("clean", ["raw"], ["clean"], namespace="w"),
            event("daily", ["clean"], ["daily"], namespace="w"),
        )
        self.folder = folder
        self.engine = engine
        self.project = open_project(folder / "lineage-backfill.toml")
        self.workspace = Workspace(self.project, as_of=datetime(2024, 1, 3, tzinfo=UTC))
        self.backfills = Backfills(self.workspace)

    def feed(self, into: str = "raw", **values: int) -> None:
        """Write hours of the feed, or of another table, by hand; `h0` is the first one."""
        rows = [[HOURS[int(name[1:])], value] for name, value in values.items()]
        arguments = {"location": str(self.folder / "data" / into), "rows": rows}
        self.engine.call("pipeline_of_cutoff:feed", arguments)

    def rows(self, table: str) -> Any:
        location = str(self.folder / "data" / table)
        return self.engine.call("pipeline_of_cutoff:rows", {"location": location})

    def run(
        self,
        reporter: Reporter | None = None,
        *,
        table: str = "raw",
        hours: tuple[str, ...] = (f"{HOURS[0]}..{HOURS[-1]}",),
    ) -> dict[str, Any]:
        """Repair what reads the feed, or hours of another table; returns the runs by job."""
        changed = ChangedDataset(dataset=DatasetRef("w", table), keys=hours)
        plan = Planning(self.workspace).plan(Request(changed=(changed,)))
        outcome = self.runner(reporter).start(plan)
        runs = {run["job"]["name"]: run for run in self.backfills.status(outcome.id)["runs"]}
        assert {run["state"] for run in runs.values()} <= {"succeeded", "skipped", "cancelled"}
        return runs

    def undo(self, backfill: str) -> BackfillOutcome:
        return self.runner().undo(backfill, confirm=lambda _plan: None)

    def runner(self, reporter: Reporter | None = None) -> Runner:
        return Runner(self.workspace, reporter, DriveOptions(engines={"local": self.engine}))


class CancelsOnce(Reporter):
    """Cancels the backfill from elsewhere as soon as its first run has started."""

    def __init__(self, shop: SparkShop) -> None:
        self.shop = shop

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        Runner(self.shop.workspace).cancel()
        time.sleep(2.5)  # for as long as it takes to be heard


@pytest.fixture
def spark_shop(tmp_path: Path) -> Iterator[SparkShop]:
    engine = SparkEngine(
        SparkSettings(conf=INTERPRETED), project=tmp_path, state_dir=tmp_path / "state"
    )
    yield SparkShop(tmp_path, engine)
    engine.close()


@pytest.mark.spark
def test_with_spark_readers_run_only_where_their_input_is_not_what_they_read(
    spark_shop: SparkShop,
) -> None:
    shop = spark_shop
    shop.feed(h0=1, h1=2, h2=3, h3=-4)
    assert shop.run()["daily"]["state"] == "succeeded"
    assert shop.rows("daily") == [["2024-01-01", 3], ["2024-01-02", 3]]

    shop.feed(h1=20, h3=-40)  # the latter is lost: `clean` drops what is not positive
    assert shop.run(CancelsOnce(shop))["daily"]["state"] == "cancelled"
    runs = shop.run()
    assert runs["clean"]["cut_off"] == []
    assert (runs["daily"]["state"], runs["daily"]["cut_off"]) == ("succeeded", ["2024-01-02"])
    assert shop.rows("daily") == [["2024-01-01", 21], ["2024-01-02", 3]]
    report = shop.backfills.report()
    assert report["touched_is_planned"], report

    assert shop.run()["daily"]["state"] == "skipped"

    newest, mended, *_ = (one["id"] for one in shop.backfills.history()["backfills"])
    refused = shop.undo(mended)
    assert refused.state is BackfillState.FAILED
    (why,) = shop.backfills.report(refused.id)["not_succeeded"]
    assert newest in why["error"]  # which has written the same partitions since
    assert shop.undo(newest).state is BackfillState.SUCCEEDED
    assert shop.undo(mended) == replace(refused, state=BackfillState.SUCCEEDED)
    assert shop.rows("daily") == [["2024-01-01", 3], ["2024-01-02", 3]]
    assert shop.backfills.report(refused.id)["touched_is_planned"]
    assert shop.run()["daily"]["cut_off"] == ["2024-01-02"]


@pytest.mark.spark
def test_with_spark_what_others_have_done_to_a_table_of_ours_is_read_anew(
    spark_shop: SparkShop,
) -> None:
    shop = spark_shop
    shop.feed(h0=1, h1=2, h2=3, h3=4)
    shop.run()
    shop.feed("clean", h1=20)
    assert shop.run(table="clean", hours=HOURS[1:2])["daily"]["state"] == "succeeded"
    assert shop.rows("daily") == [["2024-01-01", 21], ["2024-01-02", 7]]

    shop.feed("clean", h1=30)  # and nobody says so
    assert shop.run(hours=HOURS[2:3])["daily"]["state"] == "skipped"
    runs = shop.run(hours=HOURS[:1])
    assert (runs["clean"]["cut_off"], runs["daily"]["state"]) == ([], "succeeded")
    assert shop.rows("daily") == [["2024-01-01", 31], ["2024-01-02", 7]]
