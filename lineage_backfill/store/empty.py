"""Used instead of a run store that does not exist yet: it has no backfills."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from lineage_backfill.errors import StoreError
from lineage_backfill.model import JobRef, RunState
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.plan import PlannedRun
from lineage_backfill.ports import (
    BackfillRecord,
    Claim,
    Driver,
    Lease,
    Notice,
    PastRun,
    RunStore,
    Trace,
)
from lineage_backfill.store.rules import lease_lost, unknown_backfill


class EmptyRunStore(RunStore):
    """Needs no database; every backfill id raises UnknownNameError."""

    id = ""

    def create(
        self, record: BackfillRecord, plan: Mapping[str, Any], runs: Sequence[PlannedRun]
    ) -> NoReturn:
        raise StoreError(f"backfill {record.id} cannot be kept: there is no run store")

    def backfills(self, *, deleted: bool = False) -> tuple[BackfillRecord, ...]:
        return ()

    def tallies(self, backfills: Collection[str]) -> Mapping[str, Mapping[RunState, int]]:
        return {one: {} for one in backfills}

    def traces(self, job: JobRef, keys: KeySet) -> tuple[Trace, ...]:
        return ()

    def past_runs(self, limit: int) -> tuple[PastRun, ...]:
        return ()

    def add_start(self, engine: str, seconds: float, *, now: datetime) -> None:
        return

    def past_starts(self, engine: str, limit: int) -> tuple[float, ...]:
        return ()

    def _unknown(self, backfill_id: str, *_: Any, **__: Any) -> NoReturn:
        raise unknown_backfill(backfill_id, ())

    backfill = claim = plan = tails = runs = attempts = events = _unknown
    acquire = holder = request_control = delete = prune = _unknown

    def keep_to(self, target: str) -> None:
        return

    def open_claims(self) -> tuple[Claim, ...]:
        return ()

    def announce(self, driver: Driver) -> None:
        return

    def withdraw(self, owner: str) -> None:
        return

    def drivers(self) -> tuple[Driver, ...]:
        return ()

    def pruned(self) -> Mapping[str, datetime]:
        return {}

    def _unleased(self, lease: Lease, *_: Any, **__: Any) -> NoReturn:
        raise lease_lost(lease.backfill_id)

    renew = share = release = lock = record = extend = enter = _unleased

    def time(self, local: datetime) -> datetime:
        return local

    def add_notices(self, notices: Sequence[Notice], *, now: datetime) -> None:
        return

    def take_notice(self, hooks: Collection[str], *, now: datetime, until: datetime) -> None:
        return None

    def put_off(self, notice: Notice, *, until: datetime) -> None:
        return

    def drop_notice(self, notice: Notice) -> None:
        return

    def close(self) -> None:
        return
