"""A small world with a run store of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lineage_backfill.store.sql import SqlRunStore
from tests.chaos.scenario import Scenario


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty run store, to be copied: making one takes longer than a backfill."""
    path = tmp_path_factory.mktemp("store") / "runs.db"
    SqlRunStore(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def sqlite_url(template: Path, tmp_path: Path) -> str:
    """The address of an empty run store."""
    return f"sqlite:///{shutil.copy(template, tmp_path / 'runs.db')}"


@pytest.fixture
def scenario(sqlite_url: str, tmp_path: Path) -> Scenario:
    """A backfill without Spark that has not begun."""
    return Scenario(tmp_path, sqlite_url)
