"""A DAG as Airflow describes it: its timetable, its tasks, and why it cannot be run."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import requests

from lineage_backfill.engines.airflow.api import AirflowApi, segment
from lineage_backfill.engines.airflow.slice import PREFIX, Slice, no_slice
from lineage_backfill.errors import ConflictError, EngineRefusalError, UnfitRunError
from lineage_backfill.project.declarations import DagTasks


@dataclass(frozen=True, slots=True)
class Dag:
    """One DAG: its details, its tasks by id, and the tasks whose assets trigger other DAGs."""

    details: Mapping[str, Any]
    tasks: Mapping[str, Mapping[str, Any]]
    producers: frozenset[str]

    @property
    def id(self) -> str:
        """The id of the DAG."""
        return str(self.details["dag_id"])

    def kind(self, task: DagTasks) -> str:
        """Return what a run key means to this DAG; raises UnfitRunError if it must be declared."""
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
        start = self.details.get("next_dagrun_data_interval_start")
        if start and start != self.details.get("next_dagrun_data_interval_end"):
            return "interval"
        shown = self.details.get("timetable_summary")
        raise no_slice(f"the timetable of DAG {self.id} ({shown}) does not say")

    def has_changed_since(self, run: Mapping[str, Any]) -> bool:
        """Whether a run is of an older version of the DAG, and would go on as the newest one.

        One of a versioned bundle keeps its version.
        """
        newest = (self.details.get("latest_dag_version") or {}).get("version_number", 0)
        own = max((one["version_number"] for one in run.get("dag_versions") or ()), default=newest)
        return own < newest and not run.get("bundle_version")

    def others(self, task: DagTasks) -> Mapping[str, str]:
        """Return the tasks that a job does not need, with the state to set in a new run."""
        above: set[str] = set()
        todo = list(task.tasks)
        while todo:
            name = todo.pop()
            found = {
                other
                for other, one in self.tasks.items()
                if name in one["downstream_task_ids"] and other not in above
            }
            above |= found
            todo += found
        return {
            name: "success" if name in above else "skipped"
            for name in self.tasks
            if name not in task.tasks
        }

    def above(self, tasks: Collection[str]) -> list[str]:
        """Return the other tasks that these tasks directly wait for."""
        return [
            name
            for name, one in self.tasks.items()
            if name not in tasks and not set(tasks).isdisjoint(one["downstream_task_ids"])
        ]

    def follows(self, task: DagTasks, before: DagTasks, among: Collection[str]) -> bool:
        """Whether Airflow starts a job's tasks only after all tasks of another job succeeded.

        `among` are the tasks that are started together: only these wait for each other.
        """
        within = {*among, *task.tasks}
        rules = {self.tasks[name].get("trigger_rule", "all_success") for name in task.tasks}
        return rules == {"all_success"} and all(
            set(task.tasks) <= self._below(name, within) for name in before.tasks
        )

    def _below(self, task: str, within: Collection[str]) -> set[str]:
        found, todo = set[str](), [task]
        while todo:
            below = set(self.tasks[todo.pop()]["downstream_task_ids"]) & set(within) - found
            found |= below
            todo += below
        return found

    def feeds(self, task: DagTasks) -> bool:
        """Whether a success of the task is an event of an asset."""
        return not self.producers.isdisjoint(task.tasks)

    def refuse_key(self, api: AirflowApi, key: str) -> None:
        """Raise UnfitRunError for a partition key in another format than those of the DAG."""
        if not self.details.get("timetable_partitioned"):
            if self.details.get("timetable_summary") == "PartitionedAtRuntime":
                return
            raise UnfitRunError(
                f"DAG {self.id} is not partitioned, and takes no partition key",
                hint='Give the job another `slice`: "interval", "logical_date" or "conf".',
            )
        query = {"order_by": "-run_after", "limit": 100}
        runs = api.get(f"/dags/{segment(self.id)}/dagRuns", query)["dag_runs"]
        # Other keys cannot be checked: some timetables take any text.
        known = [run["partition_key"] for run in runs if run.get("partition_date")]
        if known and _shape(key) not in map(_shape, known):
            raise UnfitRunError(
                f"DAG {self.id} writes partition keys as {known[0]}, and not as {key}",
                hint='Declare the format (strftime): slice = "partition_key %Y-%m-%dT%H:%M:%S".',
            )

    def refuse_slice(self, task: DagTasks, slice_: Slice, now: datetime) -> None:
        """Raise UnfitRunError for tasks and slices that Airflow will not run."""
        for name in task.tasks:
            if name not in self.tasks:
                known = ", ".join(sorted(self.tasks)[:10])
                raise UnfitRunError(
                    f"DAG {self.id} has no task {name}", hint=f"Correct `task`; it has {known}."
                )
        at = slice_.logical_date
        if at is None:
            return
        begins = [self.details["start_date"], *(self.tasks[n]["start_date"] for n in task.tasks)]
        ends = [self.details["end_date"], *(self.tasks[n]["end_date"] for n in task.tasks)]
        if early := [one for one in begins if one and at < datetime.fromisoformat(one)]:
            raise UnfitRunError(
                f"{at:%FT%TZ} lies before the start_date {early[0]} of DAG {self.id}: Airflow would"
                " call its run a success without running a task",
                hint="Set an earlier start_date, or leave these keys out.",
            )
        if late := [one for one in ends if one and at > datetime.fromisoformat(one)]:
            raise UnfitRunError(
                f"{at:%FT%TZ} lies after the end_date {late[0]} of DAG {self.id}",
                hint="Set a later end_date, or leave these keys out.",
            )
        if at > now:
            raise UnfitRunError(
                f"{at:%FT%TZ} lies in the future, and DAG {self.id} would run no task for it",
                hint="Leave these keys out, or correct `slice` of the job.",
            )


def _shape(key: str) -> str:
    return re.sub(r"\d", "0", key)


def read_dag(api: AirflowApi, dag: str) -> Dag:
    """Return a DAG; raises UnfitRunError if Airflow has none with this id."""
    details = api.find(f"/dags/{segment(dag)}/details")
    if details is None:
        raise UnfitRunError(
            f"Airflow at {api.url} has no DAG {dag}",
            hint="Correct `dag` of the job; see also Airflow's import errors.",
        )
    tasks = {one["task_id"]: one for one in api.get(f"/dags/{segment(dag)}/tasks")["tasks"]}
    assets = api.get("/assets", {"dag_ids": dag, "limit": 100})["assets"]
    producers = frozenset(
        task["task_id"]
        for asset in assets
        if asset["scheduled_dags"]
        for task in asset["producing_tasks"]
        if task["dag_id"] == dag
    )
    return Dag(details, tasks, producers)


def refuse_unready(api: AirflowApi, dag: Dag) -> None:
    """Raise UnfitRunError for a DAG in which no run can start now."""
    details, path = dag.details, f"/dags/{segment(dag.id)}"
    allowed = details.get("allowed_run_types")
    if details["has_import_errors"] or details.get("is_stale"):
        raise UnfitRunError(
            f"DAG {dag.id} cannot be imported, or is no longer in its file",
            hint="Check Airflow's import errors.",
        )
    if details["is_paused"]:
        raise UnfitRunError(f"DAG {dag.id} is paused", hint=f"airflow dags unpause {dag.id}")
    if allowed is not None and "manual" not in allowed:
        raise UnfitRunError(
            f"DAG {dag.id} allows no manual runs", hint="Add manual to its allowed_run_types."
        )
    try:
        # Clears nothing, as there is no such run: it only checks the permission.
        api.post(f"{path}/clearTaskInstances", {"dag_run_id": f"{PREFIX}none", "dry_run": True})
    except EngineRefusalError as error:
        if error.status != requests.codes.not_found:
            raise


def active_backfill(api: AirflowApi, dag: str) -> Mapping[str, Any] | None:
    """Return Airflow's own active backfill of a DAG, paused or not."""
    # Airflow also lists ended ones, and runs one at a time: the newest one decides.
    newest = {"dag_id": dag, "order_by": "-id", "limit": 1}
    found = api.get("/backfills", newest)["backfills"]
    return found[0] if found and not found[0]["completed_at"] else None


def refuse_backfill(backfill: Mapping[str, Any]) -> NoReturn:
    """Raise ConflictError about a backfill of Airflow's own."""
    state = "paused" if backfill["is_paused"] else "under way"
    raise ConflictError(
        f"backfill {backfill['id']} of Airflow is {state} on DAG {backfill['dag_id']}",
        hint="Wait for its end, or cancel it in Airflow.",
    )
