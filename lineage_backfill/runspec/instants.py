"""Times as texts: given to a run or on the command line, and held by documents."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime

from lineage_backfill.errors import UsageError

_HINT = "Write it like 2024-06-15T00:00Z."


def read_time(text: str, hint: str = _HINT) -> datetime:
    """Return the time of a text, with an offset only where the text has one; raises UsageError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time", hint=hint) from error
    if not MINYEAR < found.year < MAXYEAR:  # another zone may have another year
        raise UsageError(f"the year of {text!r} is out of range", hint=hint)
    return found


def read_instant(text: str) -> datetime:
    """Return the instant of a text, in UTC; raises UsageError.

    >>> read_instant("2024-06-15T02:00+02:00").isoformat()
    '2024-06-15T00:00:00+00:00'
    """
    found = read_time(text)
    if found.tzinfo is None:
        raise UsageError(f"{text!r} has no UTC offset", hint=f"Write it like {found:%FT%RZ}.")
    return found.astimezone(UTC)
