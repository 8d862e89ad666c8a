"""Runs backfills of lineage-backfill from Airflow."""

from __future__ import annotations

from typing import Any


def provider_info() -> dict[str, Any]:
    """Return what `airflow providers list` shows."""
    return {
        "package-name": "lineage-backfill-airflow",
        "name": "lineage-backfill",
        "description": "Runs backfills, and waits until nothing is stale.",
        "versions": ["0.1.0"],
    }
