"""Follows a backfill that another process runs, by its events in the run store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.plans.document import plan_from_dict
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import ControlRequest, EventRecord, Reporter, RunStore
from lineage_backfill.runs.drive.owner import standing


def follow(
    store: RunStore,
    backfill_id: str,
    reporter: Reporter,
    *,
    now: Callable[[], datetime],
    wait: Callable[[], bool],
) -> BackfillState:
    """Report events until no process runs the backfill; return its final state.

    Only reads. The state is INTERRUPTED if its process is gone. `wait` is called between two reads;
    once it returns False, the current state is returned. Raises UnknownNameError.
    """
    watch = _Watch(store, backfill_id, reporter)
    while True:
        record, _ = standing(
            store, backfill_id, now()
        )  # read first, so that its last events are in the next read
        watch.look()
        if not record.state.is_under_way:
            reporter.backfill_finished(backfill_id, record.state)
            return record.state
        if not wait():
            return record.state


class _Watch:
    """What has been reported so far; runs that ended earlier are not reported."""

    def __init__(self, store: RunStore, backfill_id: str, reporter: Reporter) -> None:
        self._store = store
        self._id = backfill_id
        self._reporter = reporter
        past = store.events(backfill_id)
        self._seen = past[-1].id if past else 0
        plan = plan_from_dict(store.plan(backfill_id))
        tails = [plan_from_dict(document) for document in store.tails(backfill_id)]
        self._tails = len(tails)
        records = {one.run_id: one for one in store.runs(backfill_id)}
        runs = [run for one in (plan, *tails) for run in one.runs or ()]
        left = [run for run in runs if not records[run.id].state.is_final]
        self._left = {run.id: run for run in left}
        self._under_way: dict[str, int] = {}
        title = store.backfill(backfill_id).title
        reporter.backfill_started(backfill_id, plan.detailed(runs=tuple(left)), title)
        for run in left:
            if records[run.id].state.is_under_way:
                self._started(run, records[run.id].attempt)

    def look(self) -> None:
        """Report the events since the last call."""
        for event in self._store.events(self._id, after=self._seen):
            self._seen = event.id
            run = self._left.get(event.run_id or "")
            if run is not None:
                self._happened(run, RunState(event.kind), event)
            elif event.kind == "control_requested" and event.detail.get("control"):
                hard = event.detail["control"] == ControlRequest.KILL
                self._reporter.stopping(len(self._under_way), hard=hard)
            elif event.kind == "extended":
                self._extended()

    def _extended(self) -> None:
        for document in self._store.tails(self._id)[self._tails :]:
            tail = plan_from_dict(document)
            self._tails += 1
            self._left |= {run.id: run for run in tail.runs or ()}
            self._reporter.backfill_extended(tail)

    def _happened(self, run: PlannedRun, state: RunState, event: EventRecord) -> None:
        if state.is_under_way:
            self._started(run, event.detail.get("attempt", 1))
            return
        self._under_way.pop(run.id, None)
        if state.is_final:
            del self._left[run.id]
            self._reporter.run_finished(run, state, event.detail.get("error", ""))

    def _started(self, run: PlannedRun, attempt: int) -> None:
        if self._under_way.get(run.id) != attempt:
            self._under_way[run.id] = attempt
            self._reporter.run_started(run, attempt)
