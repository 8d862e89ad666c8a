"""Plans, and tells what plans rest on: the logs of tables, and what is stale by them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lineage_backfill.errors import (
    ConfigError,
    DeclarationError,
    StalePlanError,
    TableLogError,
    UsageError,
)
from lineage_backfill.project import Project
from lineage_backfill.workspace.project import (
    functions_of,
    live_by_engine,
    log_time,
    open_engines,
    open_store,
    spark_conf,
)

if TYPE_CHECKING:
    from lineage_backfill.lineage.families import Family
    from lineage_backfill.lineage.select import Neighbours
    from lineage_backfill.lineage.snapshot import LineageSnapshot
    from lineage_backfill.model import DatasetRef, JobRef
    from lineage_backfill.partitions.text import KeySet
    from lineage_backfill.planning.explain import Explanation
    from lineage_backfill.planning.plan import Plan, PlannedRun
    from lineage_backfill.planning.request import Request
    from lineage_backfill.planning.resolver import Resolver
    from lineage_backfill.planning.review import Finding
    from lineage_backfill.planning.staleness import Staleness, TableRecord
    from lineage_backfill.planning.timeline import Spans
    from lineage_backfill.ports import (
        TableLogs,
    )
    from lineage_backfill.runs.scheduler import JobLimits


_log = logging.getLogger(__name__)
_SHOWN_NAMES = 8


def check_project(project: Project, snapshot: LineageSnapshot) -> tuple[Finding, ...]:
    """Return what is to be said of the project file beside the lineage, errors first."""
    from lineage_backfill.planning.review import Finding, review

    found, functions = [], {}
    try:
        with open_engines(project) as engines:
            live_by_engine(project, engines)
    except ConfigError as error:
        found.append(Finding.of("[engines.*]", error))
    try:
        functions = functions_of(project)
    except DeclarationError as error:
        found.append(Finding.of("[[job.reads]]", error))
    now = datetime.now(UTC)
    return (*found, *review(snapshot, project.declarations, now=now, functions=functions))


def neighbours(project: Project, snapshot: LineageSnapshot) -> Neighbours:
    """Return the graph of jobs and datasets as plans see it: declared edges are in it."""
    from lineage_backfill.lineage.select import Neighbours

    edges = resolver_of(project, snapshot, datetime.now(UTC).isoformat()).edges
    return Neighbours(
        jobs=edges.jobs,
        reads=edges.reads,
        writes=edges.writes,
        readers=edges.readers,
        writers=edges.writers,
    )


def make_plan(
    project: Project, snapshot: LineageSnapshot, request: Request, *, now: datetime
) -> Plan:
    """Return the plan for the request; raises UsageError where it cannot be planned."""
    from lineage_backfill.planning.advice import advice
    from lineage_backfill.planning.folding import refuse_families, written
    from lineage_backfill.planning.planner import build_plan

    found = _families(project, snapshot, request)
    functions = functions_of(project)
    began = time.monotonic()
    plan = build_plan(request, snapshot, project.declarations, now=now, functions=functions)
    log_time(began, f"plan: {plan.totals['runs']} runs of {plan.totals['jobs']} jobs")
    if found:
        refuse_families(found, written(plan, snapshot))
    said = tuple(advice(plan, snapshot))
    return replace(plan, warnings=(*plan.warnings, *said)) if said else plan


def families(project: Project, snapshot: LineageSnapshot) -> tuple[Family, ...]:
    """Return what looks like partitions in the lineage, and is not declared."""
    from lineage_backfill.planning.folding import Folding

    return Folding(project.declarations).families(snapshot)


def _families(project: Project, snapshot: LineageSnapshot, request: Request) -> tuple[Family, ...]:
    """Return what looks like undeclared partitions; refuse a request that names one."""
    from lineage_backfill.planning.folding import refuse_families

    found = families(project, snapshot)
    refuse_families(found, (one.dataset for one in request.changed))
    return found


def see_changes(
    project: Project,
    snapshot: LineageSnapshot,
    request: Request,
    *,
    now: datetime,
    after: int | None = None,
    since: datetime | None = None,
    logs: TableLogs | None = None,
) -> Request:
    """Return the request with the keys that the logs of its datasets' tables name as changed.

    Exactly one of a version and an instant is given. Raises TableLogError where a log does not
    tell, DeclarationError where nothing says which table or which key it is.
    """
    from lineage_backfill.planning.request import ChangedDataset, LogRange
    from lineage_backfill.planning.resolver import Resolver
    from lineage_backfill.planning.table_keys import delta_table_of, keys_of
    from lineage_backfill.sources.table_logs import DeltaTableLogs

    resolver = Resolver(snapshot, project.declarations, now=now)
    reader = logs or DeltaTableLogs(conf=spark_conf(project))
    found = []
    for dataset in dict.fromkeys(changed.dataset for changed in request.changed):
        table = delta_table_of(resolver, dataset)
        began = time.monotonic()
        told = reader.changes(location=table.location, table=table.table, after=after, since=since)
        log_time(began, f"the log of {dataset}, from version {told.after} to {told.until}")
        keys, ignored = keys_of(resolver, dataset, told.partitions, told.columns)
        log = LogRange(after=told.after, until=told.until, ignored=ignored)
        found.append(ChangedDataset(dataset=dataset, keys=keys, log=log))
    return replace(request, changed=tuple(found))


def find_stale(
    project: Project,
    snapshot: LineageSnapshot,
    *,
    now: datetime,
    select: Sequence[str] = (),
    exclude: Sequence[str] = (),
    since: datetime | None = None,
    logs: TableLogs | None = None,
) -> tuple[tuple[Staleness, ...], Mapping[DatasetRef, str]]:
    """Return what is missing or older than its inputs, and why nothing is known of other tables.

    `select` and `exclude` choose among the jobs; of keys older than `since` nothing is said. Raises
    TableLogError where no log can be read at all.
    """
    from lineage_backfill.lineage.select import select as choose
    from lineage_backfill.planning.resolver import Resolver
    from lineage_backfill.planning.staleness import find_stale
    from lineage_backfill.runs import observations as evidence

    functions = functions_of(project)
    resolver = Resolver(snapshot, project.declarations, now=now, functions=functions)
    graph = neighbours(project, snapshot)
    jobs = choose(select, snapshot, graph) if select else set(resolver.edges.jobs)
    jobs -= choose(exclude, snapshot, graph) if exclude else set()
    tables, silent = _read_logs(project, resolver, jobs, logs)
    with open_store(project) as store:
        runs = evidence.of_runs(resolver, snapshot.history, store)
    return find_stale(resolver, tables=tables, runs=runs, jobs=jobs, since=since), silent


def read_logs(
    project: Project,
    snapshot: LineageSnapshot,
    *,
    now: datetime,
    jobs: Collection[JobRef] | None = None,
    logs: TableLogs | None = None,
) -> tuple[Mapping[DatasetRef, TableRecord], Mapping[DatasetRef, str]]:
    """Return what the logs of all tables tell that jobs touch, and why others tell nothing.

    `jobs` None stands for all.

    Raises TableLogError where no log can be read at all.
    """
    from lineage_backfill.planning.resolver import Resolver

    resolver = Resolver(snapshot, project.declarations, now=now)
    return _read_logs(project, resolver, resolver.edges.jobs if jobs is None else jobs, logs)


def lost_reads(
    project: Project, snapshot: LineageSnapshot, plan: Plan, *, now: datetime
) -> Mapping[DatasetRef, KeySet]:
    """Return what the runs of a plan read and what is past its retention by now."""
    from lineage_backfill.planning.retained import lost_reads

    return lost_reads(resolver_of(project, snapshot, now.isoformat(), request_of(plan)), plan)


def tables_of(project: Project, snapshot: LineageSnapshot) -> Callable[[DatasetRef], str | None]:
    """Return what gives the declared location of a dataset; None where it has none."""
    resolver = resolver_of(project, snapshot, datetime.now(UTC).isoformat())

    def location(dataset: DatasetRef) -> str | None:
        declared = resolver.dataset_declaration(dataset)
        return declared.location if declared is not None else None

    return location


def _read_logs(
    project: Project, resolver: Resolver, jobs: Iterable[JobRef], logs: TableLogs | None
) -> tuple[Mapping[DatasetRef, TableRecord], Mapping[DatasetRef, str]]:
    edges = resolver.edges
    touched = {ref for job in jobs for ref in (*edges.reads(job), *edges.writes(job))}
    return _told(project, resolver, touched, logs)


def _told(
    project: Project,
    resolver: Resolver,
    datasets: Iterable[DatasetRef],
    logs: TableLogs | None = None,
    *,
    by_spark: bool = True,
) -> tuple[Mapping[DatasetRef, TableRecord], Mapping[DatasetRef, str]]:
    from lineage_backfill.runs import observations as evidence
    from lineage_backfill.sources.table_logs import DeltaTableLogs

    reader = logs or DeltaTableLogs(conf=spark_conf(project))
    began = time.monotonic()
    known, silent = evidence.of_tables(resolver, sorted(datasets), reader, by_spark=by_spark)
    log_time(began, f"table logs: {len(known)} of {len(known) + len(silent)} tell something")
    return known, silent


def told_by_logs(
    project: Project, resolver: Resolver, datasets: Iterable[DatasetRef]
) -> Mapping[DatasetRef, TableRecord]:
    """Return what the logs of datasets' tables tell, as far as they can be read without Spark."""
    try:
        return _told(project, resolver, datasets, by_spark=False)[0]
    except TableLogError as error:
        _log.warning("whether others have changed tables since is not known: %s", error)
        return {}


def undo_blockers(
    project: Project, snapshot: LineageSnapshot, datasets: Iterable[DatasetRef] | None = None
) -> Mapping[DatasetRef, tuple[str, ...]]:
    """Return what would keep runs from being undone on the tables of datasets that jobs write.

    Without `datasets` all of them. Raises TableLogError where no log can be read at all.
    """
    from lineage_backfill.planning.resolver import Resolver
    from lineage_backfill.runs import observations as evidence
    from lineage_backfill.sources.table_logs import DeltaTableLogs

    resolver = Resolver(snapshot, project.declarations, now=datetime.now(UTC))
    edges = resolver.edges
    written = {ref for job in edges.jobs for ref in edges.writes(job)}
    chosen = written if datasets is None else written & set(datasets)
    return evidence.of_undo(resolver, sorted(chosen), DeltaTableLogs(conf=spark_conf(project)))


def explain(
    project: Project,
    snapshot: LineageSnapshot,
    request: Request,
    job: JobRef,
    keys: KeySet | None,
    *,
    why_not: bool = False,
    now: datetime,
) -> Explanation:
    """Return why the plan for the request holds these keys of the job (None: any), or why not.

    With `why_not` keys that are left come before those that are planned.
    """
    from lineage_backfill.planning import explain
    from lineage_backfill.planning.planner import Planner

    _families(project, snapshot, request)
    functions = functions_of(project)
    planner = Planner(snapshot, project.declarations, now=now, functions=functions)
    return explain.explain(planner.session(request), job, keys, why_not=why_not)


def timeline(project: Project, snapshot: LineageSnapshot, plan: Plan) -> Mapping[JobRef, Spans]:
    """Return where the keys of each job of a plan lie in time."""
    from lineage_backfill.planning.timeline import timeline

    return timeline(resolver_of(project, snapshot, plan.now, request_of(plan)), plan)


def check_plan(project: Project, snapshot: LineageSnapshot, plan: Plan) -> None:
    """Raise StalePlanError if what the plan rests on has moved, naming what."""
    from lineage_backfill.planning.diff import moved

    try:
        fresh = make_plan(project, snapshot, request_of(plan), now=datetime.fromisoformat(plan.now))
    except UsageError as error:
        raise StalePlanError(f"the plan is stale: {error}", hint=error.hint) from error
    if fresh.lineage["hash"] != plan.lineage["hash"]:
        names = moved(plan.lineage, fresh.lineage)
        more = len(names) - _SHOWN_NAMES
        raise StalePlanError(
            "the plan is stale: since it was made, other edges or declarations hold for "
            + ", ".join(names[:_SHOWN_NAMES])
            + (f" and {more:,} more" if more > 0 else ""),
            hint="Make it anew with `lineage-backfill impact … --out`, and compare the two with"
            " `lineage-backfill plan diff`.",
        )


def partitioning(project: Project, snapshot: LineageSnapshot) -> Resolver:
    """Return what is known of the partitions of each dataset and job by now."""
    return resolver_of(project, snapshot, datetime.now(UTC).isoformat())


def limits_of(resolver: Resolver, runs: Iterable[PlannedRun]) -> dict[JobRef, JobLimits]:
    """Return the pools and priorities of the jobs that runs belong to, where they are declared."""
    from lineage_backfill.runs.scheduler import JobLimits

    return {
        ref: JobLimits(pool=declared.pool, priority=declared.priority)
        for ref in {run.job for run in runs}
        if (declared := resolver.job_declaration(ref)) is not None
    }


def request_of(plan: Plan) -> Request:
    """Return what a plan was made for."""
    from lineage_backfill.planning.request_json import request_from_dict

    return request_from_dict(plan.request, "the plan")


def resolver_of(
    project: Project, snapshot: LineageSnapshot, now: str, request: Request | None = None
) -> Resolver:
    """Return what is known of the partitions of each dataset and job; `now` as ISO 8601.

    Functions of the project's code are loaded for a request only.
    """
    from lineage_backfill.planning.resolver import Resolver

    return Resolver(
        snapshot,
        project.declarations,
        now=datetime.fromisoformat(now),
        request=request,
        functions=functions_of(project) if request else None,
    )
