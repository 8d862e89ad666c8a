"""Infers partitioning from history and timetables where it is unambiguous."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.inference.timetables import read_timetable
from lineage_backfill.lineage.snapshot import JobNode, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.grid import grain_grid
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.text import parse_partitions
from lineage_backfill.project.declarations import CalendarDeclaration, Grain

#: Fewer recorded runs than this prove nothing.
LEAST_RUNS: Final = 3
_GRAINS: Final[tuple[Grain, ...]] = ("hour", "day", "week", "month", "quarter", "year")
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: Periods looked at to see what a cycle consists of: a month of hours, two years of days.
_WINDOW: Final = 800
#: The cycles in which a coarser schedule may leave out periods of a grain: their name, the place of
#: a period in its cycle, and how often a place must be passed to count. Holes in a history are few
#: in a day or week, but a month or a year has places enough for each hole to have its own.
_CYCLES: Final[Mapping[Grain, Sequence[tuple[str, Callable[[datetime], int], int]]]] = {
    "hour": [("at hours", lambda start: start.hour, 1)],
    "day": [
        ("on", lambda start: start.weekday(), 1),
        ("on days of the month", lambda start: start.day, 2),
    ],
    "week": [("in weeks of the month", lambda start: (start.day + 6) // 7, 2)],
    "month": [("in months", lambda start: start.month, 1)],
    "quarter": [("in quarters", lambda start: (start.month + 2) // 3, 1)],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A run calendar that fits the history of a job.

    `evidence` is a sentence.
    """

    calendar: CalendarDeclaration
    evidence: str


def infer_all(
    history: Iterable[ObservedRun], jobs: Iterable[JobNode] = ()
) -> Mapping[JobRef, Inference]:
    """Return what history and timetables show for each job; disagreements are left out.

    Jobs whose runs skip periods by a pattern are left out, too: those may be slices of their own
    (see `skipping`). Keys that an orchestrator recorded count before nominal times (OpenLineage run
    facet `nominalTime`). Only intervals in UTC are evidence: a few instants do not
    determine a zone.
    """
    found = {}
    for job, records in _completed(history).items():
        seen = _from_keys(records) or _from_nominal_times(records)
        if seen is not None and not seen.skips():
            found[job] = seen.inference()
    _add_timetables(found, tuple(jobs))
    return found


def skipping(history: Iterable[ObservedRun]) -> Mapping[JobRef, str]:
    """Return the jobs whose recorded runs fit a grain, but skip periods of it, and how."""
    found = {}
    for job, records in _completed(history).items():
        seen = _from_keys(records) or _from_nominal_times(records)
        if seen is not None and (skips := seen.skips()):
            found[job] = f"{seen.evidence}, but {skips}"
    return found


def _completed(history: Iterable[ObservedRun]) -> Mapping[JobRef, list[ObservedRun]]:
    by_job: dict[JobRef, list[ObservedRun]] = defaultdict(list)
    for record in history:
        if record.state == "COMPLETE":
            by_job[record.job].append(record)
    return by_job


@dataclass(frozen=True, slots=True)
class _Seen:
    """The periods of one grain that a job has run for."""

    grain: Grain
    periods: OrdinalSet
    evidence: str

    def inference(self) -> Inference:
        calendar = CalendarDeclaration(grain=self.grain, zone="UTC")
        return Inference(calendar=calendar, evidence=self.evidence)

    def skips(self) -> str:
        """Return how a coarser schedule may explain the gaps; empty if only lost runs do."""
        runs = len(self.periods.runs())
        if runs == 1:
            return ""
        grid = grain_grid(self.grain, "UTC")
        periods = self.periods
        for name, place, least in _CYCLES.get(self.grain, ()):
            window = range(periods.lo, min(periods.hi, periods.lo + _WINDOW) + 1)
            passed = Counter(place(grid.local_start(period)) for period in window)
            seen = set()
            unseen = {one for one, times in passed.items() if times >= least}
            for period in periods if unseen else ():
                seen.add(place(grid.local_start(period)))
                unseen -= seen
                if not unseen:
                    break
            if unseen:
                word, shown = ("none", unseen) if len(unseen) < len(seen) else ("only", seen)
                places = [_WEEKDAYS[n] if name == "on" else f"{n:02}" for n in sorted(shown)]
                return f"{word} {name} {', '.join(places)}"
        if len(periods) - runs <= runs - 1:
            return "most do not follow one another"
        if self.grain == "hour":
            days = grain_grid("day", "UTC")
            dates = OrdinalSet.of(days.at(grid.start(period)) for period in periods)
            return _Seen("day", dates, self.evidence).skips()
        return ""


def _add_timetables(found: dict[JobRef, Inference], jobs: Sequence[JobNode]) -> None:
    """Add what timetables of DAGs show for their tasks; drop both if history contradicts."""
    keeping = []
    for node in jobs:
        if node.airflow is None or node.airflow.timetable is None:
            continue
        read = read_timetable(node.airflow.timetable)
        known = found.get(node.ref)
        if read.odd or (read.calendar and known and known.calendar.grain != read.calendar.grain):
            found.pop(node.ref, None)
        elif read.calendar is not None:
            found[node.ref] = Inference(calendar=read.calendar, evidence=read.evidence)
        elif read.keeps_keys and known is None:
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
                found[node.ref] = Inference(calendar=calendar, evidence=evidence)


def _from_keys(records: Sequence[ObservedRun]) -> _Seen | None:
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
    if len(fitting) != 1:
        return None
    ((grain, periods),) = fitting
    return _Seen(grain, periods, f"{len(keys)} recorded partition keys are all of grain {grain}")


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


def _from_nominal_times(records: Sequence[ObservedRun]) -> _Seen | None:
    spans = {
        (record.nominal_start, record.nominal_end)
        for record in records
        if record.nominal_start is not None and record.nominal_end is not None
    }
    if len(spans) < LEAST_RUNS:
        return None
    for grain in _GRAINS:
        found = [_period(start, end, grain) for start, end in spans]
        if None not in found:
            periods = OrdinalSet.of(period for period in found if period is not None)
            evidence = f"the nominal times of {len(spans)} runs are each one {grain} in UTC"
            return _Seen(grain, periods, evidence)
    return None


def _period(start: datetime, end: datetime, grain: str) -> int | None:
    """Return the ordinal of the period from start to end; None if it is not exactly one."""
    grid = grain_grid(grain, "UTC")
    first, last = start.timestamp(), end.timestamp()
    ordinal = grid.at(int(first))
    return ordinal if (grid.start(ordinal), grid.start(ordinal + 1)) == (first, last) else None
