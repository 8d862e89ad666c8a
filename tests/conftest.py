"""What all tests of a process share: a cache folder, one Spark session, a real PostgreSQL."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings

from lineage_backfill.errors import EnvironmentMissingError
from spark_runtime.session import jars_folder
from tests import postgres
from tests.sessions import INTERPRETED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Whether a property holds must not depend on how busy the machine is.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

_TESTS = Path(__file__).parent
_SPARK = _TESTS / "spark"
#: What takes long and cannot be divided comes first; many short tests even out the end.
_FOLDERS = ("spark", "e2e", "chaos", "contract", "unit")
_FIRST = ("e2e/test_demo.py", "e2e/test_spark_submit.py")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with a Spark session, and say which tests one process runs together."""
    # PySpark leaves the sockets of `collect()` to the garbage collector.
    ignored = (
        "ignore:unclosed <socket:ResourceWarning",
        "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
    )
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or item.path.is_relative_to(_SPARK):
            item.add_marker(pytest.mark.spark)
            for warning in ignored:
                item.add_marker(pytest.mark.filterwarnings(warning))
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_turn)


def _group(item: pytest.Item) -> str:
    """All tests of the one session together; else those of a file, whose fixtures they share."""
    shares_session = "spark" in getattr(item, "fixturenames", ())
    return "spark" if shares_session else item.path.relative_to(_TESTS).as_posix()


def _turn(item: pytest.Item) -> tuple[bool, bool, int]:
    place = item.path.relative_to(_TESTS)
    return (
        _group(item) != "spark",
        place.as_posix() not in _FIRST,
        _FOLDERS.index(place.parts[0]) if place.parts[0] in _FOLDERS else len(_FOLDERS),
    )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session, on two threads."""
    from spark_runtime.session import get_session

    warehouse = tmp_path_factory.mktemp("warehouse")
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
