"""Every mapping in both directions, against its definition over single keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.errors import BackfillError, DeclarationError, KeyFormatError
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.lengths import Span
from lineage_backfill.partitions.mapping import DEFAULT, EdgeMapping, MappingSpec, build
from lineage_backfill.partitions.ordinals import EMPTY
from lineage_backfill.partitions.text import Key, expand, render
from tests.unit.partitions.support import (
    JUMPS,
    at,
    calendar,
    instant,
    keys,
    product,
    properties,
    singles,
)

DAY = 86_400
#: Declarations of a calendar, with how many keys of it a test looks at.
KINDS: tuple[tuple[dict[str, Any], int], ...] = (
    ({"grain": "hour"}, 40),
    ({"grain": "day"}, 7),
    ({"grain": "week"}, 3),
    ({"grain": "month"}, 3),
    ({"grain": "quarter"}, 2),
    ({"grain": "year"}, 2),
    ({"cron": "30 * * * *"}, 30),
    ({"cron": "15 6 * * 1-5"}, 6),
)
REGIONS: dict[str, Any] = {"keys": ("eu", "us", "apac")}


def short(declared: dict[str, Any], zone: str, moment: str, first: int, count: int) -> Calendar:
    """A calendar of a few keys close to the moment, `first` keys before or after it."""
    now = datetime.fromtimestamp(instant(moment) + 400 * DAY, UTC)
    whole = calendar(now, zone=zone, **declared)
    assert whole.time is not None
    grid = whole.time.grid
    begin = grid.at(instant(moment)) + first
    start, end = grid.label(begin), grid.label(begin + count - 1)
    return calendar(now, zone=zone, **declared, start=start, end=end)


@st.composite
def calendars(draw: st.DrawFn, jump: tuple[str, str]) -> Calendar:
    declared, most = draw(st.sampled_from(KINDS))
    zone = draw(st.sampled_from((jump[0], jump[0], "UTC", "America/New_York")))
    count = draw(st.integers(1, most))
    return short(declared, zone, jump[1], draw(st.integers(-most, 2)), count)


@st.composite
def pairs_of_calendars(draw: st.DrawFn) -> tuple[Calendar, Calendar]:
    jump = draw(st.sampled_from(JUMPS))
    return draw(calendars(jump)), draw(calendars(jump))


def hold_to(mapping: EdgeMapping, reads: Callable[[Key, Key], bool]) -> None:
    """Hold a mapping to its definition: whether one run key reads one existing key of the input."""
    upstream, run = mapping.upstream, mapping.run
    theirs = [(one, key) for one in singles(upstream.existing) for key in expand(upstream, one)]
    ours = [(one, key) for one in singles(run.existing) for key in expand(run, one)]
    affected = {one: NOTHING for one, _ in theirs}
    for k, key in ours:
        wanted = NOTHING
        for u, other in theirs:
            if reads(key, other):
                wanted |= u
                affected[u] |= k
        assert mapping.required(k) == wanted, f"{mapping.name}: what {key.label} reads"
    for u, other in theirs:
        assert mapping.affected(u) == affected[u], f"{mapping.name}: who reads {other.label}"
    # Sets are the unions of their keys.
    rng = Random(len(theirs))
    for share in (0.05, 0.2, 0.8):
        some = [u for u, _ in theirs if rng.random() < share]
        assert mapping.affected(_union(some)) == _union(affected[u] for u in some)
    assert mapping.affected(NOTHING) == mapping.required(NOTHING) == NOTHING


def _union(sets: Iterable[PartitionSet]) -> PartitionSet:
    return PartitionSet.of(box for one in sets for box in one.boxes)


def window(run: Calendar, before: int, after: int) -> Callable[[Key, Key], bool]:
    """The definition of overlap, window and offset: by intervals, also past the calendar's ends."""
    assert run.time is not None
    grid = run.time.grid

    def reads(key: Key, other: Key) -> bool:
        assert key.time_label
        assert other.start
        assert other.end
        ordinal = grid.find(key.time_label)
        start, end = grid.start(ordinal - before), grid.start(ordinal + after + 1)
        return other.start.timestamp() < end and start < other.end.timestamp()

    return reads


@properties(60)
@given(pairs_of_calendars())
def test_overlap_reads_what_intersects(pair: tuple[Calendar, Calendar]) -> None:
    upstream, run = pair
    hold_to(build(upstream, run), window(run, 0, 0))
    hold_to(build(upstream, run, MappingSpec(kind="overlap")), window(run, 0, 0))


@properties(60)
@given(pairs_of_calendars(), st.integers(-3, 6), st.integers(-3, 3))
def test_a_window_reaches_before_and_after(
    pair: tuple[Calendar, Calendar], before: int, after: int
) -> None:
    upstream, run = pair
    if before + after < 0:
        before = -after
    spec = MappingSpec(kind="window", before=before, after=after)
    hold_to(build(upstream, run, spec), window(run, before, after))


@properties(40)
@given(pairs_of_calendars(), st.integers(-3, 3))
def test_an_offset_reads_another_period(pair: tuple[Calendar, Calendar], by: int) -> None:
    upstream, run = pair
    spec = MappingSpec(kind="offset", before=-by, after=by)
    hold_to(build(upstream, run, spec), window(run, -by, by))


@properties(60)
@given(pairs_of_calendars(), st.sampled_from(("0d", "1d", "3d", "5h", "90m")), st.booleans())
def test_a_length_of_time_counts_time(
    pair: tuple[Calendar, Calendar], text: str, as_offset: bool
) -> None:
    upstream, run = pair
    length = Span.read(text)
    assert length is not None
    assert run.time is not None
    grid = run.time.grid

    def shifted(instant: int, by: Span) -> int:
        if by.unit in "hm" or not by.count:
            return instant + by.count * {"d": 0, "h": 3_600, "m": 60}[by.unit]
        local = grid.zone.local(instant) + timedelta(days=by.count)
        near = range(instant + by.count * DAY - 8 * 900, instant + by.count * DAY + 40 * 900, 900)
        return next(one for one in near if grid.zone.local(one) >= local)

    def reads(key: Key, other: Key) -> bool:
        assert key.time_label
        assert other.start
        assert other.end
        ordinal = grid.find(key.time_label)
        start = shifted(grid.start(ordinal), -length)
        end = shifted(grid.end(ordinal), -length) if as_offset else grid.end(ordinal)
        end = max(end, start + 1)
        return other.start.timestamp() < end and start < other.end.timestamp()

    kind: Any = "offset" if as_offset else "window"
    spec = MappingSpec(kind=kind, before=length, after=-length if as_offset else 0)
    hold_to(build(upstream, run, spec), reads)


@properties(60)
@given(pairs_of_calendars())
def test_as_of_reads_the_last_key_that_begins_by_then(pair: tuple[Calendar, Calendar]) -> None:
    upstream, run = pair

    def reads(key: Key, other: Key) -> bool:
        assert key.start
        begun = [one.start for one in expand(upstream, upstream.existing) if one.start]
        return other.start == max((one for one in begun if one <= key.start), default=None)

    hold_to(build(upstream, run, MappingSpec(kind="as_of")), reads)


@properties(30)
@given(pairs_of_calendars())
def test_all_reads_everything(pair: tuple[Calendar, Calendar]) -> None:
    upstream, run = pair
    hold_to(build(upstream, run, MappingSpec(kind="all")), lambda key, other: True)


@properties(40)
@given(
    st.sampled_from(JUMPS),
    st.sampled_from(("hour", "day", "week", "month")),
    st.integers(-4, 4),
    st.booleans(),
)
def test_identity_reads_the_same_label(
    jump: tuple[str, str], grain: str, first: int, same_zone: bool
) -> None:
    upstream = short({"grain": grain}, jump[0], jump[1], -4, 8)
    run = short({"grain": grain}, jump[0] if same_zone else "UTC", jump[1], first, 8)
    mapping = build(upstream, run, MappingSpec(kind="identity"))
    hold_to(mapping, lambda key, other: key.label == other.label)


def test_a_label_with_an_offset_is_another_one_than_without() -> None:
    # 01 comes twice in New York and once in Havana, where it bears the offset of the second.
    upstream = short({"grain": "hour"}, "America/New_York", "2024-11-03T06:00", -5, 10)
    run = short({"grain": "hour"}, "America/Havana", "2024-11-03T06:00", -5, 10)
    mapping = build(upstream, run, MappingSpec(kind="identity"))
    hold_to(mapping, lambda key, other: key.label == other.label)
    assert not mapping.affected(keys(upstream, "2024-11-03T01-0500"))


@pytest.mark.parametrize("by", [-1, 3])
def test_slices_of_eight_hours_and_days(by: int) -> None:
    days = short({"grain": "day"}, "America/New_York", "2024-03-10T07:00", -3, 7)
    slices = calendar(
        at("2024-03-12T00:00"), every="8h", start="2024-03-07T02:00", zone="America/New_York"
    )
    for upstream, run in ((days, slices), (slices, days)):
        hold_to(build(upstream, run), window(run, 0, 0))
        spec = MappingSpec(kind="offset", before=-by, after=by)
        hold_to(build(upstream, run, spec), window(run, -by, by))


# --- static, unpartitioned and product calendars -------------------------------------------------

DAYS = calendar(at("2024-06-08T00:00"), grain="day", start="2024-06-01")
MONTHS = calendar(at("2024-09-01T00:00"), grain="month", start="2024-05-01")
WHOLE = calendar(grain="none")
PLACES = calendar(keys=("eu", "us", "apac"))
COUNTRIES = calendar(keys=("de", "fr", "ca"))
SALES = product(at("2024-06-05T00:00"), day={"grain": "day", "start": "2024-06-01"}, region=REGIONS)
HOURLY = product(
    at("2024-06-03T00:00"),
    region={"keys": ("us", "eu", "mars")},
    hour={"grain": "hour", "start": "2024-06-01T20"},
)
SHOPS = product(region=REGIONS, shop={"keys": ("x", "y")})
STOCK = product(
    at("2024-06-04T00:00"),
    shop={"keys": ("x", "y")},
    day={"grain": "day", "start": "2024-06-01"},
    region={"keys": ("eu", "us")},
)


def meets(key: Key, other: Key) -> bool:
    """Whether two keys overlap in time; a side without time meets every other."""
    if key.start is None or other.start is None:
        return True
    assert key.end
    assert other.end
    return key.start < other.end and other.start < key.end


def agree(key: Key, other: Key, *without: str) -> bool:
    """Whether the static dimensions that both keys have are equal, except some."""
    shared = set(key.statics) & set(other.statics) - set(without)
    return all(key.statics[name] == other.statics[name] for name in shared)


TO_REGION = (("eu", ("de", "fr")), ("us", ("ca", "de")), ("apac", ()))
CASES: dict[str, tuple[Calendar, Calendar, MappingSpec, Callable[[Key, Key], bool]]] = {
    "static keys match by name": (PLACES, PLACES, DEFAULT, agree),
    "an unpartitioned side is read whole": (WHOLE, DAYS, DEFAULT, meets),
    "an unpartitioned reader reads all": (DAYS, WHOLE, DEFAULT, meets),
    "one whole reads the other": (WHOLE, WHOLE, DEFAULT, meets),
    "static keys read all of time": (DAYS, PLACES, DEFAULT, meets),
    "time reads all static keys": (PLACES, DAYS, DEFAULT, meets),
    "a map names what it reads": (
        COUNTRIES,
        PLACES,
        MappingSpec(kind="map", table=TO_REGION),
        lambda key, other: other.label in dict(TO_REGION).get(str(key.label), ()),
    ),
    "a map between times names keys and ranges": (
        DAYS,
        MONTHS,
        MappingSpec(kind="map", table=(("2024-06-01", ("2024-06-02..2024-06-03", "2024-06-06")),)),
        lambda key, other: (
            key.label == "2024-06-01" and other.label in ("2024-06-02", "2024-06-03", "2024-06-06")
        ),
    ),
    "a map gives a range of run keys one answer": (
        MONTHS,
        DAYS,
        MappingSpec(kind="map", table=(("2024-06-01..2024-06-03", ("2024-05-01",)),)),
        lambda key, other: str(key.label) <= "2024-06-03" and other.label == "2024-05-01",
    ),
    "a product matches in each dimension": (
        SALES,
        HOURLY,
        DEFAULT,
        lambda key, other: meets(key, other) and agree(key, other),
    ),
    "and the other way round": (
        HOURLY,
        SALES,
        DEFAULT,
        lambda key, other: meets(key, other) and agree(key, other),
    ),
    "a dimension that the reader lacks is read whole": (SALES, DAYS, DEFAULT, meets),
    "a dimension that the input lacks reaches every key": (DAYS, SALES, DEFAULT, meets),
    "three dimensions in another order": (
        STOCK,
        SALES,
        DEFAULT,
        lambda key, other: meets(key, other) and agree(key, other),
    ),
    "a static product by name": (SHOPS, STOCK, DEFAULT, agree),
    "one dimension is read whole": (
        SALES,
        HOURLY,
        MappingSpec(dimensions=(("region", MappingSpec(kind="all")),)),
        meets,
    ),
    "one dimension of equal calendars is read whole": (
        SALES,
        SALES,
        MappingSpec(dimensions=(("region", MappingSpec(kind="all")),)),
        meets,
    ),
    "one dimension has a window": (
        SALES,
        SALES,
        MappingSpec(dimensions=(("day", MappingSpec(kind="window", before=2)),)),
        lambda key, other: agree(key, other) and window(SALES, 2, 0)(key, other),
    ),
    "a window of a product is of its time": (
        SALES,
        HOURLY,
        MappingSpec(kind="window", before=1, after=1),
        lambda key, other: agree(key, other) and window(HOURLY, 1, 1)(key, other),
    ),
    "one dimension has a map": (
        STOCK,
        SALES,
        MappingSpec(
            dimensions=(
                (
                    "region",
                    MappingSpec(kind="map", table=(("apac", ("eu", "us")), ("eu", ()), ("us", ()))),
                ),
            )
        ),
        lambda key, other: meets(key, other) and key.statics["region"] == "apac",
    ),
    "a map of a product is of its one static dimension": (
        STOCK,
        SALES,
        MappingSpec(kind="map", table=(("eu", ("us",)), ("us", ()), ("apac", ()))),
        lambda key, other: (
            meets(key, other) and (key.statics["region"], other.statics["region"]) == ("eu", "us")
        ),
    ),
    "all of a product is all of it": (
        SALES,
        HOURLY,
        MappingSpec(kind="all"),
        lambda key, other: True,
    ),
    "all, but the same region": (
        SALES,
        SALES,
        MappingSpec(kind="all", dimensions=(("region", MappingSpec(kind="identity")),)),
        agree,
    ),
    "identity of a product": (
        SALES,
        SALES,
        MappingSpec(kind="identity"),
        lambda key, other: key.label == other.label,
    ),
    "a function names what a key reads": (
        DAYS,
        MONTHS,
        MappingSpec(kind="python", function=lambda month: [f"{month[:8]}05", "2024-06-07.."]),
        lambda key, other: (
            str(other.label) == f"{str(key.label)[:8]}05" or other.label == "2024-06-07"
        ),
    ),
    "a function of a product": (
        SALES,
        SHOPS,
        MappingSpec(
            kind="python",
            function=lambda key: [{"day": "2024-06-02", "region": [key["region"]]}],
        ),
        lambda key, other: agree(key, other) and other.time_label == "2024-06-02",
    ),
    "a function that names one key alone": (
        DAYS,
        DAYS,
        MappingSpec(kind="python", function=lambda key: "2024-06-02"),
        lambda key, other: other.label == "2024-06-02",
    ),
    "a function that reads nothing": (
        DAYS,
        DAYS,
        MappingSpec(kind="python", function=lambda key: []),
        lambda key, other: False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_keys_along_an_edge(case: str) -> None:
    upstream, run, spec, reads = CASES[case]
    hold_to(build(upstream, run, spec), reads)


def test_plain_static_calendars_pair_whatever_their_columns() -> None:
    assert build(PLACES, calendar(keys=("eu", "mars"))).missing(NOTHING, NOTHING) == [
        "the input does not have the keys mars",
        "the reader does not have the keys apac, us",
    ]
    assert build(PLACES, PLACES).missing(NOTHING, NOTHING) == []


def test_a_rolling_week_makes_the_next_six_days_stale() -> None:
    spec = MappingSpec(kind="window", before=6)
    mapping = build(DAYS, DAYS, spec)
    assert render(DAYS, mapping.affected(keys(DAYS, "2024-06-02"))) == ("2024-06-02..2024-06-07",)
    assert render(DAYS, mapping.required(keys(DAYS, "2024-06-02"))) == ("2024-06-01..2024-06-02",)
    assert len(mapping.required_unclipped(keys(DAYS, "2024-06-02"))) == 7


# --- contradictions ------------------------------------------------------------------------------

REGION_MAP = MappingSpec(kind="map", table=(("eu", ("de",)),))


@pytest.mark.parametrize(
    ("upstream", "run", "spec", "says"),
    [
        (WHOLE, DAYS, MappingSpec(kind="window", before=6), "needs a time dimension on both"),
        (DAYS, WHOLE, MappingSpec(kind="offset", before=1, after=-1), "needs a time dimension"),
        (PLACES, PLACES, MappingSpec(kind="window", before=6), "needs a time dimension on both"),
        (PLACES, DAYS, MappingSpec(kind="identity"), "a dimension that both sides have"),
        (WHOLE, DAYS, MappingSpec(kind="identity"), "a dimension that both sides have"),
        (WHOLE, PLACES, MappingSpec(kind="identity"), "a dimension that both sides have"),
        (DAYS, MONTHS, MappingSpec(kind="identity"), "one grain on both sides, not day and month"),
        (DAYS, DAYS, MappingSpec(kind="window", before=-2, after=1), "is empty"),
        (DAYS, DAYS, MappingSpec(kind="python"), "has no function"),
        (
            SALES,
            SALES,
            MappingSpec(dimensions=(("planet", MappingSpec(kind="all")),)),
            "'planet', which neither side has",
        ),
        (
            SALES,
            SALES,
            MappingSpec(dimensions=(("region", MappingSpec(kind="window", before=1)),)),
            "static keys, which window cannot map",
        ),
        (
            SALES,
            SALES,
            MappingSpec(dimensions=(("day", REGION_MAP),)),
            "a time dimension cannot be mapped by map",
        ),
        (
            DAYS,
            SALES,
            MappingSpec(dimensions=(("region", MappingSpec(kind="identity")),)),
            "only one side has the dimension 'region'",
        ),
        (DAYS, SALES, REGION_MAP, "only one side has the dimension 'region'"),
        (SALES, STOCK, REGION_MAP, "must name its dimension"),
        (SALES, SALES, REGION_MAP, "a key that does not exist: 'de'"),
        (
            SALES,
            SALES,
            MappingSpec(kind="map", table=(("moon", ("eu",)),)),
            "a key that does not exist: 'moon'",
        ),
        (COUNTRIES, PLACES, MappingSpec(kind="map", table=(("moon", ("de",)),)), "'moon'"),
        (COUNTRIES, PLACES, MappingSpec(kind="map", table=(("eu", ("moon",)),)), "'moon'"),
        (DAYS, PLACES, MappingSpec(kind="map", table=(("eu", ("2024-W24",)),)), "a wrong key"),
        (COUNTRIES, PLACES, MappingSpec(kind="map", table=TO_REGION[:2]), "the map lacks apac"),
        (
            SALES,
            SALES,
            MappingSpec(kind="map", table=(("eu", ("us",)),)),
            "the map lacks apac, us: its run would read nothing",
        ),
    ],
)
def test_a_contradiction_is_an_error_that_says_what_to_do(
    upstream: Calendar, run: Calendar, spec: MappingSpec, says: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        build(upstream, run, spec)
    assert says in str(refused.value)
    assert refused.value.hint


def test_the_hint_names_only_dimensions_that_have_a_name() -> None:
    spec = MappingSpec(dimensions=(("planet", MappingSpec(kind="all")),))
    for run, names in ((SALES, "day, region"), (DAYS, "none: their keys are plain")):
        with pytest.raises(DeclarationError) as refused:
            build(DAYS, run, spec)
        assert refused.value.hint == f"The dimensions are {names}."


@pytest.mark.parametrize("given_keys", [["2024-W24"], [5], [None], [{"day": "2024-06-01"}]])
def test_a_function_that_names_no_keys_is_refused(given_keys: list[Any]) -> None:
    spec = MappingSpec(kind="python", function=lambda key: given_keys)
    mapping = build(DAYS, DAYS, spec)
    with pytest.raises(BackfillError) as refused:
        mapping.required(keys(DAYS, "2024-06-02"))
    assert isinstance(refused.value, KeyFormatError)
    assert "<lambda> returned no key of its input for 2024-06-01: " in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("function", [lambda key: None, lambda key: 1 // 0])
def test_a_function_that_fails_is_named_with_its_key(function: Any) -> None:
    mapping = build(DAYS, DAYS, MappingSpec(kind="python", function=function))
    with pytest.raises(DeclarationError, match="failed for the key 2024-06-01") as refused:
        mapping.required(keys(DAYS, "2024-06-02"))
    assert refused.value.hint


def test_all_over_an_unbounded_calendar_is_known() -> None:
    unbounded = calendar(grain="day")
    assert build(unbounded, WHOLE).unbounded is unbounded
    assert build(WHOLE, unbounded).unbounded is unbounded
    assert build(unbounded, DAYS).unbounded is None
    assert build(DAYS, WHOLE).unbounded is None


@pytest.mark.parametrize(
    ("declared", "changed", "late"),
    [
        # 2024-08-19 is the newest complete day; later ones come.
        ({}, "2024-08-12", ""),
        ({}, "2024-08-13", ""),
        ({}, "2024-08-14", "2024-08-20..2024-08-20"),
        ({}, "2024-08-19", "2024-08-20..2024-08-25"),
        ({"data_lag": 2}, "2024-08-13", "2024-08-18..2024-08-19"),
        ({"data_lag": -1}, "2024-08-14", ""),
        ({"data_lag": -1}, "2024-08-15", "2024-08-21..2024-08-21"),
        # After the declared end none comes.
        ({"end": "2024-06-10"}, "2024-06-10", ""),
        ({"end": "2024-06-10"}, "2024-06-01", ""),
        # The end has come, and is held back.
        ({"end": "2024-08-19", "data_lag": 2}, "2024-08-17", "2024-08-18..2024-08-19"),
        ({"end": "2024-08-19", "data_lag": 2}, "2024-08-11", ""),
    ],
)
def test_the_keys_are_known_that_a_change_reaches_before_they_exist(
    declared: dict[str, Any], changed: str, late: str
) -> None:
    """Six days before are read, so that a change reaches six days on."""
    days = calendar(grain="day", start="2024-06-01", **declared)
    mapping = build(days, days, MappingSpec(kind="window", before=6))
    found, beyond = mapping.reach(keys(days, changed))
    assert found == mapping.affected(keys(days, changed))
    assert days.time is not None
    label = days.time.grid.label
    assert "".join(f"{label(first)}..{label(last)}" for first, last in beyond.runs()) == late


def test_nothing_lies_beyond_static_keys() -> None:
    regions = calendar(**REGIONS)
    assert build(regions, regions).reach(keys(regions, "eu")) == (keys(regions, "eu"), EMPTY)
