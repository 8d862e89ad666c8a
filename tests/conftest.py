"""What all tests share: how properties are tried, and a real PostgreSQL for those that want one."""

from __future__ import annotations

from collections.abc import Iterator

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
