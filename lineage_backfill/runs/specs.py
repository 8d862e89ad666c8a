"""From planned runs to run specs: the JSON that a Spark job is told what to do by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef, named
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import Key, KeySet, expand, parse
from lineage_backfill.planning.plan import DatasetPartitions, PlannedRun
from lineage_backfill.planning.resolver import Resolver
from lineage_backfill.project import facets
from lineage_backfill.project.columns import (
    PhysicalColumns,
    physical_columns,
    physical_values,
    repeated,
)
from lineage_backfill.project.declarations import WriteDeclaration

SCHEMA_VERSION = 1


class RunSpecs:
    """Makes the run specs of one plan; `resolver` says what keys meant when it was made.

    `root` is the folder that relative locations start from, `outbox` the folder for lineage
    events, `lineage_url` an endpoint to send them to.
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        backfill_id: str,
        root: Path,
        outbox: Path | None = None,
        lineage_url: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._resolver = resolver
        self._backfill_id = backfill_id
        self._root = root
        self._outbox = outbox
        self._url = lineage_url
        self._parameters = dict(parameters or {})

    def __call__(
        self, run: PlannedRun, attempt: int, token: str, result_path: Path
    ) -> dict[str, Any]:
        """Return the run spec of one attempt; raises DeclarationError where a table is unknown."""
        resolver = self._resolver
        declared = resolver.job_declaration(run.job)
        calendar = resolver.job(run.job).calendar
        if calendar is None or declared is None or declared.entrypoint is None:
            raise DeclarationError(
                f"job {run.job} has no entrypoint",
                hint='declare it: [[job]] entrypoint = "package.module:function"',
            )
        keys = list(expand(calendar, parse(calendar, run.partitions)))
        writes = {write.dataset: write for write in declared.writes}
        return {
            "schema_version": SCHEMA_VERSION,
            "backfill_id": self._backfill_id,
            "run_id": run.id,
            "attempt": attempt,
            "token": token,
            "job": {**named(run.job), "entrypoint": declared.entrypoint},
            "partitions": list(run.partitions),
            "keys": [_run_key(key) for key in keys],
            "outputs": [self._output(part, writes.get(part.dataset.name)) for part in run.writes],
            "inputs": [self._input(part) for part in run.reads],
            "parameters": self._parameters,
            "lineage": {
                "outbox": str(self._outbox) if self._outbox else None,
                "url": self._url,
                "facets": self._facets(run),
            },
            "result_path": str(result_path),
        }

    def _output(self, part: DatasetPartitions, write: WriteDeclaration | None) -> dict[str, Any]:
        write = write or WriteDeclaration(dataset=part.dataset.name)
        scope = self._values(part.dataset, part.keys or ("*",))
        table = self._table(part.dataset)
        if write.mode == "overwrite":
            self._refuse_repeated(part.dataset, part.keys or ("*",))
        return {
            **table,
            "scope": scope,
            "mode": write.mode,
            "on_empty": write.on_empty,
            "on_drift": write.on_drift,
        }

    def _refuse_repeated(self, dataset: DatasetRef, keys: KeySet) -> None:
        """Refuse to replace a partition that holds an hour of which the clock shows two."""
        calendar, columns = self._stored(dataset)
        if found := repeated(calendar, columns, parse(calendar, keys)):
            raise DeclarationError(
                f"{' and '.join(found)} of {dataset} are one partition of its table: one of them "
                "cannot be replaced without the other",
                hint=f"store the key itself, with its offset: column = {next(iter(columns))!r}",
            )

    def _input(self, part: DatasetPartitions) -> dict[str, Any]:
        keys = "*" if part.keys is None else self._values(part.dataset, part.keys)
        return {**self._table(part.dataset), "partitions": keys, "version": None}

    def _table(self, dataset: DatasetRef) -> dict[str, Any]:
        declared = self._resolver.dataset_declaration(dataset)
        if declared is None or (declared.location is None and declared.table is None):
            raise DeclarationError(
                f"where dataset {dataset} is stored is not declared",
                hint=f"declare it: [[dataset]] name = {dataset.name!r} and its location or table",
            )
        where: dict[str, str] = {}
        if declared.table is not None:
            where["table"] = declared.table
        elif declared.location is not None:
            location = declared.location
            remote = "://" in location
            where["location"] = location if remote else str((self._root / location).resolve())
        return {
            "dataset": named(dataset),
            "format": declared.format or "delta",
            **where,
            "columns": list(physical_columns(declared)),
        }

    def _values(self, dataset: DatasetRef, keys: KeySet) -> list[dict[str, Any]]:
        """Return each key with the text of its physical partition columns."""
        calendar, columns = self._stored(dataset)
        return [
            {"key": key.label, "values": physical_values(key, columns)}
            for key in expand(calendar, parse(calendar, keys))
        ]

    def _stored(self, dataset: DatasetRef) -> tuple[Calendar, PhysicalColumns]:
        """Return the calendar and the physical partition columns of a dataset."""
        calendar = self._resolver.calendar(dataset)
        declared = self._resolver.dataset_declaration(dataset)
        if calendar is None or declared is None:
            raise DeclarationError(
                f"the partitioning of {dataset} is unknown", hint="declare it in the project file"
            )
        columns = physical_columns(declared)
        if not calendar.is_whole and not columns:
            raise DeclarationError(
                f"dataset {dataset} is partitioned, and its physical columns are not declared",
                hint='declare them: columns = { ds = "%Y-%m-%d" }',
            )
        return calendar, columns

    def _facets(self, run: PlannedRun) -> dict[str, Any]:
        """Return the partitioning facets that the job sends with its lineage."""
        zone = self._resolver.declarations.zone
        datasets = []
        for ref in {part.dataset: None for part in (*run.reads, *run.writes)}:
            declared = self._resolver.dataset_declaration(ref)
            sent = facets.dataset_facet(declared, zone) if declared else {}
            if sent:
                datasets.append({"dataset": named(ref), "partitioning": sent})
        job = self._resolver.job_declaration(run.job)
        return {
            "datasets": datasets,
            "job": {"partitioning": facets.job_facet(job, zone)} if job else {},
        }


def _run_key(key: Key) -> dict[str, Any]:
    found: dict[str, Any] = {"key": key.label}
    if key.start is not None and key.end is not None:
        found["start"] = key.start.isoformat().replace("+00:00", "Z")
        found["end"] = key.end.isoformat().replace("+00:00", "Z")
    return found
