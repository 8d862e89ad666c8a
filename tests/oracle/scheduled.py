"""Holds the keys of a scheduled run to their definition: which exist at the last firings."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import cache

from lineage_backfill.errors import MissingKeyError
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.grid import cron_grid
from lineage_backfill.partitions.schedule import RunStart, run_keys
from tests.oracle.definition import STEP, WALK_FROM, Span, clock, spans
from tests.oracle.worlds import COUNTS, MOMENTS, ZONES
from tests.unit.partitions.support import calendar, labels

_DAYS = ((), (0, 1, 2, 3, 4), (5, 6), (0, 2, 4), (6,))  # 0 is Monday; none stands for every day


@cache
def _firings(zone: str, minute: int, hours: tuple[int, ...], days: tuple[int, ...]) -> list[int]:
    """Return the half hours at which the clock shows one of these times."""
    return [
        number
        for number, (_, local) in enumerate(clock(zone))
        if local.minute == minute and local.hour in hours and (not days or local.weekday() in days)
    ]


def _existing(periods: tuple[Span, ...], first: int, lag: int, at: datetime) -> list[int]:
    """Return the places of the periods that are over, and `lag` more after them."""
    return [
        place
        for place in range(first, len(periods) - 1 - lag)
        if periods[place + 1 + lag].start <= at
    ]


def check_scheduled(seed: int) -> None:
    """Compare the keys that one run covers; between two and five no clock here fires."""
    rng = random.Random(seed)
    grain = rng.choice(("hour", "day", "day", "week", "month"))
    zone, cron_zone = rng.choice(ZONES), rng.choice(ZONES)
    lag, lookback, exact = (
        rng.choice((-1, 0, 0, 1, 3)),
        rng.choice((0, 0, 1, 4)),
        rng.random() < 0.2,
    )
    minute, hours = rng.choice((0, 30)), tuple(sorted(rng.sample(range(6, 23), rng.randint(1, 3))))
    days = rng.choice(_DAYS)
    periods = spans(grain, zone)
    now = datetime.fromisoformat(rng.choice(MOMENTS)).replace(tzinfo=UTC)
    now += timedelta(minutes=rng.randrange(0, 60 * 24 * 9), seconds=rng.randrange(60))
    place = next(n for n, span in enumerate(periods) if span.end > now)
    first = max(0, place - rng.randint(0, 2 * COUNTS[grain]))
    declared = {"grain": grain, "zone": zone, "start": periods[first].label, "data_lag": lag}

    def calendar_at(instant: int) -> Calendar:
        return calendar(datetime.fromtimestamp(instant, UTC), **declared)

    week = ",".join(str((day + 1) % 7) for day in days) or "*"
    expression = f"{minute} {','.join(map(str, hours))} * * {week}"
    start = RunStart(
        now=int(now.timestamp()), schedule=cron_grid(expression, cron_zone), exact=exact
    )
    fired = [n for n in _firings(cron_zone, minute, hours, days) if WALK_FROM + n * STEP <= now]
    before, last = (_existing(periods, first, lag, WALK_FROM + n * STEP) for n in fired[-2:])
    about = f"seed {seed}: {expression} in {cron_zone}, {declared}, at {now}"
    try:
        found = run_keys(calendar_at, start, lookback=lookback)
    except MissingKeyError:
        assert not last, about
        return
    assert last, about
    wanted = {last[-1]}
    if not exact:
        wanted |= {*last} - {*before}
        wanted |= {n for n in range(last[-1] - lookback, last[-1]) if n >= first}
    told = labels(calendar_at(start.now), found)
    assert told == {periods[n].label for n in wanted}, about
