"""Keys of a calendar and partitions of its table are told from each other, both ways."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.errors import DeclarationError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.keys import NOTHING
from lineage_backfill.partitions.text import expand, parse
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project import reader as declare
from lineage_backfill.project.declarations import DatasetDeclaration, Declarations
from lineage_backfill.project.resolve.physical_columns import (
    indistinct_keys,
    physical_columns,
    physical_values,
    repeated,
)
from lineage_backfill.staleness.table_keys import (
    TableKeys,
    delta_table_of,
    keys_of,
    path_of,
    table_of,
)
from tests.unit.partitions.support import properties
from tests.unit.planning.world import NOW

TABLES = {
    "hours as text": 'grain = "hour"\ncolumns = { h = "%Y-%m-%dT%H" }',
    "hours as their labels, where clocks go back": 'grain = "hour"\nzone = "America/New_York"\n'
    'column = "h"',
    "hours in two columns": 'grain = "hour"\ncolumns = { day = "%Y-%m-%d", hour = "%H" }',
    "days in three columns": 'grain = "day"\nzone = "Europe/Berlin"\n'
    'columns = { y = "%Y", m = "%m", d = "%d" }',
    "days in one": 'grain = "day"\ncolumn = "ds"',
    "weeks by their labels": 'grain = "week"\ncolumn = "week"',
    "weeks in ISO form": 'grain = "week"\ncolumns = { week = "%G-W%V" }',
    "months": 'grain = "month"\ncolumns = { month = "%Y%m" }',
    "a cron": 'cron = "30 * * * *"\ncolumns = { slot = "%Y-%m-%d %H:%M" }',
    "static keys": 'keys = ["eu", "us", "0"]\ncolumn = "region"',
    "a product": """dimensions = [
        { name = "day", grain = "day", column = "ds" },
        { name = "region", keys = ["eu", "us"], column = "r" },
    ]""",
}


def declared(text: str, name: str = "t") -> DatasetDeclaration:
    document: dict[str, Any] = {"dataset": [{"name": name, "location": "/t"}]}
    document["dataset"][0].update(tomllib.loads(text))
    (found,) = declare.datasets(document.get("dataset"), "here", Path("/"))
    return found


def resolver(*datasets: DatasetDeclaration) -> Resolver:
    return Resolver(LineageSnapshot.of([]), Declarations(namespace="w", datasets=datasets), now=NOW)


def reader(text: str, kind: str = "string") -> TableKeys:
    one = declared(text)
    calendar = resolver(one).calendar(DatasetRef("w", "t"))
    assert calendar is not None
    columns = physical_columns(one)
    return TableKeys(calendar=calendar, columns=columns, types=dict.fromkeys(columns, kind))


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES.keys())
@given(data=st.data())
@properties(25)
def test_what_a_key_is_written_as_is_read_back_as_that_key(text: str, data: st.DataObject) -> None:
    made = reader(text)
    calendar = made.calendar
    keys = NOTHING
    if calendar.time is not None:
        time = calendar.time
        ordinals = data.draw(
            st.lists(st.integers(time.floor + 24, time.last), min_size=1, max_size=5)
        )
        labels: list[Any] = [time.grid.label(ordinal) for ordinal in ordinals]
    else:
        labels = data.draw(st.lists(st.sampled_from(calendar.statics[0].keys), min_size=1))
    if calendar.order:
        labels = [
            {"day": [d], "region": [data.draw(st.sampled_from(["eu", "us"]))]} for d in labels
        ]
    keys = parse(calendar, tuple(labels))
    expanded = [physical_values(key, made.columns) for key in expand(calendar, keys)]
    assert made.find(expanded) == (keys, ())


def test_one_text_of_a_repeated_hour_stands_for_both() -> None:
    made = reader('grain = "hour"\nzone = "America/New_York"\ncolumns = { h = "%Y-%m-%dT%H" }')
    found, strange = made.find([{"h": "2023-11-05T01"}])
    labels = [key.label for key in expand(made.calendar, found)]
    assert labels == ["2023-11-05T01-0400", "2023-11-05T01-0500"]
    assert strange == ()


DAY, DAY_COLUMN = '{ name = "day", grain = "day" }', '{ name = "day", grain = "day", column = "d" }'
QUARTERS = 'every = "15m"\nstart = "2023-01-01T00:00"\n'
WEEKDAYS = 'cron = "0 6 * * 1-5"\n'
REGION = '{ name = "region", keys = ["eu", "us"] }'
REGION_COLUMN = '{ name = "region", keys = ["eu", "us"], column = "r" }'
HOURS = 'grain = "hour"\nzone = "America/New_York"\n'


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES.keys())
def test_columns_that_tell_the_keys_apart(text: str) -> None:
    made = reader(text)
    assert indistinct_keys(made.calendar, made.columns) is None


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ('grain = "day"\ncolumns = { m = "%Y-%m" }', ("2024-03-30", "2024-03-31")),
        ('grain = "day"\ncolumns = { d = "%d" }', ("2024-02-29", "2024-03-29")),
        ('grain = "day"\ncolumns = { d = "%m-%d" }', ("2023-03-31", "2024-03-31")),
        ('grain = "day"\ncolumns = { d = "%a" }', ("2024-03-24", "2024-03-31")),
        ('grain = "hour"\ncolumns = { d = "%Y-%m-%d" }', ("2024-04-01T10", "2024-04-01T11")),
        ('grain = "hour"\ncolumns = { h = "%Y-%m-%dT%I" }', ("2024-03-31T11", "2024-03-31T23")),
        ('grain = "week"\ncolumns = { y = "%G" }', ("2024-W12", "2024-W13")),
        ('grain = "week"\ncolumns = { y = "%Y", w = "%V" }', ("2018-W01", "2019-W01")),
        (
            'grain = "day"\nstart = "2023-01-01"\ncolumns = { d = "%G-%m-%d" }',
            ("2025-12-29", "2026-12-29"),
        ),
        (
            'every = "20h"\nstart = "2024-01-01T00:00"\ncolumns = { d = "%F" }',
            ("2024-03-26T00:00", "2024-03-26T20:00"),
        ),
        ('grain = "month"\ncolumns = { m = "%b" }', ("2023-03-01", "2024-03-01")),
        (
            'every = "15m"\nstart = "2023-01-01T00:00"\ncolumns = { h = "%FT%H" }',
            ("2024-04-01T11:30", "2024-04-01T11:45"),
        ),
        (f'{WEEKDAYS}columns = {{ w = "%G-W%V" }}', ("2024-03-28T06:00", "2024-03-29T06:00")),
        (f"dimensions = [{DAY_COLUMN}, {REGION}]", ("region=eu", "region=us")),
        (f"dimensions = [{DAY}, {REGION_COLUMN}]", ("2024-03-30", "2024-03-31")),
    ],
)
def test_columns_that_make_one_partition_of_two_keys(text: str, pair: tuple[str, str]) -> None:
    made = reader(text)
    assert indistinct_keys(made.calendar, made.columns) == pair


def test_an_hour_that_the_clock_shows_twice_is_one_partition_of_local_columns() -> None:
    local = reader(HOURS + 'columns = { h = "%Y-%m-%dT%H" }')
    assert indistinct_keys(local.calendar, local.columns) is None
    for label in ("2023-11-05T01-0400", "2023-11-05T01-0500"):
        found = repeated(local.calendar, local.columns, parse(local.calendar, (label,)))
        assert set(found or ()) == {"2023-11-05T01-0400", "2023-11-05T01-0500"}
    others = parse(local.calendar, ("2023-11-04T00..2023-11-05T00", "2023-11-05T02..2024-03-20T00"))
    assert repeated(local.calendar, local.columns, others) is None
    itself = reader(HOURS + 'column = "h"')
    assert repeated(itself.calendar, itself.columns, itself.calendar.existing) is None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("days in one", {"ds": None}),
        ("days in one", {"ds": "2024-13-01"}),
        ("days in one", {"ds": "2024-04-02"}),  # not begun at noon of 2024-04-01
        ("days in one", {"ds": "someday"}),
        ("days in three columns", {"y": "2024", "m": "2", "d": "x"}),
        ("hours in two columns", {"day": "2024-02-30", "hour": "00"}),
        ("hours as text", {"h": "2024-01-01T5"}),  # read as 05, and not written so
        ("a cron", {"slot": "2024-01-01 10:31"}),
        ("static keys", {"region": "EU"}),
        ("static keys", {"region": None}),
        ("a product", {"ds": "2024-01-01", "r": "mars"}),
    ],
)
def test_partitions_that_are_no_key_are_named(name: str, values: dict[str, str | None]) -> None:
    assert reader(TABLES[name]).find([values]) == (NOTHING, (path_of(values),))


def test_numbers_are_compared_as_numbers() -> None:
    made = reader(TABLES["days in three columns"], "integer")
    found, _ = made.find([{"y": "2024", "m": "3", "d": "1"}])
    assert [key.label for key in expand(made.calendar, found)] == ["2024-03-01"]
    assert reader(TABLES["static keys"], "integer").find([{"region": "0"}])[0]


def test_keys_before_the_first_one_do_not_exist() -> None:
    made = reader('grain = "day"\ncolumn = "ds"\nstart = "2024-01-01"')
    found, strange = made.find([{"ds": "2023-12-31"}, {"ds": "2024-01-01"}])
    assert [key.label for key in expand(made.calendar, found)] == ["2024-01-01"]
    assert strange == ("ds=2023-12-31",)


def test_a_runtime_dimension_takes_what_it_does_not_know_as_any() -> None:
    text = """dimensions = [
        { name = "day", grain = "day", column = "ds" },
        { name = "customer", keys = "runtime", column = "c" },
    ]"""
    one = declared(text)
    keys, _, _ = keys_of(
        resolver(one),
        DatasetRef("w", "t"),
        [{"ds": "2024-01-01", "c": "acme"}],
        {"ds": "date", "c": "string"},
    )
    assert keys == ({"day": ["2024-01-01"], "customer": ["*"]},)


def test_columns_are_matched_in_any_case_and_must_be_those_of_the_table() -> None:
    one, ref = declared(TABLES["days in one"]), DatasetRef("w", "t")
    partitions = [{"DS": "2024-01-01"}, {"DS": "2024-01-02"}]
    assert keys_of(resolver(one), ref, partitions, {"DS": "date"}) == (
        ("2024-01-01..2024-01-02",),
        (),
        True,
    )
    with pytest.raises(DeclarationError, match="partitioned by day, but ds are declared"):
        keys_of(resolver(one), ref, [], {"day": "date"})
    whole = declared('grain = "none"')
    assert keys_of(resolver(whole), ref, [{}], {}) == (("*",), (), True)
    assert keys_of(resolver(whole), ref, [], {}) == ((), (), True)


def test_formats_that_do_not_tell_the_time_are_refused() -> None:
    for columns in ('columns = { d = "%A" }', 'columns = { d = "day" }'):
        with pytest.raises(DeclarationError, match="cannot be read back"):
            reader(f'grain = "day"\n{columns}').find([{"d": "day"}])


def test_only_delta_tables_with_a_place_are_asked() -> None:
    ref = DatasetRef("w", "t")
    with pytest.raises(DeclarationError, match="no location is declared"):
        table_of(resolver(), ref)
    parquet = declared('grain = "day"\ncolumn = "ds"\nformat = "parquet"')
    assert table_of(resolver(parquet), ref).format == "parquet"
    with pytest.raises(DeclarationError, match="keeps no log"):
        delta_table_of(resolver(parquet), ref)
