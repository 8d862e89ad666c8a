"""The jobs of the worked example, on rows small enough to do by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from examples.demo.folder import EXAMPLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAILY = (
    "day date, carrier string, flights bigint, cancelled bigint, late bigint, late_minutes bigint"
)
CLEAN = "hour_utc string, carrier string, flight int, origin string, dest string, distance int, "
CLEAN += "cancelled boolean, late_minutes int"


@pytest.fixture(scope="module")
def jobs() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        from pipeline import jobs

        yield jobs


def asking(*keys: str) -> Any:
    return SimpleNamespace(keys=[SimpleNamespace(key=key) for key in keys])


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def day(number: int) -> date:
    return date(2013, 3, number)


def test_text_becomes_types_and_what_is_not_available_null(spark: SparkSession, jobs: Any) -> None:
    names = [
        "hour_utc",
        "carrier",
        "flight",
        "origin",
        "dest",
        "sched_dep_time",
        "dep_delay",
        "distance",
    ]
    feed = spark.createDataFrame(
        [
            ("2013-03-01T05", "UA", "7", "JFK", "LAX", "900", "-4", "2475"),
            ("2013-03-01T05", "UA", "8", "JFK", "LAX", "905", "NA", "2475"),
        ],
        names,
    )
    assert rows(jobs.ingest_flights(feed), "flight", "dep_delay") == [(7, -4), (8, None)]


def test_a_departure_counts_once_and_is_never_less_than_on_time(
    spark: SparkSession, jobs: Any
) -> None:
    schema = (
        "hour_utc string, carrier string, flight int, origin string, dest string, "
        "sched_dep_time int, dep_delay int, distance int"
    )
    early = ("2013-03-01T05", "UA", 7, "JFK", "LAX", 900, -4, 2475)
    cancelled = ("2013-03-01T05", "UA", 8, "JFK", "LAX", 905, None, 2475)
    flights = spark.createDataFrame([early, early, cancelled], schema)
    found = rows(jobs.clean_flights(flights), "flight", "cancelled", "late_minutes")
    assert found == [(7, False, 0), (8, True, None)]


def test_a_day_of_new_york_begins_at_its_own_midnight_winter_and_summer(
    spark: SparkSession, jobs: Any
) -> None:
    hours = {
        "2013-03-10T04": day(9),  # 23:00 in winter
        "2013-03-10T05": day(10),
        "2013-03-11T03": day(10),  # 23:00 in summer: this day has 23 hours
        "2013-03-11T04": day(11),
    }
    flights = spark.createDataFrame(
        [(hour, "UA", 1, "JFK", "LAX", 100, False, 20, "fair") for hour in hours],
        f"{CLEAN}, conditions string",
    )
    daily = jobs.flights_daily(flights)
    assert rows(daily, "day", "flights", "late") == [
        (day(9), 1, 1),
        (day(10), 2, 2),
        (day(11), 1, 1),
    ]


def test_a_rolling_week_has_seven_days_and_only_those_asked_for_are_returned(
    spark: SparkSession, jobs: Any
) -> None:
    days = spark.createDataFrame([(day(n), "UA", 10**n, 0, 0, 0) for n in range(1, 9)], DAILY)
    found = jobs.rolling_week(days, asking("2013-03-07", "2013-03-08"))
    assert rows(found, "day", "flights") == [(day(7), 11_111_110), (day(8), 111_111_100)]


def test_a_carrier_that_does_not_fly_on_a_day_keeps_its_week_and_its_total(
    spark: SparkSession, jobs: Any
) -> None:
    days = spark.createDataFrame([(day(1), "HA", 1, 0, 0, 0), (day(2), "UA", 5, 1, 0, 0)], DAILY)
    week = jobs.rolling_week(days, asking("2013-03-02"))
    assert rows(week, "carrier", "flights") == [("HA", 1), ("UA", 5)]
    first = jobs.running_total(days.where("day = '2013-03-01'"), None, asking("2013-W10"))
    second = jobs.running_total(days.where("day = '2013-03-02'"), first, asking("2013-W11"))
    expected = [("2013-W11", "HA", 1), ("2013-W11", "UA", 5)]
    assert rows(second, "week", "carrier", "flights") == expected


def test_weeks_are_labelled_as_iso_says(spark: SparkSession, jobs: Any) -> None:
    days = spark.createDataFrame(
        [
            (date(2012, 12, 31), "UA", 1, 0, 0, 0),
            (date(2013, 1, 6), "UA", 1, 0, 0, 0),
            (date(2013, 1, 7), "UA", 1, 0, 0, 0),
        ],
        DAILY,
    )
    assert rows(jobs.flights_weekly(days), "week", "flights") == [("2013-W01", 2), ("2013-W02", 1)]
    months = [(date(2012, 12, 1), 1), (date(2013, 1, 1), 2)]
    assert rows(jobs.flights_monthly(days), "month", "flights") == months


def test_the_share_of_nothing_is_unknown(spark: SparkSession, jobs: Any) -> None:
    flights = spark.createDataFrame(
        [
            ("2013-03-01T05", "UA", 1, "JFK", "LAX", 100, False, 20),
            ("2013-03-01T05", "UA", 2, "JFK", "SFO", 100, False, 0),
            ("2013-03-01T05", "UA", 3, "JFK", "SFO", 100, False, 14),
            ("2013-03-01T05", "YV", 4, "LGA", "IAD", 100, True, None),
        ],
        CLEAN,
    )
    airlines = spark.createDataFrame([("UA", "United")], "carrier string, name string")
    found = rows(jobs.carriers(flights, airlines), "carrier", "name", "destinations", "late_share")
    assert found == [("UA", "United", 2, Decimal("0.3333")), ("YV", None, 1, None)]


def test_weather_is_looked_up_at_the_airport_and_may_be_missing(
    spark: SparkSession, jobs: Any
) -> None:
    flights = spark.createDataFrame(
        [
            ("2013-03-08T12", "UA", 1, "JFK", "LAX", 100, False, 0),
            ("2013-03-08T12", "UA", 2, "LGA", "ORD", 100, False, 0),
        ],
        CLEAN,
    )
    weather = spark.createDataFrame(
        [
            ("2013-03-08T12", "JFK", "30.92", "0.18", "1.5"),
            ("2013-03-08T12", "LGA", "NA", "0", "9"),
        ],
        ["hour_utc", "origin", "temp", "precip", "visib"],
    )
    clean = jobs.clean_weather(jobs.ingest_weather(weather))
    joined = jobs.join_weather(flights, clean)
    assert rows(joined, "flight", "conditions") == [(1, "poor"), (2, None)]
