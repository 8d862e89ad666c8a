"""Cron expressions as numbered firings, with the rules of Debian's cron where clocks jump."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from lineage_backfill.errors import CronError
from lineage_backfill.partitions.zones import Zone

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_DAY = 86_400
_BLOCK = 64 * _DAY  # the time whose firings are worked out at once


def normalise(expression: str) -> str:
    """Return a five-field expression; a Quartz form is accepted where it means the same.

    Quartz puts seconds first, numbers Sunday as 1 and writes `?` for a day field that does not
    matter (https://www.quartz-scheduler.org/documentation/quartz-2.3.0/tutorials/crontrigger.html).
    Raises CronError.
    """
    fields = _ALIASES.get(expression.strip().lower(), expression).upper().split()
    if len(fields) in (6, 7):
        seconds, *rest = fields
        if seconds != "0":
            raise CronError(
                f"the cron expression {expression!r} has seconds that are not 0",
                hint="partitions begin on whole minutes: write 0 first, or use `every`",
            )
        if len(rest) == 6 and rest.pop() != "*":
            raise CronError(
                f"the cron expression {expression!r} is limited to certain years",
                hint="leave the year out, and say `start` and `end` instead",
            )
        if not {rest[2], rest[4]} & {"*", "?"}:
            raise CronError(
                f"the cron expression {expression!r} has both a day of the month and a weekday",
                hint="write ? for the one that does not matter, as Quartz itself requires",
            )
        rest[4] = _from_quartz_weekdays(rest[4], expression)
        fields = ["*" if field == "?" else field for field in rest]
    if len(fields) != 5:
        raise CronError(
            f"the cron expression {expression!r} has {len(fields)} fields",
            hint="write five: minute hour day-of-month month day-of-week",
        )
    text = " ".join(fields)
    try:
        next(CronSim(text, datetime(2024, 1, 1, tzinfo=UTC)))
    except StopIteration:
        raise CronError(
            f"the cron expression {expression!r} never fires", hint="check its day and month"
        ) from None
    except CronSimError as error:
        raise CronError(
            f"cannot read the cron expression {expression!r}: {error}",
            hint="write five fields: minute hour day-of-month month day-of-week",
        ) from None
    return text


def _from_quartz_weekdays(field: str, expression: str) -> str:
    def day(text: str) -> str:
        if not text.isdecimal():
            return text
        if not 1 <= int(text) <= 7:
            raise CronError(
                f"the cron expression {expression!r} has a weekday outside 1 to 7",
                hint="Quartz counts from 1 (Sunday) to 7 (Saturday)",
            )
        return str(int(text) - 1)

    parts = []
    for part in field.split(","):
        days, slash, step = part.partition("/")
        days, hash_sign, nth = days.partition("#")
        last = "L" if days.endswith("L") and days != "L" else ""
        ends = "-".join(day(end) for end in days.removesuffix(last).split("-"))
        if slash and ends.isdecimal():
            ends = f"{ends}-6"  # Quartz's 2/2 goes on to the end of the week
        parts.append(ends + last + hash_sign + nth + slash + step)
    return ",".join(parts)


class Schedule:
    """The firings of one expression in one zone, numbered from an arbitrary one and found lazily.

    Instants are whole seconds since 1970-01-01T00:00Z. They do not depend on where the search
    begins: every block of time is worked out by itself, from the wall clock.
    """

    def __init__(self, expression: str, here: Zone) -> None:
        self._expression = expression
        self._zone = here
        minute, hour, *_ = expression.split()
        self._real_time = minute.startswith("*") or hour.startswith("*")
        self._hourly = _every_hour(expression, here)
        self._later: array[int] = array("q")  # firings 0, 1, 2 …
        self._earlier: array[int] = array("q")  # firings -1, -2 … as negated instants, ascending
        self._blocks: range | None = None  # those worked out

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
        try:
            # A day more on both sides: no jump is longer.
            local, until = here.local(begin - _DAY), here.local(end + _DAY)
            for moment in CronSim(self._expression, local):
                if moment > until:
                    break
                if self._real_time:
                    found.update(here.readings(moment))
                else:
                    found.add(here.reached(moment))
        except (OverflowError, ValueError, OSError):
            raise CronError(
                f"the cron expression {self._expression!r} does not fire in time",
                hint="check its day and month, and how many keys before and after are read",
            ) from None
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
