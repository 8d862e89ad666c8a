"""The reasons of a plan in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lineage_backfill.cli.terminal import safe
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plan.plan import PlannedJob

Namer = Callable[[DatasetRef | JobRef], str]


def in_words(reason: Mapping[str, Any], names: Namer) -> str:
    return safe(reason.get("text", ""))


def before(job: PlannedJob) -> JobRef | None:
    path = [
        JobRef(hop["job"]["namespace"], hop["job"]["name"])
        for hop in job.reason.get("path", ())
        if hop.get("job")
    ]
    return path[-2] if len(path) > 1 else None
