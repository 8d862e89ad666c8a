"""Keys in and out: ranges, boxes, clipping with warnings, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.errors import (
    AmbiguousKeyError,
    BackfillError,
    KeyFormatError,
    MissingKeyError,
    RangeError,
    UsageError,
)
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.ordinals import POINT, OrdinalSet
from lineage_backfill.partitions.text import expand, parse, parse_partitions, render
from tests.unit.partitions.support import at, calendar, keys, labels, product, properties

# It is 2024-08-20T12:30Z: the hour 12 and the day 20 have begun and are not complete.
HOURS = calendar(grain="hour", start="2024-08-01T00")
DAYS = calendar(grain="day", start="2024-06-01")
NEW_YORK = calendar(
    at("2024-12-01T00:00"), grain="hour", zone="America/New_York", start="2024-01-01T00"
)
REGIONS = calendar(keys=("eu", "us", "apac"))
WHOLE = calendar(grain="none")
SALES = product(
    day={"grain": "day", "start": "2024-06-01"}, region={"keys": ("eu", "us", "a/b,c=%")}
)
SHOPS = product(region={"keys": ("eu", "us")}, shop={"keys": ("x", "y", "z")})


CLIPPED = "the range {} was clipped to existing keys: {}"
EMPTY = "the range {} contains no existing key. The first key is {}, and the newest key is {}."


@pytest.mark.parametrize(
    ("of", "text", "wanted"),
    [
        (DAYS, "2024-06-15", ["2024-06-15"]),
        (DAYS, "2024-06-15..2024-06-17", ["2024-06-15..2024-06-17"]),
        (DAYS, "2024-06-15..2024-06-15", ["2024-06-15"]),
        (DAYS, "2024-06-17, 2024-06-15,2024-06-16", ["2024-06-15..2024-06-17"]),
        (DAYS, "2024-06-20,2024-06-15,2024-06-15", ["2024-06-15", "2024-06-20"]),
        (DAYS, "2024-08-18..", ["2024-08-18..2024-08-19"]),  # to the newest complete key
        (DAYS, "*", ["2024-06-01..2024-08-19"]),
        (
            NEW_YORK,
            "2024-11-03T00..2024-11-03T01-0500",
            ["2024-11-03T00..2024-11-03T01-0500"],
        ),
        (NEW_YORK, "2024-03-10T01..2024-03-10T03", ["2024-03-10T01..2024-03-10T03"]),
        (REGIONS, "us,eu", ["eu", "us"]),
        (REGIONS, "*", ["apac", "eu", "us"]),
        (SALES, "day=2024-06-15/region=eu", [{"day": ["2024-06-15"], "region": ["eu"]}]),
        (
            SALES,
            "region=eu/day=2024-06-15..2024-06-17,day=2024-06-15..2024-06-17/region=us",
            [{"day": ["2024-06-15..2024-06-17"], "region": ["eu", "us"]}],
        ),
        (
            SALES,
            "day=2024-06-15/region=a%2Fb%2Cc%3D%25",
            [{"day": ["2024-06-15"], "region": ["a/b,c=%"]}],
        ),
        (
            SALES,
            "2024-06-15..2024-06-17",  # --from and --to: every static key
            [{"day": ["2024-06-15..2024-06-17"], "region": ["a/b,c=%", "eu", "us"]}],
        ),
        (
            SALES,
            "day=2024-08-18../region=*",
            [{"day": ["2024-08-18..2024-08-19"], "region": ["a/b,c=%", "eu", "us"]}],
        ),
        (
            SHOPS,
            "region=eu/shop=x,region=us/shop=x,region=us/shop=z",
            [{"region": ["eu"], "shop": ["x"]}, {"region": ["us"], "shop": ["x", "z"]}],
        ),
        (WHOLE, "*", ["*"]),
    ],
)
def test_keys_come_out_sorted_in_maximal_ranges(of: Calendar, text: str, wanted: list[Any]) -> None:
    found = keys(of, text)
    assert list(render(of, found)) == wanted
    assert parse(of, render(of, found)) == found


@pytest.mark.parametrize(
    ("of", "text", "error", "says"),
    [
        (DAYS, "2024-05-31", MissingKeyError, "The first key is 2024-06-01"),
        (DAYS, "2024-08-21", MissingKeyError, "the newest key is 2024-08-19"),
        (DAYS, "2030-01-01..2030-01-02", MissingKeyError, "the newest key is 2024-08-19"),
        (DAYS, "2024-08-21..", MissingKeyError, "the newest key is 2024-08-19"),
        (DAYS, "2024-06-15T14", KeyFormatError, "Write it like 2024-06-15"),
        (DAYS, "2024-06-15..2024-06-15T14", KeyFormatError, "Write it like 2024-06-15"),
        (DAYS, "2024-06-17..2024-06-15", RangeError, "earlier key first"),
        (DAYS, "..2024-06-15", KeyFormatError, "Write it like"),
        (DAYS, "..", KeyFormatError, "Write it like"),
        (DAYS, "2024-06-15..2024-06-16..2024-06-17", KeyFormatError, "Write it like"),
        (DAYS, "day=2024-06-15", KeyFormatError, "its keys are plain"),
        (HOURS, "2024-08-15", KeyFormatError, "Write it like 2024-06-15T14"),
        (NEW_YORK, "2024-11-03T01", AmbiguousKeyError, "2024-11-03T01-0400 or 2024-11-03T01-0500"),
        (NEW_YORK, "2024-03-10T02", MissingKeyError, "Nearest keys"),
        (REGIONS, "asia", MissingKeyError, "its keys are apac, eu, us"),
        (REGIONS, "eu..us", MissingKeyError, "its keys are"),
        (SALES, "2024-06-15", KeyFormatError, "day=…/region=…"),
        (SALES, "day=2024-06-15", KeyFormatError, "They are day, region"),
        (SALES, "day=2024-06-15/region=asia", MissingKeyError, "its keys are"),
        (SALES, "day=2024-06-15/region=eu/x=1", KeyFormatError, "They are day, region"),
        (SALES, "day=2024-06-15/day=2024-06-16", KeyFormatError, "Write it as paths do"),
        (SALES, "=2024-06-15/region=eu", KeyFormatError, "Write it as paths do"),
        (SALES, "day=2024-06-15/eu", KeyFormatError, "Write it as paths do"),
        (SHOPS, "eu..us", KeyFormatError, "region=…/shop=…"),
        (WHOLE, "2024-06-15", KeyFormatError, "Leave the keys out."),
        (DAYS, " , ", KeyFormatError, "separated by commas"),
    ],
)
def test_what_fits_no_key_is_refused(
    of: Calendar, text: str, error: type[UsageError], says: str
) -> None:
    with pytest.raises(error) as refused:
        keys(of, text)
    assert says in refused.value.hint
    assert refused.value.exit_code == 64


@pytest.mark.parametrize("key", ["c=d", "c=d/e=f", "a=b=c"])
def test_a_plain_static_key_may_look_like_that_of_a_product(key: str) -> None:
    of = calendar(keys=(key, "other"))
    assert render(of, keys(of, key)) == (key,)


def test_a_path_as_one_text_is_refused_with_both_forms() -> None:
    with pytest.raises(KeyFormatError) as refused:
        parse(SALES, ("day=2024-06-15/region=eu",))
    assert refused.value.hint == (
        'On the command line, it is a path: day=…/region=…. In JSON, it is an object: {"day": …,'
        ' "region": …}.'
    )


@pytest.mark.parametrize("of", [HOURS, REGIONS, SALES])
def test_a_box_that_names_no_dimension_is_refused(of: Calendar) -> None:
    with pytest.raises(KeyFormatError, match="does not name the dimensions"):
        parse(of, ({},))


def test_partitioned_data_needs_keys_and_the_whole_none() -> None:
    assert len(parse(WHOLE, None)) == 1
    with pytest.raises(KeyFormatError, match="no changed partitions are named"):
        parse(DAYS, None)


@pytest.mark.parametrize(
    ("of", "text", "wanted", "said"),
    [
        (DAYS, "2024-06-15..2024-06-16", ["2024-06-15..2024-06-16"], []),
        (DAYS, "2024-08-20", ["2024-08-20"], ["2024-08-20 is not complete yet"]),
        (
            DAYS,
            "2024-05-01..2024-06-02",
            ["2024-06-01..2024-06-02"],
            [CLIPPED.format("2024-05-01..2024-06-02", "2024-06-01..2024-06-02")],
        ),
        (
            DAYS,
            "2024-08-18..2030-01-01",
            ["2024-08-18..2024-08-20"],
            [
                CLIPPED.format("2024-08-18..2030-01-01", "2024-08-18..2024-08-20"),
                "2024-08-20 is not complete yet",
            ],
        ),
        (
            DAYS,
            "2024-08-20..",
            [],
            [EMPTY.format("2024-08-20..", "2024-06-01", "2024-08-19")],
        ),
        (DAYS, "2024-08-19..", ["2024-08-19"], []),
    ],
)
def test_ranges_are_clipped_and_that_is_said(
    of: Calendar, text: str, wanted: list[str], said: list[str]
) -> None:
    warnings: list[str] = []
    found = parse(of, parse_partitions(text), warnings.append)
    assert list(render(of, found)) == wanted
    assert warnings == said


def test_a_key_counts_once_it_has_begun_whatever_the_lag() -> None:
    lagging = calendar(grain="day", start="2024-06-01", data_lag=3)
    assert labels(lagging, lagging.existing) >= {"2024-08-16"}
    assert render(lagging, keys(lagging, "2024-08-18")) == ("2024-08-18",)
    assert render(lagging, keys(lagging, "2024-08-15..")) == ("2024-08-15..2024-08-16",)
    ended = calendar(grain="day", start="2024-06-01", end="2024-07-01")
    with pytest.raises(MissingKeyError):
        keys(ended, "2024-07-02")


@pytest.mark.parametrize(
    "wrong",
    [
        (5,),
        (None,),
        (True,),
        (["2024-06-15"],),
        ({"day": None, "region": "eu"},),
        ({"day": 5, "region": "eu"},),
        ({"day": ["2024-06-15"], "region": [["eu"]]},),
        ({"day": {"from": "2024-06-15"}, "region": "eu"},),
        ({1: 2},),
    ],
)
def test_a_set_that_is_none_is_refused(wrong: Any) -> None:
    for of in (DAYS, SALES, REGIONS):
        with pytest.raises(UsageError) as refused:
            parse(of, wrong)
        assert refused.value.hint


@properties(150)
@given(
    st.one_of(
        st.text(max_size=30),
        st.lists(
            st.sampled_from(
                ["2024-06-15", "2024-08-20", "..", ",", "/", "=", "day", "region", "eu", "%", "%2C"]
                + ["*", " ", "@x", "2024-06", "T01", "-0400", "\ud800", "\0", "%ff", "us"]
            ),
            max_size=8,
        ).map("".join),
    )
)
def test_any_text_names_keys_or_is_refused(text: str) -> None:
    for of in (DAYS, NEW_YORK, REGIONS, SALES, SHOPS, WHOLE):
        try:
            found = keys(of, text)
        except BackfillError as error:
            assert error.hint, error  # noqa: PT017 (either outcome is right)
            continue
        assert parse(of, render(of, found)) == found if found else not render(of, found)


product_sets = st.lists(
    st.tuples(st.integers(0, 70), st.integers(0, 9), st.integers(0, 7)), max_size=5
)


@properties(80)
@given(product_sets)
def test_boxes_come_back_and_name_each_key_once(boxes: list[tuple[int, int, int]]) -> None:
    assert SALES.time is not None
    first = SALES.time.floor
    found = PartitionSet.of(
        (OrdinalSet.range(first + day, first + day + more), mask) for day, more, mask in boxes
    )
    found = SALES.clip(found)
    printed = render(SALES, found)
    assert (parse(SALES, printed) if printed else PartitionSet(())) == found
    every = [str(key.label) for key in expand(SALES, found)]
    assert len(every) == len(set(every)) == len(found)
    assert sum(len(parse(SALES, (box,))) for box in printed) == len(found)


@properties(80)
@given(st.frozensets(st.integers(0, 5)))
def test_boxes_of_static_keys_come_back(indexes: frozenset[int]) -> None:
    found = PartitionSet.of([(POINT, sum(1 << index for index in indexes))])
    printed = render(SHOPS, found)
    assert (parse(SHOPS, printed) if printed else PartitionSet(())) == found


def test_a_key_expands_to_its_interval_and_its_wall_clock() -> None:
    (key,) = expand(NEW_YORK, keys(NEW_YORK, "2024-11-03T01-0500"))
    assert key.label == key.time_label == "2024-11-03T01-0500"
    assert (key.start, key.end) == (at("2024-11-03T06:00"), at("2024-11-03T07:00"))
    assert str(key.local) == "2024-11-03 01:00:00"
    (key,) = expand(SALES, keys(SALES, "region=eu/day=2024-06-15"))
    assert key.label == {"day": "2024-06-15", "region": "eu"}
    assert key.statics == {"region": "eu"}
    assert key.end == at("2024-06-16T00:00")
    (key,) = expand(REGIONS, keys(REGIONS, "us"))
    assert (key.label, key.start, key.end, key.local) == ("us", None, None, None)
    (key,) = expand(WHOLE, keys(WHOLE, "*"))
    assert key.label == "*"


def test_a_range_after_the_end_of_a_calendar_is_not_called_future() -> None:
    past = calendar(grain="day", start="2024-06-01", end="2024-06-30")
    with pytest.raises(MissingKeyError, match=r"^2024-07-01\.\.2024-07-02 lies after the newest"):
        keys(past, "2024-07-01..2024-07-02")
