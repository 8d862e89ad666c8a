"""OpenLineage events → one lineage snapshot, by a rule that no order of arrival can change.

The edges of a job are those of its last completed run, by event time and with all events of that
run put together, plus those of later unfinished runs. All that older and failed runs named besides
is *former*.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from lineage_backfill.errors import LineageError
from lineage_backfill.graph.facets import (
    Interval,
    airflow_run,
    column_inputs,
    dependencies,
    fields,
    interval,
    is_drop,
    location,
    owners,
    parse_time,
    partitioning,
    processing,
    run_backfill,
    run_keys,
    statistics,
    symlinks,
    tags,
    was_triggered,
)
from lineage_backfill.graph.lineage import (
    ColumnEdge,
    DatasetNode,
    JobNode,
    LineageSnapshot,
    RunRecord,
    Written,
)
from lineage_backfill.graph.subsets import MOST, subset_keys
from lineage_backfill.model import DatasetRef, JobRef

#: In this namespace Spark's own listener tells once more of runs that tell of themselves.
LISTENER = "lineage-backfill.listener"
_FIRST = datetime.min.replace(tzinfo=UTC)
#: Which event wins where two of one run bear the same time.
_RANK = {"ABORT": 1, "FAIL": 2, "COMPLETE": 3}
_STATES = ("RUNNING", "ABORT", "FAIL", "COMPLETE")
#: The run facets that are read, but for the nominal time.
_RUN_FACETS = frozenset(
    {
        *("airflow", "airflowDagRun", "airflow_runArgs", "jobDependencies"),
        *("lineageBackfill_run", "parent", "parentRun"),
    }
)
#: Which member of a node each facet tells, and how it is read.
_Readers = Mapping[str, tuple[str, Callable[[Any], Any]]]
_OF_BOTH: _Readers = {
    "ownership": ("owners", owners),
    "tags": ("tags", tags),
    "lineageBackfill_partitioning": ("partitioning", partitioning),
}
_OF_JOBS: _Readers = {
    "jobType": ("processing", processing),
    "sourceCodeLocation": ("location", location),
    **_OF_BOTH,
}
_OF_DATASETS: _Readers = {"schema": ("fields", fields), **_OF_BOTH}
_JOB_FACETS = frozenset(_OF_JOBS)
_DATASET_FACETS = frozenset({*_OF_DATASETS, "symlinks", "lifecycleStateChange"})
#: Control characters and lone surrogates: no producer means them, terminals and databases do.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

#: What reading a value of an unexpected shape raises.
_SHAPE_ERRORS = (AttributeError, KeyError, TypeError, ValueError, RecursionError)

T = TypeVar("T")
Name = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLimits:
    """How much one event may say; lineage is untrusted input.

    `name_length` counts characters, `datasets_per_event` inputs and outputs, `columns` the column
    edges into one output.
    """

    name_length: int = 4096
    datasets_per_event: int = 10_000
    columns: int = 100_000


class _Dataset:
    """A dataset while events are folded; compared by identity, which is what makes sets fast."""

    __slots__ = ("columns", "facets", "last_columns", "name", "told", "written")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.facets: dict[str, tuple[datetime, Any]] = {}
        self.columns: dict[str, _Columns] = {}
        self.last_columns: _Columns | None = None
        #: Where its columns come from as told of the dataset itself, whoever wrote it.
        self.told: tuple[datetime, _Columns] | None = None
        self.written: tuple[datetime, tuple[int, int, int]] | None = None  # -1: not told


class _Columns:
    """One column lineage facet of one output, kept once however many runs repeat it."""

    __slots__ = ("facet", "output")

    def __init__(self, output: _Dataset, facet: dict[str, Any]) -> None:
        self.output = output
        self.facet = facet


@dataclass(frozen=True, slots=True)
class _Footprint:
    """What a run names; shared by all runs that name the same."""

    reads: frozenset[_Dataset] = frozenset()
    writes: frozenset[_Dataset] = frozenset()
    columns: frozenset[_Columns] = frozenset()

    def __or__(self, other: _Footprint) -> _Footprint:
        return _Footprint(
            self.reads | other.reads, self.writes | other.writes, self.columns | other.columns
        )


_NOTHING = _Footprint()


class _Run:
    """A run while its events are folded."""

    __slots__ = (
        *("backfill", "completed", "footprint", "last", "manual", "nominal", "partition_key"),
        *("rank", "started", "wrote"),
    )

    def __init__(self, when: datetime) -> None:
        self.last = when
        self.rank = 0
        self.manual = False
        self.wrote: frozenset[str] = frozenset()  # keys, by its outputs' subset facets
        self.started: datetime | None = None
        self.completed: datetime | None = None
        self.footprint = _NOTHING
        self.nominal: tuple[str, str] | None = None
        self.partition_key: str | None = None
        self.backfill: str | None = None


class _Job:
    """A job while events are folded."""

    __slots__ = ("after", "declared", "facets", "name", "parent", "runs")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.after: tuple[datetime, frozenset[Name]] | None = None
        self.runs: dict[str, _Run] = {}
        self.facets: dict[str, tuple[datetime, Any]] = {}
        self.parent: tuple[datetime, Name] | None = None
        self.declared: tuple[datetime, _Footprint] | None = None  # by job events, without a run

    def edges(self) -> tuple[_Footprint, _Footprint, bool]:
        """Return what the job names now, what it ever named, and whether a run cleared it."""
        if len(self.runs) == 1 and not self.declared:  # as most jobs of a first read
            (only,) = self.runs.values()
            if only.completed or only.rank == 0:
                return only.footprint, only.footprint, False
        done: tuple[datetime, str, _Footprint] | None = None
        named: dict[int, _Footprint] = {}
        unfinished: list[_Run] = []
        if self.declared:
            done = (self.declared[0], "", self.declared[1])
            named[id(done[2])] = done[2]
        for run_id, run in self.runs.items():
            named[id(run.footprint)] = run.footprint
            if run.completed:
                if done is None or (run.completed, run_id) > done[:2]:
                    done = (run.completed, run_id, run.footprint)
            elif run.rank == 0:
                unfinished.append(run)
        now = done[2] if done else _NOTHING
        later = [run.footprint for run in unfinished if done is None or run.last > done[0]]
        for footprint in {id(footprint): footprint for footprint in later}.values():
            now |= footprint
        ever = now
        for footprint in named.values():
            if footprint is not now and footprint is not _NOTHING:
                ever |= footprint
        cleared = done is not None and ever is not now and now == _NOTHING != ever
        return now, ever, cleared


class LineageBuilder:
    """Folds events, in any order and any number of times each, into one snapshot.

    Memory grows with jobs, datasets and runs, not with events.
    """

    def __init__(self, limits: BuildLimits | None = None) -> None:
        self._limits = limits or BuildLimits()
        self._jobs: dict[Name, _Job] = {}
        self._datasets: dict[Name, _Dataset] = {}
        self._footprints: dict[tuple[object, ...], _Footprint] = {}
        self._before: dict[Name, set[Name]] = {}  # jobs that others tell to start after them
        self._without_zone = 0
        self._unreadable = 0
        #: The time of the newest event so far: what the lineage is as of.
        self.newest: datetime | None = None

    def add(self, event: Any) -> None:
        """Fold in one RunEvent, JobEvent or DatasetEvent; raises LineageError if it is none."""
        try:
            self._add(event)
        except _SHAPE_ERRORS as error:
            # Checking every member's type first would cost more than the fold itself.
            raise LineageError(f"not an OpenLineage event: {error!r}") from error

    def add_dataset(self, namespace: str, name: str) -> None:
        """Make a dataset known of which nothing but the name is known."""
        self._seen(({"namespace": namespace, "name": name},), _FIRST)

    def dataset_names(self) -> set[Name]:
        """Return (namespace, name) of all datasets so far, aliases among them."""
        return set(self._datasets)

    def is_silent(self, job: JobRef) -> bool:
        """Return whether no run of the job has completed so far and none named a dataset."""
        runs = self._jobs[job.namespace, job.name].runs.values()
        return not any(run.completed or run.footprint != _NOTHING for run in runs)

    def is_open(self, job: JobRef) -> bool:
        """Return whether events may be missing that say what the last completed run named.

        There is no such run, or its START is not known and it names inputs or outputs alone.
        """
        found = self._jobs[job.namespace, job.name]
        done = [run for run in found.runs.values() if run.completed]
        if not done:
            return found.declared is None
        last = max(done, key=lambda run: (run.completed, run.last))
        named = last.footprint
        return last.started is None and not (named.reads and named.writes)

    def named_by(self, job: JobRef) -> tuple[set[Name], set[Name]]:
        """Return (namespace, name) of what the job reads and writes by what was said so far."""
        now, _, _ = self._jobs[job.namespace, job.name].edges()
        return {dataset.name for dataset in now.reads}, {dataset.name for dataset in now.writes}

    def completed_at(self, job: JobRef) -> datetime | None:
        """Return when the last completed run of the job ended."""
        runs = self._jobs[job.namespace, job.name].runs.values()
        return max((run.completed for run in runs if run.completed), default=None)

    def run_ids(self, job: JobRef) -> list[str]:
        """Return the ids of a job's runs, the one of the newest event last."""
        runs = self._jobs[job.namespace, job.name].runs
        return sorted(runs, key=lambda run_id: (runs[run_id].last, run_id))

    def drop_job(self, job: JobRef) -> None:
        """Forget a job and all that its events said of it."""
        self._jobs.pop((job.namespace, job.name), None)

    def rename_job(self, old: JobRef, new: JobRef) -> None:
        """Take what was said of `old` as said of `new`."""
        was = self._jobs.pop((old.namespace, old.name))
        job = self._job({"namespace": new.namespace, "name": new.name})
        job.runs = was.runs | job.runs
        for name, (when, value) in was.facets.items():
            _keep_newest(job.facets, {name: value}, _JOB_FACETS, when)
        if was.after:
            job.after = _newest(job.after, was.after, frozenset.__or__)
        if was.parent:
            job.parent = _newest(job.parent, was.parent, max)
        if was.declared:
            job.declared = _newest(job.declared, was.declared, _Footprint.__or__)

    def snapshot(
        self,
        *,
        source: str = "memory",
        taken_at: datetime | None = None,
        warnings: Iterable[str] = (),
    ) -> LineageSnapshot:
        """Return the lineage that all events so far make; `taken_at` is aware and in UTC."""
        said = list(warnings)
        if self._without_zone:
            said.append(f"{self._without_zone} event times have no time zone; taken as UTC")
        if self._unreadable:
            said.append(
                f"{self._unreadable} facets `subset` or `jobDependencies` cannot be read; left out"
            )
        refs = self._resolve_aliases(said)
        jobs, columns = self._job_nodes(refs, said)
        return LineageSnapshot.of(
            jobs,
            self._dataset_nodes(refs, said),
            column_edges=columns,
            history=tuple(self._history()),
            source=source,
            taken_at=taken_at,
            warnings=tuple(said),
        )

    # Folding

    def _add(self, event: Any) -> None:
        when = self._time(event["eventTime"])
        if self.newest is None or when > self.newest:
            self.newest = when
        job_item = event.get("job")
        if job_item is None:
            self._add_dataset(event["dataset"], when)
            return
        if job_item["namespace"] == LISTENER:
            return
        job = self._job(job_item)
        if facets := job_item.get("facets"):
            _keep_newest(job.facets, facets, _JOB_FACETS, when)
        inputs, outputs = event.get("inputs"), event.get("outputs")
        footprint = self._footprint(inputs, outputs, when) if inputs or outputs else _NOTHING
        run_item = event.get("run")
        if run_item is not None:
            run = self._fold_run(job, run_item, event.get("eventType"), when, footprint)
            for item in outputs or ():
                if facets := item.get("outputFacets"):
                    self._fold_written(run, item, facets, event.get("eventType"), when)
        elif footprint is not _NOTHING:
            job.declared = _newest(job.declared, (when, footprint), _Footprint.__or__)

    def _add_dataset(self, item: Any, when: datetime) -> None:
        (dataset,) = self._seen((item,), when)
        if told := (item.get("facets") or {}).get("columnLineage"):
            columns = self._columns(dataset, told)
            dataset.told = _newest(dataset.told, (when, columns), _greater)

    def _fold_run(
        self, job: _Job, item: Any, kind: Any, when: datetime, footprint: _Footprint
    ) -> _Run:
        run_id = item["runId"]
        run = job.runs.get(run_id)
        if run is None:
            if type(run_id) is not str or len(run_id) > self._limits.name_length:
                raise ValueError(f"runId is not a short string: {run_id!r:.80}")
            run = job.runs[run_id] = _Run(when)
        rank = _RANK.get(kind, 0)
        if when > run.last or (when == run.last and rank > run.rank):
            run.last, run.rank = when, rank
        if kind == "START":
            if run.started is None or when < run.started:
                run.started = when
        elif rank == 3 and (run.completed is None or when > run.completed):
            run.completed = when
        if footprint is not run.footprint and footprint is not _NOTHING:
            run.footprint = (
                footprint if run.footprint is _NOTHING else self._shared(run.footprint | footprint)
            )
        if facets := item.get("facets"):
            self._fold_run_facets(job, run, facets, when)
        return run

    def _fold_written(self, run: _Run, output: Any, facets: Any, kind: Any, when: datetime) -> None:
        """Remember which partitions of an output were written, and how much."""
        if subset := facets.get("subset"):
            try:
                run.wrote |= subset_keys(subset)
            except _SHAPE_ERRORS:
                self._unreadable += 1
        told = facets.get("outputStatistics")
        if told and kind == "COMPLETE":
            dataset = self._datasets[output["namespace"], output["name"]]
            numbers = statistics(told)
            if dataset.written is None or (when, numbers) > dataset.written:
                dataset.written = (when, numbers)

    def _fold_run_facets(self, job: _Job, run: _Run, facets: Any, when: datetime) -> None:
        told = facets.get("nominalTime")
        nominal = interval(told) if told else None
        key = None
        if not _RUN_FACETS.isdisjoint(facets):
            of_airflow, key = self._fold_rare_facets(job, run, facets, when)
            nominal = nominal or of_airflow
        # The greater one, should two events of a run differ: any order gives the same.
        if nominal and (run.nominal is None or nominal > run.nominal):
            run.nominal = nominal
        if key and (run.partition_key is None or key > run.partition_key):
            run.partition_key = key

    def _fold_rare_facets(
        self, job: _Job, run: _Run, facets: Any, when: datetime
    ) -> tuple[Interval | None, str | None]:
        """Fold in what most runs have not; return the interval and the keys that are told so."""
        nominal = None
        airflow = facets.get("airflow") or facets.get("airflowDagRun")
        if airflow:
            nominal, key, manual = airflow_run(airflow)
            run.manual |= manual
        else:
            if arguments := facets.get("airflow_runArgs"):
                run.manual |= was_triggered(arguments)
            ours = facets.get("lineageBackfill_run")
            key, backfill = (run_keys(ours), run_backfill(ours)) if ours else (None, None)
            if backfill and (run.backfill is None or backfill > run.backfill):
                run.backfill = backfill
        if told := facets.get("jobDependencies"):
            self._fold_dependencies(job, told, when)
        parent = facets.get("parent") or facets.get("parentRun")
        if parent:
            name = self._job(parent["job"]).name
            if name != job.name:
                job.parent = _newest(job.parent, (when, name), max)
        return nominal, key

    def _fold_dependencies(self, job: _Job, facet: Any, when: datetime) -> None:
        try:
            upstream, downstream = dependencies(facet)
            for name in (*upstream, *downstream):
                self._check(name, "job")
        except _SHAPE_ERRORS:
            self._unreadable += 1
            return
        job.after = _newest(job.after, (when, frozenset(upstream)), frozenset.__or__)
        for name in downstream:
            self._before.setdefault(name, set()).add(job.name)

    def _footprint(self, inputs: Any, outputs: Any, when: datetime) -> _Footprint:
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
            if facets and (told := facets.get("columnLineage")):
                columns.append(self._columns(dataset, told))
        key = (*reads, None, *writes, None, *columns)
        known = self._footprints.get(key)
        if known is None:
            known = self._shared(
                _Footprint(frozenset(reads), frozenset(writes), frozenset(columns))
            )
            self._footprints[key] = known
        return known

    def _shared(self, footprint: _Footprint) -> _Footprint:
        return self._footprints.setdefault((footprint,), footprint)

    def _columns(self, output: _Dataset, facet: Any) -> _Columns:
        wanted = {"fields": facet.get("fields"), "dataset": facet.get("dataset")}
        last = output.last_columns
        if last is None or last.facet != wanted:
            last = output.columns.setdefault(_canonical(wanted), _Columns(output, wanted))
            output.last_columns = last
        return last

    def _seen(self, items: Any, when: datetime) -> list[_Dataset]:
        """Return the datasets of inputs or outputs, with what their facets tell kept."""
        datasets, found = self._datasets, []
        for item in items:
            name = (item["namespace"], item["name"])
            dataset = datasets.get(name)
            if dataset is None:
                self._check(name, "dataset")
                dataset = datasets[name] = _Dataset(name)
            if facets := item.get("facets"):
                _keep_newest(dataset.facets, facets, _DATASET_FACETS, when)
            found.append(dataset)
        return found

    def _job(self, item: Any) -> _Job:
        name = (item["namespace"], item["name"])
        job = self._jobs.get(name)
        if job is None:
            self._check(name, "job")
            job = self._jobs[name] = _Job(name)
        return job

    def _check(self, name: tuple[Any, Any], what: str) -> None:
        for part in name:
            if type(part) is not str or not part.strip():
                raise ValueError(f"a {what} without a name")
            if len(part) > self._limits.name_length:
                raise ValueError(f"a {what} name of {len(part)} characters: {part:.40}…")
            if _UNPRINTABLE.search(part):
                raise ValueError(f"a {what} name with control characters: {part!r}")

    def _time(self, text: Any) -> datetime:
        when = parse_time(text)
        if when.tzinfo is None:
            self._without_zone += 1
            return when.replace(tzinfo=UTC)
        return when

    # Reading off

    def _resolve_aliases(self, said: list[str]) -> dict[Name, DatasetRef]:
        """Map every name to the one its dataset goes by: the least that a producer uses itself."""
        group: dict[Name, set[Name]] = {}
        linked = {name for name, dataset in self._datasets.items() if "symlinks" in dataset.facets}
        for name in sorted(linked):
            found = _told(self._datasets[name].facets, self._links, DatasetRef(*name), said)
            for alias in found.get("aliases", ()):
                one = group.setdefault(name, {name})
                other = group.setdefault(alias, {alias})
                if one is not other:
                    if len(one) < len(other):
                        one, other = other, one
                    one |= other
                    group.update(dict.fromkeys(other, one))
        refs = {name: DatasetRef(*name) for name in self._datasets if name not in group}
        for name, members in group.items():
            if name not in refs:
                ref = DatasetRef(*min(members & linked or members))
                refs.update(dict.fromkeys(members, ref))
        return refs

    @property
    def _links(self) -> _Readers:
        def read(facet: Any) -> list[Name]:
            names = symlinks(facet)
            for name in names:
                self._check(name, "dataset")
            return names

        return {"symlinks": ("aliases", read)}

    def _job_nodes(
        self, refs: Mapping[Name, DatasetRef], said: list[str]
    ) -> tuple[list[JobNode], tuple[ColumnEdge, ...]]:
        nodes, columns, after = [], [], self._after()
        edges = {name: self._jobs[name].edges() for name in sorted(self._jobs)}
        writers: Counter[_Dataset] = Counter()
        if any(dataset.told for dataset in self._datasets.values()):
            writers.update(dataset for _, ever, _ in edges.values() for dataset in ever.writes)
        parents = _acyclic({job.name: job.parent[1] for job in self._jobs.values() if job.parent})
        for name, (now, ever, cleared) in edges.items():
            job, ref = self._jobs[name], JobRef(*name)
            if cleared:
                said.append(f"the last completed run of {ref} named no datasets; older runs did")
            reads, writes = _refs(now.reads, refs), _refs(now.writes, refs)
            former: tuple[tuple[DatasetRef, ...], ...] = ((), ())
            if ever is not now:
                former = _refs(ever.reads, refs, reads), _refs(ever.writes, refs, writes)
            parent = parents.get(name)
            nodes.append(
                JobNode(
                    ref=ref,
                    reads=reads,
                    writes=writes,
                    former_reads=former[0],
                    former_writes=former[1],
                    parent=parent and JobRef(*parent),
                    after=after.get(name, ()),
                    **_told(job.facets, _OF_JOBS, ref, said),
                )
            )
            lineages = now.columns
            if writers:
                own = {lineage.output for lineage in lineages}
                told = ((one, one.told[1]) for one in now.writes if one.told and one not in own)
                # Told of the dataset, it is the job's where no other one has ever written it.
                lineages |= {how for one, how in told if writers[one] == 1}
            if lineages:
                columns += self._column_edges(ref, lineages, refs, said)
        return nodes, tuple(columns)

    def _column_edges(
        self,
        job: JobRef,
        lineages: Iterable[_Columns],
        refs: Mapping[Name, DatasetRef],
        said: list[str],
    ) -> list[ColumnEdge]:
        direct: dict[tuple[DatasetRef, str, DatasetRef, str], bool] = {}
        unusable: list[str] = []
        for lineage in lineages:
            output = refs[lineage.output.name]
            try:
                inputs = list(islice(column_inputs(lineage.facet), self._limits.columns + 1))
            except _SHAPE_ERRORS:
                inputs = []
            if not 0 < len(inputs) <= self._limits.columns:
                # Without column lineage its readers stay in every plan: the safe side.
                unusable.append(f"{job}: its column lineage of {output} cannot be used; left out")
                continue
            for column, name, field, is_direct in inputs:
                key = (refs.get(name) or DatasetRef(*name), field, output, column)
                direct[key] = direct.get(key, False) or is_direct
        said += sorted(unusable)
        return [
            ColumnEdge(
                job=job,
                input=source,
                input_column=field,
                output=output,
                output_column=column,
                direct=is_direct,
            )
            for (source, field, output, column), is_direct in sorted(direct.items())
        ]

    def _dataset_nodes(self, refs: Mapping[Name, DatasetRef], said: list[str]) -> list[DatasetNode]:
        members: dict[DatasetRef, list[Name]] = {}
        for name, ref in refs.items():
            members.setdefault(ref, []).append(name)
        nodes, dropped = [], self._dropped()
        for ref, names in members.items():
            known = [self._datasets[name] for name in names if name in self._datasets]
            aliases: tuple[DatasetRef, ...] = ()
            if len(names) > 1:
                aliases = tuple(sorted({DatasetRef(*name) for name in names} - {ref}))
            kept = known[0].facets if len(known) == 1 else _newest_facets(known)
            nodes.append(
                DatasetNode(
                    ref=ref,
                    aliases=aliases,
                    written=_written(known),
                    dropped=not dropped.isdisjoint(known),
                    **_told(kept, _OF_DATASETS, ref, said),
                )
            )
        return nodes

    def _history(self) -> Iterator[RunRecord]:
        for name in sorted(self._jobs):
            ref = JobRef(*name)
            runs = self._jobs[name].runs
            told = list(runs.items())
            if len(told) > 1:
                told.sort(key=lambda one: (one[1].last, one[0]))
            for run_id, run in told:
                # The interval of a manual run is the moment at which someone pressed a button.
                start, end = ("", "") if run.manual or not run.nominal else run.nominal
                yield RunRecord(
                    job=ref,
                    run_id=run_id,
                    state="COMPLETE" if run.completed else _STATES[run.rank],
                    started_at=run.started,
                    ended_at=run.completed or (run.last if run.rank else None),
                    nominal_start=_utc(start),
                    nominal_end=_utc(end),
                    partition_key=run.partition_key,
                    written=_listed(run.wrote),
                    backfill=run.backfill,
                )

    def _after(self) -> dict[Name, tuple[JobRef, ...]]:
        """Return what each job is started after, as itself or the other one tells."""
        after = {name: set(job.after[1]) for name, job in self._jobs.items() if job.after}
        for name, others in self._before.items():
            after.setdefault(name, set()).update(others)
        return {
            name: tuple(JobRef(*other) for other in sorted(others))
            for name, others in after.items()
        }

    def _dropped(self) -> set[_Dataset]:
        """Return the datasets that were dropped, and that no later run names."""
        gone = {
            dataset: told[0]
            for dataset in self._datasets.values()
            if (told := dataset.facets.get("lifecycleStateChange")) and is_drop(told[1])
        }
        for run in (
            (run for job in self._jobs.values() for run in job.runs.values()) if gone else ()
        ):
            for dataset in [one for one, when in gone.items() if run.last > when]:
                if dataset in run.footprint.reads or dataset in run.footprint.writes:
                    del gone[dataset]
        return set(gone)


def _newest_facets(datasets: Iterable[_Dataset]) -> dict[str, tuple[datetime, Any]]:
    """Return what was told last of a dataset, under any of its names."""
    kept: dict[str, tuple[datetime, Any]] = {}
    for dataset in datasets:
        for facet, (when, value) in dataset.facets.items():
            _keep_newest(kept, {facet: value}, _DATASET_FACETS, when)
    return kept


def _written(datasets: Iterable[_Dataset]) -> Written | None:
    """Return what was written last to a dataset, under any of its names."""
    known = [one.written for one in datasets if one.written]
    if not known:
        return None
    told = max(known)
    rows, size, files = (None if number < 0 else number for number in told[1])
    return Written(at=told[0], rows=rows, size=size, files=files)


def _listed(keys: frozenset[str]) -> str | None:
    return ",".join(sorted(keys)) if 0 < len(keys) <= MOST else None


def _newest(
    old: tuple[datetime, T] | None, new: tuple[datetime, T], merge: Any
) -> tuple[datetime, T]:
    if old is None or new[0] > old[0]:
        return new
    return (old[0], merge(old[1], new[1])) if new[0] == old[0] else old


def _greater(one: _Columns, other: _Columns) -> _Columns:
    return max(one, other, key=lambda columns: _canonical(columns.facet))


def _keep_newest(
    kept: dict[str, tuple[datetime, Any]], facets: Any, wanted: frozenset[str], when: datetime
) -> None:
    for name in facets:
        # Marquez gives null for what was not said.
        if name in wanted and (value := facets[name]) is not None:
            old = kept.get(name)
            if old is None or when > old[0]:
                kept[name] = (when, value)
            elif when == old[0] and value != old[1]:
                kept[name] = (when, max(old[1], value, key=_canonical))


def _told(
    kept: Mapping[str, tuple[datetime, Any]], readers: _Readers, owner: object, said: list[str]
) -> dict[str, Any]:
    """Return the members that facets tell; what cannot be read is said and left out."""
    found = {}
    for name, (member, read) in readers.items() if kept else ():
        if name in kept:
            value = kept[name][1]
            try:
                if not value.get("_deleted"):
                    found[member] = read(value)
            except _SHAPE_ERRORS:
                said.append(f"{owner}: its facet `{name}` cannot be read; left out")
    return found


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _refs(
    datasets: frozenset[_Dataset],
    refs: Mapping[Name, DatasetRef],
    besides: Collection[DatasetRef] = (),
) -> tuple[DatasetRef, ...]:
    if len(datasets) == 1 and not besides:
        (only,) = datasets
        return (refs[only.name],)
    return tuple(sorted({refs[dataset.name] for dataset in datasets}.difference(besides)))


def _acyclic(parents: dict[Name, Name]) -> dict[Name, Name]:
    """Leave out the parents of jobs that are their own ancestors."""
    sound: dict[Name, Name] = {}
    for job, parent in parents.items():
        seen = {job}
        ancestor: Name | None = parent
        while ancestor is not None and ancestor not in seen:
            seen.add(ancestor)
            ancestor = parents.get(ancestor)
        if ancestor != job:
            sound[job] = parent
    return sound


@lru_cache(maxsize=10_000)
def _utc(text: str) -> datetime | None:
    """Return the instant; None where the producer sent no time or nonsense."""
    try:
        when = parse_time(text)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)
