"""Runs each attempt as a run of a Databricks job, or as a task of its own on a cluster.

One rule: the attempt's token is the run's idempotency token, and the workspace keeps one run for
each. So to submit and to find again are the same request, on every machine and after any lost
answer. A repair has no token, but a number: an attempt is the repair after that of the attempt
before, which the run's history shows once it has begun. Run specs and results are files of a
volume: parameters hold 10,000 bytes, and a result needs a place anyway.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from databricks.sdk.service.jobs import QueueSettings, Run, RunOutput

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.databricks.api import Workspace
from lineage_backfill.engines.databricks.jobs import (
    MAIN,
    Existing,
    began,
    has_begun,
    has_failed,
    is_over,
    outcome_of,
    own_task,
    parameters_of,
    repairs_of,
    tasks_of,
    unfit_for_repair,
)
from lineage_backfill.engines.runtime import reconcile
from lineage_backfill.engines.seconds import check_seconds
from lineage_backfill.engines.spark.shipping import pack_code, pack_runtime
from lineage_backfill.engines.watching import WatchedAttempt, WatchingEngine
from lineage_backfill.errors import (
    EngineError,
    EngineRefusalError,
    ServiceUnreachableError,
    UnfitRunError,
)
from lineage_backfill.files import whole_file
from lineage_backfill.lineage.inference.recorded import touched_keys
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING
from lineage_backfill.partitions.text import KeySet, render
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, EngineRun, Origin, Outcome, list_of
from lineage_backfill.typed import check_members

_log = logging.getLogger(__name__)
#: Runs of a job beyond its `max_concurrent_runs` wait for their turn.
_QUEUE = QueueSettings(enabled=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabricksSettings:
    """The settings of the engine in the project file.

    It logs in with a `profile` of the Databricks CLI, or with `host` and what `token` returns, or
    as the SDK finds. `jobs` names the jobs of the workspace that run ours: a name, an id, or a
    table of `job` and the tasks that `only` run, or of `job` and `repair`: then a later attempt
    repairs the run of the first. With `development` deployed names begin with `[dev USER]`. Run
    specs and results are in `volume`. A job with an entrypoint that is not in `jobs` runs on
    `cluster`; with `lists`, all that are ready at once are one run. It polls every `poll` seconds;
    `timeout` is that of one request.
    """

    host: str = ""
    profile: str = ""
    token: Any = None
    jobs: Mapping[str, Any] = field(default_factory=dict)
    development: bool = False
    volume: str = ""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    lists: bool = False
    poll: float = 5
    timeout: float = 30

    def __post_init__(self) -> None:
        check_members(self)
        for name in ("poll", "timeout"):
            check_seconds(name, getattr(self, name))
        if self.volume and not self.volume.startswith("/Volumes/"):
            raise ValueError(f"`volume` is {self.volume!r}, but must begin with /Volumes/")
        for name in self.jobs:
            self.target(name)
        if self.cluster:
            own_task(self.cluster, ())

    def target(self, job: str) -> tuple[str | int, Sequence[str], bool]:
        """Return the workspace's job that runs one of ours, its tasks, and whether to repair it."""
        given = self.jobs.get(job, job)
        table = given if isinstance(given, Mapping) else {"job": given}
        found, only, repair = table.get("job"), table.get("only", []), table.get("repair", False)
        is_wrong = isinstance(only, str) or repair not in (False, not only)
        if not isinstance(found, str | int) or is_wrong or table.keys() - _MEMBERS:
            raise ValueError(
                f"`jobs` of {job} must be a name, an id, {{ job = NAME, only = [TASKS] }}, or"
                " { job = NAME, repair = true }: a repair also runs what depends on a task"
            )
        return found, [str(task) for task in only], repair


_MEMBERS = {"job", "only", "repair"}


@dataclass(eq=False)
class _Attempt(WatchedAttempt):
    """One attempt; `spec_path` is that of the copy of its run spec in the volume, if it has one.

    It is the run, or its `repair` of that number. While it is `undecided` which, the run and the
    number are those of the attempt before.
    """

    job: Existing | None
    spec_path: str | None
    run_id: int | None = None
    run: Run | None = None
    repair: int = 0
    undecided: bool = False
    read_since: datetime | None = None

    @property
    def awaits_repair(self) -> bool:
        """Whether the run is not known to have its repair."""
        return self.undecided or (bool(self.repair) and len(repairs_of(self.run)) < self.repair)

    @property
    def has_begun(self) -> bool:
        return self.run is not None and has_begun(self.run)

    @property
    def engine_run(self) -> EngineRun | None:
        if self.run_id is None:
            return None
        facts: dict[str, Any] = {"token": self.spec["token"]}
        if self.repair and self.read_since:
            facts |= {"repair": self.repair, "read_since": self.read_since.isoformat()}
        return EngineRun(origin=Origin.CREATED, id=str(self.run_id), facts=facts)


class DatabricksEngine(WatchingEngine[_Attempt]):
    """Runs jobs in a Databricks workspace; takes the members of DatabricksSettings.

    `calendar` returns the run calendar of a job, `conf` the parameters that the project gives it,
    `entrypoint` its entrypoint, if it has one.
    """

    def __init__(
        self,
        *,
        project: Path,
        state_dir: Path,
        calendar: Callable[[JobRef], Calendar | None] = lambda _job: None,
        conf: Callable[[JobRef], Mapping[str, str]] = lambda _job: {},
        entrypoint: Callable[[JobRef], str | None] = lambda _job: None,
        **settings: Any,
    ) -> None:
        self._given = given = DatabricksSettings(**settings)
        super().__init__(given.poll)
        token = given.token
        self._workspace = Workspace(
            host=given.host,
            profile=given.profile,
            token=token if callable(token) or not token else lambda: str(token),
            timeout=given.timeout,
        )
        self._project, self._state_dir = project, state_dir
        self._calendar, self._conf, self._entrypoint = calendar, conf, entrypoint
        self.can_undo, self.lists = bool(given.volume), given.lists
        self._volume = given.volume.rstrip("/")
        self._ask, self._find = self._workspace.ask, self._workspace.find
        self._user = self._prefix = ""
        self._is_open = False
        self._existing: dict[JobRef, Existing] = {}
        self._uploaded: set[str] = set()
        self._known: dict[str, EngineRun] = {}

    # The port

    def open(self) -> None:
        """Log in once; raises EngineError or ServiceUnreachableError."""
        if self._is_open:
            return
        self._user = self._ask(lambda to: to.current_user.me()).user_name or ""
        if self._given.development:
            self._prefix = development_prefix(self._user)
        if self._volume:
            self._ask(lambda to: to.files.create_directory(self._volume))
        self._is_open = True

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Refuse runs that the workspace cannot run, or would run with more than is planned."""
        if not runs:
            return
        self.open()
        self._existing.clear()
        shared: dict[int, JobRef] = {}
        for run in runs:
            spec = spec_of(run)
            job = self._job(run.job, spec["job"].get("entrypoint"))
            if job is None:
                self._refuse_incomplete(run, spec)
                continue
            job.refuse_unfit(has_volume=bool(self._volume))
            job.values(spec, None)
            other = shared.setdefault(job.id, run.job)
            if other != run.job and not job.only:
                raise UnfitRunError(
                    f"{other.name} and {run.job.name} are one job in Databricks, {job.name}, and"
                    " each would run all of it",
                    hint='Name the tasks of each: jobs = { NAME = { job = "…", only = ["…"] } }.',
                )

    def examine(self, job: JobRef) -> None:
        """Raise UnfitRunError if the workspace has no such job, or lacks one of its tasks."""
        if (found := self._job(job, self._entrypoint(job))) is not None:
            found.refuse_unfit(has_volume=bool(self._volume))

    def takes_list(self, job: JobRef) -> bool:
        return self.lists and bool(self._entrypoint(job)) and job.name not in self._given.jobs

    def left(self, spec_path: Path, token: str) -> Outcome | None:
        files = AttemptFiles(spec_path)
        return self._result(files) if list_of(token) and files.has_token(token) else None

    def live(self, job: JobRef) -> KeySet | None:
        """Return the keys of queued and running runs of others."""
        calendar = self._calendar(job)
        found = self._job(job, self._entrypoint(job))
        if calendar is None or found is None:
            return None
        own = {run.id for run in (*self._known.values(), *self._runs.values())}
        keys = NOTHING
        active = self._ask(lambda to: [*to.jobs.list_runs(job_id=found.id, active_only=True)])
        for run in active:
            if str(run.run_id) not in own:
                key = parameters_of(run).get(found.key_parameter or "") or None
                seen = ObservedRun(
                    job=job, run_id=str(run.run_id), state="RUNNING", partition_key=key
                )
                keys |= touched_keys(seen, calendar)
        return render(calendar, keys)

    def remember(
        self, known: Mapping[str, EngineRun], keep: Callable[[str, int, EngineRun], None]
    ) -> None:
        self._known = dict(known)

    def cancel(self, handle: str) -> None:
        """Stop the run; one whose request has no answer yet is stopped once it has."""
        one = self._watched.get(handle)
        if one is not None:
            with one.busy:
                one.is_cancelled = True
                with suppress(ServiceUnreachableError):  # the watcher asks again
                    self._stop(one)

    # An attempt

    def _deployed(self, job: JobRef) -> Existing:
        """Return the workspace's job that runs one of ours; raises UnfitRunError."""
        if job not in self._existing:
            self.open()
            name, only, repairs = self._given.target(job.name)
            full = name if isinstance(name, int) else self._prefix + name
            ids = [full] if isinstance(full, int) else self._ids(full)
            found = self._find(lambda to: to.jobs.get(ids[0])) if len(ids) == 1 else None
            if found is None:
                raise self._unknown(job, full, ids)
            self._existing[job] = Existing(
                id=ids[0],
                name=str(full),
                job=found,
                only=only,
                repairs=repairs,
                conf=self._conf(job),
            )
        return self._existing[job]

    def _ids(self, name: str) -> list[int]:
        """Return the ids of the jobs with a name; the workspace itself ignores its case."""
        found = self._ask(lambda to: [*to.jobs.list(name=name)])
        return [
            one.job_id for one in found if one.job_id and one.settings and one.settings.name == name
        ]

    def _unknown(self, job: JobRef, full: str | int, ids: Sequence[int]) -> UnfitRunError:
        if len(ids) > 1:
            return UnfitRunError(
                f"Databricks has {len(ids)} jobs {full}: {', '.join(map(str, sorted(ids)))}",
                hint=f'Name its id: jobs = {{ "{job.name}" = {min(ids)} }}.',
            )
        hint = "Deploy it (databricks bundle deploy), or name it in `jobs` of this engine."
        deployed = development_prefix(self._user) + str(full)
        if not self._prefix and self._ids(deployed):
            hint = f'There is "{deployed}": for that one, write development = true.'
        return UnfitRunError(f"Databricks has no job {full}", hint=hint)

    def _job(self, job: JobRef, entrypoint: str | None) -> Existing | None:
        """Return the workspace's job that runs one of ours, None if it runs on `cluster`."""
        if not entrypoint or job.name in self._given.jobs:
            return self._deployed(job)
        if self._given.cluster and self._volume:
            return None
        raise UnfitRunError(
            f"job {job.name} has an entrypoint, and this engine has no `cluster` and `volume`",
            hint="Give it both; or, for a job of the workspace, name it in `jobs` of this engine.",
        )

    def _refuse_incomplete(self, run: PlannedRun, spec: Mapping[str, Any]) -> None:
        placed = {(one["dataset"]["namespace"], one["dataset"]["name"]) for one in spec["outputs"]}
        for part in run.writes:
            if (part.dataset.namespace, part.dataset.name) not in placed:
                raise UnfitRunError(
                    f"{part.dataset} has no place that job {run.job.name} could write to",
                    hint='Declare it: [[dataset]] table = "CATALOG.SCHEMA.TABLE", and `columns`.',
                )

    def attempt(self, files: AttemptFiles) -> _Attempt:
        spec = files.spec()
        self.open()
        ref = JobRef(spec["job"]["namespace"], spec["job"]["name"])
        job = self._job(ref, spec["job"].get("entrypoint"))
        is_sent = job is None or job.takes_spec
        one = _Attempt(files, spec, job, self._place(spec, "spec") if is_sent else None)
        known = self._known.get(spec["run_id"])
        is_own = known is not None and known.facts.get("token") == spec["token"]
        if known is not None and known.id and (is_own or (job is not None and job.repairs)):
            one.undecided = not is_own
            one.run_id, one.repair = int(known.id), known.facts.get("repair", 0)
            one.read_since = known.read_since
        return one

    def begin(self, one: _Attempt) -> None:
        """Start the run of an attempt, or find the one that an earlier request has started."""
        if one.run_id is not None and one.awaits_repair and not one.is_cancelled:
            self._repair(one, one.run_id)
        if one.run_id is None:
            one.run_id = self._start(one)
        self._identified(one)
        if one.engine_run is not None:
            self._known[one.spec["run_id"]] = one.engine_run

    def _repair(self, one: _Attempt, run_id: int) -> None:
        """Request the repair that an attempt is, unless the run has it, or is still under way."""
        assert one.job is not None
        values = one.job.values(one.spec, None)
        run = self._read(run_id)
        if one.undecided:
            one.undecided, number = False, len(repairs_of(run))
            is_repaired = number > one.repair
            if why := unfit_for_repair(run, values, is_repaired=is_repaired):
                _log.warning("run %d is not repaired, and the job runs again: %s", run_id, why)
                one.run_id, one.repair = None, 0
                return
            one.repair = number if is_repaired else number + 1
            one.read_since = began(run) if run else None
            if is_repaired:
                _log.info("run %d in Databricks has been repaired already: followed", run_id)
        if run is None or not is_over(run) or len(repairs_of(run)) >= one.repair:
            return
        latest = next((item.id for item in reversed(repairs_of(run))), None)
        try:
            self._ask(
                lambda to: to.jobs.repair_run(
                    run_id,
                    latest_repair_id=latest,
                    rerun_all_failed_tasks=True,
                    rerun_dependent_tasks=True,
                    job_parameters=values or None,  # else they would be the job's defaults
                )
            )
        except EngineRefusalError:
            run = self._read(run_id)  # another one may have been faster
            if run is None or (is_over(run) and len(repairs_of(run)) < one.repair):
                raise

    def _read(self, run_id: int) -> Run | None:
        return self._find(lambda to: to.jobs.get_run(run_id, include_history=True))

    def is_sent(self, one: _Attempt) -> bool:
        return True

    def _stop(self, one: _Attempt) -> None:
        if (run_id := one.run_id) is not None:
            self._find(lambda to: to.jobs.cancel_run(run_id).response)

    def _upload(self, path: str, content: bytes) -> None:
        self._ask(lambda to: to.files.upload(path, io.BytesIO(content), overwrite=True))

    def _start(self, one: _Attempt) -> int:
        token, path, job = one.spec["token"], one.spec_path, one.job
        if path is not None:
            there = self._there(one.spec)
            if "runs" in there:
                there["runs"] = [self._there(run) for run in there["runs"]]
            self._upload(path, json.dumps(there).encode())
        if job is not None:
            values = job.values(one.spec, path) or None
            only = list(job.only) or None
            began = self._ask(
                lambda to: to.jobs.run_now(
                    job.id, idempotency_token=token, job_parameters=values, only=only, queue=_QUEUE
                )
            )
            return int(began.bind()["run_id"])
        folder = self._state_dir / "databricks"
        archives = (
            pack_runtime(folder),
            pack_code(self._project, folder, without=self._state_dir),
        )
        main = self._shipped("run_spec.py", MAIN)
        code = [self._shipped(one.name, one.read_bytes()) for one in archives]
        task = own_task(self._given.cluster, [main, *code, "run", "--spec", str(path)])
        name = f"{one.spec['job']['name']} {token}"
        began = self._ask(
            lambda to: to.jobs.submit(
                run_name=name, tasks=[task], idempotency_token=token, queue=_QUEUE
            )
        )
        return int(began.bind()["run_id"])

    def _place(self, spec: Mapping[str, Any], what: str) -> str:
        """Return the path of a file of an attempt in the volume."""
        return f"{self._volume}/{spec['token']}.{what}.json"

    def _there(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return a run spec with its result in the volume."""
        return {**spec, "result_path": self._place(spec, "result")}

    def _shipped(self, name: str, content: bytes) -> str:
        """Return the path of some code in the volume, by its hash: it is never replaced."""
        path = f"{self._volume}/{hashlib.sha256(content).hexdigest()[:16]}-{name}"
        if path not in self._uploaded:
            self._upload(path, content)
            self._uploaded.add(path)
        return path

    # Watching

    def look_at_all(self, under_way: Sequence[_Attempt]) -> None:
        for one in under_way:
            if self._closing.is_set():
                return
            with one.busy, self._failed(one):
                self._look_at(one)

    def _look_at(self, one: _Attempt) -> None:
        self.begin(one)
        run_id = one.run_id
        assert run_id is not None
        one.run = self._read(run_id)
        if one.awaits_repair and one.run is not None and not one.is_cancelled:
            return
        if one.run is None:
            why = f"run {one.run_id} was deleted in Databricks: what it did is unknown"
            gone = Outcome(state=AttemptState.FAILED, error=why)
            self._finish(one, self._result(one.files) or gone)
        elif is_over(one.run):
            error = self._keep_log(one, one.run)
            outcome = outcome_of(one.run, error, is_cancelled=one.is_cancelled)
            self._finish(one, self._judged(one, outcome, one.run))
        elif one.is_cancelled:
            self._stop(one)

    # Outcomes

    def _judged(self, one: _Attempt, outcome: Outcome, run: Run) -> Outcome:
        """Return the outcome by the result, else by the tables' logs, else by the workspace."""
        if (left := self._result(one.files)) is not None:
            return left
        if outcome.state is not AttemptState.SUCCEEDED:
            return outcome
        proved = reconcile(one.files, began(run))
        if proved is None and one.spec.get("undo"):
            why = "the run has left no result of an undo: check that its task takes the run spec"
            return Outcome(state=AttemptState.FAILED, error=why)
        return proved or outcome

    def _result(self, files: AttemptFiles) -> Outcome | None:
        """Return the outcome in the attempt's result, which is copied from the volume."""
        if self._volume:
            spec = files.spec()
            path = self._place(spec, "result")
            found = self._find(lambda to: to.files.download(path).contents)
            if found is not None:
                with whole_file(Path(spec["result_path"]), is_private=True) as file:
                    file.write(found.read())
        return files.outcome()

    def _keep_log(self, one: _Attempt, run: Run) -> str:
        """Write what each task printed next to the run spec; return the error of a failed one."""
        error = ""
        for task in tasks_of(run):
            lines = [f"task {task.task_key}, run {task.run_id} ({run.run_page_url}):"]
            with suppress(EngineError, ServiceUnreachableError):
                output = self._output(task.run_id or 0)
                notebook = output.notebook_output and output.notebook_output.result
                parts = (output.logs, notebook, output.error_trace, output.error)
                lines += [line for part in parts if part for line in part.splitlines()]
                error = (has_failed(task) and output.error) or error
            one.files.add_to_log("".join(f"{line}\n" for line in lines))
        return error

    def _output(self, run_id: int) -> RunOutput:
        return self._ask(lambda to: to.jobs.get_run_output(run_id))


def development_prefix(user: str) -> str:
    """Return how the names of jobs begin that a bundle deploys in development mode.

    >>> development_prefix("ana.maria@example.com")
    '[dev ana_maria] '
    """
    return f"[dev {re.sub('[^A-Za-z0-9]', '_', user.partition('@')[0])}] "
