"""A real Airflow: what the engine promises, and what only the real one can show."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lineage_backfill.ports import AttemptState, Origin
from tests.airflow_suite import DAY, AirflowSuite, Desk, Place, planned, until

ROOT = Path(__file__).parents[2]
#: A running one to use instead, started by `scripts/airflow up FOLDER`.
VARIABLE = "LINEAGE_BACKFILL_TEST_AIRFLOW"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An Airflow with the DAGs of the tests."""
    given = os.environ.get(VARIABLE)
    folder = Path(given) if given else tmp_path_factory.mktemp("airflow")
    for path in (folder, *folder.parents[:3]):
        path.chmod(path.stat().st_mode | 0o011)  # PostgreSQL runs as a user of its own
    (folder / "dags").mkdir(exist_ok=True)
    shutil.copy(Path(__file__).with_name("airflow_dags.py"), folder / "dags")
    script = str(ROOT / "scripts" / "airflow")
    try:
        if not given:
            subprocess.run([script, "up", str(folder)], check=True, timeout=600)
        place = Place((folder / "address").read_text().strip(), folder)
        until(lambda: place.ask("GET", "/dags?limit=100")["total_entries"] >= 12, 120)
        yield place
    finally:
        if not given:
            subprocess.run([script, "down", str(folder)], check=True, timeout=120)


def test_a_fix_is_backfilled_through_airflow(airflow: Place) -> None:
    """The worked example: planned from lineage, run by the command line, tables compared."""
    environment = {name: value for name, value in os.environ.items() if name != "MARQUEZ_URL"}
    story = ROOT / "docs" / "examples" / "airflow" / "story.py"
    told = subprocess.run(
        [sys.executable, story, airflow.folder],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Stale partitions: 0" in told.stdout
    assert "Airflow ran 13 tasks for 13 partitions, each once" in told.stdout


class TestAirflow(AirflowSuite):
    """The promises, on the real one."""

    hold = 6
    arrivals = (True,)

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

    def test_a_logical_date_is_that_of_the_key_and_a_length_of_time(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        for _ in range(2):
            state = desk.run("plain.build", hour, kind="logical_date + 5h")
            assert state is AttemptState.SUCCEEDED
        assert len(place.started("plain.build", hour + timedelta(hours=5))) == 2

    def test_a_partition_key_has_one_run_and_its_consumer_is_adopted(
        self, place: Place, desk: Desk
    ) -> None:
        engine, key = desk.engine(), f"2026-10-{1 + len(place.journal()) % 28:02}"
        first = desk.spec("parted.build", DAY, key=key)
        producer = desk.submit(engine, first)
        assert desk.wait(engine, producer) is AttemptState.SUCCEEDED
        second = desk.spec("reader.build", DAY, key=key)
        above, own = (path.name.partition("-")[0] for path in (first, second))
        run = replace(planned("reader.build"), id=own, upstream=(above,))
        engine.check([run], lambda _run: json.loads(second.read_text()))
        consumer = desk.submit(engine, second)
        assert desk.wait(engine, consumer) is AttemptState.SUCCEEDED
        made, adopted = engine.identify(producer), engine.identify(consumer)
        assert made is not None
        assert adopted is not None
        assert (made.origin, adopted.origin) == (Origin.CREATED, Origin.ADOPTED)
        assert made.also_started == (adopted.id,)
        readers = [one for one in place.journal() if one["task"] == "reader.build"]
        assert [one["try"] for one in readers if one["key"] == key] == [1]
        again = desk.spec("parted.build", DAY, key=key)
        assert desk.wait(engine, desk.submit(engine, again)) is AttemptState.SUCCEEDED
        lines = [(one["task"], one["run"]) for one in place.journal() if one["key"] == key]
        producers = [run for task, run in lines if task == "parted.build"]
        assert len(producers) == 2
        assert len(set(producers)) == 1

    def test_a_rollup_is_adopted_where_airflow_starts_it_and_else_cleared(
        self, place: Place, desk: Desk
    ) -> None:
        """Two hours of a day start the DAG `eager`, and all 24 would start `rollup`."""
        engine = desk.engine()
        hourly = desk.engine(kind="partition_key %Y-%m-%dT%H:%M:%S")
        at = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=len(place.journal()))
        key = f"{at:%Y-%m-%d}"

        def repaired(hours: int) -> tuple[str, ...]:
            specs = [desk.spec("hourly.build", at, key=f"{key}T{hour:02}") for hour in range(hours)]
            for spec in specs:
                handle = desk.submit(hourly, spec)
                assert desk.wait(hourly, handle) is AttemptState.SUCCEEDED
            return tuple(path.name.partition("-")[0] for path in specs)

        def rolled_up(job: str, above: tuple[str, ...]) -> Origin:
            path = desk.spec(job, at, key=key)
            run = replace(planned(job), id=path.name.partition("-")[0], upstream=above)
            engine.check([run], lambda _run: json.loads(path.read_text()))
            handle = desk.submit(engine, path)
            assert desk.wait(engine, handle) is AttemptState.SUCCEEDED
            found = engine.identify(handle)
            assert found is not None
            return found.origin

        above = repaired(2)
        assert rolled_up("eager.build", above) is Origin.ADOPTED
        assert rolled_up("rollup.build", above) is Origin.CREATED
        above = repaired(1)
        assert rolled_up("eager.build", above) is Origin.RERUN
        assert rolled_up("rollup.build", above) is Origin.RERUN
        for job in ("eager.build", "rollup.build"):
            first, second = place.of_key(job, key)
            assert (first[1], second) == (1, (first[0], 2))

    def test_a_run_without_a_slice_of_its_own_is_known_by_its_conf(
        self, place: Place, desk: Desk, hour: datetime
    ) -> None:
        assert desk.run("follower.read", hour, kind="conf") is AttemptState.SUCCEEDED
        key = f"{hour:%Y-%m-%dT%H}"
        lines = [one["conf"].get("lineage_backfill", {}) for one in place.journal()]
        assert [one.get("key") for one in lines].count(key) == 1
