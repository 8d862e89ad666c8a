"""What all tests share: how properties are tried, a cache folder, and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings

from tests import postgres

# Whether a property holds must not depend on how busy the machine is.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


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
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder))
        yield folder
