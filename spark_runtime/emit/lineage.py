"""Emits the lineage of a run: START and one final event, both complete.

Events are written to a file of the outbox (one line each) and, if an address is given, sent from
there over HTTP. No run waits long for that or fails because of it, and no event is lost.
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

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.instants import instant_text
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
from spark_runtime.emit.columns import ColumnLineage, Origin
from spark_runtime.emit.outbox import Sender, append, default_folder
from spark_runtime.tables.scope import Member, Scope
from spark_runtime.tables.state import TableState

PRODUCER = "urn:lineage-backfill"

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
        from openlineage.client import event_v2, set_producer
        from openlineage.client.facet_v2 import error_message_run, job_type_job, nominal_time_run
        from openlineage.client.serde import Serde

        set_producer(PRODUCER)
        run_facets: dict[str, Any] = {}
        if nominal := _nominal(self._run):
            run_facets["nominalTime"] = nominal_time_run.NominalTimeRunFacet(*nominal)
        if message is not None:
            run_facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, "python")
        event = event_v2.RunEvent(
            eventType=event_v2.RunState[kind],
            eventTime=instant_text(datetime.now(UTC)),
            producer=PRODUCER,
            run=event_v2.Run(self._id, run_facets),
            job=event_v2.Job(
                self._run.job.name.namespace,
                self._run.job.name.name,
                {"jobType": job_type_job.JobTypeJobFacet("BATCH", "SPARK", jobType="JOB")},
            ),
            inputs=[_input(seen) for seen in inputs],
            outputs=[_output(seen) for seen in outputs],
        )
        return self._with_our_facets(Serde.to_dict(event))

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
        said = {} if self.batch is None else {"batch": self.batch}
        if sent := {**said, **facets.get("job", {}).get("partitioning", {})}:
            event["job"]["facets"]["lineageBackfill_partitioning"] = _custom(sent)
        for entry in facets.get("datasets", ()):
            name = DatasetRef(entry["dataset"]["namespace"], entry["dataset"]["name"])
            for dataset in (*event["inputs"], *event["outputs"]):
                if DatasetRef(dataset["namespace"], dataset["name"]) == name:
                    dataset["facets"]["lineageBackfill_partitioning"] = _custom(
                        entry["partitioning"]
                    )
        return event


def _input(seen: InputSeen) -> Any:
    from openlineage.client import event_v2
    from openlineage.client.facet_v2 import base_subset_dataset as subset

    name, wanted = seen.spec.dataset, seen.spec.partitions
    facets: dict[str, Any] = {}
    if wanted is not None:
        is_open = any(len(part.values) < len(seen.spec.columns) for part in wanted)
        held = None
        if is_open and seen.state is not None:
            held = Scope.of(seen.state, seen.spec, wanted).members(seen.state).values()
        if condition := _condition(seen.spec, wanted, held):
            facets["subset"] = subset.InputSubsetInputDatasetFacet(condition)
    return event_v2.InputDataset(
        name.namespace, name.name, inputFacets=facets, facets=_dataset_facets(seen.state)
    )


def _output(seen: OutputSeen) -> Any:
    from openlineage.client import event_v2
    from openlineage.client.facet_v2 import base_subset_dataset as subset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    name = seen.spec.dataset
    facets: dict[str, Any] = {}
    written = seen.result.partitions if seen.result is not None else None
    if condition := _condition(seen.spec, seen.spec.scope, written):
        facets["subset"] = subset.OutputSubsetOutputDatasetFacet(condition)
    if seen.result is not None:
        counts = [part.rows for part in seen.result.partitions]
        if None not in counts:
            rows = sum(count for count in counts if count is not None)
            facets["outputStatistics"] = statistics.OutputStatisticsOutputDatasetFacet(rows)
    said = {**_dataset_facets(seen.state), **_column_lineage(seen)}
    return event_v2.OutputDataset(name.namespace, name.name, outputFacets=facets, facets=said)


def _column_lineage(seen: OutputSeen) -> dict[str, Any]:
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage

    if seen.columns is None or seen.state is None or seen.result is None:
        return {}
    names = {name.lower(): name for name in seen.columns.fields}
    table = [field["name"] for field in seen.state.schema.get("fields", ())]
    if any(name.lower() not in names and name != KEY_COLUMN for name in table):
        return {}  # the table generates columns itself

    def inputs(origins: Iterable[Origin], kind: str) -> list[lineage.InputField]:
        return [
            lineage.InputField(
                dataset.namespace, dataset.name, column, [lineage.Transformation(kind)]
            )
            for dataset, column in sorted(origins, key=str)
        ]

    fields = {
        name: lineage.Fields(inputs(origins, "DIRECT"))
        for name in table
        if (origins := seen.columns.fields.get(names.get(name.lower(), "")))
    }
    rows = inputs(seen.columns.rows, "INDIRECT")
    return {"columnLineage": lineage.ColumnLineageDatasetFacet(fields, rows)}


def _condition(
    target: Target,
    partitions: Sequence[Partition],
    found: Iterable[Member | PartitionResult] | None,
) -> Any:
    """Return a condition for these partitions, None if they cannot be distinguished.

    `found` are the matching partitions if a column is open, None if unknown.
    """
    from openlineage.client.facet_v2 import base_subset_dataset as subset

    if not target.columns:
        return None
    told: list[tuple[Mapping[str, str | None] | None, Key]] = [
        (part.values, part.key)
        for part in partitions
        if found is None or len(part.values) == len(target.columns)
    ]
    told += [(one.values, one.key) for one in found or () if one.values is not None]
    if not all(values for values, _ in told):
        return None
    return subset.PartitionSubsetCondition(
        partitions=[
            subset.Partition(dimensions=dict(values or {}), identifier=str(key))
            for values, key in told
        ]
    )


def _dataset_facets(state: TableState | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset

    if state is None:
        return {}
    fields = [
        schema_dataset.SchemaDatasetFacetFields(name=field["name"], type=_type(field["type"]))
        for field in state.schema.get("fields", ())
    ]
    version = dataset_version_dataset.DatasetVersionDatasetFacet(str(state.version))
    return {"schema": schema_dataset.SchemaDatasetFacet(fields), "version": version}


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
