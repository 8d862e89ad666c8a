"""Gathers the history of tables and runs from logs, lineage and run store."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from heapq import nlargest

from lineage_backfill.errors import BackfillError, DeclarationError, TableLogError
from lineage_backfill.lineage.inference.recorded import touched_keys, whole_keys
from lineage_backfill.lineage.snapshot import LineageSnapshot, ObservedRun
from lineage_backfill.model import BackfillState, DatasetRef, JobRef
from lineage_backfill.partitions.calendar import EVERY, Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import KeySet, as_text, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.ports import PastRun, RunStore, TableHistory, TableLogs, TablePlace, Trace
from lineage_backfill.project.declarations import DatasetDeclaration, Declarations
from lineage_backfill.project.locations import is_remote
from lineage_backfill.project.matching import DeclaredNames
from lineage_backfill.project.resolve.resolver import JobFacts, is_last
from lineage_backfill.staleness.digests import existing_keys, versions_read
from lineage_backfill.staleness.record import LATER, Change, PartitionBuild, Run, TableRecord
from lineage_backfill.staleness.table_keys import TableKeys, reader_of, table_of
from lineage_backfill.staleness.value_keys import ValueKeys

#: Returns the traces of a job that may overlap these keys.
Traces = Callable[[JobRef, KeySet], Iterable[Trace]]

_EARLIER = datetime.min.replace(tzinfo=UTC)
_log = logging.getLogger(__name__)


def of_tables(
    resolver: Resolver, datasets: Iterable[DatasetRef], logs: TableLogs, *, by_spark: bool = True
) -> tuple[dict[DatasetRef, TableRecord], dict[DatasetRef, str]]:
    """Return the history of the datasets' tables, and for the others why it is unknown.

    Without `by_spark`, logs that only Spark can read are left out. Raises TableLogError where no
    log can be read at all.
    """
    histories, silent = histories_of(resolver, datasets, logs, by_spark=by_spark)
    known, others = records_of(resolver, histories)
    return known, silent | others


def histories_of(
    resolver: Resolver, datasets: Iterable[DatasetRef], logs: TableLogs, *, by_spark: bool = True
) -> tuple[dict[DatasetRef, TableHistory], dict[DatasetRef, str]]:
    """Return what the logs of tables hold, as `of_tables` does, by their physical partitions."""
    places, silent = _places(resolver, datasets)
    if not by_spark:
        every, places = places, _near(places)
        silent |= dict.fromkeys(every.keys() - places.keys(), "only Spark reads its log")
    found = dict(zip(places, logs.histories(list(places.values())), strict=True))
    silent |= {ref: str(one) for ref, one in found.items() if isinstance(one, BackfillError)}
    return {ref: one for ref, one in found.items() if isinstance(one, TableHistory)}, silent


def records_of(
    resolver: Resolver, histories: Mapping[DatasetRef, TableHistory]
) -> tuple[dict[DatasetRef, TableRecord], dict[DatasetRef, str]]:
    """Return the histories of tables in keys, and for the others why they cannot be read."""
    known: dict[DatasetRef, TableRecord] = {}
    silent: dict[DatasetRef, str] = {}
    names = _Names(resolver)
    for dataset, history in histories.items():
        try:
            known[dataset] = _record(resolver, dataset, history, names)
        except BackfillError as error:
            silent[dataset] = str(error)
    return known, silent


def readings(
    declarations: Declarations, snapshot: LineageSnapshot, traces: Callable[[], Traces]
) -> Iterator[ObservedRun]:
    """Yield which newest keys of inputs the runs of the run store have read.

    `traces` opens the store, and is called only where a job declares such an input.
    """
    jobs, home = DeclaredNames(declarations).jobs, declarations.namespace or "default"
    known = {JobRef(one.namespace or home, one.name) for one in declarations.jobs}
    tables = ((ref, jobs.find(ref)) for ref in sorted(known | snapshot.jobs.keys()))
    found = [ref for ref, table in tables if table and any(map(is_last, table.reads))]
    if not found:
        return
    find = traces()
    for job in found:
        for trace in find(job, (EVERY,)):
            parts = trace.contents["reads"] if trace.contents else ()
            read = [(DatasetRef(*part["dataset"]), part["keys"]) for part in parts]
            single = [(ref, keys[0]) for ref, keys in read if len(keys) == 1]
            yield ObservedRun(
                job=job,
                run_id=f"{trace.backfill_id} {trace.number}",
                state="COMPLETE",
                ended_at=trace.ended_at,
                partition_key=",".join(as_text(key) for key in trace.keys),
                read=tuple((ref, as_text(key)) for ref, key in single),
                backfill=trace.backfill_id,
            )


def runtime_keys(
    resolver: Resolver, histories: Mapping[DatasetRef, TableHistory]
) -> dict[str, set[str]]:
    """Return the keys of runtime dimensions that tables held, by the dimension's name."""
    found: dict[str, set[str]] = defaultdict(set)
    for dataset, history in histories.items():
        calendar = resolver.calendar(dataset)
        if calendar is None or not calendar.is_open or history.version is None:
            continue
        try:
            reader = reader_of(resolver, dataset, history.columns)
        except DeclarationError:  # its record is not read either
            continue
        commits = [part for one in history.commits for part in (*one.changed, *one.made)]
        if isinstance(reader, TableKeys):
            for name, key in reader.runtime_keys((*commits, *history.old)):
                found[name].add(key)
    return found


def of_near_tables(
    resolver: Resolver, datasets: Iterable[DatasetRef], logs: TableLogs
) -> dict[DatasetRef, TableRecord]:
    """Return the history of the datasets' tables, as far as it can be read without Spark."""
    try:
        return of_tables(resolver, sorted(datasets), logs, by_spark=False)[0]
    except TableLogError as error:
        _log.warning("the logs of tables cannot be read: %s", error)
        return {}


def _places(
    resolver: Resolver, datasets: Iterable[DatasetRef]
) -> tuple[dict[DatasetRef, TablePlace], dict[DatasetRef, str]]:
    """Return the places of the datasets' tables, and for the others why they are unknown."""
    places: dict[DatasetRef, TablePlace] = {}
    silent: dict[DatasetRef, str] = {}
    for dataset in datasets:
        try:
            places[dataset] = place_of(table_of(resolver, dataset))
        except DeclarationError as error:
            silent[dataset] = str(error)
    return places, silent


def place_of(declared: DatasetDeclaration) -> TablePlace:
    """Return where a table is, and the column whose value says which key a row has."""
    by = None
    if (column := declared.value_column) is not None:
        by = (column, "time" if declared.time_column else "key", declared.time_format)
    return TablePlace(declared.location, declared.table, declared.format or "delta", by)


def _near(places: Mapping[DatasetRef, TablePlace]) -> dict[DatasetRef, TablePlace]:
    """Return the places of tables whose logs can be read without Spark."""
    return {
        dataset: place
        for dataset, place in places.items()
        if place.location is not None and not is_remote(place.location)
    }


class _Names:
    """Finds datasets and jobs by their names in full."""

    def __init__(self, resolver: Resolver) -> None:
        self.datasets = {str(ref): ref for ref in resolver.edges.datasets}
        self.jobs = {str(ref): ref for ref in resolver.edges.jobs}


def _record(
    resolver: Resolver, dataset: DatasetRef, history: TableHistory, names: _Names
) -> TableRecord:
    """Return the history of a table in keys of its dataset.

    A file of another writer, of a table by value, may hold copies of rows that were there before:
    it makes no key that earlier ones may have made, and those between its ends perhaps.
    """
    if history.version is None:
        return TableRecord()
    reader = reader_of(resolver, dataset, history.columns)
    is_by_value = isinstance(reader, ValueKeys)
    seen = reader.find(history.old)[0]
    old = reader.held(history.old)
    changes, builds, known = [], [], [old]
    for commit in history.commits:
        if changed := reader.find(commit.changed)[0]:
            is_exact = reader.is_exact(commit.changed)
            changes.append(
                Change(keys=changed, at=commit.at, version=commit.version, is_exact=is_exact)
            )
        made = reader.held(commit.made)
        if is_by_value:
            before, seen = seen, seen | reader.find(commit.made)[0]
            made = made if commit.job else made - before
        if made:
            known.append(made)
            read = {
                names.datasets[name]: version
                for name, version in commit.read.items()
                if name in names.datasets
            }
            job = names.jobs.get(commit.job or "")
            builds.append(PartitionBuild(keys=made, at=commit.at, read=read, job=job))
    if is_by_value and (unsure := seen - PartitionSet.union(known)):
        last = [(history.since, reader.find(history.old)[0])] if history.since else []
        last += [(one.at, one.keys) for one in changes]
        found = ((at, keys & unsure) for at, keys in last)
        builds += [PartitionBuild(keys=keys, at=at, is_certain=False) for at, keys in found if keys]
    return TableRecord(
        changes=tuple(changes),
        builds=tuple(builds),
        old=old,
        since=history.since,
        whole=history.whole,
        copied=_copied(resolver.calendar(dataset), history.file_seconds),
    )


def _copied(calendar: Calendar | None, seconds: float | None) -> int:
    """Return how many times its rows the files of a key hold that each span these seconds."""
    if seconds is None or calendar is None or calendar.time is None:
        return 0
    grid, last = calendar.time.grid, calendar.time.last
    return round(seconds / (grid.end(last) - grid.start(last)))


class RecordedRuns:
    """The recorded runs of jobs: those of the run store, oldest first, then those in the lineage.

    `traces` returns those of the store for keys, `history` has the others; `is_ours` tests whether
    a backfill that the lineage names is of this run store, whose own record is better. `active` are
    runs that are still to come.
    """

    def __init__(
        self,
        resolver: Resolver,
        history: Iterable[ObservedRun],
        traces: Traces,
        is_ours: Callable[[str], bool],
        *,
        active: Mapping[JobRef, Sequence[Run]] | None = None,
        relevant: Callable[[JobFacts], PartitionSet] | None = None,
    ) -> None:
        self._resolver = resolver
        self._history = history
        self._traces = traces
        self._is_ours = is_ours
        self._active = active or {}
        self._relevant = relevant
        self._found: dict[JobRef, list[Run]] = {}
        self._outside: dict[JobRef, tuple[Run, ...]] = {}

    def limited(self, relevant: Callable[[JobFacts], PartitionSet]) -> RecordedRuns:
        """Return the runs for the relevant keys of each job."""
        return RecordedRuns(
            self._resolver, self._history, self._traces, self._is_ours, relevant=relevant
        )

    @cached_property
    def _records(self) -> Mapping[JobRef, Sequence[ObservedRun]]:
        found = defaultdict(list)
        for record in self._history:
            found[record.job].append(record)
        return found

    def __call__(self, job: JobRef) -> Sequence[Run]:
        """Return the runs of a job."""
        found = self._found.get(job)
        if found is None:
            facts = self._resolver.job(job) if job in self._resolver.edges.jobs else None
            found = self._found[job] = []
            if facts is not None and facts.calendar is not None:
                found += self._of_store(facts, facts.calendar)
                found += self._active.get(job, ())
                found += self.outside(job)
        return found

    def _of_store(self, facts: JobFacts, calendar: Calendar) -> list[Run]:
        wanted: KeySet = (EVERY,)
        if self._relevant is not None:
            wanted = render(calendar, self._relevant(facts))
        traces = self._traces(facts.ref, wanted) if wanted else ()
        return [
            Run(
                keys=existing_keys(calendar, trace.keys),
                started_at=trace.since or _EARLIER,
                # One that has not ended may have written, or will: see `active`.
                ended_at=trace.ended_at or trace.since,
                is_certain=trace.ended_at is not None,
                read=versions_read(trace.contents),
                number=trace.number,
                backfill=trace.backfill_id,
                document=trace.contents,
            )
            for trace in sorted(traces, key=lambda trace: trace.number)
        ]

    def outside(self, job: JobRef) -> Sequence[Run]:
        """Return the runs of a job in the lineage that no backfill of this run store started."""
        found = self._outside.get(job)
        if found is None:
            found = self._outside[job] = tuple(self._of_lineage(job))
        return found

    def _of_lineage(self, job: JobRef) -> Iterator[Run]:
        facts = self._resolver.job(job)
        calendar = facts.calendar
        for record in self._records.get(job, ()) if calendar is not None else ():
            assert calendar is not None
            if record.backfill and self._is_ours(record.backfill):
                continue
            touched = calendar.with_earlier(touched_keys(record, calendar), facts.lookback)
            at = record.started_at or record.ended_at
            if record.state == "RUNNING":
                yield Run(keys=touched, started_at=at or LATER)
                continue
            ended_at = record.ended_at or at or LATER
            whole = whole_keys(record, calendar) if record.state == "COMPLETE" and at else NOTHING
            if whole:
                yield Run(keys=whole, started_at=at or LATER, ended_at=ended_at)
            if touched - whole:
                keys = touched - whole
                yield Run(keys=keys, started_at=at or LATER, ended_at=ended_at, is_certain=False)


def active_runs(resolver: Resolver, store: RunStore) -> dict[JobRef, list[Run]]:
    """Return the runs that running backfills have not ended yet."""
    found: dict[JobRef, list[Run]] = defaultdict(list)
    for record in store.backfills():
        runs = store.runs(record.id) if record.state is BackfillState.RUNNING else ()
        for run in runs:
            calendar = _calendar(resolver, run.job)
            if calendar is not None and not run.state.is_final:
                keys = existing_keys(calendar, run.partitions)
                at = run.started_at or record.submitted_at
                found[run.job].append(Run(keys=keys, started_at=at))
    return found


def past_runs(
    history: Iterable[ObservedRun], jobs: Collection[JobRef], limit: int
) -> Iterator[PastRun]:
    """Yield durations of the jobs' runs, newest first, at most `limit` of each job."""
    ended: dict[JobRef, list[tuple[datetime, datetime]]] = defaultdict(list)
    for record in history:
        began, end = record.started_at, record.ended_at
        if record.job in jobs and record.state == "COMPLETE" and began and end:
            ended[record.job].append((end, began))
    for job, times in ended.items():
        for ended_at, started_at in nlargest(limit, times):
            yield PastRun(job=job, seconds=(ended_at - started_at).total_seconds())


def _calendar(resolver: Resolver, job: JobRef) -> Calendar | None:
    return resolver.job(job).calendar if job in resolver.edges.jobs else None
