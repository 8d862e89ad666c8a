"""Infers partitioning from history and timetables where it is unambiguous."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import JobNode, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.grid import grain_grid
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import parse_partitions
from lineage_backfill.planning.timetables import read_timetable
from lineage_backfill.project.declarations import CalendarDeclaration, Grain

#: Fewer recorded runs than this prove nothing.
LEAST_RUNS: Final = 3
_GRAINS: Final[tuple[Grain, ...]] = ("hour", "day", "week", "month", "quarter", "year")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A run calendar that fits the history of a job.

    `evidence` is a sentence; `confidence` the share of the recorded runs that agree, 0 to 1.
    """

    calendar: CalendarDeclaration
    evidence: str
    confidence: float


def infer_all(
    history: Iterable[ObservedRun], jobs: Iterable[JobNode] = ()
) -> Mapping[JobRef, Inference]:
    """Return what history and timetables show for each job; disagreements are left out.

    Jobs whose runs mostly skip periods are left out, too: those may be slices of their own.
    Keys that an orchestrator recorded count before nominal times (OpenLineage run facet
    `nominalTime`). Only intervals in UTC are evidence: a few instants do not
    determine a zone.
    """
    by_job: dict[JobRef, list[ObservedRun]] = defaultdict(list)
    for record in history:
        if record.state == "COMPLETE":
            by_job[record.job].append(record)
    found = {}
    for job, records in by_job.items():
        inference = _from_keys(records) or _from_nominal_times(records)
        if inference is not None:
            found[job] = inference
    _add_timetables(found, tuple(jobs))
    return found


def _add_timetables(found: dict[JobRef, Inference], jobs: Sequence[JobNode]) -> None:
    """Add what timetables of DAGs show for their tasks; drop both if history contradicts."""
    keeping = []
    for node in jobs:
        if node.airflow is None or node.airflow.timetable is None:
            continue
        told = read_timetable(node.airflow.timetable)
        known = found.get(node.ref)
        if told.odd or (told.calendar and known and known.calendar.grain != told.calendar.grain):
            found.pop(node.ref, None)
        elif told.calendar is not None:
            found[node.ref] = Inference(
                calendar=told.calendar, evidence=told.evidence, confidence=1.0
            )
        elif told.keeps_keys and known is None:
            keeping.append(node)
    if keeping:
        _add_kept_keys(found, keeping, jobs)


def _add_kept_keys(
    found: dict[JobRef, Inference], keeping: Sequence[JobNode], jobs: Sequence[JobNode]
) -> None:
    """Add jobs whose timetable keeps the keys of their only input, from its writers."""
    writers: dict[DatasetRef, list[JobRef]] = defaultdict(list)
    for node in jobs:
        for ref in node.writes:
            writers[ref].append(node.ref)
    for _ in keeping:  # one may read what another one writes
        for node in keeping:
            made = {job for ref in node.reads for job in writers[ref]} - {node.ref}
            known = {found[job].calendar if job in found else None for job in made}
            if len(known) == 1 and (calendar := known.pop()) is not None and node.ref not in found:
                evidence = "the timetable of its DAG keeps the keys of its input"
                found[node.ref] = Inference(calendar=calendar, evidence=evidence, confidence=1.0)


def _from_keys(records: Sequence[ObservedRun]) -> Inference | None:
    texts = {record.partition_key or record.written for record in records}
    spans = {span for text in texts for span in _spans(text)}
    keys = {key for span in spans for key in span}
    if len(keys) < LEAST_RUNS:
        return None
    fitting = [
        (grain, OrdinalSet.of_runs(found))
        for grain in _GRAINS
        if (found := _numbered(spans, grain)) is not None
    ]
    # First days of months are keys of days, months, quarters and years alike: ambiguous.
    if len(fitting) != 1 or not _follow(fitting[0][1]):
        return None
    (grain, _) = fitting[0]
    return Inference(
        calendar=CalendarDeclaration(grain=grain, zone="UTC"),
        evidence=f"{len(keys)} recorded partition keys are all of grain {grain}",
        confidence=1.0,
    )


def _spans(text: str | None) -> Iterator[tuple[str, str]]:
    """Yield first and last key of each recorded range; product keys fit no grain."""
    try:
        for key in parse_partitions(text) if text else ():
            first, _, last = (key if isinstance(key, str) else str(dict(key))).partition("..")
            yield first, last or first
    except UsageError:
        yield str(text), str(text)


def _numbered(spans: Iterable[tuple[str, str]], grain: str) -> list[tuple[int, int]] | None:
    """Return the ordinals of the ranges; None if a key does not fit the grain."""
    find = grain_grid(grain, "UTC").find
    try:
        found = [(find(first), find(last)) for first, last in spans]
    except UsageError:
        return None
    return found if all(first <= last for first, last in found) else None


def _follow(periods: OrdinalSet) -> bool:
    """Whether most periods are consecutive: runs at 00, 06, 12 and 18 are not hourly."""
    runs = sum(1 for _ in periods.runs())
    return len(periods) - runs > runs - 1


def _from_nominal_times(records: Sequence[ObservedRun]) -> Inference | None:
    spans = {
        (record.nominal_start, record.nominal_end)
        for record in records
        if record.nominal_start is not None and record.nominal_end is not None
    }
    if len(spans) < LEAST_RUNS:
        return None
    for grain in _GRAINS:
        periods = [_period(start, end, grain) for start, end in spans]
        if None not in periods:
            if not _follow(OrdinalSet.of(period for period in periods if period is not None)):
                return None
            return Inference(
                calendar=CalendarDeclaration(grain=grain, zone="UTC"),
                evidence=f"the nominal times of {len(spans)} runs are each one {grain} in UTC",
                confidence=1.0,
            )
    return None


def _period(start: datetime, end: datetime, grain: str) -> int | None:
    """Return the ordinal of the period from start to end; None if it is not exactly one."""
    grid = grain_grid(grain, "UTC")
    first, last = start.timestamp(), end.timestamp()
    ordinal = grid.at(int(first))
    return ordinal if (grid.start(ordinal), grid.start(ordinal + 1)) == (first, last) else None
