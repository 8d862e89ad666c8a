"""Finds, stops and reads applications whose driver runs on a cluster, by the attempt's token.

The cluster's own command-line programs know how to log in.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lineage_backfill.engines.attempt import signal_of
from lineage_backfill.errors import ServiceUnreachableError
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


class Cluster(Protocol):
    """Where drivers run."""

    @property
    def trusts_exit_code(self) -> bool:
        """Whether exit code 0 of spark-submit means that the application succeeded."""

    def properties(self, token: str, given: Mapping[str, str]) -> Mapping[str, str]:
        """Return the Spark properties by which the application can be found."""

    def name(self, token: str, said: str) -> str | None:
        """Return the cluster's name of the application, None if the output `said` lacks it."""

    def look(self, token: str) -> AttemptState | None:
        """Return the state of the application on the cluster, None if it is unknown there."""

    def reason(self, token: str) -> str:
        """Return what the cluster says about the end of the application, "" if nothing."""

    def stop(self, token: str) -> None:
        """Stop the application."""

    def logs(self, token: str) -> str:
        """Return the output of the driver."""


class Kubernetes(Cluster):
    """Kubernetes; the driver's pod is named after the token.

    Phases: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase
    """

    trusts_exit_code = False  # it is 0 even if the driver failed
    _PHASES: Mapping[str, AttemptState] = {
        "Pending": AttemptState.QUEUED,
        "Running": AttemptState.RUNNING,
        "Succeeded": AttemptState.SUCCEEDED,
        "Failed": AttemptState.FAILED,
    }

    def __init__(self, ask: Ask, *, submit: Sequence[str], namespace: str) -> None:
        self._ask = ask
        self._submit = tuple(submit)
        self._namespace = namespace

    def properties(self, token: str, given: Mapping[str, str]) -> Mapping[str, str]:
        """Name the driver's pod: the cluster refuses a second one with that name."""
        return {"spark.kubernetes.driver.pod.name": _pod(token)}

    def name(self, token: str, said: str) -> str:
        """Return the name of the driver's pod."""
        return _pod(token)

    def look(self, token: str) -> AttemptState | None:
        """Return the state by the phase of the driver's pod."""
        phase = _PHASE.search(self._status(token))
        return self._PHASES.get(phase[1], AttemptState.RUNNING) if phase else None

    def reason(self, token: str) -> str:
        """Return how the container of the driver's pod has ended."""
        return ", ".join(_ENDED.findall(self._status(token)))

    def _status(self, token: str) -> str:
        return self._ask([*self._submit, "--status", f"{self._namespace}:{_pod(token)}"])

    def stop(self, token: str) -> None:
        """Delete the driver's pod, and with it its executors' pods."""
        self._ask([*self._submit, "--kill", f"{self._namespace}:{_pod(token)}"])

    def logs(self, token: str) -> str:
        """Return the output of the driver's pod."""
        return self._ask(["kubectl", "logs", "--namespace", self._namespace, _pod(token)])


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
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unreachable(command, str(error)) from error
        if done.returncode:
            raise _unreachable(command, done.stderr.strip()[-500:])
        return done.stdout + done.stderr if with_errors else done.stdout

    return ask


def _unreachable(command: Sequence[str], said: str) -> ServiceUnreachableError:
    return ServiceUnreachableError(
        f"`{' '.join(command[:3])}` does not show the state of an application: {said}",
        hint="Check that the program works by hand and the cluster answers, then `resume`.",
    )
