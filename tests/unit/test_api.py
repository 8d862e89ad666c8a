"""The tool from Python: a whole story with a real project, run store and processes."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime
from pathlib import Path

import networkx as nx
import pytest

from lineage_backfill import BackfillError, DatasetRef, JobRef, Project, read_lineage
from lineage_backfill.errors import GuardRailError, UsageError
from tests.delta_logs import Log, add, metadata
from tests.events import event, write_events

FILE = """
[project]
namespace = "shop"
[lineage]
events = ["events.ndjson"]
[engines.here]
kind = "command"
argv = ["test", "-e", "{spec}"]
[[dataset]]
name = "hourly"
grain = "hour"
start = "2024-06-01T00"
columns = { h = "%Y-%m-%dT%H" }
location = "hourly"
[[dataset]]
name = "daily"
grain = "day"
start = "2024-06-01"
columns = { d = "%Y-%m-%d" }
location = "daily"
[[job]]
name = "rollup"
engine = "here"
entrypoint = "any:thing"
"""
NOW = datetime(2024, 6, 5, tzinfo=UTC)
HOURLY, DAILY = (DatasetRef("shop", name) for name in ("hourly", "daily"))
ROLLUP = JobRef("shop", "rollup")
KEYS = "2024-06-02T22..2024-06-03T01"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lineage-backfill.toml").write_text(FILE)
    write_events(tmp_path / "events.ndjson", event("rollup", ["hourly"], ["daily"]))
    (tmp_path / "notebooks").mkdir()
    return tmp_path


@pytest.fixture
def project(folder: Path) -> Project:
    return Project.open(folder / "notebooks", now=NOW)


def test_a_fix_is_planned_run_and_reported(project: Project) -> None:
    plan = project.plan("hourly", keys=KEYS, reason="two bad hours")
    assert [run["partitions"] for run in plan["runs"]] == [["2024-06-02"], ["2024-06-03"]]
    status = project.run(plan, title="Two bad hours", max_parallel=1)
    assert (status["title"], status["state"], status["reason"]) == (
        *("Two bad hours", "succeeded"),
        "two bad hours",
    )
    assert project.status(status["id"])["totals"]["succeeded"] == 2
    assert project.report()["id"] == status["id"]
    assert [one["id"] for one in project.history()["backfills"]] == [status["id"]]
    assert project.cancel()["state"] == project.pause()["state"] == "succeeded"
    assert project.retry()["state"] == project.resume()["state"] == "succeeded"


def test_keys_jobs_and_saved_plans(project: Project, folder: Path) -> None:
    both = project.plan("hourly", keys=["2024-06-02T22", "2024-06-03T01"])
    assert both["totals"]["runs"] == 2
    none = project.plan("hourly", keys=KEYS, exclude="rollup")
    assert none["totals"]["runs"] == 0
    alone = project.plan(jobs="rollup", keys="2024-06-02", select=["rollup"])
    assert alone["jobs"][0]["partitions"] == ["2024-06-02"]
    assert project.run(alone)["totals"]["succeeded"] == 1


def test_what_is_stale_is_run(project: Project, folder: Path) -> None:
    for name, column, keys in (("hourly", "h", ["2024-06-02T05"]), ("daily", "d", [])):
        log = Log(folder / name)
        log.commit(metadata(column), *(add(key, key, column=column) for key in keys))
    found = project.stale(select=["rollup"])
    assert [one["missing"] for one in found["jobs"]] == [["2024-06-01..2024-06-04"]]
    assert "never written" in found._repr_html_()
    assert list(found.to_pandas()["job.name"]) == ["rollup"]
    with pytest.raises(UsageError, match="nothing to run"):
        project.run(project.stale(exclude=["rollup"]))


@pytest.mark.parametrize("name", ["plan", "status", "history"])
def test_a_notebook_shows_documents_as_tables(project: Project, name: str) -> None:
    plan = project.plan("hourly", keys=KEYS)
    project.run(plan)
    shown = plan if name == "plan" else getattr(project, name)()
    text = shown._repr_html_()
    assert text.startswith("<pre")
    assert ("rollup" in text) is (name != "history")
    table = shown.to_pandas()
    assert len(table) == (1 if name == "history" else 2)
    assert name == "history" or set(table["job.name"]) == {"rollup"}


def test_names_of_lineage_are_text_in_a_notebook(folder: Path) -> None:
    write_events(folder / "events.ndjson", event("<script>1</script>", ["hourly"], ["daily"]))
    plan = Project.open(folder, now=NOW).plan("hourly", keys=KEYS)
    assert "<script>" not in plan._repr_html_()


def test_what_the_command_line_refuses_is_an_error(project: Project, folder: Path) -> None:
    with pytest.raises(UsageError, match="no changed dataset or job"):
        project.plan()
    with pytest.raises(BackfillError, match="hourli"):
        project.plan("hourli")
    with pytest.raises(UsageError, match="'everything' is not a guard rail"):
        project.plan("hourly", keys=KEYS, allow=["everything"])
    (folder / "lineage-backfill.toml").write_text(f"{FILE}protected = true\n")
    guarded = Project.open(folder / "lineage-backfill.toml", now=NOW)
    plan = guarded.plan("hourly", keys=KEYS)
    assert plan["jobs"][0]["status"] == "blocked"
    allowed = guarded.plan("hourly", keys=KEYS, allow=["protected"])
    assert guarded.run(allowed)["state"] == "succeeded"


def test_a_plan_above_the_limit_is_refused(folder: Path) -> None:
    (folder / "lineage-backfill.toml").write_text(f"{FILE}[limits]\nmax_runs = 1\n")
    project = Project.open(folder, now=NOW)
    with pytest.raises(GuardRailError):
        project.run(project.plan("hourly", keys=KEYS))
    assert project.history()["backfills"] == []


def test_lineage_is_a_graph_whose_edges_have_facts(folder: Path, project: Project) -> None:
    snapshot = read_lineage(events=[str(folder / "events.ndjson")])
    assert nx.descendants(snapshot.graph(), HOURLY) == {ROLLUP, DAILY}
    graph = project.lineage.graph()
    assert graph.edges[HOURLY, ROLLUP] == {"from_columns": False, "read_as": HOURLY}
    assert graph.edges[ROLLUP, DAILY] == {"mode": None}


@pytest.mark.parametrize(("name", "attempted"), [("api", 8), ("access", 6)])
def test_the_examples_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, attempted: int
) -> None:
    root = Path(__file__).parents[2]
    example = root / "lineage_backfill" / "example" / "shop.toml"
    (tmp_path / "lineage-backfill.toml").write_text(example.read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    page = str(root / "docs" / f"{name}.md")
    assert doctest.testfile(page, module_relative=False) == doctest.TestResults(
        failed=0, attempted=attempted
    )
