"""The Spark job of the documentation does what the page says."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.planner import build_plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.runs.specs import RunSpecs
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.workspace.code import declared_in_code
from lineage_backfill.workspace.configuration import load_project
from spark_runtime.configuration import load_project as load_runtime_project
from spark_runtime.job.decorator import load_job
from spark_runtime.job.runner import run
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from spark_runtime.tables.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "spark.md").read_text(encoding="utf-8")
JOBS = (DOCS / "jobs.md").read_text(encoding="utf-8")
SPACE = "default"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.core
def test_ten_lines_are_a_job(
    spark: SparkSession, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(ours) <= 10
    (tmp_path / "documented.py").write_text(blocks("python")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    toml = blocks("toml")[0]
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(toml.replace("pipeline.jobs", "documented"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read = load_project(file=file, environ={}, user_file=tmp_path / "none")
    project = declared_in_code(read)
    orders = [(date(2024, 1, day), 10 * day) for day in (1, 1, 2, 3)]
    where = str(tmp_path / "data" / "orders")
    frame = spark.createDataFrame(orders, "day date, price int")
    frame.write.format("delta").partitionBy("day").save(where)

    ref = DatasetRef("shop", "orders")
    lineage = LineageSnapshot.of([])  # the code alone tells what the job reads and writes
    asked = Request(changed=(ChangedDataset(dataset=ref, keys=("2024-01-01..2024-01-02",)),))
    now = datetime(2024, 1, 5, tzinfo=UTC)
    plan = build_plan(asked, lineage, project.declarations, now=now)
    catalog = Resolver(lineage, project.declarations, now=now)
    specs = RunSpecs(catalog, backfill_id="b", root=project.root)
    assert plan.runs
    for planned in plan.runs:
        spec = specs(planned, 1, f"token-{planned.id}", tmp_path / f"{planned.id}.json")
        result = run(spark, parse_spec(json.loads(json.dumps(spec))), tables)
        assert result.error is None
    written = spark.read.format("delta").load(str(tmp_path / "data" / "sales_daily"))
    # The third of January was not asked for.
    assert sorted(tuple(row) for row in written.select("day", "revenue").collect()) == [
        (date(2024, 1, 1), 20),
        (date(2024, 1, 2), 20),
    ]


def test_a_job_may_ask_which_run_it_is_in(spark: SparkSession) -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks("python")[1], "spark.md", "exec"), names)
    sales = spark.createDataFrame([(1,), (2,)], "revenue int")
    context = SimpleNamespace(keys=[SimpleNamespace(key="2024-01-07")])
    (row,) = names["rolling_week"](sales, context).collect()
    assert row.asDict() == {"revenue": 3, "day": date(2024, 1, 7)}


def test_the_same_job_runs_by_its_ordinary_schedule_whatever_it_is(
    spark: SparkSession, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in re.findall(
        r"^File \*\*(\S+)\*\*:\n+```\w+\n(.*?)^```", JOBS, re.DOTALL | re.MULTILINE
    ):
        (tmp_path / name).write_text(text.replace("/tmp/shop", str(tmp_path)))
    toml = blocks("toml")[0]
    edges = '[[job.reads]]\ndataset = "orders"\n[[job.writes]]\ndataset = "sales_daily"\n'
    script = f'[[job]]\nname = "script"\nentrypoint = "script.py"\n{edges}'
    (tmp_path / "lineage-backfill.toml").write_text(
        toml.replace("data/orders", "orders").replace("data/sales", "sales") + script
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    orders = [(date(2024, 1, day), 10 * day) for day in range(1, 11)]
    frame = spark.createDataFrame(orders, "day date, price int")
    frame.write.format("delta").partitionBy("day").save(str(tmp_path / "orders"))

    project = load_runtime_project(tmp_path)
    for entrypoint, table, revenue in (
        ("declared:week_of_sales", "weeks", 2 + 3 + 4 + 5 + 6 + 7 + 8),
        ("script.py", "sales_daily", 8),
        ("query.sql", "sales_daily", 8),
    ):
        job = load_job(entrypoint)
        declared = declare(
            project, entrypoint, entrypoint=entrypoint, reads=job.reads, writes=job.writes
        )
        now = datetime(2024, 1, 9, 6, tzinfo=UTC)
        (spec,) = run_specs(declared, project, StartRequest(), now, batch=job.batch)
        result = run(spark, spec, tables)
        assert result.error is None
        written = spark.read.format("delta").load(str(tmp_path / table))
        (row,) = written.select("day", "revenue").collect()
        assert tuple(row) == (date(2024, 1, 8), 10 * revenue)
