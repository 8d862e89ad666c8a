"""A Spark application is the job that is run, in place of its actions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.errors import DeclarationError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.lineage import ProjectLineage
from tests.events import event

RECORDED = Path(__file__).parents[2] / "data" / "lineage"
APP = JobRef("shop", "nightly")
JOB_TYPE = {"processingType": "BATCH", "integration": "SPARK", "jobType": "SQL_JOB"}


def action(job: str, reads: str, writes: str, **more: Any) -> dict[str, Any]:
    """The event of an action of the application run `p`; more are facets of the job."""
    made = event(f"nightly.{job}", reads.split(), writes.split())
    parent = {"job": {"namespace": "shop", "name": "nightly"}, "run": {"runId": "p"}}
    made["run"] = {"runId": f"{job}-{reads}", "facets": {"parent": parent}}
    made["job"]["facets"] = {"jobType": JOB_TYPE, **more}
    return made


EVENTS = [
    action("append_delta_table.dlt", "dlt_a", "dlt"),
    action("append_delta_table.dlt", "dlt_b", "dlt"),
    action("map_partitions_parallel_collection", "", "log"),
    action("overwrite_by_expression_exec_v1", "dlt", "mart"),
    event("other", ["mart"], ["page"]),
]


def read(
    folder: Path, toml: str = "", events: list[dict[str, Any]] | None = None
) -> LineageSnapshot:
    (folder / "ev.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in events or EVENTS))
    file = folder / "lineage-backfill.toml"
    file.write_text(f'[project]\nnamespace = "shop"\n[lineage]\nevents = ["ev.ndjson"]\n{toml}')
    return ProjectLineage(open_project(file)).read()


def test_an_application_is_one_job_of_all_its_actions(tmp_path: Path) -> None:
    snapshot = read(tmp_path)
    assert [ref.name for ref in snapshot.jobs] == ["nightly", "other"]
    app = snapshot.jobs[APP]
    assert [ref.name for ref in app.reads] == ["dlt_a", "dlt_b"]
    assert [ref.name for ref in app.writes] == ["dlt", "log", "mart"]
    assert [ref.name for ref in app.inner] == ["dlt"]
    assert [ref.name for ref in app.parts] == sorted({one["job"]["name"] for one in EVENTS[:-1]})


@pytest.mark.parametrize(
    "toml", ["fold = false", '[[job]]\nname = "nightly.append_delta_table.dlt"']
)
def test_actions_stay_apart_where_that_is_asked_for(toml: str, tmp_path: Path) -> None:
    assert [ref.name for ref in read(tmp_path, toml).jobs][1:] == [
        "nightly.append_delta_table.dlt",
        "nightly.map_partitions_parallel_collection",
        "nightly.overwrite_by_expression_exec_v1",
        "other",
    ]


def test_a_declared_application_is_folded_all_the_same(tmp_path: Path) -> None:
    assert len(read(tmp_path, 'fold = false\n[[job]]\nname = "nightly"').jobs) == 2
    both = '[[job]]\nname = "nightly"\n[[job]]\nname = "nightly.append_delta_table.dlt"'
    with pytest.raises(DeclarationError, match="the parent that runs it are both declared"):
        read(tmp_path, both)


@pytest.mark.parametrize(
    ("facets", "is_folded"),
    [
        ({"jobType": JOB_TYPE}, True),
        (
            {"jobType": {"processingType": "BATCH", "integration": "AIRFLOW", "jobType": "TASK"}},
            False,
        ),
        (
            {
                "jobType": {
                    "processingType": "NONE",
                    "integration": "SPARK",
                    "jobType": "APPLICATION",
                }
            },
            False,
        ),
        ({"jobType": 3}, False),
        ({}, False),
    ],
)
@pytest.mark.parametrize("engine", [None, {"name": "spark"}, {"name": "Airflow"}])
def test_only_actions_of_spark_are_folded(
    facets: dict[str, Any], is_folded: bool, engine: dict[str, Any] | None, tmp_path: Path
) -> None:
    made = action("step", "a", "b")
    made["job"]["facets"] = facets
    if engine:  # which alone told it before there was a job type
        made["run"]["facets"]["processing_engine"] = engine
        is_folded |= engine["name"] == "spark" and "NONE" not in str(facets)
    jobs = read(tmp_path, events=[made]).jobs
    assert (JobRef("shop", "nightly.step") not in jobs) == is_folded


def test_a_run_that_is_started_by_airflow_is_not_folded_into_its_task(tmp_path: Path) -> None:
    app = event("nightly", [])
    task = {"job": {"namespace": "shop", "name": "dag.load"}, "run": {"runId": "t"}}
    app["run"] = {"runId": "p", "facets": {"parent": task, "processing_engine": {"name": "spark"}}}
    snapshot = read(tmp_path, events=[*EVENTS, app])
    assert [ref.name for ref in snapshot.jobs] == ["dag.load", "nightly", "other"]
    assert snapshot.jobs[APP].parent == JobRef("shop", "dag.load")


@pytest.mark.parametrize("name", ["spark_cll", "spark_hive", "spark_bigquery_to_file"])
def test_recorded_applications_are_one_job_each(name: str, tmp_path: Path) -> None:
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(f'[lineage]\nevents = ["{RECORDED / name}.ndjson.gz"]\n')
    project = open_project(file)
    (app,) = ProjectLineage(project).read().jobs.values()
    apart = [node for node in ProjectLineage(project).read_source().jobs.values() if node.parent]
    assert [part.ref for part in apart] == list(app.parts)
    assert {ref for part in apart for ref in part.writes} == set(app.writes)


def test_an_application_below_a_task_in_whose_name_it_is_stored_is_none_of_its_actions(
    tmp_path: Path,
) -> None:
    app = event("dag.load.app", ["a"])
    task = {"job": {"namespace": "shop", "name": "dag.load"}, "run": {"runId": "t"}}
    app["run"] = {"runId": "p", "facets": {"parent": task, "processing_engine": {"name": "spark"}}}
    app["job"]["facets"] = {"jobType": JOB_TYPE | {"jobType": "APPLICATION"}}
    assert JobRef("shop", "dag.load.app") in read(tmp_path, events=[app]).jobs


def test_init_drafts_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--events", "ev.ndjson", "--out", "-"]) == 0
    drafted = capsys.readouterr().out
    assert '"nightly"' in drafted
    assert "map_partitions_parallel_collection" not in drafted
    asked = ["impact", "--job", "nightly.overwrite_by_expression_exec_v1"]
    assert main(asked) == 64
    assert "is part of shop:nightly" in capsys.readouterr().err


def under_airflow(*, outlet: str = "") -> list[dict[str, Any]]:
    """The events of a task that submits the application, and says itself what it writes."""
    facet = {"dag": {"dag_id": "etl.daily"}, "task": {"task_id": "submit"}}
    task = event("etl.daily.submit", [], outlet.split())
    task["run"] = {"runId": "t", "facets": {"airflow": facet}}
    app = event("nightly", [], [])
    parent = {"job": {"namespace": "shop", "name": "etl.daily.submit"}, "run": {"runId": "t"}}
    app["run"] = {"runId": "p", "facets": {"parent": parent}}
    return [*EVENTS, task, app]


@pytest.mark.parametrize("outlet", ["", "mart"])
def test_an_application_is_a_part_of_the_airflow_task_that_submits_it(
    outlet: str, tmp_path: Path
) -> None:
    snapshot = read(tmp_path, events=under_airflow(outlet=outlet))
    assert [ref.name for ref in snapshot.jobs] == ["etl.daily.submit", "other"]
    task = snapshot.jobs[JobRef("shop", "etl.daily.submit")]
    assert task.airflow is not None
    assert (task.airflow.dag, task.airflow.task) == ("etl.daily", "submit")
    assert [ref.name for ref in task.reads] == ["dlt_a", "dlt_b"]
    assert [ref.name for ref in task.writes] == ["dlt", "log", "mart"]
    assert APP in task.parts


def test_an_application_that_is_declared_is_run_in_place_of_its_airflow_task(
    tmp_path: Path,
) -> None:
    toml = '[[job]]\nname = "nightly"\nengine = "local"\nentrypoint = "a:b"\n'
    snapshot = read(tmp_path, toml, under_airflow())
    assert [ref.name for ref in snapshot.jobs] == ["etl.daily.submit", "nightly", "other"]
    assert not snapshot.jobs[JobRef("shop", "etl.daily.submit")].writes
    assert [ref.name for ref in snapshot.jobs[APP].writes] == ["dlt", "log", "mart"]


def test_airflow_tasks_are_not_folded_where_nothing_is(tmp_path: Path) -> None:
    assert len(read(tmp_path, "fold = false\n", under_airflow()).jobs) == 6


@pytest.mark.parametrize("seen", ["nightly", "etl.daily.submit.nightly"])
@pytest.mark.parametrize("declared", ["nightly", "etl.daily.submit.nightly"])
def test_a_job_is_declared_by_its_name_with_or_without_its_parents(
    seen: str, declared: str, tmp_path: Path
) -> None:
    *_, task, app = under_airflow()
    app["job"]["name"] = seen
    app["outputs"] = [{"namespace": "shop", "name": "out"}]
    toml = f'[[job]]\nname = "{declared}"\nengine = "local"\nentrypoint = "a:b"\n'
    snapshot = read(tmp_path, toml, [task, app])
    assert [ref.name for ref in snapshot.jobs] == sorted(["etl.daily.submit", declared])
    assert [ref.name for ref in snapshot.jobs[JobRef("shop", declared)].writes] == ["out"]
    assert {run.job for run in snapshot.history} == snapshot.jobs.keys()


def test_a_name_that_two_jobs_could_mean_is_that_of_neither(tmp_path: Path) -> None:
    events = []
    for dag in ("one", "two"):
        made = event(f"{dag}.load", [], [dag])
        parent = {"job": {"namespace": "shop", "name": dag}, "run": {"runId": dag}}
        made["run"] = {"runId": f"{dag}-load", "facets": {"parent": parent}}
        events.append(made)
    toml = '[[job]]\nname = "load"\nengine = "local"\nentrypoint = "a:b"\n'
    found = read(tmp_path, toml, events)
    assert [ref.name for ref in found.jobs] == ["one", "one.load", "two", "two.load"]
    assert "one" in [ref.name for ref in read(tmp_path, toml, events[:1]).jobs]
    assert JobRef("shop", "load") in read(tmp_path, toml, events[:1]).jobs
