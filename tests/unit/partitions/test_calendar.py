"""Which keys exist: start, end, data lag and the clock; and declarations that are none."""

from __future__ import annotations

from typing import Any

import pytest

from lineage_backfill.errors import (
    CronError,
    DeclarationError,
    KeyFormatError,
    UsageError,
    ZoneError,
)
from lineage_backfill.partitions.text import parse, render
from lineage_backfill.project.declarations import CalendarDeclaration
from tests.unit.partitions.support import at, calendar, labels, product


@pytest.mark.parametrize(
    ("now", "declared", "wanted"),
    [
        # The newest key is the last complete period in the calendar's own zone.
        ("2024-06-15T14:00", {"grain": "day", "start": "2024-06-13"}, "2024-06-13..2024-06-14"),
        ("2024-06-15T00:00", {"grain": "day", "start": "2024-06-13"}, "2024-06-13..2024-06-14"),
        ("2024-06-14T23:59", {"grain": "day", "start": "2024-06-13"}, "2024-06-13"),
        (
            "2024-06-15T03:59",
            {"grain": "day", "start": "2024-06-12", "zone": "America/New_York"},
            "2024-06-12..2024-06-13",
        ),
        (
            "2024-06-15T04:00",
            {"grain": "day", "start": "2024-06-12", "zone": "America/New_York"},
            "2024-06-12..2024-06-14",
        ),
        (
            "2024-06-15T14:30",
            {"grain": "hour", "start": "2024-06-15T10"},
            "2024-06-15T10..2024-06-15T13",
        ),
        ("2024-06-15T14:30", {"grain": "week", "start": "2024-W20"}, "2024-W20..2024-W23"),
        ("2024-06-15T14:30", {"grain": "month", "start": "2024-01-01"}, "2024-01-01..2024-05-01"),
        ("2024-06-15T14:30", {"grain": "quarter", "start": "2023-10-01"}, "2023-10-01..2024-01-01"),
        ("2024-06-15T14:30", {"grain": "year", "start": "2020-01-01"}, "2020-01-01..2023-01-01"),
        (
            "2024-06-15T14:30",
            {"cron": "30 * * * *", "start": "2024-06-15T10:30"},
            "2024-06-15T10:30..2024-06-15T13:30",
        ),
        (
            "2024-06-15T14:29",
            {"cron": "30 * * * *", "start": "2024-06-15T10:30"},
            "2024-06-15T10:30..2024-06-15T12:30",
        ),
        (
            "2024-06-15T14:30",
            {"every": "8m", "start": "2024-06-15T14:00"},
            "2024-06-15T14:00..2024-06-15T14:16",
        ),
        # data_lag counts keys back from the newest complete one; an earlier end is kept.
        (
            "2024-06-15T14:00",
            {"grain": "day", "start": "2024-06-10", "data_lag": 2},
            "2024-06-10..2024-06-12",
        ),
        (
            "2024-06-15T14:00",
            {"grain": "day", "start": "2024-06-10", "end": "2024-06-11", "data_lag": 1},
            "2024-06-10..2024-06-11",
        ),
        (
            "2024-06-15T14:00",
            {"grain": "day", "start": "2024-06-10", "end": "2024-06-13", "data_lag": 3},
            "2024-06-10..2024-06-11",
        ),
        (
            "2024-06-15T14:00",
            {"grain": "day", "start": "2024-06-10", "end": "2030-01-01"},
            "2024-06-10..2024-06-14",
        ),
        # Possibly none, which is no error.
        ("2024-06-15T14:00", {"grain": "day", "start": "2024-06-15"}, None),
        ("2024-06-15T14:00", {"grain": "day", "start": "2030-01-01"}, None),
        ("2024-06-15T14:00", {"grain": "day", "start": "2024-06-14", "data_lag": 1}, None),
        ("2024-06-15T14:00", {"every": "8m", "start": "2030-01-01T00:00"}, None),
        ("2024-06-15T14:00", {"cron": "0 0 1 1 *", "start": "2030-01-01T00:00"}, None),
    ],
)
def test_keys_exist_from_the_start_to_the_last_complete_one(
    now: str, declared: dict[str, Any], wanted: str | None
) -> None:
    found = calendar(at(now), **declared)
    assert render(found, found.existing) == ((wanted,) if wanted else ())
    assert found.bounded
    assert found.clip(found.existing) == found.existing


def test_without_a_start_a_calendar_is_unbounded_below() -> None:
    found = calendar(at("2024-06-15T14:00"), grain="day")
    assert not found.bounded
    early = parse(found, ("1971-01-01",))
    assert found.clip(early) == early
    assert not product(day={"grain": "day"}, region={"keys": ("eu",)}).bounded


def test_a_calendar_without_keys_says_so() -> None:
    found = calendar(at("2024-06-15T14:00"), grain="day", start="2030-01-01")
    with pytest.raises(UsageError) as refused:
        parse(found, ("2030-01-01",))
    assert refused.value.hint == "No key of this calendar exists yet."


def test_a_day_left_out_is_no_key() -> None:
    found = calendar(at("2012-01-02T00:00"), grain="day", zone="Pacific/Apia", start="2011-12-28")
    assert labels(found, found.existing) == {
        "2011-12-28",
        "2011-12-29",
        "2011-12-31",
        "2012-01-01",
    }


def test_runtime_keys_hold_present_and_future_ones() -> None:
    found = calendar(keys="runtime")
    assert render(found, found.existing) == ("*",)
    assert not found.is_whole


def test_a_product_has_the_keys_of_its_dimensions() -> None:
    found = product(
        at("2024-06-15T14:00"),
        region={"keys": ("eu", "us")},
        day={"grain": "day", "start": "2024-06-13"},
    )
    assert labels(found, found.existing) == {
        f"region={region}/day=2024-06-{day}" for region in ("eu", "us") for day in (13, 14)
    }


@pytest.mark.parametrize(
    ("declared", "error", "says"),
    [
        ({"grain": "day", "start": "2024-06-15T14"}, KeyFormatError, "is not a key"),
        (
            {"grain": "day", "start": "2024-06-15", "end": "2024-W24"},
            KeyFormatError,
            "is not a key",
        ),
        ({"grain": "day", "start": "2024-06-15", "end": "2024-06-14"}, DeclarationError, "before"),
        ({"grain": "month", "start": "2024-06-15"}, KeyFormatError, "not the first day"),
        ({"grain": "day", "zone": "Mars/Phobos"}, ZoneError, "unknown time zone"),
        ({"cron": "30 * * * *", "start": "2024-06-15T14:00"}, UsageError, "does not exist"),
        ({"every": "8m"}, DeclarationError, "needs a start"),
        ({"every": "often", "start": "2024-06-15"}, UsageError, "cannot read the length"),
        ({"keys": ("eu", "*")}, DeclarationError, "stands for every key"),
    ],
)
def test_a_declaration_that_is_no_calendar_is_refused_by_name(
    declared: dict[str, Any], error: type[UsageError], says: str
) -> None:
    with pytest.raises(error, match=says) as refused:
        calendar(**declared)
    assert "dataset n" in str(refused.value)
    assert refused.value.hint


def test_a_bad_cron_expression_is_no_declaration() -> None:
    with pytest.raises(CronError, match="bad minute"):
        CalendarDeclaration(cron="61 * * * *")


def test_a_product_has_one_time_dimension_at_most() -> None:
    with pytest.raises(DeclarationError, match="both time dimensions"):
        product(day={"grain": "day"}, hour={"grain": "hour"})
