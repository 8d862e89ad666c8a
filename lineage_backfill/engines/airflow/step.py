"""What a DAG run shows of a job's tasks, and what an attempt does next; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from msgspec import Struct

from lineage_backfill.engines.airflow.api import segment

_WAITING = (None, "scheduled", "queued")
#: States of task instances and DAG runs that have ended.
ENDED = ("success", "failed", "skipped", "upstream_failed")


class TaskView(Struct, frozen=True, kw_only=True):
    """One task instance as Airflow shows it; `map_index` is -1 unless it is a mapped one."""

    dag_id: str
    dag_run_id: str
    task_id: str
    map_index: int = -1
    state: str | None
    try_number: int
    start_date: datetime | None
    end_date: datetime | None

    @property
    def name(self) -> str:
        """The task, with the index of a mapped one."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"

    def is_late(self, since: datetime) -> bool:
        """Whether its last try begins after an instant; Airflow counts it once it is scheduled."""
        is_due = self.state in ("scheduled", "queued")
        return is_due or (self.start_date is not None and self.start_date > since)

    @property
    def has_begun(self) -> bool:
        """Whether its next try has begun, or has ended."""
        return self.state not in _WAITING


@dataclass(frozen=True, slots=True)
class DagRun:
    """A DAG run as Airflow shows it, with the task instances of a job."""

    facts: Mapping[str, Any]
    views: Sequence[TaskView] = ()

    @property
    def id(self) -> str:
        """The id of the run."""
        return str(self.facts["dag_run_id"])

    @property
    def path(self) -> str:
        """The path of the run in the API."""
        return f"/dags/{segment(self.facts['dag_id'])}/dagRuns/{segment(self.id)}"

    @property
    def has_ended(self) -> bool:
        """Whether Airflow starts nothing more in it."""
        return self.facts["state"] in ENDED

    @property
    def active(self) -> list[TaskView]:
        """The instances that have not ended; what waits in a run that has ended never starts."""
        left = [view for view in self.views if view.state not in ENDED]
        return [view for view in left if view.has_begun or not self.has_ended]

    @property
    def tries(self) -> dict[str, int]:
        """The number of tries of each instance."""
        return {view.name: view.try_number for view in self.views}

    def of(self, tasks: Collection[str]) -> DagRun:
        """Return the run with the instances of some tasks alone."""
        return DagRun(self.facts, [view for view in self.views if view.task_id in tasks])


class Act(Enum):
    """The next action for an attempt."""

    CREATE = "create"
    CLEAR = "clear"
    WAIT = "wait"
    SUCCEED = "succeed"


def decide(
    run: DagRun | None,
    tasks: Collection[str],
    tries: Mapping[str, int],
    *,
    is_ours: bool = False,
    has_acted: bool = False,
) -> Act | str:
    """Return the next action for an attempt of a job with these tasks, or why it has failed.

    Only tries after `tries` of an instance count. `is_ours` states that the attempt has created or
    cleared the run, or was about to; `has_acted` that this process has.
    """
    if run is None:
        return Act.CREATE
    missing = sorted({*tasks} - {view.task_id for view in run.views})
    if run.active or (missing and not run.has_ended):
        return Act.WAIT
    if missing:
        why = "it may lie before the task's start_date, or be of an older version of the DAG"
        return f"run {run.id} ended {run.facts['state']} without task {missing[0]}: {why}"
    return _judged(run, tries, is_ours, has_acted)


def _judged(run: DagRun, tries: Mapping[str, int], is_ours: bool, has_acted: bool) -> Act | str:
    """Return what follows from task instances that have all ended."""
    late = [view for view in run.views if view.try_number > tries.get(view.name, 0)]
    wrong = [view for view in run.views if not _is_done(view, run, late)]
    if not wrong:
        return Act.SUCCEED
    was_ending = run.has_ended and all(view.state is None for view in run.views)
    failed = [view for view in wrong if is_ours and view in late]
    if was_ending or not (failed or has_acted):
        return Act.CLEAR
    first = (failed or wrong)[0]
    if first.state == "success":
        return f"task {first.name} was marked a success and has not run"
    return f"task {first.name} is {first.state} after try {first.try_number}"


def _is_done(view: TaskView, run: DagRun, late: Collection[TaskView]) -> bool:
    """Whether an instance has done its work; a mapped task may skip some of its instances."""
    if view.state == "skipped":
        return any(one.state == "success" for one in run.views if one.task_id == view.task_id)
    return view.state == "success" and view in late
