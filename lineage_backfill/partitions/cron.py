"""Cron expressions as numbered firings, with the rules of Debian's cron where clocks jump."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
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
_CHUNK = 4_096  # firings worked out at a time


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

    Instants are whole seconds since 1970-01-01T00:00Z.
    """

    label_format = "%Y-%m-%dT%H:%M"

    def __init__(self, expression: str, here: Zone) -> None:
        self._expression = expression
        self._zone = here
        self._hourly = _every_hour(expression, here)
        self._later: array[int] = array("q")  # firings 0, 1, 2 …
        self._earlier: array[int] = array("q")  # firings -1, -2 … as negated instants, ascending
        self._forward: Iterator[int] | None = None
        self._backward: Iterator[int] | None = None

    def firing(self, ordinal: int) -> int:
        """Return the instant of a firing."""
        if self._hourly:
            hour, index = divmod(ordinal, len(self._hourly))
            return hour * 3_600 + self._hourly[index]
        self._begin(0)
        while ordinal >= len(self._later):
            self._extend_forward()
        while -ordinal > len(self._earlier):
            self._extend_backward()
        return self._later[ordinal] if ordinal >= 0 else -self._earlier[-ordinal - 1]

    def last_before(self, instant: int) -> int:
        """Return the ordinal of the last firing at or before the instant."""
        if self._hourly:
            hour, second = divmod(instant - self._hourly[0], 3_600)
            index = bisect_right(self._hourly, second + self._hourly[0]) - 1
            return hour * len(self._hourly) + index
        self._begin(instant)
        if instant >= self._later[0]:
            while self._later[-1] <= instant:
                self._extend_forward()
            return bisect_right(self._later, instant) - 1
        while -self._earlier[-1] > instant if self._earlier else True:
            self._extend_backward()
        # The first of the ascending negated instants that is >= -instant is the firing.
        return -1 - bisect_right(self._earlier, -instant - 1)

    def _begin(self, instant: int) -> None:
        if self._forward is None:
            self._forward = self._firings(instant, reverse=False)
            self._extend_forward()
            self._backward = self._firings(self._later[0], reverse=True)

    def _extend_forward(self) -> None:
        assert self._forward is not None
        self._extend(self._later, self._forward, 1)

    def _extend_backward(self) -> None:
        assert self._backward is not None
        self._extend(self._earlier, self._backward, -1)

    def _extend(self, into: array[int], firings: Iterator[int], sign: int) -> None:
        for _ in range(_CHUNK):
            instant = next(firings, None)
            if instant is None:
                if len(into):
                    return
                raise CronError(
                    f"the cron expression {self._expression!r} does not fire in time",
                    hint="check its day and month",
                )
            value = sign * instant
            # Where clocks go back, two local times can name one instant.
            if not into or value > into[-1]:
                into.append(value)

    def _firings(self, instant: int, *, reverse: bool) -> Iterator[int]:
        info = UTC if self._zone.fixed else self._zone.info
        try:
            for moment in CronSim(
                self._expression, datetime.fromtimestamp(instant, info), reverse=reverse
            ):
                yield int(moment.timestamp())
        except (OverflowError, ValueError):
            return


def _every_hour(expression: str, here: Zone) -> list[int] | None:
    """Return the seconds of the UTC hour at which an every-hour expression fires, else None.

    Such firings need no search: cron runs them in real time, whatever the clocks do.
    """
    phase = here.hour_phase()
    if expression.split()[1:] != ["*"] * 4 or phase is None:
        return None
    minutes = CronSim(expression, datetime(2024, 1, 1, tzinfo=UTC)).minutes
    return sorted(phase + minute * 60 for minute in minutes)
