"""What tests of runs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore


@pytest.fixture
def new_store() -> Iterator[Callable[[], SqlRunStore]]:
    """Makes run stores in memory, and closes them after the test."""
    made: list[SqlRunStore] = []

    def make() -> SqlRunStore:
        made.append(SqlRunStore(IN_MEMORY))
        return made[-1]

    yield make
    for store in made:
        store.close()
