"""A run spec as the executor writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """A whole run spec with two inputs, one of them not needed."""
    return {
        "schema_version": 1,
        "backfill_id": "b-1",
        "run_id": "r-1",
        "attempt": 1,
        "token": "t-1",
        "job": {"namespace": "n", "name": "days", "entrypoint": "jobs:days"},
        "partitions": ["2024-01-01"],
        "keys": [
            {"key": "2024-01-01", "start": "2024-01-01T05:00:00Z", "end": "2024-01-02T05:00:00Z"}
        ],
        "outputs": [
            {
                "dataset": {"namespace": "n", "name": "days"},
                "format": "delta",
                "location": str(tmp_path / "days"),
                "columns": ["day"],
                "scope": [{"key": "2024-01-01", "values": {"day": "2024-01-01"}}],
                "mode": "overwrite",
                "on_empty": "clear",
            }
        ],
        "inputs": [
            {
                "dataset": {"namespace": "n", "name": "hours"},
                "format": "delta",
                "location": str(tmp_path / "hours"),
                "columns": ["hour"],
                "partitions": [{"key": "2024-01-01T05", "values": {"hour": "2024-01-01T05"}}],
                "version": None,
            },
            {
                "dataset": {"namespace": "n", "name": "names"},
                "format": "delta",
                "table": "db.names",
                "columns": [],
                "partitions": "*",
                "version": 3,
            },
        ],
        "parameters": {},
        "lineage": {"outbox": str(tmp_path / "outbox"), "url": None, "facets": {}},
        "result_path": str(tmp_path / "result.json"),
    }
