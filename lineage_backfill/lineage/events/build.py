"""Folds OpenLineage events into a lineage snapshot, independent of their order.

The edges of a job are those of its last completed run, by event time and with all events of that
run put together, plus those of later unfinished runs. Runs of one job under one parent run, as the
actions of a Spark application, are one run. Other datasets of older and failed runs are
*former*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from lineage_backfill.errors import LineageError
from lineage_backfill.lineage.events.event_facets import (
    Interval,
    airflow_run,
    interval,
    is_of,
    is_of_spark,
    is_test,
    parent_run_id,
    parse_time,
    renamed_from,
    run_backfill,
    run_keys,
    spark_job_type,
    symlinks,
    task_index,
    was_triggered,
    write_mode,
)
from lineage_backfill.lineage.events.folded import (
    NOTHING,
    OF_DATASETS,
    OF_JOBS,
    OF_RUNS,
    SHAPE_ERRORS,
    Columns,
    Dataset,
    Job,
    Name,
    Readers,
    Run,
    RunIO,
    canonical,
    keep,
    merge,
)
from lineage_backfill.lineage.events.nodes import Reading
from lineage_backfill.lineage.events.run_names import join_names
from lineage_backfill.lineage.events.subsets import subset_keys
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import JobRef
from lineage_backfill.plans.notice import Notice

#: In this namespace Spark's own listener reports runs that report themselves, too.
LISTENER = "lineage-backfill.listener"
_FIRST = datetime.min.replace(tzinfo=UTC)
#: Which event wins if two of one run have the same time.
_RANK = {"ABORT": 1, "FAIL": 2, "COMPLETE": 3}
#: The run facets that are read, except the nominal time, which most runs have.
RARE_RUN_FACETS = frozenset(
    {
        *("airflow", "airflowDagRun", "airflow_runArgs"),
        *("lineageBackfill_run", "parent", "parentRun"),
    }
)
#: Control characters and lone surrogates: never intended, and harmful in terminals and databases.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLimits:
    """Size limits of one event; lineage is untrusted input.

    `name_length` counts characters, `datasets_per_event` inputs and outputs, `columns` the column
    edges into one output.
    """

    name_length: int = 4096
    datasets_per_event: int = 10_000
    columns: int = 100_000


class LineageBuilder:
    """Folds events, in any order and any number of times each, into one snapshot.

    Memory grows with jobs, datasets and runs, not with events.
    """

    def __init__(self, limits: BuildLimits | None = None) -> None:
        self._limits = limits or BuildLimits()
        self._jobs: dict[Name, Job] = {}
        self._datasets: dict[Name, Dataset] = {}
        self._run_ios: dict[tuple[object, ...], RunIO] = {}
        # Not a bound method: that would be a reference cycle.
        links = partial(_links, self._limits.name_length)
        self._of_datasets: Readers = {
            **OF_DATASETS,
            "symlinks": ("aliases", links),
        }
        self._without_zone = 0
        self._unreadable = 0
        #: The time of the newest event so far.
        self.newest: datetime | None = None

    def add(self, event: Any) -> None:
        """Fold in one RunEvent, JobEvent or DatasetEvent; raises LineageError for others."""
        try:
            self._add(event)
        except SHAPE_ERRORS as error:
            # Checking every member's type first would cost more than the fold itself.
            raise LineageError(f"not an OpenLineage event: {_misshapen(event, error)}") from error

    def add_dataset(self, namespace: str, name: str) -> None:
        """Add a dataset that is known by its name alone."""
        self._seen(({"namespace": namespace, "name": name},), _FIRST)

    def dataset_names(self) -> set[Name]:
        """Return (namespace, name) of all datasets so far, including aliases."""
        return set(self._datasets)

    def is_silent(self, job: JobRef) -> bool:
        """Return whether no run of the job has completed so far and none named a dataset."""
        runs = self._jobs[job.namespace, job.name].runs.values()
        return not any((run.completed and not run.is_mark) or run.run_io != NOTHING for run in runs)

    def is_open(self, job: JobRef) -> bool:
        """Return whether events of the last completed run may be missing.

        There is no such run, or its START is unknown and it names only inputs or only outputs.
        """
        found = self._jobs[job.namespace, job.name]
        last = found.last_completed(self._jobs)
        if not last:
            return found.declared is None
        return any(
            run.started is None and not (run.run_io.reads and run.run_io.writes) for run in last
        )

    def named_by(self, job: JobRef) -> tuple[set[Name], set[Name]]:
        """Return (namespace, name) of what the job reads and writes so far."""
        now = self._jobs[job.namespace, job.name].edges(self._jobs).now
        return {dataset.name for dataset in now.reads}, {dataset.name for dataset in now.writes}

    def completed_at(self, job: JobRef) -> datetime | None:
        """Return when the last completed run of the job ended."""
        runs = self._jobs[job.namespace, job.name].runs.values()
        ends = (run.completed for run in runs if run.completed and not run.is_mark)
        return max(ends, default=None)

    def add_parent(self, job: JobRef, parent: JobRef) -> None:
        """Add the parent of a job whose runs name none."""
        found = self._jobs[job.namespace, job.name]
        if found.parent is None:
            self._job({"namespace": parent.namespace, "name": parent.name})
            found.parent = (_FIRST, (parent.namespace, parent.name))

    def last_event(self, name: Name) -> tuple[datetime, bool]:
        """Return the time of a job's newest event, and whether it ended a run."""
        job = self._jobs[name]
        times = [(run.last, run.rank > 0) for run in job.runs.values()]
        times += [(job.declared[0], True)] if job.declared else []
        return max(times, default=(_FIRST, True))

    def run_ids(self, job: JobRef) -> list[str]:
        """Return the ids of a job's runs, newest event last."""
        runs = self._jobs[job.namespace, job.name].runs
        return sorted(runs, key=lambda run_id: (runs[run_id].last, run_id))

    def drop_job(self, job: JobRef) -> None:
        """Remove a job and everything from its events."""
        self._jobs.pop((job.namespace, job.name), None)

    def rename_job(self, old: JobRef, new: JobRef) -> None:
        """Move everything known of `old` to `new`."""
        was = self._jobs.pop((old.namespace, old.name))
        job = self._job({"namespace": new.namespace, "name": new.name})
        job.runs, was.runs = was.runs | job.runs, {}
        merge(job.facets, was.facets)
        job.spark |= was.spark
        job.is_test |= was.is_test
        for name, sent in was.modes.items():
            job.modes[name] = max(job.modes.get(name, sent), sent)
        if was.parent:
            job.parent = _newest(job.parent, was.parent, max)
        if was.declared:
            job.declared = _newest(job.declared, was.declared, RunIO.__or__)

    def snapshot(
        self,
        *,
        source: str = "memory",
        taken_at: datetime | None = None,
        notices: Iterable[Notice] = (),
    ) -> LineageSnapshot:
        """Return the lineage from all events so far; `taken_at` is aware and in UTC."""
        join_names(self._jobs)
        gathered = list(notices)
        if self._without_zone:
            text = f"{self._without_zone} event times have no time zone; taken as UTC"
            gathered.append(Notice(text))
        if self._unreadable:
            gathered.append(Notice(f"{self._unreadable} facets `subset` cannot be read; left out"))
        jobs_by_name = dict(sorted(self._jobs.items()))
        reading = Reading(jobs_by_name, self._datasets, self._limits.columns, gathered)
        aliases = reading.aliases()
        jobs, columns = reading.job_nodes(aliases)
        datasets = reading.dataset_nodes(aliases)
        return LineageSnapshot(
            jobs={node.ref: node for node in jobs},
            datasets={node.ref: node for node in datasets},
            column_edges=columns,
            history=tuple(reading.history()),
            source=source,
            taken_at=taken_at,
            notices=tuple(gathered),
        )

    # Folding

    def _add(self, event: Any) -> None:
        when = self._time(event["eventTime"])
        if self.newest is None or when > self.newest:
            self.newest = when
        job_item = event.get("job")
        if job_item is None:
            self._seen((event["dataset"],), when)
            return
        if job_item["namespace"] == LISTENER:
            return
        job = self._job(job_item)
        if facets := job_item.get("facets"):
            keep(job.facets, facets, OF_JOBS, when)
            kind = spark_job_type(facets.get("jobType"))
            if kind and kind not in job.spark:
                job.spark |= {kind}
            job.is_test = job.is_test or is_test(facets.get("jobType"))
        outputs = event.get("outputs")
        inputs = _with_renamed(event.get("inputs"), outputs)
        run_io = self._run_io(inputs, outputs, when) if inputs or outputs else NOTHING
        run_item = event.get("run")
        if run_item is not None:
            run = self._fold_run(job, run_item, event.get("eventType"), when, run_io)
            if inputs:
                self._fold_read(run, inputs)
            for item in outputs or ():
                if facets := item.get("outputFacets"):
                    self._fold_written(run, facets.get("subset"))
                if facets := item.get("facets"):
                    _fold_mode(job, item, facets.get("lifecycleStateChange"), when)
        elif run_io is not NOTHING:
            job.declared = _newest(job.declared, (when, run_io), RunIO.__or__)

    def _fold_run(self, job: Job, item: Any, kind: Any, when: datetime, run_io: RunIO) -> Run:
        run_id = item["runId"]
        run = job.runs.get(run_id)
        if run is None:
            if type(run_id) is not str or len(run_id) > self._limits.name_length:
                raise ValueError(f"runId is not a short string: {run_id!r:.80}")
            run = job.runs[run_id] = Run(when)
        rank = _RANK.get(kind, 0)
        if when > run.last or (when == run.last and rank > run.rank):
            run.last, run.rank = when, rank
        if kind == "START":
            if run.started is None or when < run.started:
                run.started = when
        elif rank == 3 and (run.completed is None or when > run.completed):
            run.completed = when
        if run_io is not run.run_io and run_io is not NOTHING:
            run.run_io = run_io if run.run_io is NOTHING else self._shared(run.run_io | run_io)
        if facets := item.get("facets"):
            self._fold_run_facets(job, run, facets, when)
        return run

    def _fold_read(self, run: Run, inputs: Any) -> None:
        """Record the inputs that a run read one partition of, such as the newest."""
        for item in inputs:
            subset = (item.get("inputFacets") or {}).get("subset")
            try:
                keys = subset_keys(subset) if subset else ()
            except SHAPE_ERRORS:
                self._unreadable += 1
                continue
            if len(keys) == 1:
                run.read |= {(item["namespace"], item["name"], *keys)}

    def _fold_written(self, run: Run, subset: Any) -> None:
        """Record which partitions of an output were written."""
        try:
            run.wrote |= subset_keys(subset) if subset else frozenset()
        except SHAPE_ERRORS:
            self._unreadable += 1

    def _fold_run_facets(self, job: Job, run: Run, facets: Any, when: datetime) -> None:
        sent = facets.get("nominalTime")
        nominal = interval(sent) if sent else None
        key = None
        for name in facets:
            if name in RARE_RUN_FACETS and facets[name]:  # Marquez sends null for absent values
                of_airflow, key = self._fold_rare_facets(job, run, facets, when)
                nominal = nominal or of_airflow
                break
        # The greater one if two events of a run differ: independent of order.
        if nominal and (run.nominal is None or nominal > run.nominal):
            run.nominal = nominal
        if key and (run.partition_key is None or key > run.partition_key):
            run.partition_key = key

    def _fold_rare_facets(
        self, job: Job, run: Run, facets: Any, when: datetime
    ) -> tuple[Interval | None, str | None]:
        """Fold in rare run facets; return the interval and the keys in them."""
        nominal = None
        kept = {}
        airflow = facets.get("airflow") or facets.get("airflowDagRun")
        if airflow:
            nominal, key, manual = airflow_run(airflow)
            run.manual |= manual
            run.index = max(run.index, task_index(airflow))
            if airflow is facets.get("airflow"):
                failure = facets.get("errorMessage")
                kept["airflow"] = {**airflow, "errorMessage": failure} if failure else airflow
        else:
            run.marked |= is_of("airflow", facets)  # its tries tell of themselves
            if arguments := facets.get("airflow_runArgs"):
                run.manual |= was_triggered(arguments)
            ours = facets.get("lineageBackfill_run")
            key, backfill = (run_keys(ours), run_backfill(ours)) if ours else (None, None)
            if backfill and (run.backfill is None or backfill > run.backfill):
                run.backfill = backfill
        keep(job.facets, kept, OF_RUNS, when)
        if parent := facets.get("parent") or facets.get("parentRun"):
            name = self._job(parent["job"]).name
            if not job.spark and is_of_spark(facets) and job.name[1].startswith(f"{name[1]}."):
                job.spark = frozenset("?")
            _fold_parent(job, run, name, parent_run_id(parent), when)
        return nominal, key

    def _run_io(self, inputs: Any, outputs: Any, when: datetime) -> RunIO:
        reads = self._seen(inputs, when) if inputs else []
        writes = self._seen(outputs, when) if outputs else []
        if len(reads) + len(writes) > self._limits.datasets_per_event:
            raise LineageError(
                f"one event names {len(reads) + len(writes)} datasets,"
                f" more than {self._limits.datasets_per_event}",
                hint="Declare a `pattern` at the producer, or leave the event out.",
            )
        columns = []
        for dataset, item in zip(writes, outputs or (), strict=True):
            facets = item.get("facets")
            if facets and (sent := facets.get("columnLineage")):
                columns.append(self._columns(dataset, sent))
        key = (*reads, None, *writes, None, *columns)
        known = self._run_ios.get(key)
        if known is None:
            known = self._shared(RunIO(frozenset(reads), frozenset(writes), frozenset(columns)))
            self._run_ios[key] = known
        return known

    def _shared(self, run_io: RunIO) -> RunIO:
        return self._run_ios.setdefault((run_io,), run_io)

    def _columns(self, output: Dataset, facet: Any) -> Columns:
        wanted = {"fields": facet.get("fields"), "dataset": facet.get("dataset")}
        last = output.last_columns
        if last is None or last.facet != wanted:
            last = output.columns.setdefault(canonical(wanted), Columns(output, wanted))
            output.last_columns = last
        return last

    def _seen(self, items: Any, when: datetime) -> list[Dataset]:
        """Return the datasets of inputs or outputs; their facets are recorded."""
        datasets, found = self._datasets, []
        for item in items:
            name = (item["namespace"], item["name"])
            dataset = datasets.get(name)
            if dataset is None:
                _check(self._limits.name_length, name, "dataset")
                dataset = datasets[name] = Dataset(name)
            facets = item.get("facets")
            if facets:
                keep(dataset.facets, facets, self._of_datasets, when)
            found.append(dataset)
        return found

    def _job(self, item: Any) -> Job:
        name = (item["namespace"], item["name"])
        job = self._jobs.get(name)
        if job is None:
            _check(self._limits.name_length, name, "job")
            job = self._jobs[name] = Job(name)
        return job

    def _time(self, text: Any) -> datetime:
        when = parse_time(text)
        if when.tzinfo is None:
            self._without_zone += 1
            return when.replace(tzinfo=UTC)
        return when


def _with_renamed(inputs: Any, outputs: Any) -> Any:
    renamed = [before for one in outputs or () for before in renamed_from(one)]
    return [*(inputs or ()), *renamed] if renamed else inputs


def _fold_mode(job: Job, output: Any, change: Any, when: datetime) -> None:
    if change and (mode := write_mode(change)):
        name = (output["namespace"], output["name"])
        job.modes[name] = max(job.modes.get(name, (when, mode)), (when, mode))


def _fold_parent(job: Job, run: Run, name: Name, parent_run: str | None, when: datetime) -> None:
    if name != job.name:
        job.parent = _newest(job.parent, (when, name), max)
    if parent_run != run.parent and (run.parent or "") < (parent_run or ""):
        run.parent = parent_run


def _newest(
    old: tuple[datetime, T] | None, new: tuple[datetime, T], join: Any
) -> tuple[datetime, T]:
    if old is None or new[0] > old[0]:
        return new
    return (old[0], join(old[1], new[1])) if new[0] == old[0] else old


def _misshapen(event: Any, error: Exception) -> str:
    """Return what is wrong with the shape of an event."""
    if not isinstance(event, dict):
        return "it is not a JSON object"
    if isinstance(error, KeyError):
        return f"`{error.args[0]}` is missing"
    return f"a value has an unknown form: {error}"


def _links(longest: int, facet: Any) -> tuple[Name, ...]:
    names = tuple(symlinks(facet))
    for name in names:
        _check(longest, name, "dataset")
    return names


def _check(longest: int, name: tuple[Any, Any], what: str) -> None:
    for part in name:
        if type(part) is not str or not part.strip():
            raise ValueError(f"a {what} without a name, in namespace {name[0]!r:.80}")
        if len(part) > longest:
            raise ValueError(f"a {what} name of {len(part)} characters: {part:.40}…")
        if not part.isprintable() and _UNPRINTABLE.search(part):
            raise ValueError(
                f"a {what} name with control characters, in namespace {name[0]!r:.80}: {part!r}"
            )
