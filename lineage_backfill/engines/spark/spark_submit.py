"""Runs each attempt as a Spark application whose driver is on the cluster, with spark-submit.

Its outcome comes from, in this order: the result file, which the job writes after it has checked
the logs of its tables; those logs, if the driver died before; the cluster; the exit code.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.process import ProcessEngine, ended
from lineage_backfill.engines.runtime import find_jars, reconcile
from lineage_backfill.engines.spark.clusters import Cluster, Kubernetes, asker, was_killed
from lineage_backfill.engines.spark.settings import SparkSettings
from lineage_backfill.engines.spark.shipping import pack_code, pack_runtime, place, py_files
from lineage_backfill.engines.spark.yarn import Yarn, resource_manager
from lineage_backfill.errors import EnvironmentMissingError, ServiceUnreachableError
from lineage_backfill.files import private_folder, whole_file
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, EngineRun, Origin, Outcome

#: Settings for Delta, which a session only takes when it starts.
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_MAIN = "import sys\n\nfrom spark_runtime.__main__ import main\n\nsys.exit(main())\n"


class SparkSubmitEngine(ProcessEngine):
    """Submits each attempt with spark-submit, in deploy mode `cluster`.

    It is sent with `spark_runtime`, the project's code and `py_files`. Without `jars` and
    `packages`, Delta's jars of this machine are sent too.
    """

    can_undo = True
    is_shared = True

    def __init__(self, given: SparkSettings, *, project: Path, state_dir: Path) -> None:
        super().__init__(project=project, state_dir=state_dir, env=given.env)
        self.lists = given.lists
        self._conf = {**_DELTA, **given.conf}
        if given.python:
            self._conf.setdefault("spark.pyspark.python", given.python)
        self._state_dir = state_dir
        self._folder = state_dir / "spark-submit"
        self._arguments = list(given.arguments)
        self._program, home = _find_program(given.spark_home, self.environment)
        if home is not None:
            self.environment["SPARK_HOME"] = home
        to = partial(place, project)
        self._given: dict[str, list[str]] = {
            "--master": [given.where],
            "--deploy-mode": ["cluster"],
            "--packages": list(given.packages),
            "--repositories": list(given.repositories),
            "--jars": [*map(to, given.jars or ())],
            "--py-files": list(given.py_files),
            "--files": [*map(to, given.files)],
            "--archives": [*map(to, given.archives)],
        }
        self._needs_jars = given.jars is None and not given.packages
        self.cluster = self._cluster_of(given.where)

    # The parts of the port that differ from those of ProcessEngine

    def open(self) -> None:
        """Find program and jars, and pack the code; raises EnvironmentMissingError."""
        if shutil.which(self._program) is None:
            raise EnvironmentMissingError(
                f"there is no {self._program}",
                hint="Name Spark's folder: `spark_home` of this engine, or SPARK_HOME.",
            )
        self.cluster.check(self._conf)
        if self._needs_jars:
            self._given["--jars"] = list(find_jars())
            self._needs_jars = False

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Refuse runs where something is missing, as `open` does."""
        if runs:
            self.open()

    def identify(self, handle: str) -> EngineRun:
        """Return the application, with its name on the cluster if it has one."""
        name = self.cluster.name(_token(AttemptFiles(Path(handle))))
        return EngineRun(origin=Origin.CREATED, id=name)

    # Starting

    def command(self, files: AttemptFiles) -> Sequence[str]:
        """Return the command line of an attempt."""
        self.open()
        spec = files.spec()
        token = spec["token"]
        given = {
            **self._given,
            "--py-files": self._py_files(),
            "--files": [*self._given["--files"], str(files.spec_path)],
        }
        found_by = self.cluster.properties(token, self._conf, self._uploads(token))
        conf = {**self._conf, **found_by}
        options = ((name, ",".join(values)) for name, values in given.items() if values)
        return [
            self._program,
            *(part for option in options for part in option),
            *("--name", " ".join(f"{spec['job']['name']} {token}".split())),
            *(part for item in conf.items() for part in ("--conf", "=".join(item))),
            *self._arguments,
            str(self._main()),
            *("run", "--spec", files.spec_path.name),
        ]

    def _py_files(self) -> list[str]:
        code = pack_code(self.project, self._folder, without=self._state_dir)
        given = py_files(self.project, self._given["--py-files"], self._folder)
        return list(dict.fromkeys([str(pack_runtime(self._folder)), str(code), *given]))

    def _main(self) -> Path:
        main = self._folder / "run_spec.py"
        if not main.exists():
            private_folder(main.parent)
            with whole_file(main) as file:
                file.write(_MAIN.encode())
        return main

    # Outcomes

    def judge(
        self, files: AttemptFiles, *, reported: Outcome | None, code: int | None
    ) -> Outcome | None:
        """Judge by result file, tables' logs, cluster and a failure's exit code, in this order."""
        if reported is not None and not reported.transient:
            return reported
        outcome = reconcile(files) or reported
        if outcome is not None:
            return outcome
        token = _token(files)
        state = self.cluster.look(token)
        if state is None:
            return ended(files, code) if code else None
        if state is AttemptState.SUCCEEDED:
            return Outcome(state=state)
        reason = self.cluster.reason(token)
        why = "".join(f": {line}" for line in reason.splitlines()[:1])
        return Outcome(
            state=AttemptState.FAILED,
            error=f"the application's state on the cluster is {state}{why}; its log: "
            + self.cluster.log_place(token),
            transient=state is AttemptState.FAILED and was_killed(reason),
        )

    def _uploads(self, token: str) -> Path:
        return self._folder / "uploads" / token

    def _keep(self, handle: str, outcome: Outcome) -> None:
        super()._keep(handle, outcome)
        with suppress(OSError, ValueError, KeyError):  # of its run spec, if that is damaged
            uploads = self._uploads(_token(AttemptFiles(Path(handle))))
            shutil.rmtree(uploads, ignore_errors=True)

    def works_elsewhere(self, files: AttemptFiles) -> bool:
        """Whether the driver still runs on the cluster; a cancelled one is stopped."""
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
        known = self.cluster.look(token) is not None
        return known or self.left(spec_path, token) is not None

    def stop(self, files: AttemptFiles, pid: int | None) -> None:
        """Stop the application; one that only appears on the cluster later is stopped then."""
        super().stop(files, pid)
        try:
            self.cluster.stop(_token(files))
        except ServiceUnreachableError as error:
            files.add_to_log(f"it could not be stopped: {error}\n")

    def _cluster_of(self, master: str) -> Cluster:
        if master == "yarn":
            return Yarn(resource_manager(self.environment, self._conf))
        if master.startswith("k8s://"):
            submit = (self._program, "--master", master)
            ask = asker(self.environment, with_errors=True)  # spark-submit answers there
            return Kubernetes(ask, submit=submit, conf=self._conf)
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


def _token(files: AttemptFiles) -> str:
    return str(files.spec()["token"])
