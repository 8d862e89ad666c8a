"""What a run of a plan is in Databricks: a job that exists, or a task of its own; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from databricks.sdk.service.jobs import (
    BaseRun,
    Job,
    RepairHistoryItem,
    RepairHistoryItemType,
    Run,
    RunTask,
    SparkPythonTask,
    SubmitTask,
    TerminationCodeCode,
    TerminationDetails,
    TerminationTypeType,
)
from databricks.sdk.service.jobs import RunLifecycleStateV2State as State

from lineage_backfill import redaction
from lineage_backfill.errors import UnfitRunError
from lineage_backfill.ports import AttemptState, Outcome

#: The job parameters that are passed if a job has them: the key of a run, and its run spec.
KEY, SPEC = "backfill_key", "lineage_backfill_spec"
_PART = re.compile(r"{(key|start|end)}")
_PASSING_TYPES = (TerminationTypeType.CLOUD_FAILURE, TerminationTypeType.INTERNAL_ERROR)
#: What the workspace had no room for: nothing ran, and a later run may.
_PASSING_CODES = (
    TerminationCodeCode.CLUSTER_REQUEST_LIMIT_EXCEEDED,
    TerminationCodeCode.MAX_CONCURRENT_RUNS_EXCEEDED,
    TerminationCodeCode.MAX_JOB_QUEUE_SIZE_EXCEEDED,
    TerminationCodeCode.MAX_SPARK_CONTEXTS_EXCEEDED,
    TerminationCodeCode.WORKSPACE_RUN_LIMIT_EXCEEDED,
)
_STOPPED = (TerminationCodeCode.USER_CANCELED, TerminationCodeCode.CANCELED)
#: Puts the code on the path, as a workspace has none of it installed.
MAIN = b"""import sys

sys.path[:0] = sys.argv[1:3]

from spark_runtime.__main__ import main

if main(sys.argv[3:]) != 0:
    raise SystemExit("The run failed: see the log above.")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """A job of the workspace; of its tasks `only` these run, or all. `conf` are its parameters.

    With `repairs`, a later attempt repairs the run of the first one.
    """

    id: int
    name: str
    job: Job
    only: Sequence[str] = ()
    repairs: bool = False
    conf: Mapping[str, str]

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the parameters that the job has."""
        settings = self.job.settings
        return frozenset(one.name for one in (settings and settings.parameters) or ())

    @property
    def takes_spec(self) -> bool:
        """Whether the job is done by `spark_runtime`, with the run spec."""
        return SPEC in self.parameters

    @property
    def key_parameter(self) -> str | None:
        """The parameter that holds a run's key as it is."""
        given = self.conf or dict.fromkeys({KEY} & self.parameters, "{key}")
        return next((name for name, text in given.items() if text == "{key}"), None)

    def values(self, spec: Mapping[str, Any], spec_path: str | None) -> dict[str, str]:
        """Return the parameters of a run; raises UnfitRunError if the job cannot take them."""
        self._refuse_undo(spec)
        keys: Sequence[Mapping[str, Any]] = spec.get("keys") or []
        given = dict(self.conf or dict.fromkeys({KEY} & self.parameters, "{key}"))
        if self.takes_spec and not self.conf and len(keys) != 1:
            given = {}  # the run spec names its keys
        texts = {name: str(value) for name, value in (spec.get("parameters") or {}).items()}
        if redaction.document({"parameters": texts}) != {"parameters": texts}:
            raise UnfitRunError(
                "a secret parameter cannot be passed to Databricks: everyone who sees the run can"
                " read it",
                hint="Keep it in a secret scope of Databricks.",
            )
        if unknown := sorted((given.keys() | texts.keys()) - self.parameters):
            raise UnfitRunError(
                f"job {self.name} in Databricks has no parameter {unknown[0]}",
                hint="Add it to the job, or correct `conf` of the [[job]] and --parameter.",
            )
        has_key = any(map(_PART.search, given.values()))
        if has_key and len(keys) != 1:
            raise UnfitRunError(
                f"a run has {len(keys)} keys, and job {self.name} in Databricks takes one",
                hint='Give the job `batch = "key"`.',
            )
        if not has_key and not self.takes_spec and [one["key"] for one in keys] != ["*"]:
            raise UnfitRunError(
                f"job {self.name} in Databricks takes no key, and would run for one of its own",
                hint=f'Give it the parameter {KEY}, or name one: conf = {{ NAME = "{{key}}" }}.',
            )
        for name, text in given.items():
            given[name] = _PART.sub(lambda found: str(keys[0].get(found[1])), text)
        if self.takes_spec and spec_path is not None:
            given[SPEC] = spec_path
        return given | texts

    def _refuse_undo(self, spec: Mapping[str, Any]) -> None:
        if spec.get("undo") and not self.takes_spec:
            raise UnfitRunError(
                f"{spec['job']['name']} cannot be undone: job {self.name} in Databricks takes no"
                " run spec, and would run again",
                hint=f"Only jobs with the parameter {SPEC} can be undone.",
            )

    def refuse_unfit(self, *, has_volume: bool) -> None:
        """Raise UnfitRunError for tasks that it lacks, and for what `spark_runtime` cannot use."""
        settings = self.job.settings
        tasks = {one.task_key: one for one in (settings and settings.tasks) or ()}
        if missing := sorted(set(self.only) - tasks.keys()):
            raise UnfitRunError(
                f"job {self.name} in Databricks has no task {missing[0]}",
                hint=f"It has {', '.join(sorted(tasks))}: correct `only`.",
            )
        if self.repairs and (self.takes_spec or len(tasks) < 2):
            has = "takes a run spec, which names one attempt" if self.takes_spec else "has one task"
            raise UnfitRunError(
                f"job {self.name} in Databricks {has}, so its runs cannot be repaired",
                hint="Remove `repair` of the job: `retry` then runs it again as a whole.",
            )
        if not self.takes_spec:
            return
        if not has_volume:
            raise UnfitRunError(
                f"job {self.name} in Databricks takes a run spec, and this engine has no `volume`",
                hint='Name a folder of a volume: volume = "/Volumes/CATALOG/SCHEMA/VOLUME".',
            )
        for name in self.only or sorted(tasks):
            one = tasks[name]
            is_python = one.spark_python_task or one.python_wheel_task or one.notebook_task
            has_cluster = one.existing_cluster_id or one.job_cluster_key or one.new_cluster
            if one.environment_key or (is_python and not has_cluster):
                raise UnfitRunError(
                    f"task {name} of job {self.name} runs on serverless compute, where"
                    " spark_runtime cannot write",
                    hint="Give the task a cluster with dedicated access mode, or remove the"
                    f" parameter {SPEC} from the job.",
                )


def own_task(cluster: Mapping[str, Any], arguments: Sequence[str]) -> SubmitTask:
    """Return the task that does a run spec on a cluster; raises ValueError for unknown members."""
    others = sorted(cluster.keys() - {"existing_cluster_id", "new_cluster", "libraries"})
    if others or ("existing_cluster_id" in cluster) == ("new_cluster" in cluster):
        raise ValueError(
            "`cluster` needs existing_cluster_id or new_cluster, and takes libraries"
            + "".join(f", not {name}" for name in others[:1])
        )
    task = SubmitTask.from_dict({"task_key": "run", **cluster})
    if {**task.as_dict(), "task_key": None} != {**cluster, "task_key": None}:
        raise ValueError("`cluster` has members that Databricks does not know, or other types")
    main, *parameters = arguments or ("",)
    task.spark_python_task = SparkPythonTask(python_file=main, parameters=parameters)
    return task


def is_over(run: Run) -> bool:
    """Whether a run has ended; a state that is unknown here has not."""
    return run.status is not None and run.status.state is State.TERMINATED


def has_begun(run: Run) -> bool:
    """Whether a run has left its queue."""
    state = run.status and run.status.state
    return state not in (None, State.QUEUED, State.PENDING, State.BLOCKED)


def outcome_of(run: Run, error: str, *, is_cancelled: bool) -> Outcome:
    """Return the outcome of a run that has ended, by what the workspace knows of it."""
    details = _details(run)
    code = details and details.code
    if code is TerminationCodeCode.SUCCESS:
        return Outcome(state=AttemptState.SUCCEEDED)
    if is_cancelled and code in _STOPPED:
        return Outcome(state=AttemptState.CANCELLED, error="stopped by the user")
    name = code.value if code else "an unknown state"
    why = error or (details and details.message) or ""
    tasks = [found for task in tasks_of(run) if has_failed(task) and (found := _details(task))]
    return Outcome(
        state=AttemptState.FAILED,
        error=f"the run in Databricks ended with {name}{f': {why}' if why else ''}",
        transient=all(map(_passes, tasks)) if tasks else details is not None and _passes(details),
    )


def tasks_of(run: Run) -> Sequence[RunTask]:
    """Return the last try of each task; of a repaired run earlier ones may be listed too."""
    tries = sorted(run.tasks or (), key=lambda one: one.start_time or 0)
    return [*{one.task_key: one for one in tries}.values()]


def repairs_of(run: Run | None) -> Sequence[RepairHistoryItem]:
    """Return the repairs of a run that was read with its history, oldest first."""
    history = (run and run.repair_history) or ()
    return [one for one in history if one.type is RepairHistoryItemType.REPAIR]


def began(run: Run) -> datetime:
    """Return when a run began: a repaired one when it first did."""
    times = [one.start_time or 0 for one in (run, *(run.repair_history or ()))]
    return datetime.fromtimestamp(min(filter(None, times), default=0) / 1000, UTC)


def parameters_of(run: Run | BaseRun) -> Mapping[str, str | None]:
    """Return the job parameters of a run."""
    return {one.name or "": one.value or one.default for one in run.job_parameters or ()}


def unfit_for_repair(run: Run | None, values: Mapping[str, str], *, is_repaired: bool) -> str:
    """Return why a run cannot be repaired, or its repair not be followed; empty if it can."""
    if run is None:
        return "it was deleted"
    if not values.items() <= parameters_of(run).items():
        return "it has other parameters"
    details = _details(run)
    is_good = details is not None and details.code is TerminationCodeCode.SUCCESS
    return "it has succeeded" if is_good and not is_repaired else ""


def has_failed(task: RunTask) -> bool:
    """Whether a task has ended other than well, and not because of the tasks before it."""
    details = _details(task)
    good = (TerminationCodeCode.SUCCESS, TerminationCodeCode.SKIPPED)
    return details is not None and details.code not in good


def _details(run: Run | RunTask) -> TerminationDetails | None:
    return run.status.termination_details if run.status is not None else None


def _passes(details: TerminationDetails) -> bool:
    return details.type in _PASSING_TYPES or details.code in _PASSING_CODES
