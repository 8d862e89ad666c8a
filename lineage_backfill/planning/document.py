"""The plan as a document: what `impact --json` prints and `run plan.json` executes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.plan import (
    DatasetPartitions,
    Listed,
    Plan,
    PlannedJob,
    PlannedRun,
)

SCHEMA_VERSION: Final = 1


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return the document of a plan; equal plans give equal documents, member by member."""
    return {"schema_version": SCHEMA_VERSION, "kind": "plan", "id": plan.id, **plan.body()}


def plan_from_dict(document: Any) -> Plan:
    """Return the plan of a document; raises UsageError where it is none, or was changed by hand."""
    if not isinstance(document, Mapping) or document.get("kind") != "plan":
        raise UsageError("this is no plan", hint="make one with `lineage-backfill impact … --out`")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"the plan has schema version {version}, this program reads {SCHEMA_VERSION}",
            hint="make the plan anew with this version",
        )
    try:
        plan = Plan(
            now=document["now"],
            request=document["request"],
            changed=tuple(_read_partitions(part) for part in document["changed"]),
            totals=document["totals"],
            limits=document.get("limits", {}),
            warnings=tuple(document["warnings"]),
            details=Listed(
                jobs=tuple(_read_job(job) for job in document["jobs"]),
                runs=tuple(map(_read_run, document["runs"])) if "runs" in document else None,
                lineage=document["lineage"],
            ),
        )
        given = document["id"]
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"the plan cannot be read: {type(error).__name__} {error}", hint="make it anew"
        ) from None
    if plan.id != given:
        raise UsageError(
            "the plan does not match its own content hash: it was changed after it was made",
            hint="make it anew; a plan is not edited by hand",
        )
    return plan


def _read_dataset(part: Mapping[str, str]) -> DatasetRef:
    return DatasetRef(part["namespace"], part["name"])


def _read_partitions(part: Mapping[str, Any]) -> DatasetPartitions:
    keys = part["partitions"]
    return DatasetPartitions(
        dataset=_read_dataset(part["dataset"]), keys=None if keys == "*" else tuple(keys)
    )


def _read_job(part: Mapping[str, Any]) -> PlannedJob:
    return PlannedJob(
        job=JobRef(part["job"]["namespace"], part["job"]["name"]),
        status=part["status"],
        level=part["level"],
        partitions=tuple(part["partitions"]),
        count=part["count"],
        left_stale=tuple(part["left_stale"]),
        reason=part["reason"],
    )


def _read_run(part: Mapping[str, Any]) -> PlannedRun:
    return PlannedRun(
        id=part["id"],
        job=JobRef(part["job"]["namespace"], part["job"]["name"]),
        partitions=tuple(part["partitions"]),
        count=part["count"],
        wave=part["wave"],
        upstream=tuple(part["upstream"]),
        engine=part["engine"],
        reads=tuple(_read_partitions(part) for part in part["reads"]),
        writes=tuple(_read_partitions(part) for part in part["writes"]),
    )
