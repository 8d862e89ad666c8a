"""Calendars by list: gaps, both ends, and every mapping against its definition by intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from lineage_backfill.errors import ConfigError, DeclarationError, UsageError
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.lengths import Span
from lineage_backfill.partitions.mapping import MappingSpec, build
from lineage_backfill.partitions.text import render
from lineage_backfill.project.boundaries import rows
from lineage_backfill.project.declarations import CalendarDeclaration
from tests.unit.partitions.support import calendar, keys

NOW = datetime(2024, 8, 20, 12, 30, tzinfo=UTC)
FISCAL = (
    ("P01", "2024-01-29", "2024-02-26"),
    ("P02", "2024-02-26", "2024-03-25"),
    ("P03", "2024-03-25", "2024-04-29"),
)
#: Around Easter: two holidays and two weekends are in no key.
BUSINESS = tuple(
    (f"2024-{day}", f"2024-{day}", f"2024-{after}")
    for day, after in (("03-27", "03-28"), ("03-28", "03-29"), ("04-02", "04-03"))
)


def listed(given: tuple[tuple[str, str, str], ...], zone: str = "UTC", **more: object) -> Calendar:
    return calendar(NOW, boundaries=given, zone=zone, **more)


def labels(of: Calendar, some: PartitionSet | None = None) -> list[object]:
    return list(render(of, of.existing if some is None else some))


def random_list(random: Random) -> tuple[tuple[str, str, str], ...]:
    """A few keys of some hours or days each, most of them with a gap after it."""
    moment, found = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(hours=random.randrange(96)), []
    for number in range(random.randint(1, 7)):
        end = moment + timedelta(hours=random.choice((2, 7, 24, 40, 168)))
        found.append((f"k{number}", f"{moment:%FT%R}", f"{end:%F %R}"))
        moment = end + timedelta(hours=random.choice((0, 0, 3, 24, 60)))
    return tuple(found)


def definition(upstream: Calendar, run: Calendar, key: int, before: int, after: int) -> set[int]:
    """The existing keys of the input that intersect [start of k-before, end of k+after)."""
    assert upstream.time is not None
    assert run.time is not None
    start, end = run.time.grid.start(key - before), run.time.grid.end(key + after)
    grid = upstream.time.grid
    return (
        {one for one in upstream.time.existing if grid.start(one) < end and start < grid.end(one)}
        if start < end
        else set()
    )


@pytest.mark.parametrize("seed", range(150))
def test_mappings_of_lists_are_those_of_their_intervals_in_both_directions(seed: int) -> None:
    random = Random(seed)
    zone = random.choice(("UTC", "Europe/Berlin", "America/New_York"))
    others = (
        listed(random_list(random), zone),
        calendar(NOW, grain="day", zone="UTC", start="2024-02-20", end="2024-04-20"),
        calendar(NOW, grain="hour", zone=zone, start="2024-02-25T00", end="2024-04-10T00"),
    )
    here = listed(random_list(random), zone)
    upstream, run = random.choice([(here, other) for other in others] + [(o, here) for o in others])
    before = random.randint(-2, 3)
    after = random.choice((-before, max(-before, random.randint(0, 2))))
    mapping = build(upstream, run, MappingSpec(kind="window", before=before, after=after))
    assert upstream.time is not None
    assert run.time is not None
    expected = {key: definition(upstream, run, key, before, after) for key in run.time.existing}
    for key, needed in expected.items():
        assert set(mapping.required(PartitionSet.range(key, key)).ordinals) == needed
    for one in upstream.time.existing:
        found = set(mapping.affected(PartitionSet.range(one, one)).ordinals)
        assert found == {key for key, needed in expected.items() if one in needed}
    some = [key for key in expected if random.random() < 0.5]
    together = mapping.required(PartitionSet.of_points((key, 0) for key in some))
    assert set(together.ordinals) == set().union(*(expected[key] for key in some))


def test_keys_exist_from_the_first_row_to_the_newest_that_has_ended() -> None:
    april = datetime(2024, 4, 15, tzinfo=UTC)
    assert labels(calendar(april, boundaries=FISCAL)) == ["P01..P02"]
    assert labels(calendar(april, boundaries=FISCAL, data_lag=1)) == ["P01"]
    assert labels(calendar(april, boundaries=FISCAL, data_lag=-1)) == ["P01..P03"]
    assert labels(calendar(april, boundaries=FISCAL, start="P02")) == ["P02"]
    assert labels(listed(FISCAL)) == ["P01..P03"]
    assert labels(listed(FISCAL, end="P02")) == ["P01..P02"]
    assert labels(calendar(datetime(2024, 1, 30, tzinfo=UTC), boundaries=FISCAL)) == []


def test_a_gap_has_no_running_key() -> None:
    easter = datetime(2024, 3, 31, tzinfo=UTC)
    for lag in (0, -1):
        found = calendar(easter, boundaries=BUSINESS, data_lag=lag)
        assert labels(found) == ["2024-03-27..2024-03-28"]
        assert found.time is not None
        assert not found.time.has_ended


def test_a_window_reaches_over_a_gap_and_a_key_does_not() -> None:
    days = calendar(NOW, grain="day", zone="UTC", start="2024-03-01")
    run = listed(BUSINESS)
    tuesday = keys(run, "2024-04-02")
    assert labels(days, build(days, run).required(tuesday)) == ["2024-04-02"]
    window = build(days, run, MappingSpec(kind="window", before=1))
    assert labels(days, window.required(tuesday)) == ["2024-03-28..2024-04-02"]
    previous = build(days, run, MappingSpec(kind="offset", before=1, after=-1))
    assert labels(days, previous.required(tuesday)) == ["2024-03-28"]


def test_an_interval_begins_in_the_zone_where_clocks_jump() -> None:
    time = listed((("a", "2024-03-31", "2024-04-01"),), "Europe/Berlin").time
    assert time is not None
    assert time.grid.end(0) - time.grid.start(0) == 23 * 3_600


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "line 1: has no column `key`"),
        ("key,begin,end\n", "line 1: has no column `start`"),
        ("key,start,end\n", "fiscal.csv: has no rows"),
        ("key,start,end\na,2024-01-01\n", "line 2: must have 3 values"),
        ("key,start,end\na,,2024-01-01\n", "line 2: lacks a value"),
        ("key,start,end\na,2024-13-01,2024-01-01\n", "line 2: cannot read '2024-13-01'"),
        ("key,start,end\na,2024-01-02,2024-01-02\n", "line 2: a ends before it begins"),
        ("key,start,end\n\na,2024-01-01,2024-01-02\na,2024-01-02,2024-01-03\n", "line 4: the key"),
        ("key,start,end\na,2024-01-01,2024-01-03\nb,2024-01-02,2024-01-04\n", "line 3: b begins"),
        ("key,start,end\na,2024-01-03,2024-01-04\nb,2024-01-01,2024-01-02\n", "line 3: b begins"),
        ("key,start,end\na..b,2024-01-03,2024-01-04\n", "line 2: 'a..b' cannot be a key"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        rows(Path("fiscal.csv"), text.encode())


def test_a_file_may_have_other_columns_and_a_mark() -> None:
    text = "\ufeffyear, key ,start,end\r\n2024,P01,2024-01-29,2024-02-26\r\n"
    assert rows(Path("fiscal.csv"), text.encode()) == [FISCAL[0]]


def test_a_row_in_the_project_file_is_refused_by_its_number() -> None:
    with pytest.raises(UsageError, match="row 2 of `boundaries`: P01 begins before P03 ends"):
        listed((FISCAL[2], FISCAL[0]))
    with pytest.raises(UsageError, match="names the file"):
        calendar(NOW, boundaries="fiscal.csv")
    with pytest.raises(DeclarationError, match="one calendar is enough"):
        CalendarDeclaration(grain="day", boundaries=FISCAL)


def test_lengths_of_time_and_as_of_hold_for_lists() -> None:
    run = listed(BUSINESS)
    days = calendar(NOW, grain="day", zone="UTC", start="2024-03-01", end="2024-04-30")
    hours = build(days, run, MappingSpec(kind="window", before=Span(36, "h")))
    assert labels(days, hours.required(keys(run, "2024-04-02"))) == ["2024-03-31..2024-04-02"]
    assert labels(run, hours.affected(keys(days, "2024-04-01"))) == ["2024-04-02"]
    assert labels(run, hours.affected(keys(days, "2024-04-20"))) == []
    rates = build(run, days, MappingSpec(kind="as_of"))
    assert labels(run, rates.required(keys(days, "2024-04-01"))) == ["2024-03-28"]
    assert labels(days, rates.affected(keys(run, "2024-03-28"))) == ["2024-03-28..2024-04-01"]
    assert labels(run, rates.required(keys(days, "2024-03-01"))) == []
