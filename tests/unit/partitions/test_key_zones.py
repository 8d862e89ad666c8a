"""Products whose keys have zones of their own: existence, mappings both ways, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from lineage_backfill.errors import MissingKeyError, UsageError
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.coverage import covers
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.mapping import MappingSpec, build
from lineage_backfill.partitions.schedule import newest_key
from lineage_backfill.partitions.text import Key, expand, parse, render
from tests.unit.partitions.support import calendar, product

NOW = datetime(2024, 3, 14, 1, 30, tzinfo=UTC)  # the 13th in New York and Los Angeles
ZONES = {"eu": "Europe/Berlin", "jp": "Asia/Tokyo", "us": "America/New_York"}
BY = (("by", "region"), *ZONES.items())


def zoned(grain: str = "day", zones: Any = BY, **more: Any) -> Calendar:
    """A product of days and regions, each region in its zone."""
    keys = tuple(key for key, _ in zones if key != "by")
    time = {"grain": grain, "start": "2024-03-07", "zone": zones, **more}
    return product(NOW, day=time, region={"keys": keys})


def one(of: Calendar, day: str, region: str) -> PartitionSet:
    return parse(of, ({"day": day, "region": region},))


def shown(of: Calendar, keys: PartitionSet) -> list[Any]:
    return list(render(of, keys))


def test_each_key_exists_when_its_period_is_over_in_its_zone() -> None:
    days = zoned()
    assert shown(days, days.existing) == [
        {"day": ["2024-03-07..2024-03-12"], "region": ["us"]},
        {"day": ["2024-03-07..2024-03-13"], "region": ["eu", "jp"]},
    ]
    assert shown(days, newest_key(days)) == [
        {"day": ["2024-03-12"], "region": ["us"]},
        {"day": ["2024-03-13"], "region": ["eu", "jp"]},
    ]
    with pytest.raises(MissingKeyError, match="begun in its zone"):
        one(days, "2024-03-14", "us")
    assert one(days, "2024-03-14", "eu")


def test_a_key_has_the_interval_of_its_zone() -> None:
    days = zoned()
    starts = {key.statics["region"]: key.start for key in expand(days, days.existing)}
    assert starts == {
        "eu": datetime(2024, 3, 12, 23, tzinfo=UTC),
        "jp": datetime(2024, 3, 12, 15, tzinfo=UTC),
        "us": datetime(2024, 3, 12, 4, tzinfo=UTC),
    }


def meets(reads: Key, begin: Key, end: Key) -> bool:
    assert reads.start
    assert reads.end
    assert begin.start
    assert end.end
    return reads.start < end.end and begin.start < reads.end


@pytest.mark.parametrize("seed", range(20))
def test_mappings_between_zones_are_those_of_the_intervals_in_both_directions(seed: int) -> None:
    random = Random(seed)
    swapped = (("by", "region"), *zip(ZONES, reversed(ZONES.values()), strict=True))
    others = (
        calendar(NOW, grain="hour", zone="UTC", start="2024-03-09T00"),
        calendar(NOW, grain="day", zone="America/New_York", start="2024-03-08"),
        zoned(),
        zoned(zones=swapped),
        zoned(grain="week", start="2024-W10"),
        product(NOW, day={"grain": "day", "start": "2024-03-08"}, region={"keys": ("eu", "us")}),
    )
    here = zoned(end="2024-03-12")
    upstream, run = random.choice([(here, one) for one in others] + [(one, here) for one in others])
    before = random.randint(0, 2)
    mapping = build(upstream, run, MappingSpec(kind="window", before=before))
    expected: dict[str, set[str]] = {}
    keys = list(expand(run, run.existing))
    ends = list(expand(upstream, upstream.existing))
    for key in keys:
        earlier = _earlier(run, key, before)
        expected[str(key.label)] = {
            str(two.label)
            for two in ends
            if meets(two, earlier, key)
            and (not two.statics or not key.statics or two.statics == key.statics)
        }
    for single in run.existing.singles():
        (key,) = expand(run, single)
        found = {str(two.label) for two in expand(upstream, mapping.required(single))}
        assert found == expected[str(key.label)], key.label
    for single in upstream.existing.singles():
        (two,) = expand(upstream, single)
        found = {str(key.label) for key in expand(run, mapping.affected(single))}
        assert found == {label for label, needs in expected.items() if str(two.label) in needs}


def _earlier(run: Calendar, key: Key, count: int) -> Key:
    (found,) = (
        each
        for each in expand(run, run.existing.map_time(lambda held: held.dilate(count, 0)))
        if each.statics == key.statics and _place(run, each) == _place(run, key) - count
    )
    return found


def _place(run: Calendar, key: Key) -> int:
    assert run.time is not None
    assert key.time_label is not None
    return run.time.grid.find(key.time_label)


def test_a_run_covers_what_lies_within_its_period_in_every_zone() -> None:
    plain = product(NOW, day={"grain": "day"}, region={"keys": tuple(ZONES)})
    assert covers(zoned(), zoned())
    assert covers(zoned(grain="month", start="2024-01-01"), zoned())
    assert not covers(zoned(), plain)
    assert not covers(plain, zoned())
    hours = product(NOW, hour={"grain": "hour"}, region={"keys": tuple(ZONES)})
    assert covers(zoned(), hours)


@pytest.mark.parametrize(
    ("zones", "fault"),
    [
        ((("by", "store"), *ZONES.items()), "needs `by`"),
        (tuple(ZONES.items()), "needs `by`"),
        ((("by", "region"), ("eu", "Europe/Berlin")), "no zone for jp, us"),
        ((*BY, ("uk", "Europe/London")), "names uk"),
    ],
)
def test_zones_that_do_not_fit_the_keys_are_refused(zones: Any, fault: str) -> None:
    time = {"grain": "day", "zone": zones}
    with pytest.raises(UsageError, match=fault):
        product(NOW, day=time, region={"keys": tuple(ZONES)})


def test_zones_of_keys_need_whole_days_and_a_product() -> None:
    with pytest.raises(UsageError, match="whole days or more, not hour"):
        product(NOW, h={"grain": "hour", "zone": BY}, region={"keys": tuple(ZONES)})
    with pytest.raises(UsageError, match="needs `dimensions`"):
        calendar(NOW, grain="day", zone=BY)
    with pytest.raises(UsageError, match="left a day out"):
        product(
            NOW,
            d={"grain": "day", "zone": (*BY[:-1], ("us", "Pacific/Apia"))},
            region={"keys": tuple(ZONES)},
        )
    with pytest.raises(UsageError, match="needs `by`"):
        product(NOW, d={"grain": "day", "zone": BY}, region={"keys": "runtime"})
