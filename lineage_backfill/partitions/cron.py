"""Reads cron expressions; firings follow Debian's rules at clock changes."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from functools import lru_cache
from itertools import groupby
from typing import Final

from cronsim import CronSim, CronSimError

from lineage_backfill.errors import CronError
from lineage_backfill.partitions.month_days import SHORTEST, moments, named_day
from lineage_backfill.partitions.zones import Zone

_ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_DAY = 86_400
_ANY: Final = datetime.combine(date(2024, 1, 1), time.min)  # any wall clock
_BLOCK = 64 * _DAY  # the time span whose firings are computed at once
_MOST_BLOCKS: Final = 250 * 366 // 64  # before and after 1970

_PART: Final = re.compile(r"(\*|\d{1,4}|[A-Z]+)(?:-(\d{1,4}|[A-Z]+))?(?:/(\d{1,4}))?", re.ASCII)
_LAST_OR_NTH: Final = re.compile(r"(\d|[A-Z]{3})(L|#[1-5])", re.ASCII)
_QUARTZ_FORM: Final = (
    "write it like 0 0 6 ? * MON-FRI: seconds first, ? for the day field that does not matter"
)
_MONTHS: Final = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
_WEEKDAYS: Final = "SUN MON TUE WED THU FRI SAT"


class _Field:
    """One field: its values, their names and the longest step."""

    def __init__(self, name: str, low: int, high: int, step: int, names: str = "") -> None:
        self.name, self.low, self.high, self.step = name, low, high, step
        self.names = {name: number for number, name in enumerate(names.split(), low)}


_MINUTE, _HOUR = _Field("minute", 0, 59, 59), _Field("hour", 0, 23, 23)
_DAYS, _MONTH = _Field("day of the month", 1, 31, 31), _Field("month", 1, 12, 12, _MONTHS)
_WEEKDAY, _QUARTZ_WEEKDAY = (_Field("weekday", low, 7, 7, _WEEKDAYS) for low in (0, 1))


class _Refused(Exception):
    """The reason why an expression is refused, as the end of a sentence, with a hint."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.hint = hint


@lru_cache(4_096)
def normalise(expression: str) -> str:
    """Return the one five-field form of all expressions that mean the same; raises CronError.

    Five fields are POSIX, as Debian's cron reads them. Six or seven are Quartz: seconds first,
    Sunday is 1, and exactly one day field is `?`. Five fields with `?`, `L`, `W` or `#` are read
    where every reader agrees. What readers take differently is refused.
    """
    try:
        text = " ".join(_fields(expression))
        next(moments(text, _ANY))
    except _Refused as refused:
        raise CronError(
            f"the cron expression {expression!r} {refused}", hint=refused.hint
        ) from None
    except (CronSimError, StopIteration):
        raise CronError(
            f"the cron expression {expression!r} never fires", hint="Check its day and month."
        ) from None
    return text


def _fields(expression: str) -> list[str]:
    text = expression.strip()
    if text.startswith("@"):
        if text.lower() not in _ALIASES:
            raise _Refused("names no times", f"use {', '.join(_ALIASES)}, or write five fields")
        text = _ALIASES[text.lower()]
    fields = text.upper().split()
    if len(fields) == 5:
        return _short_quartz(fields) if _is_quartz(fields) else _posix(fields)
    if len(fields) not in (6, 7):
        raise _Refused(
            f"has {len(fields)} fields", "write five: minute hour day-of-month month day-of-week"
        )
    return _quartz(fields)


def _is_quartz(fields: list[str]) -> bool:
    """Whether five fields hold a character that only Quartz gives a meaning."""
    return (
        any(mark in part for part in fields for mark in "?#")
        or any(mark in fields[2] for mark in "LW")
        or any(day.endswith("L") for day in fields[4].split(","))
    )


def _posix(fields: list[str]) -> list[str]:
    kinds = (_MINUTE, _HOUR, _DAYS, _MONTH, _WEEKDAY)
    return [_read(text, kind) for text, kind in zip(fields, kinds, strict=True)]


def _short_quartz(fields: list[str]) -> list[str]:
    """Read five fields with marks of Quartz, whose weekdays others number from 0."""
    weekday = fields[4]
    if weekday == "L" or re.search(r"(?<![/#\d])\d", weekday):
        raise _Refused(
            f"has the weekday {weekday}, which Quartz counts from 1 (Sunday) and cron from 0",
            "write weekdays by name, or all six fields of Quartz, seconds first",
        )
    if not {fields[2], weekday} & {"*", "?"}:
        raise _Refused("has both a day of the month and a weekday", "write ? for one of them")
    return _quartz_days(fields)


def _quartz(fields: list[str]) -> list[str]:
    seconds, rest, years = fields[0], fields[1:6], fields[6:]
    if seconds.strip("0"):
        raise _Refused(
            "has seconds that are not 0",
            "partitions begin on whole minutes: write 0 first, or use `every`",
        )
    if years not in ([], ["*"]):
        raise _Refused(
            "is limited to certain years", "leave the year out, and set `start` and `end` instead"
        )
    if "?" not in (rest[2], rest[4]):
        raise _Refused(
            f"has {len(fields)} fields and no ? in a day field: Quartz refuses it, and other "
            "readers number its weekdays differently",
            f"{_QUARTZ_FORM}; or five fields, as in 0 6 * * MON-FRI",
        )
    return _quartz_days(rest)


def _quartz_days(fields: list[str]) -> list[str]:
    """Return five fields of Quartz as cron writes them."""
    minute, hour, day, month, weekday = fields
    if "?" in minute + hour + month or (day == weekday == "?"):
        raise _Refused("has ? in other fields than one of its day fields", _QUARTZ_FORM)
    return [
        # Quartz takes 0/5 for */5, which cron runs in real time where clocks are set back.
        _read(re.sub(r"^0+/", "*/", minute), _MINUTE, quartz=True),
        _read(re.sub(r"^0+/", "*/", hour), _HOUR, quartz=True),
        _day_of_month(day),
        _read(month, _MONTH, quartz=True),
        _weekday(weekday),
    ]


def _day_of_month(text: str) -> str:
    if text in ("?", "L", "LW"):
        return text.replace("?", "*")
    if "L" not in text and "W" not in text:
        return _read(text, _DAYS, quartz=True)
    named = named_day(text)
    if named is None:
        raise _Refused(
            f"has the day of the month {text}: L and W go with one day only",
            "write L for the last day, LW for the last weekday, L-3 for three days before the last,"
            " 15W for the weekday nearest to the 15th, or the days as numbers",
        )
    if not named.is_in_every_month:
        raise _Refused(
            f"has the day of the month {text}, which not every month has",
            f"write 1W to {SHORTEST}W, L-1 to L-{SHORTEST - 1}, or LW for the last weekday",
        )
    return str(named)


def _weekday(text: str) -> str:
    if text in ("?", "L"):
        return "*" if text == "?" else "6"  # L by itself is Saturday
    if special := _LAST_OR_NTH.fullmatch(text):
        return f"{_number(special[1], _QUARTZ_WEEKDAY) - 1}{special[2]}"
    if "#" in text or "L" in text:
        raise _Refused(
            f"has the weekday {text}: L and # go with one weekday, and # with 1 to 5",
            "write it like FRI#3 for the third Friday, or FRIL for the last one",
        )
    return _read(text, _QUARTZ_WEEKDAY, quartz=True)


def _read(text: str, kind: _Field, *, quartz: bool = False) -> str:
    """Return a field in its one form: `*`, `*/n`, or its values as ascending ranges."""
    head, values = "", set[int]()
    for number, part in enumerate(text.split(",")):
        match = _PART.fullmatch(part)
        if match is None or (match[1] == "*" and match[2]):
            raise _unreadable(part, kind)
        step = int(match[3] or 1)
        if not 1 <= step <= kind.step:
            raise _Refused(
                f"steps by {step} in its {kind.name} {part}",
                f"the longest step is {kind.step}; for longer ones, use `every`",
            )
        if match[1] != "*":
            values.update(_values(match, kind, quartz))
        elif number == 0:
            head = "*" if step == 1 else f"*/{step}"
        else:
            values.update(range(kind.low, kind.high + 1, step))
    if head == "*":
        return head
    if kind.high == 7:
        values = {(value - kind.low) % 7 for value in values}  # Sunday is 0
    return ",".join(part for part in (head, _ranges(sorted(values))) if part)


def _values(match: re.Match[str], kind: _Field, quartz: bool) -> Iterable[int]:
    """Return the values of `a`, `a-b`, `a/n` or `a-b/n`."""
    first, last, step = _number(match[1], kind), match[2], match[3]
    named = [not end.isdecimal() for end in (match[1], last) if end is not None]
    if quartz and any(named) and (step or not all(named)):
        raise _Refused(
            f"has the {kind.name} {match[0]}, of which Quartz reads only a part",
            "write its ends as numbers, or list the names",
        )
    if last is None and step is None:
        return {first}
    if last is None:
        if kind is _WEEKDAY and (7 - first) % int(step) == 0 < first:
            raise _Refused(
                f"has the weekday {match[0]}, whose last day is Saturday or Sunday by reader",
                "list the days, or write a range with its end, as in 1-5/2",
            )
        return range(first, kind.high + 1, int(step))
    end = _number(last, kind)
    if end < first and not quartz:
        raise _Refused(
            f"has the {kind.name} {match[0]}, whose end lies before its start",
            "list both parts, as in 22-23,0-2 or FRI,SAT,SUN",
        )
    size = kind.high - kind.low + 1
    end += size if end < first else 0
    return [(n - kind.low) % size + kind.low for n in range(first, end + 1, int(step or 1))]


def _number(text: str, kind: _Field) -> int:
    found = int(text) if text.isdecimal() else kind.names.get(text, -1)
    if not kind.low <= found <= kind.high:
        raise _unreadable(text, kind)
    return found


def _unreadable(text: str, kind: _Field) -> _Refused:
    names = list(kind.names)
    named = f" or {names[0]} to {names[-1]}" if names else ""
    return _Refused(
        f"has a bad {kind.name}: {text!r}",
        f"a {kind.name} is {kind.low} to {kind.high}{named}; lists, ranges and steps such as */2 "
        "are read too",
    )


def _ranges(values: list[int]) -> str:
    runs = []
    for _, run in groupby(enumerate(values), lambda pair: pair[1] - pair[0]):
        ends = [value for _, value in run]
        runs.append(str(ends[0]) if len(ends) == 1 else f"{ends[0]}-{ends[-1]}")
    return ",".join(runs)


class Schedule:
    """The firings of one expression in one zone, numbered from an arbitrary one and found lazily.

    Instants are whole seconds since 1970-01-01T00:00Z. They do not depend on where the search
    begins: every block of time is computed by itself, from the wall clock.
    """

    def __init__(self, expression: str, here: Zone) -> None:
        self._expression = expression
        self._zone = here
        minute, hour, *_ = expression.split()
        self._real_time = minute.startswith("*") or hour.startswith("*")
        self._hourly = _every_hour(expression, here)
        self._later: array[int] = array("q")  # firings 0, 1, 2 …
        self._earlier: array[int] = array("q")  # firings -1, -2 … as negated instants, ascending
        self._blocks: range | None = None  # those computed

    def firing(self, ordinal: int) -> int:
        """Return the instant of a firing."""
        if self._hourly:
            hour, index = divmod(ordinal, len(self._hourly))
            return hour * 3_600 + self._hourly[index]
        while ordinal >= len(self._later):
            self._extend_forward(0)
        while -ordinal > len(self._earlier):
            self._extend_backward(0)
        return self._later[ordinal] if ordinal >= 0 else -self._earlier[-ordinal - 1]

    def last_before(self, instant: int) -> int:
        """Return the ordinal of the last firing at or before the instant."""
        if self._hourly:
            hour, second = divmod(instant - self._hourly[0], 3_600)
            index = bisect_right(self._hourly, second + self._hourly[0]) - 1
            return hour * len(self._hourly) + index
        while self._blocks is None or instant >= self._blocks.stop * _BLOCK:
            self._extend_forward(instant)
        index = bisect_right(self._later, instant) - 1
        if index >= 0:
            return index
        while not self._earlier or -self._earlier[-1] > instant:
            self._extend_backward(instant)
        return -1 - bisect_left(self._earlier, -instant)

    def _extend_forward(self, instant: int) -> None:
        blocks = self._blocks or _empty_at(instant)
        self._later.extend(self._firings(blocks.stop))
        self._blocks = range(blocks.start, blocks.stop + 1)

    def _extend_backward(self, instant: int) -> None:
        blocks = self._blocks or _empty_at(instant)
        firings = self._firings(blocks.start - 1)
        self._earlier.extend(-firing for firing in reversed(firings))
        self._blocks = range(blocks.start - 1, blocks.stop)

    def _firings(self, block: int) -> list[int]:
        """Return the firings in one block of time, ascending.

        An expression with `*` for minutes or hours fires whenever the wall clock shows such a
        time: twice where clocks go back, not at all where they jump over it. Any other fires
        once: at the first of two readings, and where clocks land that jump over it.
        """
        here, begin, end = self._zone, block * _BLOCK, (block + 1) * _BLOCK
        found: set[int] = set()
        if not -_MOST_BLOCKS <= block <= _MOST_BLOCKS:
            raise CronError(
                f"the cron expression {self._expression!r} has no firing within centuries",
                hint="Check the window or lookback: it spans centuries.",
            )
        # A day more on both sides: no jump is longer.
        local, until = here.local(begin - _DAY), here.local(end + _DAY)
        for moment in moments(self._expression, local):
            if moment > until:
                break
            if self._real_time:
                found.update(here.readings(moment))
            else:
                found.add(here.reached(moment))
        return sorted(instant for instant in found if begin <= instant < end)


def _empty_at(instant: int) -> range:
    block = instant // _BLOCK
    return range(block, block)


def _every_hour(expression: str, here: Zone) -> list[int] | None:
    """Return the seconds of the UTC hour at which an every-hour expression fires, else None.

    Such firings need no search: cron runs them in real time, whatever the clocks do.
    """
    phase = here.hour_phase()
    if expression.split()[1:] != ["*"] * 4 or phase is None:
        return None
    minutes = CronSim(expression, datetime(2024, 1, 1, tzinfo=UTC)).minutes
    return sorted(phase + minute * 60 for minute in minutes)
