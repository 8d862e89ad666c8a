"""Used instead of a run store that does not exist yet: it has no backfills."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from lineage_backfill.errors import StoreError
from lineage_backfill.model import JobRef, RunState
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import (
    BackfillRecord,
    Lease,
    RunStore,
)
from lineage_backfill.store.rules import lease_lost, unknown_backfill


class EmptyRunStore(RunStore):
    """Needs no database; every backfill id raises UnknownNameError."""

    id = ""

    def create(
        self, record: BackfillRecord, plan: Mapping[str, Any], runs: Sequence[PlannedRun]
    ) -> NoReturn:
        raise StoreError(f"backfill {record.id} cannot be kept: there is no run store")

    def tallies(self, backfills: Collection[str]) -> Mapping[str, Mapping[RunState, int]]:
        return {one: {} for one in backfills}

    def _unknown(self, backfill_id: str, *_: Any, **__: Any) -> NoReturn:
        raise unknown_backfill(backfill_id, ())

    backfill = claim = plan = tails = runs = attempts = events = last_event = _unknown
    acquire = request_control = delete = _unknown

    def _none(self, *_: Any, **__: Any) -> tuple[Any, ...]:
        return ()

    backfills = traces = past_runs = open_claims = drivers = hook_cursors = acts = _none
    tokens = saved_plans = _none

    def _nothing(self, *_: Any, **__: Any) -> None:
        return

    keep_to = announce = withdraw = close = begin_act = end_act = _nothing
    put_token = save_plan = change_plan = _nothing

    def jobs(self, backfill_id: str | None = None) -> Mapping[str, frozenset[JobRef]]:
        return {}

    def move_cursor(self, *_: Any) -> bool:
        return False

    def _unleased(self, lease: Lease, *_: Any, **__: Any) -> NoReturn:
        raise lease_lost(lease.backfill_id)

    renew = release = lock = record = extend = enter = _unleased

    def time(self, local: datetime) -> datetime:
        return local
