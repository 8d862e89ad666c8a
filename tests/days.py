"""Instants at which what depends on the day would show it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

WEEK = [datetime(2026, 11, 23, 9, 30, tzinfo=UTC) + timedelta(days=on) for on in range(7)]
#: The ends of a month and a year, both clock changes of Berlin and of New York, and a 29 February.
TURNS = [
    datetime(2026, 11, 30, 23, 59, tzinfo=UTC),
    datetime(2027, 1, 1, tzinfo=UTC),
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    datetime(2027, 3, 14, 7, tzinfo=UTC),
    datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
    datetime(2028, 2, 29, 12, tzinfo=UTC),
]
