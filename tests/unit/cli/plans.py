"""Plans for what shows them: a real one, and one by hand with everything that can be odd."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lineage_backfill import (
    CalendarDeclaration,
    ChangedDataset,
    DatasetDeclaration,
    DatasetRef,
    Declarations,
    JobDeclaration,
    JobNode,
    JobRef,
    LineageSnapshot,
    Plan,
    PlannedJob,
    ReadDeclaration,
    Request,
    build_plan,
)
from lineage_backfill.plans.plan import DatasetPartitions, Listed, PlannedRun

NOW = datetime(2013, 4, 2, tzinfo=UTC)


def dataset(name: str) -> DatasetRef:
    return DatasetRef("nyc", name)


def job(name: str) -> JobRef:
    return JobRef("nyc", name)


def _node(name: str, reads: str, writes: str) -> JobNode:
    return JobNode(
        ref=job(name),
        reads=tuple(map(dataset, reads.split())),
        writes=tuple(map(dataset, writes.split())),
    )


SNAPSHOT = LineageSnapshot.of(
    [
        _node("clean", "feed", "clean"),
        _node("daily", "clean", "daily"),
        _node("weekly", "daily", "weekly"),
        _node("rolling", "daily", "rolling"),
        _node("total", "daily total", "total"),
        _node("guarded", "daily", "guarded"),
        _node("mystery", "daily", "unknown"),
        _node("weather", "weather_feed", "weather"),
    ]
)


def _dataset(name: str, grain: str, start: str) -> DatasetDeclaration:
    calendar = CalendarDeclaration(grain=grain, start=start)  # type: ignore[arg-type]
    return DatasetDeclaration(name=name, calendar=calendar)


DECLARATIONS = Declarations(
    namespace="nyc",
    zone="America/New_York",
    datasets=(
        *(_dataset(name, "hour", "2013-03-01T00") for name in ("feed", "clean")),
        *(_dataset(name, "day", "2013-03-01") for name in ("daily", "rolling", "total", "guarded")),
        _dataset("weekly", "week", "2013-W10"),
    ),
    jobs=(
        *(JobDeclaration(name=name, engine="local") for name in ("daily", "weekly")),
        JobDeclaration(name="clean", engine="local", batch="range"),
        JobDeclaration(
            name="rolling",
            engine="local",
            reads=(ReadDeclaration(dataset="daily", mapping="window", before=6),),
        ),
        JobDeclaration(
            name="total",
            engine="local",
            reads=(ReadDeclaration(dataset="total", mapping="offset", by=-1),),
        ),
        JobDeclaration(name="guarded", engine="local", protected=True),
    ),
)
REQUEST = Request(
    changed=(ChangedDataset(dataset=dataset("feed"), keys=("2013-03-10T05..2013-03-10T07",)),)
)


def real() -> Plan:
    """A plan as the planner makes it: planned, protected, blocked and untouched jobs."""
    return build_plan(REQUEST, SNAPSHOT, DECLARATIONS, now=NOW)


def odd() -> Plan:
    """A plan of two namespaces, hostile names and many ranges; too many runs to list."""
    evil = JobRef("a[b]", "evil[red]\x1b[31m\u202ename")
    ranges = tuple(f"2013-03-{day:02}" for day in range(1, 20, 2))
    return Plan(
        now="2013-04-02T00:00:00Z",
        request={
            "changed": [],
            "jobs": [{"job": {"namespace": "nyc", "name": "again"}, "partitions": None}],
        },
        changed=(
            DatasetPartitions(dataset=dataset("whole"), keys=None),
            DatasetPartitions(
                dataset=DatasetRef("s3://bucket", "by_region"),
                keys=({"day": ["2013-03-01..2013-03-03"], "region": ["eu", "us"]},),
            ),
        ),
        details=Listed(
            lineage={},
            runs=None,
            jobs=(
                PlannedJob(
                    job=evil,
                    status="planned",
                    level=1,
                    partitions=ranges,
                    count=len(ranges),
                    left_stale=("2013-04-01",),
                    reason={
                        "kind": "stale",
                        "asked": True,
                        "lookback": 3,
                        "inferred": "30 runs at 05:00",
                        "left": ["no run repairs the stale partitions of x\x07"],
                        "inputs": [
                            {
                                "dataset": {"namespace": "nyc", "name": f"in{number}"},
                                "mapping": mapping,
                            }
                            for number, mapping in enumerate(
                                ("offset(-2)", "window(0, 1)", "product(overlap)", "all")
                            )
                        ],
                    },
                ),
            ),
        ),
        totals={"jobs": 1, "runs": 12000, "partitions": 10},
        warnings=("12000 runs are more than max_runs\x1b[2J",),
    )


_STEMS = ("orders_clean", "customers_joined", "sales_daily", "ledger_enriched_with_fx_rates")


def many(number: int) -> Plan:
    """A plan of so many jobs in layers; of every 31 one is protected, what reads it stays stale."""
    layers = min(12, number // 3)
    jobs: list[PlannedJob] = []
    for one in range(number):
        layer = one * layers // number
        area = ("staging", "core", "mart", "report")[layer * 4 // layers]
        status = "blocked" if one % 31 == 9 else "left_stale" if one % 31 > 28 else "planned"
        kind = {"blocked": "protected", "left_stale": "unrepaired", "planned": "stale"}[status]
        reads = {"dataset": {"namespace": "nyc", "name": f"t{one // 2}"}, "mapping": "identity"}
        reason: dict[str, Any] = {"kind": kind, "inputs": [reads]}
        if status == "blocked":
            reason |= {"text": "the job is protected", "hint": "Run it with --allow-protected."}
        keys = ("2024-03-10T10..2024-03-10T12",) if layer < layers // 2 else ("2024-03-10",)
        is_planned = status == "planned"
        jobs.append(
            PlannedJob(
                job=job(f"job_{area}.{_STEMS[one % 4]}_{one}"),
                status=status,  # type: ignore[arg-type]
                level=layer + 1,
                partitions=keys if is_planned else (),
                count=(3 if len(keys[0]) > 10 else 1) if is_planned else 0,
                left_stale=() if is_planned else keys,
                reason=reason,
            )
        )
    runs = [
        PlannedRun(
            id=f"{one.job.name}-{key}",
            job=one.job,
            partitions=one.partitions,
            count=1,
            wave=one.level,
            upstream=(),
            engine="local",
            reads=(),
            writes=(),
        )
        for one in jobs
        for key in range(one.count)
    ]
    changed = DatasetPartitions(
        dataset=dataset("raw_orders"), keys=("2024-03-10T10..2024-03-10T12",)
    )
    planned = [one for one in jobs if one.status == "planned"]
    return Plan(
        now="2024-03-20T00:00:00Z",
        request={},
        changed=(changed,),
        details=Listed(lineage={}, runs=tuple(runs), jobs=tuple(jobs)),
        totals={"jobs": len(planned), "runs": len(runs), "partitions": len(runs)},
    )
