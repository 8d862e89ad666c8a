"""Which process runs a backfill: its name in a lease, and whether it is alive."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from lineage_backfill.model import BackfillState
from lineage_backfill.ports import BackfillRecord, Claim, Driver, Holder, RunStore

#: How long a lease holds without a renewal.
LEASE = timedelta(seconds=30)


def standing(
    store: RunStore, backfill_id: str, now: datetime
) -> tuple[BackfillRecord, Holder | None]:
    """Return a backfill and the holder of its lease; INTERRUPTED if its process is gone.

    `now` is the store's time. One that a live driver will take is not interrupted. Raises
    UnknownNameError.
    """
    claim = store.claim(backfill_id)
    record = claim.record
    if is_driving(claim.holder, now):
        return record, claim.holder
    if record.state.is_under_way and not _begins(claim, now):
        wanted = (record.settings.project, record.settings.target)
        if not living(store, now, *wanted):
            record = replace(record, state=BackfillState.INTERRUPTED)
    return record, None


def may_drive(claim: Claim, now: datetime) -> bool:
    """Whether a driver may take a backfill by itself.

    It is active and has no driver. What a user stopped, only a user resumes. `now` is the store's
    time.
    """
    record = claim.record
    if not record.state.is_under_way or is_driving(claim.holder, now):
        return False
    if record.state is BackfillState.SCHEDULED:
        due = record.scheduled_for is None or record.scheduled_for <= now
        return due or record.control is not None
    return not _begins(claim, now)


def _begins(claim: Claim, now: datetime) -> bool:
    """Whether the process that submitted a backfill may be about to take its lease."""
    return not claim.fence and now < claim.record.updated_at + LEASE


def living(store: RunStore, now: datetime, project: str, target: str) -> list[Driver]:
    """Return the drivers that are alive and take backfills of a project and target."""
    return [
        one
        for one in store.drivers()
        if (one.project, one.target) == (project, target)
        and is_driving(Holder(owner=one.owner, until=one.until), now)
    ]


def owner() -> str:
    """Return a unique name of this process."""
    return f"{_machine()} process {os.getpid()}"


def is_driving(holder: Holder | None, now: datetime) -> bool:
    """Whether the holder of a lease may still be at work."""
    return holder is not None and now < holder.until and not is_dead(holder.owner)


def is_dead(owner: str) -> bool:
    """Whether an owner is known to be dead: a process of this machine that has ended."""
    machine, _, pid = owner.rpartition(" process ")
    if machine != _machine() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def machine() -> str:
    """Name this machine."""
    return socket.gethostname()


def _machine() -> str:
    """Return the name of this machine and of its process-id namespace."""
    try:
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        space = ""
    return " ".join(filter(None, (machine(), space)))
