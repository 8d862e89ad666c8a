"""A real Marquez gives the lineage that its recordings give, and keeps what our runs tell it.

Only where `LINEAGE_BACKFILL_TEST_MARQUEZ_URL` names one that tests may write to.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import networkx as nx
import pytest

from lineage_backfill.errors import LineageError
from lineage_backfill.model import JobRef
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.sources.events import EventSource
from spark_runtime.emit.lineage import Emitter, InputSeen, OutputSeen
from spark_runtime.tables.state import TableState
from tests.contract import live_marquez
from tests.contract.live_marquez import Visit
from tests.contract.marquez_replay import VERSIONS, load, stages
from tests.contract.test_lineage_source import SAME, from_events

pytestmark = pytest.mark.skipif(
    not live_marquez.ADDRESS, reason="LINEAGE_BACKFILL_TEST_MARQUEZ_URL names no server"
)

#: The others break the server's lists for good, and for everybody.
HARMLESS = [scenario for scenario in SAME if not scenario.startswith("poisoned_")]
#: What 0.50.0 refuses with 500 and keeps all the same.
KEPT = "with_facets"


@pytest.mark.parametrize("scenario", HARMLESS)
def test_events_and_a_real_server_give_the_same(scenario: str, tmp_path: Path) -> None:
    with Visit() as visit:
        for stage in stages(VERSIONS[1], scenario):
            visit.repeat(stage)
        server = visit.read()
    files = visit.own(from_events(visit.posted, tmp_path))
    known = {ref for ref in server.jobs if ref in files.jobs or ref.name != KEPT}
    assert {ref: server.jobs[ref] for ref in known} == files.jobs
    assert server.datasets.keys() == files.datasets.keys()
    assert server.column_edges == files.column_edges
    assert server.history == files.history


def test_downstream_of_etl_orders_are_the_five_known_jobs() -> None:
    with Visit() as visit:
        visit.repeat(load(VERSIONS[1], "food_delivery"))
        graph = visit.read().graph()
    (start,) = [node for node in graph if node.name == "etl_orders"]
    below = nx.descendants(graph, start)
    assert sorted(node.name for node in below if isinstance(node, JobRef)) == [
        *("delivery_times_7_days", "email_discounts", "etl_delivery_7_days"),
        *("etl_orders_7_days", "orders_popular_day_of_week"),
    ]


def test_a_job_that_runs_all_the_time_is_read_from_a_real_server() -> None:
    ended = threading.Event()
    runs = 0

    def run_on(visit: Visit, *, most: int | None = None) -> None:
        nonlocal runs
        while not ended.is_set() and runs != most:
            for kind in ("START", "COMPLETE"):
                assert visit.post(of_busy(visit.namespace, kind, runs)) == 201
            runs += 1

    with Visit() as visit, ThreadPoolExecutor(1) as others:
        run_on(visit, most=1)
        posting = others.submit(run_on, visit)
        try:
            found = [edges_of_busy(visit) for _ in range(12)]
        finally:
            ended.set()
        posting.result()
    assert runs > 10, "it ran all the time"
    assert set(found) <= {("raw", "made"), "refused"}
    assert found.count("refused") <= 6


def edges_of_busy(visit: Visit) -> object:
    try:
        (node,) = visit.read().jobs.values()
    except LineageError:
        return "refused"
    return tuple(ref.name for ref in (*node.reads, *node.writes))


def of_busy(namespace: str, kind: str, number: int) -> dict[str, Any]:
    return {
        "eventType": kind,
        "eventTime": datetime.now(UTC).isoformat(),
        "producer": "https://example.org",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(uuid5(NAMESPACE_URL, f"{namespace}/{number}"))},
        "job": {"namespace": namespace, "name": "busy"},
        "inputs": [{"namespace": namespace, "name": "raw"}],
        "outputs": [{"namespace": namespace, "name": "made"}],
    }


def test_a_job_deleted_in_a_real_server_is_left_out() -> None:
    with Visit() as visit:
        for stage in stages(VERSIONS[1], "deleted_job.2_deleted"):
            visit.repeat(stage)
        server = visit.read()
    assert sorted(ref.name for ref in server.jobs) == ["a", "c"]
    assert ": deleted in Marquez" in server.warnings[0]


def test_a_job_refused_by_a_real_server_is_kept() -> None:
    with Visit() as visit:
        visit.repeat(load(VERSIONS[1], "rejected_events"))
        server = visit.read()
    assert "posted_14" in {ref.name for ref in server.jobs}
    assert any("refused the events" in warning for warning in server.warnings)


def test_a_real_server_keeps_all_that_our_own_runs_say(tmp_path: Path) -> None:
    with Visit() as visit:
        for key in ("2024-01-01", "2024-01-02"):
            emit(visit.run_spec("days", key, reads=["hours"], outbox=tmp_path))
            emit(visit.run_spec("weeks", key, reads=["days"], outbox=tmp_path))
        # Neither takes edges away, in our reading of the server.
        emit(visit.run_spec("weeks", "2024-01-03", reads=["days"], outbox=tmp_path), fails=True)
        for line in "".join(file.read_text() for file in tmp_path.iterdir()).splitlines():
            assert visit.post(line) == 201
        server, files = visit.read(), visit.own(EventSource([tmp_path]).read())
        runs = visit.get("jobs", "days", "runs")["runs"]
        listed = visit.get("jobs?limit=100&offset=0")["jobs"]
    assert sorted(job["name"] for job in listed) == ["days", "weeks"]  # and no phantoms
    assert server.jobs == files.jobs
    assert server.datasets == files.datasets
    assert server.history == files.history
    assert [run.partition_key for run in server.history] == [
        *("2024-01-01", "2024-01-02"),
        *("2024-01-01", "2024-01-02", "2024-01-03"),
    ]
    for run, key in zip(runs, ("2024-01-02", "2024-01-01"), strict=True):
        assert run["facets"]["nominalTime"]["nominalStartTime"] == f"{key}T00:00:00Z"
        (read,), (written,) = run["inputDatasetVersions"], run["outputDatasetVersions"]
        for version, side in ((read, "inputCondition"), (written, "outputCondition")):
            (partition,) = version["facets"]["subset"][side]["partitions"]
            assert partition["identifier"] == key


def emit(document: dict[str, Any], *, fails: bool = False) -> None:
    """Emit what a run of that spec emits, without running it."""
    run = parse_spec(document)
    state = TableState(version=1, schema={"fields": [{"name": "day", "type": "string"}]})
    inputs = [InputSeen(spec=spec, state=state) for spec in run.inputs]
    outputs = [OutputSeen(spec=spec, state=state) for spec in run.outputs]
    emitter = Emitter(run, datetime.now(UTC))
    emitter.start(inputs, outputs)
    if fails:
        emitter.fail(inputs, outputs, "no such day")
    else:
        emitter.complete(inputs, outputs)
