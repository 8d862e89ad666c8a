"""One suite for all lineage sources: the same events give the same lineage."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import responses

from lineage_backfill.http import HttpClient
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources.events import EventSource
from lineage_backfill.sources.marquez import MarquezSource
from lineage_backfill.sources.marquez.api import Api
from lineage_backfill.sources.marquez.history import EventHistory
from lineage_backfill.sources.snapshot import SnapshotSource, save_snapshot
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.lineage import ProjectLineage
from tests.contract.marquez_replay import ADDRESS, VERSIONS, Replay, scenarios

NOW = datetime(2024, 6, 1, tzinfo=UTC)

#: Recordings of single answers, not of a whole server.
NOT_WHOLE = {"errors", "paging.2_moved", "event_paging"}
#: What people did in Marquez, of which events know nothing.
CHANGED_THERE = {
    "deleted_job.2_deleted",
    "deleted_namespace",
    "renamed_job.2_renamed",
    "renamed_job.3_event_under_old_name",
}
#: Recorded with every job's own page and runs, so that they can be read without any event.
COMPLETE = [
    "airflow_like",
    "column_lineage",
    "custom_facets_and_subset.1_all_facets",
    "custom_facets_and_subset.2_run_without_facets",
    "dataset_symlinks",
    "job_versions_change",
    "orphan_dataset",
    "poisoned_namespace.1_before",
]
SAME = [
    s
    for s in scenarios()
    if s not in NOT_WHOLE | CHANGED_THERE | {"poisoned_list.2_after_empty_name"}
]


def from_marquez(replay: Replay) -> LineageSnapshot:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        replay.install(mock)
        return MarquezSource(ADDRESS, clock=lambda: NOW).read()


def from_events(posted: list[Any], folder: Path) -> LineageSnapshot:
    file = folder / "events.ndjson"
    file.write_text("".join(json.dumps(event) + "\n" for event in posted))
    return EventSource([file]).read()


def edges(snapshot: LineageSnapshot) -> dict[JobRef, tuple[object, ...]]:
    return {ref: (node.reads, node.writes) for ref, node in snapshot.jobs.items()}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("scenario", SAME)
def test_files_and_marquez_give_the_same(version: str, scenario: str, tmp_path: Path) -> None:
    replay = Replay(version, scenario)
    files, server = from_events(replay.posted, tmp_path), from_marquez(replay)
    jobs = dict(server.jobs)
    if version == "0.50.0":  # it refuses this job event, and keeps the job
        jobs.pop(JobRef("job_and_dataset_events", "with_facets"), None)
    assert jobs == files.jobs
    assert server.datasets.keys() == files.datasets.keys()
    assert server.column_edges == files.column_edges
    assert server.history == files.history
    assert (server.source, server.taken_at) == ("marquez", NOW)


@pytest.mark.parametrize("scenario", SAME)
def test_a_saved_snapshot_gives_the_same(scenario: str, tmp_path: Path) -> None:
    taken = from_events(Replay(VERSIONS[0], scenario).posted, tmp_path)
    save_snapshot(taken, tmp_path / "lineage.json.gz")
    back = SnapshotSource(tmp_path / "lineage.json.gz").read()
    assert (back.jobs, back.datasets, back.history) == (taken.jobs, taken.datasets, taken.history)
    assert back.content_hash == taken.content_hash


@pytest.mark.parametrize("kind", ["events", "snapshot", "marquez"])
def test_patterns_fold_the_names_of_every_source(kind: str, tmp_path: Path) -> None:
    replay = Replay(VERSIONS[0], "depth_cut")
    taken = from_events(replay.posted, tmp_path)
    save_snapshot(taken, tmp_path / "taken")
    named = {"events": "events.ndjson", "snapshot": "taken", "marquez": ADDRESS}[kind]
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(f'[lineage]\n{kind} = "{named}"\n[[dataset]]\npattern = "d{{n}}"\n')
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        replay.install(mock)
        folded = ProjectLineage(open_project(file)).read()
    whole = DatasetRef("depth_cut", "d")
    assert len(taken.datasets) > 40
    assert list(folded.datasets) == [whole]
    assert {node.reads + node.writes for node in folded.jobs.values()} == {(whole, whole)}


@pytest.mark.parametrize("scenario", COMPLETE)
def test_without_events_the_catalogue_gives_the_same_edges(
    version: str, scenario: str, tmp_path: Path
) -> None:
    replay = Replay(version, scenario, purged=1_000_000)
    server, files = from_marquez(replay), from_events(replay.posted, tmp_path)
    assert edges(server) == edges(files)
    assert server.column_edges == ()  # they are in the events of runs; without them readers stay


def test_a_job_whose_events_are_gone_beside_others_that_have_them(
    version: str, tmp_path: Path
) -> None:
    replay = Replay(version, "job_versions_change", purged=3)
    assert edges(from_marquez(replay)) == edges(from_events(replay.posted, tmp_path))


@pytest.mark.parametrize(
    ("scenario", "gone"),
    [
        ("deleted_job.2_deleted", JobRef("deleted_job", "b")),
        ("deleted_namespace", JobRef("deleted_namespace_other", "b")),
    ],
)
def test_what_was_deleted_in_marquez_is_left_out_and_reported(
    version: str, scenario: str, gone: JobRef, tmp_path: Path
) -> None:
    replay = Replay(version, scenario)
    files, server = from_events(replay.posted, tmp_path), from_marquez(replay)
    assert files.jobs.keys() - server.jobs.keys() == {gone}
    assert f"{gone}: deleted in Marquez, the events are left out" in server.warnings


def test_a_deleted_dataset_keeps_the_edges_that_jobs_name(version: str) -> None:
    server = from_marquez(Replay(version, "deleted_dataset.2_deleted"))
    table = DatasetRef("deleted_dataset", "d2")
    assert server.jobs[JobRef("deleted_dataset", "b")].writes == (table,)
    assert any(f"{table}: unknown to Marquez" in warning for warning in server.warnings)


@pytest.mark.parametrize("stage", ["2_renamed", "3_event_under_old_name"])
def test_a_renamed_job_is_one_job(version: str, stage: str) -> None:
    server = from_marquez(Replay(version, f"renamed_job.{stage}"))
    assert [ref.name for ref in server.jobs] == ["a", "c", "new_name"]
    below = nx.descendants(server.graph(), JobRef("renamed_job", "a"))
    assert JobRef("renamed_job", "c") in below
    assert len([run for run in server.history if run.job.name == "new_name"]) >= 2


def test_events_are_paged_by_time_without_loss(version: str, tmp_path: Path) -> None:
    replay = Replay(version, "event_paging")  # of events alone: without the server's lists
    with responses.RequestsMock() as mock:
        replay.install(mock)
        history = EventHistory.read(Api(HttpClient(ADDRESS)), None, "")
    server, files = history.builder.snapshot(), from_events(replay.posted, tmp_path)
    assert {run.run_id for run in server.history} == {run.run_id for run in files.history}


def test_a_failed_run_of_a_job_without_events_redefines_nothing(version: str) -> None:
    replay = Replay(version, "failed_redefines.2_failed")
    etl = from_marquez(replay).jobs[JobRef("failed_redefines", "etl")]
    assert [ref.name for ref in etl.reads] == ["in1", "in2"]
    assert [ref.name for ref in etl.writes] == ["out"]


def test_downstream_of_etl_orders_are_the_five_known_jobs(version: str) -> None:
    graph = from_marquez(Replay(version, "food_delivery")).graph()
    below = nx.descendants(graph, JobRef("food_delivery", "etl_orders"))
    assert sorted(node.name for node in below if isinstance(node, JobRef)) == [
        "delivery_times_7_days",
        "email_discounts",
        "etl_delivery_7_days",
        "etl_orders_7_days",
        "orders_popular_day_of_week",
    ]
