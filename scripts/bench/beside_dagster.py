#!/usr/bin/env python3
"""What Dagster's asset backfill leaves out of a layered graph, in which 24 hours were corrected.

In an environment of its own, with the tool: pip install . "dagster==1.13.29", and then
python scripts/bench/beside_dagster.py [JOBS [SEEDS]]

The graphs are those of plan.py: hours, days, weeks and months, four inputs for each job, partitions
that overlap in time. What is stale follows from the definition, in the order of the graph: each
partition that overlaps a stale one of an input. Next to it stand the plan and Dagster's backfill of
all assets from the 24 partitions of the root, which maps partitions by time as well.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import dagster as dg
from dagster._core.execution.asset_backfill import AssetBackfillData
from plan import NOW, layered

from lineage_backfill import LineageSnapshot, build_plan

FIRST = datetime(2024, 6, 15, tzinfo=UTC)
HOURS = [FIRST + timedelta(hours=n) for n in range(24)]
START = datetime(2024, 1, 1, tzinfo=UTC)
KINDS = {
    "hour": dg.HourlyPartitionsDefinition(START, end_date=NOW),
    "day": dg.DailyPartitionsDefinition(START, end_date=NOW),
    "week": dg.WeeklyPartitionsDefinition(START, end_date=NOW, day_offset=1),
    "month": dg.MonthlyPartitionsDefinition(START, end_date=NOW),
}
Stale = dict[str, set[datetime]]


def main() -> None:
    """Print a line for each graph."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for seed in range(1, 1 + (int(sys.argv[2]) if len(sys.argv) > 2 else 3)):
        keys = (f"{HOURS[0]:%Y-%m-%dT%H}..{HOURS[-1]:%Y-%m-%dT%H}",)
        request, snapshot, declarations = layered(jobs, keys, seed=seed, ranges=True)
        truth = defined(snapshot)
        total = sum(map(len, truth.values()))
        plan = build_plan(request, snapshot, declarations, now=NOW)
        theirs = dagster(snapshot)
        missing = sum(len(keys - theirs.get(name, set())) for name, keys in truth.items())
        more = sum(len(keys - truth.get(name, set())) for name, keys in theirs.items())
        print(
            f"{jobs} jobs, seed {seed}: {total:,} partitions are stale; planned"
            f" {plan.totals['partitions']:,}; Dagster's backfill leaves out {missing:,}"
            f" ({missing / total:.0%}), and has {more:,} more"
        )


def written(snapshot: LineageSnapshot) -> dict[str, list[str]]:
    """Return the inputs of each output, in the order of the graph."""
    nodes = sorted(snapshot.jobs.values(), key=lambda node: int(node.ref.name.split("_")[1]))
    return {node.writes[0].name: [ref.name for ref in node.reads] for node in nodes}


def defined(snapshot: LineageSnapshot) -> Stale:
    """Return what is stale by the definition."""
    stale: Stale = {"hour_root": set(HOURS)}
    for name, reads in written(snapshot).items():
        found = set()
        for read in reads:
            for start in stale.get(read, ()):
                found |= windows(name, start, end(read, start))
        if found:
            stale[name] = found
    return {name: keys for name, keys in stale.items() if name != "hour_root"}


def windows(name: str, start: datetime, until: datetime) -> set[datetime]:
    """Return the begins of the complete windows of a dataset that overlap a span."""
    found, at = set(), begin(name, start)
    while at < until:
        if at >= START and end(name, at) <= NOW:
            found.add(at)
        at = end(name, at)
    return found


def begin(name: str, at: datetime) -> datetime:
    """Return the begin of the window that an instant is in."""
    match name.split("_", maxsplit=1)[0]:
        case "hour":
            return at.replace(minute=0)
        case "day":
            return at.replace(hour=0, minute=0)
        case "week":
            return at.replace(hour=0, minute=0) - timedelta(days=at.weekday())
    return at.replace(day=1, hour=0, minute=0)


def end(name: str, start: datetime) -> datetime:
    """Return the end of the window that begins there."""
    kind = name.split("_", maxsplit=1)[0]
    if kind == "month":
        return begin(name, start + timedelta(days=31))
    return start + {"hour": timedelta(hours=1), "day": timedelta(1), "week": timedelta(7)}[kind]


def dagster(snapshot: LineageSnapshot) -> Stale:
    """Return the partitions that Dagster's backfill of all assets targets, but the root's."""
    mapping = dg.TimeWindowPartitionMapping()
    specs = [dg.AssetSpec("hour_root", partitions_def=KINDS["hour"])]
    for name, reads in written(snapshot).items():
        deps = [dg.AssetDep(read, partition_mapping=mapping) for read in reads]
        specs.append(dg.AssetSpec(name, partitions_def=KINDS[name.split("_")[0]], deps=deps))

    assets = [_single(spec) for spec in specs]
    graph = dg.Definitions(assets=assets).resolve_asset_graph()
    keys = list(graph.get_all_asset_keys())
    data = AssetBackfillData.from_asset_partitions(
        asset_graph=graph,
        partition_names=[f"{hour:%Y-%m-%d-%H:%M}" for hour in HOURS],
        asset_selection=keys,
        dynamic_partitions_store=dg.DagsterInstance.ephemeral(),
        backfill_start_timestamp=NOW.timestamp(),
        all_partitions=False,
    )
    found: Stale = {}
    for key, subset in data.target_subset.partitions_subsets_by_asset_key.items():
        name = key.path[-1]
        if name != "hour_root":
            kind = KINDS[name.split("_")[0]]
            labels = subset.get_partition_keys()
            found[name] = {datetime.strptime(one, kind.fmt).replace(tzinfo=UTC) for one in labels}
    return found


def _single(spec: dg.AssetSpec) -> dg.AssetsDefinition:
    @dg.multi_asset(name=f"make_{spec.key.path[-1]}", specs=[spec])
    def make() -> None:
        """Stand for a job."""

    return make


if __name__ == "__main__":
    main()
