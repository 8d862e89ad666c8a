"""A run store that lives as long as its process: for tests and dry runs."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from lineage_backfill.errors import StoreError
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.plan import DatasetPartitions, PlannedRun
from lineage_backfill.ports import (
    AttemptRecord,
    AttemptState,
    BackfillRecord,
    ControlRequest,
    EventRecord,
    Holder,
    Lease,
    Move,
    PastRun,
    RunRecord,
    Trace,
    Use,
)
from lineage_backfill.store.rules import (
    BACKFILL_SOURCES,
    SOURCES,
    already_undone,
    lease_held,
    lease_lost,
    overlap,
    partitions_locked,
    refused_move,
    refused_state,
    set_id,
    span,
    unknown_backfill,
)


@dataclass
class _Held:
    """All that is held of one backfill."""

    record: BackfillRecord
    plan: Mapping[str, Any]
    runs: dict[str, RunRecord]
    tails: list[Mapping[str, Any]] = field(default_factory=list)
    attempts: dict[tuple[str, int], AttemptRecord] = field(default_factory=dict)
    events: list[EventRecord] = field(default_factory=list)
    owner: str | None = None
    fence: int = 0
    expires_at: datetime | None = None
    uses: Mapping[str, Use] = field(default_factory=dict)
    locks: dict[DatasetRef, KeySet | None] = field(default_factory=dict)

    def refuse_driven(self, now: datetime) -> None:
        if self.owner is not None and self.expires_at is not None and now < self.expires_at:
            raise lease_held(self.record.id, self.owner, self.expires_at)


@dataclass(frozen=True, slots=True)
class _Traced:
    """A trace and the attempt that it is of."""

    trace: Trace
    run_id: str
    attempt: int


class MemoryRunStore:
    """Keeps backfills in memory; several threads may use it."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex
        self._held: dict[str, _Held] = {}
        self._traces: dict[tuple[JobRef, str], _Traced] = {}  # the newest last
        self._mutex = threading.RLock()
        self._events = 0
        self._numbers = 0

    @property
    def id(self) -> str:
        """Names this store among all stores."""
        return self._id

    def create(
        self, record: BackfillRecord, plan: Mapping[str, Any], runs: Sequence[PlannedRun]
    ) -> None:
        """Write a new backfill, its plan document and its runs, all pending.

        One that undoes another marks that as undone; raises ConflictError while that is driven, or
        where it was undone before.
        """
        with self._mutex:
            if record.id in self._held:
                raise StoreError(f"there is a backfill {record.id} already")
            if record.undo_of is not None:
                self._mark_undone(record, record.undo_of)
            self._held[record.id] = held = _Held(record, plan, _pending(runs))
            self._event(held, None, record.submitted_at, "created", {})

    def backfill(self, backfill_id: str) -> BackfillRecord:
        """Return one backfill; raises UnknownNameError."""
        return self._of(backfill_id).record

    def backfills(self) -> tuple[BackfillRecord, ...]:
        """Return all that are not deleted, the newest first."""
        with self._mutex:
            records = [held.record for held in self._held.values() if not held.record.deleted]
        return tuple(sorted(records, key=lambda record: record.submitted_at, reverse=True))

    def plan(self, backfill_id: str) -> Mapping[str, Any]:
        """Return the plan document of a backfill; raises UnknownNameError."""
        return self._of(backfill_id).plan

    def tails(self, backfill_id: str) -> tuple[Mapping[str, Any], ...]:
        """Return the plan documents by which a backfill was extended, the oldest first."""
        with self._mutex:
            return tuple(self._of(backfill_id).tails)

    def runs(self, backfill_id: str) -> tuple[RunRecord, ...]:
        """Return the runs of a backfill in the order of its plans."""
        with self._mutex:
            return tuple(self._of(backfill_id).runs.values())

    def tallies(self, backfills: Collection[str]) -> Mapping[str, Mapping[RunState, int]]:
        """Return how many runs of each backfill are in each state; only states that occur."""
        return {one: Counter(run.state for run in self.runs(one)) for one in backfills}

    def attempts(self, backfill_id: str) -> tuple[AttemptRecord, ...]:
        """Return the attempts of a backfill, the oldest first."""
        with self._mutex:
            return tuple(self._of(backfill_id).attempts.values())

    def events(self, backfill_id: str, *, after: int = 0) -> tuple[EventRecord, ...]:
        """Return what happened after the event with that id, the oldest first."""
        with self._mutex:
            return tuple(event for event in self._of(backfill_id).events if event.id > after)

    def traces(self, job: JobRef, keys: KeySet) -> tuple[Trace, ...]:
        """Return the traces of a job over keys that may meet these, the newest first."""
        first, last = span(keys)
        found = []
        with self._mutex:
            for (ref, _), traced in reversed(self._traces.items()):
                begin, end = span(traced.trace.keys)
                if ref == job and begin <= last and end >= first:
                    found.append(traced.trace)
        return tuple(found)

    def past_runs(self, limit: int) -> tuple[PastRun, ...]:
        """Return how long runs took that succeeded: the newest of each job, at most `limit`."""
        with self._mutex:
            ended = [
                (run.ended_at, run.started_at, run)
                for held in self._held.values()
                for run in (held.runs.values() if held.record.undo_of is None else ())
                if run.state is RunState.SUCCEEDED and run.started_at and run.ended_at
            ]
        found = []
        places: Counter[JobRef] = Counter()
        for ended_at, started_at, run in sorted(ended, key=lambda one: one[0], reverse=True):
            places[run.job] += 1
            if places[run.job] <= limit:
                count = None if run.cut_off else run.count
                seconds = (ended_at - started_at).total_seconds()
                found.append(PastRun(job=run.job, count=count, seconds=seconds))
        return tuple(found)

    def acquire(
        self,
        backfill_id: str,
        owner: str,
        *,
        now: datetime,
        ttl: timedelta,
        is_dead: Callable[[str], bool] | None = None,
    ) -> Lease:
        """Take the lease; raises ConflictError while another owner, not dead, holds it."""
        with self._mutex:
            held = self._of(backfill_id)
            if not (held.owner and is_dead and is_dead(held.owner)):
                held.refuse_driven(now)
            held.owner, held.expires_at, held.uses = owner, now + ttl, {}
            held.fence += 1
            self._event(held, None, now, "leased", {"owner": owner, "fence": held.fence})
            return Lease(backfill_id=backfill_id, owner=owner, fence=held.fence)

    def holder(self, backfill_id: str) -> Holder | None:
        """Return who took the lease last; None if it was given back, or never taken."""
        with self._mutex:
            held = self._of(backfill_id)
            if held.owner is None or held.expires_at is None:
                return None
            return Holder(owner=held.owner, until=held.expires_at)

    def renew(self, lease: Lease, *, now: datetime, ttl: timedelta) -> ControlRequest | None:
        """Hold the lease for longer, and return what a person has asked for meanwhile."""
        with self._mutex:
            held = self._fenced(lease)
            held.expires_at = now + ttl
            return held.record.control

    def share(
        self, lease: Lease, uses: Mapping[str, Use], *, now: datetime
    ) -> tuple[Mapping[str, Use], ...]:
        """Tell what of each pool this backfill uses; return what others, driven now, have told."""
        with self._mutex:
            own = self._fenced(lease)
            own.uses = uses
            return tuple(
                held.uses
                for held in self._held.values()
                if held is not own and held.owner and held.expires_at and now < held.expires_at
            )

    def release(self, lease: Lease) -> None:
        """Give the lease and the partition locks back; no error if it was taken over."""
        with self._mutex:
            held = self._of(lease.backfill_id)
            if held.fence == lease.fence:
                held.owner = None
                held.locks.clear()

    def lock(self, lease: Lease, writes: Sequence[DatasetPartitions]) -> None:
        """Lock partitions; raises ConflictError naming another backfill that has some of them."""
        with self._mutex:
            own = self._fenced(lease)
            for held in self._held.values():
                for write in writes if held is not own else ():
                    if write.dataset in held.locks:
                        shared = overlap(write.keys, held.locks[write.dataset])
                        if shared:
                            raise partitions_locked(held.record.id, write.dataset, shared)
            own.locks = {write.dataset: write.keys for write in writes}

    def record(self, lease: Lease, moves: Sequence[Move], *, now: datetime) -> None:
        """Write moves, all or none; raises StoreError for one that is not allowed."""
        with self._mutex:
            held = self._fenced(lease)
            runs, attempts = dict(held.runs), dict(held.attempts)
            for move in moves:
                _apply(runs, attempts, move, now)
            held.runs, held.attempts = runs, attempts
            for move in moves:
                self._trace(held.record.id, move, now)
                self._event(held, move.run_id, now, move.state, move.detail)

    def extend(
        self, lease: Lease, plan: Mapping[str, Any], runs: Sequence[PlannedRun], *, now: datetime
    ) -> None:
        """Add a tail: its plan document and its runs, all pending."""
        with self._mutex:
            held = self._fenced(lease)
            added = _pending(runs)
            if held.runs.keys() & added.keys():
                raise StoreError("a run of the tail is a run of the backfill already")
            held.tails.append(plan)
            held.runs |= added
            self._event(held, None, now, "extended", {"runs": len(runs)})

    def enter(
        self,
        lease: Lease,
        state: BackfillState,
        *,
        now: datetime,
        left: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write the state of the backfill and what it leaves; RUNNING starts it the first time."""
        with self._mutex:
            held = self._fenced(lease)
            if held.record.state not in BACKFILL_SOURCES[state]:
                raise refused_state(held.record.id, held.record.state, state)
            is_running = state is BackfillState.RUNNING
            held.record = replace(
                held.record,
                state=state,
                updated_at=now,
                ended_at=None if state.is_under_way else now,
                started_at=held.record.started_at or (now if is_running else None),
                left=tuple(left),
            )
            self._event(held, None, now, state, {})

    def request_control(
        self, backfill_id: str, control: ControlRequest | None, *, now: datetime
    ) -> None:
        """Leave a request for the executor of the backfill; None takes it back."""
        with self._mutex:
            held = self._of(backfill_id)
            held.record = replace(held.record, control=control, updated_at=now)
            self._event(held, None, now, "control_requested", {"control": control})

    def delete(self, backfill_id: str, *, now: datetime) -> None:
        """Mark a backfill as deleted; raises ConflictError while somebody drives it."""
        with self._mutex:
            held = self._of(backfill_id)
            held.refuse_driven(now)
            held.record = replace(held.record, deleted=True, updated_at=now)
            self._event(held, None, now, "deleted", {})

    def close(self) -> None:
        """Nothing to let go of."""

    def _mark_undone(self, undo: BackfillRecord, backfill_id: str) -> None:
        held, now = self._of(backfill_id), undo.submitted_at
        held.refuse_driven(now)
        if held.record.undone_by is not None:
            raise already_undone(backfill_id, held.record.undone_by)
        held.record = replace(held.record, undone_by=undo.id, updated_at=now)
        self._event(held, None, now, "undone", {"by": undo.id})

    def _of(self, backfill_id: str) -> _Held:
        with self._mutex:
            if backfill_id not in self._held:
                raise unknown_backfill(backfill_id, self._held)
            return self._held[backfill_id]

    def _fenced(self, lease: Lease) -> _Held:
        held = self._of(lease.backfill_id)
        if held.fence != lease.fence:
            raise lease_lost(lease.backfill_id)
        return held

    def _trace(self, backfill_id: str, move: Move, now: datetime) -> None:
        if move.trace is None:
            return
        place = (move.trace.job, set_id(move.trace.keys))
        if move.state is RunState.SUBMITTED:
            self._traces.pop(place, None)
            self._numbers += 1
            trace = replace(
                move.trace,
                contents=None,
                backfill_id=backfill_id,
                since=now,
                number=self._numbers,
            )
            self._traces[place] = _Traced(trace, move.run_id, move.attempt)
        elif move.state is RunState.SUCCEEDED and place in self._traces:
            held = self._traces[place]
            whose = (held.trace.backfill_id, held.run_id, held.attempt)
            if whose == (backfill_id, move.run_id, move.attempt):
                complete = replace(held.trace, contents=move.trace.contents)
                self._traces[place] = replace(held, trace=complete)

    def _event(
        self, held: _Held, run_id: str | None, at: datetime, kind: str, detail: Mapping[str, Any]
    ) -> None:
        self._events += 1
        event = EventRecord(id=self._events, run_id=run_id, at=at, kind=str(kind), detail=detail)
        held.events.append(event)


def _pending(runs: Sequence[PlannedRun]) -> dict[str, RunRecord]:
    return {run.id: RunRecord.of(run) for run in runs}


def _apply(
    runs: dict[str, RunRecord],
    attempts: dict[tuple[str, int], AttemptRecord],
    move: Move,
    now: datetime,
) -> None:
    run = runs.get(move.run_id)
    if run is None or run.state not in SOURCES[move.state]:
        raise refused_move(move.run_id, run.state if run else None, move.state)
    key = (move.run_id, move.attempt)
    if move.state is RunState.SUBMITTED:
        if key in attempts or move.token is None:
            raise StoreError(f"attempt {move.attempt} of run {move.run_id} cannot be opened")
        run = replace(run, attempt=move.attempt, token=move.token, handle=None, started_at=now)
        attempts[key] = AttemptRecord(
            run_id=move.run_id,
            attempt=move.attempt,
            token=move.token,
            state=AttemptState.QUEUED,
            submitted_at=now,
        )
    elif move.attempt_state is not None:
        state = move.attempt_state
        attempts[key] = replace(
            attempts[key],
            state=state,
            handle=move.handle or attempts[key].handle,
            ended_at=now if state.is_final else None,
            result=move.result,
            error=move.error,
        )
        run = replace(run, handle=attempts[key].handle)
    if move.state in (RunState.SUBMITTED, RunState.SKIPPED):
        run = replace(run, cut_off=move.cut_off)
    ended_at = now if move.state.is_final else None
    runs[move.run_id] = replace(run, state=move.state, ended_at=ended_at, error=move.error)
