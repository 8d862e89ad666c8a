"""Every printed document, declared once as a type; JSON Schemas are made from these types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lineage_backfill.show.printed import backfills, checks, lineage, plans, rows
from lineage_backfill.typed import json_schema

#: The type of each document, by its kind.
DOCUMENTS: Mapping[str, Any] = {
    "audit": backfills.Audit,
    "config": checks.Config,
    "config_in_force": checks.ConfigInForce,
    "config_check": checks.ConfigCheck,
    "doctor": checks.Doctor,
    "explanation": plans.Explanation,
    "graph": lineage.Graph,
    "history": backfills.History,
    "lineage": lineage.Lineage,
    "lineage_pull": lineage.LineagePull,
    "notification": backfills.Notification,
    "partitions": checks.Partitions,
    "plan": plans.Plan,
    "report": backfills.Report,
    "rows": rows.Rows,
    "run": backfills.RunPage,
    "saved_plans": backfills.SavedPlans,
    "serve": checks.Serve,
    "stale": checks.Stale,
    "status": backfills.Status,
}


def schema_of(kind: str, *, closed: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document; `closed` allows no other members."""
    return json_schema(DOCUMENTS[kind], DOCUMENTS[kind].__doc__, closed=closed)
