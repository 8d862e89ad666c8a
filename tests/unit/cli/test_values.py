"""Times are read as people write them: with an offset, in the zone shown, or as a length."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from lineage_backfill.cli.values import read_duration, read_moment, read_now
from lineage_backfill.errors import UsageError

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this machine be in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("7d", "2026-11-18T12:00"),
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00"),
        ("2026-11-20T10:00+05:30", "2026-11-20T04:30"),
        ("2026-11-20", "2026-11-19T23:00"),
        ("2026-06-20", "2026-06-19T22:00"),
        ("2026-11-20 08:30", "2026-11-20T07:30"),
    ],
)
def test_a_time_without_an_offset_is_in_the_zone_in_which_times_are_shown(
    text: str, read: str
) -> None:
    assert read_moment(text, NOW) == datetime.fromisoformat(f"{read}+00:00")


@pytest.mark.parametrize(
    "text",
    [
        *("1000000d", "99999999999h", "0001-01-01", "9999-12-31"),
        *("0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-12:00"),
    ],
)
def test_a_time_that_no_calendar_has_is_refused(text: str) -> None:
    for sign in (-1, 1):
        with pytest.raises(UsageError, match=r"is not a time|is out of range"):
            read_moment(text, NOW, sign=sign)
    for read in (read_now, read_duration):
        with pytest.raises(UsageError):
            read(text)


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("2026-10-25T02:30", "2026-10-25T02:30+02:00 or 2026-10-25T02:30+01:00"),
        ("2026-03-29T02:30", "2026-03-29T01:30+01:00 or 2026-03-29T03:30+02:00"),
    ],
)
def test_a_time_at_which_the_clocks_change_is_not_guessed(text: str, readings: str) -> None:
    with pytest.raises(UsageError, match="clocks change") as refused:
        read_moment(text, NOW)
    assert refused.value.hint == f"Write it as {readings}."


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "20"])
def test_what_is_not_a_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time") as refused:
        read_moment(text, NOW)
    written = "2026-11-18, 2026-11-18T12:00:00Z, or as a length: 7d or 12h"
    assert refused.value.hint == f"Write it as {written}."


def test_the_time_of_a_plan_has_an_offset() -> None:
    with pytest.raises(UsageError, match="has no UTC offset") as refused:
        read_now("2026-11-20")  # the plan is the same everywhere
    assert refused.value.hint == "Write it like 2026-11-20T00:00Z."
