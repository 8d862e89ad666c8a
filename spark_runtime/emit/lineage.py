"""Emits the lineage of a run: START and one final event, both complete.

Events are written to a file of the outbox (one line each) and, if an address is given, sent from
there over HTTP. No run waits long for that or fails because of it, and no event is lost. Events are
plain JSON, and sent by Python's own library: nothing needs to be installed where a job runs.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from lineage_backfill.model import DatasetRef, named
from lineage_backfill.runspec.values import (
    KEY_COLUMN,
    InputSpec,
    Key,
    OutputResult,
    OutputSpec,
    Partition,
    PartitionResult,
    RunSpec,
    Target,
)
from lineage_backfill.typed import instant_text
from spark_runtime.emit.columns import ColumnLineage, Origin
from spark_runtime.emit.outbox import Sender, append, default_folder
from spark_runtime.tables.scope import Member, Scope
from spark_runtime.tables.state import TableState, total

PRODUCER = "urn:lineage-backfill"
_SPEC = "https://openlineage.io/spec"

_log = logging.getLogger(__name__)
_FILE = f"{time.time_ns()}-{os.getpid()}.ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSeen:
    """An input as the run reads it; `state` is None if it does not exist."""

    spec: InputSpec
    state: TableState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSeen:
    """An output before or after the run; `result` is set once it is written.

    `columns` is its column lineage, None if it is incomplete.
    """

    spec: OutputSpec
    state: TableState | None
    result: OutputResult | None = None
    columns: ColumnLineage | None = None


class Emitter:
    """Emits the events of one run; errors are only logged."""

    def __init__(self, run: RunSpec, started_at: datetime) -> None:
        self._run = run
        self.batch: str | None = None  # how the job batches its keys; the run spec takes precedence
        identity = f"{run.backfill_id}/{run.run_id}/{run.attempt}/{run.token}"
        self._id = str(_run_uuid(started_at, identity))

    def start(self, inputs: Sequence[InputSeen], outputs: Sequence[OutputSeen]) -> None:
        """Emit that the run has started."""
        self._emit("START", inputs, outputs, None)

    def complete(self, inputs: Sequence[InputSeen], outputs: Sequence[OutputSeen]) -> None:
        """Emit that the run has succeeded."""
        self._emit("COMPLETE", inputs, outputs, None)

    def fail(
        self, inputs: Sequence[InputSeen], outputs: Sequence[OutputSeen], message: str
    ) -> None:
        """Emit that the run has failed, and why."""
        self._emit("FAIL", inputs, outputs, message)

    def abort(
        self, inputs: Sequence[InputSeen], outputs: Sequence[OutputSeen], message: str
    ) -> None:
        """Emit that the run was stopped, and by what."""
        self._emit("ABORT", inputs, outputs, message)

    def _emit(
        self,
        kind: str,
        inputs: Sequence[InputSeen],
        outputs: Sequence[OutputSeen],
        message: str | None,
    ) -> None:
        lineage = self._run.lineage
        if lineage.outbox is None and lineage.url is None:
            return
        try:
            line = json.dumps(self._event(kind, inputs, outputs, message), ensure_ascii=False)
            file = (Path(lineage.outbox) if lineage.outbox else default_folder()) / _FILE
            append(file, line)
            if lineage.url is not None:
                _sender(file, lineage.url).send(last=kind != "START")
        except Exception as error:  # noqa: BLE001 (no run fails by its lineage)
            _log.warning("lineage event %s of run %s is lost: %s", kind, self._run.run_id, error)

    def _event(
        self,
        kind: str,
        inputs: Sequence[InputSeen],
        outputs: Sequence[OutputSeen],
        message: str | None,
    ) -> dict[str, Any]:
        run_facets: dict[str, Any] = {}
        if nominal := _nominal(self._run):
            start, end = nominal
            run_facets["nominalTime"] = _facet(
                "1-0-1/NominalTimeRunFacet", nominalStartTime=start, nominalEndTime=end
            )
        if message is not None:
            run_facets["errorMessage"] = _facet(
                "1-0-1/ErrorMessageRunFacet", message=message, programmingLanguage="python"
            )
        kind_of_job = {"processingType": "BATCH", "integration": "SPARK", "jobType": "JOB"}
        job_facets = {"jobType": _facet("2-0-4/JobTypeJobFacet", **kind_of_job)}
        return self._with_our_facets(
            {
                "eventTime": instant_text(datetime.now(UTC)),
                "producer": PRODUCER,
                "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
                "run": {"runId": self._id, "facets": run_facets},
                "job": {**named(self._run.job.name), "facets": job_facets},
                "eventType": kind,
                "inputs": [_input(seen) for seen in inputs],
                "outputs": [_output(seen) for seen in outputs],
            }
        )

    def _with_our_facets(self, event: dict[str, Any]) -> dict[str, Any]:
        planned = {"backfillId": self._run.backfill_id} if self._run.backfill_id else {}
        event["run"]["facets"]["lineageBackfill_run"] = _custom(
            {
                **planned,
                "runId": self._run.run_id,
                "attempt": self._run.attempt,
                "keys": list(self._run.partitions),
            }
        )
        facets = self._run.lineage.facets
        batch = {} if self.batch is None else {"batch": self.batch}
        if sent := {**batch, **facets.get("job", {}).get("partitioning", {})}:
            event["job"]["facets"]["lineageBackfill_partitioning"] = _custom(sent)
        for entry in facets.get("datasets", ()):
            name = DatasetRef(entry["dataset"]["namespace"], entry["dataset"]["name"])
            for dataset in (*event["inputs"], *event["outputs"]):
                if DatasetRef(dataset["namespace"], dataset["name"]) == name:
                    dataset["facets"]["lineageBackfill_partitioning"] = _custom(
                        entry["partitioning"]
                    )
        return event


def _facet(name: str, **members: Any) -> dict[str, Any]:
    """Return a facet of OpenLineage by version and name."""
    schema = f"{_SPEC}/facets/{name}.json#/$defs/{name.partition('/')[2]}"
    return {"_producer": PRODUCER, "_schemaURL": schema, **members}


def _subset(side: str, condition: Mapping[str, Any]) -> dict[str, Any]:
    schema = f"{_SPEC}/facets/1-0-0/BaseSubsetDatasetFacet.json#/$defs/"
    kind = f"{side.capitalize()}Subset{side.capitalize()}DatasetFacet"
    return {"_producer": PRODUCER, "_schemaURL": schema + kind, f"{side}Condition": condition}


def _input(seen: InputSeen) -> dict[str, Any]:
    wanted = seen.spec.partitions
    facets: dict[str, Any] = {}
    if wanted is not None:
        is_open = any(len(part.values) < len(seen.spec.columns) for part in wanted)
        held = None
        if is_open and seen.state is not None:
            held = Scope.of(seen.state, seen.spec, wanted).members(seen.state).values()
        if condition := _condition(seen.spec, wanted, held):
            facets["subset"] = _subset("input", condition)
    described = _dataset_facets(seen.state)
    return {**named(seen.spec.dataset), "facets": described, "inputFacets": facets}


def _output(seen: OutputSeen) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    written = seen.result.partitions if seen.result is not None else None
    if condition := _condition(seen.spec, seen.spec.scope, written):
        facets["subset"] = _subset("output", condition)
    if seen.result is not None:
        rows = total(part.rows for part in seen.result.partitions)
        if rows is not None:
            facets["outputStatistics"] = _facet(
                "1-0-2/OutputStatisticsOutputDatasetFacet", rowCount=rows
            )
    described = {**_dataset_facets(seen.state), **_column_lineage(seen)}
    return {**named(seen.spec.dataset), "facets": described, "outputFacets": facets}


def _column_lineage(seen: OutputSeen) -> dict[str, Any]:
    if seen.columns is None or seen.state is None or seen.result is None:
        return {}
    names = {name.lower(): name for name in seen.columns.fields}
    table = [field["name"] for field in seen.state.schema.get("fields", ())]
    if any(name.lower() not in names and name != KEY_COLUMN for name in table):
        return {}  # the table generates columns itself

    def inputs(origins: Iterable[Origin], kind: str) -> list[dict[str, Any]]:
        return [
            {**named(dataset), "field": column, "transformations": [{"type": kind}]}
            for dataset, column in sorted(origins, key=str)
        ]

    fields = {
        name: {"inputFields": inputs(origins, "DIRECT")}
        for name in table
        if (origins := seen.columns.fields.get(names.get(name.lower(), "")))
    }
    rows = inputs(seen.columns.rows, "INDIRECT")
    facet = _facet("1-2-0/ColumnLineageDatasetFacet", fields=fields, dataset=rows)
    return {"columnLineage": facet}


def _condition(
    target: Target,
    partitions: Sequence[Partition],
    found: Iterable[Member | PartitionResult] | None,
) -> dict[str, Any] | None:
    """Return a condition for these partitions, None if they cannot be distinguished.

    `found` are the matching partitions if a column is open, None if unknown.
    """
    if not target.columns:
        return None
    known: list[tuple[Mapping[str, str | None] | None, Key]] = [
        (part.values, part.key)
        for part in partitions
        if found is None or len(part.values) == len(target.columns)
    ]
    known += [(one.values, one.key) for one in found or () if one.values is not None]
    if target.scoped_by is not None:  # the column holds no intervals
        known = [({target.columns[0]: str(key)}, key) for _, key in known]
    if not all(values for values, _ in known):
        return None
    return {
        "partitions": [
            {
                # A NULL is left out: the facet's values are texts.
                "dimensions": {n: v for n, v in (values or {}).items() if v is not None},
                "identifier": str(key),
            }
            for values, key in known
        ],
        "type": "partition",
    }


def _dataset_facets(state: TableState | None) -> dict[str, Any]:
    if state is None or not state.schema:  # a Parquet table has neither
        return {}
    fields = [
        {"name": field["name"], "type": _type(field["type"]), "fields": []}
        for field in state.schema.get("fields", ())
    ]
    version = _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=str(state.version))
    return {"schema": _facet("1-2-0/SchemaDatasetFacet", fields=fields), "version": version}


def _type(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_type(kind['keyType'])},{_type(kind['valueType'])}>"
    members = ",".join(f"{field['name']}:{_type(field['type'])}" for field in kind["fields"])
    return f"struct<{members}>"


def _custom(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{PRODUCER}:facets", **body}


def _nominal(run: RunSpec) -> tuple[str, str] | None:
    starts = [key.start for key in run.keys if key.start is not None]
    ends = [key.end for key in run.keys if key.end is not None]
    return (instant_text(min(starts)), instant_text(max(ends))) if starts and ends else None


def _run_uuid(started_at: datetime, identity: str) -> uuid.UUID:
    """Return a UUID of version 7: ordered by time, and the same for the same run."""
    milliseconds = int(started_at.timestamp() * 1000)
    rest = uuid.uuid5(uuid.NAMESPACE_URL, identity).int & ((1 << 74) - 1)
    number = milliseconds << 80 | 0x7 << 76 | (rest >> 62) << 64 | 0b10 << 62 | rest & (1 << 62) - 1
    return uuid.UUID(int=number)


_senders: dict[tuple[Path, str], Sender] = {}
_adding = Lock()


def _sender(file: Path, url: str) -> Sender:
    with _adding:
        if (file, url) not in _senders:
            _senders[file, url] = Sender(file, url)
        return _senders[file, url]
