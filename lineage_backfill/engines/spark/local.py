"""Runs jobs on this machine, in Spark worker processes that stay warm."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lineage_backfill.engines.runtime import find_java, refuse_missing
from lineage_backfill.engines.spark.pool import PoolEngine, complaint
from lineage_backfill.engines.spark.worker import SPARK_WORKER, Worker, WorkerDied
from lineage_backfill.errors import EngineError
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.typed import check_members

_LEAST_MEMORY = 1 << 30  # bytes; Spark does not work with less


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The settings of the engine in the project file.

    `env` is added to the environment of the workers, `python` runs them, `conf` holds Spark
    settings. `memory` ("4g") limits each process of a worker, if the system supports it; the JVM's
    heap is set accordingly.
    """

    slots: int = 1
    python: str = SPARK_WORKER[0]
    env: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    memory: str | None = None
    idle_seconds: float = 600
    command: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_members(self)

    def worker(self) -> tuple[str, ...]:
        """Return the command of a worker."""
        conf, limits = dict(self.conf), []
        if self.memory is not None:
            limit = _bytes(self.memory)
            limits = [f"--memory={limit}"]
            conf.setdefault("spark.driver.memory", f"{_heap(limit) >> 20}m")
        command = tuple(self.command) or (self.python, *SPARK_WORKER[1:])
        return (*command, *limits, *(f"--conf={name}={text}" for name, text in conf.items()))


class LocalEngine(PoolEngine):
    """Up to `slots` warm workers on this machine; takes the members of LocalSettings."""

    def __init__(self, *, project: Path, state_dir: Path, **settings: Any) -> None:
        given = LocalSettings(**settings)
        super().__init__(slots=given.slots, idle_seconds=given.idle_seconds)
        self._command = given.worker()
        self._needs_java = not given.command
        self._project = project
        self._folder = state_dir / "workers"
        self._environment = {**os.environ, **given.env}

    def new_worker(self, key: str, *, own: bool = False) -> Worker:
        """Start a worker process."""
        return Worker(
            self._command,
            project=self._project,
            folder=self._folder,
            environment=self._environment,
        )

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Refuse runs where a worker could not start; raises EnvironmentMissingError."""
        if runs:
            refuse_missing(self._command[0], self._project, self._environment)
            if self._needs_java:
                find_java(self._environment)

    def open(self) -> None:
        """Start the first worker if there is none; raises EnvironmentMissingError."""
        if not self._seating.workers:
            refuse_missing(self._command[0], self._project, self._environment)
            self._threads.submit(self._warm_up).result()

    def _warm_up(self) -> None:
        with self._seat():
            pass

    def call(self, entrypoint: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run `function(spark, **arguments)` of `module:function` in a worker and return its value.

        Raises EngineError with what the function raised.
        """
        return self._threads.submit(self._call, entrypoint, arguments or {}).result()

    def _call(self, entrypoint: str, arguments: Mapping[str, Any]) -> Any:
        request = {"op": "call", "id": uuid.uuid4().hex, "entrypoint": entrypoint}
        try:
            with self._seat() as worker:
                reply = worker.ask({**request, "arguments": dict(arguments)})
        except WorkerDied as error:
            raise EngineError(f"{entrypoint}: {error}") from error
        if reply["op"] == "raised":
            said = reply["error"]
            raise EngineError(f"{entrypoint}: {complaint(said)}", hint=said.get("hint", ""))
        return reply["value"]


def _bytes(memory: str) -> int:
    match = re.fullmatch(r"(\d+)([mg])b?", memory.strip().lower())
    amount = int(match[1]) << (30 if match[2] == "g" else 20) if match else 0
    if amount < _LEAST_MEMORY:
        raise ValueError(f'`memory` must be a size of at least 1g, such as "4g", not {memory!r}')
    return amount


def _heap(limit: int) -> int:
    """Return the JVM's heap size for a limit: code, threads and buffers need room too."""
    return limit - max(limit // 4, _LEAST_MEMORY // 2)
