"""Which keys a run covers: named, of a data interval, by its schedule or by the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lineage_backfill.errors import MissingKeyError, UsageError
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.grid import cron_grid
from lineage_backfill.partitions.keys import NOTHING
from lineage_backfill.partitions.schedule import RunStart, newest_key, run_keys
from lineage_backfill.partitions.text import render
from tests.unit.partitions.support import at, calendar, instant, keys, labels, product

# A week in June 2024: Monday is the 17th.
THU, FRI, SAT, SUN, MON, TUE, WED = (f"2024-06-{day}" for day in range(13, 20))
#: One delivery file a calendar day, picked up on that day at six from Monday to Friday.
DELIVERIES: dict[str, Any] = {"grain": "day", "start": "2024-06-01", "data_lag": -1}
COMPLETE_DAYS: dict[str, Any] = {"grain": "day", "start": "2024-06-01"}
WEEKDAYS = "0 0 6 ? * 2-6"


def covered(declared: dict[str, Any], now: str, lookback: int = 0, **start: Any) -> set[str]:
    """The keys of a run of a job with the calendar declared."""

    def calendar_at(moment: int) -> Calendar:
        return calendar(datetime.fromtimestamp(moment, UTC), **declared)

    today = calendar_at(instant(now))
    if named := start.pop("named", None):
        start["keys"] = keys(today, named)
    if interval := start.pop("between", None):
        start["interval"] = tuple(map(instant, interval))
    if schedule := start.pop("cron", None):
        start["schedule"] = cron_grid(schedule, start.pop("zone", "UTC"))
    found = run_keys(calendar_at, RunStart(now=instant(now), **start), lookback=lookback)
    return labels(today, found)


@pytest.mark.parametrize(
    ("day", "lookback", "exact", "wanted"),
    [
        # A Monday-to-Friday schedule makes Monday's run cover Saturday, Sunday and Monday.
        (MON, 0, False, {SAT, SUN, MON}),
        (TUE, 0, False, {TUE}),
        (FRI, 0, False, {FRI}),
        # With a lookback of its own key: the union.
        (MON, 3, False, {FRI, SAT, SUN, MON}),
        (WED, 3, False, {SUN, MON, TUE, WED}),
        (MON, 1, False, {SAT, SUN, MON}),
        # Exact: its own key alone.
        (MON, 3, True, {MON}),
    ],
)
def test_a_scheduled_run_covers_gaps_and_lookback(
    day: str, lookback: int, exact: bool, wanted: set[str]
) -> None:
    for seconds in ("06:00:00", "06:00:09", "23:59:59"):
        now = f"{day}T{seconds}"
        assert covered(DELIVERIES, now, lookback, cron=WEEKDAYS, exact=exact) == wanted


@pytest.mark.parametrize(
    ("named", "lookback", "exact", "wanted"),
    [
        (SAT, 0, False, {SAT}),
        (SAT, 3, False, {"2024-06-12", THU, FRI, SAT}),
        (SAT, 3, True, {SAT}),
        # Each of several keys by itself; keys before the first do not exist.
        (f"{MON},{THU}", 1, False, {SUN, MON, "2024-06-12", THU}),
        ("2024-06-02", 3, False, {"2024-06-01", "2024-06-02"}),
        # Today's key is not complete: the user may name it all the same.
        (WED, 1, False, {TUE, WED}),
    ],
)
def test_named_keys_get_a_lookback_and_no_gaps(
    named: str, lookback: int, exact: bool, wanted: set[str]
) -> None:
    now = f"{WED}T12:00"
    for schedule in ({}, {"cron": WEEKDAYS}):
        start = {"named": named, "exact": exact, **schedule}
        assert covered(COMPLETE_DAYS, now, lookback, **start) == wanted


@pytest.mark.parametrize(
    ("declared", "now", "cron", "wanted"),
    [
        # Complete days: Friday's day ends after Friday's run, so Monday's run covers it.
        (COMPLETE_DAYS, f"{MON}T06:00", WEEKDAYS, {FRI, SAT, SUN}),
        (COMPLETE_DAYS, f"{TUE}T06:00", WEEKDAYS, {MON}),
        # An attempt after midnight still stands for the firing of the day before.
        (COMPLETE_DAYS, f"{TUE}T00:30", WEEKDAYS, {FRI, SAT, SUN}),
        ({**COMPLETE_DAYS, "data_lag": 1}, f"{MON}T06:00", WEEKDAYS, {THU, FRI, SAT}),
        # Several firings in a period cover the newest key again.
        (COMPLETE_DAYS, f"{TUE}T06:10", "0 */6 * * *", {MON}),
        (DELIVERIES, f"{MON}T01:00", "0 * * * MON-FRI", {MON}),
        (DELIVERIES, f"{MON}T00:00", "0 * * * MON-FRI", {SAT, SUN, MON}),
        # Longer periods than the schedule's, and shorter ones.
        ({"grain": "month", "start": "2024-01-01"}, f"{MON}T06:00", WEEKDAYS, {"2024-05-01"}),
        (
            {"grain": "hour", "start": "2024-06-17T00"},
            f"{MON}T03:05",
            "0 */3 * * *",
            {"2024-06-17T00", "2024-06-17T01", "2024-06-17T02"},
        ),
        # A calendar that has ended keeps its last key.
        ({**COMPLETE_DAYS, "end": SAT}, f"{MON}T06:00", WEEKDAYS, {FRI, SAT}),
        ({**COMPLETE_DAYS, "end": THU}, f"{MON}T06:00", WEEKDAYS, {THU}),
    ],
)
def test_gaps_are_the_keys_that_came_to_exist_since_the_firing_before(
    declared: dict[str, Any], now: str, cron: str, wanted: set[str]
) -> None:
    assert covered(declared, now, cron=cron) == wanted


def test_a_schedule_has_its_own_zone() -> None:
    # It is 06:00 in Berlin from 04:00 in UTC on; before that, Friday's firing is the last one.
    start: dict[str, Any] = {"cron": WEEKDAYS, "zone": "Europe/Berlin"}
    assert covered(COMPLETE_DAYS, f"{MON}T04:00", **start) == {FRI, SAT, SUN}
    assert covered(COMPLETE_DAYS, f"{MON}T03:59", **start) == {THU}


@pytest.mark.parametrize(
    ("declared", "between", "lookback", "exact", "wanted"),
    [
        (COMPLETE_DAYS, (f"{FRI}T06:00", f"{MON}T06:00"), 0, False, {FRI, SAT, SUN}),
        (COMPLETE_DAYS, (f"{SUN}T00:00", f"{MON}T00:00"), 0, False, {SUN}),
        (COMPLETE_DAYS, (f"{MON}T00:00", f"{MON}T23:00"), 0, False, set()),
        (COMPLETE_DAYS, (f"{MON}T06:00", f"{MON}T06:00"), 0, False, {SUN}),
        (COMPLETE_DAYS, (f"{SUN}T00:00", f"{MON}T00:00"), 2, False, {FRI, SAT, SUN}),
        (COMPLETE_DAYS, (f"{SUN}T00:00", f"{MON}T00:00"), 2, True, {SUN}),
        (DELIVERIES, (f"{SUN}T00:00", f"{MON}T00:00"), 0, False, {MON}),
    ],
)
def test_a_data_interval_means_the_keys_that_came_to_exist_in_it(
    declared: dict[str, Any],
    between: tuple[str, str],
    lookback: int,
    exact: bool,
    wanted: set[str],
) -> None:
    now = f"{WED}T12:00"
    assert covered(declared, now, lookback, between=between, exact=exact) == wanted


def test_a_data_interval_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(UsageError, match="ends before it begins"):
        covered(COMPLETE_DAYS, f"{WED}T12:00", between=(f"{MON}T00:00", f"{SUN}T00:00"))


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
        ({"grain": "day", "data_lag": -1}, "2024-06-15"),  # the running one
        ({"grain": "hour", "data_lag": -1}, "2024-06-15T14"),
        ({"cron": "@daily", "data_lag": -1}, "2024-06-15T00:00"),
        ({"grain": "day", "zone": "Pacific/Auckland"}, "2024-06-15"),
        ({"grain": "hour", "zone": "Asia/Kolkata"}, "2024-06-15T19"),  # it is 20:00 there
        ({"grain": "day", "end": "2024-06-01"}, "2024-06-01"),
        ({"grain": "day", "start": "2024-06-14"}, "2024-06-14"),  # the first one, and alone
        ({"grain": "none"}, "*"),
    ],
)
def test_by_the_clock_a_run_means_the_newest_key(declared: dict[str, Any], wanted: str) -> None:
    assert covered(declared, "2024-06-15T14:30") == {wanted}


def test_products_widen_each_static_key_by_itself() -> None:
    sales = product(at(f"{WED}T12:00"), day=COMPLETE_DAYS, region={"keys": ("eu", "us")})
    start = RunStart(
        now=instant(f"{WED}T12:00"), keys=keys(sales, f"day={MON}/region=eu,day={TUE}/region=us")
    )
    assert labels(sales, run_keys(lambda _: sales, start, lookback=1)) == {
        f"day={SUN}/region=eu",
        f"day={MON}/region=eu",
        f"day={MON}/region=us",
        f"day={TUE}/region=us",
    }


def test_a_product_is_collected_with_all_its_static_keys() -> None:
    def calendar_at(moment: int) -> Calendar:
        now = datetime.fromtimestamp(moment, UTC)
        return product(now, day=DELIVERIES, region={"keys": ("eu", "us")})

    start = RunStart(now=instant(f"{MON}T06:00"), schedule=cron_grid(WEEKDAYS, "UTC"))
    assert render(calendar_at(start.now), run_keys(calendar_at, start)) == (
        {"day": [f"{SAT}..{MON}"], "region": ["eu", "us"]},
    )


def test_static_keys_have_no_newest_one_and_no_lookback() -> None:
    regions = calendar(keys=("eu", "us"))
    with pytest.raises(UsageError, match="no newest") as refused:
        newest_key(regions)
    assert refused.value.hint == "Name the key."
    eu = keys(regions, "eu")
    start = RunStart(now=0, keys=eu, schedule=cron_grid(WEEKDAYS, "UTC"))
    assert run_keys(lambda _: regions, start, lookback=3) == eu


def test_before_the_first_key_there_is_no_newest_one() -> None:
    with pytest.raises(MissingKeyError, match="exists yet"):
        covered({"grain": "day", "start": "2024-06-15"}, "2024-06-15T14:30")
    assert (
        run_keys(
            lambda moment: calendar(datetime.fromtimestamp(moment, UTC), grain="day", start=SAT),
            RunStart(now=instant(f"{SAT}T14:30"), interval=(0, instant(f"{SAT}T14:30"))),
        )
        == NOTHING
    )
