"""Runs of the ordinary schedule, which no backfill has planned: their keys, and their run spec.

Such a run differs from a planned one in nothing but who has written its run spec.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeVar

from lineage_backfill.errors import SpecError
from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.runspec.values import (
    InputSpec,
    JobSpec,
    LineageSpec,
    OutputSpec,
    ProductKey,
    RunSpec,
)
from spark_runtime.datasets import (
    DEFAULT,
    WHOLE,
    Calendar,
    Dataset,
    Dimension,
    EdgeMapping,
    PartitionKey,
    Read,
    Shape,
    Write,
    dataset_facet,
    in_time,
    mapping_facet,
    required,
    run_shape,
    shape_facet,
)
from spark_runtime.errors import (
    DeclarationError,
    InputMissingError,
    KeyMissingError,
    NothingToRunError,
)
from spark_runtime.periods import Period, cron_grid
from spark_runtime.project import JobTable, Project, is_meant

Batch = Literal["key", "range"]
Edge = TypeVar("Edge", Read, Write)

_log = logging.getLogger(__name__)
_WHOLE_KEY = PartitionKey(WHOLE, None, {})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a run was started with; nothing of it means the newest key of its calendar.

    `keys` name its keys. `interval` is a data interval such as Airflow's: the keys that became
    complete in (start, end], or the newest key where both are one instant. `schedule` is the cron
    expression that starts the run, in `schedule_zone`: the keys that became complete since its
    firing before. `exact` leaves out what a lookback adds.
    """

    keys: Sequence[str] = ()
    interval: tuple[datetime, datetime] | None = None
    schedule: str | None = None
    schedule_zone: str | None = None
    exact: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    result_path: str | None = None


@dataclass(frozen=True, kw_only=True)
class DeclaredJob:
    """A job with its datasets and how its keys travel along each edge."""

    name: DatasetRef
    entrypoint: str
    shape: Shape
    reads: Sequence[tuple[Dataset, EdgeMapping]]
    writes: Sequence[tuple[Dataset, Write]]
    facet: Mapping[str, Any]


def declare(
    project: Project,
    name: str,
    *,
    entrypoint: str = "",
    reads: Iterable[Read] = (),
    writes: Iterable[Write] = (),
    calendar: Calendar | Sequence[Dimension] | None = None,
) -> DeclaredJob:
    """Return a job as the project file and the job itself declare it; the file wins.

    Raises DeclarationError where neither says what a run needs to know.
    """
    table = project.job(name) or project.job(entrypoint)
    table = table or JobTable(name=DatasetRef(project.namespace, name))
    inputs, outputs = _edges(project, reads, table.reads), _edges(project, writes, table.writes)
    if not outputs:
        raise DeclarationError(
            f"job {table.name} declares no output", hint="declare it in [[job.writes]]"
        )
    declared = table.shape or (calendar and run_shape(calendar, str(table.name)))
    facet = shape_facet(declared) if declared else {}
    if read := [_edge(d, mapping_facet(e.how)) for d, e in inputs if e.how.mapping]:
        facet["reads"] = read
    if written := [
        _edge(dataset, {"mode": edge.mode, "lookback": edge.lookback})
        for dataset, edge in outputs
        if edge.mode != "overwrite" or edge.lookback
    ]:
        facet["writes"] = written
    return DeclaredJob(
        name=table.name,
        entrypoint=table.entrypoint or entrypoint,
        shape=declared or _shared([dataset for dataset, _ in outputs], table.name),
        reads=[(dataset, edge.how) for dataset, edge in inputs],
        writes=outputs,
        facet=facet,
    )


def run_specs(
    job: DeclaredJob, project: Project, asked: Asked, now: datetime, *, batch: Batch = "range"
) -> list[RunSpec]:
    """Return the run specs of a job that was started at an instant, in order.

    It is one run, or one for each key where the job computes them one by one or reads what it has
    written for the key before. Raises KeyMissingError where no key can be derived,
    NothingToRunError where none became complete, KeyFormatError and DeclarationError.
    """
    keys = run_keys(job.shape, asked, now)
    lookback = 0 if asked.exact else max(write.lookback for _, write in job.writes)
    planned = _widened(job.shape, keys, now, before=lookback)
    own = {dataset.full_name for dataset, _ in job.writes}
    serial = any(d.full_name in own and how.mapping != "none" for d, how in job.reads)
    runs = [[key] for key in planned] if serial or batch == "key" else [planned]
    if asked.result_path is not None and len(runs) > 1:
        raise SpecError(
            f"{job.name} does its {len(runs)} keys in as many runs, and one result file was asked "
            "for",
            hint="name one key, or leave --result out",
        )
    return [_run_spec(job, project, asked, run, lookback, now) for run in runs]


def _run_spec(
    job: DeclaredJob,
    project: Project,
    asked: Asked,
    keys: Sequence[PartitionKey],
    lookback: int,
    now: datetime,
) -> RunSpec:
    reading = _widened(job.shape, keys, now, after=lookback)
    own = {dataset.full_name for dataset, _ in job.writes}
    datasets = {str(dataset): dataset for dataset, _ in (*job.reads, *job.writes)}
    run_id = str(uuid.uuid4())
    return RunSpec(
        backfill_id="",
        run_id=run_id,
        attempt=1,
        token=run_id,
        job=JobSpec(name=JobRef(*job.name[:2]), entrypoint=job.entrypoint),
        partitions=tuple(_listed(key) for key in keys),
        keys=tuple(key.run_key() for key in keys),
        outputs=tuple(_output(job, dataset, write, keys) for dataset, write in job.writes),
        inputs=tuple(
            # Lookback never widens along the job's edge to its own output.
            _input(job, dataset, how, keys if dataset.full_name in own else reading, now)
            for dataset, how in job.reads
        ),
        parameters=asked.parameters,
        lineage=LineageSpec(
            outbox=str(project.outbox) if project.outbox else None,
            url=project.url,
            facets={
                "job": {"partitioning": job.facet},
                "datasets": [
                    _edge(dataset, {"partitioning": dataset_facet(dataset)})
                    for dataset in datasets.values()
                ],
            },
        ),
        result_path=asked.result_path,
    )


def run_keys(shape: Shape, asked: Asked, now: datetime) -> list[PartitionKey]:
    """Return the keys that a run means which was started at an instant.

    A key that is derived from the clock is said aloud. Raises as `run_specs` does.
    """
    if asked.keys:
        return [_named(shape, text, now) for text in asked.keys]
    if shape.is_whole:
        return [_WHOLE_KEY]
    calendar = shape.time
    if calendar is None:
        raise KeyMissingError(
            "the run was started without a key, and static keys have no newest one",
            hint="name it: --key KEY",
        )
    interval = asked.interval
    if interval is None and asked.schedule:
        firings = cron_grid(asked.schedule, asked.schedule_zone or calendar.zone)
        firing = firings.holding(now)
        interval = (firings.shifted(firing, -1).start, firing.start)
    keys = shape.keys(_became_complete(calendar, *(interval or (now, now))))
    if not keys:
        raise NothingToRunError(
            f"no key of the run's calendar became complete {_between(interval)}",
            hint="nothing is to be done",
        )
    if asked.interval is None:
        _log.warning(
            "the run was started without a key; derived from the clock (%s, %s): %s",
            now.isoformat(timespec="seconds"),
            calendar.zone,
            ", ".join(str(key.label) for key in keys),
        )
    return keys


def _named(shape: Shape, text: str, now: datetime) -> PartitionKey:
    key = shape.find(text)
    if key.period is None or shape.time is None:
        return key
    first, end = shape.time.first, shape.time.end
    last = shape.time.grid.find(end) if end is not None else None
    if (
        key.period.start > now
        or (first is not None and key.period.start < first.start)
        or (last is not None and key.period.start > last.start)
    ):
        newest, oldest = shape.time.newest(now).label, first.label if first else "any"
        raise KeyMissingError(f"{text} does not exist", hint=f"keys go from {oldest} to {newest}")
    if key.period.end > now:
        _log.warning("%s is not complete yet", text)
    return key


def _became_complete(calendar: Calendar, after: datetime, until: datetime) -> list[Period]:
    """Return the keys that became complete in (after, until]; the newest one if both are one."""
    endless = replace(calendar, end=None)
    newest = endless.newest(until)
    if after == until:
        return calendar.existing([calendar.newest(until)], until)
    begin = endless.newest(after).end
    periods = calendar.grid.overlapping(begin, newest.end) if begin < newest.end else ()
    return calendar.existing(periods, until)


def _between(interval: tuple[datetime, datetime] | None) -> str:
    if interval is None or interval[0] == interval[1]:
        return "so far"
    after, until = (instant.isoformat(timespec="minutes") for instant in interval)
    return f"between {after} and {until}"


def _widened(
    shape: Shape, keys: Sequence[PartitionKey], now: datetime, *, before: int = 0, after: int = 0
) -> list[PartitionKey]:
    """Return the keys with so many existing ones before and after each of them."""
    if shape.time is None or not (before or after):
        return list(keys)
    found = {key.label: key for key in keys}
    for key in keys:
        if key.period is not None:
            grid = shape.time.grid
            near = [grid.shifted(key.period, step) for step in range(-before, after + 1) if step]
            for one in shape.keys(shape.time.existing(near, now), [key.statics]):
                found.setdefault(one.label, one)
    return in_time(found.values())


def _output(
    job: DeclaredJob, dataset: Dataset, write: Write, keys: Sequence[PartitionKey]
) -> OutputSpec:
    if write.mode == "full" and not job.shape.is_whole:
        raise DeclarationError(
            f"one run of {job.name} would replace all of its output {dataset} (mode full)",
            hint='use mode = "overwrite"',
        )
    scope = required(dataset, DEFAULT, keys, job.shape, now=None)
    scope = [_WHOLE_KEY] if scope is None else scope
    if write.mode == "overwrite" and not _cover(keys, scope):
        raise DeclarationError(
            f"the output {dataset} of {job.name} is coarser than its run calendar: one run would "
            "replace a whole partition with a part",
            hint='use mode = "merge", or declare the right calendar',
        )
    if write.mode == "overwrite" and (pair := dataset.not_told_apart(scope)):
        raise DeclarationError(
            f"keys {' and '.join(pair)} of the output {dataset} of {job.name} are one partition of "
            "its table: one run would clear what others wrote",
            hint="declare columns that tell its keys apart (`column` holds the key itself), or its "
            "calendar",
        )
    return OutputSpec(
        **_place(dataset),
        scope=dataset.partitions(scope),
        mode=write.mode,
        on_empty=write.on_empty,
        on_drift=write.on_drift,
    )


def _cover(keys: Sequence[PartitionKey], scope: Sequence[PartitionKey]) -> bool:
    """Whether every partition lies within one of the run's keys."""
    spans = [key.period for key in keys if key.period]
    if not spans:
        return True
    return all(
        part.period is not None
        and any(p.start <= part.period.start and part.period.end <= p.end for p in spans)
        for part in scope
    )


def _input(
    job: DeclaredJob,
    dataset: Dataset,
    how: EdgeMapping,
    keys: Sequence[PartitionKey],
    now: datetime,
) -> InputSpec:
    own = any(dataset.full_name == written.full_name for written, _ in job.writes)
    if own and how.mapping not in ("offset", "window", "none"):
        raise DeclarationError(
            f"{job.name} reads its own output {dataset}, and how is not declared",
            hint='declare that edge: "offset" with by < 0, "window", or "none"',
        )
    read = required(dataset, how, keys, job.shape, now, own=own)
    _refuse_expired(dataset, read or (), now)
    partitions = None if read is None else dataset.partitions(read)
    return InputSpec(**_place(dataset), partitions=partitions)


def _refuse_expired(dataset: Dataset, keys: Iterable[PartitionKey], now: datetime) -> None:
    """Raise InputMissingError where an input no longer holds keys: a run without would clear."""
    time = dataset.shape.time
    if dataset.retention is None or time is None:
        return
    oldest = time.grid.shifted(time.newest(now), 1 - dataset.retention)
    gone = [key for key in keys if key.period and key.period.start < oldest.start]
    if gone:
        raise InputMissingError(
            f"input {dataset} keeps its newest {dataset.retention} keys, from {oldest.label} on; "
            f"the run needs {gone[0].label}",
            hint="where it is still there, raise the dataset's `retention`",
        )


def _place(dataset: Dataset) -> dict[str, Any]:
    if dataset.location is None and dataset.table is None:
        raise DeclarationError(
            f"where dataset {dataset} is stored is not declared",
            hint="declare its `location` or its `table`",
        )
    return {
        "dataset": dataset.full_name,
        "format": dataset.format,
        "columns": dataset.column_names,
        "location": dataset.location,
        "table": dataset.table,
    }


def _edges(
    project: Project, coded: Iterable[Edge], filed: Sequence[Edge]
) -> list[tuple[Dataset, Edge]]:
    """Return the edges that code and file declare; of one that both do the file's."""
    found: list[tuple[Dataset, Edge]] = []
    for edge in coded:
        dataset = project.dataset(edge.dataset)
        said = (one for one in filed if is_meant(dataset.full_name, str(one.dataset)))
        found.append((dataset, next(said, edge)))
    for edge in filed:
        if not any(is_meant(dataset.full_name, str(edge.dataset)) for dataset, _ in found):
            found.append((project.dataset(edge.dataset), edge))
    return found


def _shared(datasets: Sequence[Dataset], job: DatasetRef) -> Shape:
    """Return the calendar that all outputs have: earliest start, newest last key.

    Raises DeclarationError where they differ.
    """
    first, *others = [dataset.shape for dataset in datasets]
    for other in others:
        grids = [shape.time and shape.time.grid for shape in (first, other)]
        if grids[0] is not grids[1] or (first.statics, first.order) != (other.statics, other.order):
            raise DeclarationError(
                f"the outputs of {job} have different calendars",
                hint=f"declare its run calendar: [[job]] name = {job.name!r} and its grain",
            )
    times = [shape.time for shape in (first, *others) if shape.time is not None]
    if not times:
        return first
    starts, ends = ([getattr(time, name) for time in times] for name in ("start", "end"))
    find = times[0].grid.starting
    time = replace(
        times[0],
        start=None if None in starts else min(starts, key=lambda label: find(label).start),
        end=None if None in ends else max(ends, key=lambda label: find(label).start),
        data_lag=min(time.data_lag for time in times),
    )
    return replace(first, time=time)


def _listed(key: PartitionKey) -> str | Mapping[str, Any]:
    if isinstance(key.label, ProductKey):
        return {name: [label] for name, label in key.label.items()}
    return key.label


def _edge(dataset: Dataset, rest: Mapping[str, Any]) -> dict[str, Any]:
    return {"dataset": named(dataset.full_name), **rest}
