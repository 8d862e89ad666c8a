"""A planned and a scheduled run write an output alike, wherever its policy is declared."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.planner import build_plan
from lineage_backfill.plans.request import ChangedJob, Request
from lineage_backfill.project.declarations import WriteMode
from lineage_backfill.runs.specs import RunSpecs
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import RunSpec
from spark_runtime.configuration import load_project
from spark_runtime.job.decorator import load_job
from spark_runtime.job.runner import run
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from tests.sampling import a_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_runtime.tables.tables import Tables

NOW = datetime(2024, 2, 1, tzinfo=UTC)
#: The grain of the runs and of the output, and the run keys, of each mode.
SHAPES: dict[str, tuple[str, str, list[str | None]]] = {
    "overwrite": ("day", "day", ["2024-01-01"]),
    "merge": ("hour", "day", ["2024-01-01T03", "2024-01-01T04"]),
    "append": ("day", "day", ["2024-01-01"]),
    "full": ("none", "none", [None]),
}
PROJECT = """
[project]
namespace = "home"

[[dataset]]
name = "hours"
grain = "hour"
start = "2024-01-01T00"
column = "hour"
location = "../hours"

[[dataset]]
name = "out"
namespace = "test"
grain = "{grain}"
{keys}
location = "out"

[[job]]
name = "j"
entrypoint = "policy_{mode}_{place}:j"
grain = "{run}"
{writes}
"""
WRITES = {
    "exact": '[[job.writes]]\ndataset = "out"\nnamespace = "test"\nmode = "{mode}"',
    "glob": '[[job.writes]]\ndataset = "o*"\nnamespace = "*"\nmode = "{mode}"',
    # The same name in the project's own namespace is another dataset.
    "namespace": '[[job.writes]]\ndataset = "o*"\nnamespace = "home"\n'
    '[[job.writes]]\ndataset = "o*"\nnamespace = "test"\nmode = "{mode}"',
    "facet": "",
}
JOB = """
from pyspark.sql import functions as F
from spark_runtime import job

@job(inputs={{"hours": "hours"}}, output="test:out", batch="range", merge_on=["hour"]{mode})
def j(hours):
    return hours.select("hour", "n", F.substring("hour", 1, 10).alias("day"))
"""


def world(folder: Path, mode: str, place: str) -> Path:
    """Write a project in a folder of its own."""
    grain, out, _ = SHAPES[mode]
    keys = 'column = "day"\nstart = "2024-01-01"' if out == "day" else ""
    text = PROJECT.format(
        run=grain, grain=out, keys=keys, mode=mode, place=place, writes=WRITES[place]
    ).replace("{mode}", mode)
    folder.mkdir()
    (folder / "lineage-backfill.toml").write_text(text)
    said = f', mode="{mode}"' if place == "facet" else ""
    (folder / f"policy_{mode}_{place}.py").write_text(JOB.format(mode=said))
    return folder


def scheduled(folder: Path, key: str | None) -> RunSpec:
    project = load_project(folder)
    job = load_job(str(project.declarations.jobs[0].entrypoint))
    declared = declare(project, "j", reads=job.reads, writes=job.writes)
    (spec,) = run_specs(declared, project, StartRequest(keys=[key] if key else []), NOW)
    return spec


def planned(folder: Path, key: str | None, facet: dict[str, Any]) -> RunSpec:
    """Return the spec of the run that is planned where the job's lineage told its facet."""
    ref, out = JobRef("home", "j"), DatasetRef("test", "out")
    node = JobNode(ref=ref, reads=(DatasetRef("home", "hours"),), writes=(out,), partitioning=facet)
    lineage, declared = LineageSnapshot.of([node]), load_project(folder).declarations
    request = Request(jobs=(ChangedJob(job=ref, keys=(key,) if key else None),))
    (made,) = build_plan(request, lineage, declared, now=NOW).runs or ()
    specs = RunSpecs(Resolver(lineage, declared, now=NOW), backfill_id="b", root=folder)
    return parse_spec(specs(made, 1, f"t-{key}", folder / "result.json"))


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hours, and a day that holds what was written before."""
    folder = tmp_path_factory.mktemp("policy")
    hours = [("2024-01-01T03", 3), ("2024-01-01T04", 4), ("2024-01-02T00", 9)]
    frame = spark.createDataFrame(hours, "hour STRING, n INT")
    frame.coalesce(1).write.format("delta").partitionBy("hour").save(str(folder / "hours"))
    return folder


@pytest.mark.parametrize(("mode", "place"), a_part(product(get_args(WriteMode), WRITES), every=5))
def test_a_planned_and_a_scheduled_run_leave_equal_tables(
    spark: SparkSession,
    tables: Tables,
    shared: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    place: str,
) -> None:
    left = {}
    for side in ("scheduled", "planned"):
        folder = world(shared / f"{mode}-{place}-{side}", mode, place)
        monkeypatch.syspath_prepend(str(folder))
        held = spark.createDataFrame([("old", 1, "2024-01-01")], "hour STRING, n INT, day STRING")
        writer = held.coalesce(1).write.format("delta")
        by = ["day"] if SHAPES[mode][1] == "day" else []
        writer.partitionBy(*by).save(str(folder / "out"))
        for key in SHAPES[mode][2]:
            spec = scheduled(folder, key)
            if side == "planned":
                spec = planned(folder, key, dict(spec.lineage.facets["job"]["partitioning"]))
            assert spec.outputs[0].mode == mode
            result = run(spark, spec, tables)
            assert result.error is None
        rows = spark.read.format("delta").load(str(folder / "out")).collect()
        left[side] = sorted((row["hour"], row["n"], row["day"]) for row in rows)
        sys.modules.pop(f"policy_{mode}_{place}", None)
    assert left["scheduled"] == left["planned"]
    added = [("2024-01-01T03", 3, "2024-01-01"), ("2024-01-01T04", 4, "2024-01-01")]
    expected = {"full": [*added, ("2024-01-02T00", 9, "2024-01-02")], "overwrite": added}
    assert left["planned"] == expected.get(mode, [*added, ("old", 1, "2024-01-01")])
