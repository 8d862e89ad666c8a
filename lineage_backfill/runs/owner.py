"""Which process runs a backfill: its name in a lease, and whether it is alive."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from lineage_backfill.model import BackfillState
from lineage_backfill.ports import BackfillRecord, Holder, RunStore

#: How long a lease holds without a renewal.
LEASE = timedelta(seconds=30)


def standing(
    store: RunStore, backfill_id: str, local: datetime
) -> tuple[BackfillRecord, Holder | None]:
    """Return a backfill and the holder of its lease; INTERRUPTED where its process is gone.

    `local` is this machine's time. Raises UnknownNameError.
    """
    now = store.time(local)
    # The holder first: who ends it writes down the state before the lease is given back.
    holder = store.holder(backfill_id)
    record = store.backfill(backfill_id)
    if is_driving(holder, now):
        return record, holder
    begins = holder is None and local < record.updated_at + LEASE  # the lease is not taken yet
    if record.state.is_under_way and not begins:
        record = replace(record, state=BackfillState.INTERRUPTED)
    return record, None


def owner() -> str:
    """Name this process among all that may drive a backfill."""
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
    """Name this machine and, within it, the space in which process ids mean something."""
    try:
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        space = ""
    return " ".join(filter(None, (machine(), space)))
