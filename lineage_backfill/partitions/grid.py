"""Grids: numbered, half-open intervals with labels, which tile the timeline or are listed.

Instants are whole seconds since 1970-01-01T00:00Z. Ordinals number the intervals of one grid; they
are an inside view that never leaves the process.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from hashlib import sha256
from typing import Final

from lineage_backfill.errors import (
    AmbiguousKeyError,
    DeclarationError,
    KeyFormatError,
    MissingKeyError,
    UsageError,
)
from lineage_backfill.model import did_you_mean, listed
from lineage_backfill.partitions import cron as cron_expressions
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.partitions.zones import FIRST_YEAR, LAST_YEAR, Zone, beyond_years, zone

_TIME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}T\d{2}(?::\d{2}(?::\d{2})?)?)([+-]\d{4}|Z)?", re.ASCII
)
_WEEK: Final = re.compile(r"(\d{4})-W(\d{2})", re.ASCII)
_LISTED: Final = "A row holds key, start and end, such as 2024-P01, 2024-01-29, 2024-02-26."
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_EVERY: Final = re.compile(r"(\d{1,9})\s*([smhdw])", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
#: The short forms of months, quarters and years, by their number of months.
_SHORT: Final = {
    1: re.compile(r"(\d{4})-(\d{2})", re.ASCII),
    3: re.compile(r"(\d{4})-Q([1-4])", re.ASCII),
    12: re.compile(r"(\d{4})()", re.ASCII),
}
#: A year, a month or a day.
_PERIOD: Final = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?", re.ASCII)
#: A date and perhaps a time in another writing than that of keys: the year first or last.
_DATE: Final = re.compile(r"(\d{4}|\d{1,2})([-./])(\d{1,2})\2(\d{4}|\d{1,2})(.*)", re.ASCII)
_COMPACT: Final = re.compile(r"(\d{4})()(\d\d)(\d\d)(.*)", re.ASCII)
_CLOCK: Final = re.compile(r"[T ](\d{1,2})(?::?(\d\d))?(?::?\d\d)?(?:\.\d+)?Z?", re.ASCII)
#: Two dates with a mark or a word between them.
_TWO: Final = re.compile(r"(.{8,}?)(?:-|\s-\s|\s?:\s?|/|\sto\s)(.{8,})")


class Grid(ABC):
    """Numbered intervals, [start(n), end(n)); all but those of a list tile the timeline.

    `family` is equal for grids whose labels mean the same periods, whatever the zone.
    """

    family: tuple[str, ...]
    zone: Zone
    example: str
    #: The year of its first keys; the last ones lie in the year before `LAST_YEAR`.
    first_year = FIRST_YEAR
    #: The number of keys of a list, counted from 0; None where they have no end.
    size: int | None = None

    @abstractmethod
    def start(self, ordinal: int) -> int:
        """Return the instant at which the interval begins."""

    @abstractmethod
    def at(self, instant: int) -> int:
        """Return the ordinal of the last interval that begins at the instant or before."""

    def end(self, ordinal: int) -> int:
        """Return the instant at which the interval ends."""
        return self.start(ordinal + 1)

    def ended(self, instant: int) -> int:
        """Return the ordinal of the last interval that ends at the instant or before."""
        return self.at(instant) - 1

    def touching(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and the last interval that intersect [start, end), which is not empty.

        In a gap, the first is the one after it and the last the one before it.
        """
        return self.at(start), self.at(end - 1)

    def within(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and the last interval that lie within [start, end)."""
        first = self.at(start)
        return first + (self.start(first) < start), self.ended(end)

    def listed(self, ordinals: OrdinalSet) -> OrdinalSet:
        """Return those of the ordinals that a list has; all where there is none."""
        return ordinals if self.size is None else ordinals.clip(0, self.size - 1)

    def spans(self, ordinals: OrdinalSet) -> Iterator[tuple[int, int]]:
        """Yield the maximal stretches of time without a gap that the intervals cover."""
        for first, last in ordinals.runs():
            yield self.start(first), self.end(last)

    @abstractmethod
    def label(self, ordinal: int) -> str:
        """Return the key of the interval."""

    @abstractmethod
    def find(self, label: str) -> int:
        """Return the ordinal of a key.

        Raises KeyFormatError where the text is not a key of this grid, MissingKeyError where its
        local time does not exist, AmbiguousKeyError where it exists twice.
        """

    def local_start(self, ordinal: int) -> datetime:
        """Return the local wall clock at the start of the interval, without a zone."""
        return self.zone.local(self.start(ordinal))

    def _wrong(self, label: str) -> KeyFormatError:
        hint = f"Write it like {self.example}.{self._meant(label)}"
        year = re.match(r"\d{4}", label, re.ASCII)
        if year is not None and not self.first_year <= int(year[0]) < LAST_YEAR:
            hint += f" Its keys lie in the years {self.first_year} to {LAST_YEAR - 1}."
        return KeyFormatError(
            f"{label!r} is not a key of this calendar ({self.family[0]}, {self.zone.name})",
            hint=hint,
        )

    def _meant(self, label: str) -> str:
        """Return what a hint adds of the keys that a text in another writing names."""
        periods = _periods(label)
        if not periods:
            two = _TWO.fullmatch(label)
            ends = [_periods(end.strip()) for end in two.groups()] if two else []
            if [len(end) for end in ends] != [1, 1]:
                return ""
            begin, end = self._keys(ends[0][0])[0], self._keys(ends[1][0])[1]
            return f" For the range: --from {begin} --to {end}"
        keys = [self._keys(period) for period in periods]
        if all(begin == end for begin, end in keys):
            return f" Did you mean {' or '.join(begin for begin, _ in keys)}?"
        if len(keys) > 1:
            days = zip(periods, keys, strict=True)
            each = (f"{day[0]:%Y-%m-%d}: --from {begin} --to {end}" for day, (begin, end) in days)
            return f" For {'; for '.join(each)}"
        first, after = periods[0]
        named = label if after - first > timedelta(days=1) else f"{first:%Y-%m-%d}"
        return f" For all of {named}: --from {keys[0][0]} --to {keys[0][1]}"

    def _keys(self, period: tuple[datetime, datetime]) -> tuple[str, str]:
        """Return the first and the last key of a period of local time."""
        first, after = (self.zone.reached(one) for one in period)
        return self.label(self.at(first)), self.label(self.at(after - 1))


def _periods(text: str) -> list[tuple[datetime, datetime]]:
    """Return the periods of local time that a text may name, half-open: years to minutes."""
    if long := _long(text):
        return long
    found = _PERIOD.fullmatch(text)
    if found and not found[3]:
        first, months = _instant(found[1], found[2] or "1", "1", "0", "0"), 1 if found[2] else 12
        if first is None:
            return []
        after = (first + timedelta(days=31 * months)).replace(day=1, month=first.month % 12 + 1)
        return [(first, after if found[2] else first.replace(year=first.year + 1))]
    found = _DATE.fullmatch(text) or _COMPACT.fullmatch(text)
    time = found and _CLOCK.fullmatch(found[5] or "T0")
    if not found or not time:
        return []
    left, separator, middle, right = found.group(1, 2, 3, 4)
    orders = [(left, middle, right)] if len(left) == 4 else [(right, middle, left)]
    if len(left) < 4 and separator != ".":  # month first, as in the United States
        orders.append((right, left, middle))
    starts = {_instant(*order, time[1], time[2] or "0") for order in orders}
    length = timedelta(minutes=1) if found[5] else timedelta(days=1)
    return [(start, start + length) for start in sorted(filter(None, starts))]


def _long(text: str) -> list[tuple[datetime, datetime]]:
    """Return the week or quarter that a text names, if it names one."""
    with suppress(ValueError):
        if week := _WEEK.fullmatch(text):
            first = datetime.fromisocalendar(int(week[1]), int(week[2]), 1)
            return [(first, first + timedelta(days=7))]
        if quarter := _SHORT[3].fullmatch(text):
            first = datetime.fromisoformat(f"{quarter[1]}-{3 * int(quarter[2]) - 2:02}-01")
            return [(first, (first + timedelta(days=95)).replace(day=1))]
    return []


def _instant(*parts: str) -> datetime | None:
    """Return the local time of a year, a month, a day, an hour and a minute, where it exists."""
    try:
        found = datetime.strptime(" ".join(parts), "%Y %m %d %H %M")  # noqa: DTZ007 - local time
    except ValueError:
        return None
    return found if FIRST_YEAR <= found.year < LAST_YEAR - 1 else None


class _DateGrid(Grid):
    """Days and longer periods: local midnight to local midnight."""

    def __init__(self, grain: str, here: Zone) -> None:
        self.family = (grain,)
        self.zone = here
        self._starts: dict[int, int] = {}

    def start(self, ordinal: int) -> int:
        found = self._starts.get(ordinal)
        if found is None:
            found = self._starts[ordinal] = self.zone.midnight(self._day(ordinal))
        return found

    def at(self, instant: int) -> int:
        ordinal = self._of_day(self.zone.day(instant))
        if self.zone.fixed:
            return ordinal
        while self.start(ordinal) > instant:
            ordinal -= 1
        while self.start(ordinal + 1) <= instant:
            ordinal += 1
        return ordinal

    def label(self, ordinal: int) -> str:
        return self._day(ordinal).isoformat()

    def find(self, label: str) -> int:
        day = self._parse(label)
        if day is None or not FIRST_YEAR <= day.year < LAST_YEAR:
            raise self._wrong(label)
        ordinal = self._of_day(day)
        if self._first_day(ordinal) != day:
            if day in self.zone.skipped_days():
                raise MissingKeyError(
                    f"{label} does not exist in {self.zone.name}: its calendar left that day out",
                    hint="Use another day.",
                )
            raise KeyFormatError(
                f"{label!r} is not the first day of a {self.family[0]}",
                hint=f"Did you mean {self.label(ordinal)}?",
            )
        return ordinal

    def _parse(self, label: str) -> date | None:
        try:
            return date.fromisoformat(label) if _DAY.fullmatch(label) else None
        except ValueError:
            return None

    def _day(self, ordinal: int) -> date:
        try:
            return self._first_day(ordinal)
        except (OverflowError, ValueError):
            raise beyond_years() from None

    @abstractmethod
    def _first_day(self, ordinal: int) -> date:
        """Return the local date on which the period begins."""

    @abstractmethod
    def _of_day(self, day: date) -> int:
        """Return the ordinal of the period that holds the local date."""


class _DayGrid(_DateGrid):
    example = "2024-06-15"

    def __init__(self, here: Zone) -> None:
        super().__init__("day", here)
        # Ordinals count the days that the zone had, so a skipped one is not a key.
        self._skipped = [day.toordinal() for day in here.skipped_days()]
        self._after = [ordinal - index for index, ordinal in enumerate(self._skipped)]

    def start(self, ordinal: int) -> int:
        if self.zone.fixed:
            return (ordinal - 719_163) * 86_400
        return super().start(ordinal)

    def at(self, instant: int) -> int:
        if self.zone.fixed:
            return instant // 86_400 + 719_163
        return super().at(instant)

    def _first_day(self, ordinal: int) -> date:
        return date.fromordinal(ordinal + bisect_right(self._after, ordinal))

    def _of_day(self, day: date) -> int:
        ordinal = day.toordinal()
        return ordinal - bisect_left(self._skipped, ordinal)


class _WeekGrid(_DateGrid):
    example = "2024-W24"

    def __init__(self, here: Zone) -> None:
        super().__init__("week", here)

    def label(self, ordinal: int) -> str:
        year, week, _ = self._day(ordinal).isocalendar()
        return f"{year:04}-W{week:02}"

    def _parse(self, label: str) -> date | None:
        match = _WEEK.fullmatch(label)
        try:
            return date.fromisocalendar(int(match[1]), int(match[2]), 1) if match else None
        except ValueError:
            return None

    def _first_day(self, ordinal: int) -> date:
        return date.fromordinal(ordinal * 7 + 1)

    def _of_day(self, day: date) -> int:
        return (day.toordinal() - 1) // 7


class _MonthsGrid(_DateGrid):
    """Months, quarters and years: periods of so many months."""

    def __init__(self, grain: str, months: int, example: str, here: Zone) -> None:
        super().__init__(grain, here)
        self.example = example
        self._months = months

    def _parse(self, label: str) -> date | None:
        """Return the day that a label means; `2024-06`, `2024-Q2` and `2024` mean a first day."""
        match = _SHORT[self._months].fullmatch(label)
        if match is None:
            return super()._parse(label)
        year, number = int(match[1]), int(match[2] or 1)
        return super()._parse(f"{year:04}-{(number - 1) * min(self._months, 3) + 1:02}-01")

    def _first_day(self, ordinal: int) -> date:
        year, month = divmod(ordinal * self._months, 12)
        return date(year, month + 1, 1)

    def _of_day(self, day: date) -> int:
        return (day.year * 12 + day.month - 1) // self._months


class _ClockGrid(Grid):
    """Hours and other slices whose keys are local times, with an offset where those repeat."""

    first_year = 1970
    _precision: str  # of the label, as `isoformat` names it: hours, minutes or seconds
    _length: int  # of the longest stretch of local time that has one label, in seconds

    def label(self, ordinal: int) -> str:
        local = self.local_start(ordinal)
        text = self._plain(local)
        if self.zone.fixed or not self._repeats(local):
            return text
        return text + self._offset(ordinal)

    def find(self, label: str) -> int:
        plain = self._find_unshifted(label) if self.zone.fixed else None
        if plain is not None:
            return plain
        local, offset = self._parse(label)
        text, near = self._plain(local), self._near(local)
        found = [o for o in near if self._plain(self.local_start(o)) == text]
        if offset:
            found = [o for o in found if self._offset(o) == offset]
        if not found:
            raise MissingKeyError(
                f"{label} does not exist in {self.zone.name}",
                hint=f"Nearest keys: {', '.join(self.label(o) for o in near[1:4])}",
            )
        if len(found) > 1:
            readings = " or ".join(self.label(o) for o in found)
            raise AmbiguousKeyError(
                f"{label} happens {len(found)} times in {self.zone.name}", hint=f"Write {readings}."
            )
        return found[0]

    def _parse(self, label: str) -> tuple[datetime, str | None]:
        """Return the local time and the UTC offset that a label names; raises KeyFormatError."""
        match = _TIME.fullmatch(label)
        if match is None:
            raise self._wrong(label)
        try:
            local = datetime.fromisoformat(match[1])
        except ValueError:
            raise self._wrong(label) from None
        if not self.first_year <= local.year < LAST_YEAR or self._plain(local) != match[1]:
            raise self._wrong(label)
        return local, "+0000" if match[2] == "Z" else match[2]

    def _near(self, local: datetime) -> list[int]:
        """Return the ordinals around a local time, in every reading of the clock."""
        near: set[int] = set()
        for moment in (local, local + timedelta(seconds=self._length - 1)):
            for fold in (0, 1):
                guess = self.at(self.zone.instant(moment, fold))
                near |= {guess - 1, guess, guess + 1}
        return sorted(near)

    def _find_unshifted(self, label: str) -> int | None:
        """Return the ordinal of a key without an offset, in a zone whose clock never jumps.

        None for any other text: what is wrong with it is said elsewhere.
        """
        try:
            local = datetime.fromisoformat(label)
        except ValueError:
            return None
        if local.tzinfo or self._plain(local) != label:
            return None
        if not self.first_year <= local.year < LAST_YEAR:
            return None
        instant = self.zone.instant(local, 0)
        ordinal = self.at(instant)
        return ordinal if self.start(ordinal) == instant else None

    def _plain(self, local: datetime) -> str:
        return local.isoformat("T", self._precision)

    def _offset(self, ordinal: int) -> str:
        seconds = self.zone.offset(self.start(ordinal))
        sign, minutes = "-" if seconds < 0 else "+", abs(seconds) // 60
        return f"{sign}{minutes // 60:02}{minutes % 60:02}"

    def _repeats(self, local: datetime) -> bool:
        return self.zone.repeats(local)


class _HourGrid(_ClockGrid):
    """Local hours; where the offset changes by a part of an hour, partial ones too."""

    family = ("hour",)
    example = "2024-06-15T14"
    _precision = "hours"
    _length = 3_600

    def __init__(self, here: Zone) -> None:
        self.zone = here
        phase = here.hour_phase()
        #: (first instant, its ordinal, phase of the full hours after it), ascending
        self._spans = [(0, 0, 0 if phase is None else phase)]
        if phase is None:
            self._spans = self._irregular()
        #: At which second of the UTC hour every hour begins; None where that varies.
        self._phase = phase
        self._instants = [span[0] for span in self._spans]
        self._ordinals = [span[1] for span in self._spans]

    def start(self, ordinal: int) -> int:
        if self._phase is not None:
            return 3_600 * ordinal + self._phase
        index = max(bisect_right(self._ordinals, ordinal) - 1, 0)
        first, number, phase = self._spans[index]
        if ordinal == number and index:
            return first
        return first + (phase - first) % 3_600 + 3_600 * (ordinal - number - self._partial(index))

    def at(self, instant: int) -> int:
        if self._phase is not None:
            return (instant - self._phase) // 3_600
        index = max(bisect_right(self._instants, instant) - 1, 0)
        first, number, phase = self._spans[index]
        hours = (instant - first - (phase - first) % 3_600) // 3_600
        return number + hours + self._partial(index)

    def _partial(self, index: int) -> int:
        """Return 1 where the span begins with less than an hour of its own."""
        first, _, phase = self._spans[index]
        return 1 if index and (phase - first) % 3_600 else 0

    def _irregular(self) -> list[tuple[int, int, int]]:
        changes = self.zone.changes()
        spans = [(0, 0, -changes[0][1] % 3_600)]
        for instant, before, after in changes:
            landed = (instant + after) // 3_600 != (instant + before - 1) // 3_600
            if after > before and not landed:
                # The jump stays within one label: that hour is short, and ends when it ends.
                border = instant + -(instant + after) % 3_600
            else:
                border = instant
            first, number, phase = spans[-1]
            partial = 1 if len(spans) > 1 and (phase - first) % 3_600 else 0
            full = -(-(border - first - (phase - first) % 3_600) // 3_600)
            spans.append((border, number + partial + full, -after % 3_600))
        return spans

    def _repeats(self, local: datetime) -> bool:
        hour = local.replace(minute=0, second=0)
        return self.zone.repeats(hour) or self.zone.repeats(hour + timedelta(seconds=3_599))


class _EveryGrid(_ClockGrid):
    """Slices of one length, counted from an anchor."""

    def __init__(self, seconds: int, anchor: int, here: Zone) -> None:
        self.family = ("every", str(seconds))
        self.zone = here
        self._seconds = self._length = seconds
        self._anchor = anchor
        whole = seconds % 60 == 0 and anchor % 60 == 0
        self._precision = "minutes" if whole else "seconds"
        self.example = self.label(0)

    def start(self, ordinal: int) -> int:
        return self._anchor + ordinal * self._seconds

    def at(self, instant: int) -> int:
        return (instant - self._anchor) // self._seconds


class _CronGrid(_ClockGrid):
    """Slices from one firing of a cron expression to the next."""

    example = "2024-06-15T14:30"
    _precision = "minutes"
    _length = 1

    def __init__(self, expression: str, here: Zone) -> None:
        self.family = ("cron", expression)
        self.zone = here
        self._schedule = cron_expressions.Schedule(expression, here)

    def start(self, ordinal: int) -> int:
        return self._schedule.firing(ordinal)

    def at(self, instant: int) -> int:
        return self._schedule.last_before(instant)


class _ListGrid(Grid):
    """Intervals of a list, in order and maybe with gaps; others, outside the list, are empty."""

    def __init__(
        self, rows: Sequence[Sequence[str]], here: Zone, places: Sequence[str] = ()
    ) -> None:
        self._places = places or [f"row {n} of `boundaries`" for n in range(1, len(rows) + 1)]
        if not rows:
            raise DeclarationError("`boundaries` has no rows", hint=_LISTED)
        self.zone = here
        self.size = len(rows)
        self._labels = [row[0] for row in rows]
        self._index = {row[0]: n for n, row in reversed([*enumerate(rows)])}
        self._starts = [self._instant(n, row[1]) for n, row in enumerate(rows)]
        self._ends = [self._instant(n, row[2]) for n, row in enumerate(rows)]
        self._check()
        self.example = self._labels[-1]
        text = repr((rows, here.name)).encode("utf-8", "surrogatepass")
        self.family = ("boundaries", sha256(text).hexdigest()[:8])

    def _instant(self, row: int, text: str) -> int:
        try:
            local = datetime.fromisoformat(text)
        except ValueError:
            raise self._fault(row, f"cannot read {text!r} as a local time", _LISTED) from None
        if local.tzinfo is not None:
            return int(local.timestamp())
        local = local.replace(microsecond=0)
        if len(text) > len("2024-01-29") and len(self.zone.readings(local)) > 1:
            what = f"{text} happens 2 times in {self.zone.name}"
            raise self._fault(row, what, "Give it with its offset, such as 2024-11-03T01:30-0400.")
        return self.zone.reached(local)

    def _check(self) -> None:
        starts, ends = self._starts, self._ends
        for n, label in enumerate(self._labels):
            if ".." in label or label == "*" or label != label.strip():
                raise self._fault(n, f"{label!r} cannot be a key", "A key holds no `..`.")
            if starts[n] >= ends[n]:
                raise self._fault(n, f"{label} ends before it begins", "Its end is not in it.")
            if self._index[label] != n:
                raise self._fault(n, f"the key {label!r} stands twice", "Rename one of them.")
            if n and starts[n] < ends[n - 1]:
                what = f"{label} begins before {self._labels[n - 1]} ends"
                raise self._fault(n, what, "Order the rows by time, without an overlap.")

    def _fault(self, row: int, what: str, hint: str) -> DeclarationError:
        return DeclarationError(f"{self._places[row]}: {what}", hint=hint)

    def start(self, ordinal: int) -> int:
        return self._ends[-1] if ordinal >= len(self._ends) else self._starts[max(ordinal, 0)]

    def end(self, ordinal: int) -> int:
        return self._starts[0] if ordinal < 0 else self._ends[min(ordinal, len(self._ends) - 1)]

    def at(self, instant: int) -> int:
        return bisect_right(self._starts, instant) - 1

    def ended(self, instant: int) -> int:
        return bisect_right(self._ends, instant) - 1

    def touching(self, start: int, end: int) -> tuple[int, int]:
        return bisect_right(self._ends, start), bisect_left(self._starts, end) - 1

    def within(self, start: int, end: int) -> tuple[int, int]:
        return bisect_left(self._starts, start), self.ended(end)

    def spans(self, ordinals: OrdinalSet) -> Iterator[tuple[int, int]]:
        begin = None
        for one in self.listed(ordinals):
            begin = self._starts[one] if begin is None else begin
            if one + 1 not in ordinals or self._ends[one] < self.start(one + 1):
                yield begin, self._ends[one]
                begin = None

    def label(self, ordinal: int) -> str:
        return self._labels[min(max(ordinal, 0), len(self._labels) - 1)]

    def find(self, label: str) -> int:
        found = self._index.get(label)
        if found is None:
            raise KeyFormatError(
                f"{label!r} is not a key of this calendar (boundaries, {self.zone.name})",
                hint=did_you_mean(label, self._labels)
                or f"Its keys are {listed(self._labels, 4)}.",
            )
        return found


class _ZonedGrid(Grid):
    """Periods of one grain in several zones: each interval covers that of every zone."""

    def __init__(self, grids: tuple[Grid, ...]) -> None:
        one = grids[0]
        self._grids = grids
        self.zone, self.family, self.size = one.zone, one.family, one.size
        self.example = one.example

    def start(self, ordinal: int) -> int:
        return min(grid.start(ordinal) for grid in self._grids)

    def end(self, ordinal: int) -> int:
        return max(grid.end(ordinal) for grid in self._grids)

    def at(self, instant: int) -> int:
        return max(grid.at(instant) for grid in self._grids)

    def ended(self, instant: int) -> int:
        return min(grid.ended(instant) for grid in self._grids)

    def touching(self, start: int, end: int) -> tuple[int, int]:
        found = [grid.touching(start, end) for grid in self._grids]
        return min(low for low, _ in found), max(high for _, high in found)

    def label(self, ordinal: int) -> str:
        return self._grids[0].label(ordinal)

    def find(self, label: str) -> int:
        return self._grids[0].find(label)


@cache
def zoned_grid(grids: tuple[Grid, ...]) -> Grid:
    """Return a grid whose keys begin at different instants, by zone; raises DeclarationError."""
    for grid in grids:
        if isinstance(grid, _ClockGrid):
            raise DeclarationError(
                f"a zone for each key needs whole days or more, not {' '.join(grid.family)}",
                hint="Give its hours one zone, such as UTC, or partition it by day.",
            )
        if grid.zone.skipped_days():
            raise DeclarationError(
                f"{grid.zone.name} left a day out, so its days cannot stand beside those of others",
                hint="Give its keys a dataset of their own.",
            )
    return _ZonedGrid(grids)


@cache
def list_grid(rows: tuple[tuple[str, str, str], ...], zone_name: str) -> Grid:
    """Return the grid of listed intervals; raises DeclarationError that names the row."""
    return _ListGrid(rows, zone(zone_name))


def check_rows(rows: Sequence[Sequence[str]], places: Sequence[str]) -> None:
    """Raise DeclarationError for rows of a list that do not fit, with the place of the row."""
    _ListGrid(rows, zone("UTC"), places)


@cache
def grain_grid(grain: str, zone_name: str) -> Grid:
    """Return the grid of hour, day, week, month, quarter or year in a zone."""
    here = zone(zone_name)
    match grain:
        case "hour":
            return _HourGrid(here)
        case "day":
            return _DayGrid(here)
        case "week":
            return _WeekGrid(here)
        case "month":
            return _MonthsGrid("month", 1, "2024-06-01", here)
        case "quarter":
            return _MonthsGrid("quarter", 3, "2024-04-01", here)
        case "year":
            return _MonthsGrid("year", 12, "2024-01-01", here)
    raise UsageError(
        f"unknown grain {grain!r}", hint="Use hour, day, week, month, quarter, year or none."
    )


def cron_grid(expression: str, zone_name: str) -> Grid:
    """Return the grid between the firings of a cron expression; raises CronError."""
    return _cron_grid(cron_expressions.normalise(expression), zone_name)


@cache
def _cron_grid(expression: str, zone_name: str) -> Grid:
    return _CronGrid(expression, zone(zone_name))


@cache
def every_grid(step: str, start: str, zone_name: str) -> Grid:
    """Return the grid of slices of one length (`8m`, `90s`, `2h`) counted from a local time.

    Raises UsageError where the length cannot be read, KeyFormatError where the start cannot.
    """
    match = _EVERY.fullmatch(step.strip())
    if match is None or int(match[1]) == 0:
        raise UsageError(f"cannot read the length {step!r}", hint="Write it like 8m, 90s or 2h.")
    here = zone(zone_name)
    parts = _TIME.fullmatch(start)
    try:
        local = datetime.fromisoformat(parts[1] if parts else f"{start}T00:00")
    except ValueError:
        raise KeyFormatError(
            f"cannot read {start!r} as the start of `every`", hint="Write it like 2024-06-15T14:30."
        ) from None
    if parts and parts[2]:
        sign = -1 if parts[2][0] == "-" else 1
        hours, minutes = (0, 0) if parts[2] == "Z" else (int(parts[2][1:3]), int(parts[2][3:]))
        ahead = timedelta(hours=sign * hours, minutes=sign * minutes)
        anchor = int((local.replace(tzinfo=UTC) - ahead).timestamp())
    else:
        readings = here.readings(local)
        if len(readings) != 1:
            raise AmbiguousKeyError(
                f"{start} happens {len(readings)} times in {here.name}",
                hint="Give it with its offset, such as 2024-11-03T01:30-0400.",
            )
        anchor = readings[0]
    return _EveryGrid(int(match[1]) * _UNITS[match[2]], anchor, here)


@lru_cache(maxsize=1_000)
def refines(fine: Grid, coarse: Grid, around: int) -> bool:
    """Whether no interval of `fine` straddles a border of `coarse`.

    Judged on the borders of `coarse` within two years of the instant `around`, at most 2,000.
    """
    if fine is coarse:
        return True
    year = 366 * 86_400
    first = max(coarse.at(around - 2 * year), coarse.at(around) - 1_000)
    last = min(coarse.at(around + 2 * year), coarse.at(around) + 1_000)
    for ordinal in range(first, last + 1):
        start, end = coarse.start(ordinal), coarse.end(ordinal)
        low, high = fine.touching(start, end) if start < end else (0, -1)
        if low <= high and not (start <= fine.start(low) and fine.end(high) <= end):
            return False
    return True
