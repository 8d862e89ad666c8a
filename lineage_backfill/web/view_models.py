"""View models: pages of lists, rows of jobs, and heatmaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lineage_backfill.model import DatasetRef, JobRef, RunState
from lineage_backfill.planning.timeline import Span
from lineage_backfill.staleness.partitions import PartitionState
from lineage_backfill.staleness.staleness import Staleness
from lineage_backfill.web.periods import Periods
from lineage_backfill.workspace.catchup import Stale

T = TypeVar("T")
Document = Mapping[str, Any]

#: A heatmap cell with runs of several states shows the first of these.
_FIRST = (
    RunState.FAILED,
    RunState.BLOCKED,
    RunState.CANCELLED,
    RunState.RUNNING,
    RunState.SUBMITTED,
    RunState.PENDING,
    RunState.SUCCEEDED,
    RunState.SKIPPED,
)
#: Letters for states, for readers who cannot see the colours.
SIGNS = {
    RunState.FAILED: "✗",
    RunState.BLOCKED: "!",
    RunState.CANCELLED: "-",
    RunState.RUNNING: "▸",
    RunState.SUBMITTED: "▹",
    RunState.PENDING: "·",
    RunState.SUCCEEDED: "✓",
    RunState.SKIPPED: "=",
}
#: Of partitions in several states the first of these counts.
WORST = (
    PartitionState.STALE,
    PartitionState.MISSING,
    PartitionState.RUNNING,
    PartitionState.UNKNOWN,
    PartitionState.FRESH,
    PartitionState.EXPIRED,
)
_AHEAD = {RunState.FAILED: 0, RunState.RUNNING: 1, RunState.SUBMITTED: 2}
_COLUMNS = 48
_BAD = frozenset(state for state in RunState if state.is_final and not state.is_good)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list, counted from 1."""

    items: Sequence[T]
    number: int
    pages: int
    total: int

    @classmethod
    def of(cls, items: Sequence[T], number: int, *, size: int) -> Page[T]:
        """Return a page; a number out of range gives the nearest one."""
        pages = max(1, -(-len(items) // size))
        number = min(max(1, number), pages)
        begin = (number - 1) * size
        return cls(items=items[begin : begin + size], number=number, pages=pages, total=len(items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A segment of a progress bar: state, number of runs, start and width.

    Start and width are in percent of the bar.
    """

    state: RunState
    number: int
    x: float
    width: float


def bar(counts: Mapping[str, int]) -> list[Slice]:
    """Return the segments of a bar that shows the states of runs."""
    total = sum(counts.get(state, 0) for state in RunState) or 1
    # Order: succeeded, failed, running, pending.
    order = sorted(
        RunState, key=lambda one: (not one.is_good, not one.is_final, not one.is_under_way)
    )
    parts: list[Slice] = []
    x = 0.0
    for state in order:
        if number := counts.get(state, 0):
            width = 100 * number / total
            parts.append(Slice(state=state, number=number, x=round(x, 2), width=round(width, 2)))
            x += width
    return parts


@dataclass(slots=True, kw_only=True)
class JobRow:
    """The runs of one job: waves, states, and the cells of its heatmap row."""

    job: JobRef
    waves: tuple[int, int]
    runs: list[Document] = field(default_factory=list)
    counts: Counter[RunState] = field(default_factory=Counter)
    cells: list[Counter[RunState]] = field(default_factory=list)

    @property
    def wave(self) -> str:
        """The waves of its runs, as text."""
        first, last = self.waves
        return f"{first}" if first == last else f"{first}-{last}"


def job_rows(runs: Iterable[Document]) -> list[JobRow]:
    """Return the jobs of a backfill, by wave."""
    rows: dict[tuple[str, str], JobRow] = {}
    for run in runs:
        key = run["job"]["namespace"], run["job"]["name"]  # made faster than a JobRef
        row = rows.get(key)
        if row is None:
            row = rows[key] = JobRow(job=JobRef(*key), waves=(0, 0))
        row.runs.append(run)
    for row in rows.values():
        waves = [run["wave"] for run in row.runs]
        row.waves = min(waves), max(waves)
        row.counts = Counter(run["state"] for run in row.runs)
    return sorted(rows.values(), key=lambda row: (row.waves, row.job))


def fill(rows: Iterable[JobRow], spans: Mapping[str, Sequence[Span]], zone: str) -> Periods | None:
    """Fill the heatmap cells of the rows; return their periods.

    None if there are no time partitions.
    """
    every = [span for one in spans.values() for span in one]
    if not every:
        return None
    periods = Periods.covering(every, zone, most=_COLUMNS)
    if len(periods) > 4 * _COLUMNS:
        return None
    for row in rows:
        row.cells = [Counter() for _ in range(len(periods))]
        for run in row.runs:
            columns = {one for span in spans.get(run["id"], ()) for one in periods.columns(span)}
            for column in columns:
                row.cells[column][run["state"]] += 1
    return periods


def worst(counts: Mapping[RunState, int]) -> RunState | None:
    """Return the most important state; None if there are no runs."""
    return next((state for state in _FIRST if counts.get(state)), None)


def in_states(counts: Mapping[str, int]) -> str:
    """Return the numbers of runs by state, as text."""
    return ", ".join(f"{counts[state]:,} {state}" for state in RunState if counts.get(state))


def stale_datasets(found: Stale) -> list[tuple[DatasetRef | JobRef, int, int]]:
    """Return what is written by stale jobs, with the stale and the missing keys; most of all first.

    A job that writes nothing stands for itself.
    """
    rows: list[tuple[DatasetRef | JobRef, int, int]] = []
    for one in found.jobs:
        missing = len(one.missing)
        if number := len(one.stale):
            written = found.resolver.edges.writes(one.job) or (one.job,)
            rows += [(ref, number - missing, missing) for ref in written]
    return sorted(rows, key=lambda row: -row[1] - row[2])


def states_of(
    refs: Iterable[DatasetRef | JobRef], found: Stale | None
) -> dict[DatasetRef | JobRef, PartitionState]:
    """Return the worst state of each job, and of each dataset by the jobs that write it.

    What no job writes has none.
    """
    if found is None:
        return {}
    jobs = {one.job: _state_of(one) for one in found.jobs}
    states = {}
    for ref in refs:
        edges = found.resolver.edges
        writers = (ref,) if isinstance(ref, JobRef) else edges.writers.get(ref, ())
        if held := {jobs[job] for job in writers if job in jobs}:
            states[ref] = next(one for one in WORST if one in held)
    return states


def _state_of(one: Staleness) -> PartitionState:
    if one.older:
        return PartitionState.STALE
    if one.missing:
        return PartitionState.MISSING
    if one.running:
        return PartitionState.RUNNING
    return PartitionState.UNKNOWN if one.why else PartitionState.FRESH


def partitions_in_states(counts: Mapping[PartitionState, int]) -> str:
    """Return the numbers of partitions by state, as text; the state alone of a single one."""
    if sum(counts.values()) == 1:
        return next(iter(counts))
    return ", ".join(f"{number:,} {state}" for state, number in counts.items())


@dataclass(slots=True, kw_only=True)
class Trouble:
    """Runs with the same problem: how many, and those of each job; `first` is one of them."""

    state: RunState
    error: str
    first: Document
    runs: int = 0
    jobs: dict[JobRef, TroubledJob] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class TroubledJob:
    """The partitions of a job that have a problem; `run` is the first of its runs."""

    run: str
    partitions: list[Any] = field(default_factory=list)


def troubles(runs: Iterable[Document]) -> list[Trouble]:
    """Return the runs that did not succeed, failed ones first, grouped by their errors.

    Of several errors in one state the one of most runs comes first.
    """
    found: dict[tuple[RunState, str], Trouble] = {}
    for run in runs:
        if run["state"] in _BAD:
            state = RunState(run["state"])
            job, error = JobRef(**run["job"]), run["error"] or ""
            one = found.setdefault((state, error), Trouble(state=state, error=error, first=run))
            one.runs += 1
            one.jobs.setdefault(job, TroubledJob(run=run["id"])).partitions += run["partitions"]
    return sorted(found.values(), key=lambda one: (_FIRST.index(one.state), -one.runs))


def first_of_all(runs: Iterable[Document]) -> list[Document]:
    """Return runs as planned, but the failed ones first, and then those under way."""
    return sorted(runs, key=lambda run: _AHEAD.get(run["state"], len(_AHEAD)))
