"""A reporter that puts what hooks are to be told into the outbox of the run store."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from datetime import timedelta
from threading import Lock
from typing import Any

from lineage_backfill import redaction
from lineage_backfill.errors import BackfillError
from lineage_backfill.model import RunState, named
from lineage_backfill.planning.plan import Plan, PlannedRun
from lineage_backfill.ports import Clock, Notice, Reporter, RunStore
from lineage_backfill.project.notify import Event, NotifyDeclaration
from lineage_backfill.runs.reports import instant

_log = logging.getLogger(__name__)


class NotifyingReporter(Reporter):
    """Forwards every event to another reporter, and writes notices for the hooks.

    A store that refuses a notice is logged, and never fails the backfill. `project` is its name.
    """

    def __init__(
        self,
        reporter: Reporter,
        store: RunStore,
        hooks: Sequence[NotifyDeclaration],
        *,
        clock: Clock,
        project: str = "",
    ) -> None:
        self._reporter = reporter
        self._store = store
        self._hooks = tuple(hooks)
        self._clock = clock
        self._project = project
        self._backfill: str | None = None
        self._has_failed = False
        self._waits_for = ""
        self._lock = Lock()  # the courier asks whether a backfill is stalled
        self._live()

    def backfill_started(self, backfill_id: str, plan: Plan) -> None:
        self._reporter.backfill_started(backfill_id, plan)
        with self._lock:
            self._backfill, self._has_failed = backfill_id, False
            self._live()
        self._tell("started", "has started", runs=plan.totals.get("runs"))

    def waiting(self, what: str) -> None:
        self._reporter.waiting(what)
        self._waits_for = what

    def backfill_extended(self, plan: Plan) -> None:
        self._reporter.backfill_extended(plan)

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        self._reporter.run_started(run, attempt)
        self._live()

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        self._reporter.run_finished(run, state, detail)
        self._live()
        if state is RunState.FAILED and not self._has_failed:
            self._has_failed = True
            told = {
                "id": run.id,
                "job": named(run.job),
                "partitions": list(run.partitions),
                "error": detail,
            }
            self._tell("failed", f"has a failed run of {run.job.name}: {detail}", run=told)

    def run_delayed(self, run: PlannedRun, delay: timedelta, detail: str) -> None:
        self._reporter.run_delayed(run, delay, detail)
        self._live()

    def stopping(self, running: int, *, hard: bool) -> None:
        self._reporter.stopping(running, hard=hard)

    def backfill_finished(self, backfill_id: str, state: str) -> None:
        self._reporter.backfill_finished(backfill_id, state)
        self._tell("finished", f"has ended: {state}", state=state)
        with self._lock:
            self._backfill = None

    def broke_off(self, error: BaseException) -> None:
        """The drive has ended with an error, and not with the backfill."""
        if self._backfill is not None:
            self._tell("failed", f"is driven no more: {error}", error=str(error))
            self._backfill = None

    def needs_approval(self, plan: Plan) -> None:
        """A person has to confirm a plan, and there is none."""
        runs = plan.totals.get("runs")
        self._tell("needs_approval", f"of {runs} runs has to be confirmed", plan=plan.id, runs=runs)

    def look(self) -> None:
        """Tell the hooks for which nothing has happened for too long, once each."""
        with self._lock:
            if self._backfill is None:
                return
            since = self._clock.now() - self._last
            late = [
                one
                for one in self._hooks
                if "stalled" in one.on and since >= one.stalled_after and one.id not in self._late
            ]
            self._late |= {one.id for one in late}
        if late:
            why = f" ({self._waits_for})" if self._waits_for else ""
            text = f"is stalled: no run has begun or ended for {since // timedelta(minutes=1)} min"
            self._tell("stalled", text + why, hooks=late)

    def _live(self) -> None:
        self._last = self._clock.now()
        self._late: set[str] = set()

    def _tell(
        self,
        event: Event,
        text: str,
        *,
        hooks: Sequence[NotifyDeclaration] | None = None,
        **facts: Any,
    ) -> None:
        now = self._clock.now()
        what = f"Backfill {self._backfill}" if self._backfill else "A backfill"
        project = f" of {self._project}" if self._project else ""
        body = {
            "schema_version": 1,
            "kind": "notification",
            "event": event,
            "at": instant(now),
            "project": self._project,
            "backfill": self._backfill,
            "text": f"{what}{project} {text}",
            **facts,
        }
        told = redaction.document(body)
        notices = []
        for hook in self._hooks if hooks is None else hooks:
            if event in hook.on:
                id_ = f"n-{secrets.token_hex(12)}"
                notices.append(Notice(id=id_, hook=hook.id, body={**told, "id": id_}))
        try:
            self._store.add_notices(notices, now=now)
        except BackfillError as error:
            _log.warning("a notice of %s could not be kept: %s", event, error)
