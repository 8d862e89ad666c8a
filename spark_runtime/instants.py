"""Reads instants that are given to a run as texts."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime

from lineage_backfill.errors import SpecError

_HINT = "Write it like 2024-06-15T00:00Z."


def read_instant(text: str) -> datetime:
    """Return the instant of a text, in UTC; raises SpecError.

    >>> read_instant("2024-06-15T02:00+02:00").isoformat()
    '2024-06-15T00:00:00+00:00'
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise SpecError(f"{text!r} is not an instant", hint=_HINT) from error
    if instant.tzinfo is None:
        raise SpecError(f"{text!r} has no UTC offset", hint=_HINT)
    if not MINYEAR < instant.year < MAXYEAR:  # another zone may have another year
        raise SpecError(f"the year of {text!r} is out of range", hint=_HINT)
    return instant.astimezone(UTC)
