"""Plans in a few lines: edges as text, declarations as the project file writes them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet, parse_partitions
from lineage_backfill.planning.planner import Planner, Planning
from lineage_backfill.plans.plan import Plan, PlannedJob, PlannedRun
from lineage_backfill.plans.request import ChangedDataset, ChangedJob, Request
from lineage_backfill.project import reader as declare
from lineage_backfill.project.declarations import Declarations, Limits

#: The newest complete day is 2024-03-31 in UTC.
NOW = datetime(2024, 4, 1, 12, tzinfo=UTC)


def dataset(name: str) -> DatasetRef:
    """Return the dataset of a name; `ns:name` where it is not in the project's namespace."""
    space, colon, rest = name.partition(":")
    return DatasetRef(space, rest) if colon else DatasetRef("w", name)


def job(name: str) -> JobRef:
    """Return the job of a name."""
    return JobRef("w", name)


def lineage(edges: str, **rest: Any) -> LineageSnapshot:
    """Return the lineage of lines such as `raw, rates > convert > prices`."""
    nodes = []
    for line in filter(None, map(str.strip, edges.splitlines())):
        reads, name, writes = (part.strip() for part in line.split(">"))
        nodes.append(JobNode(ref=job(name), reads=_refs(reads), writes=_refs(writes)))
    return LineageSnapshot.of(nodes, **rest)


def _refs(text: str) -> tuple[DatasetRef, ...]:
    return tuple(sorted(dataset(name.strip()) for name in text.split(",") if name.strip()))


def declarations(toml: str, **limits: int) -> Declarations:
    """Return what `[[dataset]]` and `[[job]]` tables declare, and `zone` if it is given."""
    document = tomllib.loads(toml)
    return Declarations(
        namespace="w",
        zone=document.get("zone") or "UTC",
        datasets=declare.datasets(document.get("dataset"), "project file", Path("/")),
        jobs=declare.jobs(
            document.get("job"), "project file", engines=("local",), pools=("spark",)
        ),
        limits=Limits(**limits),
    )


def keys(text: str | None) -> KeySet | None:
    """Return what `--partitions` would make of the text."""
    return None if text is None else parse_partitions(text)


def request(
    changed: Mapping[str, str | None] | None = None,
    *,
    jobs: Mapping[str, str | None] | None = None,
    **rest: Any,
) -> Request:
    """Return a request; `changed` and `jobs` map names to keys."""
    return Request(
        changed=tuple(
            ChangedDataset(dataset=dataset(name), keys=keys(text))
            for name, text in (changed or {}).items()
        ),
        jobs=tuple(
            ChangedJob(job=job(name), keys=keys(text)) for name, text in (jobs or {}).items()
        ),
        **rest,
    )


def session(
    asked: Request,
    edges: str | LineageSnapshot,
    toml: str | Declarations,
    *,
    now: datetime = NOW,
    **rest: Any,
) -> Planning:
    """Return the planning session of a request, for what a plan is too small to hold."""
    snapshot = lineage(edges) if isinstance(edges, str) else edges
    declared = declarations(toml) if isinstance(toml, str) else toml
    return Planner(snapshot, declared, now=now, **rest).session(asked)


def plan(
    asked: Request, edges: str | LineageSnapshot, toml: str | Declarations, **rest: Any
) -> Plan:
    """Return the plan of a request."""
    return session(asked, edges, toml, **rest).plan()


def find(made: Plan, name: str) -> PlannedJob:
    """Return what a plan says of a job."""
    (found,) = [one for one in made.jobs if one.job.name == name]
    return found


def runs_of(made: Plan, name: str) -> list[PlannedRun]:
    """Return the runs of a job in the order of the plan."""
    return [run for run in made.runs or () if run.job.name == name]


def shown(partitions: Iterable[Any]) -> str:
    """Return a set of keys as one text: `A..B, C`, boxes as `day=A..B/region=eu+us`."""
    return ", ".join(
        key
        if isinstance(key, str)
        else "/".join(f"{name}={'+'.join(values)}" for name, values in key.items())
        for key in partitions
    )


def summary(made: Plan) -> dict[str, str]:
    """Return the planned keys of each job, or its status where there are none."""
    return {one.job.name: shown(one.partitions) or one.status for one in made.jobs}


def left(made: Plan) -> dict[str, str]:
    """Return the keys that each job leaves stale."""
    return {one.job.name: shown(one.left_stale) for one in made.jobs if one.left_stale}


def waits(made: Plan, name: str) -> dict[str, list[str]]:
    """Return for each run of a job the runs that it waits for, as `job[keys]`."""
    names = {run.id: f"{run.job.name}[{shown(run.partitions)}]" for run in made.runs or ()}
    return {
        shown(run.partitions): [names[other] for other in run.upstream]
        for run in runs_of(made, name)
    }
