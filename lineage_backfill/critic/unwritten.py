"""Finds inputs of a plan that were never written and that no run of it writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import KeySet, parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.project.resolve.resolver import Input, JobFacts, never_written, read_by
from lineage_backfill.staleness.record import TableRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingReads:
    """Partitions of an input that runs of a job need; `failing` are the run keys that fail."""

    job: JobRef
    dataset: DatasetRef
    partitions: KeySet
    failing: KeySet


def inputs_of(plan: Plan, resolver: Resolver) -> set[DatasetRef]:
    """Return the inputs that runs of a plan need."""
    jobs = {run.job for run in plan.runs or ()}
    edges = (edge for job in jobs for edge in resolver.job(job).live)
    return {edge.dataset for edge in edges if edge.on_missing != "read"}


def missing_reads(
    plan: Plan, resolver: Resolver, tables: Mapping[DatasetRef, TableRecord]
) -> tuple[MissingReads, ...]:
    """Return what is missing, for `tables` whose logs go back to their first commits."""
    runs = plan.runs or ()
    return tuple(_of_runs(runs, runs, resolver, tables))


def _of_runs(
    runs: Iterable[PlannedRun],
    planned: Iterable[PlannedRun],
    resolver: Resolver,
    tables: Mapping[DatasetRef, TableRecord],
) -> Iterator[MissingReads]:
    """Yield what is missing for runs, where the planned ones write what they are to write."""
    keys: dict[JobRef, PartitionSet] = defaultdict(lambda: NOTHING)
    written = {ref: table.written for ref, table in tables.items() if table.is_whole}
    for run in runs:
        calendar = resolver.job(run.job).calendar
        if calendar is not None:
            keys[run.job] |= parse(calendar, run.partitions)
    for run in planned:
        for part in run.writes:
            made = resolver.calendar(part.dataset)
            if part.dataset in written and made is not None and part.keys is not None:
                written[part.dataset] |= parse(made, part.keys)
    yield from _missing(resolver, keys, written)


def unread(
    run: PlannedRun,
    plans: Iterable[Plan],
    resolver: Resolver,
    tables: Mapping[DatasetRef, TableRecord],
) -> MissingReads | None:
    """Return what a run would fail for; None where nothing is known to be missing."""
    found = _of_runs([run], [one for plan in plans for one in plan.runs or ()], resolver, tables)
    return next((one for one in found if one.failing), None)


def waiting_keys(
    plan: Plan, resolver: Resolver, tables: Mapping[DatasetRef, TableRecord]
) -> Mapping[JobRef, PartitionSet]:
    """Return the run keys that fail until an input is written.

    Known for `tables` whose logs go back to their first commits. An output of the plan without a
    log was never written.
    """
    made = {part.dataset for run in plan.runs or () for part in run.writes}
    written = {
        ref: table.written
        for ref, table in tables.items()
        if table.is_whole or (table.is_complete and ref in made)
    }
    waiting: dict[JobRef, PartitionSet] = {}

    def turn(run: PlannedRun) -> tuple[int, JobRef]:
        return run.wave, run.job

    for (_, job), runs in groupby(sorted(plan.runs or (), key=turn), key=turn):
        facts = resolver.job(job)
        if facts.calendar is None:
            continue
        keys = PartitionSet.union(parse(facts.calendar, run.partitions) for run in runs)
        failing = PartitionSet.union(
            one
            for edge, _, _ in _lacking(facts, keys, written)
            for one in _failing(edge, keys.singles(), written[edge.dataset])
        )
        if failing:
            waiting[job] = waiting.get(job, NOTHING) | failing
        for output in facts.outputs:
            if output.dataset in written and output.mapping is not None:
                written[output.dataset] |= output.mapping.required(keys - failing)
    return waiting


def _missing(
    resolver: Resolver,
    keys: Mapping[JobRef, PartitionSet],
    written: Mapping[DatasetRef, PartitionSet],
) -> Iterator[MissingReads]:
    for job, planned in sorted(keys.items()):
        facts = resolver.job(job)
        for edge, calendar, lost in _lacking(facts, planned, written):
            if facts.calendar is not None:
                there = written[edge.dataset]
                failing = PartitionSet.union(_failing(edge, planned.singles(), there))
                yield MissingReads(
                    job=job,
                    dataset=edge.dataset,
                    partitions=render(calendar, lost),
                    failing=render(facts.calendar, failing),
                )


def _lacking(
    facts: JobFacts, keys: PartitionSet, written: Mapping[DatasetRef, PartitionSet]
) -> Iterator[tuple[Input, Calendar, PartitionSet]]:
    """Yield the inputs with partitions that run keys need and that are not written."""
    for edge in facts.live:
        calendar = edge.data.calendar
        if edge.dataset not in written or edge.on_missing == "read" or calendar is None:
            continue
        lost = never_written(edge, keys, written[edge.dataset])
        if lost:
            yield edge, calendar, lost


def _failing(
    edge: Input, keys: Iterable[PartitionSet], there: PartitionSet
) -> Iterator[PartitionSet]:
    """Yield the run keys that would fail."""
    for key in keys:
        lost = never_written(edge, key, there)
        if lost and (edge.on_missing == "fail" or lost == read_by(edge, key)):
            yield key
