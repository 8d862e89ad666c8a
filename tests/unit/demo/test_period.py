"""The period decides which partitions exist, and the project file must say so."""

from __future__ import annotations

import re
import tomllib
from datetime import date

import pytest

from examples.demo.folder import EXAMPLE as NYC
from examples.demo.period import MARCH, YEAR, Period, set_period

EXAMPLE = (NYC / "lineage-backfill.toml").read_text()


@pytest.mark.parametrize(
    ("period", "hours", "weeks", "months"),
    [
        # New York is 5 hours behind UTC in winter and 4 in summer.
        (
            MARCH,
            ("2013-03-01T05", "2013-04-01T03"),
            ("2013-W10", "2013-W13"),
            ("2013-03-01", "2013-03-01"),
        ),
        # The 1st of January 2013 is a Tuesday, and so is the 31st of December.
        (
            YEAR,
            ("2013-01-01T05", "2014-01-01T04"),
            ("2013-W02", "2013-W52"),
            ("2013-01-01", "2013-12-01"),
        ),
    ],
)
def test_only_whole_weeks_and_the_days_of_new_york_exist(
    period: Period, hours: tuple[str, str], weeks: tuple[str, str], months: tuple[str, str]
) -> None:
    assert period.hours == hours
    assert period.weeks == weeks
    assert period.months == months


def test_a_period_that_begins_on_a_monday_and_ends_on_a_sunday_loses_no_week() -> None:
    assert Period(first=date(2013, 3, 4), last=date(2013, 3, 10)).weeks == ("2013-W10", "2013-W10")


def test_the_project_file_is_about_march() -> None:
    assert set_period(EXAMPLE, MARCH) == EXAMPLE


def test_every_bound_of_the_project_file_moves_with_the_period() -> None:
    march, year = EXAMPLE, set_period(EXAMPLE, YEAR)
    bounds = [
        set(re.findall(r'^(?:start|end) = "\S+"', text, re.MULTILINE)) for text in (march, year)
    ]
    assert bounds == [set(MARCH.settings), set(YEAR.settings)]
    tables = {table["name"]: table for table in tomllib.loads(year)["dataset"]}
    assert tables["flights_hourly"]["end"] == "2014-01-01T04"
    assert tables["rolling_week"]["start"] == "2013-01-07"
    assert tables["flights_monthly"]["end"] == "2013-12-01"
    assert "start" not in tables["carriers"]
