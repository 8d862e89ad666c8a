"""What is stale is found and repaired on real Delta tables, with a real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.spark.engine import SparkEngine
from lineage_backfill.engines.spark.settings import SparkSettings
from lineage_backfill.model import BackfillState, JobRef
from lineage_backfill.partitions.text import render
from lineage_backfill.plans.request import ChangedJob, Request
from lineage_backfill.ports import Settings, Submission
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.lineage import ProjectLineage
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.runner import DriveOptions, Runner
from lineage_backfill.workspace.workspace import Workspace
from tests.events import event, write_events

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

JOBS = """
from pyspark.sql import functions as F
from spark_runtime import RunContext, job


@job(inputs={"raw": "raw"}, output="clean", batch="range")
def clean(raw):
    return raw.where("n >= 0")


@job(inputs={"clean": "clean"}, output="rolling")
def rolling(clean, run: RunContext):
    (key,) = run.keys
    total = F.coalesce(F.sum("n"), F.lit(0))
    return clean.agg(total.alias("n")).select(F.lit(key.key).alias("day"), "n")


def feed(spark, location, day, numbers):
    rows = spark.createDataFrame([(day, n) for n in numbers], "day string, n long")
    writer = rows.write.format("delta").partitionBy("day").mode("overwrite")
    writer.option("replaceWhere", f"day = '{day}'").save(location)


def content(spark, location):
    return sorted(map(list, spark.read.format("delta").load(location).collect()))
"""
TABLE = '[[dataset]]\nname = "{0}"\ngrain = "day"\nstart = "2024-01-01"\ncolumn = "day"\n'
TABLE += 'location = "data/{0}"\n'
PROJECT = """
[project]
namespace = "s"
[lineage]
events = ["events.ndjson"]
[[job]]
name = "clean"
engine = "local"
entrypoint = "catchup_jobs:clean"
batch = "range"
[[job]]
name = "rolling"
engine = "local"
entrypoint = "catchup_jobs:rolling"
[[job.reads]]
dataset = "clean"
mapping = "window"
before = 2
"""


class Shop:
    """A project of two jobs over days, and a feed that nobody of them writes."""

    def __init__(self, folder: Path, engine: SparkEngine) -> None:
        self.engine = engine
        self.data = folder / "data"
        self.raw: dict[int, list[int]] = {}
        write_events(
            folder / "events.ndjson",
            event("clean", ["raw"], ["clean"], namespace="s"),
            event("rolling", ["clean"], ["rolling"], namespace="s"),
        )
        file = folder / "lineage-backfill.toml"
        file.write_text(PROJECT + "".join(map(TABLE.format, ("raw", "clean", "rolling"))))
        self.project = open_project(file)
        self.snapshot = ProjectLineage(self.project).read()

    def workspace(self, today: int) -> Workspace:
        """Return the workspace as of a day of January."""
        as_of = datetime(2024, 1, today, tzinfo=UTC)
        return Workspace(self.project, as_of=as_of, read=lambda: self.snapshot)

    def feed(self, day: int, *numbers: int) -> None:
        """Let somebody write a day of the raw data, anew if it is there."""
        self.raw[day] = list(numbers)
        place = {"location": str(self.data / "raw"), "day": f"2024-01-{day:02}"}
        self.engine.call("catchup_jobs:feed", {**place, "numbers": list(numbers)})

    def stale(self, today: int) -> dict[str, list[Any]]:
        """Return the stale keys of each job on a day of January."""
        return {
            one.job.name: list(render(one.calendar, one.stale))
            for one in self._found(today)
            if one.calendar is not None and one.stale
        }

    def catch_up(self, today: int) -> dict[str, tuple[Any, ...]]:
        """Run what is stale; return which keys of each job that was."""
        asked = tuple(one.asked() for one in self._found(today) if one.stale)
        return self.run(today, *asked)

    def run(self, today: int, *asked: ChangedJob) -> dict[str, tuple[Any, ...]]:
        workspace = self.workspace(today)
        plan = Planning(workspace).plan(Request(jobs=asked))
        runner = Runner(workspace, options=DriveOptions(engines={"local": self.engine}))
        # By the clock of the machine every day is long over; here it is January.
        outcome = runner.start(plan, Submission(settings=Settings(tail=False)))
        assert outcome.state is BackfillState.SUCCEEDED
        return {one.job.name: one.partitions for one in plan.jobs}

    def is_right(self, last: int) -> bool:
        """Whether the tables are what the raw data makes of them, from scratch."""
        clean = {day: [n for n in self.raw.get(day, []) if n >= 0] for day in range(1, last + 1)}
        rolling = {
            day: sum(sum(clean.get(one, [])) for one in range(day - 2, day + 1)) for day in clean
        }
        expected = {
            "clean": sorted(
                [f"2024-01-{day:02}", n] for day, found in clean.items() for n in found
            ),
            "rolling": [[f"2024-01-{day:02}", n] for day, n in sorted(rolling.items())],
        }
        return expected == {name: self.content(name) for name in expected}

    def content(self, table: str) -> Any:
        place = {"location": str(self.data / table)}
        return self.engine.call("catchup_jobs:content", place)

    def _found(self, today: int) -> Any:
        jobs, silent = Planning(self.workspace(today)).find_stale()
        assert not silent
        return jobs


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "catchup_jobs.py").write_text(JOBS)
    engine = SparkEngine(SparkSettings(), project=folder, state_dir=folder / "state")
    engine.open()
    yield engine
    engine.close()


@pytest.fixture
def shop(tmp_path: Path, engine: SparkEngine) -> Shop:
    return Shop(tmp_path, engine)


def keys(first: int, last: int) -> ChangedJob:
    job = JobRef("s", "clean")
    return ChangedJob(job=job, keys=(f"2024-01-{first:02}..2024-01-{last:02}",), exact=True)


def test_first_deployment_then_the_rest_of_a_partial_one(shop: Shop) -> None:
    for day in (1, 2, 3):
        shop.feed(day, day, -day)
    days = ["2024-01-01..2024-01-03"]
    assert shop.stale(4) == {"clean": days, "rolling": days}
    # Somebody has run the first day only; its readers follow.
    assert shop.run(4, keys(1, 1))["rolling"] == ("2024-01-01..2024-01-03",)
    assert shop.stale(4) == {"clean": ["2024-01-02..2024-01-03"]}
    assert shop.catch_up(4) == {
        "clean": ("2024-01-02..2024-01-03",),
        "rolling": ("2024-01-02..2024-01-03",),
    }
    assert shop.stale(4) == {}
    assert shop.is_right(3)


def test_fixed_three_weeks_ago_and_nobody_told_downstream(shop: Shop) -> None:
    for day in (1, 2, 3):
        shop.feed(day, day)
    shop.catch_up(4)
    shop.feed(2, 20, -1)  # the fix
    for day in (4, 5):  # and life went on
        shop.feed(day, day)
        shop.run(day + 1, keys(day, day))
    assert not shop.is_right(5)
    assert shop.stale(6) == {"clean": ["2024-01-02"]}
    assert shop.catch_up(6) == {"clean": ("2024-01-02",), "rolling": ("2024-01-02..2024-01-04",)}
    assert shop.stale(6) == {}
    assert shop.is_right(5)
