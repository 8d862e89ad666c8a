"""The Airflow suite against the fake server; tests/services runs it against a real one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lineage_backfill.ports import AttemptState
from tests import fake_airflow
from tests.airflow_suite import DAY, DAYS, AirflowSuite, Desk, Place, until


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

    def test_a_run_that_counts_is_repeated_if_an_older_one_ends_after_it(
        self, place: Place, desk: Desk
    ) -> None:
        """The older one began before all inputs were written, and may have written last."""
        key = f"{place.fresh():%Y-%m-%dT%H}"
        older = place.start_key("slow_key", key)
        until(lambda: place.of_key("slow_key.build", key))
        engine = desk.engine()
        handle = desk.submit(engine, desk.spec("slow_key.build", DAY, key=key))
        later = place.start_key("slow_key", key)
        until(lambda: f"slow_key/{later}" == getattr(engine.identify(handle), "id", ""))
        where = f"/dags/slow_key/dagRuns/{later}"
        place.ask("PATCH", f"{where}/taskInstances/build", {"new_state": "success"})
        until(lambda: place.state("slow_key", later) == "success")
        time.sleep(1)
        assert not engine.poll(handle).state.is_final
        (place.folder / "go").touch()
        assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
        assert place.of_key("slow_key.build", key) == [(older, 1), (later, 1), (later, 2)]
