"""Compares rows of a partition before and after a backfill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lineage_backfill.errors import (
    AmbiguousNameError,
    TableLogError,
    UnknownNameError,
)
from lineage_backfill.model import DatasetRef
from lineage_backfill.ports import AttemptState
from lineage_backfill.project.declarations import DatasetDeclaration, Declarations
from lineage_backfill.project.matching import DeclaredNames
from lineage_backfill.runspec.values import ProductKey
from lineage_backfill.sources.table_logs import DeltaTableLogs
from lineage_backfill.workspace.backfills import Backfills, find
from lineage_backfill.workspace.environment import spark_conf
from lineage_backfill.workspace.workspace import Workspace

#: How many rows of each kind are shown.
SAMPLE = 10


def compare_rows(workspace: Workspace, backfill: str | None, named: str) -> dict[str, Any]:
    """Return the document of the rows that a backfill changed in one partition, DATASET@KEY.

    The key may be omitted if it rewrote only one. Spark reads the table. Raises UnknownNameError,
    AmbiguousNameError, or TableLogError if the versions cannot be compared.
    """
    with workspace.open_store() as store:
        id_ = find(store, backfill).id
        attempts = sorted(store.attempts(id_), key=lambda one: one.submitted_at)
    written = [
        (attempt, output, part)
        for attempt in attempts
        if attempt.state is AttemptState.SUCCEEDED and attempt.result
        for output, part in _named(attempt.result, named)
    ]
    if not written:
        raise UnknownNameError(
            f"{id_} rewrote no partition of {named}",
            hint="Write it as DATASET@KEY; `report` lists what it rewrote.",
        )
    (_, first, _), (attempt, last, part) = written[0], written[-1]
    meant = {(*one["dataset"].values(), _text(two["key"])) for _, one, two in written}
    if len(meant) > 1:
        raise AmbiguousNameError(
            f"{id_} rewrote {len(meant)} partitions of {named}",
            hint=f"Name one: --rows {first['dataset']['name']}@{min(meant)[2]}",
        )
    spec = Backfills(workspace).attempt_spec(id_, attempt.run_id, attempt.attempt)
    (place,) = (one for one in spec["outputs"] if one["dataset"] == last["dataset"])
    if place["format"] != "delta" or not place.get("location") or last.get("version") is None:
        raise TableLogError(
            f"the versions of {named} cannot be compared",
            hint="Only Delta tables with a declared `location` can be compared.",
        )
    declarations = workspace.project.declarations
    how = _how(declarations, DatasetRef(**last["dataset"]))
    scope = (one["values"] for one in place.get("scope") or () if one["key"] == part["key"])
    values: Mapping[str, str | None] = next(scope, {})
    found = DeltaTableLogs(conf={**workspace.project.spark, **spark_conf(declarations)}).rows(
        {
            "location": place["location"],
            "before": first["version_before"],
            "after": last["version"],
            "partitions": [values],
            "scoped_by": place.get("scoped_by"),
            "time_format": place.get("time_format"),
            **how,
        }
    )
    if part.get("rows") not in (None, found["rows_after"]):
        raise TableLogError(
            f"version {last['version']} of {named} has {found['rows_after']} rows, and the run"
            f" wrote {part['rows']}",
            hint="The table was recreated since then: this version cannot be compared.",
        )
    output = {"dataset": last["dataset"], "partitions": [_text(part["key"])], **found}
    output |= {"version_before": first["version_before"], "version": last["version"]}
    output["masked"] = how["mask"]
    return {"schema_version": 1, "kind": "rows", "backfill": id_, "outputs": [output]}


def _how(declarations: Declarations, ref: DatasetRef) -> dict[str, Any]:
    """Return how the rows of a dataset are compared: its declared key and masked columns."""
    found = DeclaredNames(declarations).datasets.find(ref) or DatasetDeclaration(name=ref.name)
    return {"row_key": list(found.row_key), "mask": list(found.mask), "most": SAMPLE}


def _named(
    result: Mapping[str, Any], named: str
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the outputs and partitions of a result with this name."""
    for output in result.get("outputs", ()):
        ref = DatasetRef(**output["dataset"])
        for part in output["partitions"]:
            for name in (ref.name, str(ref)):
                if named in (name, f"{name}@{_text(part['key'])}"):
                    yield output, part


def _text(key: str | Mapping[str, str]) -> str:
    return key if isinstance(key, str) else str(ProductKey(key))
