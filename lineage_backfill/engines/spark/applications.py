"""The spark-submit engine: one application for each attempt, or warm ones for many."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles, LifeSign
from lineage_backfill.engines.process import pause_after
from lineage_backfill.engines.seconds import check_seconds
from lineage_backfill.engines.spark.application import (
    HERE,
    Application,
    Place,
    Requested,
    Terms,
    kill,
    new_folder,
    remove_dead,
)
from lineage_backfill.engines.spark.clusters import Cluster
from lineage_backfill.engines.spark.pool import PoolEngine
from lineage_backfill.engines.spark.spark_submit import SparkSubmitEngine
from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, Engine, Outcome
from lineage_backfill.typed import check_members

_JAVA = "spark.driver.defaultJavaOptions"
#: A driver out of memory ends: with a full heap it would fail the next runs, too.
_EXIT = "-XX:+ExitOnOutOfMemoryError"
_FRESH = 2.0  # seconds for which the cluster's answer is reused, at least
#: What keeps the driver of many runs small. Its heap starts small, grows with the runs that need
#: more, and then shrinks: by default, Java takes a 64th of the machine's memory, and retains it.
#: What Java's compilers have used is given back (by a Java that can; others ignore the option).
#: Spark's pages show the last 100 jobs, stages and queries, by default 1,000.
_SMALL_DRIVER = {
    _JAVA: "-Xms64m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
    " -XX:+IgnoreUnrecognizedVMOptions -XX:TrimNativeHeapInterval=10000",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseSettings:
    """The settings of warm applications, in addition to those of spark-submit.

    There are up to `slots` at once, each with up to `runs_at_once` runs. One ends after
    `idle_seconds` without a run, `orphan_seconds` without a tool, `stranded_seconds` without
    executors, or `max_runs_per_application` runs.
    """

    slots: int = 1
    runs_at_once: int = 1
    idle_seconds: float = 600
    orphan_seconds: float = 60
    stranded_seconds: float = 120
    max_runs_per_application: int = 1000

    def __post_init__(self) -> None:
        check_members(self)
        for name in ("orphan_seconds", "stranded_seconds"):
            check_seconds(name, getattr(self, name))
        for name in ("runs_at_once", "max_runs_per_application"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, not {getattr(self, name)}")


def spark_submit_engine(*, reuse: bool | None = None, **settings: Any) -> Engine:
    """Make the engine; with `reuse` it also takes the members of ReuseSettings.

    Without `reuse`, drivers on this machine are reused. Those on the cluster are not, as they must
    then see the tool's state folder. Raises ValueError.
    """
    given = {name: settings.pop(name) for name in ReuseSettings.__slots__ if name in settings}
    if reuse is None:
        reuse = settings.get("deploy_mode", "client") == "client"
    if reuse:
        return ReusingEngine(ReuseSettings(**given), **settings)
    if given:
        raise ValueError(f"`{next(iter(given))}` needs `reuse = true`")
    return SparkSubmitEngine(**settings)


class ReusingEngine(PoolEngine):
    """Keeps warm applications on the cluster, each for many attempts, several at once.

    Attempts with other code, settings or files get other applications. The drivers run on this
    machine, or on the cluster if it has the tool's state folder under the same path.
    """

    def __init__(
        self, reuse: ReuseSettings, *, project: Path, state_dir: Path, **settings: Any
    ) -> None:
        seats = {"slots": reuse.slots, "at_once": reuse.runs_at_once}
        super().__init__(**seats, idle_seconds=reuse.idle_seconds)
        self._reuse = reuse
        if reuse.runs_at_once > 1:
            fair = {"spark.scheduler.mode": "FAIR"}
            settings = {**settings, "conf": {**fair, **settings.get("conf", {})}}
        self._submit = SparkSubmitEngine(project=project, state_dir=state_dir, **settings)
        cluster = self._submit.cluster
        self._place = HERE if cluster is None else OnCluster(cluster)
        self._environment: Mapping[str, str] = settings.get("env", {})
        self._folder = state_dir / "applications"
        self._entrypoints: dict[str, str] = {}  # one for each key
        self._packing = Lock()

    worker_name = "an application on the cluster"

    def open(self) -> None:
        """Find program and jars, and pack the code; raises EnvironmentMissingError."""
        self._submit.open()

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Refuse runs where something is missing, as `open` does."""
        self._submit.check(runs, spec_of)

    def key(self, files: AttemptFiles) -> str:
        """Return a hash of everything that distinguishes one application from another."""
        entrypoint = files.spec()["job"]["entrypoint"]
        with self._packing:
            command = self._submit.submission("", entrypoint, ())
            beside = self._submit.code_beside
        stats = [(str(path), path.stat()) for path in self._submit.shipped(entrypoint)]
        sent = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
        made = json.dumps(
            [command, sent, beside, sorted(self._environment.items()), self._reuse.runs_at_once]
        )
        key = hashlib.sha256(made.encode()).hexdigest()[:16]
        self._entrypoints[key] = entrypoint
        return key

    def new_worker(self, key: str, *, own: bool = False) -> Application:
        """Take over an application that has lost its tool, or start one."""
        others = self._folder.iterdir() if self._folder.is_dir() and not own else ()
        for folder in others:
            taken = Application.idle(folder, key, self._place)
            if taken is not None:
                return taken
        return self._start(key, own=own)

    def _start(self, key: str, *, own: bool) -> Application:
        remove_dead(self._folder, self._place)
        folder = new_folder(self._folder)
        command = self._submit.submission(
            f"lineage-backfill {folder.name}",
            self._entrypoints[key],
            ("application", "--folder", str(folder.resolve())),
            conf={
                **self._submit.unless_given(_SMALL_DRIVER),
                _JAVA: f"{_EXIT} {self._submit.setting(_JAVA) or _SMALL_DRIVER[_JAVA]}",
                **self._submit.found_by(folder.name, folder / "uploads"),
            },
        )
        reuse = self._reuse
        terms = Terms(
            key=key,
            orphan_seconds=reuse.orphan_seconds,
            stranded_seconds=reuse.stranded_seconds,
            max_runs=1 if own else reuse.max_runs_per_application,
            at_once=reuse.runs_at_once,
        )
        where = {"cwd": self._submit.project, "env": self._submit.environment}
        return Application.start(command, terms, folder, self._place, **where)

    # A run that ended its application is tried once more, in an application of its own.

    def needs_own(self, files: AttemptFiles) -> bool:
        """Whether an earlier attempt of the run ended its application."""
        return any(
            self._requested(claim).ended_its_application
            for one in files.earlier()
            if (claim := one.claimed_by()) is not None and "request" in claim
        )

    def died(self, files: AttemptFiles, error: str) -> Outcome:
        """Return a failure, which is final if the application had only this run."""
        if not self.needs_own(files):
            return super().died(files, error)
        alone = f"two applications in a row ended without another run: {error}"
        return Outcome(state=AttemptState.FAILED, error=alone)

    # Attempts of earlier executors

    def can_tell(self, spec_path: Path, token: str) -> bool:
        """Whether an attempt that another machine began can be judged here.

        An application on the cluster can be asked by each machine that has its folder.
        """
        claim = AttemptFiles(spec_path).claimed_by() if self._place.is_far else None
        has_folder = claim is not None and "request" in claim and self._requested(claim).is_known
        return has_folder or super().can_tell(spec_path, token)

    def was_begun(self, claim: Mapping[str, Any]) -> bool:
        """Check the application's folder; a request that was not taken is withdrawn."""
        return "request" not in claim or not self._requested(claim).withdraw()

    def works(self, claim: Mapping[str, Any]) -> bool:
        """Whether the application is alive and has not answered."""
        return self._requested(claim).is_open if "request" in claim else super().works(claim)

    def wait(self, claim: Mapping[str, Any]) -> None:
        """Wait until the application has answered or is dead."""
        if "request" in claim:
            self._requested(claim).wait()
        else:
            super().wait(claim)

    def taken_over(self, claim: Mapping[str, Any]) -> Application | None:
        """Return the application that is working on an attempt, if it has lost its tool."""
        if "request" not in claim:
            return None
        requested = self._requested(claim)
        for worker in self._seating.workers:
            if isinstance(worker, Application) and worker.folder == requested.folder:
                worker.follow(requested)
                return worker
        return Application.at_work(requested)

    def stop(self, claim: Mapping[str, Any]) -> None:
        """Tell the application to stop the run."""
        if "request" in claim:
            self._requested(claim).cancel()
        else:
            super().stop(claim)

    def _requested(self, claim: Mapping[str, Any]) -> Requested:
        return Requested(Path(claim["application"]), claim["request"], self._place)


class OnCluster(Place):
    """A cluster, on which an application is named after its folder.

    While spark-submit waits for the application, it is alive: that saves most requests.
    """

    is_far = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, tuple[float, bool]] = {}  # when to ask again, and the last answer
        self._stopped: dict[str, float] = {}  # when it was last stopped

    def lives(self, folder: Path) -> bool:
        """Whether spark-submit waits for it, or the cluster runs it or does not answer."""
        if LifeSign(folder / "alive").is_alive():
            return True
        again, lives = self._known.get(folder.name, (0.0, True))
        began = time.monotonic()
        if lives and began >= again:
            with suppress(ServiceUnreachableError):
                state = self._cluster.look(folder.name)
                lives = state is not None and not state.is_final
            now = time.monotonic()
            self._known[folder.name] = (now + pause_after(now - began, least=_FRESH), lives)
        return lives

    def kill(self, folder: Path) -> None:
        """Stop it on the cluster if that answers, and the local process that waits for it."""
        now = time.monotonic()
        if not self.lives(folder) or now - self._stopped.get(folder.name, -_FRESH) < _FRESH:
            return
        self._stopped[folder.name] = now
        with suppress(ServiceUnreachableError):
            self._cluster.stop(folder.name)
        if LifeSign(folder / "alive").is_alive():
            kill(folder)
