"""What the project file makes of the lineage: a declared parent is run in place of its children."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill import app
from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plan.plan import Plan
from lineage_backfill.plan.request import ChangedDataset, Request

NOW = datetime(2024, 1, 5, tzinfo=UTC)
PROJECT = """
[project]
namespace = "airflow"
[lineage]
events = ["events.ndjson"]
[[dataset]]
namespace = "lake"
name = "*"
grain = "day"
start = "2024-01-01"
"""


def event(kind: str, job: str, reads: str = "", writes: str = "", parent: str = "") -> Any:
    """Return an event as Airflow's provider sends them: the DAG's own, and those of its tasks."""
    facets: dict[str, Any] = {}
    if parent:
        of = {"job": {"namespace": "airflow", "name": parent}, "run": {"runId": f"run-{parent}"}}
        facets["parent"] = of
    return {
        "eventType": kind,
        "eventTime": f"2024-01-02T00:0{1 if kind == 'START' else 2}:00Z",
        "run": {"runId": f"run-{job}", "facets": facets},
        "job": {"namespace": "airflow", "name": job},
        "inputs": [{"namespace": "lake", "name": name} for name in reads.split()],
        "outputs": [{"namespace": "lake", "name": name} for name in writes.split()],
        "producer": "https://github.com/apache/airflow/",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }


EVENTS = [
    event("START", "etl"),
    event("START", "etl.extract", parent="etl"),
    event("COMPLETE", "etl.extract", "orders", "staged", parent="etl"),
    event("COMPLETE", "etl.load", "staged rates", "mart", parent="etl"),
    event("COMPLETE", "etl.load.audit", "mart", "log", parent="etl.load"),
    event("COMPLETE", "etl"),
    event("COMPLETE", "report", "mart", "page"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "events.ndjson").write_text("\n".join(map(json.dumps, EVENTS)))
    return tmp_path


def plan(folder: Path, declared: str) -> Plan:
    """Return the plan for a fix of `orders`."""
    (folder / "lineage-backfill.toml").write_text(PROJECT + declared)
    project = app.open_project(folder / "lineage-backfill.toml")
    orders = ChangedDataset(dataset=DatasetRef("lake", "orders"), keys=("2024-01-02",))
    snapshot = app.read_lineage(project)
    return app.make_plan(project, snapshot, Request(changed=(orders,)), now=NOW)


def names(made: Plan) -> list[str]:
    return [job.job.name for job in made.jobs]


def test_tasks_are_planned_one_by_one_where_their_dag_is_not_declared(folder: Path) -> None:
    expected = ["etl.extract", "etl.load", "etl.load.audit", "report"]
    assert names(plan(folder, "")) == expected
    assert names(plan(folder, '[[job]]\nname = "*"\npriority = 1')) == expected  # no name of a DAG
    assert names(plan(folder, '[[job]]\nname = "etl"\nnamespace = "other"')) == expected
    assert names(plan(folder, '[[job]]\nname = "report"')) == expected


def test_a_declared_dag_is_planned_in_place_of_its_tasks(folder: Path) -> None:
    made = plan(folder, '[[job]]\nname = "etl"\nengine = "x"\n[engines.x]\nkind = "command"')
    assert names(made) == ["etl", "report"]
    run, below = made.runs or ()
    assert (run.job, run.engine) == (JobRef("airflow", "etl"), "x")
    # What one task hands to the next is written by the whole, and no input of it.
    assert [part.dataset.name for part in run.reads] == ["orders", "rates"]
    assert [part.dataset.name for part in run.writes] == ["log", "mart", "staged"]
    assert below.upstream == (run.id,)


def test_a_parent_with_edges_of_its_own_stays_beside_its_children(folder: Path) -> None:
    # `etl.load` has edges of its own: declaring it says nothing about what is below.
    assert names(plan(folder, '[[job]]\nname = "etl.load"')) == names(plan(folder, ""))


def test_a_dag_and_a_task_of_it_are_not_both_declared(folder: Path) -> None:
    with pytest.raises(DeclarationError, match=r"airflow:etl\.load is declared") as raised:
        plan(folder, '[[job]]\nname = "etl"\n[[job]]\nname = "etl.load"')
    assert "leave the other one out" in raised.value.hint
