"""Turns folded events into nodes, column edges and runs of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from lineage_backfill.lineage.columns import Part, untold
from lineage_backfill.lineage.events.applications import superseded_actions
from lineage_backfill.lineage.events.event_facets import (
    column_inputs,
    mode_in_name,
    mode_in_query,
    parse_time,
    writes_by_name,
)
from lineage_backfill.lineage.events.folded import (
    NOTHING,
    OF_DATASETS,
    OF_JOBS,
    OF_RUNS,
    SHAPE_ERRORS,
    UNREADABLE,
    Columns,
    Dataset,
    Edges,
    Job,
    LatestFacets,
    Name,
    Readers,
    Run,
    RunIO,
    merge,
)
from lineage_backfill.lineage.events.subsets import MOST
from lineage_backfill.lineage.snapshot import (
    AirflowTask,
    ColumnEdge,
    DatasetNode,
    JobNode,
    ObservedRun,
)
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plans.notice import Notice

_OF_JOBS: Readers = {**OF_JOBS, **OF_RUNS}
#: Ids of tests of dbt, and of checks that a source is fresh, begin so.
_TESTS = ("test.", "unit_test.", "source.")
#: What the name of an action says that writes.
_WRITING = re.compile(
    "append|overwrite|merge|insert|create|replace|save|update|delete|write|truncate|command",
    re.IGNORECASE,
)
#: Actions that change no data.
_KEEPING = re.compile("optimize|vacuum|analyze", re.IGNORECASE)
_STATES = ("RUNNING", "ABORT", "FAIL", "COMPLETE")


def run_record(job: Job, run_id: str, run: Run) -> ObservedRun:
    """Return the snapshot's record of a run."""
    # The interval of a manual run is the time at which it was started.
    start, end = ("", "") if run.manual or not run.nominal else run.nominal
    return ObservedRun(
        job=job.ref,
        run_id=run_id,
        state="COMPLETE" if run.completed else _STATES[run.rank],
        started_at=run.started,
        ended_at=run.completed or (run.last if run.rank else None),
        nominal_start=_utc(start),
        nominal_end=_utc(end),
        partition_key=run.partition_key,
        written=_listed(run.wrote),
        read=tuple([(DatasetRef(space, name), key) for space, name, key in sorted(run.read)]),
        backfill=run.backfill,
    )


@dataclass(slots=True)
class Reading:
    """Reads the folded state; `notices` collects notices.

    `jobs` are sorted; `most_columns` bounds the column edges into one output.
    """

    jobs: Mapping[Name, Job]
    datasets: Mapping[Name, Dataset]
    most_columns: int
    notices: list[Notice]

    def aliases(self) -> dict[Name, DatasetRef]:
        """Map each linked name to the main name of its dataset.

        The main name is the least that a producer uses itself.
        """
        group: dict[Name, set[Name]] = {}
        linked = {name for name, one in self.datasets.items() if "symlinks" in one.facets}
        for name in sorted(linked):
            dataset = self.datasets[name]
            links = _facet(dataset.facets, "symlinks", dataset.ref, self.notices) or ()
            for alias in links:
                one = group.setdefault(name, {name})
                other = group.setdefault(alias, {alias})
                if one is not other:
                    if len(one) < len(other):
                        one, other = other, one
                    one |= other
                    group.update(dict.fromkeys(other, one))
        refs: dict[Name, DatasetRef] = {}
        for name, members in group.items():
            if name not in refs:
                ref = DatasetRef(*min(members & linked or members))
                refs.update(dict.fromkeys(members, ref))
        return refs

    def job_nodes(
        self, aliases: Mapping[Name, DatasetRef]
    ) -> tuple[list[JobNode], tuple[ColumnEdge, ...]]:
        """Return the jobs, sorted, and where the columns that they write come from."""
        nodes, columns = [], list[ColumnEdge]()
        parents = {name: job.parent[1] for name, job in self.jobs.items() if job.parent}
        sound = _acyclic(parents)
        superseded, spans = superseded_actions(self.jobs)
        for name, job in self.jobs.items():
            found = job.edges(self.jobs)
            if name in superseded:
                found = Edges(NOTHING, found.ever)
            if found.is_cleared:
                text = " named no datasets; older runs did"
                self.notices.append(Notice(text, str(job.ref), "the last completed run of ", True))
            parent = sound.get(name)
            made = _job_node(job, found, aliases, parent, self.notices)
            nodes.append(replace(made, edges_of=spans[name]) if name in spans else made)
            if found.now.columns:
                columns += self._column_edges(job.ref, found.now.columns, found.whole, aliases)
        return nodes, tuple(columns)

    def dataset_nodes(self, aliases: Mapping[Name, DatasetRef]) -> list[DatasetNode]:
        """Return the datasets, sorted, each once under its main name."""
        notices = list[Notice]()
        nodes = [
            _dataset_node(dataset.ref, (dataset,), (), notices)
            for name, dataset in self.datasets.items()
            if name not in aliases
        ]
        members: dict[DatasetRef, list[Name]] = {}
        for name, ref in aliases.items():
            members.setdefault(ref, []).append(name)
        for ref, names in members.items():
            known = [self.datasets[name] for name in names if name in self.datasets]
            others = tuple(sorted({DatasetRef(*name) for name in names} - {ref}))
            nodes.append(_dataset_node(ref, known, others, notices))
        self.notices += sorted(notices)
        nodes.sort(key=lambda node: node.ref)
        return nodes

    def history(self) -> Iterator[ObservedRun]:
        """Yield the runs, by job, newest event last.

        A later try that has completed ends one that tells no end.
        """
        for job in self.jobs.values():
            runs = [one for one in job.runs.items() if not one[1].is_mark]
            if len(runs) > 1:
                runs.sort(key=lambda one: (one[1].last, one[0]))
            later = _completed_tries(run for _, run in runs) if len(runs) > 1 else {}
            for run_id, run in runs:
                record = run_record(job, run_id, run)
                begun = max((later[one] for one in _of(run) if one in later), default=run.last)
                if record.state == "RUNNING" and begun > run.last:
                    record = replace(record, state="ABORT", ended_at=begun)
                yield record

    def _column_edges(
        self,
        job: JobRef,
        lineages: Iterable[Columns],
        runs: Collection[RunIO],
        aliases: Mapping[Name, DatasetRef],
    ) -> list[ColumnEdge]:
        """Return the column edges of a job whose last completed `runs` they are."""
        direct: dict[tuple[DatasetRef, str, DatasetRef, str], bool] = {}
        unusable: list[Notice] = []
        sources: dict[Columns, set[DatasetRef]] = {}
        for lineage in lineages:
            output = aliases.get(lineage.output.name, lineage.output.ref)
            try:
                inputs = list(islice(column_inputs(lineage.facet), self.most_columns + 1))
            except SHAPE_ERRORS:
                inputs = []
            if not 0 < len(inputs) <= self.most_columns:
                # Without column lineage its readers stay in every plan: the safe side.
                text = f": column lineage of {output} cannot be used; left out"
                unusable.append(Notice(text, str(job)))
                continue
            for column, name, field, is_direct in inputs:
                source = aliases.get(name) or DatasetRef(*name)
                key = (source, field, output, column)
                direct[key] = direct.get(key, False) or is_direct
                sources.setdefault(lineage, set()).add(source)
        self.notices += sorted(unusable)
        parts = (_part(run, sources, aliases) for run in runs if len(runs) > 1)
        blind = untold(parts)
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
            if source not in blind
        ]


def _completed_tries(runs: Iterable[Run]) -> Mapping[tuple[Any, ...], datetime]:
    """Return when the last completed try began, by what its tries have in common."""
    runs = list(runs)
    if all(run.rank or run.completed for run in runs):
        return {}  # as most often: each run tells its end
    found: dict[tuple[Any, ...], datetime] = {}
    for run in runs:
        for one in _of(run) if run.completed and run.started else ():
            assert run.started is not None
            found[one] = max(run.started, found.get(one, run.started))
    return found


def _of(run: Run) -> Iterator[tuple[Any, ...]]:
    """Yield what the tries of a run have in common: their slice, and their parent run."""
    slice_ = (None if run.manual else run.nominal, run.partition_key)
    if any(slice_):
        yield (run.index, *slice_)
    if run.parent:
        yield run.index, run.parent


def _part(
    run: RunIO, sources: Mapping[Columns, set[DatasetRef]], aliases: Mapping[Name, DatasetRef]
) -> Part:
    """Return what a run reads and writes, and the column sources of each output."""
    writes = _refs(run.writes, aliases)
    facet: dict[DatasetRef, set[DatasetRef]] = {}
    for lineage, found in sources.items():
        if lineage in run.columns:
            one = lineage.output
            facet.setdefault(aliases.get(one.name, one.ref), set()).update(found)
    return Part(frozenset(_refs(run.reads, aliases)), frozenset(writes), facet)


def _job_node(
    job: Job,
    edges: Edges,
    aliases: Mapping[Name, DatasetRef],
    parent: Name | None,
    notices: list[Notice],
) -> JobNode:
    now, ever = edges.now, edges.ever
    reads, writes = _refs(now.reads, aliases), _refs(now.writes, aliases)
    if writes and job.is_action and _only_reads(job, now):
        writes, ever = (), RunIO(ever.reads, ever.writes - now.writes, ever.columns)
    former: tuple[tuple[DatasetRef, ...], ...] = ((), ())
    if ever is not now:
        former_reads = _named_inputs(ever, aliases).difference(_named_inputs(now, aliases))
        former = tuple(sorted(former_reads)), _refs(ever.writes, aliases, writes)
    facet = _facets_of(job.facets, _OF_JOBS, job.ref, notices)
    if "airflow" in facet:
        facet["airflow"] = convert(facet["airflow"], AirflowTask)
    by_query = mode_in_query(facet.get("query") or "")
    mode = (writes and mode_in_name(job.name[1])) or by_query
    modes = {aliases.get(name, DatasetRef(*name)): mode for name, (_, mode) in job.modes.items()}
    if mode:
        modes = dict.fromkeys(writes, mode)
    return JobNode(
        ref=job.ref,
        reads=reads,
        writes=writes,
        former_reads=former[0],
        former_writes=former[1],
        parent=parent and JobRef(*parent),
        is_action=job.is_action,
        modes=tuple(sorted((ref, modes[ref]) for ref in writes if ref in modes)),
        past_reads=_past_reads(job, aliases),
        is_test=job.is_test or str(facet.get("stable_id", "")).startswith(_TESTS),
        names_nothing=ever == NOTHING
        and (by_query is not None or (job.is_action and writes_by_name(job.name[1]))),
        **facet,
    )


def _only_reads(job: Job, now: RunIO) -> bool:
    """Whether an action of Spark names its inputs as outputs and writes nothing: a scan, say."""
    if job.spark == {"JOB"}:  # a whole job, which may build on what it wrote before
        return False
    named = now.writes <= now.reads and not any(one.name in job.modes for one in now.writes)
    name = job.name[1]
    return named and (_WRITING.search(name) is None or _KEEPING.search(name) is not None)


def _past_reads(
    job: Job, aliases: Mapping[Name, DatasetRef]
) -> tuple[tuple[datetime, tuple[DatasetRef, ...]], ...]:
    """Return the inputs of each completed run in order, one for several equal ones in a row."""
    if len({id(run.run_io) for run in job.runs.values()}) < 2:
        return ()
    inputs = {
        run_io: tuple(sorted(_named_inputs(run_io, aliases)))
        for run_io in {run.run_io for run in job.runs.values()}
    }
    runs = sorted(
        (run.completed, run_id, refs)
        for run_id, run in job.runs.items()
        if run.completed and (refs := inputs[run.run_io])
    )
    found: list[tuple[datetime, tuple[DatasetRef, ...]]] = []
    for when, _, refs in runs:
        if found and found[-1][1] == refs:
            found.pop()
        found.append((when, refs))
    return tuple(found) if len(found) > 1 else ()


def _named_inputs(run_io: RunIO, aliases: Mapping[Name, DatasetRef]) -> set[DatasetRef]:
    """Return the inputs of runs, with those that only their column lineage names."""
    reads = set(_refs(run_io.reads, aliases))
    facet = set[DatasetRef]()
    for one in run_io.columns:
        facet |= {aliases.get(name) or DatasetRef(*name) for name in one.sources}
    return reads | facet.difference(_refs(run_io.writes, aliases)) if facet else reads


def _dataset_node(
    ref: DatasetRef,
    known: Collection[Dataset],
    aliases: tuple[DatasetRef, ...],
    notices: list[Notice],
) -> DatasetNode:
    kept: LatestFacets = {}
    if len(known) == 1:
        (only,) = known
        kept = only.facets
    else:
        for dataset in known:
            merge(kept, dataset.facets)
    return DatasetNode(
        ref=ref,
        aliases=aliases,
        **_facets_of(kept, OF_DATASETS, ref, notices),
    )


def _facets_of(
    kept: LatestFacets, readers: Readers, owner: object, notices: list[Notice]
) -> dict[str, Any]:
    """Return the members from facets; tables of several facets become one."""
    found: dict[str, Any] = {}
    for name, (member, _) in readers.items() if kept else ():
        if (facet := _facet(kept, name, owner, notices)) is not None:
            found[member] = {**found[member], **facet} if member in found else facet
    return found


def _facet(kept: LatestFacets, name: str, owner: object, notices: list[Notice]) -> Any:
    """Return the value of a facet, None if empty; unreadable facets are reported."""
    if name not in kept:
        return None
    _, facet = kept[name]
    if facet is UNREADABLE:
        notices.append(Notice(f": facet `{name}` cannot be read; left out", str(owner)))
        return None
    return facet


def _refs(
    datasets: frozenset[Dataset],
    aliases: Mapping[Name, DatasetRef],
    besides: Collection[DatasetRef] = (),
) -> tuple[DatasetRef, ...]:
    if not aliases and not besides:
        if len(datasets) == 1:
            (only,) = datasets
            return (only.ref,)
        return tuple(sorted([dataset.ref for dataset in datasets]))
    refs = {aliases.get(dataset.name, dataset.ref) for dataset in datasets}
    return tuple(sorted(refs.difference(besides)))


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


def _listed(keys: frozenset[str]) -> str | None:
    return ",".join(sorted(keys)) if 0 < len(keys) <= MOST else None


@lru_cache(maxsize=10_000)
def _utc(text: str) -> datetime | None:
    """Return the instant; None if the producer sent no valid time."""
    try:
        when = parse_time(text)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)
