"""What all tests of a process share: a cache folder, one Spark session, a real PostgreSQL."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from lineage_backfill import redaction
from lineage_backfill.errors import EnvironmentMissingError
from spark_runtime.session import jars_folder
from tests import postgres, sampling
from tests.connect import server
from tests.sessions import INTERPRETED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Whether a property holds must not depend on how busy the machine is.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

_TESTS = Path(__file__).parent
_SPARK = _TESTS / "spark"
#: What takes long and cannot be divided comes first; many short tests even out the end.
_FOLDERS = ("spark", "e2e", "chaos", "contract", "corpus", "unit", "services")
#: Folders whose tests are slow, except those marked `core`.
_SLOW = ("spark", "e2e", "chaos")
_FIRST = ("e2e/test_demo.py", "e2e/test_spark_cluster.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what runs all cases of long lists."""
    parser.addoption("--thorough", action="store_true", help="run all cases of long lists")
    parser.addoption(
        "--connect", action="store_true", help="let the session be one of Spark Connect"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell the long lists how much of them is run."""
    sampling.configure(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with a Spark session and slow ones; order what one process runs together."""
    # PySpark leaves the sockets of `collect()` to the garbage collector.
    ignored = (
        "ignore:unclosed <socket:ResourceWarning",
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
    )
    connects = bool(items) and items[0].config.getoption("--connect")
    for item in items:
        if connects and item.get_closest_marker("classic"):
            item.add_marker(pytest.mark.skip(reason="only of a driver with a JVM"))
        if item.path.relative_to(_TESTS).parts[0] in _SLOW and not item.get_closest_marker("core"):
            item.add_marker(pytest.mark.slow)
        if "spark" in getattr(item, "fixturenames", ()) or item.path.is_relative_to(_SPARK):
            item.add_marker(pytest.mark.spark)
            for warning in ignored:
                item.add_marker(pytest.mark.filterwarnings(warning))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, int]:
    place = item.path.relative_to(_TESTS)
    name, folder = place.as_posix(), place.parts[0]
    first = len(_FIRST) if name not in _FIRST else _FIRST.index(name)
    half = _spark_half(name)
    return half - 2 if half is not None else first, _FOLDERS.index(folder)


def _spark_half(file: str) -> int | None:
    """Return in which half of the Spark tests a file is, by its path below this folder.

    The tests of a half share one session; None for files that need none.
    """
    chaos = ("chaos/test_schedules.py", "chaos/test_spark_kills.py")
    if not file.startswith("spark/") and file not in chaos:
        return None
    return int(file >= "spark/test_merge.py")


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives a process half of the Spark tests, or those of a file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0].removeprefix("tests/")
        half = _spark_half(file)
        return file if half is None else f"spark {half}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Return what divides the suite between two processes."""
    return _Scheduling(config, log)


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SparkSession]:
    """The one session, on two threads."""
    from spark_runtime.session import get_session

    warehouse = tmp_path_factory.mktemp("warehouse")
    if pytestconfig.getoption("--connect"):
        with server(warehouse, INTERPRETED) as one:
            session = get_session({"spark.master": one.address})
            yield session
            session.stop()
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session = get_session(
            {
                "spark.master": "local[2]",
                "spark.sql.warehouse.dir": str(warehouse),
                **INTERPRETED,
            }
        )
    except EnvironmentMissingError as error:
        pytest.fail(str(error))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[sa.URL]:
    """A PostgreSQL that this run of the tests has for itself, or the one given."""
    with postgres.server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: sa.URL) -> Iterator[str]:
    """The address of an empty schema."""
    with postgres.schema(postgres_server) as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this run of the tests, and what it starts, keeps what users keep in their cache."""
    folder = tmp_path_factory.mktemp("cache")
    jars = jars_folder()
    here = folder / jars.relative_to(jars.parents[1])
    here.parent.mkdir()
    here.symlink_to(jars)  # they are fetched once, and not by tests
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def secrets_of_its_own() -> Iterator[None]:
    """Forget the secrets that a test has told this process, which masks them in all texts."""
    yield
    redaction.forget()
