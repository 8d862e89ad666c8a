"""Names that look like partitions: which are taken for one dataset, and the pattern proposed."""

from __future__ import annotations

import tomllib

import pytest

from lineage_backfill.lineage.identity.families import Family, find_families
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.patterns import NamePattern


def ref(name: str) -> DatasetRef:
    return DatasetRef("db", name)


def found(*names: str) -> tuple[Family, ...]:
    return find_families(map(ref, names))


@pytest.mark.parametrize(
    ("names", "pattern", "stem"),
    [
        (
            ["public.orders_2021_06_04", "public.orders_2021_06_05"],
            "public.orders_{day:%Y_%m_%d}",
            "public.orders",
        ),
        (
            ["ga_sessions_20210604", "ga_sessions_20210605"],
            "ga_sessions_{day:%Y%m%d}",
            "ga_sessions",
        ),
        (["/o/ds=2024-01-01", "/o/ds=2024-01-02"], "/o/ds={day:%Y-%m-%d}", "/o"),
        (
            ["/o/ds=2024-01-01/region=eu", "/o/ds=2024-01-01/region=us"],
            "/o/ds={day:%Y-%m-%d}/region={region}",
            "/o",
        ),
        (
            ["/o/year=2024/month=6/day=1", "/o/year=2024/month=12/day=31"],
            "/o/year={day:%Y}/month={day:%-m}/day={day:%-d}",
            "/o",
        ),
        (
            ["/o/year=2024/month=06/day=01", "/o/year=2024/month=12/day=31"],
            "/o/year={day:%Y}/month={day:%m}/day={day:%d}",
            "/o",
        ),
        (
            ["/o/dt=2024-01-01/hr=05", "/o/dt=2024-01-01/hr=06"],
            "/o/dt={hour:%Y-%m-%d}/hr={hour:%H}",
            "/o",
        ),
        (["/o/2024/06/01/00", "/o/2024/06/01/01"], "/o/{hour:%Y/%m/%d/%H}", "/o"),
        (["w_2024-W24", "w_2024-W25"], "w_{week:%G-W%V}", "w"),
        (["b{x}_2024_06_01", "b{x}_2024_06_02"], "b{{x}}_{day:%Y_%m_%d}", "b{x}"),
        (["m_202401", "m_202402", "m_202403"], "m_{month:%Y%m}", "m"),
        (["2024-06-01", "2024-06-02"], "{day:%Y-%m-%d}", "partitioned"),
    ],
)
def test_a_family_and_the_lines_that_declare_it(names: list[str], pattern: str, stem: str) -> None:
    (family,) = found(*names)
    assert (family.pattern, family.dataset, family.members) == (
        pattern,
        ref(stem),
        tuple(map(ref, sorted(names))),
    )
    keys = [NamePattern(family.pattern).match(name) for name in names]
    assert all(keys)
    assert len({str(key) for key in keys}) == len(names)
    (declared,) = tomllib.loads("\n".join(family.lines))["dataset"]
    assert declared.pop("name", stem) == stem
    assert declared == {"namespace": "db", "pattern": pattern}


@pytest.mark.parametrize(
    "names",
    [
        ["orders_2021_06_04"],  # one name is what everybody calls it
        ["orders_v1", "orders_v2"],
        ["census_2010", "census_2020"],  # two years may well be two datasets
        ["m_202401", "m_202402"],
        ["copy_20240601_20240607", "copy_20240608_20240614"],  # spans
        ["run_20240601143000", "run_20240601143001"],  # instants
        ["id_1729097570970", "id_1729097570971"],
        ["orders_2021_13_04", "orders_2021_14_04"],
        ["a_2021_06_04", "b_2021_06_04"],
    ],
)
def test_what_is_no_family(names: list[str]) -> None:
    assert found(*names) == ()


def test_names_of_two_namespaces_are_kept_apart() -> None:
    names = [DatasetRef(space, "o_2024_06_01") for space in "ab"]
    assert find_families(names) == ()
    names += [DatasetRef("a", f"o_2024_06_0{day}") for day in range(1, 4)]
    assert [family.dataset.namespace for family in find_families(names)] == ["a"]
