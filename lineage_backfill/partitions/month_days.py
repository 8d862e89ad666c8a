"""Days of the month as Quartz names them: counted from its end, or the nearest weekday."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import MAXYEAR, date, datetime, time, timedelta
from typing import Final

from cronsim import CronSim

#: The weekday nearest to a day of the month (15W), so many days before its last one (L-3), or the
#: weekday nearest to that (L-3W).
_NAMED: Final = re.compile(
    r"(?:L-(?P<back>\d{1,2})|(?P<day>\d{1,2})(?=W))(?P<nearest>W?)", re.ASCII
)
#: Every month has so many days.
SHORTEST: Final = 28
_SATURDAY, _SUNDAY = 5, 6


class NamedDay:
    """A day of every month: `15W`, `L-3` or `L-3W`.

    The nearest weekday lies in the same month: that of a Saturday is the Friday before it, that of
    a Sunday the Monday after, where the month has these.
    """

    def __init__(self, *, day: int, from_end: bool, nearest: bool) -> None:
        self.day, self.from_end, self.nearest = day, from_end, nearest

    @property
    def is_in_every_month(self) -> bool:
        """Whether no month is too short for it."""
        return self.day < SHORTEST if self.from_end else 1 <= self.day <= SHORTEST

    def __str__(self) -> str:
        if self.from_end:
            return (f"L-{self.day}" if self.day else "L") + "W" * self.nearest
        return f"{self.day}W"

    def of(self, year: int, month: int) -> date:
        """Return the day of a month."""
        last = monthrange(year, month)[1]
        found = date(year, month, last - self.day if self.from_end else self.day)
        weekday = found.weekday()
        if not self.nearest or weekday < _SATURDAY:
            return found
        if weekday == _SATURDAY:
            return found + timedelta(days=2 if found.day == 1 else -1)
        return found + timedelta(days=-2 if found.day == last else 1)


def named_day(text: str) -> NamedDay | None:
    """Return the day that a field of an expression names in this way, else None."""
    found = _NAMED.fullmatch(text)
    if found is None:
        return None
    return NamedDay(
        day=int(found["back"] or found["day"]),
        from_end=found["back"] is not None,
        nearest=bool(found["nearest"]),
    )


def moments(expression: str, after: datetime) -> Iterator[datetime]:
    """Yield the times of the wall clock at which a five-field expression fires, ascending.

    All come after `after`, which has no zone. It raises CronSimError for what cannot be read.
    """
    minute, hour, days, month, weekday = expression.split()
    named = named_day(days)
    if named is None:
        yield from CronSim(expression, after)
        return
    months = sorted(CronSim(f"{minute} {hour} * {month} {weekday}", after).months)
    for day in (named.of(year, one) for year in range(after.year, MAXYEAR) for one in months):
        if day >= after.date():
            before = max(after, datetime.combine(day, time.min) - timedelta(minutes=1))
            for moment in CronSim(f"{minute} {hour} {day.day} {day.month} *", before):
                if moment.date() != day:
                    break
                yield moment
