"""The Airflow suite against the fake server; tests/services runs it against a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import fake_airflow
from tests.airflow_suite import AirflowSuite, Desk, Place


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
