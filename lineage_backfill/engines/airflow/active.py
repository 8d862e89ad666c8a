"""Keys of a job that DAG runs started by others are queued or running for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lineage_backfill.engines.airflow.api import AirflowApi, segment
from lineage_backfill.engines.airflow.dag import active_backfill, refuse_backfill
from lineage_backfill.engines.airflow.slice import PREFIX, TaskView, instant, shift, spec_in
from lineage_backfill.lineage.inference.recorded import touched_keys
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.project.declarations import DagTasks


def live_keys(
    api: AirflowApi, job: JobRef, task: DagTasks, kind: str, calendar: Calendar
) -> PartitionSet:
    """Return the keys of active runs; all keys during a backfill of Airflow's own.

    A run with an unknown key counts for all keys. Raises ConflictError for a paused backfill, as it
    would not end.
    """
    backfill = active_backfill(api, task.dag)
    if backfill is not None:
        if backfill["is_paused"]:
            refuse_backfill(backfill)
        return calendar.existing
    keys = NOTHING
    for run in _under_way(api, job, task):
        keys |= touched_keys(_observed(job, kind, run), calendar)
    return keys


def _under_way(api: AirflowApi, job: JobRef, task: DagTasks) -> Iterator[Mapping[str, Any]]:
    """Yield the queued and running runs in which a task of the job is unfinished."""
    query = {"state": ["queued", "running"], "order_by": "id"}
    runs = {
        run["dag_run_id"]: run
        for run in api.listed(f"/dags/{segment(task.dag)}/dagRuns", query, "dag_runs")
        if not _is_held(run, job)
    }
    if runs:
        found = api.task_instances([task.dag], list(runs), task.tasks)
        active = {one["dag_run_id"] for one in found if TaskView.of(one).is_active}
        yield from (run for name, run in runs.items() if name in active)


def _is_held(run: Mapping[str, Any], job: JobRef) -> bool:
    """Whether a queued run belongs to another job, whose engine will mark this job's tasks."""
    if run["state"] != "queued" or not run["dag_run_id"].startswith(PREFIX):
        return False
    spec = spec_in(run)
    return bool(spec) and spec.get("job", {}).get("name") != job.name


def _observed(job: JobRef, kind: str, run: Mapping[str, Any]) -> ObservedRun:
    start = end = key = None
    if kind.startswith("partition_key"):
        start, key = instant(run.get("partition_date")), run.get("partition_key")
        key = None if start else key  # its format may differ from ours
    elif kind == "interval":
        start, end = instant(run["data_interval_start"]), instant(run["data_interval_end"])
    elif kind != "conf" and run["logical_date"]:
        at = instant(run["logical_date"])
        start = at and at - shift(kind)
    return ObservedRun(
        job=job,
        run_id=run["dag_run_id"],
        state="RUNNING",
        nominal_start=start,
        nominal_end=end,
        partition_key=key,
    )
