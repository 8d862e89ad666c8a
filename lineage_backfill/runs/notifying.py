"""Writes notices for hooks into the outbox, in the transaction of the change that they announce."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from lineage_backfill import redaction
from lineage_backfill.errors import BackfillError
from lineage_backfill.model import BackfillState, RunState, named
from lineage_backfill.plans.plan import Plan, PlannedRun
from lineage_backfill.ports import Clock, Lease, Move, Notice, Reporter, RunStore, Start
from lineage_backfill.project.notify import Event, NotifyDeclaration
from lineage_backfill.runs.reports import instant

_log = logging.getLogger(__name__)


class Notices:
    """Makes the notices of the project named `project`; secrets are masked."""

    def __init__(
        self, hooks: Sequence[NotifyDeclaration], *, clock: Clock, project: str = ""
    ) -> None:
        self.hooks = tuple(hooks)
        self.clock = clock
        self._project = project

    def of(
        self,
        event: Event,
        text: str,
        *,
        backfill: str | None = None,
        key: str = "",
        hooks: Sequence[NotifyDeclaration] | None = None,
        **facts: Any,
    ) -> list[Notice]:
        """Return a notice for each hook of the event; `title` in `facts` names it.

        The same `key` gives the same ids: written twice, it is one notice.
        """
        title = facts.setdefault("title", "")
        what = f"Backfill {backfill}" if backfill else "A backfill"
        what += f" ({title})" if title else ""
        project = f" of {self._project}" if self._project else ""
        body = redaction.document(
            {
                "schema_version": 1,
                "kind": "notification",
                "event": event,
                "at": instant(self.clock.now()),
                "project": self._project,
                "backfill": backfill,
                "text": f"{what}{project} {text}",
                **facts,
            }
        )
        seed = f"{backfill} {event} {key}" if key else secrets.token_hex()
        notices = []
        for hook in self.hooks if hooks is None else hooks:
            if event in hook.on:
                id_ = f"n-{hashlib.sha256(f'{seed} {hook.id}'.encode()).hexdigest()[:24]}"
                notices.append(Notice(id=id_, hook=hook.id, body={**body, "id": id_}))
        return notices


def keep(store: RunStore, notices: Sequence[Notice], *, now: datetime) -> None:
    """Put notices without a state change into the outbox; an error of the store is only logged."""
    try:
        store.add_notices(notices, now=now)
    except BackfillError as error:
        _log.warning("a notification is lost: %s", error)


class NotifyingStore:
    """A run store that writes the notices of a state change in the same transaction."""

    def __init__(self, store: RunStore, notices: Notices) -> None:
        self._store = store
        self._notices = notices
        self._announced: set[tuple[Event, int]] = set()  # by the fence of the lease

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def record(self, lease: Lease, moves: Sequence[Move], *, now: datetime) -> None:
        """Write moves, and the first one to FAILED as a notice."""
        first = next((move for move in moves if move.state is RunState.FAILED), None)
        if first is None or ("failed", lease.fence) in self._announced:
            self._store.record(lease, moves, now=now)
            return
        (run,) = (one for one in self._store.runs(lease.backfill_id) if one.run_id == first.run_id)
        failed = {
            "id": run.run_id,
            "job": named(run.job),
            "partitions": list(run.partitions),
            "error": first.error or "",
        }
        text = f"has a failed run of {run.job.name}: {failed['error']}"
        notices = self._of(lease, "failed", text, run=failed)
        self._store.record(lease, moves, now=now, notices=notices)
        self._announced.add(("failed", lease.fence))

    def enter(
        self,
        lease: Lease,
        state: BackfillState,
        *,
        now: datetime,
        left: Sequence[Any] = (),
        error: str = "",
    ) -> None:
        """Write the state of a backfill, and its begin, end or error as notices."""
        event: Event = "finished"
        if error:
            event, notices = "failed", self._of(lease, "failed", f"stopped: {error}", error=error)
        elif not state.is_under_way:
            notices = self._of(lease, event, f"has ended: {state}", state=state)
        elif state is BackfillState.RUNNING and ("started", lease.fence) not in self._announced:
            tally = self._store.tallies([lease.backfill_id])[lease.backfill_id]
            event = "started"
            notices = self._of(lease, event, "has started", runs=sum(tally.values()))
        else:
            notices = []
        self._store.enter(lease, state, now=now, left=left, error=error, notices=notices)
        if notices:
            self._announced.add((event, lease.fence))

    def _of(self, lease: Lease, event: Event, text: str, **facts: Any) -> list[Notice]:
        key = f"{lease.fence} {facts.get('state', '')}{'error' in facts}"
        title = self._store.backfill(lease.backfill_id).title
        return self._notices.of(
            event, text, backfill=lease.backfill_id, key=key, title=title, **facts
        )


class StallReporter(Reporter):
    """Forwards every call to another reporter, and detects stalled backfills."""

    def __init__(self, reporter: Reporter, store: RunStore, notices: Notices) -> None:
        self._reporter = reporter
        self._store = store
        self._notices = notices
        self._backfill: str | None = None
        self._title = self._waits_for = ""
        self._lock = Lock()  # the courier calls from its own thread
        self._live()

    def backfill_started(self, backfill_id: str, plan: Plan, title: str) -> None:
        self._reporter.backfill_started(backfill_id, plan, title)
        with self._lock:
            self._backfill, self._title, self._waits_for = backfill_id, title, ""
            self._live()

    def waiting(self, what: str) -> None:
        self._reporter.waiting(what)
        self._waits_for = what

    def backfill_extended(self, plan: Plan) -> None:
        self._reporter.backfill_extended(plan)

    def engine_starting(self, start: Start) -> None:
        self._reporter.engine_starting(start)

    def run_started(self, run: PlannedRun, attempt: int) -> None:
        self._reporter.run_started(run, attempt)
        self._live()

    def run_finished(self, run: PlannedRun, state: RunState, detail: str) -> None:
        self._reporter.run_finished(run, state, detail)
        self._live()

    def run_delayed(self, run: PlannedRun, delay: timedelta, detail: str) -> None:
        self._reporter.run_delayed(run, delay, detail)
        self._live()

    def stopping(self, running: int, *, hard: bool) -> None:
        self._reporter.stopping(running, hard=hard)

    def backfill_finished(self, backfill_id: str, state: str) -> None:
        self._reporter.backfill_finished(backfill_id, state)
        with self._lock:
            self._backfill = None

    def look(self) -> None:
        """Notify hooks about stalled backfills, once each."""
        now = self._notices.clock.now()
        with self._lock:
            if self._backfill is None:
                return
            since = now - self._last
            late = [
                one
                for one in self._notices.hooks
                if "stalled" in one.on and since >= one.stalled_after and one.id not in self._late
            ]
            backfill, title = self._backfill, self._title
        if late:
            why = f" ({self._waits_for})" if self._waits_for else ""
            text = f"is stalled: no run has begun or ended for {since // timedelta(minutes=1)} min"
            notices = self._notices.of(
                "stalled", text + why, backfill=backfill, hooks=late, title=title
            )
            keep(self._store, notices, now=now)
            self._late |= {one.id for one in late}

    def _live(self) -> None:
        self._last = self._notices.clock.now()
        self._late: set[str] = set()
