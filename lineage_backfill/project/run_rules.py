"""How runs are made: how long an attempt may take, when it is tried again, and at what hours."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from datetime import datetime, time, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from lineage_backfill.partitions.zones import nearest_zones
from lineage_backfill.project.forms import TEXT, Count, is_zone
from lineage_backfill.typed import ONE_OR_MORE, Form, Misfit, text

#: Why an attempt has failed: by what may pass, by its timeout, or by anything else.
Failure = Literal["transient", "timeout", "failure"]

#: How a length of time is written.
HOW_LONG = "Write it as 90s, 30m, 2h or 90d, at most 36500d."
#: How `edges_of` names the last run.
LAST_RUN = "last run"
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_LONGEST = timedelta(days=36_500)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SIZES = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_HOURS = re.compile(r"(\d\d):(\d\d)\s*-\s*(\d\d):(\d\d)(?:\s+(\S+))?")


def read_length(text: str) -> timedelta | None:
    """Return a length of time, as `90s`, `30m`, `2h` or `1d`; None where it is written otherwise.

    One of more than a hundred years, which no clock counts, is None, too.

    >>> str(read_length("90m"))
    '1:30:00'
    """
    found = _LENGTH.fullmatch(text.strip())
    try:
        length = found and timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        return None
    return length if length is None or length <= _LONGEST else None


def length_text(length: timedelta) -> str:
    """Return a length of time as it is written.

    >>> length_text(timedelta(minutes=90)), length_text(timedelta(days=2))
    ('90m', '2d')
    """
    seconds = length.total_seconds()
    unit, size = next((u, n) for u, n in _SIZES.items() if seconds % n == 0 or n == 1)
    return f"{seconds / size:g}{unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWindow:
    """The hours of a day in which runs may start; it may span midnight.

    `zone` None stands for the zone of the project.
    """

    begin: time
    end: time
    zone: str | None = None

    @classmethod
    def read(cls, text: str) -> RunWindow | None:
        """Return the window of a text such as `20:00-06:00 Europe/Berlin`, None where it is none.

        >>> print(RunWindow.read("20:00-06:00"), RunWindow.read("20:00-20:00"))
        20:00-06:00 None
        """
        found = _HOURS.fullmatch(text.strip())
        if found is None:
            return None
        ends = (found[3], found[4]) if (found[3], found[4]) != ("24", "00") else ("0", "0")
        try:
            begin, end = (time(int(h), int(m)) for h, m in ((found[1], found[2]), ends))
        except ValueError:
            return None
        return None if begin == end else cls(begin=begin, end=end, zone=found[5])

    def is_open(self, now: datetime) -> bool:
        """Whether runs may start at an instant; the zone must be known."""
        local = now.astimezone(ZoneInfo(self.zone or "UTC")).time()
        if self.begin < self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end

    def __str__(self) -> str:
        hours = f"{self.begin:%H:%M}-{self.end:%H:%M}"
        return f"{hours} {self.zone}" if self.zone else hours


def _length(value: Any) -> timedelta:
    found = read_length(text(value))
    if found is None:
        raise Misfit("is {value}, which is not a duration", value, hint=HOW_LONG)
    return found


def _positive(value: Any) -> timedelta:
    found = _length(value)
    if not found:
        raise Misfit("is {value}, but must be more than 0", value)
    return found


def _window(value: Any) -> RunWindow:
    found = RunWindow.read(text(value))
    if found is None:
        hint = 'Write it as "20:00-06:00", or "20:00-06:00 Europe/Berlin".'
        raise Misfit("is {value}, which is not a window", value, hint=hint)
    if found.zone is not None and not is_zone(found.zone):
        fault, hint = "names {value}, which is not a time zone", nearest_zones(found.zone)
        raise Misfit(fault, found.zone, hint=hint)
    return found


def _edges_of(value: Any) -> str:
    if (found := text(value)) != LAST_RUN and not read_length(found):
        fault = f"is {{value}}, but must be {LAST_RUN!r} or a length of time"
        raise Misfit(fault, value, hint='As in "30d".')
    return found


#: Which runs give a job its edges: the last one, or those of a span of time.
EdgesOf = Annotated[str, Form(_edges_of, TEXT)]
#: How long something may take, as `2h`; a wait may be 0.
Length = Annotated[timedelta, Form(_positive, TEXT, length_text)]
Wait = Annotated[timedelta, Form(_length, TEXT, length_text)]
#: Hours of a day, as `20:00-06:00`.
Hours = Annotated[RunWindow, Form(_window, TEXT, str)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """How the runs of a job are made; None where that is not stated.

    `timeout` is for one attempt from its submission, `retry_wait` goes before the second one.
    """

    timeout: Length | None = None
    retries: Count | None = None
    retry_wait: Wait | None = None
    retry_on: Annotated[tuple[Failure, ...], ONE_OR_MORE] | None = None
    only_between: Hours | None = None

    def over(self, defaults: RunRules) -> RunRules:
        """Return these rules, and those of `defaults` where these say nothing."""
        stated = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(
            defaults, **{name: value for name, value in stated.items() if value is not None}
        )

    def in_zone(self, zone: str) -> RunRules:
        """Return the rules with the zone of a window that names none."""
        window = self.only_between
        if window is None or window.zone is not None:
            return self
        return replace(self, only_between=replace(window, zone=zone))
