"""What other senders than Spark say, in the shapes of their documentation and own fixtures."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.snapshot import AirflowTask, LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef

Event = dict[str, Any]
KAFKA = "kafka://broker:9092"
RECORDED = Path(__file__).parents[2] / "data" / "lineage" / "airflow_recorded.ndjson.gz"
POSTGRES = "postgres://postgres:5432"


def event(
    kind: str,
    minute: int,
    name: str,
    *,
    run: str = "r",
    reads: str = "",
    writes: str = "",
    space: str = POSTGRES,
    job_type: dict[str, str] | None = None,
    **run_facets: Any,
) -> Event:
    """One event, whose jobs and datasets are in one namespace; datasets are named by words."""
    sides = {
        side: [{"namespace": space, "name": word} for word in words.split()]
        for side, words in (("inputs", reads), ("outputs", writes))
    }
    return {
        "eventType": kind,
        "eventTime": f"2024-01-01T00:{minute:02d}:00Z",
        "run": {"runId": run, "facets": run_facets},
        "job": {
            "namespace": space,
            "name": name,
            "facets": {"jobType": job_type} if job_type else {},
        },
        **{side: items for side, items in sides.items() if items},
    }


def build(*events: Event) -> LineageSnapshot:
    first, second = LineageBuilder(), LineageBuilder()
    for one in events:
        first.add(one)
    for one in events[::-1]:
        second.add(one)
    assert first.snapshot().jobs == second.snapshot().jobs, "any order gives the same"
    return first.snapshot()


def edges(snapshot: LineageSnapshot, job: str, space: str = POSTGRES) -> str:
    node = snapshot.jobs[JobRef(space, job)]
    sides = (" ".join(ref.name for ref in refs) for refs in (node.reads, node.writes))
    return " > ".join(sides)


def streaming(kind: str, minute: int, run: str = "r", reads: str = "", writes: str = "") -> Event:
    """Flink names the datasets in START alone."""
    told = {"processingType": "STREAMING", "integration": "FLINK", "jobType": "JOB"}
    name = "insert-into_db.out"
    made = event(kind, minute, name, run=run, reads=reads, writes=writes, space=KAFKA)
    made["job"]["facets"] = {"jobType": told}
    return made


def checkpoint(minute: int, run: str = "r") -> Event:
    """RUNNING tells of checkpoints, and neither of datasets nor of what kind of job it is."""
    told = {"completed": 3, "failed": 0}
    return event("RUNNING", minute, "insert-into_db.out", run=run, space=KAFKA, checkpoints=told)


@pytest.mark.parametrize("end", [None, "COMPLETE", "FAIL", "ABORT"])
def test_what_a_stream_of_flink_named_once_counts_however_it_ends(end: str | None) -> None:
    told = [streaming("START", 1, reads="in", writes="out"), checkpoint(2), checkpoint(3)]
    snapshot = build(*told, *([streaming(end, 9)] if end else ()))
    assert edges(snapshot, "insert-into_db.out", KAFKA) == "in > out"
    assert snapshot.jobs[JobRef(KAFKA, "insert-into_db.out")].processing == "STREAM"


def test_a_stream_that_was_stopped_and_started_again_has_the_edges_of_both() -> None:
    before = [streaming("START", 1, reads="a", writes="out"), streaming("ABORT", 5)]
    now = [streaming("START", 6, run="r2", reads="b", writes="out"), checkpoint(7, "r2")]
    assert edges(build(*before, *now), "insert-into_db.out", KAFKA) == "a b > out"


def test_a_failed_run_of_a_batch_job_still_makes_no_edges() -> None:
    failed = event("FAIL", 2, "etl", reads="a", writes="b")
    assert edges(build(failed), "etl") == " > "


def dbt(kind: str, minute: int, name: str, reads: str = "", writes: str = "") -> Event:
    """A model, test or statement below `dbt run`, which has a run of its own."""
    above = {"namespace": POSTGRES, "name": "dbt-run-shop"}
    parent = {"run": {"runId": "invocation"}, "job": above}
    what = "MODEL" if name.startswith("model") else "TEST"
    told = {"processingType": "BATCH", "integration": "DBT", "jobType": what}
    return event(
        kind, minute, name, run=name, reads=reads, writes=writes, job_type=told, parent=parent
    )


def test_models_of_dbt_are_jobs_whose_statements_and_tests_change_no_edge() -> None:
    orders = {"reads": "public.stg_orders public.stg_payments", "writes": "public.orders"}
    told = [
        event("START", 1, "dbt-run-shop", run="invocation"),
        dbt("START", 2, "model.shop.stg_orders", reads="public.raw", writes="public.stg_orders"),
        dbt("COMPLETE", 3, "model.shop.stg_orders", reads="public.raw", writes="public.stg_orders"),
        dbt("START", 4, "model.shop.orders", **orders),
        dbt("START", 5, "model.shop.orders.sql.1"),
        dbt("COMPLETE", 6, "model.shop.orders.sql.1"),
        dbt("COMPLETE", 7, "model.shop.orders", **orders),
        dbt("START", 8, "test.shop.unique_orders_id.1a2b", reads="public.orders"),
        dbt("COMPLETE", 9, "test.shop.unique_orders_id.1a2b", reads="public.orders"),
        event("COMPLETE", 10, "dbt-run-shop", run="invocation"),
    ]
    snapshot = build(*told)
    assert (
        edges(snapshot, "model.shop.orders")
        == "public.stg_orders public.stg_payments > public.orders"
    )
    assert edges(snapshot, "test.shop.unique_orders_id.1a2b") == "public.orders > "
    assert edges(snapshot, "dbt-run-shop") == " > "
    parents = {node.parent for node in snapshot.jobs.values() if node.parent}
    assert parents == {JobRef(POSTGRES, "dbt-run-shop")}
    table = DatasetRef(POSTGRES, "public.stg_orders")
    assert [ref.name for ref in snapshot.readers[table]] == ["model.shop.orders"]
    assert not any(node.is_action for node in snapshot.jobs.values()), "they are not folded"


def test_each_query_of_trino_is_a_job_that_joins_what_it_reads_and_writes() -> None:
    space = "trino://coordinator:8080"
    context: dict[str, Any] = {
        "trino_query_context": {"user": "me"},
        "trino_metadata": {"queryPlan": "…"},
    }
    told = []
    for number in (1, 2):
        name = f"20240101_00000{number}_00001_abcde"
        started = event("START", number, name, run=name, space=space, **context)
        ended = event("COMPLETE", number + 10, name, run=name, space=space, **context)
        ended["inputs"] = [{"namespace": space, "name": "raw.orders"}]
        ended["outputs"] = [{"namespace": space, "name": "mart.orders"}]
        told += [started, ended]
    snapshot = build(*told)
    assert [edges(snapshot, job.name, space) for job in snapshot.jobs] == [
        "raw.orders > mart.orders"
    ] * 2
    assert len(snapshot.writers[DatasetRef(space, "mart.orders")]) == 2


@pytest.mark.parametrize("kind", ["COMPLETE", "FAIL"])
def test_a_validation_of_great_expectations_reads_and_writes_nothing(kind: str) -> None:
    told = event(kind, 1, "checkpoint.orders_suite", reads="public.orders")
    assertions = [{"assertion": "expect_column_values_to_not_be_null", "success": True}]
    quality = {"dataQualityAssertions": {"assertions": assertions}}
    told["inputs"][0] |= {"inputFacets": quality, "facets": {"dataSource": {"name": "db"}}}
    snapshot = build(told)
    assert edges(snapshot, "checkpoint.orders_suite") == (
        "public.orders > " if kind == "COMPLETE" else " > "
    )
    assert not snapshot.warnings


@pytest.fixture(scope="module")
def airflow() -> LineageSnapshot:
    """Airflow 3.3.2 with its provider, and 2.7.3 with the integration before it."""
    lines = gzip.decompress(RECORDED.read_bytes()).splitlines()
    return build(*map(json.loads, lines))


def task(snapshot: LineageSnapshot, name: str, space: str = "prod") -> AirflowTask:
    found = snapshot.jobs[JobRef(space, name)].airflow
    assert found is not None
    return found


def test_tasks_of_airflow_are_jobs_below_their_dag_with_the_ids_of_their_facet(
    airflow: LineageSnapshot,
) -> None:
    tasks = {node.ref: node for node in airflow.jobs.values() if node.airflow}
    assert (len(airflow.jobs), len(tasks)) == (24, 14)
    for ref, node in tasks.items():
        found = task(airflow, ref.name, ref.namespace)
        assert ref.name == f"{found.dag}.{found.task}"
        assert node.parent == JobRef(ref.namespace, found.dag)
    build_task = task(airflow, "revenue_daily.build")
    assert (build_task.inlets, build_task.outlets) == (
        ("s3://lake/orders",),
        ("s3://lake/revenue",),
    )
    assert build_task.timetable == {"expression": "0 0 * * *", "timezone": "UTC"}
    assert edges(airflow, "kinds.by_ol_dataset", "prod") == "orders > revenue"
    assert edges(airflow, "orders_daily.load", "legacy") == "db.raw > db.orders"


#: What the provider sends where a person or a program marks a task as success or skipped.
_MARK = {
    "eventType": "COMPLETE",
    "eventTime": "2030-01-01T00:00:00Z",
    "job": {"namespace": "prod", "name": "kinds.by_ol_dataset"},
    "run": {
        "runId": "01a1c2c1-2400-7186-9890-d3f22298b464",
        "facets": {
            "nominalTime": {"nominalStartTime": "2029-12-31T00:00:00Z"},
            "parent": {
                "job": {"namespace": "prod", "name": "kinds"},
                "run": {"runId": "01a1c2c1-2400-72e5-b009-fcc8ab784359"},
            },
            "processing_engine": {"name": "Airflow", "version": "3.3.2"},
        },
    },
    "inputs": [],
    "outputs": [],
}


def test_a_task_that_was_only_marked_has_not_run(airflow: LineageSnapshot) -> None:
    events = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    for marked in (build(*events, _MARK), build(_MARK, *events)):
        name = "kinds.by_ol_dataset"
        assert edges(marked, name, "prod") == edges(airflow, name, "prod") == "orders > revenue"
        assert runs(marked, name) == runs(airflow, name)
        assert marked.warnings == airflow.warnings


def test_a_try_without_datasets_still_takes_edges_away(airflow: LineageSnapshot) -> None:
    events = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    start = {**_MARK, "eventType": "START", "eventTime": "2029-12-31T23:00:00Z"}
    assert edges(build(*events, start, _MARK), "kinds.by_ol_dataset", "prod") != "orders > revenue"


def test_dags_of_airflow_have_no_edges(airflow: LineageSnapshot) -> None:
    dags = [node for node in airflow.jobs.values() if not node.airflow]
    assert {node.ref.name for node in dags} == {node.ref.name.partition(".")[0] for node in dags}
    assert not any(node.reads or node.writes for node in dags)


def runs(snapshot: LineageSnapshot, name: str, space: str = "prod") -> list[ObservedRun]:
    return [run for run in snapshot.history if run.job == JobRef(space, name)]


def interval(run: ObservedRun) -> str:
    ends = (run.nominal_start, run.nominal_end)
    return " > ".join(f"{when:%m-%dT%H}" if when else "-" for when in ends)


def test_runs_of_airflow_have_the_interval_or_key_that_they_were_for(
    airflow: LineageSnapshot,
) -> None:
    assert [interval(run) for run in runs(airflow, "revenue_daily.build")] == [
        "11-22T00 > 11-23T00",
        "11-21T00 > 11-22T00",
    ]
    assert {run.partition_key for run in runs(airflow, "p_hourly.load")} == {
        "2026-11-23T02",
        "2026-11-21T05",
    }
    (rolled,) = runs(airflow, "p_daily.roll")
    assert rolled.partition_key == "2026-11-21"


def test_a_manual_run_of_airflow_is_for_the_interval_that_its_logical_date_begins(
    airflow: LineageSnapshot,
) -> None:
    found = {interval(run) for run in runs(airflow, "orders_hourly.load")}
    assert found == {"- > -", "11-23T00 > 11-23T01"}, "Airflow chose the others by the clock"
    start, end = "2026-11-21T05:00:00+00:00", "2026-11-21T06:00:00+00:00"
    told = {"data_interval_start": start, "data_interval_end": end, "run_type": "manual"}
    for logical, expected in ((start, "11-21T05 > 11-21T06"), (end, "- > -"), (None, "- > -")):
        facet = {"dagRun": {**told, "logical_date": logical}}
        nominal = {"nominalStartTime": start, "nominalEndTime": end}
        snapshot = build(event("COMPLETE", 1, "j", airflow=facet, nominalTime=nominal))
        assert [interval(run) for run in snapshot.history] == [expected]


def test_what_old_airflow_tells_at_the_start_of_a_run_alone_holds_at_its_end(
    airflow: LineageSnapshot,
) -> None:
    (run,) = runs(airflow, "orders_daily.load", "legacy")
    assert run.state == "COMPLETE"
    assert interval(run) == "11-21T00 > 11-22T00"
    assert run.ended_at == datetime(2026, 11, 23, 2, 23, 0, 381074, UTC)
    assert task(airflow, "orders_daily.load", "legacy").task == "load"


def test_ids_of_airflow_may_hold_dots() -> None:
    facet = {"dag": {"dag_id": "shop.eu"}, "task": {"task_id": "day.build"}}
    (node,) = build(event("COMPLETE", 1, "shop.eu.day.build", airflow=facet)).jobs.values()
    assert node.airflow == AirflowTask(dag="shop.eu", task="day.build")


@pytest.mark.parametrize(
    "facet",
    [
        {"dag": {"dag_id": 3}, "task": {"task_id": "t"}},
        {"dag": {"dag_id": "d"}, "task": {"task_id": "t\x1b[2J"}},
        {"dag": {"dag_id": "d"}, "task": {"task_id": "t" * 251}},
        {"dag": {"dag_id": "d"}, "task": "t"},
    ],
)
def test_ids_that_airflow_cannot_have_sent_are_reported(facet: Any) -> None:
    snapshot = build(event("COMPLETE", 1, "j", airflow=facet))
    assert [node.airflow for node in snapshot.jobs.values()] == [None]
    assert "facet `airflow` cannot be read" in snapshot.warnings[0]
