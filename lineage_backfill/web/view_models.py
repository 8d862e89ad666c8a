"""What the pages show of documents: pages of long lists, rows of jobs, and maps of their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lineage_backfill.model import JobRef, RunState
from lineage_backfill.planning.timeline import Span
from lineage_backfill.presentation.periods import Periods

T = TypeVar("T")
Document = Mapping[str, Any]

#: What a cell of a map, in which runs of several states lie, is shown as: the first of these.
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
#: How a state is told apart without its colour.
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
_COLUMNS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list, counted from 1."""

    items: Sequence[T]
    number: int
    pages: int
    total: int

    @classmethod
    def of(cls, items: Sequence[T], number: int, *, size: int) -> Page[T]:
        """Return a page; a number that is too high or too low gives the nearest one."""
        pages = max(1, -(-len(items) // size))
        number = min(max(1, number), pages)
        begin = (number - 1) * size
        return cls(items=items[begin : begin + size], number=number, pages=pages, total=len(items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a bar: its state, how many runs it stands for, where it begins and how wide it is.

    Both are in hundredths of the bar.
    """

    state: RunState
    number: int
    x: float
    width: float


def bar(counts: Mapping[str, int]) -> list[Slice]:
    """Return the parts of a bar that shows how many runs are in which state."""
    total = sum(counts.get(state, 0) for state in RunState) or 1
    # What is right, what will not be, what is under way, what is to come.
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
    """The runs of one job: their waves, their states, and the cells of its row of the map."""

    job: JobRef
    waves: tuple[int, int]
    counts: Counter[RunState] = field(default_factory=Counter)
    cells: list[Counter[RunState]] = field(default_factory=list)

    @property
    def wave(self) -> str:
        """The waves of its runs, in words."""
        first, last = self.waves
        return f"{first}" if first == last else f"{first}-{last}"


def job_rows(runs: Iterable[Document]) -> list[JobRow]:
    """Return the jobs of a backfill, those of the first waves first."""
    rows: dict[JobRef, JobRow] = {}
    for run in runs:
        job, wave = JobRef(**run["job"]), run["wave"]
        row = rows.setdefault(job, JobRow(job=job, waves=(wave, wave)))
        row.waves = min(row.waves[0], wave), max(row.waves[1], wave)
        row.counts[RunState(run["state"])] += 1
    return sorted(rows.values(), key=lambda row: (row.waves, row.job))


def fill(
    rows: Iterable[JobRow], runs: Iterable[Document], spans: Mapping[str, Sequence[Span]], zone: str
) -> Periods | None:
    """Fill the cells of rows with the states of their runs; return the periods that they are.

    None where no key lies in time.
    """
    every = [span for one in spans.values() for span in one]
    if not every:
        return None
    periods = Periods.covering(every, zone, most=_COLUMNS)
    if len(periods) > 4 * _COLUMNS:
        return None
    by_job = {row.job: row for row in rows}
    for row in by_job.values():
        row.cells = [Counter() for _ in range(len(periods))]
    for run in runs:
        found = by_job.get(JobRef(**run["job"]))
        if found is not None:
            state = RunState(run["state"])
            columns = {one for span in spans.get(run["id"], ()) for one in periods.columns(span)}
            for column in columns:
                found.cells[column][state] += 1
    return periods


def worst(counts: Mapping[RunState, int]) -> RunState | None:
    """Return the state that a reader must see first; None where there are no runs."""
    return next((state for state in _FIRST if counts.get(state)), None)


def in_states(counts: Mapping[str, int]) -> str:
    """Return how many runs are in which state, as words."""
    return ", ".join(f"{counts[state]:,} {state}" for state in RunState if counts.get(state))


@dataclass(slots=True, kw_only=True)
class Trouble:
    """Runs of one job that are in the same trouble; `run` is the first of them."""

    job: JobRef
    state: RunState
    error: str
    run: str
    runs: int = 0
    partitions: list[Any] = field(default_factory=list)


def troubles(runs: Iterable[Document]) -> list[Trouble]:
    """Return what did not succeed, what failed by itself first, alike runs of a job together."""
    found: dict[tuple[JobRef, RunState, str], Trouble] = {}
    for run in runs:
        state = RunState(run["state"])
        if state.is_final and not state.is_good:
            job, error = JobRef(**run["job"]), run["error"] or ""
            one = found.setdefault(
                (job, state, error), Trouble(job=job, state=state, error=error, run=run["id"])
            )
            one.runs += 1
            one.partitions += run["partitions"]
    return sorted(found.values(), key=lambda one: _FIRST.index(one.state))
