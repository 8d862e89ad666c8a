"""A real Marquez gives the lineage that its recordings give; only where one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import live_marquez
from tests.contract.live_marquez import Visit
from tests.contract.marquez_replay import VERSIONS, load, stages
from tests.contract.test_lineage_source import COMPLETE, SAME, edges, from_events

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


def test_the_catalogue_of_a_real_server_gives_the_edges_of_its_events(tmp_path: Path) -> None:
    with Visit() as visit:
        for scenario in COMPLETE:
            visit.repeat(load(VERSIONS[1], scenario))
        server = visit.read("graph")
    assert edges(server) == edges(visit.own(from_events(visit.posted, tmp_path)))


def test_a_job_deleted_in_a_real_server_is_left_out() -> None:
    with Visit() as visit:
        for stage in stages(VERSIONS[1], "deleted_job.2_deleted"):
            visit.repeat(stage)
        server = visit.read()
    assert sorted(ref.name for ref in server.jobs) == ["a", "c"]
    assert "was deleted in Marquez" in server.warnings[0]


def test_a_job_refused_by_a_real_server_is_kept() -> None:
    with Visit() as visit:
        visit.repeat(load(VERSIONS[1], "rejected_events"))
        server = visit.read()
    assert "posted_14" in {ref.name for ref in server.jobs}
    assert any("refused its events" in warning for warning in server.warnings)
