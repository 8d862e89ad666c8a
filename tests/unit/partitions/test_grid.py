"""Every grain in zones whose clocks jump: tilings, labels, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.errors import (
    AmbiguousKeyError,
    KeyFormatError,
    MissingKeyError,
    UsageError,
)
from lineage_backfill.partitions.grid import Grid, cron_grid, every_grid, grain_grid, refines
from tests.unit.partitions.support import GRAINS, JUMPS, ZONES, instant, properties

HOUR = 3_600
YEAR = 366 * 24 * HOUR


def grids(zone: str) -> list[Grid]:
    """One grid of every kind in a zone."""
    return [
        *(grain_grid(grain, zone) for grain in GRAINS),
        cron_grid("30 * * * *", zone),
        cron_grid("15 6 * * 1-5", zone),
        every_grid("8m", "2007-01-01T00:00", zone),
        every_grid("90m", "2007-01-01T00:00", zone),
    ]


@pytest.mark.parametrize(("zone", "moment"), JUMPS)
def test_grids_tile_the_timeline_and_labels_come_back(zone: str, moment: str) -> None:
    for grid in grids(zone):
        middle = grid.at(instant(moment))
        labels = []
        for ordinal in range(middle - 8, middle + 9):
            start, end = grid.start(ordinal), grid.start(ordinal + 1)
            assert start < end
            assert grid.at(start) == grid.at(end - 1) == ordinal
            labels.append(grid.label(ordinal))
            assert grid.find(labels[-1]) == ordinal, f"{grid.family} {labels[-1]}"
        assert len(set(labels)) == len(labels), f"{grid.family}: {labels}"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Apia"])
@pytest.mark.parametrize("away", [100_000, 10**8, 10**12])
def test_keys_outside_all_years_are_refused_in_a_sentence(zone: str, away: int) -> None:
    slices = [grid for grid in grids(zone) if grid.family[0] != "cron"]
    for grid in (*slices, cron_grid("0 0 1 1 *", zone)):
        near = grid.at(instant("2024-06-15T14:30"))
        for ordinal in (near - away, near + away):
            for method in (grid.start, grid.label):
                with suppress(UsageError):
                    assert method(ordinal) is not None
        for moment in (-(10**15), 10**15):
            with pytest.raises(UsageError):
                grid.label(grid.at(moment))


@properties(150)
@given(
    st.sampled_from(ZONES),
    st.sampled_from(GRAINS),
    st.integers(instant("1970-01-03T00:00"), instant("2199-12-01T00:00")),
)
def test_every_instant_lies_in_one_key(zone: str, grain: str, moment: int) -> None:
    grid = grain_grid(grain, zone)
    ordinal = grid.at(moment)
    assert grid.start(ordinal) <= moment < grid.start(ordinal + 1)
    assert grid.find(grid.label(ordinal)) == ordinal


def naive_hours(zone: str, first: int, last: int) -> list[tuple[int, str, int]]:
    """The definition: an hour key ends where the clock shows another hour, or is set back."""
    here = ZoneInfo(zone)
    found: list[tuple[int, str, int]] = []
    shown, ahead = "", 0
    for moment in range(first, last, 60):
        local = datetime.fromtimestamp(moment, here)
        text = local.strftime("%Y-%m-%dT%H")
        offset = int((local.utcoffset() or timedelta()).total_seconds())
        if text != shown or offset < ahead:
            found.append((moment, text, offset))
        shown, ahead = text, offset
    return found[1:]


@pytest.mark.parametrize(("zone", "moment"), JUMPS)
def test_hours_are_what_the_wall_clock_shows(zone: str, moment: str) -> None:
    grid = grain_grid("hour", zone)
    middle = instant(moment)
    hours = naive_hours(zone, middle - 6 * HOUR, middle + 6 * HOUR)
    ordinal = grid.at(hours[0][0])
    for number, (start, text, offset) in enumerate(hours):
        assert grid.start(ordinal + number) == start
        sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
        suffix = f"{sign}{minutes // 60:02}{minutes % 60:02}"
        twice = sum(other == text for _, other, _ in hours) > 1
        assert grid.label(ordinal + number) == text + suffix * twice


@pytest.mark.parametrize(("zone", "moment"), JUMPS)
@pytest.mark.parametrize("grain", GRAINS[1:])
def test_periods_begin_at_the_first_instant_of_their_first_day(
    zone: str, moment: str, grain: str
) -> None:
    grid = grain_grid(grain, zone)
    here = ZoneInfo(zone)
    middle = grid.at(instant(moment))
    for ordinal in (middle, middle + 1):
        start = grid.start(ordinal)
        day = datetime.fromtimestamp(start, here).date()
        before = datetime.fromtimestamp(start - 60, here).date()
        assert before < day, "the minute before is another day's"
        wanted = {
            "day": day,
            "week": day - timedelta(days=day.weekday()),
            "month": day.replace(day=1),
            "quarter": day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1),
            "year": day.replace(day=1, month=1),
        }[grain]
        assert day == wanted
        label = grid.label(ordinal)
        if grain == "week":
            assert date.fromisocalendar(int(label[:4]), int(label[6:]), 1) == day
        else:
            assert label == day.isoformat()


@pytest.mark.parametrize(
    ("zone", "day", "hours", "keys"),
    [
        ("UTC", "2024-03-10", 24, 24),
        ("America/New_York", "2024-03-10", 23, 23),
        ("America/New_York", "2024-11-03", 25, 25),
        ("Asia/Kolkata", "2024-03-10", 24, 24),
        ("Australia/Lord_Howe", "2024-04-07", 24.5, 25),  # 01 and its second half again
        ("Australia/Lord_Howe", "2024-10-06", 23.5, 24),  # 02 lasts half an hour
        ("Antarctica/Troll", "2024-03-31", 22, 22),
        ("Antarctica/Troll", "2024-10-27", 26, 26),
        ("America/Sao_Paulo", "2018-11-04", 23, 23),
        ("America/Sao_Paulo", "2018-02-17", 25, 25),
        ("Asia/Beirut", "2024-03-31", 23, 23),
        ("America/Havana", "2024-11-03", 25, 25),
        ("America/Caracas", "2007-12-09", 24.5, 25),
        ("America/Caracas", "2016-05-01", 23.5, 24),
        ("Africa/Casablanca", "2024-03-10", 25, 25),
        ("Europe/Dublin", "2024-03-31", 23, 23),
    ],
)
def test_days_have_the_hours_that_their_clocks_leave_them(
    zone: str, day: str, hours: float, keys: int
) -> None:
    days, clock = grain_grid("day", zone), grain_grid("hour", zone)
    ordinal = days.find(day)
    start, end = days.start(ordinal), days.start(ordinal + 1)
    assert (end - start) / HOUR == hours
    assert clock.at(end - 1) - clock.at(start) + 1 == keys


@pytest.mark.parametrize(
    ("zone", "label", "readings"),
    [
        ("America/New_York", "2024-11-03T01", ("2024-11-03T01-0400", "2024-11-03T01-0500")),
        ("Australia/Lord_Howe", "2024-04-07T01", ("2024-04-07T01+1100", "2024-04-07T01+1030")),
        ("Europe/Dublin", "2024-10-27T01", ("2024-10-27T01+0100", "2024-10-27T01+0000")),
        ("America/Havana", "2024-11-03T00", ("2024-11-03T00-0400", "2024-11-03T00-0500")),
        ("Antarctica/Troll", "2024-10-27T02", ("2024-10-27T02+0200", "2024-10-27T02+0000")),
        ("America/St_Johns", "2010-11-06T23", ("2010-11-06T23-0230", "2010-11-06T23-0330")),
    ],
)
def test_a_repeated_hour_is_refused_with_both_readings(
    zone: str, label: str, readings: tuple[str, str]
) -> None:
    grid = grain_grid("hour", zone)
    with pytest.raises(AmbiguousKeyError, match="2 times") as refused:
        grid.find(label)
    assert all(reading in refused.value.hint for reading in readings)
    first, second = (grid.find(reading) for reading in readings)
    assert first < second
    assert (grid.label(first), grid.label(second)) == readings


def test_a_repeated_start_of_a_slice_is_refused_with_both_readings() -> None:
    for grid in (
        cron_grid("*/15 * * * *", "America/New_York"),
        every_grid("15m", "2024-01-01T00:00", "America/New_York"),
    ):
        with pytest.raises(AmbiguousKeyError) as refused:
            grid.find("2024-11-03T01:30")
        assert refused.value.hint == "Write 2024-11-03T01:30-0400 or 2024-11-03T01:30-0500."
        summer, winter = (grid.find(f"2024-11-03T01:30-0{hour}00") for hour in (4, 5))
        assert grid.start(winter) - grid.start(summer) == HOUR


@pytest.mark.parametrize(
    ("grain", "zone", "label"),
    [
        ("hour", "America/New_York", "2024-03-10T02"),
        ("hour", "America/Sao_Paulo", "2018-11-04T00"),
        ("hour", "Antarctica/Troll", "2024-03-31T01"),
        ("hour", "America/New_York", "2024-11-03T01-0600"),  # no such offset then
        ("hour", "UTC", "2024-11-03T01-0400"),
        ("hour", "Pacific/Apia", "2011-12-30T12"),
        ("day", "Pacific/Apia", "2011-12-30"),
    ],
)
def test_labels_that_their_zone_never_had_are_refused(grain: str, zone: str, label: str) -> None:
    with pytest.raises(MissingKeyError, match="does not exist in") as refused:
        grain_grid(grain, zone).find(label)
    assert refused.value.hint


def test_the_days_around_a_day_left_out_are_neighbours() -> None:
    grid = grain_grid("day", "Pacific/Apia")
    assert grid.find("2011-12-31") == grid.find("2011-12-29") + 1
    assert grid.start(grid.find("2011-12-31")) - grid.start(grid.find("2011-12-29")) == 24 * HOUR


@pytest.mark.parametrize(
    ("grain", "label", "says"),
    [
        ("hour", "2024-06-15", "2024-06-15T14"),
        ("hour", "2024-06-15T14:00", "2024-06-15T14"),
        ("hour", "2024-06-15T24", "2024-06-15T14"),
        ("hour", "2024-6-15T14", "2024-06-15T14"),
        ("hour", "1969-12-31T23", "2024-06-15T14"),
        ("day", "2024-06-15T14", "2024-06-15"),
        ("day", "2024-W24", "2024-06-15"),
        ("day", "2024-02-30", "2024-06-15"),
        ("day", "2023-02-29", "2024-06-15"),
        ("day", "20240615", "2024-06-15"),
        ("day", " 2024-06-15", "2024-06-15"),
        ("day", "2024-06-15\n", "2024-06-15"),
        ("day", "\u0662\u0660\u0662\u0664-06-15", "2024-06-15"),
        ("day", "1899-12-31", "2024-06-15"),
        ("day", "2200-01-01", "2024-06-15"),
        ("day", "", "2024-06-15"),
        ("day", "*x", "2024-06-15"),
        ("week", "2024-06-15", "2024-W24"),
        ("week", "2024-W54", "2024-W24"),
        ("week", "2023-W53", "2024-W24"),
        ("week", "2024-W00", "2024-W24"),
        ("week", "\u0662\u0660\u0662\u0664-W24", "2024-W24"),
        ("month", "2024-13", "2024-06-01"),
        ("month", "2024-Q2", "2024-06-01"),
        ("quarter", "2024-06", "2024-04-01"),
        ("day", "2024", "2024-06-15"),
        ("month", "2024-06-02", "Did you mean 2024-06-01?"),
        ("quarter", "2024-05-01", "Did you mean 2024-04-01?"),
        ("year", "2024-01", "2024-01-01"),
        ("year", "2024-02-01", "Did you mean 2024-01-01?"),
    ],
)
def test_a_key_of_another_grain_is_refused_with_an_example(
    grain: str, label: str, says: str
) -> None:
    with pytest.raises(KeyFormatError) as refused:
        grain_grid(grain, "UTC").find(label)
    assert says in refused.value.hint


@pytest.mark.parametrize(
    ("label", "first"),
    [("2020-W53", "2020-12-28"), ("2021-W01", "2021-01-04"), ("2024-W24", "2024-06-10")],
)
def test_weeks_are_those_of_iso(label: str, first: str) -> None:
    grid = grain_grid("week", "UTC")
    assert grid.start(grid.find(label)) == instant(f"{first}T00:00")
    assert grid.label(grid.find(label)) == label


@pytest.mark.parametrize("zone", ZONES)
def test_every_counts_real_time_from_its_anchor(zone: str) -> None:
    grid = every_grid("8m", "2024-01-01T00:02", zone)
    anchor = datetime(2024, 1, 1, 0, 2, tzinfo=ZoneInfo(zone))
    assert grid.start(0) == int(anchor.timestamp())
    assert grid.label(0) == "2024-01-01T00:02"
    assert grid.label(1) == "2024-01-01T00:10"
    starts = [grid.start(ordinal) for ordinal in range(-3, 4)]
    assert all(b - a == 480 for a, b in pairwise(starts))
    later = grid.at(instant("2024-12-01T00:00"))
    assert (grid.start(later) - grid.start(0)) % 480 == 0


@pytest.mark.parametrize(
    ("step", "label"),
    [
        ("90s", "2024-01-01T00:01:30"),
        ("8m", "2024-01-01T00:08"),
        ("2h", "2024-01-01T02:00"),
        ("1d", "2024-01-02T00:00"),
        ("1w", "2024-01-08T00:00"),
        (" 8 m ", "2024-01-01T00:08"),
    ],
)
def test_every_takes_any_length(step: str, label: str) -> None:
    grid = every_grid(step, "2024-01-01T00:00", "UTC")
    assert grid.label(1) == label
    assert grid.find(label) == 1
    with pytest.raises(KeyFormatError) as refused:
        grid.find("2024-01-01")
    example = refused.value.hint.removeprefix("Write it like ").partition(". ")[0].rstrip(".")
    assert len(example) == len(label), "the example bears the form of the grid's own keys"


@pytest.mark.parametrize("step", ["0m", "m", "8", "-8m", "8 months", "", "1.5h", "\u0668m"])
def test_a_length_that_is_none_is_refused(step: str) -> None:
    with pytest.raises(UsageError, match="length") as refused:
        every_grid(step, "2024-01-01T00:00", "UTC")
    assert "8m" in refused.value.hint


@pytest.mark.parametrize(
    ("start", "anchor"),
    [
        ("2024-06-15T14:30", "2024-06-15T18:30"),
        ("2024-06-15", "2024-06-15T04:00"),
        ("2024-06-15T14", "2024-06-15T18:00"),
        ("2024-11-03T01:30-0500", "2024-11-03T06:30"),
        ("2024-11-03T01:30-0400", "2024-11-03T05:30"),
        ("2024-06-15T14:30Z", "2024-06-15T14:30"),
        ("2024-06-15T14:30+0530", "2024-06-15T09:00"),
    ],
)
def test_an_anchor_is_local_unless_it_says_its_offset(start: str, anchor: str) -> None:
    assert every_grid("8m", start, "America/New_York").start(0) == instant(anchor)


@pytest.mark.parametrize(
    "start", ["2024-11-03T01:30", "2024-03-10T02:30", "soon", "", "2024-06-15T25:00"]
)
def test_an_anchor_that_is_no_instant_is_refused(start: str) -> None:
    with pytest.raises(KeyFormatError) as refused:
        every_grid("8m", start, "America/New_York")
    assert refused.value.hint


@pytest.mark.parametrize(
    ("grid", "label", "first"),
    [
        (grain_grid("day", "UTC"), "9999-12-31", 1900),
        (grain_grid("month", "UTC"), "1899-12-01", 1900),
        (grain_grid("week", "UTC"), "2201-W01", 1900),
        (grain_grid("hour", "UTC"), "1969-12-31T23", 1970),
        (grain_grid("hour", "Asia/Kathmandu"), "1900-01-01T00", 1970),
        (cron_grid("30 * * * *", "UTC"), "2200-01-01T00:30", 1970),
    ],
)
def test_a_key_outside_the_years_is_refused_with_those(grid: Grid, label: str, first: int) -> None:
    with pytest.raises(KeyFormatError) as refused:
        grid.find(label)
    assert refused.value.hint.endswith(f" Its keys lie in the years {first} to 2199.")


def test_an_anchor_with_a_colon_in_its_offset_is_refused_as_what_it_is() -> None:
    with pytest.raises(KeyFormatError, match="cannot read"):
        every_grid("8m", "2024-06-15T14:30+02:00", "America/New_York")


def test_an_unknown_grain_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown grain 'fortnight'") as refused:
        grain_grid("fortnight", "UTC")
    assert "week" in refused.value.hint


@properties(150)
@given(
    st.sampled_from(ZONES),
    st.one_of(
        st.text(max_size=20),
        st.from_regex(
            r"\d{4}-(\d{2}|W\d{2})(-\d{2})?(T\d{2}(:\d{2})?)?([+-]\d{4}|Z)?", fullmatch=True
        ),
    ),
)
def test_any_text_is_a_key_or_refused(zone: str, text: str) -> None:
    for grid in (*(grain_grid(grain, zone) for grain in GRAINS), cron_grid("30 * * * *", zone)):
        try:
            ordinal = grid.find(text)
        except UsageError:
            continue
        plain = text[:-5] if text[-5:-4] in "+-" and "T" in text else text.removesuffix("Z")
        assert grid.label(ordinal).startswith(plain)


@pytest.mark.parametrize(
    ("fine", "coarse", "zone", "other_zone", "wanted"),
    [
        ("hour", "day", "UTC", "UTC", True),
        ("day", "week", "UTC", "UTC", True),
        ("day", "month", "America/New_York", "America/New_York", True),
        ("week", "month", "UTC", "UTC", False),
        ("day", "hour", "UTC", "UTC", False),
        ("hour", "day", "UTC", "America/New_York", True),
        ("hour", "day", "UTC", "Asia/Kolkata", False),
        ("day", "day", "UTC", "America/New_York", False),
    ],
)
def test_one_grid_refines_another_where_no_key_straddles_a_border(
    fine: str, coarse: str, zone: str, other_zone: str, wanted: bool
) -> None:
    around = int(datetime(2024, 8, 1, tzinfo=UTC).timestamp())
    assert refines(grain_grid(fine, zone), grain_grid(coarse, other_zone), around) == wanted


@pytest.mark.parametrize(
    ("grain", "text", "hint"),
    [
        ("hour", "2024-03-10", ". For all of 2024-03-10: --from 2024-03-10T00 --to 2024-03-10T23"),
        ("day", "2024-02", ". For all of 2024-02: --from 2024-02-01 --to 2024-02-29"),
        ("month", "2024", ". For all of 2024: --from 2024-01-01 --to 2024-12-01"),
        ("week", "2024-03-13", ". Did you mean 2024-W11?"),
        ("hour", "2024-13", "Write it like 2024-06-15T14."),
        ("hour", "9999", "Its keys lie in the years 1970 to 2199."),
    ],
)
def test_the_hint_names_the_keys_of_a_longer_or_shorter_period(
    grain: str, text: str, hint: str
) -> None:
    with pytest.raises(KeyFormatError) as found:
        grain_grid(grain, "Europe/Berlin").find(text)
    assert (found.value.hint or "").endswith(hint)
