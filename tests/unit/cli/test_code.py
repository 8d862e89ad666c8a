"""Projects whose jobs are declared in their code only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main

JOBS = """
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_runtime import Dataset, RunContext, job, window

print("imported")
TWICE = F.col("price") * 2
BY_DAY = Window.partitionBy("day").orderBy(F.col("price").desc())


@job(inputs={"orders": "orders"}, output="sales_daily", batch="range")
def daily_sales(orders: DataFrame) -> DataFrame:
    return orders.groupBy("day").agg(F.sum("price").alias("revenue"))


@job(
    inputs={"sales": window("sales_daily", before=6)},
    output=Dataset("sales_rolling", grain="day", start="2024-01-01", column="d", location="r"),
    mode="merge",
    lookback=1,
)
def rolling_week(sales: DataFrame, run: RunContext) -> DataFrame:
    return sales
"""
WEEKLY = '--@ inputs = { s = "sales_daily" }\n--@ output = "sales_weekly"\nSELECT * FROM s\n'
PROJECT = """
[project]
namespace = "shop"
jobs = ["pipeline", "sql/"]
[[dataset]]
name = "*"
grain = "day"
start = "2024-01-01"
[[dataset]]
name = "sales_weekly"
grain = "week"
start = "2024-W01"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "shop"
    (root / "pipeline").mkdir(parents=True)
    (root / "pipeline" / "__init__.py").touch()
    (root / "pipeline" / "jobs.py").write_text(JOBS)
    (root / "sql").mkdir()
    (root / "sql" / "weekly.sql").write_text(WEEKLY)
    (root / "lineage-backfill.toml").write_text(PROJECT)
    monkeypatch.chdir(root)
    return root


CHANGE = ("orders", "--partitions", "2024-03-01", "--now", "2024-04-01T00:00:00Z")


def planned(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, tuple[Any, int]]:
    capsys.readouterr()
    assert main(["impact", *CHANGE, "--json", *more]) == 0
    plan = json.loads(capsys.readouterr().out)
    runs = [run["job"]["name"] for run in plan["runs"]]
    return {
        job["job"]["name"]: (job["partitions"], runs.count(job["job"]["name"]))
        for job in plan["jobs"]
    }


def test_jobs_that_only_the_code_declares_are_planned(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(capsys) == {
        "daily_sales": (["2024-03-01"], 1),
        "rolling_week": (["2024-02-29..2024-03-07"], 8),
        "weekly": (["2024-W09"], 1),
    }


def test_what_a_table_does_not_state_comes_from_the_code(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (project / "lineage-backfill.toml").open("a") as file:
        file.write(
            '[[job]]\nname = "rolling"\nentrypoint = "pipeline.jobs:rolling_week"\n'
            'priority = 5\n[[job.reads]]\ndataset = "sales_daily"\non_missing = "fail"\n'
            '[[job.writes]]\ndataset = "sales_rolling"\non_empty = "keep"\n'
        )
    assert planned(capsys)["rolling"] == (["2024-02-29..2024-03-07"], 8)
    assert "rolling_week" not in planned(capsys)


def test_a_table_that_changes_the_mapping_of_the_code_is_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (project / "lineage-backfill.toml").open("a") as file:
        file.write(
            '[[job]]\nname = "rolling_week"\n[[job.reads]]\ndataset = "sales_daily"\n'
            'mapping = "window"\nbefore = 1\n'
        )
    main(["config", "check", "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    (over,) = [one for one in found if one["kind"] == "over-code"]
    assert over["place"] == '[[job]] "rolling_week"'
    assert "before = 1, and the code with mapping = 'window', before = 6" in over["text"]


def test_a_change_of_the_code_is_seen_and_its_prints_are_no_data(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["impact", *CHANGE, "--json"]) == 0
    first = capsys.readouterr()
    assert json.loads(first.out)["totals"]["jobs"] == 3
    assert "imported" in first.err
    assert main(["impact", *CHANGE, "--json"]) == 0
    assert "imported" not in capsys.readouterr().err  # cached
    (project / "pipeline" / "more.py").write_text(
        'from spark_runtime import job\n\n\n@job(inputs={"o": "orders"}, output="copies")\n'
        "def copy(o):\n    return o\n"
    )
    assert set(planned(capsys)) == {"copy", "daily_sales", "rolling_week", "weekly"}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "import nothing_like_it",
            "pipeline: ModuleNotFoundError: No module named 'nothing_like_it'",
        ),
        ("raise SystemExit(3)", "pipeline: SystemExit: 3"),
        ("1 / 0", "pipeline: ZeroDivisionError: division by zero"),
        ("import os\nos._exit(4)", "pipeline, sql/: Python ended with exit code 4"),
    ],
)
def test_code_that_cannot_be_read_is_an_error_and_no_smaller_plan(
    code: str, why: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pipeline" / "broken.py").write_text(code)
    assert main(["impact", *CHANGE]) == 64
    error = " ".join(capsys.readouterr().err.split())
    assert f"the code of the project cannot be read: {why}" in error
    assert "--no-code" in error


def test_without_the_code_a_plan_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "lineage-backfill.toml").write_text(
        PROJECT.replace('["pipeline", "sql/"]', '["pipeline"]')
        + '[[job]]\nname = "copy"\n[[job.reads]]\ndataset = "orders"\n'
        '[[job.writes]]\ndataset = "copies"\n'
    )
    assert main(["impact", *CHANGE, "--no-code", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [job["job"]["name"] for job in plan["jobs"]] == ["copy"]
    assert any("--no-code" in str(warning) for warning in plan["warnings"])


def test_ten_lines_and_an_entrypoint_need_no_lineage(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "lineage-backfill.toml").write_text(
        '[project]\nnamespace = "shop"\n[[dataset]]\nname = "*"\ngrain = "day"\n'
        'start = "2024-01-01"\n[[job]]\nname = "daily_sales"\nengine = "local"\n'
        'entrypoint = "pipeline.jobs:daily_sales"\n'
    )
    assert planned(capsys) == {"daily_sales": (["2024-03-01"], 1)}


def test_a_report_knows_the_calendars_that_only_the_code_declares(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = project / "pipeline" / "jobs.py"
    sales = 'Dataset("sales_daily", grain="day", start="2024-01-01", column="d", location="s")'
    jobs.write_text(JOBS.replace('output="sales_daily"', f"output={sales}"))
    (project / "lineage-backfill.toml").write_text(
        '[project]\nnamespace = "shop"\njobs = ["pipeline"]\n[[dataset]]\nname = "orders"\n'
        'grain = "day"\nstart = "2024-01-01"\n[engines.print]\nkind = "command"\n'
        'argv = ["echo", "{spec}"]\n[[job]]\nname = "*"\nengine = "print"\n'
    )
    run = ["run", "orders", "--partitions", "2024-01-03", "--yes", "--select", "daily_sales"]
    assert main(run) == 0
    capsys.readouterr()
    assert main(["report", "--json"]) == 0
    (output, *_) = json.loads(capsys.readouterr().out)["outputs"]
    assert (output["dataset"]["name"], output["planned"]["count"]) == ("sales_daily", 1)
