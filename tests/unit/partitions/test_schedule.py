"""What a run means that was started without keys: the newest key, lookback and schedule gaps."""

from __future__ import annotations

from typing import Any

import pytest

from lineage_backfill.errors import MissingKeyError, UsageError
from lineage_backfill.partitions.cron import normalise
from lineage_backfill.partitions.grid import cron_grid
from lineage_backfill.partitions.schedule import latest_key, scheduled_keys
from lineage_backfill.partitions.text import render
from tests.unit.partitions.support import at, calendar, keys, labels, product

# A week in June 2024: Monday is the 17th.
DAYS = calendar(at("2024-07-01T00:00"), grain="day", start="2024-06-01")
WEEKDAYS = cron_grid("0 6 * * 1-5", "UTC")
THU, FRI, SAT, SUN, MON, TUE, WED = (f"2024-06-{day}" for day in range(13, 20))


@pytest.mark.parametrize(
    ("key", "lookback", "scheduled", "exact", "wanted"),
    [
        # A Monday-to-Friday schedule makes Monday's run cover Saturday, Sunday and Monday.
        (MON, 0, True, False, {SAT, SUN, MON}),
        (TUE, 0, True, False, {TUE}),
        (FRI, 0, True, False, {FRI}),
        # A run covers its own key and the n before it.
        (WED, 3, False, False, {SUN, MON, TUE, WED}),
        # Both together: the union.
        (MON, 3, True, False, {FRI, SAT, SUN, MON}),
        (WED, 3, True, False, {SUN, MON, TUE, WED}),
        (MON, 1, True, False, {SAT, SUN, MON}),
        # Asked for by name: no gaps, lookback all the same.
        ("2024-06-15", 0, False, False, {SAT}),
        ("2024-06-22", 3, False, False, {"2024-06-19", "2024-06-20", "2024-06-21", "2024-06-22"}),
        # Exact: just the keys named.
        (MON, 3, True, True, {MON}),
        # Keys before the first one do not exist.
        ("2024-06-02", 3, False, False, {"2024-06-01", "2024-06-02"}),
        # A range is read key by key.
        (f"{MON}..{TUE}", 0, True, False, {SAT, SUN, MON, TUE}),
    ],
)
def test_a_scheduled_run_covers_gaps_and_lookback(
    key: str, lookback: int, scheduled: bool, exact: bool, wanted: set[str]
) -> None:
    found = scheduled_keys(
        DAYS,
        keys(DAYS, key),
        schedule=WEEKDAYS if scheduled else None,
        lookback=lookback,
        exact=exact,
    )
    assert labels(DAYS, found) == wanted


def test_a_quartz_schedule_in_its_own_zone_fills_the_same_gaps() -> None:
    schedule = cron_grid("0 0 6 ? * 2-6", "Europe/Berlin")
    assert normalise("0 0 6 ? * 2-6") == "0 6 * * 1-5"
    found = scheduled_keys(DAYS, keys(DAYS, MON), schedule=schedule)
    assert labels(DAYS, found) == {SAT, SUN, MON}


def test_several_firings_in_one_period_count_as_the_first() -> None:
    hourly = cron_grid("0 * * * 1-5", "UTC")
    found = scheduled_keys(DAYS, keys(DAYS, MON), schedule=hourly)
    assert labels(DAYS, found) == {SAT, SUN, MON}


def test_gaps_of_hours_and_of_products() -> None:
    hours = calendar(at("2024-07-01T00:00"), grain="hour", start="2024-06-01T00")
    every_six = cron_grid("0 */6 * * *", "UTC")
    found = scheduled_keys(hours, keys(hours, "2024-06-17T12"), schedule=every_six)
    assert render(hours, found) == ("2024-06-17T07..2024-06-17T12",)
    sales = product(
        at("2024-07-01T00:00"),
        day={"grain": "day", "start": "2024-06-01"},
        region={"keys": ("eu", "us")},
    )
    found = scheduled_keys(sales, keys(sales, f"day={MON}/region=eu"), schedule=WEEKDAYS)
    assert labels(sales, found) == {f"day={day}/region=eu" for day in (SAT, SUN, MON)}


def test_products_widen_each_static_key_by_itself() -> None:
    sales = product(
        at("2024-07-01T00:00"),
        day={"grain": "day", "start": "2024-06-01"},
        region={"keys": ("eu", "us")},
    )
    asked = keys(sales, f"day={MON}/region=eu,day={WED}/region=us")
    assert labels(sales, scheduled_keys(sales, asked, lookback=1)) == {
        f"day={SUN}/region=eu",
        f"day={MON}/region=eu",
        f"day={TUE}/region=us",
        f"day={WED}/region=us",
    }


def test_static_keys_have_neither_gaps_nor_lookback() -> None:
    regions = calendar(keys=("eu", "us"))
    eu = keys(regions, "eu")
    assert scheduled_keys(regions, eu, schedule=WEEKDAYS, lookback=3) == eu


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        # It is Saturday 2024-06-15, 14:30 in UTC: the last complete period, not today's.
        ({"grain": "day"}, "2024-06-14"),
        ({"grain": "week"}, "2024-W23"),
        ({"grain": "month"}, "2024-05-01"),
        ({"grain": "hour"}, "2024-06-15T13"),
        ({"grain": "day", "data_lag": 1}, "2024-06-13"),
        ({"grain": "week", "data_lag": 1}, "2024-W22"),
        ({"grain": "month", "data_lag": 2}, "2024-03-01"),
        ({"grain": "hour", "data_lag": 14}, "2024-06-14T23"),
        ({"grain": "day", "zone": "Pacific/Auckland"}, "2024-06-15"),
        ({"grain": "hour", "zone": "Asia/Kolkata"}, "2024-06-15T19"),  # it is 20:00 there
        ({"grain": "day", "end": "2024-06-01"}, "2024-06-01"),
    ],
)
def test_the_latest_key_is_the_last_complete_one_less_the_lag(
    declared: dict[str, Any], wanted: str
) -> None:
    found = calendar(at("2024-06-15T14:30"), **declared)
    assert labels(found, latest_key(found)) == {wanted}


def test_static_keys_have_no_latest_one() -> None:
    with pytest.raises(UsageError, match="no latest") as refused:
        latest_key(calendar(keys=("eu",)))
    assert refused.value.hint == "name the key"


def test_before_the_first_key_there_is_no_latest_one() -> None:
    with pytest.raises(MissingKeyError, match="exists yet"):
        latest_key(calendar(at("2024-06-15T14:30"), grain="day", start="2024-06-15"))
