"""The period of the demo, and its project file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

ZONE = ZoneInfo("America/New_York")
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_BOUND = re.compile(r'^(start|end) = ".*?"', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Whole months of New York, from the first day to the last one, both included."""

    first: date
    last: date

    @property
    def hours(self) -> tuple[str, str]:
        """The first and the last hour, in UTC."""
        end = _midnight(self.last + _DAY) - _HOUR
        return f"{_midnight(self.first):%Y-%m-%dT%H}", f"{end:%Y-%m-%dT%H}"

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day."""
        return self.first.isoformat(), self.last.isoformat()

    @property
    def weeks(self) -> tuple[str, str]:
        """The first and last ISO week that lie completely within the period."""
        monday = self.first + _DAY * (-self.first.weekday() % 7)
        sunday = self.last - _DAY * ((self.last.weekday() + 1) % 7)
        return f"{monday:%G-W%V}", f"{sunday:%G-W%V}"

    @property
    def months(self) -> tuple[str, str]:
        """The first and the last month."""
        return self.first.replace(day=1).isoformat(), self.last.replace(day=1).isoformat()

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings of the project file that depend on the period, in order."""
        full_window = self.first + 6 * _DAY
        return (
            *_start_and_end(self.hours),
            *_start_and_end(self.days),
            f'start = "{full_window}"',
            *_start_and_end(self.weeks),
            *_start_and_end(self.months),
        )


MARCH = Period(first=date(2013, 3, 1), last=date(2013, 3, 31))
YEAR = Period(first=date(2013, 1, 1), last=date(2013, 12, 31))


def set_period(project_file: str, period: Period) -> str:
    """Return the text of the example's project file for another period than March."""
    replacements = dict(zip(MARCH.settings, period.settings, strict=True))
    return _BOUND.sub(lambda found: replacements[found[0]], project_file)


def _start_and_end(keys: tuple[str, str]) -> tuple[str, str]:
    return f'start = "{keys[0]}"', f'end = "{keys[1]}"'


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), ZONE).astimezone(UTC)
