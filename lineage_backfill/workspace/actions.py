"""What people do to the backfills of a project, whichever door they come through."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal, Protocol, TypeVar
from uuid import uuid4

from lineage_backfill.errors import (
    BackfillError,
    ConflictError,
    DoneBeforeError,
    ForbiddenError,
    GuardRailError,
    OtherRequestError,
    StalePlanError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.model import JobRef, listed
from lineage_backfill.plans.document import plan_from_dict, plan_to_dict
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import request_from_dict
from lineage_backfill.ports import (
    Act,
    BackfillRecord,
    Reporter,
    RunStore,
    SavedPlan,
    Settings,
    Submission,
    Token,
)
from lineage_backfill.project.access import WHOLE, Reach, Role
from lineage_backfill.runs import reports
from lineage_backfill.runs.drive.clock import StoreClock
from lineage_backfill.runs.drive.owner import standing
from lineage_backfill.workspace.backfills import BackfillOutcome, Backfills, find
from lineage_backfill.workspace.environment import account
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.runner import DriveOptions, Runner
from lineage_backfill.workspace.sight import refuse_hidden
from lineage_backfill.workspace.tokens import make_token, revoke_token
from lineage_backfill.workspace.workspace import Workspace

#: In the environment of a process that carries out an act which is in the audit already.
NOTED: Final = "_LINEAGE_BACKFILL_NOTED"
#: What a process of its own can do to a backfill.
Verb = Literal["resume", "retry", "undo"]
_SAVED = 50  # newest saved plans that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts and how they came; `is_noted` if the audit has the act already.

    An act is done once for each `key` that is given, with the request whose hash is `digest`. Who
    comes with direct access to the run store has every role: nothing here could keep them from it.
    """

    door: str
    name: str = field(default_factory=account)
    address: str = ""
    key: str | None = None
    digest: str = ""
    is_noted: bool = False
    reach: Reach = WHOLE

    @property
    def is_direct(self) -> bool:
        """Whether they use the run store themselves."""
        return self.door in ("command line", "python")


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


_Done = TypeVar("_Done")
_OnBackfill = TypeVar("_OnBackfill", bound=_WithId)


class Actions:
    """The acts on the backfills of a workspace; each, done or refused, is one row of the audit.

    They raise what `Runner` and `Backfills` raise, and ForbiddenError for a role that is missing:
    here alone roles are checked, on every job of a plan or of a backfill. Nothing is noted while
    there is no run store.
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
        return self._on_plan("start", plan, lambda: self._runner.start(plan, submission))

    def submit(self, plan: Plan, submission: Submission, process: Process) -> HandedOver:
        """Let a driver or another process run a plan.

        Raises DoneBeforeError if a start with this key is known, GuardRailError for a plan that
        another user has to approve first.
        """

        def submit() -> HandedOver:
            if self.needs_approval(plan):
                raise GuardRailError(
                    f"another user has to approve these {plan.totals['runs']:,} runs",
                    hint="Save the plan; it can be run once it is approved.",
                )
            return self._submit(plan, submission, process)

        return self._on_plan("start", plan, submit)

    def _submit(self, plan: Plan, submission: Submission, process: Process) -> HandedOver:
        submission = replace(submission, submitted_by=self._actor.name)
        if not process.has_own_lineage and self._runner.has_driver():
            backfill = self._runner.submit(plan, submission, waits=True)
            return HandedOver(id=backfill, where="The `drive` service picks it up.")
        return self._detached("resume", self._runner.submit(plan, submission), process)

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

        return self._on_backfill(verb, backfill, hand_over)

    def resume(self, backfill: str | None = None) -> BackfillOutcome:
        """Resume a backfill, the newest if none is named, to its end."""
        return self._on_backfill("resume", backfill, lambda: self._runner.resume(backfill))

    def retry(self, backfill: str | None = None) -> BackfillOutcome:
        """Re-run what did not succeed, and nothing else."""
        return self._on_backfill("retry", backfill, lambda: self._runner.retry(backfill))

    def undo(self, backfill: str | None, *, confirm: Callable[[Plan], None]) -> BackfillOutcome:
        """Restore what a backfill overwrote; see `Runner.undo`."""
        undo = partial(self._runner.undo, backfill, confirm=confirm)
        return self._on_backfill("undo", backfill, undo)

    def pause(self, backfill: str | None = None) -> BackfillOutcome:
        """Start no more runs of a backfill."""
        return self._on_backfill("pause", backfill, lambda: self._backfills.pause(backfill))

    def cancel(self, backfill: str | None = None, *, kill: bool = False) -> BackfillOutcome:
        """Cancel the runs that a backfill has not started; `kill` also stops running ones."""
        verb = "kill" if kill else "cancel"
        return self._on_backfill(verb, backfill, lambda: self._runner.cancel(backfill, kill=kill))

    def delete(self, backfill: str) -> BackfillRecord:
        """Hide a backfill from lists."""
        return self._on_backfill("delete", backfill, lambda: self._backfills.delete(backfill))

    # --- saved plans ----------------------------------------------------------------------------

    def save(self, plan: Plan, submission: Mapping[str, Any]) -> SavedPlan:
        """Save a plan, to be approved and run later, with what else its backfill is to be."""

        def save() -> SavedPlan:
            if plan.refused or plan.runs is None or not plan.runs:
                raise UsageError("there is nothing to save: this plan cannot run")
            with self._workspace.open_store(create=True) as store:
                saved = SavedPlan(
                    id=plan.id,
                    plan=plan_to_dict(plan),
                    submission=submission,
                    author=self._actor.name,
                    saved_at=StoreClock(store).now(),
                )
                store.save_plan(saved)
            return saved

        return self._on_plan("save plan", plan, save)

    def approve(self, plan: str) -> SavedPlan:
        """Approve a saved plan of another user.

        Raises GuardRailError for one's own, ConflictError if it was approved just before.
        """

        def approve(store: RunStore, saved: SavedPlan) -> SavedPlan:
            if saved.author == self._actor.name:
                raise GuardRailError(
                    "you saved this plan yourself", hint="Another user has to approve it."
                )
            if saved.approved_by:
                raise ConflictError(f"{saved.approved_by} has approved this plan")
            now = StoreClock(store).now()
            approved = replace(saved, approved_by=self._actor.name, approved_at=now)
            store.change_plan(saved, approved)
            return approved

        return self._on_saved("approve", plan, approve, Role.APPROVER)

    def discard(self, plan: str) -> SavedPlan:
        """Discard a saved plan; that of another user as an approver."""

        def discard(store: RunStore, saved: SavedPlan) -> SavedPlan:
            if saved.author != self._actor.name:
                self._permit(Role.APPROVER, planned_jobs(saved))
            store.change_plan(saved, discarded := replace(saved, discarded=True))
            return discarded

        return self._on_saved("discard", plan, discard)

    def run_saved(self, plan: str, process: Process | None) -> HandedOver | BackfillOutcome:
        """Run a saved plan, which is made again before: here without `process`.

        Raises StalePlanError if it is another one now, GuardRailError while it has to be approved.
        """

        def run(store: RunStore, saved: SavedPlan) -> HandedOver | BackfillOutcome:
            made = plan_from_dict(saved.plan)
            if self.needs_approval(made) and not saved.approved_by:
                raise GuardRailError("another user has to approve this plan first")
            if why := moved_since(self._workspace, saved):
                raise StalePlanError(f"nothing was started: {why}", hint="Plan again.")
            given = dict(saved.submission)
            reason, most = given.pop("reason", ""), given.pop("max_parallel", None)
            ready, _ = Planning(self._workspace).without_missing(made)
            ready = replace(ready, request={**ready.request, "reason": reason})
            submission = Submission(settings=Settings(max_parallel=most), **given)
            store.change_plan(saved, taken := replace(saved, backfill_id="starting"))
            try:
                done: HandedOver | BackfillOutcome
                if process is None:
                    done = self._runner.start(ready, submission)
                else:
                    done = self._submit(ready, submission, process)
            except BaseException:
                store.change_plan(taken, saved)
                raise
            store.change_plan(taken, replace(saved, backfill_id=done.id))
            return done

        return self._on_saved("run plan", plan, run)

    def saved(self, *found: SavedPlan) -> dict[str, Any]:
        """Return the document of these saved plans, or of the newest, with what moved since."""
        if not found:
            with self._workspace.open_store() as store:
                found = tuple(saved_plans(store, self._actor.reach)[:_SAVED])
        return reports.saved_plans(
            (
                one,
                self.needs_approval(plan_from_dict(one.plan, only_shown=True)),
                moved_since(self._workspace, one),
            )
            for one in found
        )

    def needs_approval(self, plan: Plan) -> bool:
        """Whether another user has to approve a plan before it runs, by `four_eyes_runs`."""
        access = self._workspace.project.access
        if access is None or access.four_eyes_runs is None or self._actor.is_direct:
            return False
        planned = (one.job for one in plan.jobs if one.count)
        return plan.totals["runs"] > access.four_eyes_runs or any(
            map(self._workspace.is_protected, planned)
        )

    # --- tokens ---------------------------------------------------------------------------------

    def make_token(self, name: str, *, lasts: timedelta | None = None) -> tuple[str, Token]:
        """Return a new token for [access] with its record; it is not shown again."""
        make = partial(make_token, by=self._actor.name, lasts=lasts)
        return self._on_tokens("create token", name, make)

    def revoke_token(self, name: str) -> Token:
        """End a token, and the sessions that began with it."""
        return self._on_tokens("revoke token", name, revoke_token)

    def _on_tokens(self, verb: str, name: str, do: Callable[..., _Done]) -> _Done:
        def act() -> _Done:
            if not self._actor.reach.is_admin:
                raise ForbiddenError("only an admin of everything manages tokens")
            with self._workspace.open_store(create=True) as store:
                return do(store, name)

        return self._noted(Act(verb=verb, reason=name, **self._by()), act)

    # --- each once, with its row in the audit ---------------------------------------------------

    def _detached(self, verb: Verb, backfill: str, process: Process) -> HandedOver:
        arguments, settings = process.arguments, process.settings
        log = self._runner.detach(verb, backfill, arguments, settings, {NOTED: "yes"})
        return HandedOver(id=backfill, where=f"It runs in a separate process; its log: {log}")

    def _on_plan(self, verb: str, plan: Plan, do: Callable[[], _Done]) -> _Done:
        def act() -> _Done:
            self._permit(Role.OPERATOR, (one.job for one in plan.jobs if one.count))
            return do()

        reason = plan.request.get("reason", "")
        return self._noted(Act(verb=verb, plan_id=plan.id, reason=reason, **self._by()), act)

    def _on_backfill(
        self, verb: str, backfill: str | None, do: Callable[[], _OnBackfill]
    ) -> _OnBackfill:
        def act() -> _OnBackfill:
            if self._actor.reach != WHOLE:
                with self._workspace.open_store() as store:
                    refuse_hidden(store, backfill, self._actor.reach)
                    id_ = find(store, backfill).id
                    jobs = store.jobs(id_)[id_]
                self._permit(Role.OPERATOR, jobs)
            return do()

        return self._noted(Act(verb=verb, backfill_id=backfill or "", **self._by()), act)

    def _on_saved(
        self,
        verb: str,
        plan: str,
        do: Callable[[RunStore, SavedPlan], _Done],
        role: Role = Role.OPERATOR,
    ) -> _Done:
        def act() -> _Done:
            with self._workspace.open_store() as store:
                saved = find_saved(store, plan, self._actor.reach)
                self._permit(role, planned_jobs(saved))
                return do(store, saved)

        return self._noted(Act(verb=verb, plan_id=plan, **self._by()), act)

    def _permit(self, role: Role, jobs: Iterable[JobRef]) -> None:
        """Raise ForbiddenError unless the actor has the role on all of these jobs."""
        reach = self._actor.reach
        if beyond := reach.beyond(role, jobs):
            seen = [str(one) for one in beyond if reach.sees(one)]
            hidden = len(beyond) - len(seen)
            more = [f"{hidden} hidden job{'s' * (hidden > 1)}"] if hidden else []
            raise ForbiddenError(
                f"you are not {role} of {listed([*seen[:5], *more])}",
                hint="A [[access.grant]] in the project file makes you one.",
            )

    def _by(self) -> dict[str, Any]:
        """Return the members of an act that say who acts; a key is that of one person."""
        actor, key = self._actor, uuid4().hex
        if actor.key:
            key = sha256(f"{actor.name}\0{actor.key}".encode()).hexdigest()
        return {
            "key": key,
            "at": datetime.now(UTC),
            "who": actor.name,
            "door": actor.door,
            "address": actor.address,
            "digest": actor.digest,
        }

    def _noted(self, act: Act, do: Callable[[], _Done]) -> _Done:
        """Do an act; the audit has it before, and then how it ended."""
        if self._actor.is_noted:
            return do()
        with self._workspace.open_store(create=self._actor.key is not None) as store:
            act = replace(act, at=StoreClock(store).now())
            earlier = store.begin_act(act)
        if earlier and earlier.digest != act.digest:
            other = OtherRequestError("this key is that of another request", hint="Send a new key.")
            self._end(replace(act, key=uuid4().hex, refused=other.message))
            raise other
        if earlier:
            raise DoneBeforeError(
                f"this was asked for before, with the same key: {earlier.verb}",
                backfill=earlier.backfill_id if not earlier.refused else "",
            )
        try:
            done = do()
        except BackfillError as error:
            self._end(replace(act, refused=error.message))
            raise
        if isinstance(done, HandedOver | BackfillOutcome | BackfillRecord):
            act = replace(act, backfill_id=done.id)
        self._end(act)
        return done

    def _end(self, act: Act) -> None:
        with self._workspace.open_store() as store:
            store.end_act(act)

    def refuse(self, verb: str, why: str, *, backfill: str = "") -> None:
        """Note what was refused before it came to an act."""
        by = self._by() | {"key": uuid4().hex}
        self._end(Act(verb=verb[:20], backfill_id=backfill[:50], refused=why, **by))


# --- reading ------------------------------------------------------------------------------------


def planned_jobs(saved: SavedPlan) -> list[JobRef]:
    """Return the jobs that a saved plan runs."""
    return [JobRef(**one["job"]) for one in saved.plan["jobs"] if one["count"]]


def find_saved(store: RunStore, plan: str, reach: Reach) -> SavedPlan:
    """Return a saved plan that may be seen, by its hash; raises UnknownNameError."""
    for one in saved_plans(store, reach):
        if one.id == plan:
            return one
    raise UnknownNameError("no such plan waits", hint="It was run or discarded, or never saved.")


def saved_plans(store: RunStore, reach: Reach) -> list[SavedPlan]:
    """Return the saved plans with a job that a user may see."""
    return [one for one in store.saved_plans() if any(map(reach.sees, planned_jobs(one)))]


def moved_since(workspace: Workspace, saved: SavedPlan) -> str:
    """Return what has changed since a plan was saved, empty if it is still the same."""
    as_of = datetime.fromisoformat(saved.plan["now"])
    planning = Planning(Workspace(workspace.project, as_of=as_of, read=lambda: workspace.snapshot))
    try:
        planning.check(made := plan_from_dict(saved.plan))
        again = planning.plan(request_from_dict(made.request, "the plan"))
    except BackfillError as error:
        return error.message
    return "" if again.id == saved.id else "other runs would repair it now"


def audit(
    workspace: Workspace, limit: int, backfill: str | None = None, *, actor: Actor | None = None
) -> dict[str, Any]:
    """Return the document of the newest acts, or those on one backfill, that an actor may see."""
    with workspace.open_store() as store:
        acts = store.acts(limit, backfill_id=backfill)
        if actor is not None and not actor.reach.sees_all:
            seen = {one for one, jobs in store.jobs().items() if any(map(actor.reach.sees, jobs))}
            acts = tuple(
                one
                for one in acts
                if one.backfill_id in seen or (not one.backfill_id and one.who == actor.name)
            )
    return reports.audit(acts)
