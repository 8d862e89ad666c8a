"""The settings of the Spark engine, and what to write for those of earlier versions."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lineage_backfill.engines.seconds import check_seconds
from lineage_backfill.errors import ConfigError
from lineage_backfill.typed import check_members

_LEAST_MEMORY = 1 << 30  # bytes; Spark does not work with less
#: Settings of the process that has the driver, which a Spark Connect server is.
_OF_DRIVERS = (
    *("deploy_mode", "memory", "packages", "repositories", "jars", "files", "archives"),
    *("spark_home", "arguments", "command"),
)
#: Settings of warm workers; with deploy_mode = "cluster" there are none.
_OF_WORKERS = ("workers", "memory", "idle_seconds", "max_age", "command")
_STAY_WARM = 'Remove it: workers stay warm, and with `deploy_mode = "cluster"` each attempt has'
_GONE = {
    "slots": "Write `workers = {value}`.",
    "runs_at_once": "Write `workers = {value}`: each worker does one run at a time.",
    "reuse": f"{_STAY_WARM} an application of its own.",
    "orphan_seconds": "Remove it: a worker without a tool ends after its run.",
    "stranded_seconds": "Remove it: a worker ends with its JVM, and is replaced.",
    "max_runs_per_application": "Write `max_age`, in seconds, or remove it.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The settings of an engine in the project file; lists are given as lists, `conf` as a table.

    `python` runs the jobs, `env` is added to its environment. `py_files` names folders, modules,
    archives or URLs that are sent besides the project's code. `memory` ("4g") limits each process
    of a worker, if the system supports it; the JVM's heap is set accordingly. `arguments` are other
    options of spark-submit. With `lists`, an application does all runs that are ready at once.
    Relative paths start from the project's folder.
    """

    master: str = ""
    deploy_mode: Literal["client", "cluster"] = "client"
    lists: bool = False
    workers: int = 1
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()
    repositories: Sequence[str] = ()
    jars: Sequence[str] | None = None
    py_files: Sequence[str] = ()
    files: Sequence[str] = ()
    archives: Sequence[str] = ()
    memory: str | None = None
    idle_seconds: float = 600
    max_age: float = 43_200
    spark_home: str | None = None
    arguments: Sequence[str] = ()
    command: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_members(self)
        if self.workers < 1:
            raise ValueError(f"`workers` must be at least 1, not {self.workers}")
        for name in ("idle_seconds", "max_age"):
            check_seconds(name, getattr(self, name))
        if self.memory is not None:
            _bytes(self.memory)

    @property
    def is_connect(self) -> bool:
        """Whether the driver is a Spark Connect server."""
        return self.where.startswith("sc://")

    @property
    def where(self) -> str:
        """The master: of the engine, else of Spark's properties, else this machine."""
        return self.master or self.conf.get("spark.master") or "local[*]"

    def worker(self) -> tuple[str, ...]:
        """Return the command of a worker, without its Spark properties."""
        command = self.command or (self.python or sys.executable, "-m", "spark_runtime", "worker")
        return (*command, *(() if self.memory is None else (f"--memory={_bytes(self.memory)}",)))

    def heap(self) -> dict[str, str]:
        """Return the property for the JVM's heap: code, threads and buffers need room too."""
        if self.memory is None:
            return {}
        limit = _bytes(self.memory)
        return {"spark.driver.memory": f"{(limit - max(limit // 4, _LEAST_MEMORY // 2)) >> 20}m"}


def read_settings(settings: Mapping[str, Any]) -> SparkSettings:
    """Check the settings of a project file; raises ConfigError, TypeError, ValueError."""
    for name in settings.keys() & _GONE.keys():
        raise ConfigError(
            f"an engine of kind 'spark' has no setting {name!r} any more",
            hint=_GONE[name].format(value=settings[name]),
        )
    given = SparkSettings(**settings)
    for name in (name for name in _OF_DRIVERS if given.is_connect and name in settings):
        raise ConfigError(
            f"`{name}` has no meaning with Spark Connect",
            hint="Remove it, and set what it is for where the server is started.",
        )
    if given.lists and given.deploy_mode == "client":
        raise ConfigError(
            '`lists` has no meaning with deploy_mode = "client"',
            hint="Remove it: there each worker does one run after the other.",
        )
    if given.deploy_mode == "cluster":
        for name in (name for name in _OF_WORKERS if name in settings):
            raise ConfigError(
                f'`{name}` has no meaning with deploy_mode = "cluster"',
                hint="Remove it: there each attempt is an application of its own.",
            )
    return given


def refuse_spark_submit(**settings: Any) -> None:
    """Refuse an engine of the kind that earlier versions had for clusters."""
    for name in settings.keys() & _GONE.keys():
        hint = f" {_GONE[name].format(value=settings[name])} (`{name}`)"
        raise _no_spark_submit(hint)
    raise _no_spark_submit("")


def _no_spark_submit(more: str) -> ConfigError:
    return ConfigError(
        "there is no engine of kind 'spark-submit' any more",
        hint=f'Write `kind = "spark"`; `master`, `deploy_mode` and `conf` stay as they are.{more}',
    )


def _bytes(memory: str) -> int:
    match = re.fullmatch(r"(\d+)([mg])b?", memory.strip().lower())
    amount = int(match[1]) << (30 if match[2] == "g" else 20) if match else 0
    if amount < _LEAST_MEMORY:
        raise ValueError(f'`memory` must be a size of at least 1g, such as "4g", not {memory!r}')
    return amount
