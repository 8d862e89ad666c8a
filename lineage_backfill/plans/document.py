"""The plan as a document: what `impact --json` prints and `run plan.json` executes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plans.plan import (
    DatasetPartitions,
    Decision,
    Listed,
    Plan,
    PlannedJob,
    PlannedRun,
)

SCHEMA_VERSION: Final = 1


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return a plan as a document; equal plans give equal documents."""
    return {k: list(v) if isinstance(v, Iterator) else v for k, v in plan_members(plan)}


def plan_members(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield the members of a plan's document, with iterators for jobs and runs."""
    yield "schema_version", SCHEMA_VERSION
    yield "kind", "plan"
    yield from plan.with_id()


def plan_from_dict(document: Any, *, only_shown: bool = False) -> Plan:
    """Return the plan of a document; raises UsageError if it is not one or was edited.

    With `only_shown` its hash, which takes half of the time, is not verified, but kept.
    """
    if not isinstance(document, Mapping) or document.get("kind") != "plan":
        raise UsageError(
            "not a plan file", hint="Make one with `lineage-backfill impact … --out FILE`."
        )
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"the plan has schema version {version}, this program reads {SCHEMA_VERSION}",
            hint="Make the plan again with this version.",
        )
    try:
        plan = Plan(
            now=document["now"],
            request=document["request"],
            changed=tuple(_read_partitions(part) for part in document["changed"]),
            totals=document["totals"],
            limits=document.get("limits", {}),
            warnings=tuple(document["warnings"]),
            decisions=tuple(Decision(**one) for one in document.get("decisions", ())),
            details=Listed(
                jobs=tuple(_read_job(job) for job in document["jobs"]),
                runs=tuple(map(_read_run, document["runs"])) if "runs" in document else None,
                lineage=document["lineage"],
            ),
        )
        given = document["id"]
        if only_shown:
            plan.__dict__["id"] = given
        actual = plan.id
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"the plan cannot be read: {type(error).__name__} {error}",
            hint="Make it again with `impact … --out`.",
        ) from None
    if actual != given:
        raise UsageError(
            "the plan does not match its content hash: it was edited",
            hint="Make it again with `impact … --out`; plans cannot be edited.",
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


def _read_run(part: Any) -> PlannedRun:
    return PlannedRun(
        id=part["id"],
        job=JobRef(part["job"]["namespace"], part["job"]["name"]),
        partitions=tuple(part["partitions"]),
        count=part["count"],
        wave=part["wave"],
        upstream=tuple(part["upstream"]),
        engine=part["engine"],
        reads=tuple(map(_read_partitions, part["reads"])),
        writes=tuple(map(_read_partitions, part["writes"])),
    )
