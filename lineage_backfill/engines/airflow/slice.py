"""An attempt in Airflow: its run and tasks, and the next step; pure.

Nothing here sends requests: the same answers from Airflow always give the same step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from lineage_backfill.errors import UnfitRunError
from lineage_backfill.ports import Origin
from lineage_backfill.project.declarations import DagTasks
from lineage_backfill.project.run_rules import read_length

#: Prefix of the run ids that this engine creates.
PREFIX = "lb__"
_SHIFTED = re.compile(r"logical_date\s*\+\s*(\S+)")
_MOST = 1000  # characters of a note
_LOGGED = 20  # instances of a mapped task whose logs are kept
#: How a note marks tasks that were already running: started by others, or by an earlier attempt.
_ADOPTED, _CONTINUED = "adopted", "continued"
#: Task states that are not final.
_WAITING = (None, "scheduled", "queued")
_ACTIVE = (
    *_WAITING,
    *("running", "restarting", "deferred", "up_for_retry", "up_for_reschedule", "awaiting_input"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What a run key means to a DAG; without `logical_date` and `key`, its run is found only by id.

    `start` and `end` are the interval of the run, None where Airflow needs none. Instants are aware
    and in UTC.
    """

    logical_date: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    key: str | None = None

    def fits(self, run: Mapping[str, Any]) -> bool:
        """Whether a run of Airflow covers this slice."""
        if self.key is not None:
            return run.get("partition_key") == self.key
        if self.start is None:
            return True
        return (
            instant(run.get("data_interval_start")) == self.start
            and instant(run.get("data_interval_end")) == self.end
        )


def slice_of(kind: str, spec: Mapping[str, Any]) -> Slice:
    """Return the slice of a run spec; raises UnfitRunError if it has none."""
    keys: Sequence[Mapping[str, Any]] = spec.get("keys") or []
    job = spec["job"]["name"]
    if len(keys) != 1:
        raise UnfitRunError(
            f"a run of job {job} has {len(keys)} keys, and a run of Airflow is for one",
            hint='Give the job `batch = "key"`.',
        )
    (key,) = keys
    return slice_for(kind, job, key["key"], instant(key.get("start")), instant(key.get("end")))


def slice_for(
    kind: str,
    job: str,
    label: str | Mapping[str, str],
    start: datetime | None,
    end: datetime | None,
) -> Slice:
    """Return the slice of a job's run key; raises UnfitRunError if it has none."""
    if kind == "conf":
        return Slice()
    if kind.startswith("partition_key"):
        if not isinstance(label, str):
            raise UnfitRunError(
                f"job {job} has keys of several dimensions, and a partition key of Airflow is one",
                hint='Give the job `slice = "conf"`.',
            )
        return Slice(key=written(label, kind.removeprefix("partition_key").strip()))
    if start is None or end is None:
        raise UnfitRunError(
            f"the keys of job {job} are not intervals of time",
            hint='Give the job `slice = "conf"`.',
        )
    if kind == "interval":
        return Slice(logical_date=start, start=start, end=end)
    return Slice(logical_date=start + shift(kind))


def no_slice(what: str, job: str = "") -> UnfitRunError:
    """Return the error for a DAG run with an unknown slice; `what` begins the sentence."""
    table = f'[[job]] "{job}"' if job else "[[job]]"
    return UnfitRunError(
        f"{what} which slice a run is for",
        hint=f'Declare it in the {table}: slice = "interval", "logical_date", "logical_date + 1d",'
        ' "partition_key" or "conf".',
    )


def spec_in(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the run spec in the conf of a run that this engine has created; else nothing."""
    found: Any = run.get("conf")
    for name in ("lineage_backfill", "spec"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def written(label: str, form: str) -> str:
    """Return a key in the format of a DAG: local time by strftime, with `{quarter}`.

    Raises UnfitRunError for a key without a time.

    >>> written("2024-06-15T14", "%Y-%m-%dT%H:%M:%S"), written("2024-W24", "%Y-%m-%d (W%V)")
    ('2024-06-15T14:00:00', '2024-06-10 (W24)')
    >>> written("2024-04-01", "%Y-Q{quarter}"), written("eu", "")
    ('2024-Q2', 'eu')
    """
    if not form:
        return label
    try:
        at = datetime.fromisoformat(label)
    except ValueError as error:
        raise UnfitRunError(
            f"the key {label} has no time that {form!r} could write",
            hint='Leave the format out of `slice`: "partition_key".',
        ) from error
    if at.tzinfo is not None and "%z" not in form:
        raise UnfitRunError(
            f"the key {label} is a repeated hour, which {form!r} cannot tell from the other",
            hint="Leave this key out, or use partition keys with %z.",
        )
    return at.strftime(form.replace("{quarter}", str((at.month + 2) // 3)))


def shift(kind: str) -> timedelta:
    """Return the time from the start of a key to its logical date.

    >>> str(shift("logical_date + 26h"))
    '1 day, 2:00:00'
    """
    found = _SHIFTED.fullmatch(kind)
    return (found and read_length(found[1])) or timedelta()


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task of a run as Airflow shows it; a mapped task has one instance in each of `parts`.

    `tries` and `before` of a mapped task are the sums of its instances: `before` counts the tries
    before the present ones.
    """

    task: str
    state: str | None
    tries: int
    note: str
    started: datetime | None
    ended: datetime | None
    index: int = -1
    parts: tuple[TaskView, ...] = ()

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> TaskView:
        """Read a task instance from an answer."""
        return cls(
            task=answer["task_id"],
            state=answer["state"],
            tries=answer["try_number"],
            note=answer["note"] or "",
            started=instant(answer["start_date"]),
            ended=instant(answer["end_date"]),
            index=answer.get("map_index", -1),
        )

    @classmethod
    def together(cls, parts: Sequence[TaskView]) -> TaskView:
        """Combine the instances of one task.

        It is running until all have ended, and failed if one has failed.
        """
        if len(parts) == 1:
            return parts[0]
        live = [one for one in parts if one.state != "removed"] or parts
        begun = [one.started for one in live if one.started and not one.is_waiting]
        ended = [one.ended for one in live if one.ended and not one.is_active]
        return cls(
            task=parts[0].task,
            state=_state_of(live),
            tries=sum(one.tries for one in parts),
            note=max((one.note for one in parts), key=len),  # an instance that was added has none
            started=min(begun, default=None),
            ended=max(ended, default=None),
            parts=tuple(sorted(parts, key=lambda one: one.index)),
        )

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return self.state in _ACTIVE

    @property
    def is_waiting(self) -> bool:
        """Whether its next try has not started."""
        return self.state in _WAITING

    @property
    def was_skipped(self) -> bool:
        """Whether it was skipped without a try."""
        return self.state == "skipped" and not self.tries

    @property
    def before(self) -> int:
        """The number of tries before the current one, which counts once it is scheduled."""
        if self.parts:
            return sum(one.before for one in self.parts)
        return self.tries if self.state in (None, "removed") else self.tries - 1

    @property
    def live(self) -> Sequence[TaskView]:
        """The instances that count; a mapped task may have had others, and may skip some."""
        return [one for one in self.parts if one.state not in ("removed", "skipped")] or [self]

    def has_run_since(self, before: int) -> bool:
        """Whether each instance has had a try after the first `before` ones."""
        return self.tries >= before + len(self.live)


def _state_of(parts: Sequence[TaskView]) -> str | None:
    active = [one for one in parts if one.is_active]
    if active:
        return active[0].state if all(one.is_waiting for one in active) else "running"
    states = {one.state for one in parts}
    broken = states - {"success", "skipped"}
    return min(broken, key=str) if broken else "success" if "success" in states else "skipped"


def views_of(answers: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[TaskView]]:
    """Return the tasks in an answer, by DAG and run id."""
    found: dict[tuple[str, str], dict[str, list[TaskView]]] = {}
    for answer in answers:
        tasks = found.setdefault((answer["dag_id"], answer["dag_run_id"]), {})
        tasks.setdefault(answer["task_id"], []).append(TaskView.of(answer))
    return {
        place: [TaskView.together(parts) for parts in tasks.values()]
        for place, tasks in found.items()
    }


class Act(Enum):
    """The next action for an attempt."""

    CREATE = "create"
    CLEAR = "clear"
    ADOPT = "adopt"
    WAIT = "wait"  # until a run that began too early has ended
    FOLLOW = "follow"  # it is running
    SUCCEED = "succeed"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Step:
    """The next step, with its reason or note."""

    act: Act
    text: str = ""


def in_force(run: Mapping[str, Any], views: Sequence[TaskView]) -> Sequence[TaskView]:
    """Return the task instances without those still waiting in a run that has ended."""
    if run["state"] not in ("success", "failed"):
        return views
    return [view for view in views if not view.is_waiting]


def decide(
    run: Mapping[str, Any] | None,
    views: Sequence[TaskView],
    task: DagTasks,
    mark: Mark,
    others: Mapping[str, Sequence[TaskView]] | None = None,
) -> Step:
    """Return the next step of an attempt from Airflow's state.

    `views` are the wanted task instances of the run, `others` those of other runs of the slice by
    run id: a partition key is not unique. Two never run at once, and a run that began before
    another one ended does not count.
    """
    beside = others or {}
    ends = [view.ended for of in beside.values() for view in of if view.ended is not None]
    step = _alone(run, views, task, replace(mark, since=max([mark.since, *ends])))
    if step.act in (Act.CLEAR, Act.ADOPT):
        for name, of in beside.items():
            if any(view.is_active for view in of):
                return Step(Act.WAIT, f"run {name} of the same key is under way")
    return step


def _alone(
    run: Mapping[str, Any] | None, views: Sequence[TaskView], task: DagTasks, mark: Mark
) -> Step:
    if run is None:
        return Step(Act.CREATE)
    found = {view.task: view for view in views}
    has_ended = run["state"] in ("success", "failed")
    if missing := [name for name in task.tasks if name not in found]:
        if not has_ended:
            return Step(Act.FOLLOW)
        return Step(
            Act.FAIL,
            f"run {run['dag_run_id']} ended {run['state']} without task {missing[0]}: it may lie "
            "before the task's start_date, or be of an older version of the DAG",
        )
    wanted = [found[name] for name in task.tasks]
    befores = [mark.before(run, view) for view in wanted]
    if None not in befores:
        if has_ended and all(view.state is None for view in wanted):
            # The run was ending when they were cleared, so they would never run.
            return Step(Act.CLEAR, mark.note(wanted))
        return _judged(run, wanted, [before or 0 for before in befores], has_ended=has_ended)
    return _not_begun(run, wanted, mark, has_ended=has_ended)


def _not_begun(
    run: Mapping[str, Any], wanted: Sequence[TaskView], mark: Mark, *, has_ended: bool
) -> Step:
    """Return the step for the wanted tasks of a run in which the attempt has not begun."""
    if any(view.is_active and not view.is_waiting and not mark.counts(view) for view in wanted):
        return Step(Act.WAIT, f"run {run['dag_run_id']} began before its inputs were written")
    if all(mark.will_count(view, has_ended=has_ended) for view in wanted):
        if run["dag_run_id"].startswith(PREFIX) and run["state"] == "queued":
            return Step(Act.WAIT, f"run {run['dag_run_id']} is held for other tasks")
        is_ours = mark.owns(run, wanted) or mark.shares(run, wanted)
        how = _CONTINUED if is_ours else _ADOPTED
        return Step(Act.ADOPT, mark.note(wanted, how))
    if any(view.is_active and not (view.state is None and has_ended) for view in wanted):
        return Step(Act.WAIT, f"some tasks of run {run['dag_run_id']} are under way")
    return Step(Act.CLEAR, mark.note(wanted))


def choose(
    runs: Sequence[Mapping[str, Any]], views: Mapping[str, Sequence[TaskView]], mark: Mark
) -> Mapping[str, Any] | None:
    """Return the run of a slice that the attempt has begun, else the first one.

    `views` are the wanted task instances of each run by its id.
    """
    for run in runs:
        of = views.get(run["dag_run_id"], ())
        if run["dag_run_id"] == mark.run_id or any(mark.before(run, one) is not None for one in of):
            return run
    return runs[0] if runs else None


@dataclass(frozen=True, slots=True)
class Mark:
    """Identifies an attempt in Airflow: by a run id, and in notes on task instances.

    A try counts if it started after `since`. `of` names the backfill and its run.
    """

    token: str
    since: datetime
    of: str

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], since: datetime) -> Mark:
        """Return the mark of the attempt of a run spec."""
        of = f"backfill {spec.get('backfill_id', '')}, run {spec['run_id']}"
        return cls(str(spec["token"]), since, of)

    @property
    def run_id(self) -> str:
        """The id of the run that the attempt creates."""
        return f"{PREFIX}{self.token}"

    def before(self, run: Mapping[str, Any], view: TaskView) -> int | None:
        """Return the number of the last try before the attempt's own, None if it has not begun."""
        if run["dag_run_id"] == self.run_id:
            return 0
        if self.token not in view.note:
            return None
        found = re.search(rf"(?:^| ){re.escape(view.task)}=(\d+)(?: |$)", view.note)
        return int(found[1]) if found else None

    def origin(self, run: Mapping[str, Any], views: Sequence[TaskView]) -> Origin | None:
        """Return who started the tasks that the attempt follows, None while there are none."""
        if run["dag_run_id"] == self.run_id:
            return Origin.CREATED
        if not views or any(self.before(run, view) is None for view in views):
            return None
        if any(f"{self.token} {_ADOPTED} " in view.note for view in views):
            return Origin.ADOPTED
        if any(f"{self.token} {_CONTINUED} " in view.note for view in views):
            is_new = self.shares(run) and not any(self.before(run, view) for view in views)
            return Origin.CREATED if is_new or self._made(run) else Origin.RERUN
        return Origin.RERUN

    def owns(self, run: Mapping[str, Any], views: Sequence[TaskView]) -> bool:
        """Whether this attempt, or an earlier one of the same run, started these tasks."""
        if self._made(run) or self.origin(run, views) is Origin.RERUN:
            return True
        notes = [view.note for view in views]
        return bool(notes) and all(
            note.endswith(self.of) and f" {_ADOPTED} " not in note for note in notes
        )

    def shares(self, run: Mapping[str, Any], views: Sequence[TaskView] = ()) -> bool:
        """Whether the same backfill created the run, or started these tasks and others."""
        backfill = self.of.rpartition(", run ")[0] + ", run "
        is_made = run["dag_run_id"].startswith(PREFIX) and backfill in (run.get("note") or "")
        started = bool(views) and all(backfill in view.note for view in views)
        return is_made or (started and not any(f" {_ADOPTED} " in view.note for view in views))

    def _made(self, run: Mapping[str, Any]) -> bool:
        name = run["dag_run_id"]
        is_ours = name.startswith(PREFIX) and (run.get("note") or "").endswith(self.of)
        return is_ours or name == self.run_id

    def counts(self, view: TaskView) -> bool:
        """Whether the current try of a task started after the inputs were written."""
        return view.started is not None and view.started > self.since

    def will_count(self, view: TaskView, *, has_ended: bool) -> bool:
        """Whether tasks started by others will do the work of this attempt."""
        return all(
            not has_ended
            if one.is_waiting
            else self.counts(one) and (one.is_active or one.state == "success")
            for one in view.live
        )

    @property
    def run_note(self) -> str:
        """The note on the run that the attempt creates."""
        return f"lineage-backfill: {self.of}"

    def note(self, views: Sequence[TaskView], how: str = "") -> str:
        """Return the note that marks task instances as those of the attempt.

        `how` distinguishes running tasks from cleared ones.
        """
        tries = " ".join(f"{view.task}={view.before if how else view.tries}" for view in views)
        note = f"lineage-backfill {self.token}{how and f' {how}'} after {tries} for {self.of}"
        if len(note) > _MOST:
            raise UnfitRunError(
                f"the names of {len(views)} tasks are too long for a note in Airflow",
                hint="Name fewer in `task` of the job.",
            )
        return note


def tries_of(
    run: Mapping[str, Any], views: Sequence[TaskView], mark: Mark
) -> Iterator[tuple[TaskView, int]]:
    """Yield the tries of an attempt with logs; of a mapped task the last, failed first."""
    for view in views:
        before = mark.before(run, view)
        if before is None:
            continue
        if not view.parts:
            yield from ((view, number) for number in range(before + 1, view.tries + 1))
        failed_first = sorted(view.parts, key=lambda one: (one.state == "success", one.index))
        yield from ((one, one.tries) for one in failed_first[:_LOGGED] if one.tries)


def _judged(
    run: Mapping[str, Any], wanted: Sequence[TaskView], befores: Sequence[int], *, has_ended: bool
) -> Step:
    for view, before in zip(wanted, befores, strict=True):
        if view.is_active:
            continue
        if view.state != "success":
            return Step(Act.FAIL, f"task {view.task} is {view.state} after try {view.tries}")
        if not view.has_run_since(before):
            return Step(Act.FAIL, f"task {view.task} was marked a success and has not run")
    if any(view.is_active for view in wanted):
        if has_ended and all(not view.is_active or view.state is None for view in wanted):
            left = next(view.task for view in wanted if view.is_active)
            return Step(Act.FAIL, f"run {run['dag_run_id']} ended and did not run task {left}")
        return Step(Act.FOLLOW)
    return Step(Act.SUCCEED)


def instant(text: Any) -> datetime | None:
    """Return an instant from an answer in UTC, None if absent."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None
