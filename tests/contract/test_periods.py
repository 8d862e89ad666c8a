"""Keys mean the same intervals to the runtime, which finds its own, as to the tool, which plans."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineage_backfill.errors import UsageError
from lineage_backfill.partitions import grid as theirs
from lineage_backfill.partitions.zones import zone
from spark_runtime import periods as ours
from spark_runtime.errors import KeyFormatError

FEW_ZONES = ("UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia")
#: Clocks that jump at midnight, by half an hour, within an hour, over a day, or never.
ZONES = (
    *FEW_ZONES,
    "Europe/Berlin",
    "Asia/Kolkata",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Africa/Monrovia",
    "Antarctica/Troll",
    "America/Havana",
    "Pacific/Chatham",
)
GRAINS = ("hour", "day", "week", "month", "quarter", "year")
CRONS = ("30 * * * *", "*/20 * * * *", "0 6 * * 1-5", "15 1 * * *", "30 2 * * 0", "0 0 29 2 *")
LENGTHS = ("8m", "90s", "2h", "1d")
LABELS = (
    "2024-06-15T14",
    "2024-11-03T01",  # twice in New York
    "2024-11-03T01-0400",
    "2024-11-03T01-0500",
    "2024-11-03T01+0000",
    "2024-06-15T14Z",
    "2024-03-10T02",  # jumped over in New York
    "2024-04-07T01",  # half of it twice on Lord Howe
    "2024-06-15T14:00",
    "2024-06-15T24",
    "2011-12-30",  # left out in Apia
    "2024-06-15",
    "2024-04-01",
    "2024-01-01",
    "2024-W24",
    "2024-W53",
    "2024-6-15",
    "20240615",
    "\uff12024-06-15",
    "eu",
    "",
)


def instants(first: int, last: int) -> st.SearchStrategy[int]:
    """Instants between the summers of two years, half of them near a jump of some clock."""
    begin, end = (int(datetime(year, 8, 1, tzinfo=UTC).timestamp()) for year in (first, last))
    jumps = {jump[0] for name in ZONES for jump in zone(name).changes()}
    near = st.sampled_from(sorted(jump for jump in jumps if begin < jump < end))
    by = st.integers(-90_000, 90_000)
    return st.integers(begin, end) | st.builds(int.__add__, near, by)


def same(ours: ours.Grid, theirs: theirs.Grid, instant: int) -> None:
    ordinal = theirs.at(instant)
    period = ours.holding(datetime.fromtimestamp(instant, UTC))
    assert period.label == theirs.label(ordinal)
    assert period.start.timestamp() == theirs.start(ordinal)
    assert period.end.timestamp() == theirs.start(ordinal + 1)
    assert period.local == theirs.local_start(ordinal)
    assert ours.shifted(period, 2).label == theirs.label(ordinal + 2)
    assert ours.shifted(period, -2).label == theirs.label(ordinal - 2)
    assert outcome(ours.find, period.label) == outcome(theirs.find, period.label, theirs)


def outcome(find: Any, label: str, grid: Any = None) -> Any:
    try:
        found = find(label)
    except (KeyFormatError, UsageError):
        return None
    return grid.label(found) if grid else found.label


@pytest.mark.parametrize("grain", GRAINS)
@given(zone_name=st.sampled_from(ZONES), instant=instants(1981, 2037))
@settings(max_examples=300)
def test_grains_in_every_zone(grain: str, zone_name: str, instant: int) -> None:
    same(ours.grain_grid(grain, zone_name), theirs.grain_grid(grain, zone_name), instant)


@given(
    expression=st.sampled_from(CRONS),
    zone_name=st.sampled_from(FEW_ZONES),
    instant=instants(2011, 2012),  # Apia's missing day is in that year
)
@settings(max_examples=100)
def test_cron_expressions(expression: str, zone_name: str, instant: int) -> None:
    same(ours.cron_grid(expression, zone_name), theirs.cron_grid(expression, zone_name), instant)


@given(
    length=st.sampled_from(LENGTHS),
    zone_name=st.sampled_from(ZONES),
    anchor=st.sampled_from(("2024-01-01", "2024-06-15T14:30", "2024-06-15T14:30:10")),
    instant=instants(1981, 2037),
)
@settings(max_examples=200)
def test_slices_of_one_length(length: str, zone_name: str, anchor: str, instant: int) -> None:
    here, there = (side.every_grid(length, anchor, zone_name) for side in (ours, theirs))
    same(here, there, instant)


@pytest.mark.parametrize("grain", GRAINS)
def test_what_is_a_key_to_one_is_one_to_the_other(grain: str) -> None:
    for zone_name in FEW_ZONES:
        one, other = ours.grain_grid(grain, zone_name), theirs.grain_grid(grain, zone_name)
        for label in LABELS:
            expected = outcome(other.find, label, other)
            assert outcome(one.find, label) == expected, (zone_name, label)
