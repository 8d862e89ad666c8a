"""Wires the adapters to the core, from configuration; nothing else names an adapter."""

from __future__ import annotations

import getpass
import hashlib
import logging
import math
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from threading import Event, Timer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lineage_backfill.config import Project, load_project
from lineage_backfill.errors import (
    AmbiguousNameError,
    ConfigError,
    ConflictError,
    DeclarationError,
    EngineError,
    StalePlanError,
    UnknownNameError,
    UsageError,
)

if TYPE_CHECKING:
    from lineage_backfill.config.draft import Draft
    from lineage_backfill.engines.attempt import AttemptFiles
    from lineage_backfill.executor.drive import SpecBuilder
    from lineage_backfill.executor.loop import Executor
    from lineage_backfill.executor.scheduler import JobLimits
    from lineage_backfill.executor.simulate import Estimate
    from lineage_backfill.executor.workshop import Workshop
    from lineage_backfill.graph.families import Family
    from lineage_backfill.graph.lineage import LineageSnapshot
    from lineage_backfill.graph.select import Neighbours
    from lineage_backfill.model import BackfillState, DatasetRef, JobRef
    from lineage_backfill.partitions.calendar import Calendar
    from lineage_backfill.partitions.text import KeySet
    from lineage_backfill.plan.catalog import Catalog
    from lineage_backfill.plan.declarations import Declarations
    from lineage_backfill.plan.explain import Explanation
    from lineage_backfill.plan.plan import Plan, PlannedRun
    from lineage_backfill.plan.request import Request
    from lineage_backfill.plan.review import Finding
    from lineage_backfill.plan.staleness import Staleness, TableRecord
    from lineage_backfill.plan.timeline import Span, Spans
    from lineage_backfill.ports import (
        BackfillRecord,
        Engine,
        Reporter,
        RunStore,
        TableLogs,
    )

    Verb = Callable[[Executor, str], BackfillState]


_log = logging.getLogger(__name__)
_SQLITE = "sqlite:///"
_SHOWN_NAMES = 8
_COMPLETED = 50  # backfills offered by shells
_QUICKLY_READ = 2_000_000  # bytes of lineage
_POLL = 0.5  # seconds between two looks at a backfill that somebody else drives


def open_project(
    file: Path | None = None,
    *,
    search: bool = True,
    events: Sequence[str] | None = None,
    marquez: str | None = None,
    snapshot: Path | None = None,
    view: str | None = None,
) -> Project:
    """Return the project of `file`, or the one found upward; the lineage given comes first.

    Without `file` and `search` it is one without a file. Raises ConfigError or DeclarationError.
    """
    flags = {
        "lineage.events": list(events) if events else None,
        "lineage.marquez": marquez,
        "lineage.snapshot": snapshot and str(snapshot),
        "lineage.view": view,
    }
    project = load_project(file=file, search=search, flags=flags)
    _log.info("project file: %s", project.file or "none")
    return project


def draft_project(project: Project, folder: Path, *, now: datetime) -> Draft:
    """Return a first project file for the lineage that `project` names, to stand in `folder`.

    Raises LineageError, and ConfigError where no lineage is named.
    """
    from lineage_backfill.config.draft import draft

    snapshot = _read_source(project)
    lineage = project.lineage
    source: dict[str, str | list[str]] = {}
    if lineage.events:
        source["events"] = [_relative(path, folder) for path in lineage.events]
    elif lineage.snapshot:
        source["snapshot"] = _relative(str(lineage.snapshot), folder)
    elif lineage.marquez and "@" not in urlsplit(lineage.marquez).netloc:
        source["marquez"] = lineage.marquez
    return draft(snapshot, source, now=now)


def _relative(path: str, folder: Path) -> str:
    """Return the path as a project file in the folder names it, whole where it lies elsewhere."""
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path


def read_lineage(project: Project) -> LineageSnapshot:
    """Return the lineage that the project names, as its declarations make it.

    One dataset stands for all names that a `pattern` matches, and declared parents for their
    children. Raises LineageError, ConfigError where no lineage is named, DeclarationError where a
    parent and a job below it are both declared.
    """
    from lineage_backfill.sources.names import keep_names

    began = time.monotonic()
    snapshot = _declared(project, _read_source(project))
    log_time(began, f"lineage: {len(snapshot.jobs)} jobs, {len(snapshot.datasets)} datasets")
    keep_names(snapshot, _names_file(project))
    return snapshot


def known_names(project: Project) -> tuple[list[DatasetRef], list[JobRef]]:
    """Return the datasets and jobs of the lineage as it was last read here; for completion.

    Where it was not read yet, small files are read now. Raises OSError, ValueError or LineageError.
    """
    from lineage_backfill.sources.names import kept_names

    if _names_file(project).exists():
        return kept_names(_names_file(project))
    lineage = project.lineage
    if lineage.events:
        from lineage_backfill.sources.events import EventSource

        size = EventSource(lineage.events).size()
    elif lineage.snapshot:
        size = lineage.snapshot.stat().st_size
    else:
        return [], []
    if size > _QUICKLY_READ:
        return [], []
    snapshot = _declared(project, _read_source(project))
    return sorted(snapshot.datasets), sorted(snapshot.jobs)


def newest_backfills(project: Project) -> list[tuple[str, str]]:
    """Return the ids and states of the newest backfills; of none where a service has them.

    Raises sqlite3.Error.
    """
    from lineage_backfill.store.glance import newest_backfills

    if not project.store_url.startswith(_SQLITE):
        return []
    return newest_backfills(Path(project.store_url.removeprefix(_SQLITE)), most=_COMPLETED)


def _names_file(project: Project) -> Path:
    """Return where the user keeps the names for a project: to look leaves nothing behind in it."""
    import platformdirs

    place = hashlib.sha256(str(project.root).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return platformdirs.user_cache_path("lineage-backfill") / f"names-{place}.json"


def pull_lineage(project: Project, file: Path) -> LineageSnapshot:
    """Save the lineage that the project names as a snapshot, just as its source gave it.

    Declarations are applied where it is read, so that it serves whatever they come to be. Raises
    LineageError, ConfigError where no lineage is named, UsageError where it cannot be written.
    """
    from lineage_backfill.sources.snapshot import save_snapshot

    snapshot = _read_source(project)
    try:
        save_snapshot(snapshot, file)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}", hint="Name another file with --out."
        ) from error
    return snapshot


def read_snapshot(project: Project, file: Path) -> LineageSnapshot:
    """Return the lineage of a saved snapshot, as the project's declarations make it."""
    from lineage_backfill.sources.snapshot import SnapshotSource

    return _declared(project, SnapshotSource(file).read())


def _declared(project: Project, snapshot: LineageSnapshot) -> LineageSnapshot:
    from lineage_backfill.plan.folding import Folding

    return _folded(Folding(project.declarations).fold(snapshot), project.declarations)


def _folded(snapshot: LineageSnapshot, declarations: Declarations) -> LineageSnapshot:
    """Fold children into the parents without edges of their own that are declared by name.

    Whoever declares an Airflow DAG or a Spark application says that it is run as a whole.
    """
    named = {(job.namespace or declarations.namespace, job.name) for job in declarations.jobs}

    def is_declared(ref: JobRef) -> bool:
        return not named.isdisjoint({(ref.namespace, ref.name), (None, ref.name)})

    jobs = snapshot.jobs
    whole = {
        node.parent
        for node in jobs.values()
        if node.parent is not None
        and is_declared(node.parent)
        and not (node.parent in jobs and (jobs[node.parent].reads or jobs[node.parent].writes))
    }
    if not whole:
        return snapshot
    from lineage_backfill.graph.merge import fold_children

    folded = fold_children(snapshot, whole)
    for ref in jobs:
        if ref not in folded.jobs and is_declared(ref):
            raise DeclarationError(
                f"job {ref} is declared, and so is a parent that runs it as a part of itself",
                hint="Keep the [[job]] of the one that is to be run, and leave the other one out.",
            )
    return folded


def _read_source(project: Project) -> LineageSnapshot:
    lineage = project.lineage
    if lineage.events:
        from lineage_backfill.sources.events import EventSource

        return EventSource(lineage.events).read()
    if lineage.snapshot:
        from lineage_backfill.sources.snapshot import SnapshotSource

        return SnapshotSource(lineage.snapshot).read()
    if lineage.marquez:
        from lineage_backfill.sources.marquez import MarquezSource
        from lineage_backfill.sources.web import WebSettings

        settings = WebSettings(
            headers=lineage.headers, ca_bundle=lineage.ca_bundle, timeout=lineage.timeout
        )
        return MarquezSource(
            lineage.marquez,
            view=lineage.view,
            api_key=lineage.api_key,
            settings=settings,
            cache=_state_dir(project) / "cache",
        ).read()
    raise ConfigError(
        "no lineage is named",
        hint="Name it: --events PATH, --marquez URL, --snapshot FILE, or [lineage] in the project.",
    )


def check_project(project: Project, snapshot: LineageSnapshot) -> tuple[Finding, ...]:
    """Return what is to be said of the project file beside the lineage, errors first."""
    from lineage_backfill.plan.review import Finding, review

    found, functions = [], {}
    try:
        with open_engines(project):
            pass
    except ConfigError as error:
        found.append(Finding.of("[engines.*]", error))
    try:
        functions = _functions(project)
    except DeclarationError as error:
        found.append(Finding.of("[[job.reads]]", error))
    now = datetime.now(UTC)
    return (*found, *review(snapshot, project.declarations, now=now, functions=functions))


def neighbours(project: Project, snapshot: LineageSnapshot) -> Neighbours:
    """Return the graph of jobs and datasets as plans see it: declared edges are in it."""
    from lineage_backfill.graph.select import Neighbours

    edges = _catalog(project, snapshot, datetime.now(UTC).isoformat()).edges
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
    from lineage_backfill.plan.advice import advice
    from lineage_backfill.plan.folding import refuse_families, written
    from lineage_backfill.plan.planner import build_plan

    found = _families(project, snapshot, request)
    functions = _functions(project)
    began = time.monotonic()
    plan = build_plan(request, snapshot, project.declarations, now=now, functions=functions)
    log_time(began, f"plan: {plan.totals['runs']} runs of {plan.totals['jobs']} jobs")
    if found:
        refuse_families(found, written(plan, snapshot))
    said = tuple(advice(plan, snapshot))
    return replace(plan, warnings=(*plan.warnings, *said)) if said else plan


def families(project: Project, snapshot: LineageSnapshot) -> tuple[Family, ...]:
    """Return what looks like partitions in the lineage, and is not declared."""
    from lineage_backfill.plan.folding import Folding

    return Folding(project.declarations).families(snapshot)


def _families(project: Project, snapshot: LineageSnapshot, request: Request) -> tuple[Family, ...]:
    """Return what looks like undeclared partitions; refuse a request that names one."""
    from lineage_backfill.plan.folding import refuse_families

    found = families(project, snapshot)
    refuse_families(found, (one.dataset for one in request.changed))
    return found


def log_time(began: float, what: str) -> None:
    """Log what was done since `began`, an instant of the monotonic clock."""
    _log.info("%s, in %.2f s", what, time.monotonic() - began)


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
    from lineage_backfill.plan.catalog import Catalog
    from lineage_backfill.plan.physical import delta_table_of, keys_of
    from lineage_backfill.plan.request import ChangedDataset, LogRange
    from lineage_backfill.sources.table_logs import DeltaTableLogs

    catalog = Catalog(snapshot, project.declarations, now=now)
    reader = logs or DeltaTableLogs(conf=_spark_conf(project))
    found = []
    for dataset in dict.fromkeys(changed.dataset for changed in request.changed):
        table = delta_table_of(catalog, dataset)
        began = time.monotonic()
        told = reader.changes(location=table.location, table=table.table, after=after, since=since)
        log_time(began, f"the log of {dataset}, from version {told.after} to {told.until}")
        keys, ignored = keys_of(catalog, dataset, told.partitions, told.columns)
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
    from lineage_backfill import evidence
    from lineage_backfill.graph.select import select as choose
    from lineage_backfill.plan.catalog import Catalog
    from lineage_backfill.plan.staleness import find_stale

    functions = _functions(project)
    catalog = Catalog(snapshot, project.declarations, now=now, functions=functions)
    graph = neighbours(project, snapshot)
    jobs = choose(select, snapshot, graph) if select else set(catalog.edges.jobs)
    jobs -= choose(exclude, snapshot, graph) if exclude else set()
    tables, silent = _read_logs(project, catalog, jobs, logs)
    with open_store(project) as store:
        runs = evidence.of_runs(catalog, snapshot.history, store)
    return find_stale(catalog, tables=tables, runs=runs, jobs=jobs, since=since), silent


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
    from lineage_backfill.plan.catalog import Catalog

    catalog = Catalog(snapshot, project.declarations, now=now)
    return _read_logs(project, catalog, catalog.edges.jobs if jobs is None else jobs, logs)


def lost_reads(
    project: Project, snapshot: LineageSnapshot, plan: Plan, *, now: datetime
) -> Mapping[DatasetRef, KeySet]:
    """Return what the runs of a plan read and what is past its retention by now."""
    from lineage_backfill.plan.retained import lost_reads

    return lost_reads(_catalog(project, snapshot, now.isoformat(), _request(plan)), plan)


def tables_of(project: Project, snapshot: LineageSnapshot) -> Callable[[DatasetRef], str | None]:
    """Return what gives the declared location of a dataset; None where it has none."""
    catalog = _catalog(project, snapshot, datetime.now(UTC).isoformat())

    def location(dataset: DatasetRef) -> str | None:
        declared = catalog.dataset_declaration(dataset)
        return declared.location if declared is not None else None

    return location


def _read_logs(
    project: Project, catalog: Catalog, jobs: Iterable[JobRef], logs: TableLogs | None
) -> tuple[Mapping[DatasetRef, TableRecord], Mapping[DatasetRef, str]]:
    from lineage_backfill import evidence
    from lineage_backfill.sources.table_logs import DeltaTableLogs

    edges = catalog.edges
    touched = {ref for job in jobs for ref in (*edges.reads(job), *edges.writes(job))}
    reader = logs or DeltaTableLogs(conf=_spark_conf(project))
    began = time.monotonic()
    known, silent = evidence.of_tables(catalog, sorted(touched), reader)
    log_time(began, f"table logs: {len(known)} of {len(touched)} tell something")
    return known, silent


def undo_hindrances(
    project: Project, snapshot: LineageSnapshot, datasets: Iterable[DatasetRef] | None = None
) -> Mapping[DatasetRef, tuple[str, ...]]:
    """Return what would keep runs from being undone on the tables of datasets that jobs write.

    Without `datasets` all of them. Raises TableLogError where no log can be read at all.
    """
    from lineage_backfill import evidence
    from lineage_backfill.plan.catalog import Catalog
    from lineage_backfill.sources.table_logs import DeltaTableLogs

    catalog = Catalog(snapshot, project.declarations, now=datetime.now(UTC))
    edges = catalog.edges
    written = {ref for job in edges.jobs for ref in edges.writes(job)}
    chosen = written if datasets is None else written & set(datasets)
    return evidence.of_undo(catalog, sorted(chosen), DeltaTableLogs(conf=_spark_conf(project)))


def _spark_conf(project: Project) -> Mapping[str, object]:
    """Return the Spark settings of the first engine that has any."""
    for engine in project.declarations.engines:
        conf = engine.settings.get("conf")
        if isinstance(conf, Mapping):
            return conf
    return {}


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
    from lineage_backfill.plan import explain
    from lineage_backfill.plan.planner import Planner

    _families(project, snapshot, request)
    functions = _functions(project)
    planner = Planner(snapshot, project.declarations, now=now, functions=functions)
    return explain.explain(planner.session(request), job, keys, why_not=why_not)


def timeline(project: Project, snapshot: LineageSnapshot, plan: Plan) -> Mapping[JobRef, Spans]:
    """Return where the keys of each job of a plan lie in time."""
    from lineage_backfill.plan.timeline import timeline

    return timeline(_catalog(project, snapshot, plan.now, _request(plan)), plan)


def estimate(
    project: Project, snapshot: LineageSnapshot, plan: Plan, *, max_parallel: int | None = None
) -> Estimate | None:
    """Return how long a plan will take, as past runs of its jobs tell; it needs no clock.

    Those of this run store tell of a job, and where they are few those that the lineage knows too.
    None for a plan above its limit of runs: it has none.
    """
    from lineage_backfill import evidence
    from lineage_backfill.executor.simulate import LOOKED_AT, estimate

    runs = plan.runs
    if runs is None:
        return None
    catalog = _catalog(project, snapshot, plan.now, _request(plan))
    with open_store(project) as store:
        ours = {record.id for record in store.backfills()}
        past = store.past_runs(LOOKED_AT)
    others = [record for record in snapshot.history if record.backfill not in ours]
    outside = evidence.past_runs(catalog, others, {run.job for run in runs}, LOOKED_AT)
    return estimate(
        runs,
        past,
        outside,
        max_parallel=max_parallel or project.declarations.limits.max_parallel,
        jobs=_limits(catalog, runs),
        pools=project.declarations.pools,
    )


def estimate_left(
    project: Project,
    backfill: str | None,
    *,
    again: bool = False,
    max_parallel: int | None = None,
) -> Estimate:
    """Return how long what is left of a backfill will take, as past runs in its store tell.

    With `again` what did not succeed is left as well. The lineage is not needed.
    """
    from lineage_backfill.executor.simulate import LOOKED_AT, estimate
    from lineage_backfill.graph.lineage import LineageSnapshot

    with open_store(project) as store:
        record = _find(store, backfill)
        plans, past = _plans(store, record.id), store.past_runs(LOOKED_AT)
        states = {run.run_id: run.state for run in store.runs(record.id)}
    ids = {one for one, state in states.items() if not (state.is_good if again else state.is_final)}
    runs = [
        replace(run, upstream=tuple(one for one in run.upstream if one in ids))
        for plan in plans
        for run in plan.runs or ()
        if run.id in ids
    ]
    limits = project.declarations.limits
    return estimate(
        runs,
        past,
        max_parallel=max_parallel or record.settings.max_parallel or limits.max_parallel,
        jobs=_limits(_catalog(project, LineageSnapshot.of([]), plans[0].now), runs),
        pools=project.declarations.pools,
    )


def check_plan(project: Project, snapshot: LineageSnapshot, plan: Plan) -> None:
    """Raise StalePlanError if what the plan rests on has moved, naming what."""
    from lineage_backfill.plan.diff import moved

    try:
        fresh = make_plan(project, snapshot, _request(plan), now=datetime.fromisoformat(plan.now))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a drive of a backfill ended; `timed_out` where it was stopped for its time was up.

    `is_orphan` where nothing was ended: whoever drove it is gone.
    """

    id: str
    state: BackfillState
    timed_out: bool = False
    is_orphan: bool = False


def start(
    project: Project,
    snapshot: LineageSnapshot,
    plan: Plan,
    *,
    reporter: Reporter,
    max_parallel: int | None = None,
    timeout: timedelta | None = None,
    engines: Mapping[str, Engine] | None = None,
    waits: bool = False,
    **submission: Any,
) -> Ended:
    """Run a plan to an end; after `timeout` no more runs are started.

    `engines` are used instead of new ones, and left open; `submission` is what `submit` takes. One
    that `waits` is not refused where another backfill writes the same partitions. Raises UsageError
    for a job without an engine and GuardRailError for too many runs, both before anything is
    written; EnvironmentMissingError and ConflictError before anything is run.
    """
    with (
        open_store(project, create=True) as store,
        _executor(
            project,
            snapshot,
            [plan],
            store,
            reporter=reporter,
            max_parallel=max_parallel,
            engines=engines,
            must_open=submission.get("scheduled_for") is None,
            waits=waits,
        ) as executor,
    ):
        backfill_id = _submit(project, executor, plan, **submission)
        return _drive(executor, executor.drive, backfill_id, timeout)


def submit(project: Project, snapshot: LineageSnapshot, plan: Plan, **submission: Any) -> str:
    """Write a new backfill into the run store and return its id; `resume` drives it.

    `submission` holds `settings`, `description`, `parameters` for the jobs, `scheduled_for` and
    `expires_at`. Raises what `start` raises before anything is run.
    """
    from lineage_backfill.ports import Reporter

    with (
        open_store(project, create=True) as store,
        _executor(project, snapshot, [plan], store, reporter=Reporter()) as executor,
    ):
        return _submit(project, executor, plan, **submission)


def _submit(project: Project, executor: Executor, plan: Plan, **submission: Any) -> str:
    return executor.start(
        plan,
        submitted_by=account(),
        reason=plan.request.get("reason", ""),
        code_version=_code_version(project.root),
        **submission,
    )


def detach(project: Project, backfill: str, arguments: Sequence[str]) -> Path:
    """Let a process of its own drive a backfill, and return its log once it does.

    `arguments` name project and lineage to it. Raises EngineError with the end of its log where it
    ends before it has begun.
    """
    from lineage_backfill.executor.owner import is_driving

    log = _state_dir(project) / "backfills" / backfill / "driver.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "lineage_backfill", "resume", backfill, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    with open_store(project) as store:
        while not is_driving(store.holder(backfill), datetime.now(UTC)):
            code = process.poll()
            if code is None:
                time.sleep(_POLL)
            elif code:
                said = log.read_text(encoding="utf-8", errors="replace").strip()
                raise EngineError(
                    f"the process that was to drive {backfill} ended with exit code {code}",
                    hint=f"The end of {log}:",
                    lines=tuple(said.splitlines()[-5:]),
                )
            else:
                break  # it was very quick
    return log


def resume(project: Project, backfill: str | None, **options: Any) -> Ended:
    """Go on with a backfill, the newest if none is named; `options` are those of `start`."""
    from lineage_backfill.executor.loop import Executor

    return _again(project, backfill, Executor.resume, **options)


def retry(project: Project, backfill: str | None, **options: Any) -> Ended:
    """Run again what did not succeed, and nothing else; `options` are those of `start`."""
    from lineage_backfill.executor.loop import Executor

    return _again(project, backfill, Executor.retry, **options)


def undo(
    project: Project,
    backfill: str | None,
    *,
    ask: Callable[[Plan], None],
    timeout: timedelta | None = None,
    **options: Any,
) -> Ended:
    """Put back what a backfill wrote, the newest first, or go on with that; see `start`.

    `ask` is shown what would be put back, and raises where that is not wanted. Raises UsageError
    for a backfill that is an undo itself, or has written nothing.
    """
    from lineage_backfill.executor.loop import Executor
    from lineage_backfill.executor.undo import undo_plan
    from lineage_backfill.model import BackfillState

    with open_store(project) as store:
        record = _find(store, backfill)
        if record.undo_of is not None:
            raise UsageError(
                f"{record.id} is itself the undo of {record.undo_of}",
                hint="To repair again what it put back, `run` the same request.",
            )
        if record.undone_by is None:
            plans = _plans(store, record.id)
            snapshot = read_lineage(project)
            catalog = _catalog(project, snapshot, plans[-1].now, _request(plans[-1]))
            attempts = store.attempts(record.id)
            plan = undo_plan(plans, store.runs(record.id), attempts, catalog)
            if not plan.runs:
                raise UsageError(
                    f"{record.id} has written nothing", hint="There is nothing to put back."
                )
            ask(plan)
            with _executor(
                project, snapshot, [plan], store, undo_of=record.id, must_open=True, **options
            ) as executor:
                undo_id = executor.start(plan, submitted_by=account(), undo_of=record.id)
                return _drive(executor, executor.drive, undo_id, timeout)
        undoing = store.backfill(record.undone_by)
    if undoing.state is BackfillState.SUCCEEDED:
        return Ended(id=undoing.id, state=undoing.state)
    return _again(project, undoing.id, Executor.retry, timeout=timeout, **options)


def delete(project: Project, backfill: str) -> BackfillRecord:
    """Mark a backfill as deleted, and let go of the partitions that it has locked; returns it.

    Raises ConflictError while somebody drives it, or one of its runs may still be under way.
    """
    from lineage_backfill.executor.owner import LEASE, is_dead, owner, standing

    now = datetime.now(UTC)
    with open_store(project) as store:
        record, driver = standing(store, _find(store, backfill).id, now)
        if record.deleted:
            return record
        if driver is None:
            if any(run.state.is_under_way for run in store.runs(record.id)):
                raise ConflictError(
                    f"runs of {record.id} may still be under way",
                    hint=f"See to their end first: `cancel {record.id}`.",
                )
            # So that nothing stays locked that a driver has left behind.
            store.release(store.acquire(record.id, owner(), now=now, ttl=LEASE, is_dead=is_dead))
        store.delete(record.id, now=now)
        return store.backfill(record.id)


def pause(project: Project, backfill: str | None) -> Ended:
    """Ask whoever drives a backfill to start no more runs; returns the state that it was in.

    One that nobody drives is left as it is.
    """
    from lineage_backfill.executor.owner import standing
    from lineage_backfill.ports import Wish

    now = datetime.now(UTC)
    with open_store(project) as store:
        record, _ = standing(store, _find(store, backfill).id, now)
        if record.state.is_under_way:
            store.ask(record.id, Wish.PAUSE, now=now)
    return Ended(id=record.id, state=record.state)


def cancel(
    project: Project, backfill: str | None, *, kill: bool = False, reporter: Reporter
) -> Ended:
    """Give up what a backfill has not started; `kill` stops what is running as well.

    The state is RUNNING where another executor drives the backfill and has been asked. One that
    has ended is left as it is. The lineage is not needed.
    """
    from lineage_backfill.model import BackfillState

    with open_store(project) as store:
        record = _find(store, backfill)
        if all(run.state.is_final for run in store.runs(record.id)) and record.ended_at:
            return Ended(id=record.id, state=record.state)
        plans = _plans(store, record.id)
        with _executor(project, None, plans, store, reporter=reporter) as executor:
            state = executor.cancel(record.id, kill=kill)
    return Ended(id=record.id, state=state or BackfillState.RUNNING)


def watch(
    project: Project,
    backfill: str | None,
    *,
    reporter: Reporter,
    timeout: timedelta | None = None,
) -> Ended:
    """Tell the reporter what happens to a backfill until it ends or the time is up; only reads.

    It has ended as well where whoever drove it is gone.
    """
    from lineage_backfill.watching import follow

    deadline = time.monotonic() + timeout.total_seconds() if timeout else math.inf

    def wait() -> bool:
        left = deadline - time.monotonic()
        time.sleep(max(0.0, min(left, _POLL)))
        return left > 0

    with open_store(project) as store:
        id_ = _find(store, backfill).id
        state = follow(store, id_, reporter, now=partial(datetime.now, UTC), wait=wait)
        is_orphan = not state.is_under_way and store.backfill(id_).state.is_under_way
    timed_out = time.monotonic() >= deadline
    return Ended(id=id_, state=state, timed_out=timed_out, is_orphan=is_orphan)


def status(
    project: Project, backfill: str | None, *, store: RunStore | None = None
) -> dict[str, Any]:
    """Return the status document of a backfill, of the newest if none is named.

    A `store` that is open already is used, and left open, here and below.
    """
    from lineage_backfill import accounts
    from lineage_backfill.executor.owner import standing

    with _reading(project, store) as store:
        record, driver = standing(store, _find(store, backfill).id, datetime.now(UTC))
        return accounts.status(record, store.plan(record.id), store.runs(record.id), driver)


def report(
    project: Project, backfill: str | None, *, store: RunStore | None = None
) -> dict[str, Any]:
    """Return the report document of a backfill, of the newest if none is named."""
    from lineage_backfill import accounts

    with _reading(project, store) as store:
        record = _find(store, backfill)
        plans = _plans(store, record.id)
        runs, attempts = store.runs(record.id), store.attempts(record.id)
    # The newest plan knows the keys of all.
    calendars, without = _calendars(project, plans[-1].now), _without(project, plans[-1])
    return accounts.report(record, plans, runs, attempts, calendars, without)


def plan_documents(
    project: Project, backfill: str, *, store: RunStore | None = None
) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """Return the whole id of a backfill, and the documents of its plan and of its tails."""
    with _reading(project, store) as store:
        id_ = _find(store, backfill).id
        return id_, _plan_documents(store, id_)


def run_of(
    project: Project, backfill: str, run_id: str, *, store: RunStore | None = None
) -> dict[str, Any]:
    """Return the document of one run of a backfill; raises UnknownNameError."""
    from lineage_backfill import accounts

    with _reading(project, store) as store:
        record = _find(store, backfill)
        plans = _plan_documents(store, record.id)
        planned = (run for plan in plans for run in plan.get("runs") or () if run["id"] == run_id)
        found = next(planned, None)
        if found is None:
            raise UnknownNameError(
                f"{record.id} has no run {run_id!r}",
                hint=f"`lineage-backfill status {record.id} --json` lists its runs.",
            )
        return accounts.run(record, found, store.runs(record.id), store.attempts(record.id))


def attempt_spec(project: Project, backfill: str, run_id: str, number: int) -> dict[str, Any]:
    """Return what an attempt was told, secrets masked; raises UnknownNameError if it is not here.

    A file that leads out of the project's own folder is not here.
    """
    from lineage_backfill.config.project import masked

    files = _attempt_files(project, backfill, run_id, number)
    if not _is_ours(project, files.spec_path):
        raise UnknownNameError("its run spec is not kept here", hint="Its engine may know more.")
    try:
        spec: dict[str, Any] = masked(files.spec())
    except (OSError, ValueError) as error:
        raise UnknownNameError(f"its run spec cannot be read: {error}") from error
    return spec


def attempt_log(project: Project, backfill: str, run_id: str, number: int, *, most: int) -> str:
    """Return the end of what an attempt has printed, at most so many bytes.

    Raises UnknownNameError where it is not in the project's own folder.
    """
    place, begin = _attempt_files(project, backfill, run_id, number).log_place()
    if not _is_ours(project, place):
        raise UnknownNameError("its log is not kept here", hint="Its engine may know more.")
    with place.open("rb") as file:
        file.seek(max(begin, place.stat().st_size - most))
        return file.read(most).decode(errors="replace")


def _attempt_files(project: Project, backfill: str, run_id: str, number: int) -> AttemptFiles:
    from lineage_backfill.engines.attempt import AttemptFiles
    from lineage_backfill.executor.drive import spec_file

    return AttemptFiles(spec_file(_state_dir(project) / "backfills" / backfill, run_id, number))


def _is_ours(project: Project, path: Path) -> bool:
    """Whether there is such a file, and it really lies among those that backfills leave."""
    return path.is_file() and path.resolve().is_relative_to(_state_dir(project).resolve())


def run_spans(
    project: Project, snapshot: LineageSnapshot, backfill: str, *, store: RunStore | None = None
) -> Mapping[str, tuple[Span, ...]]:
    """Return where the keys of each run of a backfill lie in time, by the ids of the runs."""
    from lineage_backfill.plan.document import plan_from_dict
    from lineage_backfill.plan.timeline import spans

    with _reading(project, store) as store:
        plan = plan_from_dict((store.tails(backfill) or (store.plan(backfill),))[-1])
        runs = store.runs(backfill)
    catalog = _catalog(project, snapshot, plan.now, _request(plan))
    return {run.run_id: spans(catalog.job(run.job).calendar, run.partitions) for run in runs}


def partitioning(project: Project, snapshot: LineageSnapshot) -> Catalog:
    """Return what is known of the partitions of each dataset and job by now."""
    return _catalog(project, snapshot, datetime.now(UTC).isoformat())


def history(project: Project, *, store: RunStore | None = None) -> dict[str, Any]:
    """Return the document that lists all backfills but those that have expired."""
    from lineage_backfill import accounts
    from lineage_backfill.executor.owner import standing

    now = datetime.now(UTC)
    with _reading(project, store) as store:
        seen = (
            standing(store, one.id, now)[0] if one.state.is_under_way else one
            for one in store.backfills()
        )
        return accounts.history(
            one
            for one in seen
            if one.state.is_under_way or one.expires_at is None or now < one.expires_at
        )


def _reading(project: Project, store: RunStore | None) -> AbstractContextManager[RunStore]:
    return nullcontext(store) if store is not None else open_store(project)


@contextmanager
def open_store(
    project: Project, *, create: bool = False, read_only: bool = False
) -> Iterator[RunStore]:
    """Open the project's run store, and close it in the end; raises StoreError.

    A SQLite file that is not there is made only to `create`; else the store is an empty one. One
    that is `read_only` is not upgraded either.
    """
    file = Path(project.store_url.removeprefix(_SQLITE))
    store: RunStore
    if create or not project.store_url.startswith(_SQLITE) or file.exists():
        from lineage_backfill.store.sql import SqlRunStore

        began = time.monotonic()
        store = SqlRunStore(project.store_url, read_only=read_only)
        log_time(began, "run store opened")
    else:
        from lineage_backfill.store.memory import MemoryRunStore

        store = MemoryRunStore()
    try:
        yield store
    finally:
        store.close()


def _plans(store: RunStore, backfill_id: str) -> list[Plan]:
    """Return the plan of a backfill and its tails."""
    from lineage_backfill.plan.document import plan_from_dict

    return [plan_from_dict(document) for document in _plan_documents(store, backfill_id)]


def _plan_documents(store: RunStore, backfill_id: str) -> tuple[Mapping[str, Any], ...]:
    return store.plan(backfill_id), *store.tails(backfill_id)


def _again(
    project: Project,
    backfill: str | None,
    verb: Verb,
    *,
    timeout: timedelta | None = None,
    reporter: Reporter,
    max_parallel: int | None = None,
    engines: Mapping[str, Engine] | None = None,
    waits: bool = False,
) -> Ended:
    with open_store(project) as store:
        record = _find(store, backfill)
        plans = _plans(store, record.id)
        snapshot = read_lineage(project)
        with _executor(
            project,
            snapshot,
            plans,
            store,
            reporter=reporter,
            max_parallel=max_parallel or record.settings.max_parallel,
            engines=engines,
            undo_of=record.undo_of,
            waits=waits,
        ) as executor:
            return _drive(executor, partial(verb, executor), record.id, timeout)


def _drive(
    executor: Executor,
    verb: Callable[[str], BackfillState],
    backfill_id: str,
    timeout: timedelta | None,
) -> Ended:
    from lineage_backfill.model import BackfillState

    timed_out = Event()

    def stop() -> None:
        timed_out.set()
        executor.stop()

    timer = Timer(timeout.total_seconds(), stop) if timeout else None
    if timer:
        timer.daemon = True
        timer.start()
    try:
        state = verb(backfill_id)
    except ConflictError:
        if not timed_out.is_set():
            raise
        state = BackfillState.RUNNING  # somebody else drives it still
    finally:
        if timer:
            timer.cancel()
    return Ended(id=backfill_id, state=state, timed_out=timed_out.is_set())


@contextmanager
def _executor(
    project: Project,
    snapshot: LineageSnapshot | None,
    plans: Sequence[Plan],
    store: RunStore,
    *,
    reporter: Reporter,
    max_parallel: int | None = None,
    engines: Mapping[str, Engine] | None = None,
    must_open: bool = False,
    undo_of: str | None = None,
    waits: bool = False,
) -> Iterator[Executor]:
    """Make the executor of plans; without a snapshot it can give runs up, not judge them.

    With `undo_of` the runs take back those of that backfill.
    """
    from lineage_backfill.executor.loop import Executor
    from lineage_backfill.executor.undo import UndoSpecs
    from lineage_backfill.executor.workshop import Workshop
    from lineage_backfill.graph.lineage import LineageSnapshot

    declarations = project.declarations
    workshop = Workshop(
        snapshot or LineageSnapshot.of([]),
        declarations,
        plans,
        store=store,
        functions=_functions(project) if snapshot else {},
        root=project.root,
        outbox=project.outbox,
        lineage_url=project.lineage.marquez,
        is_ours=partial(_holds, store),
    )
    judges = snapshot is not None and undo_of is None
    spec_builder: SpecBuilder = workshop.spec
    if undo_of is not None:
        spec_builder = UndoSpecs(workshop.spec, store.attempts(undo_of))
    runs = [run for plan in plans for run in plan.runs or ()]
    used = {run.engine for run in runs}
    with nullcontext(engines) if engines else open_engines(project, used) as opened:
        if must_open and used <= opened.keys():  # if not, the executor refuses the plan
            for engine in (engine for name, engine in opened.items() if name in used):
                engine.open()
        yield Executor(
            store=store,
            engines=opened,
            spec_builder=spec_builder,
            reporter=reporter,
            max_parallel=max_parallel or declarations.limits.max_parallel,
            pools=declarations.pools,
            jobs=_limits(workshop.catalog, runs),
            state_dir=_state_dir(project),
            cutoff=workshop.cutoff if judges else None,
            tail=workshop.tail if judges else None,
            waits=waits,
            check=partial(_check_again, project, plans[0]) if judges else None,
            live=_live_runs(project, workshop, snapshot) if judges and snapshot else None,
        )


def _limits(catalog: Catalog, runs: Iterable[PlannedRun]) -> dict[JobRef, JobLimits]:
    """Return the pools and priorities of the jobs that runs belong to, where they are declared."""
    from lineage_backfill.executor.scheduler import JobLimits

    return {
        ref: JobLimits(pool=declared.pool, priority=declared.priority)
        for ref in {run.job for run in runs}
        if (declared := catalog.job_declaration(ref)) is not None
    }


@contextmanager
def open_engines(
    project: Project, names: Collection[str | None] | None = None
) -> Iterator[dict[str, Engine]]:
    """Make the project's engines, or those named, and close them in the end.

    Making one starts nothing yet; raises ConfigError for settings that do not fit.
    """
    from lineage_backfill.engines import create_engine
    from lineage_backfill.plan.declarations import SPARK_ENGINES

    with ExitStack() as stack:
        engines = {}
        for declared in project.declarations.engines:
            if names is not None and declared.name not in names:
                continue
            settings: dict[str, Any] = dict(declared.settings)
            if declared.kind in SPARK_ENGINES:
                settings["conf"] = {**project.spark, **settings.get("conf", {})}
            engine = create_engine(
                declared.kind, settings, project=project.code, state_dir=_state_dir(project)
            )
            stack.callback(engine.close)
            engines[declared.name] = engine
        yield engines


def _state_dir(project: Project) -> Path:
    return project.root / ".lineage-backfill"


def _live_runs(
    project: Project, workshop: Workshop, snapshot: LineageSnapshot
) -> Callable[[Sequence[PlannedRun]], str] | None:
    """Return what names a run from outside that is under way, unless that is not wanted."""
    from lineage_backfill.executor.live import LiveRuns

    if project.live_runs == "ignore":
        return None
    return LiveRuns(
        workshop.outside(snapshot),
        look=lambda: workshop.outside(read_lineage(project)),
        calendar_of=lambda job: workshop.catalog.job(job).calendar,
        now=partial(datetime.now, UTC),
        refuses=project.live_runs == "refuse",
    ).hindrance


def _check_again(project: Project, plan: Plan) -> None:
    """Raise StalePlanError if the lineage, as it is now, does not bear the plan any more."""
    check_plan(project, read_lineage(project), plan)


def _code_version(root: Path) -> str:
    """Return the commit of the project's code, marked if it was changed since; empty if unknown."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()[:200]


def _find(store: RunStore, backfill: str | None) -> BackfillRecord:
    """Return the backfill whose id begins so, the newest one for None; a deleted one by its id."""
    records = store.backfills()
    if not records and backfill is None:
        raise UnknownNameError(
            "no backfill has been run here", hint="Start one with `lineage-backfill run`."
        )
    found = [one for one in records if one.id.startswith(backfill or "")]
    if backfill is None or len(found) == 1:
        return found[0]
    if not found:
        return store.backfill(backfill)  # raises, with what it may have meant
    raise AmbiguousNameError(
        f"{len(found)} backfills begin with {backfill}",
        hint="Write more of it: " + " or ".join(one.id for one in found[:3]),
    )


def _calendars(project: Project, now: str) -> Callable[[DatasetRef], Calendar]:
    """Return what gives each dataset's calendar; lineage is read only where it is not declared."""
    from lineage_backfill.graph.lineage import LineageSnapshot

    declared = _catalog(project, LineageSnapshot.of([]), now)
    known = cache(lambda: _catalog(project, read_lineage(project), now))

    @cache
    def calendar_of(dataset: DatasetRef) -> Calendar:
        calendar = declared.calendar(dataset) or known().calendar(dataset)
        if calendar is None:
            raise DeclarationError(
                f"the partitioning of {dataset} is not known any more",
                hint="Declare it as it was when the backfill was planned.",
            )
        return calendar

    return calendar_of


def _holds(store: RunStore, backfill_id: str) -> bool:
    try:
        store.backfill(backfill_id)
    except UnknownNameError:
        return False
    return True


def _without(project: Project, plan: Plan) -> Callable[[PlannedRun, KeySet], PlannedRun]:
    """Return what leaves keys out of a run; lineage is read only once that is asked."""
    from lineage_backfill.executor.cutoff import without

    catalog = cache(lambda: _catalog(project, read_lineage(project), plan.now, _request(plan)))
    return lambda run, cut_off: without(catalog(), run, cut_off)


def _request(plan: Plan) -> Request:
    from lineage_backfill.plan.asked import request_from_dict

    return request_from_dict(plan.request, "the plan")


def _catalog(
    project: Project, snapshot: LineageSnapshot, now: str, request: Request | None = None
) -> Catalog:
    from lineage_backfill.plan.catalog import Catalog

    return Catalog(
        snapshot,
        project.declarations,
        now=datetime.fromisoformat(now),
        request=request,
        functions=_functions(project) if request else None,
    )


def _functions(project: Project) -> dict[str, Callable[[Any], Any]]:
    """Load the functions that `python` mappings name, from the project's code."""
    names = {read.function for job in project.declarations.jobs for read in job.reads}
    functions = {}
    for name in sorted(name for name in names if name):
        module, _, attribute = name.partition(":")
        if str(project.code) not in sys.path:
            sys.path.insert(0, str(project.code))
        try:
            functions[name] = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise DeclarationError(
                f"the mapping function {name} cannot be loaded: {error}",
                hint=f"It is looked for below {project.code}.",
            ) from error
    return functions


def account() -> str:
    """Return the name of the account that runs this; empty where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in containers
        return ""
