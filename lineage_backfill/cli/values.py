"""Values of options as a person types them: instants, durations and parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from lineage_backfill.errors import UsageError
from lineage_backfill.project.run_rules import read_length
from lineage_backfill.redaction import remember, secrets_of


def read_moment(text: str | None, now: datetime, *, sign: int = -1) -> datetime | None:
    """Return the instant that is named, if any; raises UsageError.

    A length of time counts back from `now`, or with `sign` 1 forward.
    """
    if text is None:
        return None
    length = read_length(text)
    return read_instant(text) if length is None else now + sign * length


def read_parameters(given: Sequence[str]) -> dict[str, Any]:
    """Return the values of NAME=VALUE, which are JSON or else strings; raises UsageError."""
    parameters: dict[str, Any] = {}
    for number, one in enumerate(given, 1):
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise UsageError(
                f"--parameter number {number} has no name or no `=`", hint="Write it as NAME=VALUE."
            )
        try:
            parameters[name] = json.loads(value)
        except ValueError:
            parameters[name] = value
    remember(secrets_of(parameters))
    return parameters


def read_instant(text: str | None) -> datetime:
    """Return the instant in UTC, that of the clock if none is given; raises UsageError."""
    if text is None:
        return datetime.now(UTC)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not an instant", hint="Write it as in 2024-04-01T00:00:00Z."
        ) from error
    if instant.tzinfo is None:
        raise UsageError(f"{text!r} has no offset from UTC", hint=f"As in {instant:%FT%TZ}.")
    return instant.astimezone(UTC)


def read_duration(text: str | None) -> timedelta | None:
    """Return the length of time, as `90s`, `30m`, `2h` or `1d`; raises UsageError."""
    if text is None:
        return None
    found = read_length(text)
    if found is None:
        raise UsageError(f"{text!r} is not a length of time", hint="Write it as 90s, 30m or 2h.")
    return found
