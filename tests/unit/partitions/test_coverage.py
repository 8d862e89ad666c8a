"""Coverage: one run key makes whole partitions, or parts that no overwrite may replace."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest

from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.coverage import covers
from lineage_backfill.partitions.mapping import build
from lineage_backfill.partitions.text import static_axis
from tests.unit.partitions.support import calendar, labels, singles
from tests.unit.partitions.support import product as boxed

SPAN: dict[str, Any] = {"start": "2024-03-01", "end": "2024-04-30"}
REGIONS: dict[str, Any] = {"keys": ("eu", "us")}
RUNTIME = static_axis("region", ("eu", "us"), runtime=True)
CALENDARS = {
    "hour": calendar(grain="hour", start="2024-03-09T00", end="2024-03-11T23"),
    "hour of Kolkata": calendar(
        grain="hour", zone="Asia/Kolkata", start="2024-03-09T00", end="2024-03-11T23"
    ),
    "day": calendar(grain="day", **SPAN),
    "day of New York": calendar(grain="day", zone="America/New_York", **SPAN),
    "week": calendar(grain="week", start="2024-W08", end="2024-W18"),
    "month": calendar(grain="month", start="2024-03-01", end="2024-05-01"),
    "noon": calendar(cron="0 12 * * *", start="2024-03-01T12:00", end="2024-04-20T12:00"),
    "whole": calendar(grain="none"),
    "regions": calendar(**REGIONS),
    "other regions": calendar(keys=("apac", "eu", "us")),
    "runtime": Calendar(statics=(RUNTIME,)),
    "day x region": boxed(day={"grain": "day", **SPAN}, region=REGIONS),
    "day x store": boxed(day={"grain": "day", **SPAN}, store=REGIONS),
    "hour x region": boxed(
        hour={"grain": "hour", "start": "2024-03-09T00", "end": "2024-03-11T23"}, region=REGIONS
    ),
}
CALENDARS["day x runtime"] = replace(CALENDARS["day x region"], statics=(RUNTIME,))


def _makes_whole(run: Calendar, output: Calendar) -> bool:
    """The definition: no partition is made by two run keys; `*` stands for all of them."""
    written = build(output, run)
    keys = [
        key
        for key in singles(run.existing)
        if not any("*" in label for label in labels(run, key)) or run.is_whole
    ]
    made = [written.required_unclipped(key) for key in keys]
    return not any(one & other for one, other in combinations(made, 2))


@pytest.mark.parametrize(("run", "output"), list(product(CALENDARS, CALENDARS)))
def test_covers_where_no_partition_is_made_by_two_run_keys(run: str, output: str) -> None:
    one, other = CALENDARS[run], CALENDARS[output]
    assert covers(one, other) == _makes_whole(one, other)


def test_keys_that_an_output_of_runtime_keys_does_not_know_share_its_star() -> None:
    # Both would write `*`: each would clear what the other wrote.
    assert not covers(CALENDARS["regions"], calendar(keys="runtime"))


def test_bounds_play_no_part() -> None:
    late = calendar(grain="hour", start="2024-08-01T00", end="2024-08-01T05")
    assert covers(CALENDARS["day"], late)
    assert not covers(late, CALENDARS["day"])
