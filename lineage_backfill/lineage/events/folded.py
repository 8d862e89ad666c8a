"""The state of folded events: jobs with runs, datasets, and their latest facets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import reduce
from operator import or_
from typing import Any, Final

from lineage_backfill.lineage.events.event_facets import (
    airflow_task,
    column_inputs,
    fields,
    node_id,
    owners,
    partitioning,
    processing,
    query,
    tags,
)
from lineage_backfill.model import DatasetRef, JobRef

Name = tuple[str, str]
#: The node member and the reader for each facet that is kept.
Readers = Mapping[str, tuple[str, Callable[[Any], Any]]]
#: The latest facets of a job or dataset: name, time and value.
LatestFacets = dict[str, tuple[datetime, Any]]

#: The errors of reading a value of unexpected shape.
SHAPE_ERRORS = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


class Unreadable(Enum):
    """Placeholder for a facet of unknown shape."""

    FACET = "unreadable"


UNREADABLE: Final = Unreadable.FACET

_OF_BOTH: Readers = {
    "ownership": ("owners", owners),
    "tags": ("tags", tags),
    "lineageBackfill_partitioning": ("partitioning", partitioning),
}
OF_JOBS: Readers = {
    "jobType": ("processing", processing),
    "sql": ("query", query),
    "dbt_node": ("stable_id", node_id),
    **_OF_BOTH,
}
#: Facets of runs that describe the job.
OF_RUNS: Readers = {"airflow": ("airflow", airflow_task)}
OF_DATASETS: Readers = {"schema": ("fields", fields), **_OF_BOTH}


class Dataset:
    """A dataset; compared by identity, which is what makes sets fast."""

    __slots__ = ("columns", "facets", "last_columns", "name", "ref")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.ref = DatasetRef(*name)
        self.facets: LatestFacets = {}
        self.columns: dict[str, Columns] = {}
        self.last_columns: Columns | None = None


class Columns:
    """One column lineage facet of one output, stored once for all runs that repeat it."""

    __slots__ = ("_sources", "facet", "output")

    def __init__(self, output: Dataset, facet: dict[str, Any]) -> None:
        self.output = output
        self.facet = facet
        self._sources: frozenset[Name] | None = None

    @property
    def sources(self) -> frozenset[Name]:
        """The other datasets that it names; none if it cannot be read."""
        if self._sources is None:
            try:
                names = {name for _, name, _, _ in column_inputs(self.facet)}
            except SHAPE_ERRORS:
                names = set()
            self._sources = frozenset(names - {self.output.name})
        return self._sources


@dataclass(frozen=True, slots=True)
class RunIO:
    """The datasets of a run; shared by all runs with the same ones."""

    reads: frozenset[Dataset] = frozenset()
    writes: frozenset[Dataset] = frozenset()
    columns: frozenset[Columns] = frozenset()

    def __or__(self, other: RunIO) -> RunIO:
        return RunIO(
            self.reads | other.reads, self.writes | other.writes, self.columns | other.columns
        )


NOTHING = RunIO()


def _union(found: Iterable[RunIO]) -> RunIO:
    rest = iter(found)  # most often there is one, which is not made again
    return reduce(or_, rest, next(rest, NOTHING))


@dataclass(frozen=True, slots=True)
class Edges:
    """The datasets of a job `now` and `ever`; `whole` are its last completed runs, if several.

    It is cleared if its last completed run named nothing, but others did.
    """

    now: RunIO
    ever: RunIO
    is_cleared: bool = False
    whole: frozenset[RunIO] = frozenset()


class Run:
    """A run as its events tell of it."""

    #: What events say of it.
    MEMBERS = (
        *("backfill", "completed", "index", "run_io", "last", "manual", "marked", "nominal"),
        *("parent", "partition_key", "rank", "read", "started", "wrote"),
    )
    __slots__ = MEMBERS

    def __init__(self, when: datetime) -> None:
        self.last = when
        self.rank = 0
        self.manual = False
        self.index = -1  # that of an instance of a mapped task of Airflow
        self.wrote: frozenset[str] = frozenset()  # keys, by its outputs' subset facets
        #: Inputs by namespace and name, each with its key, where that is one.
        self.read: frozenset[tuple[str, ...]] = frozenset()
        self.started: datetime | None = None
        self.completed: datetime | None = None
        self.run_io = NOTHING
        self.nominal: tuple[str, str] | None = None
        self.partition_key: str | None = None
        self.backfill: str | None = None
        self.parent: str | None = None  # the id of the run that started it
        self.marked = False  # an event tells its end, and nothing of a try

    @property
    def is_mark(self) -> bool:
        """Return whether a task of Airflow has not run: someone has only set its state."""
        return self.marked and self.started is None and self.run_io is NOTHING


class Job:
    """A job as its events tell of it."""

    __slots__ = (
        *("declared", "facets", "is_test", "modes", "name", "parent", "ref", "runs", "spark"),
    )

    def __init__(self, name: Name) -> None:
        self.name = name
        self.ref = JobRef(*name)
        self.runs: dict[str, Run] = {}
        self.facets: LatestFacets = {}
        self.parent: tuple[datetime, Name] | None = None
        self.declared: tuple[datetime, RunIO] | None = None  # by job events, without a run
        #: What Spark's listener calls it; "?" where that is not told, and the name looks like an
        #: action's.
        self.spark: frozenset[str] = frozenset()
        self.is_test = False
        #: How it writes its outputs, as its newest event that tells it.
        self.modes: dict[Name, tuple[datetime, str]] = {}

    @property
    def is_action(self) -> bool:
        """Whether it is an action of a Spark application."""
        return bool(self.spark) and "APPLICATION" not in self.spark

    def edges(self, jobs: Mapping[Name, Job]) -> Edges:
        """Return what the job names now and ever named; runs of one parent run are one run.

        That run replaces earlier ones once it is whole: a parent run that is known, of `jobs`, has
        completed; where none is, no run beside those that completed has failed.
        """
        if len(self.runs) == 1 and not self.declared:  # as most jobs of a first read
            (only,) = self.runs.values()
            if self._counts(only):
                return Edges(only.run_io, only.run_io)
        together, ended, chosen = self._together(jobs)
        named = {run.run_io for run in self.runs.values()}
        if self.declared:
            named.add(self.declared[1])
        counted = list(chosen)
        for is_part, runs in together:
            later = (run for run in runs if ended is None or run.last > ended)
            if any(is_part or not run.completed for run in later):
                counted += runs
        current = {run.run_io for run in counted}
        if self.declared and not chosen:
            current.add(self.declared[1])
        now = _union(current)
        ever = reduce(or_, named - current - {NOTHING}, now)
        is_cleared = ended is not None and now == NOTHING != ever
        whole = frozenset(run.run_io for run in counted if run.completed)
        return Edges(now, ever, is_cleared, whole)

    def _counts(self, run: Run) -> bool:
        """Return whether a run has edges: a failed run has them only in a streaming job."""
        if run.is_mark:
            return False
        if run.completed or run.rank == 0:
            return True
        value = self.facets.get("jobType")
        return value is not None and value[1] == "STREAM"  # which does not end otherwise

    def last_completed(self, jobs: Mapping[Name, Job]) -> list[Run]:
        """Return the completed runs that count as the last one; none if a job event came later."""
        if len(self.runs) == 1 and not self.declared:  # as most jobs of a first read
            return [run for run in self.runs.values() if run.completed and self._counts(run)]
        return [run for run in self._together(jobs)[2] if run.completed]

    def _together(
        self, jobs: Mapping[Name, Job]
    ) -> tuple[list[tuple[bool, list[Run]]], datetime | None, list[Run]]:
        """Return the runs of each parent run, when the last whole one completed, and its runs.

        With those of each comes whether it is not whole. A run without a parent is by itself.
        """
        together: dict[str, list[Run]] = {}
        failed: dict[str, list[Run]] = {}
        for run_id, run in self.runs.items():
            found = together if self._counts(run) else failed
            found.setdefault(run.parent or run_id, []).append(run)
        above = jobs.get(self.parent[1]) if self.parent else None
        # One run of each name is whole by itself, whatever becomes of its parent.
        is_shared = len(self.runs) > len({*together, *failed})
        parents = above.runs if above and is_shared else {}
        last = (self.declared[0], "") if self.declared else None
        chosen = ""
        groups = []
        for key, runs in together.items():
            parent = parents.get(key)
            ended = max((run.completed for run in runs if run.completed), default=None)
            if parent is not None and parent.started:
                is_part = not parent.completed
            else:
                is_part = not _has_all(runs, failed.get(key, ()))
            if ended and not is_part and (last is None or (ended, key) > last):
                last, chosen = (ended, key), key
            groups.append((is_part, runs))
        return groups, last and last[0], together.get(chosen, [])


def _has_all(runs: Iterable[Run], failed: Iterable[Run]) -> bool:
    """Return whether completed runs name all that failed ones beside them did, as retries do."""
    named = _union(run.run_io for run in runs if run.completed)
    return all(
        run.run_io.reads <= named.reads and run.run_io.writes <= named.writes for run in failed
    )


def keep(kept: LatestFacets, facets: Any, readers: Readers, when: datetime) -> bool:
    """Keep newer facets of an event; return whether anything changed."""
    changed = False
    for name in facets:
        # Marquez sends null for absent values.
        if name in readers and (facet := facets[name]) is not None:
            old = kept.get(name)
            if old is None or when >= old[0]:
                changed |= _keep(kept, name, when, _read(readers[name][1], facet))
    return changed


def merge(kept: LatestFacets, others: LatestFacets) -> None:
    """Keep newer facets that arrived under another name."""
    for name, (when, value) in others.items():
        _keep(kept, name, when, value)


def _keep(kept: LatestFacets, name: str, when: datetime, value: Any) -> bool:
    old = kept.get(name)
    if old is None or when > old[0]:
        kept[name] = (when, value)
        return old is None or not _is_same(value, old[1])
    if when < old[0] or _is_same(value, old[1]):
        return False
    # The greater one if two events of one time differ: independent of order.
    kept[name] = (when, max(old[1], value, key=_order))
    return kept[name][1] is value


def _read(read: Callable[[Any], Any], facet: Any) -> Any:
    """Return the value of a facet; None if it was deleted."""
    try:
        return None if facet.get("_deleted") else read(facet)
    except SHAPE_ERRORS:
        return UNREADABLE


def _is_same(one: Any, other: Any) -> bool:
    # For Python 1 == 1.0 == True; the hash of the lineage distinguishes them.
    return bool(one == other) and (type(one) is not dict or canonical(one) == canonical(other))


def _order(value: Any) -> tuple[bool, bool, str]:
    """Return the sort key: values above absent ones, absent ones above unreadable ones."""
    if value is UNREADABLE:
        return False, False, ""
    return True, bool(value), canonical(value)


def canonical(value: Any) -> str:
    """Return the JSON text of a value, the same for values that are equal."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
