"""A real Airflow as its users meet it: the first hour, the provider, and tasks that run Spark."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from spark_runtime.session import find_jars
from tests.airflow_suite import PROJECT, Place, until
from tests.browser import browsing, needs_browser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def test_a_fix_is_backfilled_through_airflow(airflow: Place) -> None:
    """The first hour: planned from Marquez, run by the command line, tables compared."""
    environment = {name: value for name, value in os.environ.items() if name != "MARQUEZ_URL"}
    if (named := airflow.folder / "marquez").exists():
        environment["MARQUEZ_URL"] = named.read_text().strip()
    story = ROOT / "docs" / "examples" / "airflow" / "story.py"
    told = subprocess.run(
        [sys.executable, story, airflow.folder],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    # What the page of the first hour says that you should see.
    seen = " ".join(told.stdout.split())
    assert re.search(r"✓ lineage .* ✓ engine airflow .* it has \d+ tasks", seen)
    assert "5 jobs, 13 partitions, 13 runs" in seen
    assert "report euros instead of cents succeeded" in seen
    assert "Stale partitions: 0" in told.stdout
    assert "Airflow ran 13 tasks for 13 partitions, each once" in told.stdout


PROVIDED = """
from airflow.sdk import DAG
from lineage_backfill_airflow.operators import LineageBackfillOperator

settings = {"project": PROJECT, "command": [PYTHON, "-m", "lineage_backfill"]}
with DAG("provided", schedule=None, is_paused_upon_creation=False):
    LineageBackfillOperator(
        task_id="repair", dataset="raw", keys="{{ dag_run.conf['keys'] }}", poll=1, **settings
    )
"""


class TestProvider:
    """The package that runs backfills from DAGs."""

    def test_its_dags_and_its_page_are_there(self, airflow: Place) -> None:
        until(lambda: airflow.ask("GET", "/dags?dag_id_pattern=lineage_backfill")["total_entries"])
        nightly = airflow.ask("GET", "/dags/lineage_backfill_nightly/tasks")["tasks"]
        assert {one["task_id"] for one in nightly} == {"stale", "catchup", "fresh"}
        assert airflow.ask("GET", "/dags/lineage_backfill_drive/tasks")["total_entries"] == 1
        errors = airflow.ask("GET", "/importErrors")["import_errors"]
        assert [one for one in errors if one["filename"].endswith("nightly.py")] == []
        plugins = airflow.ask("GET", "/plugins?limit=100")["plugins"]
        (found,) = [one for one in plugins if one["name"] == "lineage_backfill"]
        (view,) = found["external_views"]
        assert (view["url_route"], view["href"]) == ("lineage-backfill", "http://127.0.0.1:8085/")

    def test_an_operator_runs_a_backfill_and_resumes_it_once_its_driver_has_died(
        self, airflow: Place
    ) -> None:
        hour = airflow.fresh()
        key, folder = provided(airflow, "slow", hour)
        dag = PROVIDED.replace("PROJECT", repr(str(folder)))
        dag = dag.replace("PYTHON", repr(sys.executable))
        (airflow.folder / "dags" / "provided.py").write_text(dag)
        (airflow.folder / "go").unlink(missing_ok=True)
        until(lambda: airflow.ask("GET", "/dags?dag_id_pattern=provided")["total_entries"])
        body = {"dag_run_id": (run := f"r-{uuid4().hex}"), "conf": {"keys": key}}
        airflow.ask("POST", "/dags/provided/dagRuns", {"logical_date": None, **body})
        until(lambda: airflow.started("slow.build", hour))
        found, killed = backfill_of(folder), 0
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = process.read_bytes().split(b"\0")
                if b"lineage_backfill" in words and found["id"].encode() in words:
                    os.kill(int(process.parent.name), signal.SIGKILL)
                    killed += 1
        assert killed
        (airflow.folder / "go").touch()
        until(lambda: airflow.state("provided", run) == "success")
        assert len(airflow.started("slow.build", hour)) == 1
        found = backfill_of(folder)
        assert found["state"] == "succeeded"
        assert found["description"] == f"Airflow provided/{run}/repair/-1"

    def test_the_nightly_dag_repairs_what_is_stale(self, airflow: Place) -> None:
        hour = airflow.fresh()
        _, folder = provided(airflow, "one", hour)
        project = {"key": "lineage_backfill_project", "value": str(folder)}
        with suppress(AssertionError):  # where this Airflow has served tests before
            airflow.ask("POST", "/variables", project)
        airflow.ask("PATCH", f"/variables/{project['key']}", project)
        dag, run = "lineage_backfill_nightly", f"r-{uuid4().hex}"
        airflow.ask("PATCH", f"/dags/{dag}", {"is_paused": False})
        airflow.ask("POST", f"/dags/{dag}/dagRuns", {"logical_date": None, "dag_run_id": run})
        until(lambda: airflow.state(dag, run) in ("success", "failed"))
        airflow.ask("PATCH", f"/dags/{dag}", {"is_paused": True})
        ran = airflow.ask("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        ran.sort(key=lambda one: one["start_date"])
        names = ("stale", "catchup", "fresh")
        assert [(one["task_id"], one["state"]) for one in ran] == [(x, "success") for x in names]
        assert len(airflow.started("one.build", hour)) == 1
        found = backfill_of(folder)
        assert found["state"] == "succeeded"
        assert found["description"] == f"Airflow {dag}/{run}/catchup/-1"

    @needs_browser
    def test_the_page_is_shown_inside_the_pages_of_airflow(
        self, airflow: Place, tmp_path: Path
    ) -> None:
        _, folder = provided(airflow, "one", airflow.fresh())
        view = airflow.ask("GET", "/plugins?limit=100")["plugins"]
        (one,) = (of for plugin in view for of in plugin["external_views"])
        port = str(urlsplit(one["href"]).port)
        words = ("serve", "--port", port, "--allow-frame", airflow.url)
        serving = subprocess.Popen(
            [sys.executable, "-m", "lineage_backfill", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        with serving, browsing(tmp_path) as browser:
            try:
                assert serving.stdout is not None
                assert serving.stdout.readline().strip() == one["href"]
                browser.get(f"{airflow.url}/api/v2/version")
                browser.add_cookie({"name": "_token", "value": airflow.token("admin"), "path": "/"})
                browser.get(f"{airflow.url}/plugin/{one['url_route']}")
                wait = WebDriverWait(browser, 120)
                wait.until(lambda page: page.find_elements(By.TAG_NAME, "iframe"))
                browser.switch_to.frame(0)
                wait.until(lambda page: page.find_elements(By.TAG_NAME, "h1"))
                assert browser.find_element(By.TAG_NAME, "h1").text == "Backfills"
            finally:
                serving.terminate()


def provided(place: Place, dag: str, hour: datetime) -> tuple[str, Path]:
    """Make the project of one hour of a DAG; return its key and folder."""
    folder = place.folder / f"tool-{uuid4().hex}"
    folder.mkdir()
    key = f"{hour:%Y-%m-%dT%H}"
    text = PROJECT.format(url=place.url, dag=dag, task="build")
    text = text.replace('start = "2026-01-01T00"', f'start = "{key}"\nend = "{key}"')
    (folder / "lineage-backfill.toml").write_text(text)
    return key, folder


def backfill_of(folder: Path) -> dict[str, Any]:
    """Return the only backfill of a project."""
    command = [sys.executable, "-m", "lineage_backfill", "history", "--json"]
    answer = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=True)
    (found,) = json.loads(answer.stdout)["backfills"]
    return dict(found)


class TestSparkInAirflow:
    """Tasks that do their jobs with `spark_runtime`: by the data interval, and by the run spec."""

    @pytest.fixture
    def project(self, airflow: Place) -> Path:
        """The project of the jobs, with a table of raw prices."""
        folder = airflow.folder / "spark"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(__file__).with_name("airflow_spark"), folder)
        jars = ",".join(map(str, find_jars()))
        runtime = str(ROOT / "spark_runtime" / "__main__.py")
        places = {"python": sys.executable, "runtime": runtime, "jars": jars}
        (folder / "places.json").write_text(json.dumps(places))
        file = folder / "lineage-backfill.toml"
        file.write_text(file.read_text().replace("http://localhost:8080", airflow.url))
        shutil.copy(folder / "dags.py", airflow.folder / "dags" / "spark.py")
        until(lambda: airflow.ask("GET", "/dags?dag_id_pattern=spark_")["total_entries"] == 3, 120)
        return folder

    def test_everything_holds_as_on_spark(
        self, airflow: Place, project: Path, spark: SparkSession
    ) -> None:
        def deliver(price: int) -> None:
            rows = [("2026-01-05T00", price), ("2026-01-05T00", None)]
            frame = spark.createDataFrame(rows, "hour string, price int")
            writer = frame.write.format("delta").partitionBy("hour")
            writer.mode("overwrite").save(str(project / "raw"))

        def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "lineage_backfill", *arguments]
            return subprocess.run(
                command, cwd=project, capture_output=True, text=True, timeout=600, check=False
            )

        def report() -> dict[str, Any]:
            found = json.loads(tool("report", "--json").stdout)
            assert found["touched_is_planned"] is True
            return {
                one["dataset"]["name"]: (one["rows_before"], one["rows"], one["versions"])
                for one in found["outputs"]
            }

        def table(name: str) -> list[tuple[Any, ...]]:
            frame = spark.read.format("delta").load(str(project / name))
            return sorted(tuple(row) for row in frame.collect())

        hour = datetime(2026, 1, 5, tzinfo=UTC)
        deliver(1)
        airflow.start("spark_hourly", hour, run := f"theirs-{uuid4().hex}")
        until(lambda: airflow.state("spark_hourly", run) == "success", 240)
        deliver(10)
        told = tool("run", "raw", "--partitions", "2026-01-05T00", "--yes")
        assert told.returncode == 0, told.stdout + told.stderr
        # The hour was cleared and took its interval, the others were created with a run spec.
        expected = {"clean": (1, 1, [2]), "daily": (0, 1, [1]), "monthly": (0, 1, [1])}
        assert report() == expected
        assert table("clean") == [("2026-01-05T00", 10)]
        assert table("daily") == [("2026-01-05", 10)]
        assert table("monthly") == [("2026-01", 10)]
        refused = tool("undo", "--yes")
        assert refused.returncode != 0
        assert "clean cannot be undone: with slice interval it would run again" in refused.stderr
        spark.sql(f"UPDATE delta.`{project}/clean` SET price = 20")
        told = tool("run", "clean", "--partitions", "2026-01-05T00", "--yes")
        assert told.returncode == 0, told.stdout + told.stderr
        assert table("daily") == [("2026-01-05", 20)]
        assert table("monthly") == [("2026-01", 20)]
        assert report() == {"daily": (1, 1, [2]), "monthly": (1, 1, [2])}
        undone = tool("undo", "--yes")
        assert undone.returncode == 0, undone.stdout + undone.stderr
        assert table("daily") == [("2026-01-05", 10)]
        assert table("monthly") == [("2026-01", 10)]
