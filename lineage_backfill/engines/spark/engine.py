"""Runs jobs with Spark, on this machine or a cluster: warm workers, or an application a run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.runtime import end_sessions, find_java, refuse_missing
from lineage_backfill.engines.spark.pool import PoolEngine, complaint
from lineage_backfill.engines.spark.settings import SparkSettings, read_settings
from lineage_backfill.engines.spark.shipping import (
    code_state,
    pack_code,
    pack_runtime,
    place,
    py_files,
)
from lineage_backfill.engines.spark.worker import Worker, WorkerDied
from lineage_backfill.errors import EngineError
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import Engine, EngineRun, Origin


def spark_engine(*, project: Path, state_dir: Path, **settings: Any) -> Engine:
    """Make the engine; `settings` are the members of SparkSettings.

    Raises ConfigError, TypeError, ValueError for settings that do not fit.
    """
    given = read_settings(settings)
    if given.deploy_mode == "cluster":
        from lineage_backfill.engines.spark.spark_submit import SparkSubmitEngine  # rare, and HTTP

        return SparkSubmitEngine(given, project=project, state_dir=state_dir)
    return SparkEngine(given, project=project, state_dir=state_dir)


class SparkEngine(PoolEngine):
    """Up to `workers` warm drivers on this machine, whose tasks run wherever `master` says.

    A worker is for one state of the project's code: after a change, another one takes its place.
    """

    def __init__(self, given: SparkSettings, *, project: Path, state_dir: Path) -> None:
        super().__init__(given.workers, idle_seconds=given.idle_seconds, max_age=given.max_age)
        self._given = given
        self._project = project
        self._state_dir = state_dir
        self._is_here = given.where.startswith("local")
        self.worker_name = "a Spark worker" if self._is_here else "an application on the cluster"
        if given.is_connect:
            self.worker_name = "a session of Spark Connect"
        self._environment = {**os.environ, **given.env}
        if given.spark_home is not None:
            self._environment["SPARK_HOME"] = str(project / given.spark_home)
        if given.arguments:
            self._environment["PYSPARK_SUBMIT_ARGS"] = shlex.join(
                [*given.arguments, "pyspark-shell"]
            )

    def key(self) -> str:
        """Return the state of the project's code."""
        return repr(code_state(self._project, without=self._state_dir))

    def new_worker(self, key: str) -> Worker:
        """Start a worker process; raises EnvironmentMissingError."""
        conf = (f"--conf={name}={text}" for name, text in self._properties().items())
        return Worker(
            (*self._given.worker(), *conf),
            key=key,
            project=self._project,
            folder=self._state_dir / "workers",
            environment=self._environment,
        )

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Refuse runs where a worker could not start; raises EnvironmentMissingError."""
        if runs:
            self._check()
            if not (self._given.command or self._given.is_connect):
                find_java(self._environment)

    def open(self) -> None:
        """Start the first worker if there is none; raises EnvironmentMissingError."""
        if not self.has_workers:
            self._check()
            self._threads.submit(self._warm_up).result()

    def _check(self) -> None:
        refuse_missing(self._given.worker()[0], self._project, self._environment)

    def _warm_up(self) -> None:
        with self._worker():
            pass

    def end_remains(self, files: AttemptFiles) -> str | None:
        """End the attempt's sessions on a Spark Connect server, which goes on without a client."""
        if not self._given.is_connect:
            return None
        python, token = self._given.worker()[0], files.spec()["token"]
        return end_sessions(python, self._given.where, token, self._environment)

    def identify(self, handle: str) -> EngineRun:
        """Return the application on the cluster in which the attempt runs."""
        claim = AttemptFiles(Path(handle)).claimed_by() or {}
        name = None if self._is_here else claim.get("application")
        return EngineRun(origin=Origin.CREATED, id=name)

    def call(self, entrypoint: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run `function(spark, **arguments)` of `module:function` in a worker and return its value.

        Raises EngineError with what the function raised.
        """
        return self._threads.submit(self._call, entrypoint, arguments or {}).result()

    def _call(self, entrypoint: str, arguments: Mapping[str, Any]) -> Any:
        request = {"op": "call", "entrypoint": entrypoint, "arguments": dict(arguments)}
        try:
            with self._worker() as worker:
                reply = worker.ask(request)
        except WorkerDied as error:
            raise EngineError(f"{entrypoint}: {error}") from error
        if reply["op"] == "raised":
            failure = reply["error"]
            raise EngineError(f"{entrypoint}: {complaint(failure)}", hint=failure.get("hint", ""))
        return reply["value"]

    # The Spark properties of a worker

    def _properties(self) -> dict[str, str]:
        given, to = self._given, partial(place, self._project)
        if given.is_connect:
            code = ",".join(self._py_files())
            return {**given.conf, "spark.master": given.where, "spark.submit.pyFiles": code}
        conf = {**given.heap(), **given.conf, "spark.master": given.where}
        conf.setdefault("spark.app.name", f"lineage-backfill {self._project.name}")
        if given.where == "yarn":
            conf.setdefault("spark.yarn.tags", "lineage-backfill")
        if given.jars is not None or given.packages:
            conf.setdefault("spark.jars", "")  # else the worker adds Delta's of this machine
        for name, items in (
            ("spark.jars", map(to, given.jars or ())),
            ("spark.jars.packages", given.packages),
            ("spark.jars.repositories", given.repositories),
            ("spark.files", map(to, given.files)),
            ("spark.archives", map(to, given.archives)),
            ("spark.submit.pyFiles", self._py_files()),
        ):
            if added := ",".join(items):
                conf[name] = ",".join(filter(None, (conf.get(name), added)))
        return conf

    def _py_files(self) -> list[str]:
        """Return what executors import; those on this machine find the project by themselves."""
        folder = self._state_dir / "code"
        given = py_files(self._project, self._given.py_files, folder)
        if self._is_here:
            return given
        code = pack_code(self._project, folder, without=self._state_dir)
        return [str(pack_runtime(folder)), str(code), *given]
