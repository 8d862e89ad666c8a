"""Partitioning inferred from run history, with its evidence; what is ambiguous stays unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.grid import grain_grid
from lineage_backfill.partitions.text import parse_partitions
from lineage_backfill.project.declarations import CalendarDeclaration, Grain

#: Fewer recorded runs than this prove nothing.
LEAST_RUNS: Final = 3
_GRAINS: Final[tuple[Grain, ...]] = ("hour", "day", "week", "month", "quarter", "year")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A run calendar that the history of a job agrees with.

    `evidence` is a sentence; `confidence` the share of the recorded runs that say so, 0 to 1.
    """

    calendar: CalendarDeclaration
    evidence: str
    confidence: float


def infer_all(history: Iterable[ObservedRun]) -> Mapping[JobRef, Inference]:
    """Return what the history tells of each job; a job whose runs disagree is left out.

    Keys that an orchestrator recorded count before nominal times (OpenLineage run facet
    `nominalTime`). Only intervals in UTC are taken for evidence: a zone cannot be told from a few
    instants.
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
    return found


def _from_keys(records: Sequence[ObservedRun]) -> Inference | None:
    texts = {record.partition_key or record.written for record in records}
    keys = {key for text in texts for key in _labels(text)}
    if len(keys) < LEAST_RUNS:
        return None
    fitting = [grain for grain in _GRAINS if all(_is_key(key, grain) for key in keys)]
    # First days of months are keys of days, months, quarters and years alike: ambiguous.
    if len(fitting) != 1:
        return None
    return Inference(
        calendar=CalendarDeclaration(grain=fitting[0], zone="UTC"),
        evidence=f"{len(keys)} recorded partition keys are all of grain {fitting[0]}",
        confidence=1.0,
    )


def _labels(text: str | None) -> Iterator[str]:
    """Yield the keys that a run recorded, of a range both ends; a product key fits no grain."""
    try:
        for key in parse_partitions(text) if text else ():
            yield from key.split("..") if isinstance(key, str) else (str(dict(key)),)
    except UsageError:
        yield str(text)


def _is_key(key: str, grain: str) -> bool:
    try:
        grain_grid(grain, "UTC").find(key)
    except UsageError:
        return False
    return True


def _from_nominal_times(records: Sequence[ObservedRun]) -> Inference | None:
    spans = {
        (record.nominal_start, record.nominal_end)
        for record in records
        if record.nominal_start is not None and record.nominal_end is not None
    }
    if len(spans) < LEAST_RUNS:
        return None
    for grain in _GRAINS:
        if all(_is_interval(start, end, grain) for start, end in spans):
            return Inference(
                calendar=CalendarDeclaration(grain=grain, zone="UTC"),
                evidence=f"the nominal times of {len(spans)} runs are each one {grain} in UTC",
                confidence=1.0,
            )
    return None


def _is_interval(start: datetime, end: datetime, grain: str) -> bool:
    grid = grain_grid(grain, "UTC")
    first, last = start.timestamp(), end.timestamp()
    ordinal = grid.at(int(first))
    return grid.start(ordinal) == first and grid.start(ordinal + 1) == last
