"""Names that look like partitions: which are taken for one dataset, and the pattern proposed."""

from __future__ import annotations

import tomllib

import pytest

from lineage_backfill.lineage.identity.families import Family, find_families
from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.patterns import NamePattern


def ref(name: str) -> DatasetRef:
    return DatasetRef("db", name)


def found(*names: str, former: str = "") -> tuple[Family, ...]:
    """Return the families among names, of which older runs of a job have read the `former`."""
    refs = tuple(map(ref, former.split()))
    jobs = [JobNode(ref=JobRef("n", "j"), former_reads=refs)] if former else []
    return find_families(LineageSnapshot.of(jobs, [DatasetNode(ref=ref(name)) for name in names]))


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


def test_two_years_of_which_a_job_reads_now_one_and_now_the_other_are_a_family() -> None:
    (family,) = found("census_2010", "census_2020", former="census_2010")
    assert family.pattern == "census_{year:%Y}"


@pytest.mark.parametrize(
    ("former", "now", "pattern"),
    [
        ("o_20240601143000", "o_20240602143000", "o_{key}"),
        ("o_01_06_2024", "o_02_06_2024", "o_{key}"),  # the day first, or the month
        ("o_240601", "o_240602", "o_{key}"),
        ("o_20240601_20240607", "o_20240608_20240614", "o_{key}"),
        ("o_1717252200/part", "o_1717338600/part", "o_{key}/part"),
        ("o_2024Q1 o_2024Q2", "o_2024Q3", "o_{key}"),
        ("o_Jun2024 o_Jul2024", "o_Aug2024", "o_{key}"),
        ("s3.o_1 s3.o_2", "s3.o_3", "s3.o_{key}"),
        ("orders1_7 orders1_8", "orders2_7", "orders{key}"),
        ("o_v1_1 o_v1_2", "o_v1_20240601", "o_{key}"),
        ("a/1/b/7 a/2/b/8", "a/3/b/9", "a/{key}/b/{key2}"),
        ("{o}_1 {o}_2", "{o}_3", "{{o}}_{key}"),
        (
            "o_4bfe63e8-f059-5fde-ba5d-c2ac6bfe5c12",
            "o_c7cacd88-1732-5ad5-b09e-cd2f1fb3a274",
            "o_{key}",
        ),
    ],
)
def test_what_differs_from_run_to_run_is_a_family_whatever_it_looks_like(
    former: str, now: str, pattern: str
) -> None:
    names = [*former.split(), now]
    assert found(*names) == (), "they may well be datasets of their own"
    (family,) = found(now, former=former)
    assert (family.pattern, family.others) == (pattern, ())
    assert family.members == tuple(sorted(map(ref, names)))
    keys = [NamePattern(family.pattern).match(name) for name in names]
    assert all(keys)
    assert len({str(key) for key in keys}) == len(names)


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("o_v1", "o_v2"),  # a new version
        ("o_v1 o_v2 o_v3", "o_v4"),
        ("s3.o_V9/part-1 s3.o_V10/part-1", "s3.o_V11/part-1"),
        ("o_v1.9 o_v1.10", "o_v2.0"),
        ("lib-1.9.0 lib-1.10.0", "lib-2.0.0"),
        ("t1 t2", "t3"),
        ("orders", "clients"),
        ("o_20240601143000", "customers"),
    ],
)
def test_what_an_older_run_named_need_not_be_a_family(former: str, now: str) -> None:
    assert found(now, former=former) == ()


def test_what_such_a_pattern_matches_and_is_no_partition_is_declared_with_it() -> None:
    (family,) = found("o_3", "o_items", "p_items", former="o_1 o_2")
    assert family.others == (ref("o_items"),)
    one, other = tomllib.loads("\n".join(family.lines))["dataset"]
    assert one == {"namespace": "db", "pattern": "o_{key}"}
    assert other == {"namespace": "db", "name": "o_items"}


def test_names_of_two_namespaces_and_declared_names_are_kept_apart() -> None:
    nodes = [DatasetNode(ref=DatasetRef(space, "o_2024_06_01")) for space in "ab"]
    snapshot = LineageSnapshot.of([], nodes)
    assert find_families(snapshot) == ()
    more = [DatasetNode(ref=DatasetRef("a", f"o_2024_06_0{day}")) for day in range(1, 4)]
    snapshot = LineageSnapshot.of([], [*nodes, *more])
    assert [family.dataset.namespace for family in find_families(snapshot)] == ["a"]
    assert find_families(snapshot, lambda ref: ref.namespace == "a") == ()


def test_what_a_family_is_called() -> None:
    (family,) = found("o_2024_06_01", "o_2024_06_02")
    called = ["o", "db:o", "o_2024_06_01", "o_1999_01_01", "db:o_2024_06_30"]
    assert all(map(family.is_called, called))
    assert not any(map(family.is_called, ["p", "x:o", "o_2024", "o_"]))
