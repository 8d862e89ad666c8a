"""The Airflow suite against the fake server; tests/services runs it against a real one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from lineage_backfill.engines.airflow import engine as airflow
from lineage_backfill.ports import AttemptState
from tests import fake_airflow
from tests.airflow_suite import AirflowSuite, Desk, Place, Wire


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
class TestFakeAirflow(AirflowSuite):
    """The suite against the fake server."""

    hold = -3  # the engine adds what a server's date may be late
    arrivals = (False, True)

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        folder = tmp_path_factory.mktemp("airflow")
        with fake_airflow.serve(folder) as url:
            yield Place(url, folder)

    @pytest.mark.slow
    def test_tasks_among_others_and_their_assets_take_few_requests_too(
        self, place: Place, desk: Desk
    ) -> None:
        sent = self.requests_of(place, desk, "three.b", [place.fresh() for _ in range(20)])
        assert sent.total() <= 5 * 20, sent
        assert sent["GET /api/v2/assets/events"] < 20

    def test_a_dag_whose_last_run_started_nothing_is_looked_at_once(
        self, place: Place, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A rollup starts with the last of many hours: the first of them starts none."""
        monkeypatch.setattr(airflow, "_CONSUMERS", (0.2, 0.6))
        engine = desk.engine(wire := Wire(), kind="partition_key %Y-%m-%dT%H:%M:%S")
        looks = []
        for days in range(3):
            hour = datetime(1950, 1, 1, tzinfo=UTC) + timedelta(days=days)
            wire.sent.clear()
            handle = desk.submit(engine, desk.spec("hourly.build", hour))
            assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
            looks.append(wire.sent.count("GET /api/v2/assets/events"))
        assert looks == [2, 1, 1]
