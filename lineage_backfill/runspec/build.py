"""From a job's facts and its run keys to a run spec, planned or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import Key as CalendarKey
from lineage_backfill.partitions.text import expand, render
from lineage_backfill.project.locations import absolute
from lineage_backfill.project.resolve.physical_columns import (
    PhysicalColumns,
    beside,
    interval,
    on_the_clock,
    physical_columns,
    physical_values,
    unplaced,
)
from lineage_backfill.project.resolve.resolver import (
    DatasetFacts,
    DeclarationResolver,
    Input,
    JobFacts,
    Output,
    without_gaps,
)
from lineage_backfill.runspec.needs import Needs
from lineage_backfill.runspec.values import (
    InputSpec,
    JobSpec,
    Key,
    LineageSpec,
    OutputSpec,
    Partition,
    ProductKey,
    RunKey,
    RunSpec,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """Which attempt of which run a run spec is for; see RunSpec."""

    run_id: str
    token: str
    attempt: int = 1
    backfill_id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    result_path: str | None = None
    keys_derived: bool = False
    append_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWrites:
    """What recorded runs wrote of a dataset, and the run keys of a job's that were not undone."""

    of_dataset: Callable[[DatasetRef], PartitionSet]
    of_job: Callable[[JobRef], PartitionSet]


class SpecBuilder:
    """Makes run specs; `resolver` says what keys mean and how outputs are written.

    `root` is the folder that relative locations start from, `outbox` the folder for lineage
    events, `url` an endpoint to send them to. Raises DeclarationError where a table is unknown.
    """

    def __init__(
        self,
        resolver: DeclarationResolver,
        *,
        root: Path,
        outbox: Path | None = None,
        url: str | None = None,
        recorded: RecordedWrites | None = None,
    ) -> None:
        self._resolver = resolver
        self._recorded = recorded
        self._root = root
        self._outbox = outbox
        self._url = url
        self._listed: dict[DatasetRef, tuple[PartitionSet, tuple[Partition, ...]]] = {}

    def build(
        self,
        identity: RunIdentity,
        job: JobSpec,
        keys: PartitionSet,
        *,
        reads: Iterable[tuple[DatasetRef, PartitionSet | None]],
        writes: Iterable[tuple[DatasetRef, PartitionSet]],
    ) -> RunSpec:
        """Return the run spec of a job's run keys, of what it reads (None: all) and writes."""
        facts = self._resolver.job(job.name)
        assert facts.calendar is not None, "its keys are known"
        outputs = {output.dataset: output for output in facts.outputs}
        edges = {edge.dataset: edge for edge in facts.inputs}
        inputs = [(self._resolver.dataset(dataset), wanted) for dataset, wanted in reads]
        written = tuple(
            self._output(outputs[dataset], scope, job.name) for dataset, scope in writes
        )
        read = tuple(
            self._input(data, wanted, Needs(facts, edges.get(data.ref), keys))
            for data, wanted in inputs
        )
        if written and not any(output.scope for output in written):
            named = ", ".join(map(str, render(facts.calendar, keys)))
            raise DeclarationError(
                f"a run of {named} writes no partition: its outputs have none at that time",
                hint="Correct `start` and `end` of the job or of its outputs.",
            )
        return RunSpec(
            backfill_id=identity.backfill_id,
            run_id=identity.run_id,
            attempt=identity.attempt,
            token=identity.token,
            job=job,
            partitions=render(facts.calendar, keys),
            keys=tuple(
                RunKey(key=_label(key), start=key.start, end=key.end)
                for key in expand(facts.calendar, keys)
            ),
            outputs=written,
            inputs=read,
            parameters=identity.parameters,
            lineage=LineageSpec(
                outbox=str(self._outbox) if self._outbox else None,
                url=self._url,
                facets=self._facets(facts, [data.ref for data, _ in inputs]),
            ),
            result_path=identity.result_path,
            keys_derived=identity.keys_derived,
            append_again=identity.append_again,
        )

    def _output(self, output: Output, scope: PartitionSet, job: JobRef) -> OutputSpec:
        data, policy = output.data, output.policy
        table, mixed = self._table(data), None
        if data.declaration is not None and data.declaration.time_column is not None:
            mixed = " and ".join(self._resolver.repeated(data, scope) or ()) or None
        elif policy.mode == "overwrite" and (shared := self._resolver.shared(data, scope)):
            raise DeclarationError(shared[0], hint=shared[1])
        output.refuse_undeclared()
        return OutputSpec(
            **table,
            scope=_partitions(data, scope),
            mixed=mixed,
            mode=policy.mode,
            on_empty=policy.on_empty,
            on_drift=policy.on_drift,
            merge_on=policy.merge_on or None,
            delete_when=policy.delete_when,
            delete_missing=policy.delete_missing,
            unsafe_overwrite=policy.unsafe_overwrite,
            appended=self._again(output, scope, job) if policy.mode == "append" else None,
        )

    def _again(
        self, output: Output, scope: PartitionSet, job: JobRef
    ) -> tuple[tuple[int, int], ...] | None:
        """Return the places in the scope that recorded runs of the job have appended to."""
        calendar, mapping = output.data.calendar, output.mapping
        if self._recorded is None or calendar is None or mapping is None:
            return None
        return _places(calendar, scope, mapping.required(self._recorded.of_job(job)))

    def _input(self, data: DatasetFacts, wanted: PartitionSet | None, needs: Needs) -> InputSpec:
        required = needs.required if wanted is None else None
        if required is not None and unplaced(data.declaration, data.calendar):
            required = None
        partitions = None if wanted is None else _partitions(data, wanted, dated=True)
        needed = required if wanted is None else wanted
        later = None if needed is None else needs.later(needed)
        return InputSpec(
            **self._table(data),
            partitions=partitions,
            mixed=None if wanted is None else self._mixed(data, wanted),
            on_missing=needs.on_missing,
            required=None if required is None else self._required(data, required),
            written=self._known(data, needs.edge, needed),
            along=None if required is None and later is None else _along(data),
            later=None if later is None else _partitions(data, later, dated=True),
            needs=None if wanted is None else needs.by_key(wanted),
        )

    def _known(
        self, data: DatasetFacts, edge: Input | None, needed: PartitionSet | None
    ) -> tuple[tuple[int, int], ...] | None:
        """Return the places of the needed partitions that recorded runs have written."""
        if self._recorded is None or needed is None or data.calendar is None:
            return None
        recorded = self._recorded.of_dataset(data.ref)
        written = recorded if edge is None else without_gaps(edge, recorded)
        return _places(data.calendar, needed, written)

    def _mixed(self, data: DatasetFacts, wanted: PartitionSet) -> str | None:
        """Name a wanted key and another one that are one partition of the table, if any."""
        calendar, declared = data.calendar, data.declaration
        if calendar is None or declared is None or not wanted:
            return None
        time = calendar.time
        if self._resolver.indistinct_keys(data) is None and (time is None or time.grid.zone.fixed):
            return None
        columns = on_the_clock(declared)
        kept = {_values(key, columns): _label(key) for key in expand(calendar, wanted)}
        for other in expand(calendar, beside(calendar, columns, wanted)):
            if (key := kept.get(_values(other, columns))) is not None:
                return f"{key} and {_label(other)}"
        return None

    def _required(self, data: DatasetFacts, keys: PartitionSet) -> tuple[Partition, ...]:
        """Return the keys of an input that is read whole; those of many runs are the same."""
        kept = self._listed.get(data.ref)
        if kept is None or kept[0] != keys:
            kept = self._listed[data.ref] = keys, _partitions(data, keys, dated=True)
        return kept[1]

    def _table(self, data: DatasetFacts) -> dict[str, Any]:
        declared = data.declaration
        data.refuse_unplaced()
        assert declared is not None
        location = declared.location
        if location is not None:
            location = absolute(location, self._root)
        return {
            "dataset": data.ref,
            "format": declared.format or "delta",
            "location": None if declared.table is not None else location,
            "table": declared.table,
            "columns": tuple(physical_columns(declared)),
            "scoped_by": declared.value_column and ("time" if declared.time_column else "key"),
            "time_format": declared.time_format,
        }

    def _facets(self, facts: JobFacts, reads: Iterable[DatasetRef]) -> dict[str, Any]:
        """Return the partitioning facets that the job sends with its lineage."""
        refs = dict.fromkeys((*reads, *(output.dataset for output in facts.outputs)))
        datasets = [
            {"dataset": named(ref), "partitioning": sent}
            for ref in refs
            if (sent := self._resolver.dataset_facet(ref))
        ]
        return {"datasets": datasets, "job": {"partitioning": self._resolver.job_facet(facts)}}


def _places(
    calendar: Calendar, keys: PartitionSet, some: PartitionSet
) -> tuple[tuple[int, int], ...] | None:
    """Return the places of some of the keys, as index ranges; None if there are none."""
    known = {_label(key) for key in expand(calendar, keys & some)}
    each = expand(calendar, keys) if known else ()
    places = [place for place, key in enumerate(each) if _label(key) in known]
    return tuple(OrdinalSet.of(places).runs()) or None


def _partitions(
    data: DatasetFacts, keys: PartitionSet, *, dated: bool = False
) -> tuple[Partition, ...]:
    """Return each key with the text of its physical partition columns, and its start if asked."""
    calendar, declared = data.calendar, data.declaration
    if calendar is None or declared is None:
        text, hint = data.unknown
        raise DeclarationError(text, hint=hint)
    data.refuse_unplaced(keyed=True)
    columns = physical_columns(declared)

    def values(key: CalendarKey) -> dict[str, str]:
        if declared.time_column is None or calendar.time is None:
            return physical_values(key, columns)
        return {declared.time_column: interval(key, calendar.time.grid.zone)}

    return tuple(
        Partition(
            key=_label(key),
            values=values(key),
            start=key.start if dated else None,
        )
        for key in expand(calendar, keys)
    )


def _along(data: DatasetFacts) -> str | None:
    """Return the dimension along which keys form ranges, a name for plain keys; None if none."""
    time = None if data.calendar is None else data.calendar.time
    return None if time is None else time.name or "time"


def _values(key: CalendarKey, columns: PhysicalColumns) -> tuple[tuple[str, str], ...]:
    return tuple(physical_values(key, columns).items())


def _label(key: CalendarKey) -> Key:
    return key.label if isinstance(key.label, str) else ProductKey(key.label)
