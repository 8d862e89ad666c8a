"""Two machines with a checkout each and one PostgreSQL, and an Airflow for each file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.airflow_suite import Place, until
from tests.e2e.test_cli import Shop
from tests.fake_marquez import FakeMarquez
from tests.services.machine import Machine

ROOT = Path(__file__).parents[2]
PROVIDER = ROOT / "examples" / "airflow_provider"
#: A running Airflow to use instead, started by `scripts/airflow up FOLDER`.
VARIABLE = "LINEAGE_BACKFILL_TEST_AIRFLOW"
#: Where it sends its lineage: a Marquez that tests may write to; without it, to one in memory.
MARQUEZ = "LINEAGE_BACKFILL_TEST_MARQUEZ_URL"


@pytest.fixture(scope="module")
def airflow() -> Iterator[Place]:
    """An Airflow with the DAGs of the tests."""
    given = os.environ.get(VARIABLE)
    with ExitStack() as stack:
        # Not where pytest keeps its folders: PostgreSQL runs as a user of its own, and the next
        # pytest of this machine lets only its own user in there.
        folder = Path(
            given or stack.enter_context(tempfile.TemporaryDirectory(prefix="lb-airflow-"))
        )
        folder.chmod(folder.stat().st_mode | 0o011)
        (folder / "dags").mkdir(exist_ok=True)
        shutil.copy(Path(__file__).with_name("airflow_dags.py"), folder / "dags")
        nightly = (PROVIDER / "dags" / "nightly.py").read_text().replace("retries=2", "poll=1")
        # Only the runs of the test: one of the last night would repair first what is stale.
        nightly = nightly.replace('schedule="0 3 * * *"', "schedule=None")
        tool = Path(sys.executable).with_name("lineage-backfill")
        nightly = nightly.replace('"lineage-backfill"', repr(str(tool)))
        (folder / "dags" / "nightly.py").write_text(nightly)
        package = "lineage_backfill_airflow"
        shutil.copytree(PROVIDER / package, folder / "plugins" / package, dirs_exist_ok=True)
        if not given:
            script = ROOT / "scripts" / "airflow"
            down = partial(subprocess.run, [script, "down", folder], check=True, timeout=120)
            stack.callback(down)
            marquez = os.environ.get(MARQUEZ) or stack.enter_context(FakeMarquez().serve())
            (folder / "marquez").write_text(marquez)
            env = {**os.environ, "MARQUEZ_URL": marquez}
            subprocess.run([script, "up", folder], check=True, timeout=600, env=env)
        place = Place((folder / "address").read_text().strip(), folder)
        until(lambda: place.ask("GET", "/dags?limit=100")["total_entries"] >= 41, 120)
        yield place


@pytest.fixture
def machine(tmp_path: Path, postgres_url: str) -> Iterator[Callable[..., Machine]]:
    """Makes a machine with a checkout of the shop; what was started there ends with the test."""
    with ExitStack() as stack:

        def make(name: str, *, store: str = postgres_url, ahead: int = 0) -> Machine:
            folder = tmp_path / name
            folder.mkdir()
            Shop(folder)
            text = (folder / "lineage-backfill.toml").read_text()
            named = text.replace("[project]", '[project]\nname = "shop"', 1)
            shared = named.replace('location = "data/', 'location = "/lake/')
            (folder / "lineage-backfill.toml").write_text(shared)
            made = Machine(name, folder, store, ahead=ahead)
            stack.callback(made.end)
            return made

        yield make
