"""Which backfills are old enough to be removed, and which must stay; pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from lineage_backfill.ports import BackfillRecord


def prunable(
    records: Iterable[BackfillRecord], *, before: datetime
) -> tuple[list[BackfillRecord], dict[str, str]]:
    """Return the backfills that ended before an instant, and by id why other old ones must stay.

    An undo and its backfill are removed together: `retry` of the undo needs the other's record.
    """
    known = {one.id: one for one in records}
    old = {id_ for id_, one in known.items() if (one.ended_at or one.updated_at) < before}
    kept = {
        id_: f"it has not ended, but is {known[id_].state}"
        for id_ in old
        if not known[id_].state.has_ended and not known[id_].deleted
    }
    going = old - kept.keys()
    while True:
        needed = {id_: other for id_ in going for other in _pair(known[id_]) if other not in going}
        needed = {id_: other for id_, other in needed.items() if other in known}
        if not needed:
            break
        for id_, other in needed.items():
            role = "its undo" if known[other].undo_of == id_ else "what it undid,"
            kept[id_] = f"{role} {other} stays"
        going -= needed.keys()
    return [one for one in known.values() if one.id in going], dict(sorted(kept.items()))


def _pair(record: BackfillRecord) -> list[str]:
    return [one for one in (record.undo_of, record.undone_by) if one is not None]
