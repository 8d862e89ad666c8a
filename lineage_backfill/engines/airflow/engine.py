"""Runs each attempt as tasks of a DAG run in Airflow 3.

One rule: the DAG run of the slice is absent: it is created, and the whole DAG runs; it is there and
has ended: exactly the job's tasks are cleared; they are alive: their end is awaited, and counts if
they began after their inputs were written. What is an attempt's own stands in the run store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import convert

from lineage_backfill.engines.airflow.api import AirflowApi, AirflowSettings, segment
from lineage_backfill.engines.airflow.dag import Dag, pending, read_dag, refuse_account, runs_of
from lineage_backfill.engines.airflow.new_runs import NewRuns
from lineage_backfill.engines.airflow.slices import PREFIX, Slice, observed, slice_for
from lineage_backfill.engines.airflow.step import ENDED, Act, DagRun, TaskView, decide
from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.runtime import reconcile
from lineage_backfill.engines.watching import WatchedAttempt, WatchingEngine
from lineage_backfill.errors import (
    EngineError,
    EngineRefusalError,
    ServiceUnreachableError,
    UnfitRunError,
)
from lineage_backfill.lineage.inference.recorded import touched_keys
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING
from lineage_backfill.partitions.text import KeySet, render
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, EngineRun, Origin, Outcome
from lineage_backfill.project.declarations import DagTasks

_NEVER = datetime.min.replace(tzinfo=UTC)
_CHANGED = (404, 409)  # the run was deleted, created or started meanwhile


@dataclass(eq=False)
class _Attempt(WatchedAttempt):
    """One attempt; `floor` is the end of its upstream in Airflow, `since` that of all of it.

    Of the run that it follows, tries after `tries` count.
    """

    task: DagTasks
    slice: Slice
    since: datetime
    floor: datetime
    origin: Origin | None = None
    also_writes: Collection[DatasetRef] = ()
    run_id: str = ""
    tries: Mapping[str, int] = field(default_factory=dict)
    ended: datetime | None = None
    has_acted: bool = False
    run: DagRun | None = None
    awaits_since: float | None = None  # when it began to wait for a run that Airflow will start

    @property
    def has_begun(self) -> bool:
        return self.run is not None and any(view.has_begun for view in self.run.views)

    @property
    def own_id(self) -> str:
        """The id of the run that its backfill creates."""
        return self.slice.run_id(self.spec)

    @property
    def is_ours(self) -> bool:
        """Whether it has created or cleared the run, or was about to."""
        return self.origin in (Origin.CREATED, Origin.RERUN)

    def fits(self, run: Mapping[str, Any]) -> bool:
        """Whether a run is of this slice; of an asset, each run that is active or a late one."""
        if self.slice.kind != "asset":
            return self.slice.fits(run)
        is_followed = run["dag_run_id"] in (self.run_id, self.own_id)
        is_late = datetime.fromisoformat(run["run_after"]) >= self.since
        return is_followed or is_late or run["state"] not in ENDED

    def adopt(self, run: DagRun, others: Sequence[DagRun] = ()) -> None:
        """Follow a run that someone else has started; `others` are those of the same slice.

        What has begun late enough counts, and what begins from now on.
        """
        # The own run was created after everything outside of its DAG was done.
        since = self.floor if run.id == self.own_id else self.since
        # What began before another run of the same slice ended may have been overwritten.
        theirs = [view.end_date for one in others if one.id != self.own_id for view in one.views]
        since = max([since, *filter(None, theirs)])
        self.run_id, self.origin, self.has_acted = run.id, Origin.ADOPTED, False
        self.tries = {view.name: view.try_number - view.is_late(since) for view in run.views}

    @property
    def engine_run(self) -> EngineRun | None:
        if self.origin is None:
            return None
        also = self.also_writes if self.origin is Origin.CREATED else ()
        facts = {
            "token": self.spec["token"],
            "since": self.since.isoformat(),
            "tries": self.tries,
            "ended": self.ended and self.ended.isoformat(),
            "also_writes": [[one.namespace, one.name] for one in also],
        }
        return EngineRun(origin=self.origin, id=f"{self.task.dag}/{self.run_id}", facts=facts)


class AirflowEngine(WatchingEngine[_Attempt]):
    """Runs jobs as Airflow tasks; takes the members of AirflowSettings.

    `tasks` returns the tasks of a job, `calendar` its run calendar, `writers` what the tasks of a
    DAG write.
    """

    def __init__(
        self,
        *,
        project: Path,
        state_dir: Path,
        tasks: Callable[[JobRef], DagTasks | None] = lambda _job: None,
        calendar: Callable[[JobRef], Calendar | None] = lambda _job: None,
        writers: Callable[[str], Mapping[str, Collection[DatasetRef]]] = lambda _dag: {},
        **settings: Any,
    ) -> None:
        given = AirflowSettings(**settings)
        super().__init__(given.poll)
        self._api = AirflowApi(given)
        self._tasks = tasks
        self._calendar = calendar
        self._wait = given.wait
        self.can_undo = given.undo
        self._dags: dict[str, Dag] = {}
        self._new_runs = NewRuns(self._api, writers)
        self._upstream: dict[str, Sequence[str]] = {}
        self._known: dict[str, EngineRun] = {}
        self._ends: dict[str, datetime] = {}  # when runs of the plan ended, by Airflow's clock
        self._keep: Callable[[str, int, EngineRun], None] = lambda *_: None
        self._is_open = False

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
        """Refuse runs that Airflow cannot run, or would run with more than is planned."""
        self._upstream |= {run.id: run.upstream for run in runs}
        self._dags.clear()
        for job in {run.job for run in runs}:
            self.examine(job)
        now = self._api.now()
        planned: list[tuple[PlannedRun, DagTasks, Slice]] = []
        for run in runs:
            task = self._task(run.job)
            slice_ = self._slice(task, spec_of(run))
            self._dag(task.dag).refuse_slice(slice_, now)
            planned.append((run, task, slice_))
        self._new_runs.judge(planned, self._dags)

    def waits(self) -> Mapping[str, Collection[str]]:
        return self._new_runs.waits

    def also_writes(self) -> Mapping[str, Collection[DatasetRef]]:
        return self._new_runs.also_writes

    def examine(self, job: JobRef) -> None:
        """Raise UnfitRunError if Airflow has no such DAG or task, or no run of it can start."""
        task = self._task(job)
        self._dag(task.dag).refuse_unfit(task.tasks)
        refuse_account(self._api, task.dag)

    def live(self, job: JobRef) -> KeySet | None:
        """Return the keys of runs of others in which a task of the job is unfinished.

        A run with an unknown key counts for all keys. Runs of backfills are none of them: their
        locks and this engine keep apart what they do.
        """
        calendar = self._calendar(job)
        if calendar is None:
            return None
        self.open()
        self.examine(job)
        task = self._task(job)
        kind = self._dag(task.dag).kind(task, is_whole=calendar.is_whole)
        runs = self._api.active_runs([task.dag])
        theirs = [run for run in runs if not run["dag_run_id"].startswith(PREFIX)]
        keys = NOTHING
        for run in self._with_tasks(theirs, task.tasks):
            if run.active:
                keys |= touched_keys(observed(job, run.facts, kind, calendar.zone), calendar)
        return render(calendar, keys)

    def remember(
        self, known: Mapping[str, EngineRun], keep: Callable[[str, int, EngineRun], None]
    ) -> None:
        self._known, self._keep = dict(known), keep
        for run_id, found in known.items():
            if at := found.facts.get("ended"):
                self._ends[run_id] = datetime.fromisoformat(at)

    def cancel(self, handle: str) -> None:
        """Stop what this run of the plan started in Airflow, and nothing else."""
        one = self._watched.get(handle)
        if one is None:
            return
        with one.busy:
            one.is_cancelled = True
            if one.run is None or not one.is_ours:
                why = "nothing had started in Airflow"
                if one.run is not None:
                    why = "left running: someone else started it in Airflow"
                self._finish(one, Outcome(state=AttemptState.CANCELLED, error=why))
            elif one.origin is Origin.CREATED:
                self._stop(one.run)
            else:
                for task in sorted({view.task_id for view in one.run.active}):
                    where = f"{one.run.path}/taskInstances/{segment(task)}?update_mask=new_state"
                    self._api.patch(where, {"new_state": "failed"})

    def close(self) -> None:
        super().close()
        self._api.close()

    # An attempt

    def _task(self, job: JobRef) -> DagTasks:
        found = self._tasks(job)
        if found is None:
            raise UnfitRunError(
                f"job {job.name} has no Airflow task",
                hint=f'Name its DAG and task in the [[job]] "{job.name}" of the project file:'
                ' dag = "DAG_ID" and task = "TASK_ID".',
            )
        return found

    def _dag(self, dag: str, *, afresh: bool = False) -> Dag:
        if afresh or dag not in self._dags:
            self._dags[dag] = read_dag(self._api, dag)
        return self._dags[dag]

    def _slice(self, task: DagTasks, spec: Mapping[str, Any]) -> Slice:
        calendar = self._calendar(JobRef(spec["job"]["namespace"], spec["job"]["name"]))
        dag = self._dag(task.dag)
        kind = dag.kind(task, is_whole=[one["key"] for one in spec.get("keys") or ()] == ["*"])
        if spec.get("undo") and kind != "conf":
            raise UnfitRunError(
                f"{spec['job']['name']} cannot be undone: with slice {kind} it would run again",
                hint='Only runs with `slice = "conf"` can be undone.',
            )
        zone = calendar.zone if calendar else "UTC"
        is_dated = kind.startswith(("interval", "logical_date"))
        return slice_for(kind, spec, zone, dag.grid(task, zone) if is_dated else None)

    def attempt(self, files: AttemptFiles) -> _Attempt:
        """Return an attempt with what the run store knows of it."""
        spec = files.spec()
        task = self._task(JobRef(spec["job"]["namespace"], spec["job"]["name"]))
        upstream = self._upstream.get(spec["run_id"], ())
        ends = [self._ends[one] for one in upstream if one in self._ends]
        is_known = bool(ends) and len(ends) == len(upstream)
        since = max(ends) if is_known else self._api.now()
        floor = max(ends, default=_NEVER)
        one = _Attempt(files, spec, task, self._slice(task, spec), since, floor)
        found = self._known.get(spec["run_id"])
        also = found.also_writes if found is not None else ()
        one.also_writes = self._new_runs.also_writes.get(spec["run_id"], also)
        if found is not None and found.facts.get("token") == spec["token"]:
            one.origin, one.run_id = found.origin, (found.id or "").partition("/")[2]
            one.tries = found.facts["tries"]
            one.since = datetime.fromisoformat(found.facts["since"])
        return one

    def begin(self, one: _Attempt) -> None:
        self._advance(one)

    def is_sent(self, one: _Attempt) -> bool:
        return one.origin is not None

    # Reading Airflow

    def _find_runs(self, one: _Attempt) -> Sequence[Mapping[str, Any]]:
        """Return the runs of an attempt's slice, the one to use first."""
        wanted, dag = one.slice, one.task.dag
        if wanted.kind == "conf":
            found = self._api.find(f"/dags/{segment(dag)}/dagRuns/{segment(one.own_id)}")
            return [] if found is None else [found]
        return [run for run in runs_of(self._api, dag, wanted.query()) if one.fits(run)]

    def _with_tasks(self, runs: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> list[DagRun]:
        """Return runs with their instances of some tasks."""
        places = [(str(run["dag_id"]), str(run["dag_run_id"])) for run in runs]
        dags = sorted({dag for dag, _ in places})
        names = sorted({name for _, name in places})
        found: dict[tuple[str, str], list[TaskView]] = {place: [] for place in places}
        for one in self._api.task_instances(dags, names, tasks):
            place = one["dag_id"], one["dag_run_id"]
            if one["state"] != "removed" and place in found:
                found[place].append(convert(one, TaskView))
        return [DagRun(run, found[place]) for run, place in zip(runs, places, strict=True)]

    # The next step

    def _advance(self, one: _Attempt) -> None:
        """Read the runs of an attempt, and take its next step."""
        with one.busy:
            if one.handle not in self._watched:
                return
            # Before the runs, as one becomes the other.
            due = pending(self._api, self._dag(one.task.dag), one.slice)
            runs = self._with_tasks(self._find_runs(one), one.task.tasks)
            runs.sort(key=lambda run: not (one.is_ours and run.id == one.run_id))
            one.run, others = next(iter(runs), None), runs[1:]
            rival = next((run for run in others if run.active), None)
            if one.run is not None and (one.origin is None or one.run.id != one.run_id):
                one.adopt(one.run, others)
            elif one.run and rival and not one.is_ours and rival.id != one.own_id:
                one.tries = one.run.tries  # the other one may write last
            self._identified(one)
            step = decide(
                one.run, one.task.tasks, one.tries, is_ours=one.is_ours, has_acted=one.has_acted
            )
            try:
                self._take(one, step, rival, due)
            except EngineRefusalError as error:
                if error.status not in _CHANGED:
                    raise
                # The next poll sees what has changed.
                if step is Act.CREATE and error.status == 409 and not self._find_runs(one):
                    raise EngineError(
                        f"DAG {one.task.dag} has a run of the logical date {one.slice.label} that"
                        " covers another interval",
                        hint="Delete it in Airflow if it is wrong, or correct `slice` of the job.",
                    ) from error

    def _take(self, one: _Attempt, step: Act | str, rival: DagRun | None, due: str) -> None:
        """Take a step of an attempt; a `rival` is an active run of its slice besides its own."""
        waits_for_airflow = rival is None and due and step in (Act.CREATE, Act.CLEAR)
        if not waits_for_airflow:
            one.awaits_since = None
        if isinstance(step, str):
            self._fail(one, step)
        elif step is Act.SUCCEED and (rival is None or one.is_ours):
            self._succeed(one)
        elif one.is_cancelled:
            if step is not Act.WAIT:
                self._fail(one, "")
        elif rival is not None:
            if one.run is not None and one.origin is Origin.CREATED:
                # Airflow has started its own run of the key: it counts, and ours ends.
                self._stop(one.run)
                one.adopt(rival)
        elif waits_for_airflow:
            one.awaits_since = one.awaits_since or time.monotonic()
            if time.monotonic() - one.awaits_since > self._wait:
                dag = self._dag(one.task.dag, afresh=True)
                dag.refuse_unfit(one.task.tasks)
                late = f"and has not within {self._wait:g} s"
                self._fail(one, f"DAG {dag.id} is to start its run for the asset {due}, {late}")
        elif step is not Act.WAIT:
            self._dag(one.task.dag, afresh=True).refuse_unfit(one.task.tasks)
            self._create(one) if step is Act.CREATE else self._clear(one)

    def _create(self, one: _Attempt) -> None:
        dag, wanted = self._dag(one.task.dag), one.slice
        conf = self._new_runs.conf(one.task, wanted, one.spec)
        self._new_runs.refuse_deleted(dag.id, wanted)
        one.run_id, one.origin, one.tries = one.own_id, Origin.CREATED, {}
        self._record(one)
        body = {"dag_run_id": one.own_id, "conf": conf, "note": _note(one.spec), **wanted.body()}
        one.run = run = DagRun(self._api.post(f"/dags/{segment(dag.id)}/dagRuns", body))
        one.has_acted = True
        if wanted.kind not in ("conf", "asset") and not wanted.fits(run.facts):
            self._stop(run)
            raise EngineError(
                f"Airflow created run {run.id} for another slice than requested",
                hint="Check the timetable of the DAG, and `slice` of the job.",
            )

    def _clear(self, one: _Attempt) -> None:
        run = one.run
        assert run is not None
        given = one.spec.get("parameters")
        if given and one.run_id != one.own_id:
            raise EngineError(
                f"run {run.id} exists already, and Airflow passes no parameters to a run"
                " that it repeats",
                hint="Run it without --parameter, or delete that run in Airflow first.",
            )
        self._refuse_new_tasks(one, run)
        if not one.is_ours:
            one.tries = run.tries
        one.origin = Origin.CREATED if one.run_id == one.own_id else Origin.RERUN
        self._record(one)
        is_first = int(one.spec.get("attempt", 1)) == 1
        for task in one.task.tasks:
            # A task would take the job that it has stored as its own. Only that of an earlier
            # attempt, which has failed, may still be running.
            if is_first or all(view.state == "success" for view in run.views):
                where = f"{run.path}/taskInstances/{segment(task)}/state-store"
                self._api.delete(where, {"all_map_indices": "true"})
        body = {
            "dag_run_id": run.id,
            "task_ids": list(one.task.tasks),
            "dry_run": False,
            "only_failed": False,
            "reset_dag_runs": True,
            "prevent_running_task": True,
            "note": _note(one.spec),
        }
        answer = self._api.post(f"/dags/{segment(one.task.dag)}/clearTaskInstances", body)
        one.has_acted = bool(answer["task_instances"])

    def _refuse_new_tasks(self, one: _Attempt, run: DagRun) -> None:
        """Raise EngineError for a run older than some tasks of its DAG, which a clear would run."""
        dag = self._dag(one.task.dag)
        if run.facts.get("bundle_version"):  # it keeps its version
            return
        found = self._api.task_instances([dag.id], [run.id])
        known = {view["task_id"] for view in found} | self._new_runs.planned(dag.id, one.slice)
        if new := sorted(dag.tasks - known):
            raise EngineError(
                f"run {run.id} of DAG {dag.id} is older than task {new[0]}: clearing it"
                " would also run that one",
                hint="Let Airflow run that task there first, or delete the DAG run: this engine"
                " then creates it.",
            )

    def _record(self, one: _Attempt) -> None:
        """Write into the run store what the attempt is about to do."""
        found = one.engine_run
        assert found is not None
        self._keep(one.spec["run_id"], int(one.spec.get("attempt", 1)), found)
        self._runs[one.handle] = found

    def _stop(self, run: DagRun) -> None:
        self._api.patch(f"{run.path}?update_mask=state", {"state": "failed"})

    # Watching

    def look_at_all(self, under_way: Sequence[_Attempt]) -> None:
        """Poll all attempts with two requests; read those in full that may have ended."""
        alive = list(self._api.active_runs(sorted({one.task.dag for one in under_way})))
        places = {(one.task.dag, one.run_id) for one in under_way}
        followed = self._with_tasks(
            [run for run in alive if (run["dag_id"], run["dag_run_id"]) in places],
            sorted({task for one in under_way for task in one.task.tasks}),
        )
        for one in under_way:
            if self._closing.is_set():
                return
            with one.busy, self._failed(one):
                if one.handle in self._watched:
                    self._look_at(one, alive, followed)

    def _look_at(
        self, one: _Attempt, alive: Sequence[Mapping[str, Any]], followed: Sequence[DagRun]
    ) -> None:
        """Read an attempt in full, unless its tasks are active and no other run of its slice is."""
        runs = [run for run in alive if run["dag_id"] == one.task.dag]
        others = [run for run in runs if run["dag_run_id"] != one.run_id]
        place = one.task.dag, one.run_id
        own = next((run for run in followed if (run.facts["dag_id"], run.id) == place), None)
        run = own and own.of(one.task.tasks)
        if run and run.active and not any(map(one.fits, others)):
            one.run = run
        else:
            self._advance(one)

    # Outcomes

    def _fail(self, one: _Attempt, why: str) -> None:
        left = one.files.outcome()
        if left is None or left.state is not AttemptState.FAILED:
            left = Outcome(state=AttemptState.FAILED, error=self._last_error(one))
        outcome = replace(left, error=": ".join(filter(None, (why, left.error))))
        if one.is_cancelled:
            outcome = Outcome(state=AttemptState.CANCELLED, error="stopped by the user")
        self._finish(one, outcome)

    def _succeed(self, one: _Attempt) -> None:
        """End an attempt with what `spark_runtime` did in its tasks, if it was in them.

        It leaves a result file, or commits of the attempt or of a scheduled run.
        """
        views = one.run.views if one.run is not None else ()
        one.ended = max((view.end_date for view in views if view.end_date), default=self._api.now())
        self._ends[one.spec["run_id"]] = one.ended
        self._identified(one)
        began = min((view.start_date for view in views if view.start_date), default=one.since)
        outcome = one.files.outcome() or reconcile(one.files, began)
        if outcome is None and one.spec.get("undo"):
            why = "the task has left no result of an undo: check that it passes --airflow-run"
            outcome = Outcome(state=AttemptState.FAILED, error=why)
        self._finish(one, outcome or Outcome(state=AttemptState.SUCCEEDED))

    def _last_error(self, one: _Attempt) -> str:
        """Return the last error of a task that failed; name its log next to the run spec."""
        views = one.run.views if one.run is not None else ()
        failed = next((view for view in views if view.try_number and view.state != "success"), None)
        if one.run is None or failed is None:
            return ""
        run, task = segment(one.run.id), segment(failed.task_id)
        page = f"{self._api.url}/dags/{segment(one.task.dag)}/runs/{run}/tasks/{task}"
        one.files.add_to_log(f"task {failed.name}, try {failed.try_number}: its log is at {page}\n")
        place = f"{one.run.path}/taskInstances/{task}/logs/{failed.try_number}"
        with suppress(EngineError, ServiceUnreachableError):
            query = {"full_content": "true", "map_index": failed.map_index}
            for line in reversed(self._api.get(place, query)["content"]):
                if isinstance(line, Mapping) and line.get("error_detail"):
                    error = line["error_detail"][-1]
                    return f"{error.get('exc_type')}: {error.get('exc_value')}"
        return ""


def _note(spec: Mapping[str, Any]) -> str:
    """Return the label of a run or a task instance, for people."""
    return f"lineage-backfill: backfill {spec.get('backfill_id', '')}, run {spec['run_id']}"
