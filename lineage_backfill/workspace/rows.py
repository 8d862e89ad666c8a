"""Compares rows of a partition before and after a backfill or a dry run."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lineage_backfill.errors import (
    AmbiguousNameError,
    TableLogError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.files import private_folder
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.partitions.text import KeySet, as_text, in_short, parse
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.ports import AttemptState
from lineage_backfill.project.declarations import SPARK_ENGINES, DatasetDeclaration, Declarations
from lineage_backfill.project.matching import DeclaredNames
from lineage_backfill.project.resolve.resolver import DeclarationResolver
from lineage_backfill.runs.specs import RunSpecs
from lineage_backfill.runspec.values import ProductKey
from lineage_backfill.sources.table_logs import DeltaTableLogs
from lineage_backfill.workspace.backfills import Backfills, find
from lineage_backfill.workspace.environment import spark_conf, state_dir
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
    return _document([{**output, "masked": how["mask"]}], backfill=id_)


def _how(declarations: Declarations, ref: DatasetRef) -> dict[str, Any]:
    """Return how the rows of a dataset are compared: its declared key and masked columns."""
    found = DeclaredNames(declarations).datasets.find(ref) or DatasetDeclaration(name=ref.name)
    return {"row_key": list(found.row_key), "mask": list(found.mask), "most": SAMPLE}


def _document(outputs: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """Return the document of changed rows, of a backfill or of a `dry_run`."""
    head = {"schema_version": 1, "kind": "rows", "backfill": None, "dry_run": None}
    return {**head, **more, "outputs": list(outputs)}


def dry_run(workspace: Workspace, plan: Plan, job: JobRef, keys: KeySet | None) -> dict[str, Any]:
    """Return the document of the rows that one run of a plan would change.

    The run works on this machine, on clones of the Delta tables that it writes, with its inputs as
    they are now. Raises UnknownNameError, AmbiguousNameError, UsageError for a job of another
    engine or one that is not idempotent, or TableLogError if the run fails.
    """
    resolver, declarations = workspace.resolver_of(plan), workspace.project.declarations
    planned = _planned(plan, resolver, job, keys)
    engine = next((one for one in declarations.engines if one.name == planned.engine), None)
    if engine is None or engine.kind not in SPARK_ENGINES:
        raise UsageError(
            f"job {job.name} does not run on Spark, so it cannot run on clones",
            hint=f"Name a job with an engine of kind {' or '.join(SPARK_ENGINES)}.",
        )
    if not workspace.limits_of([planned])[job].idempotent:
        raise UsageError(
            f"job {job.name} is not idempotent: a dry run is a run of it",
            hint="Leave out --dry-run-diff for it.",
        )
    with workspace.open_engines([engine.name]):
        pass  # refuses settings that do not fit
    project, settings = workspace.project, workspace.engine_settings(engine)
    specs = RunSpecs(resolver, backfill_id="dry-run", root=project.root)
    spec = specs(planned, 1, "dry-run", Path(os.devnull))
    written = [DatasetRef(**output["dataset"]) for output in spec["outputs"]]
    how = [_how(declarations, ref) for ref in written]
    logs = DeltaTableLogs(
        conf=settings["conf"],
        command=(settings.get("python", sys.executable), "-m", "spark_runtime"),
    )
    private_folder(state_dir(project))
    with tempfile.TemporaryDirectory(prefix="dry-run-", dir=state_dir(project)) as folder:
        found = logs.rehearse(
            {"spec": spec, "folder": str(Path(folder).resolve()), "rows": how},
            project=project.code,
            env=settings.get("env", {}),
        )
    keys_of = {part.dataset: list(part.keys or ()) for part in planned.writes}
    rewritten = {
        part.dataset for run in plan.runs or () if run.id in planned.upstream for part in run.writes
    }
    first = [named(one.dataset) for one in planned.reads if one.dataset in rewritten]
    run = {"job": named(job), "partitions": list(planned.partitions), "rewritten_first": first}
    clone = {"version_before": None, "version": None}
    outputs = [
        {**output, **clone, "partitions": keys_of[ref], "masked": one["mask"]}
        for output, ref, one in zip(found["outputs"], written, how, strict=True)
    ]
    return _document(outputs, dry_run=run)


def _planned(
    plan: Plan, resolver: DeclarationResolver, job: JobRef, keys: KeySet | None
) -> PlannedRun:
    """Return the run of a plan for a job and keys."""
    runs = [one for one in plan.runs or () if one.job == job]
    calendar = resolver.job(job).calendar
    if keys is not None and calendar is not None:
        wanted = parse(calendar, keys)
        runs = [one for one in runs if parse(calendar, one.partitions) & wanted]
    if not runs:
        raise UnknownNameError(
            f"the plan holds no run of {job.name}" + (f" at {in_short(keys)}" if keys else ""),
            hint=f"See why with --why-not {job.name}.",
        )
    if len(runs) > 1:
        first = as_text(runs[0].partitions[0]).partition("..")[0]
        raise AmbiguousNameError(
            f"the plan holds {len(runs):,} runs of {job.name} there",
            hint=f"Name one key: --dry-run-diff {job.name}@{first}",
        )
    return runs[0]


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
