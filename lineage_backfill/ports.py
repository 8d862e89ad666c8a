"""What the outside must offer to the core: small protocols that adapters fulfil."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from lineage_backfill.graph.lineage import LineageSnapshot
from lineage_backfill.model import RunState
from lineage_backfill.plan.plan import Plan, PlannedRun


class LineageSource(Protocol):
    """Reads lineage from somewhere; a partial answer is an error, never a smaller graph."""

    def read(self) -> LineageSnapshot:
        """Return the whole lineage; raises LineageError where that cannot be had."""


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Return the current instant, aware and in UTC."""


class AttemptState(StrEnum):
    """What an engine says of one attempt."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"  # the engine does not know it (any more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one attempt; `result` is the result file of FORMATS, where there is one."""

    state: AttemptState
    result: Mapping[str, Any] | None = None
    error: str | None = None
    transient: bool = False


class Engine(Protocol):
    """Runs one attempt elsewhere; `token` makes a submission idempotent."""

    def submit(self, spec_path: Path, token: str) -> str:
        """Hand over the run spec and return a handle; the same token never starts a second one."""

    def poll(self, handle: str) -> Outcome:
        """Return what is known of the attempt now."""

    def find(self, token: str) -> str | None:
        """Return the handle of the attempt with this token, None if the engine has none."""

    def cancel(self, handle: str) -> None:
        """Stop the attempt; it is no error if it has ended."""

    def logs(self, handle: str) -> str:
        """Return what the attempt has printed so far."""

    def close(self) -> None:
        """Let go of processes and connections."""


class Reporter:
    """Told what happens while a backfill runs; every hook does nothing by default."""

    def backfill_started(self, backfill_id: str, plan: Plan) -> None:
        """Called once the backfill stands in the run store."""

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        """Called after the store has recorded the submission."""

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        """Called after the store has recorded the final state."""

    def backfill_finished(self, backfill_id: str, state: str) -> None:
        """Called after the store has recorded the end."""
