"""The assets of Airflow as lineage: tasks, their names elsewhere, and runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.airflow.api import AirflowApi, AirflowSettings
from lineage_backfill.errors import ConfigError, LineageError
from lineage_backfill.lineage.snapshot import AirflowTask, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.ports import LineageSource
from lineage_backfill.sources.packages import create_source
from lineage_backfill.sources.several import SeveralSources
from tests import fake_airflow

ACCOUNT: dict[str, Any] = {"username": "admin", "password": "admin"}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with fake_airflow.serve(tmp_path) as address:
        yield address


def source(url: str, **settings: Any) -> LineageSource:
    return create_source("airflow", {"url": url, **ACCOUNT, **settings}, project=Path())


def lake(name: object) -> DatasetRef:
    return DatasetRef("file", f"/lake/{name}")


def test_tasks_read_what_starts_their_dag(url: str) -> None:
    snapshot = source(url, namespace="prod").read()
    assert {(ref, node.reads, node.writes) for ref, node in snapshot.jobs.items()} == {
        (JobRef("prod", "three.b"), (), (lake(1),)),
        (JobRef("prod", "hourly.build"), (), (lake(2),)),
        # A DAG without inlets begins with what started it.
        *((JobRef("prod", f"{dag}.read"), (lake(1),), ()) for dag in ("follower", "both")),
        *((JobRef("prod", f"{dag}.build"), (lake(2),), ()) for dag in ("rollup", "reader")),
        (JobRef("prod", "day_three.b"), (), (lake(3),)),
        (JobRef("prod", "day_reader.read"), (lake(3),), ()),
        (JobRef("prod", "day_keys.build"), (), (lake(4),)),
        (JobRef("prod", "month_keys.build"), (lake(4),), ()),
    }
    assert snapshot.jobs[JobRef("prod", "three.b")].airflow == AirflowTask(
        dag="three",
        task="b",
        outlets=("file:///lake/1",),
        timetable={"expression": "0 * * * *", "timezone": "UTC"},
    )
    # By the keys of its assets, which Airflow does not say how they map.
    rollup = snapshot.jobs[JobRef("prod", "rollup.build")].airflow
    assert rollup is not None
    assert rollup.timetable is None


def test_a_task_that_reads_an_asset_keeps_its_dag_from_reading_it_twice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def assets(_self: object) -> fake_airflow.Answer:
        def task(name: str) -> dict[str, str]:
            return {"dag_id": "three", "task_id": name}

        started = [{"dag_id": "three"}]
        found = [
            (1, [], [task("extract")], started),
            (2, [], [], started),
            (3, [task("load")], [], []),
        ]
        names = ("id", "producing_tasks", "consuming_tasks", "scheduled_dags")
        rows = [
            {"uri": f"s3://lake/{one[0]}", **dict(zip(names, one, strict=True))} for one in found
        ]
        return 200, {"assets": rows, "total_entries": len(rows)}

    monkeypatch.setattr(fake_airflow.FakeAirflow, "assets", assets)
    edges = {
        ref.name: ([one.name for one in node.reads], [one.name for one in node.writes])
        for ref, node in source(url).read().jobs.items()
    }
    # The asset 2, which no task reads by name, is read by the task that writes.
    assert edges == {"three.extract": (["1"], []), "three.load": (["2"], ["3"])}


def test_a_task_has_the_name_that_its_events_give_it(url: str) -> None:
    known = JobNode(ref=JobRef("prod", "three.group.b"), airflow=AirflowTask(dag="three", task="b"))

    class Events:
        def read(self) -> LineageSnapshot:
            return LineageSnapshot.of([known])

    joined = SeveralSources([("airflow", source(url)), ("events", Events())]).read()
    assert joined.jobs[known.ref].writes == (lake(1),)
    assert JobRef("airflow", "three.b") not in joined.jobs


def test_runs_have_their_key_and_their_times(url: str) -> None:
    api = AirflowApi(AirflowSettings(url=url, **ACCOUNT))
    key = "2024-06-01T05:00:00"
    body = {"dag_run_id": "r1", "logical_date": None, "partition_key": key}
    api.post("/dags/hourly/dagRuns", body)
    deadline = time.monotonic() + 20
    while api.get("/dags/hourly/dagRuns/r1")["state"] != "success":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    api.close()
    (run,) = (one for one in source(url).read().history if one.job.name == "hourly.build")
    assert (run.state, run.partition_key) == ("COMPLETE", key)
    assert run.started_at is not None
    assert run.ended_at is not None
    assert run.ended_at > run.started_at


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"assets": [], "total_entries": 2}, "0 of 2 assets were read"),
        ({"assets": [{"id": 1}], "total_entries": 1}, "an answer of an unknown shape"),
    ],
)
def test_a_part_of_the_assets_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch, answer: object, fault: str
) -> None:
    monkeypatch.setattr(fake_airflow.FakeAirflow, "assets", lambda *_: (200, answer))
    with pytest.raises(LineageError, match=fault):
        source(url).read()


def test_an_account_is_needed(url: str) -> None:
    with pytest.raises(ConfigError, match="needs `username` and `password`, or `token`"):
        create_source("airflow", {"url": url}, project=Path())
