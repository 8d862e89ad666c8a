"""The Airflow suite against the fake server; tests/services runs it against a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import fake_airflow
from tests.airflow_suite import DAYS, AirflowSuite, Place


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
class TestFakeAirflow(AirflowSuite):
    """The suite against the fake server."""

    arrivals = (False, True)
    days = DAYS

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        folder = tmp_path_factory.mktemp("airflow")
        with fake_airflow.serve(folder) as url:
            yield Place(url, folder)
