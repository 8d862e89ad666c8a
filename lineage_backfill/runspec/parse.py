"""Run specs and result files are read whole or refused with the place that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from lineage_backfill.errors import SpecError
from lineage_backfill.model import DatasetRef
from lineage_backfill.project.locations import shared_place
from lineage_backfill.runspec.values import SCHEMA_VERSION, RunResult, RunSpec
from lineage_backfill.typed import JSON, read


def parse_spec(document: object) -> RunSpec:
    """Return the run spec that a JSON document holds; raises SpecError naming the place."""
    version = document.get("schema_version") if isinstance(document, Mapping) else SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        raise SpecError(
            f"run spec: schema_version is {version}, this runtime reads {SCHEMA_VERSION}",
            hint="Install the same release of lineage-backfill on both sides.",
        )
    spec = read(RunSpec, document, "run spec", style=JSON, fault=SpecError, strict_null=True)
    refuse_shared_place(spec)
    return spec


def refuse_shared_place(spec: RunSpec) -> None:
    """Raise SpecError if two datasets of a run lie at one place."""
    places: dict[str, DatasetRef] = {}
    for one in (*spec.outputs, *spec.inputs):
        place = one.location or one.table or ""
        if (other := places.setdefault(place, one.dataset)) != one.dataset:
            text, hint = shared_place(place, other, one.dataset)
            raise SpecError(text, hint=hint)


def check_result(document: object) -> Mapping[str, Any]:
    """Return the document of a result file; raises SpecError naming the place that is wrong.

    Members that are not known here are allowed: other programs write result files, too.
    """
    read(
        RunResult,
        document,
        "result file",
        style=JSON,
        fault=SpecError,
        unknown=[],
        strict_null=True,
    )
    return cast("Mapping[str, Any]", document)
