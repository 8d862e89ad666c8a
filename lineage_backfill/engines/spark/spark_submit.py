"""Runs each attempt as a separate Spark application with spark-submit, also on a cluster.

Its outcome comes from, in this order: the result file, which the job writes after it has checked
the logs of its tables; those logs, if the driver died before; the cluster, if the driver runs
there; the exit code.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Timer
from typing import Any, Literal

from lineage_backfill.engines.attempt import AttemptFiles, kill_group
from lineage_backfill.engines.process import ProcessEngine, ended
from lineage_backfill.engines.runtime import find_jars, reconcile
from lineage_backfill.engines.spark.clusters import MOST_LOG, Cluster, Kubernetes, asker, was_killed
from lineage_backfill.engines.spark.defaults import defaults_file, read_defaults
from lineage_backfill.engines.spark.shipping import code_state, find_code, pack, pack_runtime
from lineage_backfill.engines.spark.yarn import Yarn, application_id, resource_manager, tagged
from lineage_backfill.errors import EnvironmentMissingError, ServiceUnreachableError
from lineage_backfill.files import private_folder, whole_file
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, EngineRun, Origin, Outcome
from lineage_backfill.typed import check_members

#: Settings for Delta, which a session only takes when it starts.
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_MAIN = "import sys\n\nfrom spark_runtime.__main__ import main\n\nsys.exit(main())\n"
_RUNTIME = "spark_runtime"  # in the packed code
_PATIENCE = 10.0  # seconds for a driver to end by itself before it is killed


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSubmitSettings:
    """The settings of the engine in the project file: options of spark-submit.

    Lists are given as lists, `conf` as a table. `py_files` names folders, modules, archives or
    URLs that go with each attempt. `python` runs the job: on this machine, where the driver is
    here, and on the cluster. Relative paths start from the project's folder.
    """

    master: str = ""
    deploy_mode: Literal["client", "cluster"] = "client"
    spark_home: str | None = None
    python: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()
    repositories: Sequence[str] = ()
    jars: Sequence[str] | None = None
    py_files: Sequence[str] = ()
    files: Sequence[str] = ()
    archives: Sequence[str] = ()
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_members(self)


class SparkSubmitEngine(ProcessEngine):
    """Submits each attempt with spark-submit; takes the members of SparkSubmitSettings.

    Each attempt is sent with `spark_runtime`, the project's package that contains its entrypoint,
    and `py_files`. Without `jars` and `packages`, Delta's jars of this machine are sent too.
    """

    can_undo = True

    def __init__(self, *, project: Path, state_dir: Path, **settings: Any) -> None:
        given = SparkSubmitSettings(**settings)
        super().__init__(project=project, state_dir=state_dir, env=given.env)
        is_here = given.deploy_mode == "client"
        self._conf = {**_DELTA, **given.conf}
        python = given.python or (sys.executable if is_here else None)
        if python:
            self._conf.setdefault("spark.pyspark.python", python)
        self._folder = state_dir / "spark-submit"
        self._arguments = list(given.arguments)
        self._program, home = _find_program(given.spark_home, self.environment)
        if home is not None:
            self.environment["SPARK_HOME"] = home
        file = defaults_file(self.environment, self._arguments)
        self._effective = {**(read_defaults(self.project / file) if file else {}), **self._conf}
        self._given: dict[str, list[str]] = {
            "--master": [given.master] if given.master else [],
            "--deploy-mode": [given.deploy_mode],
            "--packages": list(given.packages),
            "--repositories": list(given.repositories),
            "--jars": [self._place(jar) for jar in given.jars or ()],
            "--py-files": list(given.py_files),
            "--files": [self._place(file) for file in given.files],
            "--archives": [self._place(archive) for archive in given.archives],
        }
        self._needs_jars = given.jars is None and not given.packages
        self._code: dict[str, str] = {}
        self._is_on_yarn = given.master == "yarn"
        self.cluster = None if is_here else self._cluster_of(given.master)
        self.is_shared = self.cluster is not None

    # The parts of the port that differ from those of ProcessEngine

    def open(self) -> None:
        """Find program and jars, and pack the code; raises EnvironmentMissingError."""
        if shutil.which(self._program) is None:
            raise EnvironmentMissingError(
                f"there is no {self._program}",
                hint="Name Spark's folder: `spark_home` of this engine, or SPARK_HOME.",
            )
        if self.cluster is not None:
            self.cluster.check(self._effective)
        if self._needs_jars:
            self._given["--jars"] = list(find_jars())
            self._needs_jars = False
        if _RUNTIME not in self._code:
            self._code[_RUNTIME] = str(pack_runtime(self._folder))

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Refuse runs where something is missing, as `open` does."""
        if runs:
            self.open()

    def identify(self, handle: str) -> EngineRun:
        """Return the application, with its name on the cluster if it has one."""
        name, files = None, AttemptFiles(Path(handle))
        if self.cluster is not None:
            name = self.cluster.name(_token(files), files.log_begin())
        elif self._is_on_yarn:  # the driver's own output follows
            name = application_id(files.log_begin())
        return EngineRun(origin=Origin.CREATED, id=name)

    # Starting

    def command(self, files: AttemptFiles) -> Sequence[str]:
        """Return the command line of an attempt."""
        spec = files.spec()
        token, job = spec["token"], spec["job"]
        sent: list[str] = []
        spec_path = str(files.spec_path)
        if self.cluster is not None:
            sent = [spec_path]
            spec_path = files.spec_path.name
        return self.submission(
            f"{job['name']} {token}",
            job["entrypoint"],
            ("run", "--spec", spec_path),
            conf=self.found_by(token, self._uploads(token)),
            files=sent,
        )

    def found_by(self, token: str, folder: Path) -> Mapping[str, str]:
        """Return the properties by which an application and its files, in a folder, are found."""
        if self.cluster is not None:
            return self.cluster.properties(token, self._effective, folder)
        return tagged(token, self._effective) if self._is_on_yarn else {}

    def setting(self, name: str) -> str | None:
        """Return a property as the settings or Spark's own file give it."""
        return self._effective.get(name)

    def unless_given(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Return the properties that neither the settings nor Spark's own file give."""
        return {name: value for name, value in conf.items() if name not in self._effective}

    def submission(
        self,
        name: str,
        entrypoint: str,
        arguments: Sequence[str],
        *,
        conf: Mapping[str, str] | None = None,
        files: Sequence[str] = (),
    ) -> list[str]:
        """Return the command line that runs `spark_runtime` with arguments as an application.

        The code of `entrypoint` is sent with it, and `conf` and `files` in addition to the
        settings.
        """
        self.open()
        given = {option: list(values) for option, values in self._given.items()}
        given["--py-files"] = self._py_files(entrypoint)
        given["--files"] += files
        properties = {**self._conf, **(conf or {})}
        return [
            self._program,
            *(
                part
                for option, values in given.items()
                if values
                for part in (option, _csv(values))
            ),
            *("--name", " ".join(name.split())),
            *(part for item in properties.items() for part in ("--conf", "=".join(item))),
            *self._arguments,
            str(self._main()),
            *arguments,
        ]

    def shipped(self, entrypoint: str) -> list[Path]:
        """Return the files of this machine that are sent with an application."""
        options = ("--jars", "--files", "--archives")
        named = [item for option in options for item in self._given[option]]
        paths = (Path(item.partition("#")[0]) for item in [*named, *self._py_files(entrypoint)])
        return [path for path in paths if path.is_file()]

    @cached_property
    def code_beside(self) -> list[tuple[str, int, int]]:
        """The project's code that drivers on this machine import, as this engine found it."""
        if self.cluster is not None:
            return []
        return code_state(self.project, without=self._folder.parent)

    def _py_files(self, entrypoint: str) -> list[str]:
        code = find_code(self.project, entrypoint)
        given = [self._shipped(item) for item in self._given["--py-files"]]
        own = [self._packed(code)] if code is not None else []
        return list(dict.fromkeys([self._code[_RUNTIME], *own, *given]))

    def _shipped(self, item: str) -> str:
        path = self.project / item
        return self._packed(path) if path.is_dir() else self._place(item)

    def _packed(self, code: Path) -> str:
        """Return the archive of some code as it was when this engine first used it."""
        if str(code) not in self._code:
            self._code[str(code)] = str(pack(code, self._folder))
        return self._code[str(code)]

    def _place(self, item: str) -> str:
        return item if "://" in item else str(self.project / item)

    def _main(self) -> Path:
        main = self._folder / "run_spec.py"
        if not main.exists():
            private_folder(main.parent)
            with whole_file(main) as file:
                file.write(_MAIN.encode())
        return main

    # Outcomes

    def judge(
        self, files: AttemptFiles, *, said: Outcome | None, code: int | None
    ) -> Outcome | None:
        """Judge by result file, tables' logs, cluster and exit code, in this order."""
        if said is not None and not said.transient:
            return said
        outcome = reconcile(files) or said
        if outcome is not None:
            return outcome
        if self.cluster is not None and not (code == 0 and self.cluster.trusts_exit_code):
            return self._judged_by_cluster(self.cluster, files, code)
        if code is None:
            return None
        if code:
            return ended(files, code)
        if self.cluster is not None:  # it ran where it cannot write our files
            return Outcome(state=AttemptState.SUCCEEDED)
        silent = "the driver ended with exit code 0, and left neither a result file nor a commit"
        return Outcome(state=AttemptState.FAILED, error=silent)

    def _judged_by_cluster(
        self, cluster: Cluster, files: AttemptFiles, code: int | None
    ) -> Outcome | None:
        state = cluster.look(_token(files))
        if state is None:
            return ended(files, code) if code else None
        if state is AttemptState.SUCCEEDED:
            return Outcome(state=state)
        reason = cluster.reason(_token(files))
        why = "".join(f": {line}" for line in reason.splitlines()[:1])
        return Outcome(
            state=AttemptState.FAILED,
            error=f"the application's state on the cluster is {state}{why}; see its log",
            transient=state is AttemptState.FAILED and was_killed(reason),
        )

    def _uploads(self, token: str) -> Path:
        return self._folder / "uploads" / token

    def _keep(self, handle: str, outcome: Outcome) -> None:
        super()._keep(handle, outcome)
        files = AttemptFiles(Path(handle))
        with suppress(OSError, ValueError, KeyError):  # of its run spec, if that is damaged
            if self.cluster is not None and outcome.state is AttemptState.FAILED:
                files.add_to_log(_log_of(self.cluster, _token(files)))
            shutil.rmtree(self._uploads(_token(files)), ignore_errors=True)

    def works_elsewhere(self, files: AttemptFiles) -> bool:
        """Whether the driver still runs on the cluster; a cancelled one is stopped."""
        if self.cluster is None:
            return False
        state = self.cluster.look(_token(files))
        if state is None or state.is_final:
            return False
        if str(files.spec_path) in self._cancelled:  # it appeared there too late for `stop`
            self.cluster.stop(_token(files))
        return True

    def can_tell(self, spec_path: Path, token: str) -> bool:
        """Whether an attempt of another machine can be judged here.

        If the cluster does not know it, spark-submit may still be about to submit it there.
        """
        known = self.cluster is not None and self.cluster.look(token) is not None
        return known or self.left(spec_path, token) is not None

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the driver to end; if only its JVM died, stop Python too."""
        # It is not reaped before that, so its id was not reused.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        kill_group(process.pid)
        process.wait()

    def stop(self, files: AttemptFiles, pid: int | None) -> None:
        """Ask the driver to end, which releases its executors; kill it if it does not."""
        if pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGTERM)
            timer = Timer(_PATIENCE, _kill, [files, pid])
            timer.daemon = True
            timer.start()
        if self.cluster is not None:
            try:
                self.cluster.stop(_token(files))
            except ServiceUnreachableError as error:
                files.add_to_log(f"it could not be stopped: {error}\n")

    def _cluster_of(self, master: str) -> Cluster:
        if master == "yarn":
            manager = resource_manager(self.environment, self._effective)
            waits = self._effective.get("spark.yarn.submit.waitAppCompletion") != "false"
            return Yarn(asker(self.environment), manager, waits=waits)
        if master.startswith("k8s://"):
            submit = (self._program, "--master", master)
            ask = asker(self.environment, with_errors=True)  # spark-submit answers there
            return Kubernetes(ask, submit=submit, conf=self._effective)
        raise ValueError(
            f'deploy_mode = "cluster" is for YARN and Kubernetes, not for master {master!r}: '
            "Spark runs no Python driver there"
        )


def _find_program(spark_home: str | None, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Return spark-submit and its Spark folder: as given, else PySpark's, else from PATH."""
    pyspark = importlib.util.find_spec("pyspark")
    home = spark_home or environment.get("SPARK_HOME")
    if home is None and pyspark is not None and pyspark.origin is not None:
        home = str(Path(pyspark.origin).parent)
    if home is None:
        return "spark-submit", None
    return str(Path(home) / "bin" / "spark-submit"), home


def _log_of(cluster: Cluster, token: str) -> str:
    """Return the end of the driver's log, or why it cannot be read."""
    try:
        return cluster.logs(token)[-MOST_LOG:]
    except ServiceUnreachableError as error:
        return f"the driver's log cannot be read: {error}\n"


def _kill(files: AttemptFiles, pid: int) -> None:
    if files.life_sign():
        kill_group(pid)


def _token(files: AttemptFiles) -> str:
    return str(files.spec()["token"])


def _csv(values: Sequence[str]) -> str:
    return ",".join(values)
