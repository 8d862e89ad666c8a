"""Two machines with a checkout each, and one PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_cli import Shop
from tests.services.machine import Machine


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
