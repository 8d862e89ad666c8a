"""What people do to the backfills of a project, whichever door they come through."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol, TypeVar
from uuid import uuid4

from lineage_backfill.errors import BackfillError, ConflictError, DoneBeforeError
from lineage_backfill.plans.plan import Plan
from lineage_backfill.ports import Act, BackfillRecord, Reporter, Submission
from lineage_backfill.runs import reports
from lineage_backfill.runs.drive.clock import StoreClock
from lineage_backfill.runs.drive.owner import standing
from lineage_backfill.workspace.backfills import BackfillOutcome, Backfills, find
from lineage_backfill.workspace.environment import account
from lineage_backfill.workspace.runner import DriveOptions, Runner
from lineage_backfill.workspace.workspace import Workspace

#: In the environment of a process that carries out an act which is in the audit already.
NOTED: Final = "_LINEAGE_BACKFILL_NOTED"
#: What a process of its own can do to a backfill.
Verb = Literal["resume", "retry", "undo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts and how they came; `is_noted` if the audit has the act already.

    An act is done once for each `key` that is given.
    """

    door: str
    name: str = field(default_factory=account)
    address: str = ""
    key: str | None = None
    is_noted: bool = False


def at_command_line() -> Actor:
    """Return who acts by a command."""
    return Actor(door="command line", is_noted=os.environ.pop(NOTED, None) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """How another process is started that drives: its command line and secret settings.

    With `has_own_lineage` a driver that reads the lineage of the project does not do.
    """

    arguments: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    has_own_lineage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """A backfill that another process drives: its id, and a sentence that says which."""

    id: str
    where: str


class _WithId(Protocol):
    @property
    def id(self) -> str: ...


_Done = TypeVar("_Done", bound=_WithId)


class Actions:
    """The acts on the backfills of a workspace; each, done or refused, is one row of the audit.

    They raise what `Runner` and `Backfills` raise. Nothing is noted while there is no run store.
    """

    def __init__(
        self,
        workspace: Workspace,
        actor: Actor,
        *,
        reporter: Reporter | None = None,
        options: DriveOptions | None = None,
    ) -> None:
        self._workspace = workspace
        self._actor = actor
        self._runner = Runner(workspace, reporter, options)
        self._backfills = Backfills(workspace)

    def start(self, plan: Plan, submission: Submission) -> BackfillOutcome:
        """Run a plan to its end."""
        return self._noted("start", None, lambda: self._runner.start(plan, submission), plan)

    def submit(self, plan: Plan, submission: Submission, process: Process) -> HandedOver:
        """Let a driver or another process run a plan.

        Raises DoneBeforeError if a start with this key is known.
        """
        submission = replace(submission, submitted_by=self._actor.name)

        def submit() -> HandedOver:
            if not process.has_own_lineage and self._runner.has_driver():
                backfill = self._runner.submit(plan, submission, waits=True)
                return HandedOver(id=backfill, where="The `drive` service picks it up.")
            return self._detached("resume", self._runner.submit(plan, submission), process)

        return self._noted("start", None, submit, plan)

    def hand_over(self, verb: Verb, backfill: str, process: Process) -> HandedOver:
        """Let another process resume, retry or undo a backfill.

        Raises ConflictError while one drives it: a second one would wait for its end.
        """

        def hand_over() -> HandedOver:
            with self._workspace.open_store() as store:
                record = find(store, backfill)
                driven = record.undone_by or record.id
                _, driver = standing(store, driven, StoreClock(store).now())
            if driver is not None:
                raise ConflictError(
                    f"{driven} is driven already, by {driver.owner}",
                    hint="Follow it to its end, or pause it first.",
                )
            return self._detached(verb, record.id, process)

        return self._noted(verb, backfill, hand_over)

    def resume(self, backfill: str | None = None) -> BackfillOutcome:
        """Resume a backfill, the newest if none is named, to its end."""
        return self._noted("resume", backfill, lambda: self._runner.resume(backfill))

    def retry(self, backfill: str | None = None) -> BackfillOutcome:
        """Re-run what did not succeed, and nothing else."""
        return self._noted("retry", backfill, lambda: self._runner.retry(backfill))

    def undo(self, backfill: str | None, *, confirm: Callable[[Plan], None]) -> BackfillOutcome:
        """Restore what a backfill overwrote; see `Runner.undo`."""
        return self._noted("undo", backfill, lambda: self._runner.undo(backfill, confirm=confirm))

    def pause(self, backfill: str | None = None) -> BackfillOutcome:
        """Start no more runs of a backfill."""
        return self._noted("pause", backfill, lambda: self._backfills.pause(backfill))

    def cancel(self, backfill: str | None = None, *, kill: bool = False) -> BackfillOutcome:
        """Cancel the runs that a backfill has not started; `kill` also stops running ones."""
        verb = "kill" if kill else "cancel"
        return self._noted(verb, backfill, lambda: self._runner.cancel(backfill, kill=kill))

    def delete(self, backfill: str) -> BackfillRecord:
        """Hide a backfill from lists."""
        return self._noted("delete", backfill, lambda: self._backfills.delete(backfill))

    def _detached(self, verb: Verb, backfill: str, process: Process) -> HandedOver:
        arguments, settings = process.arguments, process.settings
        log = self._runner.detach(verb, backfill, arguments, settings, {NOTED: "yes"})
        return HandedOver(id=backfill, where=f"It runs in a separate process; its log: {log}")

    def _noted(
        self, verb: str, backfill: str | None, do: Callable[[], _Done], plan: Plan | None = None
    ) -> _Done:
        """Do an act; the audit has it before, and then how it ended."""
        actor, workspace = self._actor, self._workspace
        if actor.is_noted:
            return do()
        with workspace.open_store(create=actor.key is not None) as store:
            act = Act(
                key=actor.key or uuid4().hex,
                at=StoreClock(store).now(),
                who=actor.name,
                door=actor.door,
                verb=verb,
                backfill_id=backfill or "",
                plan_id=plan.id if plan else "",
                address=actor.address,
                reason=plan.request.get("reason", "") if plan else "",
            )
            if earlier := store.begin_act(act):
                raise DoneBeforeError(
                    f"this was asked for before, with the same key: {earlier.verb}",
                    backfill=earlier.backfill_id if not earlier.refused else "",
                )
        try:
            done = do()
        except BackfillError as error:
            self._end(replace(act, refused=error.message))
            raise
        self._end(replace(act, backfill_id=done.id))
        return done

    def _end(self, act: Act) -> None:
        with self._workspace.open_store() as store:
            store.end_act(act)


def audit(workspace: Workspace, limit: int, backfill: str | None = None) -> dict[str, Any]:
    """Return the document of the newest acts, or those on one backfill."""
    with workspace.open_store() as store:
        return reports.audit(store.acts(limit, backfill_id=backfill))
