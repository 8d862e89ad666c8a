"""Random graphs, told as producers tell them: the plan is that of the graph, never smaller."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.identity.identified import identified
from lineage_backfill.model import DatasetRef
from lineage_backfill.planning.planner import build_plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
    JobDeclaration,
)

_BEGIN = datetime(2024, 6, 2, tzinfo=UTC)
NOW = datetime(2024, 6, 20, 12, tzinfo=UTC)
#: Ways to write the name of one table, by platform; the last letter is its number.
_SPELLINGS = (
    (
        ("snowflake://org-a", "DB.S.T{}"),
        ("snowflake://ORG_A.snowflakecomputing.com", '"db"."s"."t{}"'),
    ),
    (("postgres://pg:5432", "d.public.t{}"), ("postgresql://PG", "d.public.T{}")),
    (("s3://lake", "raw/t{}"), ("s3a://lake", "/raw/t{}/"), ("s3://lake", "raw/t{}@v3")),
    (("bigquery", "p.d.t{}"), ("bigquery", "p.d.t{}$20240605")),
    (("hive://metastore:9083", "d.t{}"), ("hive://Metastore", "D.t{}"), ("other://catalog", "t{}")),
    (("w", "t{}"),),
)
#: The spelling above that only an alias ties to the others.
_ALIASED = "other://catalog"
Name = tuple[str, str]


@dataclass
class Told:
    """The events of a graph, what is declared, and the jobs that a plan of its root has."""

    events: list[dict[str, Any]] = field(default_factory=list)
    planned: set[str] = field(default_factory=set)
    jobs: list[JobDeclaration] = field(default_factory=list)
    datasets: list[DatasetDeclaration] = field(default_factory=list)
    clock: datetime = _BEGIN

    def run(
        self,
        job: str,
        reads: Iterable[Name],
        writes: Iterable[Name],
        *,
        facets: dict[str, Any] | None = None,
        parent: Name | None = None,
        columns: Iterable[Name] = (),
        kinds: tuple[str, ...] = ("COMPLETE",),
    ) -> None:
        """Tell of one run of a job."""
        self.clock += timedelta(hours=1)
        number = len(self.events)
        sources = [{"namespace": s, "name": n, "field": "id"} for s, n in columns]
        lineage = {"columnLineage": {"fields": {"id": {"inputFields": sources}}}}
        outputs = [
            {"namespace": space, "name": name, "facets": lineage if sources else {}}
            for space, name in writes
        ]
        run: dict[str, Any] = {"runId": f"r{number}", "facets": {}}
        if parent:
            run["facets"]["parent"] = {
                "run": {"runId": parent[1]},
                "job": {"namespace": "w", "name": parent[0]},
            }
        for kind in kinds:
            self.events.append(
                {
                    "eventType": kind,
                    "eventTime": (self.clock + timedelta(minutes=len(kind))).isoformat(),
                    "run": run,
                    "job": {"namespace": "w", "name": job, "facets": facets or {}},
                    "inputs": [{"namespace": space, "name": name} for space, name in reads],
                    "outputs": outputs,
                }
            )

    def application(self, name: str, run_id: str, kind: str) -> None:
        """Tell that an application starts or ends."""
        self.clock += timedelta(hours=1)
        self.events.append(
            {
                "eventType": kind,
                "eventTime": self.clock.isoformat(),
                "run": {"runId": run_id},
                "job": {"namespace": "w", "name": name, "facets": _spark("APPLICATION")},
            }
        )


def _spark(kind: str) -> dict[str, Any]:
    return {"jobType": {"processingType": "BATCH", "integration": "SPARK", "jobType": kind}}


def tell(seed: int) -> Told:
    """Return the events of the graph of a seed: up to eight tables, each written by one job."""
    rng = random.Random(seed)
    told = Told()
    kinds = [rng.choice(_SPELLINGS) for _ in range(rng.randint(3, 8))]
    reached = {0}

    def named(number: int) -> Name:
        space, name = rng.choice(kinds[number])
        return space, name.format(number)

    for number, spelled in enumerate(kinds):
        if spelled[-1][0] == _ALIASED:
            (space, name), *_ = spelled
            aliases = (f"{_ALIASED}:t{number}",)
            told.datasets.append(
                DatasetDeclaration(name=name.format(number), namespace=space, aliases=aliases)
            )
    told.run("source", [("w", "outside")], [named(0)])
    for number in range(1, len(kinds)):
        inputs = rng.sample(range(number), rng.randint(1, min(2, number)))
        way = rng.choice(tuple(_WAYS))
        job = _WAYS[way](told, rng, number, partial(_names, named, inputs), named)
        if reached.intersection(inputs):
            reached.add(number)
            told.planned.update(job.split())
    rng.shuffle(told.events)
    return told


def _names(named: Callable[[int], Name], numbers: list[int]) -> list[Name]:
    return [named(number) for number in numbers]


def _plain(told: Told, rng: random.Random, number: int, reads: Any, named: Any) -> str:
    for _ in range(rng.randint(1, 2)):
        told.run(f"j{number}", reads(), [named(number)])
    return f"j{number}"


def _merge(told: Told, rng: random.Random, number: int, reads: Any, named: Any) -> str:
    job, target = f"app{number}.execute_merge_into_command.t{number}", named(number)
    facets = _spark("SQL_JOB")
    told.run(job, [target], [target], facets=facets, columns=[target, *reads()])
    return job


def _application(told: Told, rng: random.Random, number: int, reads: Any, named: Any) -> str:
    job, inner, gone = f"app{number}", ("w", f"inner{number}"), ("w", f"gone{number}")
    facets = _spark("SQL_JOB")
    for turn in range(2):
        run = (job, f"a{number}-{turn}")
        told.application("unknown" if rng.random() < 0.3 else job, run[1], "START")
        told.run(f"{job}.append.inner", reads(), [inner], facets=facets, parent=run)
        told.run(f"{job}.scan_existing_rdd.inner", [inner], [inner], facets=facets, parent=run)
        told.run(f"{job}.overwrite.t", [inner], [named(number)], facets=facets, parent=run)
        if turn == 0:  # an action that later runs no longer have
            told.run(f"{job}.save.gone", [named(0)], [gone], facets=facets, parent=run)
        told.application(job, run[1], "COMPLETE")
    return job


def _loader(told: Told, rng: random.Random, number: int, reads: Any, named: Any) -> str:
    every = reads()
    for turn in range(3):
        file = ("s3://drop", f"in{number}/{turn}.csv")
        told.run(f"j{number}", [file, *(every if turn == 1 else ())], [named(number)])
    return f"j{number}"


def _dbt(told: Told, rng: random.Random, number: int, reads: Any, named: Any) -> str:
    facets = {"dbt_node": {"unique_id": f"model.shop.t{number}"}}
    names = [f"shop.t{number}.build.run", f"shop.t{number}"]
    rng.shuffle(names)
    for name in names:
        told.run(name, reads(), [named(number)], facets=facets)
    test = {"dbt_node": {"unique_id": f"test.shop.t{number}"}}
    told.run(f"shop.t{number}.test", [named(number)], [], facets=test)
    return names[-1]


def _incomplete(told: Told, rng: random.Random, number: int, reads: Any, named: Any) -> str:
    told.run(f"j{number}", reads(), [named(number)])
    told.run(f"j{number}", [], [], kinds=("START", "FAIL"))
    return f"j{number}"


def _renamed(told: Told, rng: random.Random, number: int, reads: Any, named: Any) -> str:
    told.run(f"old{number}", [named(0)], [named(number)])
    told.run(f"j{number}", reads(), [named(number)])
    told.jobs.append(JobDeclaration(name=f"j{number}", replaces=(f"old{number}",)))
    return f"j{number}"


def _dated(told: Told, rng: random.Random, number: int, reads: Any, named: Any) -> str:
    for day in ("02", "03"):
        told.run(f"j{number}_2024_06_{day}", reads(), [named(number)])
    told.jobs.append(JobDeclaration(name=f"j{number}", pattern=f"j{number}_{{day:%Y_%m_%d}}"))
    return f"j{number}"


def _two_writers(told: Told, rng: random.Random, number: int, reads: Any, named: Any) -> str:
    """Return both jobs, which run one after the other."""
    for name in ("first", "second"):
        told.run(f"{name}{number}", reads(), [named(number)])
    return f"first{number} second{number}"


_WAYS = {
    "plain": _plain,
    "merge": _merge,
    "application": _application,
    "loader": _loader,
    "dbt": _dbt,
    "incomplete": _incomplete,
    "renamed": _renamed,
    "dated": _dated,
    "two writers": _two_writers,
}


def planned(told: Told) -> Iterator[str]:
    """Yield the jobs that the planner plans for a change of the root, each as often as it does."""
    builder = LineageBuilder()
    for event in told.events:
        builder.add(event)
    calendar = CalendarDeclaration(grain="day", start="2024-06-01")
    declared = DatasetDeclaration(name="*", namespace="*", calendar=calendar)
    declarations = Declarations(
        namespace="w", datasets=(*told.datasets, declared), jobs=tuple(told.jobs)
    )
    snapshot = identified(builder.snapshot(), declarations)
    (root,) = snapshot.jobs[next(ref for ref in snapshot.jobs if ref.name == "source")].writes
    changed = ChangedDataset(dataset=DatasetRef(*root[:2]), keys=("2024-06-05",))
    plan = build_plan(Request(changed=(changed,)), snapshot, declarations, now=NOW)
    yield from (job.job.name for job in plan.jobs if job.status == "planned")


def check_producers(seed: int) -> None:
    """Compare the planned jobs of one graph with those downstream of its root."""
    told = tell(seed)
    assert sorted(planned(told)) == sorted(told.planned), f"seed {seed}"
