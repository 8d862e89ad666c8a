"""Keys of a job that DAG runs started by others are queued or running for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lineage_backfill.engines.airflow.api import AirflowApi
from lineage_backfill.engines.airflow.slices import PREFIX, instant, length_of, shifted
from lineage_backfill.engines.airflow.step import TaskView
from lineage_backfill.lineage.inference.recorded import touched_keys
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.project.declarations import DagTasks

_DAY = timedelta(days=1)


def active_keys(
    api: AirflowApi, job: JobRef, task: DagTasks, kind: str, calendar: Calendar
) -> PartitionSet:
    """Return the keys of runs of others in which a task of the job is unfinished.

    A run with an unknown key counts for all keys. Runs of backfills are none of them: their locks
    and the engine itself keep apart what they do.
    """
    runs = {
        run["dag_run_id"]: run
        for run in api.active_runs([task.dag])
        if not run["dag_run_id"].startswith(PREFIX)
    }
    keys = NOTHING
    found = api.task_instances([task.dag], list(runs), task.tasks) if runs else ()
    for one in found:
        run = runs[one["dag_run_id"]]
        if TaskView.of(one).is_active(run):
            keys |= touched_keys(_observed(job, kind, run, calendar.zone), calendar)
    return keys


def _observed(job: JobRef, kind: str, run: Mapping[str, Any], zone: str) -> ObservedRun:
    start = end = key = None
    if kind.startswith("partition_key"):
        start, key = instant(run.get("partition_date")), run.get("partition_key")
        key = None if start else key  # its format may differ from ours
    elif kind == "interval":
        start, end = instant(run["data_interval_start"]), instant(run["data_interval_end"])
    elif kind.startswith("logical_date") and (at := instant(run["logical_date"])):
        start = shifted(at, at + _DAY, -length_of(kind), zone)
    return ObservedRun(
        job=job,
        run_id=run["dag_run_id"],
        state="RUNNING",
        nominal_start=start,
        nominal_end=end,
        partition_key=key,
    )
