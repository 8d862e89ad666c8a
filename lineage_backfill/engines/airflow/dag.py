"""A DAG as Airflow describes it: its timetable and tasks, and why it cannot be run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lineage_backfill.engines.airflow.api import AirflowApi, segment
from lineage_backfill.engines.airflow.slices import PREFIX, Slice, instant
from lineage_backfill.errors import EngineRefusalError, UnfitRunError, UsageError
from lineage_backfill.partitions.grid import Grid, cron_grid
from lineage_backfill.project.declarations import DagTasks

_NEWEST = "100"  # Airflow's own maximum


@dataclass(frozen=True, slots=True)
class Dag:
    """One DAG: its details, and the ids of its tasks."""

    details: Mapping[str, Any]
    tasks: frozenset[str]

    @property
    def id(self) -> str:
        """The id of the DAG."""
        return str(self.details["dag_id"])

    def kind(self, task: DagTasks, *, is_whole: bool = False) -> str:
        """Return what a run key means to this DAG; raises UnfitRunError if it must be declared.

        `is_whole` states that the job is not partitioned.
        """
        is_partitioned = self.details.get("timetable_partitioned")
        if task.slice is not None:
            if is_partitioned and not task.slice.startswith("partition_key"):
                raise UnfitRunError(
                    f"DAG {self.id} is partitioned, and a run by {task.slice} would have no key",
                    hint='Give the job slice = "partition_key".',
                )
            return task.slice
        if is_partitioned:
            return "partition_key"
        if is_whole and self.details.get("asset_expression"):
            return "asset"
        start = self.details.get("next_dagrun_data_interval_start")
        if start and start != self.details.get("next_dagrun_data_interval_end"):
            return "interval"
        raise UnfitRunError(
            f"the timetable of DAG {self.id} ({self.details.get('timetable_summary')}) does not"
            " say which slice a run is for",
            hint='Declare it in the [[job]]: slice = "logical_date" for the key that begins when'
            ' the DAG fires, "logical_date + 1d" for the day before, "interval",'
            ' "partition_key", "asset" or "conf".',
        )

    def grid(self, task: DagTasks, zone: str) -> Grid | None:
        """Return the firings of the timetable, None if it is not a cron expression.

        Airflow does not report its zone: the next run must be due in that of the lineage, or of the
        keys. Raises UnfitRunError if it is not.
        """
        try:
            grid = cron_grid(task.cron or str(self.details["timetable_summary"]), task.zone or zone)
        except UsageError:
            return None
        due = instant(self.details.get("next_dagrun_data_interval_start"))
        if task.zone is None and due is not None:
            at = int(due.timestamp())
            if grid.start(grid.at(at)) != at:
                raise UnfitRunError(
                    f"the timetable of DAG {self.id} is in another time zone than {zone}: its next"
                    f" run is for {due:%FT%TZ}",
                    hint="Declare the `schedule` and `schedule_zone` of the job.",
                )
        return grid

    def refuse_unfit(self, tasks: Collection[str]) -> None:
        """Raise UnfitRunError for a DAG in which no run can start now, or without these tasks."""
        if self.details["has_import_errors"] or self.details.get("is_stale"):
            raise UnfitRunError(
                f"DAG {self.id} cannot be imported, or is no longer in its file",
                hint="Check Airflow's import errors.",
            )
        if self.details["is_paused"]:
            raise UnfitRunError(f"DAG {self.id} is paused", hint=f"airflow dags unpause {self.id}")
        if "manual" not in (self.details.get("allowed_run_types") or ["manual"]):
            raise UnfitRunError(
                f"DAG {self.id} allows no manual runs", hint="Add manual to its allowed_run_types."
            )
        if missing := sorted({*tasks} - self.tasks):
            raise UnfitRunError(
                f"DAG {self.id} has no task {missing[0]} (any more)",
                hint=f"Correct `task` of the job; it has {', '.join(sorted(self.tasks)[:10])}.",
            )

    def refuse_slice(self, slice_: Slice, now: datetime) -> None:
        """Raise UnfitRunError for a slice for which Airflow runs no task."""
        at = slice_.start
        if at is None:
            return
        begin, end = instant(self.details["start_date"]), instant(self.details["end_date"])
        if at < (begin or at) or at > min(end or now, now):
            raise UnfitRunError(
                f"Airflow would run no task for {at:%FT%TZ}: DAG {self.id} runs from"
                f" {begin or 'any time'} until {end or 'now'}",
                hint="Change its start_date or end_date, or `slice` of the job, or leave these"
                " keys out.",
            )


def read_dag(api: AirflowApi, dag: str) -> Dag:
    """Return a DAG; raises UnfitRunError if Airflow has none with this id.

    Its tasks may change without a new version, as long as no run has used the version.
    """
    details = api.find(f"/dags/{segment(dag)}/details")
    if details is None:
        raise UnfitRunError(
            f"Airflow at {api.url} has no DAG {dag}",
            hint="Correct `dag` of the job; see also Airflow's import errors.",
        )
    tasks = api.get(f"/dags/{segment(dag)}/tasks")["tasks"]
    return Dag(details, frozenset(one["task_id"] for one in tasks))


def runs_of(api: AirflowApi, dag: str, query: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Return the newest runs of a DAG that fit a query."""
    query = {**query, "order_by": "-run_after", "limit": _NEWEST}
    found: list[Mapping[str, Any]] = api.get(f"/dags/{segment(dag)}/dagRuns", query)["dag_runs"]
    return found


def refuse_account(api: AirflowApi, dag: str) -> None:
    """Raise EngineRefusalError for an account that may not clear tasks of a DAG."""
    try:
        # Clears nothing, as there is no such run: it only checks the permission.
        body = {"dag_run_id": f"{PREFIX}none", "dry_run": True}
        api.post(f"/dags/{segment(dag)}/clearTaskInstances", body)
    except EngineRefusalError as error:
        if error.status != 404:
            raise


def pending(api: AirflowApi, dag: Dag, slice_: Slice) -> str:
    """Return the assets whose events will make Airflow start the run of a slice by itself.

    Airflow writes them together with the success of the task that updates the asset, so an empty
    answer after that is final: for example a rollup that waits for more of its day.
    """
    expression = dag.details.get("asset_expression")
    if not expression or slice_.kind == "conf" or slice_.start is not None:
        return ""
    if slice_.key is not None:
        query = {"dag_id": dag.id, "has_created_dag_run_id": "false"}
        found = (api.find("/ui/partitioned_dag_runs", query) or {}).get("partitioned_dag_runs", ())
        is_due = any(
            one["partition_key"] == slice_.key and one["total_received"] >= one["total_required"]
            for one in found
        )
    else:
        found = api.get(f"/dags/{segment(dag.id)}/assets/queuedEvents")["queued_events"]
        is_due = _is_met(expression, {one["asset_id"] for one in found})
    return ", ".join(_assets(expression)) if is_due else ""


def _is_met(expression: Mapping[str, Any], queued: Collection[int]) -> bool:
    """Whether the queued assets meet a condition."""
    if "all" in expression:
        return all(_is_met(one, queued) for one in expression["all"])
    if "any" in expression:
        return any(_is_met(one, queued) for one in expression["any"])
    return expression.get("asset", {}).get("id") in queued


def _assets(expression: Mapping[str, Any]) -> list[str]:
    parts = [*expression.get("all", ()), *expression.get("any", ())]
    named = [str(expression["asset"]["uri"])] if "asset" in expression else []
    return [*named, *(uri for part in parts for uri in _assets(part))]
