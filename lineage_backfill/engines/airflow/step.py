"""What a DAG run shows of a job's tasks, and what an attempt does next; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from lineage_backfill.engines.airflow.api import segment
from lineage_backfill.engines.airflow.slices import instant

_WAITING = (None, "scheduled", "queued")
_BEGUN = (
    *("running", "restarting", "deferred", "up_for_retry", "up_for_reschedule", "awaiting_input"),
)
#: States of DAG runs that have ended.
ENDED = ("success", "failed")


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task instance as Airflow shows it; `index` is that of a mapped one, else -1."""

    task: str
    index: int
    state: str | None
    tries: int
    started: datetime | None
    ended: datetime | None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> TaskView:
        """Read a task instance from an answer."""
        return cls(
            task=answer["task_id"],
            index=answer.get("map_index", -1),
            state=answer["state"],
            tries=answer["try_number"],
            started=instant(answer["start_date"]),
            ended=instant(answer["end_date"]),
        )

    @property
    def name(self) -> str:
        """The task, with the index of a mapped one."""
        return self.task if self.index < 0 else f"{self.task}[{self.index}]"

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
        states = _BEGUN if self.has_ended else (*_WAITING, *_BEGUN)
        return [view for view in self.views if view.state in states]

    def of(self, tasks: Collection[str]) -> DagRun:
        """Return the run with the instances of some tasks alone."""
        return DagRun(self.facts, [view for view in self.views if view.task in tasks])


def runs_with(
    runs: Iterable[Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]
) -> list[DagRun]:
    """Return runs with the task instances of an answer."""
    found: dict[tuple[str, str], list[TaskView]] = {}
    for one in answers:
        if one["state"] != "removed":
            found.setdefault((one["dag_id"], one["dag_run_id"]), []).append(TaskView.of(one))
    return [DagRun(run, found.get((run["dag_id"], run["dag_run_id"]), ())) for run in runs]


class Act(Enum):
    """The next action for an attempt."""

    CREATE = "create"
    CLEAR = "clear"
    WAIT = "wait"
    SUCCEED = "succeed"
    FAIL = "fail"


class Step(NamedTuple):
    """The next action, with its reason."""

    act: Act
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What of a run is the attempt's own.

    A try counts if it began after `since`; if the attempt has cleared or created the run, if it is
    later than the `tries` before that. `has_acted` states that this process has done so.
    """

    since: datetime
    tries: Mapping[str, int] | None = None
    has_acted: bool = False

    def counts(self, view: TaskView) -> bool:
        """Whether the last try of a task instance did the work of this attempt."""
        if self.tries is not None:
            return view.tries > self.tries.get(view.name, 0)
        return view.started is not None and view.started > self.since


def decide(run: DagRun | None, tasks: Collection[str], mark: Mark) -> Step:
    """Return the next step of an attempt of a job with these tasks."""
    if run is None:
        return Step(Act.CREATE)
    missing = sorted({*tasks} - {view.task for view in run.views})
    if run.active or (missing and not run.has_ended):
        return Step(Act.WAIT)
    if missing:
        why = "it may lie before the task's start_date, or be of an older version of the DAG"
        text = f"run {run.id} ended {run.facts['state']} without task {missing[0]}: {why}"
        return Step(Act.FAIL, text)
    wrong = [view for view in run.views if not _is_done(view, run, mark)]
    if not wrong:
        return Step(Act.SUCCEED)
    was_ending = run.has_ended and all(view.state is None for view in run.views)
    broken = [view for view in wrong if mark.tries is not None and mark.counts(view)]
    if was_ending or not (mark.has_acted or broken):
        return Step(Act.CLEAR)
    first = (broken or wrong)[0]
    if first.state == "success":
        return Step(Act.FAIL, f"task {first.name} was marked a success and has not run")
    return Step(Act.FAIL, f"task {first.name} is {first.state} after try {first.tries}")


def _is_done(view: TaskView, run: DagRun, mark: Mark) -> bool:
    """Whether an instance has done its work; a mapped task may skip some of its instances."""
    if view.state == "skipped":
        return any(one.state == "success" for one in run.views if one.task == view.task)
    return view.state == "success" and mark.counts(view)
