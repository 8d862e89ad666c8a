"""Reads option values: times, durations and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from lineage_backfill.errors import UsageError
from lineage_backfill.project.run_rules import HOW_LONG, read_length
from lineage_backfill.redaction import remember, secrets_of
from lineage_backfill.runspec import strict_json
from lineage_backfill.runspec.instants import read_instant, read_time


def read_moment(text: str | None, now: datetime, *, sign: int = -1) -> datetime | None:
    """Return the time that a text names, None for None; raises UsageError.

    A length of time counts back from `now`, or with `sign` 1 forward. A date, and a time without an
    offset, is in the local zone.
    """
    if text is None:
        return None
    length = read_length(text)
    if length is not None:
        return now + sign * length
    example = now + sign * timedelta(days=7)
    hint = f"Write it as {example:%F}, {example:%FT%TZ}, or as a length: 7d or 12h."
    found = read_time(text, hint)
    return _local(text, found) if found.tzinfo is None else found.astimezone(UTC)


def read_parameters(given: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of NAME=VALUE, their secrets hidden from now on; raises UsageError."""
    parameters = strict_json.read_parameters(given)
    remember(secrets_of(parameters))
    return parameters


def _local(text: str, naive: datetime) -> datetime:
    # In a gap, releases of Python disagree about which fold is the earlier one.
    instants = sorted(naive.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    if instants[0] != instants[1]:
        shown = (one.astimezone().isoformat(timespec="minutes") for one in instants)
        raise UsageError(
            f"the clocks change at {text!r}: it is not one time",
            hint=f"Write it as {' or '.join(shown)}.",
        )
    return instants[0]


def read_now(text: str | None) -> datetime:
    """Return the instant that stands for now, in UTC; the clock's for None; raises UsageError."""
    return datetime.now(UTC) if text is None else read_instant(text)


def read_duration(text: str | None) -> timedelta | None:
    """Return the duration of `90s`, `30m`, `2h` or `1d`; raises UsageError."""
    if text is None:
        return None
    found = read_length(text)
    if found is None:
        raise UsageError(f"{text!r} is not a duration", hint=HOW_LONG)
    return found
