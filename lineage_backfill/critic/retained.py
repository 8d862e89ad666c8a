"""Finds reads of partitions past the declared retention."""

from __future__ import annotations

from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import KeySet, parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import Plan
from lineage_backfill.project.resolve.resolver import expired


def lost_reads(resolver: Resolver, plan: Plan) -> dict[DatasetRef, KeySet]:
    """Return partitions past retention that runs of a plan read, as of the resolver's time.

    A new plan has no such reads, unless allowed; an older plan may.
    """
    lost: dict[DatasetRef, PartitionSet] = {}
    for part in {part for run in plan.runs or () for part in run.reads}:
        data = resolver.dataset(part.dataset)
        gone = expired(data)
        if gone and data.calendar is not None:
            keys = data.calendar.existing if part.keys is None else parse(data.calendar, part.keys)
            lost[part.dataset] = lost.get(part.dataset, NOTHING) | keys & gone
    return {
        dataset: render(calendar, keys)
        for dataset, keys in sorted(lost.items())
        if keys and (calendar := resolver.calendar(dataset)) is not None
    }
