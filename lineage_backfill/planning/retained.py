"""What a dataset still holds of its partitions, as its declared retention tells."""

from __future__ import annotations

from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import KeySet, parse, render
from lineage_backfill.planning.plan import Plan
from lineage_backfill.planning.resolver import Resolver
from lineage_backfill.project.resolver import expired


def lost_reads(resolver: Resolver, plan: Plan) -> dict[DatasetRef, KeySet]:
    """Return what the runs of a plan read that is past its retention, as of the catalog's moment.

    A plan holds no such reads when it is made, unless that was allowed; later it may.
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
