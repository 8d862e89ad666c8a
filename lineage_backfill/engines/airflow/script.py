"""A plan as a script of Airflow requests, for when this tool has no account there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import urlencode

from lineage_backfill.engines.airflow.slice import PREFIX, Slice, no_slice, slice_for
from lineage_backfill.errors import GuardRailError
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import expand, parse
from lineage_backfill.plans.plan import Plan
from lineage_backfill.project.declarations import DagTasks
from lineage_backfill.redaction import redacted


def plan_script(
    plan: Plan,
    calendar: Callable[[JobRef], Calendar | None],
    task: Callable[[JobRef], DagTasks | None],
) -> Iterator[str]:
    """Yield the lines of a bash script that runs a plan in order, each run after its inputs.

    Jobs without a task are left to the user. Raises GuardRailError for a plan without its runs,
    UnfitRunError if it is unknown which DAG run a key means.
    """
    if plan.runs is None:
        raise GuardRailError(
            f"the plan has {plan.totals.get('runs', 'too many')} runs, more than `max_runs`",
            hint="Narrow the request, or allow more with --allow-max-runs.",
        )
    names = {run.id: f"{run.job.name} {', '.join(map(str, run.partitions))}" for run in plan.runs}
    lines = [*_steps(plan, names, calendar, task)]
    head = Path(__file__).with_suffix(".sh").read_text(encoding="utf-8")
    yield from head.replace("TITLE", f"Plan {plan.id}, as of {plan.now}").splitlines()
    yield from lines
    yield '\necho "All steps have succeeded."'


def _steps(
    plan: Plan,
    names: Mapping[str, str],
    calendar: Callable[[JobRef], Calendar | None],
    task: Callable[[JobRef], DagTasks | None],
) -> Iterator[str]:
    wave = 0
    for run in plan.runs or ():
        if run.wave != wave:
            wave = run.wave
            yield f"\n# Wave {wave}"
        if after := [names[other] for other in run.upstream if other in names]:
            yield _plain(f"# after {'; '.join(after)}")
        named, keys = task(run.job), calendar(run.job)
        if named is None or keys is None:
            yield f"other {quote(_plain(names[run.id]))}"
            continue
        if named.slice is None:
            lacks = f"neither the project file nor the lineage of DAG {named.dag} says"
            raise no_slice(lacks, run.job.name)
        for key in expand(keys, parse(keys, run.partitions)):
            label = key.label if isinstance(key.label, str) else dict(key.label)
            slice_ = slice_for(named.slice, run.job.name, label, key.start, key.end)
            ends = [end and end.isoformat() for end in (key.start, key.end)]
            told = {"key": label, "start": ends[0], "end": ends[1]}
            run_id = sha256(f"{plan.id} {run.id} {label}".encode()).hexdigest()[:20]
            yield _step(f"{run.job.name} {label}", PREFIX + run_id, named, slice_, told)


def _step(name: str, run_id: str, task: DagTasks, slice_: Slice, key: Mapping[str, Any]) -> str:
    query = {"run_id_prefix_pattern": run_id}
    body: dict[str, Any] = {"dag_run_id": run_id, "logical_date": None}
    body["conf"] = {"lineage_backfill": key}
    if slice_.logical_date is not None:
        at = slice_.logical_date.isoformat()
        query = {"logical_date_gte": at, "logical_date_lte": at}
        body["logical_date"] = at
    elif slice_.key is not None:
        query = {"partition_key_prefix_pattern": slice_.key, "order_by": "-run_after"}
        body["partition_key"] = slice_.key
    if slice_.start is not None and slice_.end is not None:
        body["data_interval_start"] = slice_.start.isoformat()
        body["data_interval_end"] = slice_.end.isoformat()
    words = [_plain(name), task.dag, json.dumps(task.tasks), urlencode(query), run_id]
    return f"step {' '.join(map(quote, [*words, json.dumps(body)]))}"


def _plain(text: str) -> str:
    """Return the text on one line and without secrets, for a comment or a name."""
    return " ".join(redacted(text).split())
