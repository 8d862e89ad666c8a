"""Early cutoff: keys of a run that need not run, as their inputs are unchanged.

A key is cut off only if every stale partition that it reads is proven to hold what the job's own
last run of that key read, and nothing else makes the key stale: `staleness` decides both, by the
same record as the command `stale`. A partition named as changed is unknown until it is written
again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import count
from typing import Any, Final

from msgspec import structs

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import KeySet, parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import DatasetPartitions, Plan, PlannedRun
from lineage_backfill.plans.request import request_from_dict
from lineage_backfill.ports import Trace
from lineage_backfill.project.resolve.resolver import Input, JobFacts
from lineage_backfill.runs.observations import RecordedRuns
from lineage_backfill.staleness.contents import Contents
from lineage_backfill.staleness.digests import DigestCodec, parameters_hash
from lineage_backfill.staleness.record import LATER, Run, TableRecord
from lineage_backfill.staleness.staleness import Judge

#: Returns the histories of datasets' tables, for those with a readable log.
Logs = Callable[[Iterable[DatasetRef]], Mapping[DatasetRef, TableRecord]]

#: The number of the first run of this process: above all numbers in the store.
_FIRST_NUMBER: Final = 1 << 62


class Cutoff:
    """Judges the runs of a plan and its tails, and tracks what they read and write.

    Runs with other `parameters` are not comparable. `runs` are those recorded before.
    """

    def __init__(
        self,
        plans: Iterable[Plan],
        resolver: Resolver,
        runs: RecordedRuns,
        *,
        logs: Logs,
        backfill_id: str = "",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._resolver = resolver
        self._logs = logs
        self._backfill_id = backfill_id
        self._parameters = parameters or {}
        self._planned: dict[JobRef, PartitionSet] = defaultdict(_nothing)
        self._asked: dict[JobRef, PartitionSet] = {}
        self._pruned: dict[JobRef, frozenset[DatasetRef]] = {}
        #: From the plan: what it rewrites, and what its request names as changed.
        self._stale: dict[DatasetRef, PartitionSet] = defaultdict(_nothing)
        self._changed: dict[DatasetRef, PartitionSet] = defaultdict(_nothing)
        #: By any run of the plan.
        self._read: dict[DatasetRef, PartitionSet] = defaultdict(_nothing)
        self._numbers = count(_FIRST_NUMBER)
        self._reads: dict[JobRef, tuple[list[Input], PartitionSet]] = {}
        self._otherwise: dict[JobRef, PartitionSet] = {}
        for plan in plans:
            self._take(plan)
        self._runs = runs.limited(self._relevant)
        self._codec = DigestCodec(resolver)
        self._contents = Contents(
            resolver,
            self._runs,
            lambda dataset: self._tables.get(dataset),  # noqa: PLW0108 - read on first use
            parameters=parameters_hash(self._parameters),
            doubted=self._changed,
            backfill=backfill_id,
        )

    def _take(self, plan: Plan) -> None:
        for part in plan.changed:
            calendar = self._resolver.calendar(part.dataset)
            if calendar is not None:
                self._changed[part.dataset] |= parse(calendar, part.keys)
                self._stale[part.dataset] |= parse(calendar, part.keys)
        for job in plan.jobs:
            facts = self._resolver.job(job.job)
            if job.partitions and facts.calendar is not None:
                pruned = job.reason.get("pruned", ())
                self._pruned[job.job] = frozenset(DatasetRef(**ref) for ref in pruned)
                self._take_keys(facts, facts.calendar, parse(facts.calendar, job.partitions))
        for rerun in request_from_dict(plan.request, "the plan").jobs:
            facts = self._resolver.job(rerun.job)
            if facts.calendar is not None:
                keys = facts.calendar.clip(parse(facts.calendar, rerun.keys))
                self._asked[rerun.job] = facts.calendar.with_earlier(keys, facts.lookback)

    def _take_keys(self, facts: JobFacts, calendar: Calendar, keys: PartitionSet) -> None:
        self._planned[facts.ref] |= keys
        for edge in facts.live:
            if edge.mapping is not None:
                reading = edge.corrected_by(keys)
                self._read[edge.dataset] |= edge.mapping.required_unclipped(reading)
        for output in facts.outputs:
            if output.mapping is not None:
                self._stale[output.dataset] |= output.mapping.required(keys)

    def _relevant(self, facts: JobFacts) -> PartitionSet:
        """Return the planned keys of a job, and those that wrote what the plan reads."""
        keys = self._planned.get(facts.ref, NOTHING)
        for output in facts.outputs:
            if output.mapping is not None and output.dataset in self._read:
                keys |= output.mapping.affected(self._read[output.dataset])
        return keys

    @cached_property
    def _tables(self) -> Mapping[DatasetRef, TableRecord]:
        """The logs of tables, read once, when the first key may be cut off."""
        return self._logs(self._read | self._stale)

    # --- judging --------------------------------------------------------------------------------

    def judge(self, run: PlannedRun) -> tuple[PlannedRun | None, KeySet]:
        """Return the needed part of the run (None: nothing), and the keys that are cut off.

        Call it after all upstream runs have ended.
        """
        facts = self._resolver.job(run.job)
        calendar = facts.calendar
        if calendar is None or facts.past is not None or not self._contents.has_runs(facts):
            return run, ()
        keys = parse(calendar, run.partitions)
        needed = self._needed(facts, calendar, keys)
        if needed == keys:
            return run, ()
        cut_off = render(calendar, keys - needed)
        return (_narrowed(run, facts, calendar, needed) if needed else None), cut_off

    def without(self, run: PlannedRun, cut_off: KeySet) -> PlannedRun:
        """Return a run without the keys that were cut off earlier."""
        return without(self._resolver, run, cut_off)

    def _needed(self, facts: JobFacts, calendar: Calendar, keys: PartitionSet) -> PartitionSet:
        """Return the keys that must run."""
        edges, reached = self._reached(facts, calendar)
        # A key without stale inputs was planned for a reason unknown here.
        needed = keys & self._asked.get(facts.ref, NOTHING) | keys - reached
        needed |= self._contents.differing(facts, keys - needed, edges, self._stale)
        return needed | (self._stale_otherwise(facts) & keys if needed != keys else NOTHING)

    def _reached(self, facts: JobFacts, calendar: Calendar) -> tuple[list[Input], PartitionSet]:
        """Return the edges of a job that count, and the keys that read stale partitions."""
        found = self._reads.get(facts.ref)
        if found is None:
            edges, reached = [], NOTHING
            for edge in facts.live:
                pruned = self._pruned.get(facts.ref, ())
                if edge.mapping is not None and edge.dataset not in pruned:
                    edges.append(edge)
                    stale = edge.mapping.affected(self._stale.get(edge.dataset, NOTHING))
                    reached |= edge.corrects(stale)
            found = self._reads[facts.ref] = edges, reached
        return found

    def _stale_otherwise(self, facts: JobFacts) -> PartitionSet:
        """Return the keys of a job that are stale by what was recorded before this process."""
        found = self._otherwise.get(facts.ref)
        if found is None:
            judge = Judge(
                self._resolver,
                self._tables,
                self._runs,
                contents=self._contents,
                claimed=self._stale,
                ignored=self._pruned.get(facts.ref, frozenset()),
            )
            found = self._otherwise[facts.ref] = judge.job(facts).stale
        return found

    # --- tracking ------------------------------------------------------------------------

    def opened(self, run: PlannedRun) -> None:
        """Record that the run will be submitted: its outputs become unknown."""
        self._add(run, None)

    def closed(self, run: PlannedRun, result: Mapping[str, Any] | None) -> Trace:
        """Record the result file of a successful run, and return its trace."""
        facts = self._resolver.job(run.job)
        document = None
        if result is not None and facts.calendar is not None and "inputs" in result:
            document = self._codec.document(facts, result, self._parameters)
        self._add(run, document)
        return Trace(job=run.job, keys=run.partitions, contents=document)

    def _add(self, run: PlannedRun, document: Mapping[str, Any] | None) -> None:
        facts = self._resolver.job(run.job)
        if facts.calendar is not None:
            recorded = Run(
                keys=parse(facts.calendar, run.partitions),
                started_at=LATER,
                ended_at=LATER,
                number=next(self._numbers),
                backfill=self._backfill_id,
                document=document,
            )
            self._contents.add(facts, recorded)


def without(resolver: Resolver, run: PlannedRun, cut_off: KeySet) -> PlannedRun:
    """Return a run without some of its keys, and without their reads and writes."""
    facts = resolver.job(run.job)
    if not cut_off or facts.calendar is None:
        return run
    keys = parse(facts.calendar, run.partitions) - parse(facts.calendar, cut_off)
    return _narrowed(run, facts, facts.calendar, keys)


def _narrowed(
    run: PlannedRun, facts: JobFacts, calendar: Calendar, keys: PartitionSet
) -> PlannedRun:
    edges = {edge.dataset: edge for edge in facts.inputs}
    reads = []
    for part in run.reads:
        edge = edges[part.dataset]
        if part.keys is None or edge.mapping is None:
            reads.append(part)
            continue
        reading = edge.corrected_by(keys)
        upstream = edge.mapping.upstream
        wanted = edge.mapping.required_unclipped(reading) & parse(upstream, part.keys)
        reads.append(DatasetPartitions(dataset=part.dataset, keys=render(upstream, wanted)))
    writes = [
        DatasetPartitions(
            dataset=output.dataset,
            keys=render(output.mapping.upstream, output.mapping.required(keys)),
        )
        for output in facts.outputs
        if output.mapping is not None
    ]
    return structs.replace(
        run,
        partitions=render(calendar, keys),
        count=len(keys),
        reads=tuple(reads),
        writes=tuple(writes),
    )


def _nothing() -> PartitionSet:
    return NOTHING
