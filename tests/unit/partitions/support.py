"""What the tests of partitions share: zones, moments where clocks jump, calendars as declared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import settings

from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.text import expand, parse_partitions
from lineage_backfill.partitions.text import parse as parse_keys
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
    DimensionDeclaration,
)

NOW = datetime(2024, 8, 20, 12, 30, tzinfo=UTC)
GRAINS = ("hour", "day", "week", "month", "quarter", "year")
#: Each zone with an instant close to a jump of its clocks.
JUMPS = (
    ("UTC", "2024-03-10T07:00"),
    ("America/New_York", "2024-03-10T07:00"),  # 23 hours
    ("America/New_York", "2024-11-03T06:00"),  # 25 hours
    ("Asia/Kolkata", "2024-03-10T07:00"),  # half an hour off, no jumps
    ("Australia/Lord_Howe", "2024-04-06T15:00"),  # back by half an hour
    ("Australia/Lord_Howe", "2024-10-05T15:30"),  # on by half an hour
    ("America/St_Johns", "2010-03-14T03:31"),  # at one minute past midnight
    ("America/St_Johns", "2010-11-07T02:31"),  # back into the day before
    ("America/Sao_Paulo", "2018-11-04T03:00"),  # no midnight
    ("America/Sao_Paulo", "2018-02-18T02:00"),  # back into the day before
    ("Asia/Beirut", "2024-03-30T22:00"),  # no midnight
    ("Asia/Beirut", "2023-10-28T21:00"),
    ("America/Havana", "2024-03-10T05:00"),  # no midnight
    ("America/Havana", "2024-11-03T05:00"),  # midnight twice
    ("Pacific/Apia", "2011-12-30T10:00"),  # a day left out
    ("Antarctica/Troll", "2024-03-31T01:00"),  # on by two hours
    ("Antarctica/Troll", "2024-10-27T01:00"),  # back by two hours
    ("Africa/Casablanca", "2024-03-10T02:00"),  # Ramadan
    ("Africa/Casablanca", "2024-04-14T02:00"),
    ("America/Caracas", "2007-12-09T07:00"),  # back by half an hour, for good
    ("America/Caracas", "2016-05-01T07:00"),
    ("Europe/Dublin", "2024-03-31T01:00"),  # summer time is the standard
    ("Europe/Dublin", "2024-10-27T01:00"),
)
ZONES = tuple(dict.fromkeys(name for name, _ in JUMPS))


def properties(examples: int) -> settings:
    """The same examples in every run."""
    return settings(max_examples=examples, derandomize=True, database=None)


def instant(text: str) -> int:
    """The seconds since 1970 of a UTC wall clock."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def at(text: str) -> datetime:
    """The moment of a UTC wall clock."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def calendar(now: datetime = NOW, **declared: Any) -> Calendar:
    """The calendar of a dataset declared so, resolved as the planner does it."""
    return _resolve(DatasetDeclaration(name="d", calendar=CalendarDeclaration(**declared)), now)


def product(now: datetime = NOW, **dimensions: dict[str, Any]) -> Calendar:
    """A product calendar: the declaration of each dimension by its name."""
    parts = tuple(
        DimensionDeclaration(name=name, calendar=CalendarDeclaration(**declared))
        for name, declared in dimensions.items()
    )
    return _resolve(DatasetDeclaration(name="d", dimensions=parts), now)


def _resolve(declaration: DatasetDeclaration, now: datetime) -> Calendar:
    snapshot = LineageSnapshot.of(())
    resolver = Resolver(snapshot, Declarations(namespace="n", datasets=(declaration,)), now=now)
    found = resolver.calendar(DatasetRef("n", "d"))
    assert found is not None
    return found


def keys(of: Calendar, text: str) -> PartitionSet:
    """The partitions that `--partitions` text names."""
    return parse_keys(of, parse_partitions(text))


def labels(of: Calendar, partitions: PartitionSet) -> set[str]:
    """The keys of a set, one by one."""
    return {_plain(key.label) for key in expand(of, partitions)}


def singles(partitions: PartitionSet) -> list[PartitionSet]:
    """The sets of one partition each that make up a set."""
    return [
        PartitionSet.of([(type(ordinals).range(ordinal, ordinal), 1 << index)])
        for ordinals, mask in partitions.boxes
        for ordinal in ordinals
        for index in range(mask.bit_length())
        if mask >> index & 1
    ]


def _plain(label: Any) -> str:
    if isinstance(label, str):
        return label
    return "/".join(f"{name}={value}" for name, value in label.items())
