"""Runs each attempt as tasks of a DAG run in Airflow 3: a new run, or a cleared one.

Airflow itself holds what was begun: in the id of a created run, and in notes on task instances that
were cleared or adopted. So any machine can find it, and every step may be repeated after a crash
between two requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import requests

from lineage_backfill import redaction
from lineage_backfill.engines.airflow.active import live_keys
from lineage_backfill.engines.airflow.ahead import ListsAhead
from lineage_backfill.engines.airflow.api import AirflowApi, segment
from lineage_backfill.engines.airflow.dag import (
    Dag,
    active_backfill,
    read_dag,
    refuse_backfill,
    refuse_unready,
)
from lineage_backfill.engines.airflow.slice import (
    PREFIX,
    Act,
    Mark,
    Slice,
    Step,
    TaskView,
    choose,
    decide,
    in_force,
    slice_of,
    spec_in,
    tries_of,
    views_of,
)
from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.runtime import reconcile
from lineage_backfill.engines.seconds import check_seconds
from lineage_backfill.errors import (
    ConfigError,
    EngineError,
    EngineRefusalError,
    ServiceUnreachableError,
    UnfitRunError,
)
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import KeySet, render
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, Engine, EngineRun, Origin, Outcome
from lineage_backfill.project.declarations import DagTasks
from lineage_backfill.typed import check_members

_log = logging.getLogger(__name__)
#: How long a new run waits in Airflow while its other tasks are marked.
HOLD = timedelta(seconds=60)
_ROUNDS = 4  # reads of a run that others change meanwhile
_OF_A_KEY = 100  # the newest runs of a key that are read
_CONFLICT = requests.codes.conflict


@dataclass(eq=False)
class _Attempt:
    files: AttemptFiles
    spec: Mapping[str, Any]
    task: DagTasks
    slice: Slice
    mark: Mark
    run: Mapping[str, Any] | None = None
    views: Sequence[TaskView] = ()
    others: Mapping[str, Sequence[TaskView]] = field(default_factory=dict)
    along: tuple[str, ...] = ()  # tasks of later runs, started together with its own
    skipped: tuple[str, ...] = ()  # tasks that its own wait for, skipped without a try
    is_cancelled: bool = False
    is_new: bool = True
    is_first: bool = False  # no process has begun it before
    seen: float = field(default_factory=time.monotonic)  # when it was polled last
    busy: threading.RLock = field(default_factory=threading.RLock)

    @property
    def handle(self) -> str:
        return str(self.files.spec_path)

    @property
    def started(self) -> DagTasks:
        """The tasks that are started at once."""
        return replace(self.task, tasks=(*self.task.tasks, *self.along))

    @property
    def place(self) -> tuple[str, str]:
        """The DAG and the id of the run."""
        return self.task.dag, self.run["dag_run_id"] if self.run else ""

    @property
    def began(self) -> datetime:
        """When the first of its tasks started, by Airflow's clock."""
        starts = (view.started for view in self.views if view.started is not None)
        return min(starts, default=self.mark.since)

    @property
    def waits(self) -> bool:
        """Whether a task has not started, which the state of its run may explain."""
        return len(self.views) < len(self.task.tasks) or any(one.is_waiting for one in self.views)


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowSettings:
    """The settings of the engine in the project file.

    `url` is that of the api-server. The engine logs in as `username` with `password`, or with a
    `token`. It polls all running attempts together every `poll` seconds; `timeout` is that of one
    request, in seconds. `undo` states that tasks use the run spec in the conf of their run, as
    `spark_runtime` does with `--airflow-run`.
    """

    url: str
    username: str = ""
    password: str = ""
    token: str = ""
    poll: float = 5
    timeout: float = 30
    undo: bool = False

    def __post_init__(self) -> None:
        check_members(self)
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"`url` is {self.url!r}, and must begin with http:// or https://")
        if not (self.token or (self.username and self.password)):
            raise ConfigError(
                "the engine airflow needs `username` and `password`, or `token`",
                hint='Add a reference to its table, for example password = "env:AIRFLOW_PASSWORD".',
            )
        check_seconds("poll", self.poll)
        check_seconds("timeout", self.timeout)


class AirflowEngine(Engine):
    """Runs jobs as Airflow tasks; takes the members of AirflowSettings.

    `tasks` returns the tasks of a job, `calendar` its run calendar.
    """

    is_shared = True

    def __init__(
        self,
        *,
        project: Path,
        state_dir: Path,
        tasks: Callable[[JobRef], DagTasks | None] = lambda _job: None,
        calendar: Callable[[JobRef], Calendar | None] = lambda _job: None,
        **settings: Any,
    ) -> None:
        given = AirflowSettings(**settings)
        self._api = AirflowApi(
            given.url,
            username=given.username,
            password=given.password,
            token=given.token,
            timeout=given.timeout,
        )
        self._tasks = tasks
        self._calendar = calendar
        self._poll = given.poll
        self.can_undo = given.undo
        self._dags: dict[str, Dag] = {}
        self._frames: dict[DagTasks, DagTasks] = {}
        self._upstream: dict[str, Sequence[str]] = {}
        self._planned: dict[tuple[str, Slice], dict[str, DagTasks]] = {}
        self._ahead = ListsAhead(self._api)
        self._is_open = False
        self._watched: dict[str, _Attempt] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._runs: dict[str, EngineRun] = {}
        self._listener: Callable[[str], None] = lambda _handle: None
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        self._lock = threading.Lock()

    # The port

    def open(self) -> None:
        """Log in once; raises EngineError or ServiceUnreachableError."""
        if not self._is_open:
            self._api.refuse_other_versions()
            self._api.get("/dags", {"limit": 1})
            self._is_open = True

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Refuse runs that Airflow cannot run, or would mark as successful without running them."""
        self._upstream |= {run.id: run.upstream for run in runs}
        self._dags.clear()
        self._frames.clear()
        for task in {self._task(run.job) for run in runs}:
            refuse_unready(self._api, self._dag(task))
            if backfill := active_backfill(self._api, task.dag):
                refuse_backfill(backfill)
        self._planned.clear()
        self._ahead.clear()
        now = self._api.now()
        keyed = set[tuple[str, JobRef]]()
        for run in runs:
            task = self._task(run.job)
            dag, slice_ = self._dag(task), self._slice(task, spec_of(run))
            dag.refuse_slice(task, slice_, now)
            self._ahead.plan(dag.id, slice_)
            if slice_.logical_date is not None:
                self._planned.setdefault((dag.id, slice_), {})[run.id] = task
            if slice_.key is not None and (dag.id, run.job) not in keyed:
                dag.refuse_key(self._api, slice_.key)
                keyed.add((dag.id, run.job))

    def live(self, job: JobRef) -> KeySet | None:
        """Return the keys of queued and running DAG runs.

        Raises UnfitRunError for a DAG that `check` refuses, also after a wait.
        """
        calendar = self._calendar(job)
        if calendar is None:
            return None
        task = self._task(job)
        if task.dag not in self._dags:
            self.open()
            refuse_unready(self._api, self._dag(task))
        kind = self._dag(task).kind(task)
        return render(calendar, live_keys(self._api, job, task, kind, calendar))

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        """Start the tasks, or follow the running ones; raises EngineError."""
        files = AttemptFiles(spec_path)
        files.check_token(token)
        handle = str(spec_path)
        if handle in self._watched:
            return handle
        if handle in self._outcomes:
            self._listener(handle)
            return handle
        one = self._attempt(files)
        one.is_first = files.claimed_by() is None
        files.claim({"engine": "airflow", "since": one.mark.since.isoformat()})
        self._begin(one)
        return handle

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of an attempt that this process began, or that Airflow knows."""
        files = AttemptFiles(spec_path)
        if not files.has_token(token):
            return None
        handle = str(spec_path)
        if handle in self._watched or handle in self._outcomes:
            return handle
        one = self._attempt(files)
        if files.claimed_by() is None and not self._is_known(one) and files.give_up():
            return None
        with self._failed(one):
            self._begin(one)
        return handle

    def poll(self, handle: str) -> Outcome:
        if handle in self._outcomes:
            return self._outcomes[handle]
        one = self._watched.get(handle)
        if one is None:
            return Outcome(state=AttemptState.LOST, error="not followed by this engine")
        waits = not any(view.state not in (None, "scheduled", "queued") for view in one.views)
        return Outcome(state=AttemptState.QUEUED if waits else AttemptState.RUNNING)

    def identify(self, handle: str) -> EngineRun | None:
        return self._runs.get(handle)

    def cancel(self, handle: str) -> None:
        """Stop the tasks that this run of the plan started in Airflow, and no others."""
        one = self._watched.get(handle)
        if one is None:
            return
        with one.busy:
            one.is_cancelled = True
            run = self._look(one)
            if run is None or not one.mark.owns(run, one.views):
                said = _LEFT if run is not None else "nothing had started in Airflow"
                self._finish(one, Outcome(state=AttemptState.CANCELLED, error=said))
                return
            path = _run_path(run)
            if run["dag_run_id"] == one.mark.run_id:
                self._api.patch(f"{path}?update_mask=state", {"state": "failed"})
                return
            for view in one.views:
                if view.is_active:
                    where = f"{path}/taskInstances/{segment(view.task)}?update_mask=new_state"
                    self._api.patch(where, {"new_state": "failed"})

    def pack(self, spec_path: Path) -> None:
        AttemptFiles(spec_path).pack()

    def close(self) -> None:
        self._closing.set()
        self._api.close()

    # An attempt in Airflow

    def _task(self, job: JobRef) -> DagTasks:
        found = self._tasks(job)
        if found is None:
            raise UnfitRunError(
                f"job {job.name} has no Airflow task",
                hint=f'Name its DAG and task in the [[job]] "{job.name}" of the project file:'
                ' dag = "DAG_ID" and task = "TASK_ID".',
            )
        return found

    def _dag(self, task: DagTasks) -> Dag:
        if task.dag not in self._dags:
            self._dags[task.dag] = read_dag(self._api, task.dag)
        return self._dags[task.dag]

    def _attempt(self, files: AttemptFiles) -> _Attempt:
        spec = files.spec()
        task = self._task(JobRef(spec["job"]["namespace"], spec["job"]["name"]))
        mark = Mark.from_spec(spec, self._since(files, spec))
        return _Attempt(files, spec, task, self._slice(task, spec), mark)

    def _slice(self, task: DagTasks, spec: Mapping[str, Any]) -> Slice:
        kind = self._dag(task).kind(task)
        if spec.get("undo") and kind != "conf":
            raise UnfitRunError(
                f"{spec['job']['name']} cannot be undone: with slice {kind} it would run again",
                hint='Only runs with `slice = "conf"` can be undone.',
            )
        return slice_of(kind, spec)

    def _since(self, files: AttemptFiles, spec: Mapping[str, Any]) -> datetime:
        """Return when the inputs of an attempt were written, by Airflow's clock; now if unknown."""
        claim = files.claimed_by()
        if claim:
            return datetime.fromisoformat(claim["since"])
        upstream = self._upstream.get(spec.get("run_id", ""), ())
        ends = [_ended(files, run_id) for run_id in upstream]
        known = [end for end in ends if end is not None]
        return max(known) if ends and len(known) == len(ends) else self._api.now()

    def _along(self, one: _Attempt) -> tuple[str, ...]:
        """Return the tasks of the later runs that Airflow can start by itself, in order.

        They belong to the same DAG run, and wait only for this run and its own upstream runs.
        """
        last_id, last = str(one.spec["run_id"]), one.task
        done, todo, tasks = set[str](), [last_id], set(one.task.tasks)
        while todo:
            done.add(name := todo.pop())
            todo += [other for other in self._upstream.get(name, ()) if other not in done]
        dag, left = self._dag(one.task), self._planned.get((one.task.dag, one.slice), {})

        def fits(run_id: str, task: DagTasks) -> bool:
            upstream = {*self._upstream.get(run_id, ())}
            is_next = run_id not in done and last_id in upstream and upstream <= done
            return is_next and tasks.isdisjoint(task.tasks) and dag.follows(task, last, tasks)

        while found := next((name for name, task in left.items() if fits(name, task)), None):
            last_id, last = found, left[found]
            done.add(found)
            tasks |= {*last.tasks}
        return tuple(sorted(tasks - {*one.task.tasks}))

    # Reading Airflow

    def _is_known(self, one: _Attempt) -> bool:
        run = self._look(one)
        return run is not None and any(one.mark.before(run, view) is not None for view in one.views)

    def _look(self, one: _Attempt) -> Mapping[str, Any] | None:
        """Return the current run of an attempt's slice, with `views` of its wanted tasks."""
        listed = self._ahead.runs(one.task.dag, one.slice.logical_date) if one.is_first else None
        runs, every = self._read(one, listed)
        if listed and not _have_ended(every[listed[0]["dag_run_id"]], one.task):
            runs, every = self._read(one, None)  # the list may be out of date
        views = {
            name: [view for view in of if view.task in one.task.tasks] for name, of in every.items()
        }
        one.run = choose(runs, views, one.mark)
        one.views = () if one.run is None else views[one.run["dag_run_id"]]
        held = () if one.run is None else every[one.run["dag_run_id"]]
        along = self._along(one)
        if one.run is not None and one.run["dag_run_id"] != one.mark.run_id:
            free = {view.task for view in held if not view.is_active}
            along = along if free.issuperset(along) else ()
        one.along = along
        above = self._dag(one.task).above(one.started.tasks)
        one.skipped = tuple(view.task for view in held if view.task in above and view.was_skipped)
        one.others = {
            run["dag_run_id"]: in_force(run, views[run["dag_run_id"]])
            for run in runs
            if run is not one.run
        }
        if one.run is not None:
            self._identified(one, one.mark.origin(one.run, one.views))
        return one.run

    def _read(
        self, one: _Attempt, listed: Sequence[Mapping[str, Any]] | None
    ) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Sequence[TaskView]]]:
        """Return the runs of an attempt's slice, and by run id the tasks that matter to it."""
        runs = self._find_runs(one, listed)
        names = [run["dag_run_id"] for run in runs]
        every: dict[str, Sequence[TaskView]] = dict.fromkeys(names, ())
        dag, wanted = self._dag(one.task), (*one.task.tasks, *self._along(one))
        if runs:
            tasks = [*wanted, *dag.above(wanted)]
            found = self._ahead.tasks(dag.id, one.slice.key, runs, tasks) if one.is_first else None
            if found is None:
                found = list(self._api.task_instances([dag.id], names, tasks))
            every |= {name: of for (_, name), of in views_of(found).items()}
        return runs, every

    def _identified(self, one: _Attempt, origin: Origin | None) -> None:
        """Store what an attempt runs as, and notify the listener if it changed."""
        if one.run is None or origin is None:
            return
        found = EngineRun(origin=origin, id=_name(one.run))
        if self._runs.get(one.handle) != found:
            self._runs[one.handle] = found
            if not one.is_new:
                self._listener(one.handle)

    def _find_runs(
        self, one: _Attempt, listed: Sequence[Mapping[str, Any]] | None
    ) -> Sequence[Mapping[str, Any]]:
        """Return the runs of an attempt's slice, newest first; a partition key can have several."""
        runs = f"/dags/{segment(one.task.dag)}/dagRuns"
        wanted = one.slice
        found = list(listed or ())
        if wanted.logical_date is not None and listed is None:
            at = wanted.logical_date.isoformat()
            query = {"logical_date_gte": at, "logical_date_lte": at}
            found = self._api.get(runs, query)["dag_runs"]
        elif wanted.key is not None:
            query = {"partition_key_prefix_pattern": wanted.key, "order_by": "-run_after"}
            of_key = (run for run in self._api.listed(runs, query, "dag_runs") if wanted.fits(run))
            found = list(islice(of_key, _OF_A_KEY))
        if not found and wanted == Slice():
            own = self._api.find(f"{runs}/{one.mark.run_id}")
            found = [] if own is None else [own]
        for run in found:
            if not wanted.fits(run):
                raise EngineError(
                    f"run {run['dag_run_id']} of DAG {one.task.dag} covers "
                    f"{run['data_interval_start']} .. {run['data_interval_end']}, not "
                    f"{wanted.start:%FT%TZ} .. {wanted.end:%FT%TZ}",
                    hint="Delete it in Airflow if it is wrong, or correct `slice` of the job.",
                )
        return found

    # The next step

    def _begin(self, one: _Attempt) -> None:
        """Take the first steps; the watcher handles whatever is uncertain afterwards."""
        with self._lock:
            self._watched[one.handle] = one
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="airflow", daemon=True)
                self._watcher.start()
        try:
            self._advance(one)
        except ServiceUnreachableError as error:
            # The request may have arrived: only a later read can tell.
            _log.warning("%s; looking for %s again", error, one.mark.run_id)
        except EngineError:
            self._unwatch(one)
            raise
        one.is_new = False

    def _advance(self, one: _Attempt) -> None:
        with one.busy:
            for _ in range(_ROUNDS):
                if one.handle not in self._watched or one.is_cancelled:
                    return
                run = self._look(one)
                step = decide(run, one.views, one.task, one.mark, one.others)
                if self._done(one, step):
                    return

    def _done(self, one: _Attempt, step: Step) -> bool:
        """Take a step; False if Airflow's state had changed and must be read again."""
        try:
            if step.act is Act.CREATE:
                self._create(one)
            elif step.act in (Act.CLEAR, Act.ADOPT):
                assert one.run is not None
                self._refuse_parameters(one)
                if step.act is Act.CLEAR:
                    self._clear(one, one.run, step.text)
                else:
                    self._adopt(one, one.run, step.text)
            else:
                self._hold(one)
                self._settle(one, step)
        except EngineRefusalError as error:
            if error.status != _CONFLICT:
                raise
            return False
        return True

    def _create(self, one: _Attempt) -> None:
        wanted = one.slice
        held = bool(self._dag(one.task).others(one.started))
        body: dict[str, Any] = {
            "dag_run_id": one.mark.run_id,
            "logical_date": wanted.logical_date and wanted.logical_date.isoformat(),
            "conf": _conf(one.spec),
            "note": one.mark.run_note,
        }
        if wanted.start is not None and wanted.end is not None:
            body["data_interval_start"] = wanted.start.isoformat()
            body["data_interval_end"] = wanted.end.isoformat()
        if wanted.key is not None:
            body["partition_key"] = wanted.key
        if held:
            body["run_after"] = (self._api.now() + HOLD).isoformat()
        run = self._api.post(f"/dags/{segment(one.task.dag)}/dagRuns", body)
        one.run, one.views = run, ()
        self._claim(one)
        self._identified(one, Origin.CREATED)
        if not wanted.fits(run):
            self._api.patch(f"{_run_path(run)}?update_mask=state", {"state": "failed"})
            raise EngineError(
                f"Airflow created run {run['dag_run_id']} for another interval than requested",
                hint="Check the timetable of the DAG, and `slice` of the job.",
            )
        self._hold(one)

    def _hold(self, one: _Attempt) -> None:
        """Mark the unwanted tasks of a new run before it starts."""
        run = one.run
        if run is None or run["dag_run_id"] != one.mark.run_id or run["state"] != "queued":
            return
        dag = self._dag(one.task)
        if dag.others(one.started):
            self._mark_tasks(run, dag.others(self._framed(one.started, run)))

    def _framed(self, started: DagTasks, run: Mapping[str, Any]) -> DagTasks:
        """Return tasks with their setups and teardowns: only a clear names those."""
        if started not in self._frames:
            body = {"dag_run_id": run["dag_run_id"], "task_ids": list(started.tasks)}
            body |= {"dry_run": True, "only_failed": False}
            found = self._api.post(f"/dags/{segment(started.dag)}/clearTaskInstances", body)
            named = {view["task_id"] for view in found["task_instances"]}
            tasks = dict.fromkeys([*started.tasks, *sorted(named)])
            self._frames[started] = replace(started, tasks=tuple(tasks))
        return self._frames[started]

    def _mark_tasks(self, run: Mapping[str, Any], states: Mapping[str, str]) -> None:
        entities = [{"task_id": task, "new_state": state} for task, state in states.items()]
        if entities:
            actions = [
                {"action": "update", "entities": entities, "action_on_non_existence": "skip"}
            ]
            self._api.patch(f"{_run_path(run)}/taskInstances", {"actions": actions})

    def _clear(self, one: _Attempt, run: Mapping[str, Any], note: str) -> None:
        self._refuse_new_tasks(one, run)
        self._claim(one, note=note)
        self._forget_jobs(one, run)
        self._unskip(one, run)
        answer = self._api.post(
            f"/dags/{segment(one.task.dag)}/clearTaskInstances",
            {
                "dag_run_id": run["dag_run_id"],
                "task_ids": list(one.started.tasks),
                "dry_run": False,
                "only_failed": False,
                "reset_dag_runs": True,
                "prevent_running_task": True,
                "note": note,
            },
        )
        self._identified(one, Origin.RERUN)
        cleared = {view["task_id"] for view in answer["task_instances"]}
        if missing := [task for task in one.task.tasks if task not in cleared]:
            raise EngineError(
                f"Airflow cleared no task {missing[0]} of run {run['dag_run_id']}",
                hint="Check `task` of the job, and that the DAG still has it.",
            )

    def _refuse_new_tasks(self, one: _Attempt, run: Mapping[str, Any]) -> None:
        """Raise EngineError for a run older than some tasks of its DAG, which a clear would run."""
        dag = self._dag(one.task)
        if not dag.has_changed_since(run):
            return
        found = self._api.task_instances([dag.id], [run["dag_run_id"]])
        known = {view["task_id"] for view in found}.union(one.started.tasks)
        planned = self._planned.get((dag.id, one.slice), {}).values()
        if new := sorted(dag.tasks.keys() - known.union(*(task.tasks for task in planned))):
            raise EngineError(
                f"run {run['dag_run_id']} of DAG {dag.id} is older than task {new[0]}: clearing it"
                " would also run that one",
                hint="Let Airflow run that task there first, or delete the DAG run: this engine"
                " then creates it, without other tasks.",
            )

    def _forget_jobs(self, one: _Attempt, run: Mapping[str, Any]) -> None:
        """Delete the jobs that tasks have stored: a cleared task would count one as its own.

        Those of an earlier attempt of the same run remain, since they may still be running.
        """
        has_failed = any(view.state != "success" for view in one.views)
        if has_failed and one.mark.owns(run, one.views):
            return
        for task in self._framed(one.started, run).tasks:
            where = f"{_run_path(run)}/taskInstances/{segment(task)}/state-store"
            self._api.delete(where, {"all_map_indices": "true"})

    def _unskip(self, one: _Attempt, run: Mapping[str, Any]) -> None:
        """Mark tasks that a backfill skipped in its own run, so that later tasks do not skip."""
        if run["dag_run_id"].startswith(PREFIX):
            self._mark_tasks(run, dict.fromkeys(one.skipped, "success"))

    def _adopt(self, one: _Attempt, run: Mapping[str, Any], note: str) -> None:
        self._claim(one, note=note)
        for task in one.task.tasks:
            where = f"{_run_path(run)}/taskInstances/{segment(task)}?update_mask=note"
            self._api.patch(where, {"note": note})
        one.views = [replace(view, note=note) for view in one.views]
        self._identified(one, one.mark.origin(run, one.views))

    def _claim(self, one: _Attempt, **more: Any) -> None:
        run_id = one.run and one.run["dag_run_id"]
        known = {**(one.files.claimed_by() or {}), "engine": "airflow", "run": run_id, **more}
        one.files.claim({"since": one.mark.since.isoformat(), **known})

    def _refuse_parameters(self, one: _Attempt) -> None:
        given = one.spec.get("parameters")
        if given and one.run and spec_in(one.run).get("parameters") != given:
            raise EngineError(
                f"run {one.run['dag_run_id']} exists already, and Airflow passes no parameters to"
                " a run that it repeats",
                hint="Run it without --parameter, or delete that run in Airflow first.",
            )

    # Outcomes

    def _watch(self) -> None:
        said = ""
        while not self._closing.wait(self._poll):
            with self._lock:
                # What is read while an attempt begins is out of date once it has begun.
                under_way = [one for one in self._watched.values() if not one.is_new]
            try:
                self._look_at(under_way)
                said = ""
            except (EngineError, ServiceUnreachableError) as error:
                if said != str(error):
                    said = str(error)
                    _log.warning("%s; retrying every %g s. %s", said, self._poll, error.hint)

    def _look_at(self, under_way: Sequence[_Attempt]) -> None:
        """Poll all attempts with at most two requests; read uncertain ones in full."""
        for one in under_way:
            one.seen = time.monotonic()
        known = [one for one in under_way if one.run is not None]
        found: Mapping[tuple[str, str], Sequence[TaskView]] = {}
        if known:
            dags = sorted({one.task.dag for one in known})
            runs = sorted({one.run["dag_run_id"] for one in known if one.run})
            tasks = sorted({task for one in known for task in one.task.tasks})
            found = views_of(self._api.task_instances(dags, runs, tasks))
        for one in known:
            views = found.get(one.place, ())
            one.views = [view for view in views if view.task in one.task.tasks]
        waiting = sorted({one.task.dag for one in known if one.waits})
        active = {
            (run["dag_id"], run["dag_run_id"]): str(run["state"])
            for run in (self._api.active_runs(waiting) if waiting else ())
        }
        for one in under_way:
            if self._closing.is_set():
                return
            self._look_at_one(one, active.get(one.place) if one.waits else "running")

    def _look_at_one(self, one: _Attempt, state: str | None) -> None:
        """Take the next step; `state` is that of the run, None if it is not active."""
        with one.busy, self._failed(one):
            if one.handle not in self._watched:
                return
            if one.run is None or (state is None and not one.is_cancelled):
                self._advance(one)
                return
            step = decide({**one.run, "state": state or "failed"}, one.views, one.task, one.mark)
            if step.act in (Act.CLEAR, Act.ADOPT) and not one.is_cancelled:
                self._advance(one)
            else:
                self._settle(one, step)

    @contextmanager
    def _failed(self, one: _Attempt) -> Iterator[None]:
        """Fail an attempt that Airflow refuses; without an answer, the attempt continues."""
        try:
            yield
        except EngineError as error:
            outcome = Outcome(state=AttemptState.FAILED, error=error.full_text)
            self._finish(one, outcome)

    def _settle(self, one: _Attempt, step: Step) -> None:
        if step.act is Act.FAIL:
            error, left = self._keep_log(one), one.files.outcome()
            if one.is_cancelled:
                outcome = Outcome(state=AttemptState.CANCELLED, error="stopped by the user")
            elif left is not None and left.state is AttemptState.FAILED:
                outcome = replace(left, error=f"{step.text}: {left.error}")
            else:
                said = f"{step.text}: {error}" if error else step.text
                outcome = Outcome(state=AttemptState.FAILED, error=said)
            self._finish(one, outcome)
        elif step.act is Act.SUCCEED:
            ends = [view.ended for view in one.views if view.ended is not None]
            if ends:
                self._claim(one, ended=max(ends).isoformat())
            self._keep_log(one)
            self._finish(one, self._succeeded(one))

    def _succeeded(self, one: _Attempt) -> Outcome:
        """Return what tasks did that have succeeded, as far as `spark_runtime` was in them.

        It leaves a result file, or commits of the attempt or of a scheduled run.
        """
        found = one.files.outcome() or reconcile(one.files, one.began)
        if found is None and one.spec.get("undo"):
            said = "the task has left no result of an undo: check that it passes --airflow-run"
            return Outcome(state=AttemptState.FAILED, error=said)
        return found or Outcome(state=AttemptState.SUCCEEDED)

    def _finish(self, one: _Attempt, outcome: Outcome) -> None:
        self._unwatch(one)
        if one.handle not in self._outcomes:
            self._outcomes[one.handle] = outcome
            self._listener(one.handle)

    def _unwatch(self, one: _Attempt) -> None:
        with self._lock:
            self._watched.pop(one.handle, None)

    def _keep_log(self, one: _Attempt) -> str:
        """Write the log next to the run spec; return the last error in it."""
        text = self._log(one)
        one.files.add_to_log(text)
        errors = [line for line in text.splitlines() if line.startswith(_RAISED)]
        return errors[-1].removeprefix(_RAISED) if errors else ""

    def _log(self, one: _Attempt) -> str:
        """Return the logs of the attempt's tries, without those that cannot be read."""
        run = one.run
        if run is None:
            return ""
        lines: list[str] = []
        for view, number in tries_of(run, one.views, one.mark):
            query = {"full_content": "true", "map_index": view.index}
            place = f"{_run_path(run)}/taskInstances/{segment(view.task)}/logs/{number}"
            with suppress(EngineError, ServiceUnreachableError):
                content = self._api.get(place, query)["content"]
                part = f"[{view.index}]" if view.index >= 0 else ""
                lines.append(f"task {view.task}{part}, try {number}:")
                lines += (line for entry in content for line in _lines(entry))
        return "".join(f"{line}\n" for line in lines)


#: How the line of an exception begins.
_RAISED = "raised "
_LEFT = "left running: someone else started it in Airflow"


def _name(run: Mapping[str, Any]) -> str:
    """Return DAG/run, as people look it up; a DAG id has no slash."""
    return f"{run['dag_id']}/{run['dag_run_id']}"


def _have_ended(views: Sequence[TaskView], task: DagTasks) -> bool:
    """Whether these are views of all tasks of a job, and of ended ones."""
    return {*task.tasks} <= {view.task for view in views if not view.is_active}


def _run_path(run: Mapping[str, Any]) -> str:
    return f"/dags/{segment(run['dag_id'])}/dagRuns/{segment(run['dag_run_id'])}"


def _conf(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conf of a new run; raises EngineError for secrets, as every user can read it."""
    given = {"parameters": spec.get("parameters") or {}}
    if redaction.document(given) != given:
        raise UnfitRunError(
            "a secret parameter cannot be passed to Airflow: everyone who sees the run can read it",
            hint="Keep it in a Connection or Variable of Airflow.",
        )
    (key,) = spec["keys"]
    return {"lineage_backfill": {**key, "token": spec["token"], "spec": dict(spec)}}


def _lines(entry: Any) -> Iterator[str]:
    """Yield the lines of an entry of a log, and of the exception in it."""
    if isinstance(entry, str):
        yield entry
        return
    yield f"{entry.get('timestamp', '')} {entry.get('event', '')}".strip()
    for error in entry.get("error_detail") or ():
        for frame in error.get("frames") or ():
            yield f"  {frame.get('filename')}:{frame.get('lineno')} in {frame.get('name')}"
        yield f"{_RAISED}{error.get('exc_type')}: {error.get('exc_value')}"


def _ended(files: AttemptFiles, run_id: str) -> datetime | None:
    """Return when an attempt of the same backfill succeeded in Airflow."""
    ends = []
    for path in files.spec_path.parent.glob(f"{run_id}-*"):
        number = path.name.removeprefix(f"{run_id}-").partition(".")[0]
        claim = AttemptFiles(path.with_name(f"{run_id}-{number}.spec.json")).claimed_by() or {}
        ends += [datetime.fromisoformat(claim["ended"])] if "ended" in claim else []
    return max(ends, default=None)
