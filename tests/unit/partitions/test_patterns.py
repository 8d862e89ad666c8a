"""Patterns of names: what they match, which key a name holds, and what is refused."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.errors import DeclarationError
from lineage_backfill.partitions.patterns import NamePattern, escaped


@pytest.mark.parametrize(
    ("pattern", "stem", "name", "key"),
    [
        ("public.orders_{day:%Y_%m_%d}", "public.orders", "public.orders_2021_06_04", "2021-06-04"),
        ("orders{day:%Y%m%d}", "orders", "orders20210604", "2021-06-04"),
        ("/d/o/ds={ds:%Y-%m-%d}", "/d/o", "/d/o/ds=2021-06-04", "2021-06-04"),
        ("ds={ds:%Y-%m-%d}/o", "/o", "ds=2021-06-04/o", "2021-06-04"),
        ("{day:%Y/%m}/o_{day:%Y%m%d}", "o", "2021/06/o_20210604", "2021-06-04"),
        ("y={d:%Y}/m={d:%-m}/d={d:%-d}", "y", "y=2021/m=6/d=14", "2021-06-14"),
        ("o_{h:%Y%m%d%H}", "o", "o_2021060414", "2021-06-04T14"),
        ("o_{t:%Y%m%d_%H%M}", "o", "o_20210604_1430", "2021-06-04T14:30"),
        ("o_{w:%G-W%V}", "o", "o_2020-W53", "2020-W53"),
        ("o_{m:%y%m}", "o", "o_2402", "2024-02-01"),
        ("o_{q:%YQ%q}", "o", "o_2024Q3", "2024-07-01"),
        ("o_{y:%Y}", "o", "o_2024", "2024-01-01"),
        ("o_{j:%Y%j}", "o", "o_2024366", "2024-12-31"),
        ("o_{day}", "o", "o_2021-06-04", "2021-06-04"),
        ("o_{quarter}", "o", "o_2024-07-01", "2024-07-01"),
        ("a{{b}}100%_{region}", "a{b}100%", "a{b}100%_eu west", "eu west"),
        ("{r}.orders", "orders", "eu.orders", "eu"),
        ("o_{d:%%%Y}", "o", "o_%2024", "2024-01-01"),
    ],
)
def test_the_key_that_a_name_holds(pattern: str, stem: str, name: str, key: str) -> None:
    made = NamePattern(pattern)
    assert list((made.match(name) or {}).values()) == [key]
    if not pattern.startswith("y="):
        assert made.stem == stem


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("o_{day:%Y_%m_%d}", "o_2021_02_29"),  # no such day
        ("o_{day:%Y_%m_%d}", "o_2021_6_4"),
        ("o_{day:%Y_%m_%d}", "o_2021_06_04_old"),
        ("o_{day:%Y_%m_%d}", "o_\u0662\u0660\u0662\u0661_06_04"),  # digits of another script
        ("{day:%Y/%m}/o_{day:%Y%m%d}", "2021/05/o_20210604"),  # two dates that differ
        ("o_{j:%Y%j}", "o_2023366"),
        ("o_{w:%G-W%V}", "o_2021-W53"),
        ("o_{r}/x_{r}", "o_eu/x_us"),
        ("o_{region}", "o_eu/part"),
        ("o.{r}", "oxeu"),
    ],
)
def test_names_without_a_key(pattern: str, name: str) -> None:
    assert NamePattern(pattern).match(name) is None


def test_a_key_is_that_of_the_calendar_where_the_name_tells_more() -> None:
    by_monday = NamePattern("o_{d:%Y%m%d}")
    assert by_monday.match("o_20240610", "week") == {"d": "2024-W24"}
    assert by_monday.match("o_20240610", "month") == {"d": "2024-06-01"}
    assert by_monday.match("o_20240610", "quarter") == {"d": "2024-04-01"}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("orders", "no placeholder"),
        ("o_{", "a brace outside of a placeholder"),
        ("o_{}", "a brace outside of a placeholder"),
        ("o_{day:%d}", "%d without the date it belongs to"),
        ("o_{h:%Y%m%H}", "%H without"),
        ("o_{w:%V}", "%V without"),
        ("o_{x:%Q}", "unsupported directive: %Q"),
        ("o_{x:%-Y}", "unsupported directive: %-Y"),
        ("o_{x:%Y%}", "unsupported directive"),
        ("o_{x:abc}", "no placeholder"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_next_step(pattern: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        NamePattern(pattern)
    assert caught.value.hint


FORMATS = ["%Y-%m-%d", "%Y%m%d", "%Y/%m/%d", "%d.%m.%Y", "%Y%j", "%Y_%m_%d_%H"]


@given(
    when=st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2099, 12, 31)),  # noqa: DTZ001
    form=st.sampled_from(FORMATS),
    prefix=st.text(min_size=1).filter(lambda text: "\n" not in text),
)
def test_a_name_made_by_strftime_gives_its_day_back(when: datetime, form: str, prefix: str) -> None:
    pattern = NamePattern(f"{escaped(prefix)}_{{x:{form}}}")
    assert pattern.match(f"{prefix}_{when:{form}}", "day") == {"x": f"{when:%Y-%m-%d}"}


def test_one_name_one_key_over_years() -> None:
    pattern = NamePattern("o_{d:%Y%m%d}")
    days = [date(2019, 1, 1) + timedelta(n) for n in range(1500)]
    found = [pattern.match(f"o_{day:%Y%m%d}") for day in days]
    assert found == [{"d": day.isoformat()} for day in days]
