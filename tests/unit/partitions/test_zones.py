"""Local time to instants and back, where clocks jump."""

from __future__ import annotations

from datetime import date, datetime

import pytest

from lineage_backfill.errors import ZoneError
from lineage_backfill.partitions.zones import zone
from tests.unit.partitions.support import JUMPS, ZONES, instant


@pytest.mark.parametrize(
    ("name", "day", "wanted"),
    [
        ("America/New_York", date(2024, 3, 10), "2024-03-10T05:00"),
        ("Asia/Kolkata", date(2024, 3, 10), "2024-03-09T18:30"),
        ("America/Sao_Paulo", date(2018, 11, 4), "2018-11-04T03:00"),  # begins at 01:00
        ("Asia/Beirut", date(2024, 3, 31), "2024-03-30T22:00"),  # begins at 01:00
        ("America/Havana", date(2024, 3, 10), "2024-03-10T05:00"),  # begins at 01:00
        ("America/Havana", date(2024, 11, 3), "2024-11-03T04:00"),  # the first of two midnights
        ("America/St_Johns", date(2010, 11, 7), "2010-11-07T02:30"),  # the first of two
        ("Pacific/Apia", date(2011, 12, 31), "2011-12-30T10:00"),  # after the day left out
        ("Antarctica/Troll", date(2024, 3, 31), "2024-03-31T00:00"),
    ],
)
def test_a_day_begins_at_its_first_instant(name: str, day: date, wanted: str) -> None:
    assert zone(name).midnight(day) == instant(wanted)


@pytest.mark.parametrize(
    ("name", "local", "wanted"),
    [
        ("UTC", "2024-11-03T01:30", ["2024-11-03T01:30"]),
        ("America/New_York", "2024-11-03T01:30", ["2024-11-03T05:30", "2024-11-03T06:30"]),
        ("America/New_York", "2024-03-10T02:30", []),
        ("Australia/Lord_Howe", "2024-04-07T01:45", ["2024-04-06T14:45", "2024-04-06T15:15"]),
        ("Antarctica/Troll", "2024-03-31T01:59", []),
        ("Pacific/Apia", "2011-12-30T12:00", []),
    ],
)
def test_a_wall_clock_reads_so_never_once_or_twice(
    name: str, local: str, wanted: list[str]
) -> None:
    found = zone(name).readings(datetime.fromisoformat(local))
    assert list(found) == [instant(text) for text in wanted]
    assert zone(name).repeats(datetime.fromisoformat(local)) == (len(wanted) == 2)


@pytest.mark.parametrize(("name", "moment"), JUMPS)
def test_jumps_are_found_at_their_second(name: str, moment: str) -> None:
    here = zone(name)
    near = [c for c in here.changes() if abs(c[0] - instant(moment)) < 86_400]
    assert len(near) == (0 if name in ("UTC", "Asia/Kolkata") else 1)
    for when, before, after in near:
        assert when == instant(moment)
        assert (here.offset(when - 1), here.offset(when)) == (before, after)


def test_only_apia_of_these_zones_left_a_day_out() -> None:
    skipped = {name: zone(name).skipped_days() for name in ZONES}
    assert skipped.pop("Pacific/Apia") == (date(2011, 12, 30),)
    assert not any(skipped.values())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("America/New_Yrok", "America/New_York"),
        ("Europe/Berln", "Europe/Berlin"),
        ("", "IANA"),
        ("../../etc/passwd", "IANA"),
        ("Mars/Olympus Mons", "IANA"),
        ("Europe", "Europe"),
        ("a\0b", "IANA"),
        ("\ud800", "IANA"),
    ],
)
def test_an_unknown_zone_is_refused_with_near_ones(name: str, hint: str) -> None:
    with pytest.raises(ZoneError) as refused:
        zone(name)
    assert hint in refused.value.hint
