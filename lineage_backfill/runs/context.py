"""The parts of a project that an executor needs for the plans of one backfill."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from lineage_backfill.critic.unwritten import inputs_of, unread
from lineage_backfill.errors import MissingInputError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.mapping import KeyFunction
from lineage_backfill.partitions.text import as_text, parse
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.planner import build_plan
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.plans.request import request_from_dict
from lineage_backfill.ports import BackfillRecord, RunStore
from lineage_backfill.project.declarations import SPARK_ENGINES, Declarations
from lineage_backfill.runs.cutoff import Cutoff
from lineage_backfill.runs.observations import RecordedRuns
from lineage_backfill.runs.specs import RunSpecs
from lineage_backfill.runs.tail import same_roots, tail_of
from lineage_backfill.runspec.build import RecordedWrites
from lineage_backfill.staleness.record import Run, TableRecord


@dataclass(eq=False)
class ExecutionContext:
    """Makes run specs, judges runs and plans tails, with keys as of the newest plan.

    `functions` are those of python mappings, `root` the base of relative locations, `outbox` the
    folder for lineage events, `lineage_url` an address to send them to; `is_ours` tests whether a
    backfill id is of this run store, and `logs` returns the histories of datasets' tables.
    """

    snapshot: LineageSnapshot
    declarations: Declarations
    plans: Sequence[Plan]
    _: KW_ONLY
    store: RunStore
    functions: Mapping[str, KeyFunction]
    root: Path
    outbox: Path | None = None
    lineage_url: str | None = None
    is_ours: Callable[[str], bool]
    logs: Callable[[Resolver, Iterable[DatasetRef]], Mapping[DatasetRef, TableRecord]]

    def __post_init__(self) -> None:
        self._take(self._resolver_of(self.plans[-1]))

    @property
    def resolver(self) -> Resolver:
        """What is known of jobs and datasets."""
        return self._resolver

    def spec(self, run: PlannedRun, attempt: int, token: str, result_path: Path) -> dict[str, Any]:
        """Return the run spec of one attempt; raises DeclarationError for an unknown table."""
        if token:  # else it is only checked whether one can be made
            self._refuse_missing(run)
        return self._specs(run, attempt, token, result_path)

    def _refuse_missing(self, run: PlannedRun) -> None:
        """Raise MissingInputError for a run that fails, as far as logs show without Spark.

        Spark jobs look themselves, at the version that they read.
        """
        if (
            run.engine not in self._blind
            or unread(run, self.plans, self._resolver, self._tables) is None
        ):
            return
        self._tables = self._read_tables()  # it may have been written since
        found = unread(run, self.plans, self._resolver, self._tables)
        if found is not None:
            parts, keys = (listed(one, name=as_text) for one in (found.partitions, found.failing))
            raise MissingInputError(
                f"{found.dataset} {parts} was never written, and {keys} needs it: not submitted",
                hint="Write it first, or declare how to read without it: `on_missing`.",
            )

    def _read_tables(self) -> Mapping[DatasetRef, TableRecord]:
        found = (inputs_of(plan, self._resolver) for plan in self.plans)
        return self.logs(self._resolver, sorted(set[DatasetRef]().union(*found)))

    @cached_property
    def _blind(self) -> Collection[str]:
        """The engines whose jobs do not look themselves for what is missing."""
        return {one.name for one in self.declarations.engines if one.kind not in SPARK_ENGINES}

    @cached_property
    def _tables(self) -> Mapping[DatasetRef, TableRecord]:
        """The logs of what the plans read, as they were last read."""
        return self._read_tables()

    def refuse_incomplete(self, runs: Iterable[PlannedRun]) -> None:
        """Raise DeclarationError if no run spec can be made for a job."""
        self._specs.refuse_incomplete(runs)

    def cutoff(self, plans: Sequence[Plan], record: BackfillRecord) -> Cutoff:
        """Return the judge of a backfill's runs."""
        return Cutoff(
            plans,
            self._resolver,
            self.recorded(self.snapshot),
            logs=partial(self.logs, self._resolver),
            backfill_id=record.id,
            parameters=record.parameters,
        )

    def recorded(self, snapshot: LineageSnapshot) -> RecordedRuns:
        """Return the runs in the run store and in a lineage."""
        return RecordedRuns(self._resolver, snapshot.history, self.store.traces, self.is_ours)

    def tail(self, plans: Sequence[Plan], now: datetime) -> Plan | None:
        """Return a plan for keys that became complete since, and are stale by the plans' roots."""
        request = same_roots(plans[0], self._resolver_of(plans[0]))
        fresh = build_plan(
            request,
            self.snapshot,
            self.declarations,
            now=now,
            functions=self.functions,
            newest_at=datetime.fromisoformat(plans[0].now),
        )
        resolver = self._resolver_of(fresh)
        found = tail_of(plans, fresh, resolver)
        if found is not None:
            self._take(resolver)
        return found

    def _resolver_of(self, plan: Plan) -> Resolver:
        return Resolver(
            self.snapshot,
            self.declarations,
            now=datetime.fromisoformat(plan.now),
            request=request_from_dict(plan.request, "the plan"),
            functions=self.functions,
            newest_at=datetime.fromisoformat(self.plans[0].now),
        )

    def _take(self, resolver: Resolver) -> None:
        self._resolver = resolver
        # The executor replaces the backfill id by its own.
        self._specs = RunSpecs(
            resolver,
            backfill_id="",
            root=self.root,
            outbox=self.outbox,
            lineage_url=self.lineage_url,
            recorded=self._recorded_writes(resolver),
            append_again="append-again" in self.plans[0].request.get("allow", ()),
        )

    def _recorded_writes(self, resolver: Resolver) -> RecordedWrites:
        """Return what recorded runs have written; each part is read once, when it is needed.

        A run of the plans counts for a dataset: what a run reads of it has been written by then.
        """
        recorded = self.recorded(self.snapshot)

        def done(job: JobRef) -> list[Run]:
            return [run for run in recorded(job) if run.ended_at is not None and run.is_certain]

        @cache
        def undone() -> frozenset[str]:
            records = self.store.backfills(deleted=True)
            return frozenset(one.id for one in records if one.undo_of or one.undone_by)

        @cache
        def appended(job: JobRef) -> PartitionSet:
            return PartitionSet.union(run.keys for run in done(job) if run.backfill not in undone())

        @cache
        def written(dataset: DatasetRef) -> PartitionSet:
            found = [
                output.mapping.required(run.keys)
                for job in resolver.edges.writers.get(dataset, ())
                for output in resolver.job(job).outputs
                if output.dataset == dataset and output.mapping is not None
                for run in done(job)
            ]
            calendar = resolver.calendar(dataset)
            parts = (part for plan in self.plans for run in plan.runs or () for part in run.writes)
            found += [
                parse(calendar, part.keys)
                for part in parts
                if part.dataset == dataset and calendar is not None and part.keys is not None
            ]
            return PartitionSet.union(found)

        return RecordedWrites(of_dataset=written, of_job=appended)
