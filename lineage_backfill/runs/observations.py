"""Gathers the history of tables and runs from logs, lineage and run store."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from typing import Any

from lineage_backfill.errors import BackfillError, DeclarationError, TableLogError, UsageError
from lineage_backfill.lineage.inference.recorded import touched_keys, whole_keys
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import KeySet, parse
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.ports import PastRun, RunRecord, RunStore, TableHistory, TableLogs, TablePlace
from lineage_backfill.project.locations import is_remote
from lineage_backfill.staleness.staleness import Change, PartitionBuild, Run, TableRecord
from lineage_backfill.staleness.table_keys import TableKeys, reader_of, table_of

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


def of_undo(
    resolver: Resolver, datasets: Iterable[DatasetRef], logs: TableLogs
) -> dict[DatasetRef, tuple[str, ...]]:
    """Return what prevents an undo on the datasets' tables, possibly nothing, where it is known.

    Tables whose logs only Spark can read are left out. Raises TableLogError where no log can be
    read at all.
    """
    places = _near(_places(resolver, datasets)[0])
    answers = logs.blockers(list(places.values()))
    return {
        dataset: answer
        for dataset, answer in zip(places, answers, strict=True)
        if not isinstance(answer, BackfillError)
    }


def _places(
    resolver: Resolver, datasets: Iterable[DatasetRef]
) -> tuple[dict[DatasetRef, TablePlace], dict[DatasetRef, str]]:
    """Return the places of the datasets' tables, and for the others why they are unknown."""
    places: dict[DatasetRef, TablePlace] = {}
    silent: dict[DatasetRef, str] = {}
    for dataset in datasets:
        try:
            table = table_of(resolver, dataset)
            places[dataset] = TablePlace(table.location, table.table, table.format or "delta")
        except DeclarationError as error:
            silent[dataset] = str(error)
    return places, silent


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
    """Return the history of a table in keys of its dataset."""
    if history.version is None:
        return TableRecord()
    reader = reader_of(resolver, dataset, history.columns)
    changes, builds = [], []
    for commit in history.commits:
        if changed := _keys(reader, commit.changed):
            changes.append(Change(keys=changed, at=commit.at, version=commit.version))
        if made := _keys(reader, commit.made):
            read = {
                names.datasets[name]: version
                for name, version in commit.read.items()
                if name in names.datasets
            }
            job = names.jobs.get(commit.job or "")
            builds.append(PartitionBuild(keys=made, at=commit.at, read=read, job=job))
    return TableRecord(
        changes=tuple(changes),
        builds=tuple(builds),
        old=_keys(reader, history.old),
        since=history.since,
        whole=history.whole,
    )


def _keys(reader: TableKeys, partitions: Sequence[Mapping[str, str | None]]) -> PartitionSet:
    return reader.find(partitions)[0]


def of_runs(
    resolver: Resolver, history: Iterable[ObservedRun], store: RunStore
) -> dict[JobRef, list[Run]]:
    """Return the runs of each job by lineage and run store."""
    found: dict[JobRef, list[Run]] = defaultdict(list)
    ours: set[str] = set()
    for record in store.backfills():
        ours.add(record.id)
        since = record.submitted_at if record.state is BackfillState.RUNNING else None
        results = {
            attempt.run_id: attempt.result
            for attempt in store.attempts(record.id)
            if attempt.result
        }
        for run in store.runs(record.id):
            result = results.get(run.run_id)
            found[run.job].extend(_ours(resolver, run, result, since))
    for outside in history:
        # What our own runs sent is known better from the run store.
        if outside.backfill is None or outside.backfill not in ours:
            found[outside.job].extend(_outside(resolver, outside))
    return found


def failed_keys(calendar: Calendar, job: JobRef, store: RunStore) -> PartitionSet:
    """Return the run keys whose last run failed, or was blocked by one that did.

    What was cancelled, and what an undo took back, counts as not run.
    """
    failed = known = NOTHING
    for record in store.backfills():  # the newest first
        if record.undo_of or record.undone_by:
            continue
        now, good = NOTHING, NOTHING
        for run in store.runs(record.id):
            keys = _parsed(calendar, run.partitions) if run.job == job else NOTHING
            if run.state in (RunState.FAILED, RunState.BLOCKED):
                now |= keys
            elif run.state is not RunState.CANCELLED:
                good |= keys
        failed |= now - known
        known |= now | good
    return failed


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


def _ours(
    resolver: Resolver, run: RunRecord, result: Mapping[str, Any] | None, since: datetime | None
) -> Iterator[Run]:
    """Yield the keys that a run of a backfill made, and those that it found up to date.

    `since` is the start of a backfill that is still running.
    """
    calendar = _calendar(resolver, run.job)
    if calendar is None:
        return
    if run.state in (RunState.SUCCEEDED, RunState.SKIPPED) and run.ended_at is not None:
        at = run.started_at or run.ended_at
        cut_off = _parsed(calendar, run.cut_off)
        if cut_off:
            yield Run(keys=cut_off, started_at=at, ended_at=run.ended_at)
        made = _parsed(calendar, run.partitions) - cut_off
        if made:
            read = _versions(result)
            yield Run(keys=made, started_at=at, ended_at=run.ended_at, read=read)
    elif since is not None and not run.state.is_final:
        yield Run(keys=_parsed(calendar, run.partitions), started_at=run.started_at or since)


def _versions(result: Mapping[str, Any] | None) -> dict[DatasetRef, int]:
    """Return the versions of its inputs that a run reports."""
    inputs = (result or {}).get("inputs", ())
    return {
        DatasetRef(one["dataset"]["namespace"], one["dataset"]["name"]): one["version"]
        for one in inputs
        if isinstance(one.get("version"), int)
    }


def _outside(resolver: Resolver, record: ObservedRun) -> Iterator[Run]:
    calendar = _calendar(resolver, record.job)
    at = record.started_at or record.ended_at
    if calendar is None or at is None:
        return
    if record.state == "RUNNING":
        yield Run(keys=touched_keys(record, calendar), started_at=at)
    elif record.state == "COMPLETE":
        keys = whole_keys(record, calendar)
        if keys:
            yield Run(keys=keys, started_at=at, ended_at=record.ended_at or at)


def _calendar(resolver: Resolver, job: JobRef) -> Calendar | None:
    return resolver.job(job).calendar if job in resolver.edges.jobs else None


def _parsed(calendar: Calendar, keys: KeySet) -> PartitionSet:
    try:
        return parse(calendar, keys)
    except UsageError:  # the calendar is another one since
        return PartitionSet(())
