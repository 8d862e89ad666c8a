"""The workspace: a project with its lineage, its run store and its engines, opened on use."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from threading import Lock
from typing import Any

from lineage_backfill.engines import create_engine
from lineage_backfill.errors import BackfillError, ConfigError
from lineage_backfill.lineage.inference.timetables import slice_of
from lineage_backfill.lineage.select import Graph
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.plans.request import request_from_dict
from lineage_backfill.ports import Engine, RunStore
from lineage_backfill.project import Project
from lineage_backfill.project.declarations import (
    SPARK_ENGINES,
    DagTasks,
    EngineDeclaration,
    JobDeclaration,
)
from lineage_backfill.project.matching import DeclaredNames, Matcher
from lineage_backfill.runs.drive.retry import RetryPolicy
from lineage_backfill.runs.drive.scheduler import JobLimits
from lineage_backfill.runs.observations import readings
from lineage_backfill.store.empty import EmptyRunStore
from lineage_backfill.store.readonly import refuse_emptied
from lineage_backfill.workspace.environment import (
    current_secret,
    load_functions,
    log_time,
    sqlite_file,
    state_dir,
    true_text,
)
from lineage_backfill.workspace.lineage import ProjectLineage


class Workspace:
    """A project with its lineage, its run store and its engines.

    Plans are made as of `as_of`, by default as of now. The lineage comes from `read` and the run
    store is `store`, if given; such a store is left open.
    """

    def __init__(
        self,
        project: Project,
        *,
        as_of: datetime | None = None,
        read: Callable[[], LineageSnapshot] | None = None,
        store: RunStore | None = None,
    ) -> None:
        self.project = project
        self.lineage = ProjectLineage(project)
        self._as_of = as_of
        self._read = read or self.lineage.read
        self._snapshot: LineageSnapshot | BackfillError | None = None
        self._reading = Lock()
        self._store = store

    @property
    def now(self) -> datetime:
        """The instant that plans are made as of."""
        return self._as_of or datetime.now(UTC)

    @property
    def snapshot(self) -> LineageSnapshot:
        """The lineage; read on first use, and only once even if that fails.

        Raises LineageError, ConfigError or DeclarationError.
        """
        with self._reading:
            if self._snapshot is None:
                try:
                    self._snapshot = self._with_readings(self._read())
                except BackfillError as error:
                    self._snapshot = error
        if isinstance(self._snapshot, BackfillError):
            raise self._snapshot
        return self._snapshot

    def _with_readings(self, snapshot: LineageSnapshot) -> LineageSnapshot:
        with ExitStack() as stack:
            read = tuple(
                readings(
                    self.project.declarations,
                    snapshot,
                    lambda: stack.enter_context(self.open_store()).traces,
                )
            )
        return replace(snapshot, history=(*snapshot.history, *read)) if read else snapshot

    @cached_property
    def functions(self) -> Mapping[str, Callable[[Any], Any]]:
        """The functions that `python` mappings name; raises DeclarationError."""
        return load_functions(self.project)

    @cached_property
    def resolver(self) -> Resolver:
        """The current resolver of datasets and jobs, without functions."""
        return Resolver(self.snapshot, self.project.declarations, now=self.now)

    @property
    def graph(self) -> Graph:
        """The graph of jobs and datasets as plans see it, with declared edges."""
        return self.resolver.edges.graph

    def resolver_of(self, plan: Plan, *, now: datetime | None = None) -> Resolver:
        """Return the resolver and declarations of a plan, at its instant or at `now`."""
        return Resolver(
            self.snapshot,
            self.project.declarations,
            now=now or datetime.fromisoformat(plan.now),
            request=request_from_dict(plan.request, "the plan"),
            functions=self.functions,
        )

    def limits_of(self, runs: Iterable[PlannedRun]) -> dict[JobRef, JobLimits]:
        """Return the limits of the runs' jobs.

        The lineage is not needed. One run at a time writes to tables by value.
        """
        limits = {}
        for ref, by_value in self._written_by_value(runs).items():
            found = self._limits(self._jobs.find(ref))
            limits[ref] = replace(found, max_parallel=1) if by_value else found
        return limits

    def by_value(self, runs: Iterable[PlannedRun]) -> frozenset[DatasetRef]:
        """Return the datasets that these runs write whose tables their keys do not partition.

        Delta lets only one of two concurrent writes to such a table commit.
        """
        return frozenset().union(*self._written_by_value(runs).values())

    def _written_by_value(self, runs: Iterable[PlannedRun]) -> dict[JobRef, set[DatasetRef]]:
        """Return the tables by value that each job writes, in one pass over the runs."""
        declarations = self.project.declarations
        names = DeclaredNames(declarations).datasets
        has_any = any(one.value_column for one in declarations.datasets)
        written: dict[JobRef, set[DatasetRef]] = {}
        for run in runs:
            refs = written.setdefault(run.job, set())
            if has_any:
                refs.update(one.dataset for one in run.writes)
        return {
            job: {ref for ref in refs if (found := names.find(ref)) and found.value_column}
            for job, refs in written.items()
        }

    def _limits(self, declared: JobDeclaration | None) -> JobLimits:
        rules = self.project.declarations.rules_of(declared)
        limits = JobLimits(
            timeout=rules.timeout, retry=RetryPolicy.of(rules), window=rules.only_between
        )
        if declared is None:
            return limits
        return replace(
            limits,
            pool=declared.pool,
            priority=declared.priority or 0,
            idempotent=declared.idempotent is not False,
        )

    @contextmanager
    def open_store(self, *, create: bool = False) -> Iterator[RunStore]:
        """Open the run store, and close it at the end; raises StoreError.

        A missing SQLite file is only created with `create`; otherwise the store is empty.
        """
        if self._store is not None:
            yield self._store
            return
        file = sqlite_file(self.project)
        store: RunStore
        if file is not None and file.is_file():
            refuse_emptied(file, state_dir(self.project) / "backfills")
        if create or file is None or file.exists():
            from lineage_backfill.store.sql import (
                SqlRunStore,
            )  # slow to load, and a plan needs none

            began = time.monotonic()
            store = SqlRunStore(self.project.store_url)
            log_time(began, "run store opened")
            store.keep_to(self.project.target)
        else:
            store = EmptyRunStore()
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def open_engines(
        self, names: Collection[str | None] | None = None
    ) -> Iterator[dict[str, Engine]]:
        """Make the project's engines, or those named, and close them at the end.

        Making one starts nothing yet; raises ConfigError for invalid settings.
        """
        project = self.project
        with ExitStack() as stack:
            engines = {}
            for declared in project.declarations.engines:
                if names is not None and declared.name not in names:
                    continue
                engine = create_engine(
                    declared.kind,
                    self.engine_settings(declared),
                    project=project.code,
                    state_dir=state_dir(project),
                    name=declared.name,
                )
                stack.callback(engine.close)
                engines[declared.name] = engine
            yield engines

    def engine_settings(self, declared: EngineDeclaration) -> dict[str, Any]:
        """Return the arguments of an engine: its settings, and those that the project adds.

        Raises ConfigError for a secret that cannot be read.
        """
        settings: dict[str, Any] = dict(declared.settings)
        if declared.kind in SPARK_ENGINES:
            settings["conf"] = {**self.project.spark, **settings.get("conf", {})}
        if declared.kind in ("airflow", "databricks"):
            place = f"[engines.{declared.name}]"
            root, token = self.project.root, settings.get("token")
            if isinstance(text := settings.get("password"), str):
                settings["password"] = true_text(text, base=root, place=place)
            if token is not None:
                settings["token"] = partial(current_secret, token, base=root, place=place)
                settings["token"]()  # an error of its table comes first
            given: dict[str, Any] = {"calendar": self._calendar}
            if declared.kind == "airflow":
                given |= {"tasks": self._airflow_task, "writers": self._airflow_writers}
            else:
                given |= {"conf": self._conf, "entrypoint": self._entrypoint}
            for name in given:
                if name in settings:
                    raise ConfigError(f"{place}: unknown key `{name}`")
            settings |= given
        return settings

    @cached_property
    def _jobs(self) -> Matcher[JobDeclaration]:
        declarations = self.project.declarations
        return Matcher(declarations.jobs, declarations.namespace, lambda one: one.name)

    def is_protected(self, job: JobRef) -> bool:
        """Whether a job is declared as protected."""
        declared = self._jobs.find(job)
        return declared is not None and bool(declared.protected)

    def _calendar(self, job: JobRef) -> Calendar | None:
        """Return the run calendar of a job, None if unknown."""
        return self.resolver_with_functions.job(job).calendar

    @cached_property
    def resolver_with_functions(self) -> Resolver:
        """The current resolver, with the mapping functions of the project file."""
        return Resolver(
            self.snapshot, self.project.declarations, now=self.now, functions=self.functions
        )

    def _conf(self, job: JobRef) -> Mapping[str, str]:
        """Return the parameters that the project gives to each run of a job."""
        declared = self._jobs.find(job)
        return declared.airflow.conf if declared is not None and declared.airflow else {}

    def _entrypoint(self, job: JobRef) -> str | None:
        declared = self._jobs.find(job)
        return declared.entrypoint if declared is not None else None

    def _airflow_task(self, job: JobRef) -> DagTasks | None:
        """Return the Airflow task of a job: as declared, else from its lineage."""
        declared = self._jobs.find(job)
        named = declared.airflow if declared is not None else None
        node = self.snapshot.jobs.get(job)
        seen = node.airflow if node is not None else None
        kind = named.slice if named else None
        if named is None or not named.dag:
            if seen is None:
                return None
            named = replace(named or DagTasks(), dag=seen.dag, tasks=(seen.task,))
        timetable = (seen and seen.dag == named.dag and seen.timetable) or {}
        zone = (declared.schedule_zone if declared else None) or timetable.get("timezone")
        named = replace(named, cron=declared.schedule if declared else None, zone=zone)
        if seen is not None and seen.dag == named.dag and kind in (None, "partition_key"):
            told = slice_of(seen.timetable or {}) or ""
            kind = told if told.startswith("partition_key") else kind
        return replace(named, slice=kind)

    def _airflow_writers(self, dag: str) -> Mapping[str, Collection[DatasetRef]]:
        """Return what the tasks of a DAG write, of those that no run may add without consent.

        These write, or are protected or not idempotent.
        """
        return self._writers.get(dag, {})

    @cached_property
    def _writers(self) -> Mapping[str, Mapping[str, Collection[DatasetRef]]]:
        resolver, found = self.resolver_with_functions, dict[str, dict[str, Any]]()
        own = self.project.declarations.namespace or ""
        named = [JobRef(space or own, one.name) for space, one in self._jobs.exact()]
        for job in {*resolver.edges.jobs, *named}:
            task, declared = self._airflow_task(job), self._jobs.find(job)
            written = resolver.edges.writes(job)
            is_guarded = declared and (declared.protected or declared.idempotent is False)
            if task is not None and (written or is_guarded):
                for name in task.tasks:
                    found.setdefault(task.dag, {}).setdefault(name, set()).update(written)
        return found
