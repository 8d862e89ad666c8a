"""Spans of values in files of a table are the keys that have rows there, at most."""

from __future__ import annotations

import pytest

from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.text import as_text, render
from lineage_backfill.staleness.table_keys import keys_of, reader_of
from lineage_backfill.staleness.value_keys import ValueKeys
from tests.unit.staleness.test_table_keys import declared, resolver

TABLE = DatasetRef("w", "t")
HOURS = 'grain = "hour"\nzone = "America/New_York"\ntime_column = "ts"\nstart = "2023-11-05T00"'
DAYS = 'grain = "day"\ntime_column = "ts"'
REGIONS = 'keys = ["eu", "jp", "us"]\nkey_column = "ts"'
NUMBERS = 'keys = ["2", "10", "-1"]\nkey_column = "ts"'


def reader(text: str, kind: str) -> ValueKeys:
    found = reader_of(resolver(declared(text)), TABLE, {"first": kind, "last": kind})
    assert isinstance(found, ValueKeys)
    return found


@pytest.mark.parametrize(
    ("text", "kind", "first", "last", "found", "held"),
    [
        # In UTC: from 01:59:59.9 EDT to 01:00 EST.
        (HOURS, "timestamp", "2023-11-05T05:59:59.9+00:00", "2023-11-05T06:00:00.001+00:00",
         "2023-11-05T01-0400..2023-11-05T01-0500", "2023-11-05T01-0400..2023-11-05T01-0500"),
        (HOURS, "timestamp", "2023-11-05T08:00:00+00:00", "2023-11-05T11:00:00+00:00",
         "2023-11-05T03..2023-11-05T05", "2023-11-05T03 2023-11-05T05"),
        # The clock shows 01:30 twice: it may be either.
        (HOURS, "timestamp_ntz", "2023-11-05T01:30:00", "2023-11-05T01:30:00.001",
         "2023-11-05T01-0400..2023-11-05T01-0500", "2023-11-05T01-0400..2023-11-05T01-0500"),
        # Before the first key, and after the newest.
        (HOURS, "timestamp", "0001-01-01T00:00:00+00:00", "2023-11-05T04:30:00+00:00",
         "2023-11-05T00", "2023-11-05T00"),
        (DAYS, "date", "9999-12-31T00:00:00", None, "", ""),
        (DAYS, "date", "2024-01-01T00:00:00", "2024-01-02T00:00:00.001",
         "2024-01-01..2024-01-02", "2024-01-01..2024-01-02"),
        (REGIONS, "string", "eu", "jp", "eu jp", "eu jp"),
        (REGIONS, "string", "a", "k", "eu jp", ""),
        (REGIONS, "string", None, None, "eu jp us", ""),
        (NUMBERS, "integer", "-1", "3", "2 -1", "-1"),
    ],
)  # fmt: skip
def test_a_span_overlaps_keys_and_holds_rows_of_those_at_its_ends(
    text: str, kind: str, first: str | None, last: str | None, found: str, held: str
) -> None:
    """A file has rows of its least and its greatest value."""
    one = reader(text, kind)
    spans = [{"first": first, "last": last}]

    def shown(keys: object) -> str:
        return " ".join(map(as_text, render(one.calendar, keys)))  # type: ignore[arg-type]

    assert " ".join(sorted(shown(one.find(spans)[0]).split())) == " ".join(sorted(found.split()))
    assert " ".join(sorted(shown(one.held(spans)).split())) == " ".join(sorted(held.split()))


def test_no_bounds_are_all_keys_or_none_that_can_be_named() -> None:
    """Where keys have no first one, all of them cannot be named."""
    everything = [{"first": None, "last": None}]
    with pytest.raises(DeclarationError, match="no bounds of 'ts'"):
        reader(DAYS, "date").find(everything)
    found = reader(HOURS, "timestamp").find(everything)[0]
    assert "2023-11-05T00" in as_text(render(reader(HOURS, "timestamp").calendar, found)[0])


@pytest.mark.parametrize(("last", "is_exact"), [("eu", True), ("jp", False), ("us", False)])
def test_keys_are_exact_where_a_file_can_have_no_others(last: str, is_exact: bool) -> None:
    """Of two keys in a file one may have changed."""
    parts = [{"first": "eu", "last": last}]
    types = {"first": "string", "last": "string"}
    assert keys_of(resolver(declared(REGIONS)), TABLE, parts, types)[2] is is_exact
