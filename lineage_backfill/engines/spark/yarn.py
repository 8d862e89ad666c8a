"""Finds, stops and reads applications on Hadoop's YARN by their tag, the attempt's token.

It calls the program `yarn`, which knows Hadoop's configuration and can log in with Kerberos.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from lineage_backfill.engines.spark.clusters import Ask, Cluster
from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.ports import AttemptState

_APPLICATION = re.compile(r"\bapplication_\d+_\d+\b")
_STATES: Mapping[str, AttemptState] = {
    "NEW": AttemptState.QUEUED,
    "NEW_SAVING": AttemptState.QUEUED,
    "SUBMITTED": AttemptState.QUEUED,
    "ACCEPTED": AttemptState.QUEUED,
    "RUNNING": AttemptState.RUNNING,
    "FAILED": AttemptState.FAILED,
    "KILLED": AttemptState.CANCELLED,
}
#: If several applications have one tag, the first of these states counts.
_ORDER = (
    AttemptState.RUNNING,
    AttemptState.QUEUED,
    AttemptState.SUCCEEDED,
    AttemptState.FAILED,
    AttemptState.CANCELLED,
)


class _Found(NamedTuple):
    """An application with a tag."""

    id: str
    state: AttemptState


class Yarn(Cluster):
    """Hadoop's YARN; an application has the token as a tag.

    States: https://hadoop.apache.org/docs/stable/api/org/apache/hadoop/yarn/api/records/
    """

    def __init__(self, ask: Ask, *, waits: bool = True) -> None:
        self._ask = ask
        self._waits = waits

    @property
    def trusts_exit_code(self) -> bool:
        """Whether spark-submit waits for the end of the application."""
        return self._waits

    def properties(self, token: str, given: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        """Tag the application, and keep YARN from starting a second driver for it."""
        tags = given.get("spark.yarn.tags")
        tagged = {"spark.yarn.tags": f"{tags},{token}" if tags else token}
        return {**tagged, "spark.yarn.maxAppAttempts": "1"}

    def name(self, token: str, said: str) -> str | None:
        """Return the application's id from spark-submit's output, here or on another machine."""
        if known := _APPLICATION.search(said):
            return known[0]
        with suppress(ServiceUnreachableError):
            return next((one.id for one in self._find(token)), None)
        return None

    def look(self, token: str) -> AttemptState | None:
        """Return the state of the application with this tag."""
        found = self._deciding(token)
        return None if found is None else found.state

    def reason(self, token: str) -> str:
        """Return what YARN says about the end of the application with this tag."""
        found = self._deciding(token)
        return "" if found is None else self._ask(["yarn", "application", "-status", found.id])

    def stop(self, token: str) -> None:
        """Kill the application with this tag."""
        for found in self._find(token):
            if not found.state.is_final:
                self._ask(["yarn", "application", "-kill", found.id])

    def log_place(self, token: str) -> str:
        """Return the command that prints the driver's log."""
        found = self._deciding(token)
        if found is None:
            return "YARN does not know the application"
        return f"yarn logs -applicationId {found.id}"

    def _deciding(self, token: str) -> _Found | None:
        return min(self._find(token), key=lambda one: _ORDER.index(one.state), default=None)

    def _find(self, token: str) -> list[_Found]:
        table = self._ask(["yarn", "application", "-list", "-appTags", token, "-appStates", "ALL"])
        rows = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines()]
        # Application-Id, -Name, -Type, User, Queue, State, Final-State, Progress, Tracking-URL
        return [
            _Found(row[0], _state(state=row[5], final=row[6]))
            for row in rows
            if row[0].startswith("application_") and len(row) > 6
        ]


def _state(*, state: str, final: str) -> AttemptState:
    if state == "FINISHED":
        succeeded = final == "SUCCEEDED"
        return AttemptState.SUCCEEDED if succeeded else AttemptState.FAILED
    return _STATES.get(state, AttemptState.RUNNING)
