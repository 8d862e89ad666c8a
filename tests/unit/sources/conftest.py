"""What the tests of lineage sources share."""

from __future__ import annotations

import pytest

from lineage_backfill.sources.marquez import api


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a server that contradicts itself as often as always, without pauses."""
    monkeypatch.setattr(api, "_PAUSES", (0.0,) * len(api._PAUSES))
