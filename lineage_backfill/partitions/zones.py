"""Time zones: local time to instants and back, exact where clocks jump."""

from __future__ import annotations

import difflib
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise

from lineage_backfill.errors import MissingKeyError, ZoneError

#: Keys may lie in these years (the second one excluded); those shorter than a day from 1970 on.
FIRST_YEAR, LAST_YEAR = 1900, 2200

#: What Python raises for a time that it cannot hold.
_OVERFLOW = (OverflowError, ValueError, OSError)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.toordinal()
_LOCAL_EPOCH = _EPOCH.replace(tzinfo=None)
_END = int(datetime(LAST_YEAR, 1, 1, tzinfo=UTC).timestamp())
_RULES_REPEAT = int(datetime(2040, 1, 1, tzinfo=UTC).timestamp())
_SCAN_STEP = 10 * 86_400  # no zone has moved its clocks there and back within ten days
_LIKE = 0.6  # how much a name is like what was meant, from 0 to 1


class Zone:
    """One IANA time zone. Instants are whole seconds since 1970-01-01T00:00Z."""

    __slots__ = ("fixed", "info", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.info = _load(name)
        self.fixed = name in {"UTC", "Etc/UTC", "Zulu", "GMT", "Etc/GMT"}

    def offset(self, instant: int) -> int:
        """Return the seconds that local time is ahead of UTC at the instant."""
        if self.fixed:
            return 0
        try:
            delta = datetime.fromtimestamp(instant, self.info).utcoffset()
        except _OVERFLOW:
            raise beyond_years() from None
        assert delta is not None
        return delta.days * 86_400 + delta.seconds

    def local(self, instant: int) -> datetime:
        """Return the local wall clock at the instant, without a zone."""
        try:
            if self.fixed:
                return _LOCAL_EPOCH + timedelta(0, instant)
            return datetime.fromtimestamp(instant, self.info).replace(tzinfo=None, fold=0)
        except _OVERFLOW:
            raise beyond_years() from None

    def day(self, instant: int) -> date:
        """Return the local date at the instant."""
        if not self.fixed:
            return self.local(instant).date()
        try:
            return date.fromordinal(instant // 86_400 + _EPOCH_DAY)
        except _OVERFLOW:
            raise beyond_years() from None

    def readings(self, local: datetime) -> tuple[int, ...]:
        """Return the instants at which the wall clock shows `local`: none, one or two."""
        found = {self.instant(local, fold) for fold in (0, 1)}
        return tuple(sorted(t for t in found if self.local(t) == local))

    def repeats(self, local: datetime) -> bool:
        """Whether the wall clock shows `local` twice."""
        return not self.fixed and len(self.readings(local)) > 1

    def midnight(self, day: date) -> int:
        """Return the first instant of the local date, also where there is no 00:00."""
        if self.fixed:
            return (day.toordinal() - _EPOCH_DAY) * 86_400
        return self.reached(datetime.combine(day, time.min))

    def reached(self, local: datetime) -> int:
        """Return the first instant at which the wall clock shows `local`, or jumps over it."""
        instant = self.instant(local, 0)
        if self.fixed or self.local(instant) == local:
            return instant
        before, after = self.instant(local, 1), instant
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (before, middle) if self.local(middle) >= local else (middle, after)
        return after

    def changes(self) -> tuple[tuple[int, int, int], ...]:
        """Return (instant, offset before, offset afterwards) of every jump since 1970."""
        return _changes(self.name, _END)

    def hour_phase(self) -> int | None:
        """Return at which second of the UTC hour every local hour begins; None where that varies.

        Judged on the years to 2040: what the IANA rules hold for later repeats without end.
        """
        if self.fixed:
            return 0
        phase = -self.offset(0) % 3_600
        for instant, _, after in _changes(self.name, _RULES_REPEAT):
            if -after % 3_600 != phase or instant % 3_600 != phase:
                return None
        return phase

    def skipped_days(self) -> tuple[date, ...]:
        """Return the dates that the zone never had (a move across the date line)."""
        return _skipped_days(self.name)

    def instant(self, local: datetime, fold: int) -> int:
        """Return the instant of a wall clock reading, the second of two where fold is 1."""
        if self.fixed:
            since = local - _LOCAL_EPOCH
        else:
            since = local.replace(tzinfo=self.info, fold=fold) - _EPOCH
        return since.days * 86_400 + since.seconds


def beyond_years() -> MissingKeyError:
    """Return the error for a key outside the years that have a date."""
    return MissingKeyError(
        "a key outside the years 1 to 9999 is needed",
        hint="Check how many keys before or after are read (`by`, `before`, `after`, `lookback`).",
    )


@cache
def zone(name: str) -> Zone:
    """Return the zone with this IANA name; raises ZoneError for any other name."""
    return Zone(name)


def _load(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise ZoneError(f"unknown time zone {name!r}", hint=nearest_zones(name))


def nearest_zones(name: str) -> str:
    """Return a hint with at most three names of zones that are much like `name`.

    >>> nearest_zones("berlin")
    'Did you mean `Europe/Berlin`, `America/Belize` or `Europe/Dublin`?'
    >>> nearest_zones("")
    'Give a name of the IANA database, as `Europe/Berlin`.'
    """
    wanted = name.casefold().replace(" ", "_")

    def likeness(zone: str) -> float:
        known = zone.casefold()
        parts = (known, known.rpartition("/")[2])
        return max(difflib.SequenceMatcher(None, wanted, part).ratio() for part in parts)

    ratios = {zone: likeness(zone) for zone in zoneinfo.available_timezones()}
    near = [zone for zone, ratio in ratios.items() if ratio >= _LIKE]
    near.sort(key=lambda zone: (-ratios[zone], zone))
    if not near:
        return "Give a name of the IANA database, as `Europe/Berlin`."
    *first, last = [f"`{zone}`" for zone in near[:3]]
    return f"Did you mean {', '.join(first)}{' or ' if first else ''}{last}?"


@cache
def _changes(name: str, end: int) -> tuple[tuple[int, int, int], ...]:
    here = zone(name)
    if here.fixed:
        return ()
    found: list[tuple[int, int, int]] = []
    left, offset = 0, here.offset(0)
    while left < end:
        right = left + _SCAN_STEP
        if here.offset(right) == offset:
            left = right
            continue
        while right - left > 1:
            middle = (left + right) // 2
            if here.offset(middle) == offset:
                left = middle
            else:
                right = middle
        left, before, offset = right, offset, here.offset(right)
        found.append((right, before, offset))
    return tuple(found)


@cache
def _skipped_days(name: str) -> tuple[date, ...]:
    here = zone(name)
    days: list[date] = []
    if here.fixed:
        return ()
    offsets = [here.offset(here.midnight(date(y, 1, 1))) for y in range(FIRST_YEAR, LAST_YEAR + 1)]
    for index, (before, after) in enumerate(pairwise(offsets)):
        # Only a move across the date line changes the offset by half a day or more.
        if after - before > 43_200:
            day = date(FIRST_YEAR + index, 1, 1)
            while day.year == FIRST_YEAR + index:
                following = day + timedelta(days=1)
                if here.midnight(day) == here.midnight(following):
                    days.append(day)
                day = following
    return tuple(days)
