"""Finds, stops and reads applications whose driver runs on a cluster, by the attempt's token.

Both speak through the cluster's own command-line programs, which know how to log in.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.ports import AttemptState

#: Runs a program and returns what it has printed; raises ServiceUnreachableError.
Ask = Callable[[Sequence[str]], str]

_TIMEOUT = 120  # seconds
_APPLICATION = re.compile(r"\bapplication_\d+_\d+\b")
_PHASE = re.compile(r"\bphase: (\w+)")


class Cluster(Protocol):
    """Where drivers run."""

    @property
    def trusts_exit_code(self) -> bool:
        """Whether exit code 0 of spark-submit says that the application has succeeded."""

    def properties(self, token: str, given: Mapping[str, str]) -> Mapping[str, str]:
        """Return the Spark properties by which the application is found again."""

    def name(self, token: str, said: str) -> str | None:
        """Return the cluster's name of the application, None if what was `said` lacks it."""

    def look(self, token: str) -> AttemptState | None:
        """Return what the cluster says of the application, None if it knows none."""

    def stop(self, token: str) -> None:
        """Stop the application."""

    def logs(self, token: str) -> str:
        """Return what the driver has printed."""


class Yarn(Cluster):
    """Hadoop's YARN; an application has the token as a tag.

    States: https://hadoop.apache.org/docs/stable/api/org/apache/hadoop/yarn/api/records/
    """

    trusts_exit_code = True
    _STATES: Mapping[str, AttemptState] = {
        "NEW": AttemptState.QUEUED,
        "NEW_SAVING": AttemptState.QUEUED,
        "SUBMITTED": AttemptState.QUEUED,
        "ACCEPTED": AttemptState.QUEUED,
        "RUNNING": AttemptState.RUNNING,
        "FAILED": AttemptState.FAILED,
        "KILLED": AttemptState.CANCELLED,
    }

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def properties(self, token: str, given: Mapping[str, str]) -> Mapping[str, str]:
        """Tag the application, and let YARN never start a second driver for it."""
        tags = [given["spark.yarn.tags"]] if "spark.yarn.tags" in given else []
        return {"spark.yarn.tags": ",".join([*tags, token]), "spark.yarn.maxAppAttempts": "1"}

    def name(self, token: str, said: str) -> str | None:
        """Return the application's id, as spark-submit prints it: asking YARN takes seconds."""
        found = _APPLICATION.search(said)
        return found and found[0]

    def look(self, token: str) -> AttemptState | None:
        """Return the state of the application with this tag."""
        states = [state for _, state in self._find(token)]
        return next(
            (state for state in states if not state.is_final), states[0] if states else None
        )

    def stop(self, token: str) -> None:
        """Kill the application with this tag."""
        for application, state in self._find(token):
            if not state.is_final:
                self._ask(["yarn", "application", "-kill", application])

    def logs(self, token: str) -> str:
        """Return the logs that YARN has gathered."""
        found = self._find(token)
        return "".join(self._ask(["yarn", "logs", "-applicationId", one]) for one, _ in found)

    def _find(self, token: str) -> list[tuple[str, AttemptState]]:
        table = self._ask(["yarn", "application", "-list", "-appTags", token, "-appStates", "ALL"])
        rows = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines()]
        # Application-Id, -Name, -Type, User, Queue, State, Final-State, Progress, Tracking-URL
        return [
            (row[0], self._state(state=row[5], final=row[6]))
            for row in rows
            if row[0].startswith("application_") and len(row) > 6
        ]

    def _state(self, *, state: str, final: str) -> AttemptState:
        if state == "FINISHED":
            succeeded = final == "SUCCEEDED"
            return AttemptState.SUCCEEDED if succeeded else AttemptState.FAILED
        return self._STATES.get(state, AttemptState.RUNNING)


class Kubernetes(Cluster):
    """Kubernetes; the driver's pod is named after the token.

    Phases: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase
    """

    trusts_exit_code = False  # it is 0 whatever became of the driver
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
        """Name the driver's pod: a second one of that name is refused."""
        return {"spark.kubernetes.driver.pod.name": _pod(token)}

    def name(self, token: str, said: str) -> str:
        """Return the name of the driver's pod."""
        return _pod(token)

    def look(self, token: str) -> AttemptState | None:
        """Return what the phase of the driver's pod says."""
        said = self._ask([*self._submit, "--status", f"{self._namespace}:{_pod(token)}"])
        phase = _PHASE.search(said)
        return self._PHASES.get(phase[1], AttemptState.RUNNING) if phase else None

    def stop(self, token: str) -> None:
        """Delete the driver's pod, and with it those of its executors."""
        self._ask([*self._submit, "--kill", f"{self._namespace}:{_pod(token)}"])

    def logs(self, token: str) -> str:
        """Return what the driver's pod has printed."""
        return self._ask(["kubectl", "logs", "--namespace", self._namespace, _pod(token)])


def _pod(token: str) -> str:
    return f"lineage-backfill-{token}-driver"


def asker(environment: Mapping[str, str]) -> Ask:
    """Return what runs programs in this environment."""

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
        return done.stdout + done.stderr  # spark-submit prints its answers to stderr

    return ask


def _unreachable(command: Sequence[str], said: str) -> ServiceUnreachableError:
    return ServiceUnreachableError(
        f"`{' '.join(command[:3])}` does not say what became of an application: {said}",
        hint="See that the program works by hand and the cluster answers, then `resume`.",
    )
