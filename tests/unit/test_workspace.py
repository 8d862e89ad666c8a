"""What the project file makes of the lineage, and what is read of the tables' logs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import DeclarationError, TableLogError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.ports import TableHistory, TablePlace
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace
from tests.fakes import planned_run

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
    project = open_project(folder / "lineage-backfill.toml")
    orders = ChangedDataset(dataset=DatasetRef("lake", "orders"), keys=("2024-01-02",))
    return Planning(Workspace(project, as_of=NOW)).plan(Request(changed=(orders,)))


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


TABLES = """
[[dataset]]
namespace = "lake"
name = "*"
grain = "day"
column = "day"
location = "data/all"
[[dataset]]
namespace = "lake"
name = "mart"
grain = "day"
column = "day"
location = "s3://lake/mart"
[[dataset]]
namespace = "lake"
name = "page"
grain = "day"
column = "day"
table = "db.page"
"""


class Logs:
    """Knows which tables were asked for."""

    def __init__(self, **_settings: Any) -> None:
        """Takes what the real one takes."""

    def histories(self, tables: Sequence[TablePlace]) -> list[TableHistory]:
        assert [Path(place.location or "").name for place in tables] == ["all"]
        return [
            TableHistory(
                version=3, columns={"day": "string"}, commits=(), old=(), since=None, whole=True
            )
        ]


class NoLogs(Logs):
    """Cannot be asked."""

    def histories(self, tables: Sequence[TablePlace]) -> list[TableHistory]:
        raise TableLogError("no Python there")


@pytest.mark.parametrize(("logs", "known"), [(Logs, ["orders"]), (NoLogs, [])])
def test_a_running_backfill_starts_no_spark_for_logs_and_does_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch, logs: type[Logs], known: list[str]
) -> None:
    declared = PROJECT.partition("[[dataset]]")[0] + TABLES
    (folder / "lineage-backfill.toml").write_text(declared)
    project = open_project(folder / "lineage-backfill.toml")
    planning = Planning(Workspace(project))
    asked = [DatasetRef("lake", name) for name in ("orders", "mart", "page")]
    monkeypatch.setattr("lineage_backfill.sources.table_logs.DeltaTableLogs", logs)
    found = planning.records_without_spark(planning.workspace.resolver, asked)
    assert [ref.name for ref in found] == known


def test_a_parent_with_edges_of_its_own_stays_beside_its_children(folder: Path) -> None:
    # `etl.load` has edges of its own: declaring it says nothing about what is below.
    assert names(plan(folder, '[[job]]\nname = "etl.load"')) == names(plan(folder, ""))


def test_a_dag_and_a_task_of_it_are_not_both_declared(folder: Path) -> None:
    with pytest.raises(DeclarationError, match=r"airflow:etl\.load and the parent") as raised:
        plan(folder, '[[job]]\nname = "etl"\n[[job]]\nname = "etl.load"')
    assert "remove the other one" in raised.value.hint


def test_a_partition_key_is_written_as_the_timetable_of_the_lineage_tells(folder: Path) -> None:
    recorded = Path(__file__).parents[1] / "data" / "lineage" / "airflow_recorded.ndjson.gz"
    (folder / "events.ndjson").write_bytes(gzip.decompress(recorded.read_bytes()))
    file = folder / "lineage-backfill.toml"
    file.write_text(
        '[lineage]\nevents = ["events.ndjson"]\n'
        '[engines.a]\nkind = "airflow"\nurl = "http://a"\ntoken = "t"\n'
        '[[job]]\nname = "p_daily.roll"\nslice = "partition_key"\n'
        '[[job]]\nname = "p_hourly.load"\ndag = "p_hourly"\ntask = ["load", "test"]\n'
        '[[job]]\nname = "p_identity.copy"\nslice = "partition_key %Y"\n'
    )
    workspace = Workspace(open_project(file))
    settings = workspace.engine_settings(workspace.project.declarations.engines[0])
    found = {
        name: settings["tasks"](JobRef("prod", name))
        for name in ("p_daily.roll", "p_hourly.load", "p_identity.copy", "orders_hourly.load")
    }
    assert {name: (one.tasks, one.slice) for name, one in found.items()} == {
        "p_daily.roll": (("roll",), "partition_key %Y-%m-%d"),
        "p_hourly.load": (("load", "test"), "partition_key %Y-%m-%dT%H"),
        "p_identity.copy": (("copy",), "partition_key %Y"),
        "orders_hourly.load": (("load",), None),
    }
    calendar = settings["calendar"](JobRef("prod", "p_hourly.load"))
    assert calendar.time.grid.label(0) == "1970-01-01T00"
    assert settings["calendar"](JobRef("prod", "manual_only")) is None


def test_what_tasks_write_is_known_and_which_no_run_may_add(folder: Path) -> None:
    jobs = {
        "a": 'writes = [{ dataset = "x" }, { dataset = "y" }]',
        "b": "protected = true",
        "c": "idempotent = false",
        "report": 'writes = [{ dataset = "z" }]',  # beside what the lineage knows
        "d": "",
    }
    tables = [
        f'[[job]]\nname = "{name}"\nengine = "e"\ndag = "dag"\ntask = "{name}"\n{more}\n'
        for name, more in jobs.items()
    ]
    engine = '[engines.e]\nkind = "airflow"\nurl = "http://a"\ntoken = "t"\n'
    (folder / "lineage-backfill.toml").write_text(PROJECT + engine + "".join(tables))
    workspace = Workspace(open_project(folder / "lineage-backfill.toml"))
    settings = workspace.engine_settings(workspace.project.declarations.engines[0])
    found = settings["writers"]("dag")
    assert {task: {one.name for one in written} for task, written in found.items()} == {
        "a": {"x", "y"},
        "b": set(),
        "c": set(),
        "report": {"page", "z"},
    }
    assert settings["writers"]("other") == {}


def test_one_run_at_a_time_writes_to_a_table_by_value(tmp_path: Path) -> None:
    """Its writers are those whose declared dataset has a column of values."""
    file = tmp_path / "lineage-backfill.toml"
    tables = '[[dataset]]\nname = "v"\ngrain = "day"\ntime_column = "ts"\n'
    file.write_text(f'[project]\nnamespace = "n"\n{tables}')
    workspace = Workspace(open_project(file))
    runs = [planned_run("r1", job="v"), planned_run("r2", job="daily")]
    assert workspace.by_value(runs) == {DatasetRef("n", "v")}
    limits = workspace.limits_of(runs)
    found = {ref.name: one.max_parallel for ref, one in limits.items()}
    assert found == {"v": 1, "daily": None}
