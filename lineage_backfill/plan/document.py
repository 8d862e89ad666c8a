"""The plan as a document: what `impact --json` prints and `run plan.json` executes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plan.plan import (
    DatasetPartitions,
    Plan,
    PlannedJob,
    PlannedRun,
)

SCHEMA_VERSION: Final = 1


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return the document of a plan; equal plans give equal documents, member by member."""
    return {"schema_version": SCHEMA_VERSION, "kind": "plan", "id": plan.id, **_body(plan)}


def _body(plan: Plan) -> dict[str, Any]:
    document: dict[str, Any] = {
        "now": plan.now,
        "request": plan.request,
        "lineage": plan.lineage,
        "changed": [_partitions(part) for part in plan.changed],
        "jobs": [_job(job) for job in plan.jobs],
    }
    if plan.runs is not None:
        document["runs"] = [_run(run) for run in plan.runs]
    document["totals"] = dict(plan.totals)
    document["warnings"] = list(plan.warnings)
    return document


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
            lineage=document["lineage"],
            changed=tuple(_read_partitions(part) for part in document["changed"]),
            jobs=tuple(_read_job(job) for job in document["jobs"]),
            runs=tuple(_read_run(run) for run in document["runs"]) if "runs" in document else None,
            totals=document["totals"],
            warnings=tuple(document["warnings"]),
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


def content_id(plan: Plan) -> str:
    """Return `sha256:…` over everything in the plan but its id."""
    text = json.dumps(_body(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _ref(ref: DatasetRef | JobRef) -> dict[str, str]:
    return {"namespace": ref.namespace, "name": ref.name}


def _partitions(part: DatasetPartitions) -> dict[str, Any]:
    keys = "*" if part.keys is None else list(part.keys)
    return {"dataset": _ref(part.dataset), "partitions": keys}


def _job(job: PlannedJob) -> dict[str, Any]:
    return {
        "job": _ref(job.job),
        "status": job.status,
        "level": job.level,
        "partitions": list(job.partitions),
        "count": job.count,
        "left_stale": list(job.left_stale),
        "reason": job.reason,
    }


def _run(run: PlannedRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "job": _ref(run.job),
        "partitions": list(run.partitions),
        "count": run.count,
        "wave": run.wave,
        "upstream": list(run.upstream),
        "engine": run.engine,
        "reads": [_partitions(part) for part in run.reads],
        "writes": [_partitions(part) for part in run.writes],
    }


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
