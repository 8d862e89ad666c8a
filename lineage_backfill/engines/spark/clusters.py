"""Finds, stops and reads applications whose driver runs on a cluster, by the attempt's token.

The cluster's own command-line programs know how to log in.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from lineage_backfill.engines.attempt import signal_of
from lineage_backfill.engines.process import cause
from lineage_backfill.errors import EnvironmentMissingError, ServiceUnreachableError
from lineage_backfill.ports import AttemptState

#: Runs a program and returns its output; raises ServiceUnreachableError.
Ask = Callable[[Sequence[str]], str]

_TIMEOUT = 120  # seconds
_PHASE = re.compile(r"\bphase: (\w+)")
_ENDED = re.compile(r"\b(?:exit code|termination reason): \S+")
#: How YARN and Kubernetes tell a driver's exit code.
_EXIT = re.compile(r"\bexit(?:ed with status| ?code:?(?: is)?) *(-?\d+)", re.IGNORECASE)
#: YARN's exit codes of containers that its nodes or itself ended:
#: https://hadoop.apache.org/docs/stable/api/org/apache/hadoop/yarn/api/records/ContainerExitStatus
_YARN_ENDED = range(-109, -99)
_PREFIX = "spark.kubernetes."
_UPLOADS = f"{_PREFIX}file.upload.path"
#: The properties by which files reach a driver.
_SHARES = (f"{_PREFIX}driver.volumes.", f"{_PREFIX}driver.podTemplateFile", _UPLOADS)
#: What spark-submit says of a pod, as far as it is read here.
_STATES = (
    'jsonpath=phase: {.status.phase}{range .status.containerStatuses[*].state.terminated}{"\\n"}'
    'exit code: {.exitCode}{"\\n"}termination reason: {.reason}{end}'
)
_GET = ("get", "pod", "--ignore-not-found", "--request-timeout", "30s", "--output", _STATES)


class Cluster(Protocol):
    """Where drivers run."""

    def properties(self, token: str, given: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        """Return the Spark properties by which the application and its files can be found.

        `given` are those of the settings; `folder` may hold files until the application has ended.
        """

    def name(self, token: str) -> str | None:
        """Return the cluster's name of the application, None if it has none yet."""

    def check(self, given: Mapping[str, str]) -> None:
        """Refuse settings with which nothing can run there; raises EnvironmentMissingError."""
        return  # by default, none

    def look(self, token: str) -> AttemptState | None:
        """Return the state of the application on the cluster, None if it is unknown there."""

    def reason(self, token: str) -> str:
        """Return what the cluster says about the end of the application, "" if nothing."""

    def stop(self, token: str) -> None:
        """Stop the application."""

    def log_place(self, token: str) -> str:
        """Return the address of the driver's log, or the command that prints it."""


class Kubernetes(Cluster):
    """Kubernetes; the driver's pod is named after the token.

    Phases: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase
    """

    _PHASES: Mapping[str, AttemptState] = {
        "Pending": AttemptState.QUEUED,
        "Running": AttemptState.RUNNING,
        "Succeeded": AttemptState.SUCCEEDED,
        "Failed": AttemptState.FAILED,
    }

    def __init__(self, ask: Ask, *, submit: Sequence[str], conf: Mapping[str, str]) -> None:
        """Ask with spark-submit, which is called with `submit` and the properties `conf`."""
        self._ask = ask
        ours = [item for item in conf.items() if item[0].startswith(_PREFIX)]
        self._submit = [*submit, *(part for one in ours for part in ("--conf", "=".join(one)))]
        self._namespace = conf.get(f"{_PREFIX}namespace", "default")
        server = submit[-1].removeprefix("k8s://")
        self._kubectl = ["kubectl", "--server", server if "://" in server else f"https://{server}"]
        self._kubectl += ["--namespace", self._namespace]
        if context := conf.get(f"{_PREFIX}context"):
            self._kubectl += ["--context", context]

    def properties(self, token: str, given: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        """Name the driver's pod: the cluster refuses a second one with that name.

        spark-submit has no other way to send files than a folder that the driver sees too.
        """
        usual = {
            _UPLOADS: f"file://{folder.resolve()}",
            f"{_PREFIX}report.interval": "60s",  # between lines in the log that it is running
        }
        ours = {name: value for name, value in usual.items() if name not in given}
        return {f"{_PREFIX}driver.pod.name": _pod(token), **ours}

    def name(self, token: str) -> str:
        """Return the name of the driver's pod."""
        return _pod(token)

    def check(self, given: Mapping[str, str]) -> None:
        """Refuse settings by which no file reaches the driver; raises EnvironmentMissingError."""
        if not any(name.startswith(_SHARES) for name in given):
            raise EnvironmentMissingError(
                "the driver's pod on Kubernetes would not see the project's folder",
                hint=f"Mount it there under the same path with `{_SHARES[0]}…` or `{_SHARES[1]}` in"
                f" `conf`, or name a store for the files in `{_SHARES[2]}`.",
            )

    def look(self, token: str) -> AttemptState | None:
        """Return the state by the phase of the driver's pod."""
        phase = _PHASE.search(self._status(token))
        return self._PHASES.get(phase[1], AttemptState.RUNNING) if phase else None

    def reason(self, token: str) -> str:
        """Return how the container of the driver's pod has ended."""
        return ", ".join(_ENDED.findall(self._status(token)))

    def _status(self, token: str) -> str:
        """Return what kubectl says of the pod; else spark-submit, which takes seconds of work."""
        try:
            return self._ask([*self._kubectl, *_GET, _pod(token)])
        except ServiceUnreachableError:
            return self._ask([*self._submit, "--status", f"{self._namespace}:{_pod(token)}"])

    def stop(self, token: str) -> None:
        """Delete the driver's pod, and with it its executors' pods."""
        self._ask([*self._submit, "--kill", f"{self._namespace}:{_pod(token)}"])

    def log_place(self, token: str) -> str:
        """Return the command that prints the output of the driver's pod."""
        return shlex.join([*self._kubectl, "logs", _pod(token)])


def _pod(token: str) -> str:
    return f"lineage-backfill-{token}-driver"


def was_killed(reason: str) -> bool:
    """Return whether a driver was ended from outside, by what its cluster says about its end.

    >>> was_killed("User application exited with status 137"), was_killed("exit code: 1")
    (True, False)
    """
    codes = [int(code) for code in _EXIT.findall(reason)]
    # A driver whose node is lost does not report to YARN any more.
    return "timed out" in reason or any(c in _YARN_ENDED or signal_of(c) for c in codes)


def asker(environment: Mapping[str, str], *, with_errors: bool = False) -> Ask:
    """Return a function that runs programs in this environment; `with_errors` adds stderr."""

    def ask(command: Sequence[str]) -> str:
        try:
            done = subprocess.run(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
                check=False,
            )
        except FileNotFoundError as error:
            raise ServiceUnreachableError(
                f"there is no program {command[0]} on PATH",
                hint="Install it, or add its folder to PATH, then run this again.",
            ) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unreachable(command, str(error)) from error
        if done.returncode:
            raise _unreachable(command, cause(done.stderr))
        return done.stdout + done.stderr if with_errors else done.stdout

    return ask


def _unreachable(command: Sequence[str], why: str) -> ServiceUnreachableError:
    return ServiceUnreachableError(
        f"`{' '.join(command[:3])} …` failed: {why}",
        hint="Check that the program works by hand and the cluster answers, then `resume`.",
    )
