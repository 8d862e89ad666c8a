"""The next step of an attempt, from its DAG run and task instances; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from lineage_backfill.engines.airflow.slices import instant

_WAITING = (None, "scheduled", "queued")
_ACTIVE = (
    *_WAITING,
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

    def is_active(self, run: Mapping[str, Any]) -> bool:
        """Whether it has not ended; what waits in a run that has ended never starts."""
        return self.state in (_ACTIVE if run["state"] not in ENDED else _ACTIVE[len(_WAITING) :])


def views_of(answers: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[TaskView]]:
    """Return the task instances that count in an answer, by DAG and run id."""
    found: dict[tuple[str, str], list[TaskView]] = {}
    for answer in answers:
        if answer["state"] != "removed":
            place = answer["dag_id"], answer["dag_run_id"]
            found.setdefault(place, []).append(TaskView.of(answer))
    return found


class Act(Enum):
    """The next action for an attempt."""

    CREATE = "create"
    CLEAR = "clear"
    WAIT = "wait"
    SUCCEED = "succeed"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Step:
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


def decide(
    run: Mapping[str, Any] | None,
    views: Sequence[TaskView],
    tasks: Collection[str],
    mark: Mark,
) -> Step:
    """Return the next step of an attempt; `views` are the job's task instances in the run."""
    if run is None:
        return Step(Act.CREATE)
    has_ended = run["state"] in ENDED
    missing = sorted({*tasks} - {view.task for view in views})
    if any(view.is_active(run) for view in views) or (missing and not has_ended):
        return Step(Act.WAIT)
    if missing:
        why = "it may lie before the task's start_date, or be of an older version of the DAG"
        return Step(
            Act.FAIL,
            f"run {run['dag_run_id']} ended {run['state']} without task {missing[0]}: {why}",
        )
    return _judged(views, mark, has_ended=has_ended)


def _judged(views: Sequence[TaskView], mark: Mark, *, has_ended: bool) -> Step:
    """Return the step for task instances that have all ended."""
    wrong = [view for view in views if not _is_done(view, views, mark)]
    if not wrong:
        return Step(Act.SUCCEED)
    was_ending = has_ended and all(view.state is None for view in views)
    broken = [view for view in wrong if mark.tries is not None and mark.counts(view)]
    if was_ending or not (mark.has_acted or broken):
        return Step(Act.CLEAR)
    first = (broken or wrong)[0]
    if first.state == "success":
        return Step(Act.FAIL, f"task {first.name} was marked a success and has not run")
    return Step(Act.FAIL, f"task {first.name} is {first.state} after try {first.tries}")


def _is_done(view: TaskView, views: Sequence[TaskView], mark: Mark) -> bool:
    """Whether an instance has done its work; a mapped task may skip some of its instances."""
    if view.state == "skipped":
        return any(one.state == "success" for one in views if one.task == view.task)
    return view.state == "success" and mark.counts(view)


def tries_of(views: Iterable[TaskView]) -> dict[str, int]:
    """Return the number of tries of each task instance."""
    return {view.name: view.tries for view in views}
