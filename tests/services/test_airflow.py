"""A real Airflow: what the engine promises, and what only the real one can show."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from lineage_backfill.errors import EngineError
from lineage_backfill.model import JobRef
from lineage_backfill.ports import AttemptState
from tests.airflow_suite import CHANGES, DAYS, AirflowSuite, Desk, Place, until
from tests.sampling import is_run


class TestAirflow(AirflowSuite):
    """The promises, on the real one."""

    arrivals = (True,)
    #: Both clock changes; with `--thorough`, all days.
    days = tuple(day for day in DAYS if is_run(0 if day in CHANGES else 1, every=2))

    @pytest.fixture
    def place(self, airflow: Place) -> Place:
        return airflow

    def test_a_scheduled_run_is_cleared(self, place: Place, desk: Desk) -> None:
        hour, run = datetime(2026, 1, 1, tzinfo=UTC), "scheduled__2026-01-01T01:00:00+00:00"
        until(lambda: place.started("scheduled.build", hour))
        until(lambda: place.state("scheduled", run) == "success")
        before = place.started("scheduled.build", hour)
        state = desk.run("scheduled.build", hour, kind="interval")
        assert state is AttemptState.SUCCEEDED
        *earlier, last = place.started("scheduled.build", hour)
        assert earlier == before
        assert (last["run"], last["try"]) == (run, before[-1]["try"] + 1)

    def test_each_shape_of_a_dag_runs_what_is_wanted_once(self, place: Place, desk: Desk) -> None:
        """Created and then cleared: groups, branches, trigger rules."""
        hours = [place.fresh() for _ in range(3)]
        wanted = {
            "grouped.g.b": hours[:1],
            "branching.left": hours[1:2],
            "late.b": hours[:1],
            "single.build": hours,
        }
        begun = len(place.journal())

        for number in (1, 2):
            engine = desk.engine()
            desk.backfill = f"b-{uuid4().hex[:8]}"
            handles = [
                desk.submit(engine, desk.spec(job, hour))
                for job, of in wanted.items()
                for hour in of
            ]
            for handle in handles:
                assert desk.wait(engine, handle) is AttemptState.SUCCEEDED, engine.poll(handle)
            # The whole DAG runs once, then exactly what is wanted.
            expected = {(job, str(hour)): number for job, of in wanted.items() for hour in of}
            lines = [one for one in place.journal()[begun:] if one["start"] in map(str, hours)]
            found = Counter((one["task"], one["start"]) for one in lines)
            assert {name: found[name] for name in expected} == expected
            assert {count for name, count in found.items() if name not in expected} <= {1}

    def test_a_consumer_that_airflow_does_not_start_in_time_fails_by_name(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        """Airflow notes no event for a paused consumer, so it would be ours to start."""
        engine = desk.engine()
        above, own = desk.spec("three.b", hour), desk.whole("follower.read")
        desk.check(engine, above, own)
        place.ask("PATCH", "/dags/follower", {"is_paused": True})
        try:
            assert desk.wait(engine, desk.submit(engine, above)) is AttemptState.SUCCEEDED
            with pytest.raises(EngineError, match="DAG follower is paused"):
                desk.submit(engine, own)
        finally:
            place.ask("PATCH", "/dags/follower", {"is_paused": False})

    def test_what_a_branch_of_the_dag_skips_is_a_failure(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        place.start("branching", hour, run := f"theirs-{uuid4().hex}")
        until(lambda: place.state("branching", run) == "success")
        assert not place.started("branching.right", hour)
        engine = desk.engine()
        handle = desk.submit(engine, desk.spec("branching.right", hour))
        assert desk.wait(engine, handle) is AttemptState.FAILED
        assert engine.poll(handle).error == "task right is skipped after try 0"
        assert desk.run("branching.left", hour) is AttemptState.SUCCEEDED
        assert len(place.started("branching.left", hour)) == 2

    def test_a_dag_that_cannot_be_imported_is_refused(self, place: Place, desk: Desk) -> None:
        file = place.folder / "dags" / "broken.py"
        good = "from airflow.sdk import DAG\nfrom airflow.providers.standard.operators.empty import"
        good += " EmptyOperator\nwith DAG('broken', is_paused_upon_creation=False):"
        good += " EmptyOperator(task_id='build')\n"
        try:
            file.write_text(good)
            until(lambda: place.ask("GET", "/dags?dag_id_pattern=broken")["total_entries"])
            file.write_text(f"{good}raise ValueError('no such module')\n")
            until(lambda: place.ask("GET", "/dags/broken")["has_import_errors"])
            with pytest.raises(EngineError, match="DAG broken cannot be imported") as refused:
                desk.engine().live(JobRef("n", "broken.build"))
            assert refused.value.hint == "Check Airflow's import errors."
        finally:
            file.unlink(missing_ok=True)

    def test_a_run_without_a_slice_of_its_own_is_known_by_its_conf(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        assert desk.run("follower.read", hour, kind="conf") is AttemptState.SUCCEEDED
        key = f"{hour:%Y-%m-%dT%H}"
        lines = [one["conf"].get("lineage_backfill", {}) for one in place.journal()]
        assert [one.get("key") for one in lines].count(key) == 1
