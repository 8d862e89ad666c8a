"""Makes plans, and reads the table logs that they need."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from lineage_backfill.critic import in_force
from lineage_backfill.critic.advice import advice, left_out
from lineage_backfill.critic.explain import Explanation, explain
from lineage_backfill.critic.questions import decisions
from lineage_backfill.critic.retained import lost_reads
from lineage_backfill.critic.review import Finding, review
from lineage_backfill.critic.unwritten import (
    MissingReads,
    inputs_of,
    missing_reads,
    waiting_keys,
)
from lineage_backfill.errors import (
    ConfigError,
    DeclarationError,
    StalePlanError,
    UsageError,
)
from lineage_backfill.lineage.names import resolve, unknown
from lineage_backfill.lineage.select import select as select_jobs
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.partitions.keys import NOTHING
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.planner import Planner
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import (
    TORN_EVENTS,
    ChangedDataset,
    LogRange,
    Request,
    request_from_dict,
)
from lineage_backfill.ports import RunStore, TableHistory, TableLogs
from lineage_backfill.project.access import WHOLE, Reach, Role
from lineage_backfill.runs import observations
from lineage_backfill.runs.apart import apart
from lineage_backfill.runs.estimate import NEWEST, Estimate, usual_seconds
from lineage_backfill.sources import table_logs
from lineage_backfill.staleness.record import TableRecord
from lineage_backfill.staleness.staleness import Staleness, find_stale
from lineage_backfill.staleness.table_keys import delta_table_of, keys_of
from lineage_backfill.workspace.environment import load_functions, log_time, spark_conf
from lineage_backfill.workspace.workspace import Workspace

_log = logging.getLogger(__name__)
_SHOWN_NAMES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecords:
    """The histories of tables, and for the other tables why they are unknown."""

    known: Mapping[DatasetRef, TableRecord]
    unknown: Mapping[DatasetRef, str]


class Planning:
    """Makes, checks, explains and estimates plans in a workspace.

    Jobs that `reach` does not let a user run are blocked in plans; hidden names are unknown.
    """

    def __init__(self, workspace: Workspace, *, reach: Reach = WHOLE) -> None:
        self.workspace = workspace
        self._reach = reach
        self._project = workspace.project
        self._declarations = workspace.project.declarations
        self._records_known: dict[DatasetRef, TableRecord] = {}
        #: By what the last `find_stale` has judged: all its tables, and the resolver.
        self.judged_by: tuple[Resolver, Mapping[DatasetRef, TableRecord]] | None = None

    def plan(self, request: Request) -> Plan:
        """Return the plan for the request; raises UsageError if it cannot be planned."""
        workspace = self.workspace
        self._refuse_other_target(request)
        if self._project.lineage.allow_torn:
            request = replace(request, allow=request.allow | {TORN_EVENTS})
        lineage = self._project.lineage
        ignored = () if lineage.snapshot else lineage.ignore_runs
        request = replace(request, ignored_runs=ignored, target=self._project.target)
        began = time.monotonic()
        plan = self._within(request)
        log_time(began, f"plan: {plan.totals['runs']} runs of {plan.totals['jobs']} jobs")
        snapshot = workspace.snapshot
        asked = (*left_out(plan, snapshot), *decisions(plan, snapshot, self._declarations))
        warnings = (*plan.warnings, *advice(plan, snapshot))
        return replace(plan, warnings=warnings, decisions=(*plan.decisions, *asked))

    def _within(self, request: Request) -> Plan:
        """Return the plan of a request with what is beyond the reach withheld."""
        planner = self._planner()
        named: list[DatasetRef | JobRef] = [one.dataset for one in request.changed]
        named += [one.job for one in request.jobs]
        for ref in named:
            if not self._reach.sees(ref):
                raise unknown(str(ref), (), kind=ref.kind)
        self._refuse_hidden((*request.select, *request.exclude))
        plan = planner.plan(request)
        if self._reach == WHOLE:
            return plan
        beyond = self._reach.beyond(Role.OPERATOR, (one.job for one in plan.jobs if one.count))
        if not beyond:
            return plan
        return planner.plan(replace(request, withheld=(*request.withheld, *beyond)))

    def _refuse_hidden(self, selectors: Sequence[str]) -> None:
        """Raise UnknownNameError for a selector that only hidden names match."""
        if selectors and not self._reach.sees_all:
            graph = self.workspace.graph
            select_jobs(selectors, graph.subgraph(filter(self._reach.sees, graph)))

    def check(self, plan: Plan) -> None:
        """Raise StalePlanError, naming the change, if lineage or declarations have changed."""
        self._project.refuse_other_target(plan.request.get("target", ""), "the plan was made")
        as_of, snapshot = datetime.fromisoformat(plan.now), self.workspace.snapshot
        workspace = Workspace(self._project, as_of=as_of, read=lambda: snapshot)
        try:
            fresh = Planning(workspace).plan(request_from_dict(plan.request, "the plan"))
        except UsageError as error:
            raise StalePlanError(f"the plan is stale: {error}", hint=error.hint) from error
        if fresh.lineage["hash"] != plan.lineage["hash"]:
            old, new = (one.lineage.get("parts") or {} for one in (plan, fresh))
            names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
            raise StalePlanError(
                "the plan is stale: since it was made, other edges or declarations hold for "
                + listed(names, _SHOWN_NAMES),
                hint="Plan again with `lineage-backfill impact … --out`; a diff of the two files"
                " shows what differs.",
            )

    def explain(
        self, request: Request, job: JobRef, keys: KeySet | None, *, why_not: bool = False
    ) -> Explanation:
        """Return why the plan for the request has these keys of the job (None: any), or why not.

        With `why_not` keys that are left stale come before planned ones.
        """
        self._refuse_other_target(request)
        return explain(self._planner().session(request), job, keys, why_not=why_not)

    def _refuse_other_target(self, request: Request) -> None:
        if request.target:
            self._project.refuse_other_target(request.target, "the request is")

    def _planner(self) -> Planner:
        workspace = self.workspace
        return Planner(
            workspace.snapshot, self._declarations, now=workspace.now, functions=workspace.functions
        )

    def estimate(self, plan: Plan, *, max_parallel: int | None = None) -> Estimate | None:
        """Return how long a plan will take, from past runs of its jobs.

        It uses runs in this run store, and if they are few, those in the lineage. None for a plan
        above its limit of runs.
        """
        if plan.runs is None:
            return None
        runs = Counter(run.job for run in plan.runs)
        with self.workspace.open_store() as store:
            ours = {record.id for record in store.backfills()}
            past = store.past_runs(NEWEST)
        history = self.workspace.snapshot.history
        others = (one for one in history if one.backfill not in ours)
        return Estimate(
            runs=runs,
            usual=usual_seconds(past, observations.past_runs(others, runs.keys(), NEWEST)),
            parallel=max_parallel or self._declarations.limits.max_parallel,
        )

    def lost_reads(self, plan: Plan) -> Mapping[DatasetRef, KeySet]:
        """Return the partitions read by the plan that are past their retention now."""
        return lost_reads(self.workspace.resolver_of(plan, now=self.workspace.now), plan)

    def missing_reads(self, plan: Plan) -> tuple[MissingReads, ...]:
        """Return the required inputs of a plan that were never written, as far as logs show.

        Logs that only Spark can read are left out.
        """
        return missing_reads(plan, *self._inputs(plan))

    def known_inputs(self, plan: Plan) -> Collection[DatasetRef]:
        """Return the inputs of a plan in whose logs `missing_reads` looks."""
        return self._inputs(plan)[1].keys()

    def _inputs(self, plan: Plan) -> tuple[Resolver, Mapping[DatasetRef, TableRecord]]:
        """Return the resolver of a plan, and the histories of its inputs."""
        resolver = self.workspace.resolver_of(plan)
        return resolver, self.records_without_spark(resolver, inputs_of(plan, resolver))

    def without_missing(self, plan: Plan) -> tuple[Plan, tuple[MissingReads, ...]]:
        """Return the plan with runs of their own for keys whose inputs were never written.

        Also returns these inputs.
        """
        missing = self.missing_reads(plan)
        if any(lost.failing for lost in missing):
            resolver, tables = self._inputs(plan)
            plan = apart(plan, resolver, waiting_keys(plan, resolver, tables))
        return plan, missing

    def without_waiting(self, jobs: Sequence[Staleness], plan: Plan) -> tuple[Staleness, ...]:
        """Return the jobs, marking stale keys of a plan that would fail.

        They are keys whose inputs were never written, by the logs that `find_stale` has read, and
        for other tables by `missing_reads`.
        """
        resolver, known = self.workspace.resolver_of(plan), self._records_known
        wanted = inputs_of(plan, resolver)
        if unread := wanted - known.keys():
            known.update(self.records_without_spark(resolver, unread))
        waiting = waiting_keys(plan, resolver, {ref: known[ref] for ref in wanted & known.keys()})
        return tuple(
            replace(one, waiting=one.waiting | (one.stale & waiting.get(one.job, NOTHING)))
            for one in jobs
        )

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings about the project file and the lineage, errors first."""
        found, functions = [], {}
        try:
            with self.workspace.open_engines():
                pass  # refuses settings that do not fit
        except ConfigError as error:
            found.append(Finding.of("[engines.*]", error))
        try:
            functions = dict(load_functions(self._project))
        except DeclarationError as error:
            found.append(Finding.of("[[job.reads]]", error))
        snapshot, now = self.workspace.snapshot, self.workspace.now
        return (*found, *review(snapshot, self._declarations, now=now, functions=functions))

    def in_force(self, name: str) -> tuple[DatasetRef | JobRef, list[in_force.Attribute]]:
        """Return the job or dataset of a name, and what is in force of it with its place."""
        resolver = self.workspace.resolver
        edges = resolver.edges
        ref: DatasetRef | JobRef
        if any(ref.matches(name) for ref in edges.jobs):
            ref = resolve(name, edges.jobs, kind="job")
        else:
            ref = resolve(name, edges.datasets, kind="job or dataset")
        return ref, in_force.attributes(resolver, ref)

    # --- the logs of tables ---------------------------------------------------------------------

    @cached_property
    def _logs(self) -> TableLogs:
        """The logs of Delta tables, read with the Spark settings of an engine."""
        return table_logs.DeltaTableLogs(conf=spark_conf(self._declarations))

    def with_changes(
        self, request: Request, *, after: int | None = None, since: datetime | None = None
    ) -> Request:
        """Return the request with the keys that changed by the logs of its datasets' tables.

        Exactly one of a version and an instant is given. Raises TableLogError if a log is
        incomplete, DeclarationError if a table or its keys are not declared.
        """
        resolver = self.workspace.resolver
        found = []
        for dataset in dict.fromkeys(changed.dataset for changed in request.changed):
            place = observations.place_of(delta_table_of(resolver, dataset))
            began = time.monotonic()
            changes = self._logs.changes(place, after=after, since=since)
            span = f"from version {changes.after} to {changes.until}"
            log_time(began, f"the log of {dataset}, {span}")
            keys, ignored, is_exact = keys_of(
                resolver, dataset, changes.partitions, changes.columns
            )
            log = LogRange(
                after=changes.after, until=changes.until, ignored=ignored, by_files=not is_exact
            )
            found.append(ChangedDataset(dataset=dataset, keys=keys, log=log))
        return replace(request, changed=tuple(found))

    def find_stale(
        self,
        *,
        select: Sequence[str] = (),
        exclude: Sequence[str] = (),
        since: datetime | None = None,
    ) -> tuple[tuple[Staleness, ...], Mapping[DatasetRef, str]]:
        """Return what is missing or older than its inputs, and why other tables are unknown.

        `select` and `exclude` choose jobs; keys older than `since` are left out. Raises
        TableLogError if no log can be read.
        """
        workspace, snapshot = self.workspace, self.workspace.snapshot
        self._refuse_hidden((*select, *exclude))
        resolver = workspace.resolver_with_functions
        jobs = set(resolver.edges.jobs)
        if select:
            jobs = select_jobs(select, workspace.graph)
        if exclude:
            jobs -= select_jobs(exclude, workspace.graph)
        jobs = set(filter(self._reach.sees, jobs))
        histories, silent = self._histories(resolver, jobs, self._logs)
        seen = observations.runtime_keys(resolver, histories)
        if seen:
            resolver = Resolver(
                snapshot,
                self._declarations,
                now=workspace.now,
                functions=workspace.functions,
                seen=seen,
            )
        known, unread = observations.records_of(resolver, histories)
        self.judged_by = resolver, known
        # Which runtime keys a plan knows is another matter.
        same = {ref for ref in known if not (found := resolver.calendar(ref)) or not found.is_open}
        self._records_known.update({ref: known[ref] for ref in same})
        with workspace.open_store() as store:
            runs = self._recorded(resolver, store)
            stale = find_stale(resolver, tables=known, runs=runs, jobs=jobs, since=since)
        return stale, silent | unread

    def _recorded(self, resolver: Resolver, store: RunStore) -> observations.RecordedRuns:
        """Return the runs of jobs by lineage and run store, with those that are still to come."""
        ours = {one.id for one in store.backfills(deleted=True)}
        return observations.RecordedRuns(
            resolver,
            self.workspace.snapshot.history,
            store.traces,
            ours.__contains__,
            active=observations.active_runs(resolver, store),
        )

    def read_logs(self, jobs: Collection[JobRef] | None = None) -> TableRecords:
        """Return the histories of all tables that these jobs use; None means all jobs.

        With how much time their files span, which `find_stale` does not need.
        Raises TableLogError where no log can be read at all.
        """
        resolver, conf = self.workspace.resolver, spark_conf(self._declarations)
        logs = table_logs.DeltaTableLogs(conf=conf, spans=True)
        wanted = resolver.edges.jobs if jobs is None else jobs
        histories, unknown = self._histories(resolver, wanted, logs)
        known, unread = observations.records_of(resolver, histories)
        return TableRecords(known=known, unknown=unknown | unread)

    def records_without_spark(
        self, resolver: Resolver, datasets: Iterable[DatasetRef]
    ) -> Mapping[DatasetRef, TableRecord]:
        """Return the histories of tables whose logs can be read without Spark."""
        return observations.of_near_tables(resolver, datasets, self._logs)

    def _histories(
        self, resolver: Resolver, jobs: Iterable[JobRef], logs: TableLogs
    ) -> tuple[dict[DatasetRef, TableHistory], dict[DatasetRef, str]]:
        began, edges = time.monotonic(), resolver.edges
        touched = {ref for job in jobs for ref in (*edges.reads(job), *edges.writes(job))}
        found, unknown = observations.histories_of(resolver, sorted(touched), logs)
        log_time(began, f"table logs: {len(found)} of {len(touched)} could be read")
        return found, unknown
