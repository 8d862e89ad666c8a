"""Runs of keys whose inputs were never written, apart from those of the other keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.runs.cutoff import without
from lineage_backfill.runs.tail import run_id


def apart(plan: Plan, resolver: Resolver, failing: Mapping[JobRef, PartitionSet]) -> Plan:
    """Return the plan with runs of their own for keys that fail, and for those that need them.

    So a run of many keys does those whose inputs are there.
    """
    lost: dict[DatasetRef, PartitionSet] = {}
    pieces: dict[str, tuple[PlannedRun, ...]] = {}
    runs: list[PlannedRun] = []
    for run in plan.runs or ():
        facts = resolver.job(run.job)
        assert facts.calendar is not None, "a planned job knows its calendar"
        keys = parse(facts.calendar, run.partitions)
        bad = keys & failing.get(run.job, NOTHING)
        for edge in facts.live:
            if edge.mapping is not None and edge.dataset in lost:
                bad |= keys & edge.corrects(edge.mapping.needing(lost[edge.dataset]))
        parts = [run]
        if bad and bad != keys:
            both = (
                without(resolver, run, render(facts.calendar, one)) for one in (bad, keys - bad)
            )
            parts = [structs.replace(one, id=run_id(one)) for one in both]
        for place, part in enumerate(parts):
            is_bad = bool(bad) and place == len(parts) - 1
            # The keys that do not fail need none of those that do.
            needed = (one for up in run.upstream for one in pieces[up][: None if is_bad else 1])
            runs.append(structs.replace(part, upstream=tuple(one.id for one in needed)))
        pieces[run.id] = tuple(runs[-len(parts) :])
        for output in facts.outputs if bad else ():
            if output.mapping is not None:
                held = lost.get(output.dataset, NOTHING)
                lost[output.dataset] = held | output.mapping.required(bad)
    return replace(plan, totals={**plan.totals, "runs": len(runs)}).detailed(
        jobs=plan.jobs, runs=tuple(runs)
    )
