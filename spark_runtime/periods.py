"""Periods: the time keys of a calendar as half-open intervals of instants, and back.

A run that nobody has planned finds its own keys by these; a planned one is told them. Instants are
aware and in UTC, labels are local times of the calendar's zone.
"""

from __future__ import annotations

import importlib.util
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from spark_runtime.errors import DeclarationError, EnvironmentMissingError, KeyFormatError

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_CLOCK = re.compile(r"(\d{4}-\d\d-\d\dT\d\d(?::\d\d(?::\d\d)?)?)([+-]\d{4}|Z)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_WEEK = re.compile(r"(\d{4})-W(\d\d)", re.ASCII)
_LENGTH = re.compile(r"([1-9]\d*)\s*([smhdw])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Period:
    """One time key: its label, its interval [start, end), and the wall clock at its start."""

    label: str
    start: datetime
    end: datetime
    local: datetime


class Zone:
    """One IANA time zone; raises DeclarationError where there is none of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self._info = ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise DeclarationError(
                f"unknown time zone {name!r}", hint="use an IANA name such as Europe/Berlin"
            ) from error

    def local(self, instant: datetime) -> datetime:
        """Return the wall clock at the instant, without a zone."""
        return instant.astimezone(self._info).replace(tzinfo=None, fold=0)

    def instant(self, local: datetime, fold: int = 0) -> datetime:
        """Return the instant of a wall clock reading, the second of two where fold is 1."""
        return local.replace(tzinfo=self._info, fold=fold).astimezone(UTC)

    def readings(self, local: datetime) -> list[datetime]:
        """Return the instants at which the wall clock shows `local`: none, one or two."""
        both = {self.instant(local, fold) for fold in (0, 1)}
        return sorted(instant for instant in both if self.local(instant) == local)

    def reached(self, local: datetime) -> datetime:
        """Return the first instant at which the wall clock shows `local`, or jumps over it."""
        instant = self.instant(local)
        if self.local(instant) == local:
            return instant
        return _first(self.instant(local, 1), instant, lambda at: self.local(at) >= local)

    def offset(self, instant: datetime) -> timedelta:
        """Return by how much the wall clock is ahead of UTC at the instant."""
        return self.local(instant) - instant.replace(tzinfo=None)

    def jump(self, after: datetime, until: datetime) -> datetime | None:
        """Return the instant in (after, until] from which the clock goes otherwise, if any."""
        before = self.offset(after)
        if self.offset(until) == before:
            return None
        return _first(after, until, lambda at: self.offset(at) != before)


class Grid(ABC):
    """A tiling of the timeline into periods."""

    def __init__(self, zone: Zone, example: str) -> None:
        self.zone = zone
        self._example = example

    @abstractmethod
    def holding(self, instant: datetime) -> Period:
        """Return the period that holds the instant."""

    @abstractmethod
    def find(self, label: str) -> Period:
        """Return the period with this label; raises KeyFormatError where there is none."""

    def starting(self, label: str) -> Period:
        """Return the first period of a calendar that starts so."""
        return self.find(label)

    def shifted(self, period: Period, steps: int) -> Period:
        """Return the period so many after this one, before it where `steps` is negative."""
        for _ in range(abs(steps)):
            period = self.holding(period.end if steps > 0 else period.start - _SECOND)
        return period

    def overlapping(self, start: datetime, end: datetime) -> Iterator[Period]:
        """Yield the periods that intersect [start, end), ascending."""
        period = self.holding(start)
        while period.start < end:
            yield period
            period = self.holding(period.end)

    def _wrong(self, label: str) -> KeyFormatError:
        return KeyFormatError(
            f"{label!r} is no key of this calendar ({self.zone.name})",
            hint=f"its keys look like {self._example}",
        )


class _Dates(Grid):
    """Days and longer periods, from local midnight to local midnight."""

    def __init__(self, grain: str, zone: Zone) -> None:
        super().__init__(zone, "2024-W24" if grain == "week" else "2024-06-01")
        self._grain = grain

    def holding(self, instant: datetime) -> Period:
        first = self._first(self.zone.local(instant).date())
        # The clock may be set back over midnight: its date alone does not tell the day.
        while self._midnight(first) > instant:
            first = self._first(first - _DAY)
        while (end := self._midnight(self._next(first))) <= instant:
            first = self._next(first)
        start = self._midnight(first)
        return Period(self._label(first), start, end, self.zone.local(start))

    def find(self, label: str) -> Period:
        try:
            week = _WEEK.fullmatch(label) if self._grain == "week" else None
            if week:
                day = date.fromisocalendar(int(week[1]), int(week[2]), 1)
            elif self._grain != "week" and _DATE.fullmatch(label):
                day = date.fromisoformat(label)
            else:
                raise self._wrong(label)
            period = self.holding(self._midnight(day))
        except (ValueError, OverflowError) as error:
            raise self._wrong(label) from error
        if period.label != label:  # not the first day of one, or a day that the zone left out
            raise self._wrong(label)
        return period

    def _first(self, day: date) -> date:
        if self._grain == "week":
            return day - day.weekday() * _DAY
        months = _MONTHS.get(self._grain)
        return date(day.year, (day.month - 1) // months * months + 1, 1) if months else day

    def _next(self, first: date) -> date:
        if self._grain == "week":
            return first + 7 * _DAY
        months = _MONTHS.get(self._grain)
        return self._first(first + months * 31 * _DAY) if months else first + _DAY

    def _label(self, first: date) -> str:
        if self._grain != "week":
            return first.isoformat()
        year, week, _ = first.isocalendar()
        return f"{year:04}-W{week:02}"

    def _midnight(self, day: date) -> datetime:
        return self.zone.reached(datetime.combine(day, time.min))


class _Clock(Grid):
    """Hours and other slices, told by local times: with an offset where these repeat."""

    _format = "%Y-%m-%dT%H:%M"
    #: How far apart, at most, two local times of one slice with one label are.
    _reach = timedelta(0)

    @abstractmethod
    def _interval(self, instant: datetime) -> tuple[datetime, datetime]:
        """Return start and end of the slice that holds the instant."""

    def holding(self, instant: datetime) -> Period:
        start, end = self._interval(instant)
        local = self.zone.local(start)
        label = local.strftime(self._format)
        if self._repeats(local):
            label += self._offset(start)
        return Period(label, start, end, local)

    def find(self, label: str) -> Period:
        match = _CLOCK.fullmatch(label)
        try:
            local = datetime.fromisoformat(match[1]) if match else None
        except ValueError:
            local = None
        if match is None or local is None or local.strftime(self._format) != match[1]:
            raise self._wrong(label)
        near = {
            self.holding(self.zone.instant(moment, fold))
            for moment in (local, local + self._reach)
            for fold in (0, 1)
        }
        near |= {self.shifted(period, step) for period in near for step in (-1, 1)}
        found = [period for period in near if period.local.strftime(self._format) == match[1]]
        if match[2]:
            offset = "+0000" if match[2] == "Z" else match[2]
            found = [period for period in found if self._offset(period.start) == offset]
        if len(found) != 1:
            named = " or ".join(sorted(period.label for period in found))
            raise KeyFormatError(
                f"{label} happens {len(found)} times in {self.zone.name}",
                hint=f"say {named}"
                if named
                else "clocks jump over it: use the key before or after",
            )
        return found[0]

    def _repeats(self, local: datetime) -> bool:
        return len(self.zone.readings(local)) > 1

    def _offset(self, instant: datetime) -> str:
        minutes = self.zone.offset(instant) // _MINUTE
        return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"


class _Hours(_Clock):
    """Local hours; where the clock jumps by a part of an hour, partial ones too."""

    _format = "%Y-%m-%dT%H"
    _reach = _HOUR - _SECOND

    def __init__(self, zone: Zone) -> None:
        super().__init__(zone, "2024-06-15T14")

    def _interval(self, instant: datetime) -> tuple[datetime, datetime]:
        instant = instant.replace(microsecond=0)
        start, end = self._plain(instant)
        if jump := self.zone.jump(start, instant):
            start = self._plain(jump - _SECOND)[0] if self._within(jump) else jump
        if jump := self.zone.jump(instant, end - _SECOND):
            end = self._plain(jump)[1] if self._within(jump) else jump
        return start, end

    def _plain(self, instant: datetime) -> tuple[datetime, datetime]:
        """Return the hour that there is where the clock does not jump."""
        local = self.zone.local(instant)
        into = local - local.replace(minute=0, second=0, microsecond=0)
        return instant - into, instant - into + _HOUR

    def _within(self, jump: datetime) -> bool:
        """Whether a jump forward stays within its hour: that one is short, and all one."""
        before, after = self.zone.local(jump - _SECOND), self.zone.local(jump)
        return before < after and before.replace(minute=0, second=0) == after.replace(
            minute=0, second=0
        )

    def _repeats(self, local: datetime) -> bool:
        hour = local.replace(minute=0, second=0)
        return super()._repeats(hour) or super()._repeats(hour + self._reach)


class _Every(_Clock):
    """Slices of one length, counted from an anchor."""

    def __init__(self, length: str, anchor: str, zone: Zone) -> None:
        super().__init__(zone, "2024-06-15T14:30")
        match = _LENGTH.fullmatch(length.strip())
        if match is None:
            raise DeclarationError(
                f"cannot read the length {length!r}", hint="write it like 8m, 90s or 2h"
            )
        self._length = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
        self._anchor = self._parse(anchor)
        if self._length % _MINUTE or self._anchor.second:
            self._format = "%Y-%m-%dT%H:%M:%S"

    def _interval(self, instant: datetime) -> tuple[datetime, datetime]:
        start = self._anchor + (instant - self._anchor) // self._length * self._length
        return start, start + self._length

    def starting(self, label: str) -> Period:
        return self.holding(self._anchor)

    def _parse(self, anchor: str) -> datetime:
        match = _CLOCK.fullmatch(anchor)
        try:
            local = datetime.fromisoformat(match[1] if match else f"{anchor}T00:00")
        except ValueError as error:
            raise self._wrong(anchor) from error
        if match and match[2]:
            return datetime.fromisoformat(f"{local.isoformat()}{match[2]}").astimezone(UTC)
        readings = self.zone.readings(local)
        if len(readings) != 1:
            raise self._wrong(anchor)
        return readings[0]


class _Firings(_Clock):
    """Slices from one firing of a cron expression to the next, by the rules of Debian's cron."""

    def __init__(self, expression: str, zone: Zone) -> None:
        super().__init__(zone, "2024-06-15T14:30")
        if importlib.util.find_spec("cronsim") is None:
            raise EnvironmentMissingError(
                f"the calendar {expression!r} is a cron expression, which takes another package",
                hint="pip install cronsim",
            )
        from cronsim import CronSim, CronSimError

        try:
            next(CronSim(expression, datetime(2024, 1, 1)))  # noqa: DTZ001 (a wall clock)
        except (CronSimError, StopIteration) as error:
            raise DeclarationError(
                f"cannot read the cron expression {expression!r}: {str(error) or 'it never fires'}",
                hint="write five fields: minute hour day-of-month month day-of-week",
            ) from error
        self._expression = expression
        minute, hour, *_ = expression.split()
        #: Such an expression fires whenever the wall clock shows a time that it names; any other
        #: fires once where that time comes twice, and when clocks land that jump over it.
        self._each_reading = minute.startswith("*") or hour.startswith("*")

    def _interval(self, instant: datetime) -> tuple[datetime, datetime]:
        start = max(at for at in self._near(instant, reverse=True) if at <= instant)
        return start, min(at for at in self._near(instant) if at > instant)

    def _near(self, instant: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        """Yield firings in one direction, from the instant on or some time before it."""
        from cronsim import CronSim

        # Where the clock jumps, by a day at most, the order of its readings is not that of time.
        jumps = self.zone.jump(instant - _DAY, instant + _DAY) is not None
        local, around = self.zone.local(instant), _DAY if jumps else _SECOND
        begin = local + around if reverse else local - around
        wanted = False
        for moment in CronSim(self._expression, begin, reverse=reverse):
            found = (
                self.zone.readings(moment) if self._each_reading else [self.zone.reached(moment)]
            )
            yield from found
            wanted |= any((at <= instant) == reverse for at in found)
            if wanted and abs(moment - local) >= around:
                return


def _first(no: datetime, yes: datetime, is_so: Callable[[datetime], bool]) -> datetime:
    """Return the first whole second in (no, yes] from which on something is so."""
    while yes - no > _SECOND:
        middle = no + (yes - no) // _SECOND // 2 * _SECOND
        no, yes = (no, middle) if is_so(middle) else (middle, yes)
    return yes


@cache
def grain_grid(grain: str, zone: str) -> Grid:
    """Return the grid of hour, day, week, month, quarter or year in a zone."""
    return _Hours(Zone(zone)) if grain == "hour" else _Dates(grain, Zone(zone))


@cache
def cron_grid(expression: str, zone: str) -> Grid:
    """Return the grid between the firings of a cron expression of five fields."""
    return _Firings(expression, Zone(zone))


@cache
def every_grid(length: str, anchor: str, zone: str) -> Grid:
    """Return the grid of slices of one length (`8m`, `90s`, `2h`), counted from a local time."""
    return _Every(length, anchor, Zone(zone))
