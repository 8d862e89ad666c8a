"""Which run keys a change makes stale: calendars, mappings, lookback and self-dependence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from lineage_backfill.errors import UsageError
from tests.unit.planning.world import find, left, plan, request, shown, summary

GRAINS = """
{ name = "hours", grain = "hour" }, { name = "days", grain = "day" },
{ name = "days2", grain = "day" }, { name = "weeks", grain = "week" },
{ name = "months", grain = "month" }, { name = "quarters", grain = "quarter" },
{ name = "years", grain = "year" }, { name = "halves", cron = "30 * * * *" },
{ name = "slots", every = "8h", start = "2024-01-01T00:00" },
{ name = "whole", grain = "none" }, { name = "bounded", grain = "day", start = "2024-03-29" },
{ name = "regions", keys = ["eu", "us"], column = "region" },
{ name = "countries", keys = ["de", "fr", "us"], column = "country" },
{ name = "sales", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
{ name = "sales2", dimensions = [
    { name = "date", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
{ name = "sales_start", dimensions = [
    { name = "day", grain = "day", start = "2024-03-30" },
    { name = "region", keys = ["eu", "us"] } ] },
"""


@dataclass(frozen=True)
class Case:
    """One edge, what changed in its input, and the run keys which that makes stale."""

    says: str
    input: str
    changed: str | None
    output: str
    planned: str
    read: str = ""
    job: str = ""
    left: str = ""
    options: dict[str, Any] = field(default_factory=dict)


EDGES = [
    Case("an hour makes its day stale", "hours", "2024-03-10T05", "days", "2024-03-10"),
    Case("a month makes its quarter stale", "months", "2023-11-01", "quarters", "2023-10-01"),
    Case(
        "an hour meets two slices of a shifted grid",
        "hours",
        "2024-03-10T05",
        "halves",
        "2024-03-10T04:30..2024-03-10T05:30",
    ),
    Case(
        "a 7-day window makes the six days after stale too",
        "days",
        "2024-03-10",
        "days2",
        "2024-03-10..2024-03-16",
        read='mapping = "window", before = 6',
    ),
    Case(
        "a window counts keys of the run calendar: six days before, over hours",
        "hours",
        "2024-03-10T05",
        "days",
        "2024-03-10..2024-03-12",
        read='mapping = "window", before = 2',
    ),
    Case(
        "the period before: offset by = -1",
        "months",
        "2024-01-01",
        "months2",
        "2024-02-01",
        read='mapping = "offset", by = -1',
    ),
    Case(
        "all: every existing key is stale",
        "days",
        "2024-03-10",
        "bounded",
        "skipped",
        read='mapping = "none"',
    ),
    Case("an unpartitioned reader is stale once", "days_start", "2024-03-10", "whole", "*"),
    Case(
        "an unpartitioned input makes every existing key stale",
        "whole",
        None,
        "bounded",
        "2024-03-29..2024-03-31",
    ),
    Case(
        "all between time calendars",
        "days_start",
        "2024-03-10",
        "bounded",
        "2024-03-29..2024-03-31",
        read='mapping = "all"',
    ),
    Case("static keys meet by their label", "regions", "eu", "regions2", "eu"),
    Case(
        "a static map names what each run key reads",
        "countries",
        "fr",
        "regions",
        "eu",
        read='mapping = "map", map = { eu = ["de", "fr"], us = ["us"] }',
    ),
    Case("static to time is all", "regions", "eu", "bounded", "2024-03-29..2024-03-31"),
    Case(
        "identity needs one label on both sides",
        "days",
        "2024-03-10",
        "days2",
        "2024-03-10",
        read='mapping = "identity"',
    ),
    Case(
        "product to product: each dimension by itself",
        "sales",
        "day=2024-03-10/region=eu",
        "sales3",
        "day=2024-03-10/region=eu",
    ),
    Case(
        "time dimensions match whatever their names",
        "sales",
        "day=2024-03-10/region=eu",
        "sales2",
        "date=2024-03-10/region=eu",
    ),
    Case(
        "a dimension that the reader lacks is all",
        "sales",
        "day=2024-03-10/region=eu",
        "days",
        "2024-03-10",
    ),
    Case(
        "a dimension that the input lacks is all",
        "days",
        "2024-03-10",
        "sales",
        "day=2024-03-10/region=eu+us",
    ),
    Case(
        "a plain static calendar matches by its column's name",
        "regions",
        "eu",
        "sales_start",
        "day=2024-03-30..2024-03-31/region=eu",
    ),
    Case(
        "a static column of another name matches no dimension",
        "countries",
        "de",
        "sales_start",
        "day=2024-03-30..2024-03-31/region=eu+us",
    ),
    Case(
        "one dimension mapped otherwise: all regions of the day",
        "sales",
        "day=2024-03-10/region=eu",
        "sales3",
        "day=2024-03-10/region=eu+us",
        read='dimensions.region = { mapping = "all" }',
    ),
    Case(
        "lookback n: what key K reads corrects K-n .. K",
        "days",
        "2024-03-10",
        "days2",
        "2024-03-08..2024-03-10",
        job='writes = [{ dataset = "days2", lookback = 2 }]',
    ),
    Case(
        "lookback widens after the mapping",
        "hours",
        "2024-03-10T05",
        "days",
        "2024-03-09..2024-03-11",
        read='mapping = "window", before = 1',
        job='writes = [{ dataset = "days", lookback = 1 }]',
    ),
    Case(
        "--exact widens nothing and lists what that leaves",
        "days",
        "2024-03-10",
        "days2",
        "2024-03-10",
        job='writes = [{ dataset = "days2", lookback = 2 }]',
        left="2024-03-08..2024-03-09",
        options={"exact": True},
    ),
]
MORE = """
{ name = "months2", grain = "month" }, { name = "regions2", keys = ["eu", "us"] },
{ name = "days_start", grain = "day", start = "2024-01-01" },
{ name = "sales3", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
"""


def datasets(more: str = "") -> str:
    return f"dataset = [{GRAINS}{MORE}{more}]\n"


@pytest.mark.parametrize("case", EDGES, ids=lambda case: case.says)
def test_one_edge(case: Case) -> None:
    reads = f'reads = [{{ dataset = "{case.input}", {case.read} }}]' if case.read else ""
    settings = ", ".join(filter(None, ['name = "j"', reads, case.job]))
    toml = datasets() + f"job = [{{ {settings} }}]"
    made = plan(
        request({case.input: case.changed}, **case.options),
        f"{case.input} > j > {case.output}",
        toml,
    )
    assert summary(made).get("j", "skipped") == case.planned
    assert left(made).get("j", "") == case.left


def test_a_job_of_none_edges_only_is_not_reached() -> None:
    toml = datasets() + 'job = [{ name = "j", reads = [{ dataset = "days", mapping = "none" }] }]'
    assert plan(request({"days": "2024-03-10"}), "days > j > days2", toml).jobs == ()


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("America/New_York", "2024-03-10", "2024-03-10T00..2024-03-10T23"),
        ("America/New_York", "2023-11-05", "2023-11-05T00..2023-11-05T23"),
        ("Asia/Kolkata", "2024-03-10", "2024-03-10T00..2024-03-10T23"),
    ],
)
def test_days_of_23_and_25_hours_are_so_many_partitions(zone: str, day: str, hours: str) -> None:
    toml = f'zone = "{zone}"\n' + datasets()
    made = plan(request({"days": day}), "days > j > hours", toml)
    found = find(made, "j")
    assert shown(found.partitions) == hours
    length = {"2023-11-05": 25, "2024-03-10": 23 if zone == "America/New_York" else 24}
    assert found.count == length[day]


def test_a_utc_hour_is_in_the_local_day_of_its_reader() -> None:
    toml = (
        'dataset = [{ name = "hours", grain = "hour", zone = "UTC" },'
        '{ name = "days", grain = "day", zone = "America/New_York" }]'
    )
    made = plan(request({"hours": "2024-03-10T04"}), "hours > j > days", toml)
    assert summary(made) == {"j": "2024-03-09"}


def test_a_utc_day_meets_two_local_days() -> None:
    toml = (
        'dataset = [{ name = "utc", grain = "day" },'
        '{ name = "local", grain = "day", zone = "Asia/Tokyo" }]'
    )
    made = plan(request({"utc": "2024-03-10"}), "utc > j > local", toml)
    assert summary(made) == {"j": "2024-03-10..2024-03-11"}


@pytest.mark.parametrize(
    "mapping", ["", 'mapping = "overlap"', 'mapping = "identity"', 'mapping = "all"']
)
def test_undeclared_self_dependence_is_blocked(mapping: str) -> None:
    reads = f'reads = [{{ dataset = "days2", {mapping} }}]' if mapping else "reads = []"
    toml = datasets() + f'job = [{{ name = "j", {reads} }}]'
    made = plan(request({"days": "2024-03-10"}), "days, days2 > j > days2", toml)
    assert summary(made) == {"j": "blocked"}
    assert "reads its own output" in find(made, "j").reason["text"]
    assert "offset" in find(made, "j").reason["hint"]


@pytest.mark.parametrize(
    ("reads", "asked", "left"),
    [
        # However it will be declared, it reads earlier keys: later ones may be stale as well.
        ("", {"days": "2024-03-10,2024-03-12"}, "2024-03-10..2024-03-31"),
        ("", {"days2": "2024-03-10"}, "2024-03-10..2024-03-31"),
        (
            '{ dataset = "days", mapping = "offset", by = 2 }',
            {"days": "2024-03-10"},
            "2024-03-08..2024-03-31",
        ),
        ('{ dataset = "days2" }', {"days": "2024-03-10"}, "2024-03-10..2024-03-31"),
        # Declared as it cannot be, it may be any key.
        ('{ dataset = "days2", mapping = "all" }', {"days": "2024-03-10"}, None),
        ('{ dataset = "days2", mapping = "offset", by = 1 }', {"days": "2024-03-10"}, None),
    ],
)
def test_undeclared_self_dependence_leaves_stale_what_the_change_may_reach(
    reads: str, asked: dict[str, str], left: str | None
) -> None:
    days3 = '{ name = "days3", grain = "day", start = "2024-03-01" }'
    toml = datasets(days3) + f'job = [{{ name = "j", reads = [{reads}] }}]'
    made = plan(request(asked), "days, days2 > j > days2\ndays2 > k > days3", toml)
    found = [find(made, name).left_stale for name in "jk"]
    if left is None:
        assert found == [(), ("2024-03-01..2024-03-31",)]
    else:
        assert found == [(left,)] * 2


def test_a_later_partition_of_the_own_output_is_no_self_dependence() -> None:
    toml = datasets() + (
        'job = [{ name = "j", reads = [{ dataset = "days2", mapping = "offset", by = 1 }] }]'
    )
    made = plan(request({"days": "2024-03-10"}), "days, days2 > j > days2", toml)
    assert summary(made) == {"j": "blocked"}


OWN = [
    (
        "offset: stale keys run on to the newest",
        'mapping = "offset", by = -1',
        {"days": "2024-03-28"},
        "2024-03-28..2024-03-31",
    ),
    (
        "offset by two skips every other key",
        'mapping = "offset", by = -2',
        {"days": "2024-03-27"},
        "2024-03-27, 2024-03-29, 2024-03-31",
    ),
    (
        "a window over the own output ends where the key starts",
        'mapping = "window", before = 3',
        {"days": "2024-03-28"},
        "2024-03-28..2024-03-31",
    ),
    (
        "none: a MERGE that lists its target as input",
        'mapping = "none"',
        {"days": "2024-03-28"},
        "2024-03-28",
    ),
    (
        "a fixed partition of the own output makes later keys stale, not itself",
        'mapping = "offset", by = -1',
        {"days2": "2024-03-28"},
        "2024-03-29..2024-03-31",
    ),
    (
        "a fixed partition and a window over the own output",
        'mapping = "window", before = 2',
        {"days2": "2024-03-28"},
        "2024-03-29..2024-03-31",
    ),
]


@pytest.mark.parametrize(("says", "mapping", "changed", "planned"), OWN, ids=[o[0] for o in OWN])
def test_self_dependence(
    says: str, mapping: str, changed: dict[str, str | None], planned: str
) -> None:
    toml = datasets() + (f'job = [{{ name = "j", reads = [{{ dataset = "days2", {mapping} }}] }}]')
    made = plan(request(changed), "days, days2 > j > days2", toml)
    assert summary(made) == {"j": planned}


@pytest.mark.parametrize(
    ("short", "planned"),
    [
        ('start = "2024-03-20", end = "2024-03-25"', "2024-03-10"),
        ('start = "2024-03-01", end = "2024-03-12"', "2024-03-10..2024-03-13"),
        ('start = "2024-01-01", end = "2024-02-29"', "2024-03-10"),
    ],
)
def test_self_dependence_ends_with_the_output_that_is_read(short: str, planned: str) -> None:
    toml = (
        'dataset = [{ name = "*", grain = "day", start = "2024-01-01" },'
        f'{{ name = "short", grain = "day", {short} }}]\n'
        'job = [{ name = "j", reads = [{ dataset = "short", mapping = "offset", by = -1 }] }]'
    )
    made = plan(request({"days": "2024-03-10"}), "days, short > j > long, short", toml)
    assert summary(made) == {"j": planned}


def test_lookback_does_not_widen_along_the_edge_to_the_own_output() -> None:
    toml = datasets() + (
        'job = [{ name = "j", reads = [{ dataset = "days2", mapping = "offset", by = -1 }],'
        ' writes = [{ dataset = "days2", lookback = 2 }] }]'
    )
    edges = "days, days2 > j > days2"
    assert summary(plan(request({"days2": "2024-03-28"}), edges, toml)) == {
        "j": "2024-03-29..2024-03-31"
    }
    assert summary(plan(request({"days": "2024-03-28"}), edges, toml)) == {
        "j": "2024-03-26..2024-03-31"
    }


def test_runs_of_a_self_dependent_job_go_key_by_key_in_order() -> None:
    toml = datasets() + (
        'job = [{ name = "j", batch = "range",'
        ' reads = [{ dataset = "days2", mapping = "offset", by = -1 }] }]'
    )
    made = plan(request({"days": "2024-03-29"}), "days, days2 > j > days2", toml)
    assert made.runs is not None
    assert [shown(run.partitions) for run in made.runs] == [
        "2024-03-29",
        "2024-03-30",
        "2024-03-31",
    ]
    assert [len(run.upstream) for run in made.runs] == [0, 1, 1]
    assert made.runs[2].upstream == (made.runs[1].id,)


def test_ten_years_of_a_self_dependent_job_are_planned_in_one_range() -> None:
    toml = datasets() + (
        'job = [{ name = "j", reads = [{ dataset = "days2", mapping = "offset", by = -1 }] }]'
    )
    made = plan(request({"days": "2014-04-01"}), "days, days2 > j > days2", toml)
    assert summary(made) == {"j": "2014-04-01..2024-03-31"}
    assert find(made, "j").count == 3653


def test_a_label_that_one_side_lacks_is_reported() -> None:
    toml = (
        'dataset = [{ name = "utc", grain = "hour" },'
        ' { name = "local", grain = "hour", zone = "America/New_York" }]\n'
        'job = [{ name = "j", reads = [{ dataset = "utc", mapping = "identity" }] }]'
    )
    made = plan(request({"utc": "2024-03-10T01..2024-03-10T03"}), "utc > j > local", toml)
    assert summary(made) == {"j": "2024-03-10T01..2024-03-10T03"}
    assert find(made, "j").count == 2
    assert (
        "w:j and its input w:utc: the reader does not have the keys 2024-03-10T02" in made.warnings
    )


def test_a_static_key_that_one_side_lacks_is_reported() -> None:
    toml = (
        'dataset = [{ name = "three", keys = ["de", "eu", "us"] },'
        ' { name = "two", keys = ["eu", "us"] }]'
    )
    made = plan(request({"three": "eu,de"}), "three > j > two", toml)
    assert summary(made) == {"j": "eu"}
    assert "w:j and its input w:three: the reader does not have the keys de" in made.warnings


def test_a_static_key_names_the_same_key_of_a_runtime_dimension_before_any_run_was_recorded() -> (
    None
):
    toml = """dataset = [
      { name = "sales", dimensions = [
        { name = "day", grain = "day", start = "2024-01-01" },
        { name = "region", keys = ["eu", "us"] } ] },
      { name = "found", dimensions = [
        { name = "day", grain = "day", start = "2024-01-01" },
        { name = "region", keys = "runtime" } ] } ]
    """
    made = plan(request({"sales": "day=2024-03-03/region=eu"}), "sales > j > found", toml)
    assert find(made, "j").partitions == ({"day": ["2024-03-03"], "region": ["eu"]},)


@pytest.mark.parametrize("grain", ["hour", "day", "week", "month", "year"])
@pytest.mark.parametrize(
    "read",
    [
        'mapping = "offset", by = -100000',
        'mapping = "offset", by = 100000',
        'mapping = "window", before = 100000',
        'mapping = "window", before = 100000, after = 100000',
    ],
)
@pytest.mark.parametrize("lookback", [0, 100_000])
def test_the_longest_reach_ends_in_a_plan_or_a_sentence(
    grain: str, read: str, lookback: int
) -> None:
    key = {"hour": "2024-03-10T05", "day": "2024-03-10", "week": "2024-W10"}.get(
        grain, "2024-01-01" if grain == "month" else "2023-01-01"
    )
    edges = f'reads = [{{ dataset = "raw", {read} }}], '
    edges += f'writes = [{{ dataset = "made", lookback = {lookback} }}]'
    declared = f"""
dataset = [{{ name = "raw", grain = "{grain}" }}, {{ name = "made", grain = "{grain}" }}]
job = [{{ name = "j", {edges} }}]"""
    try:
        made = plan(request({"raw": key}), "raw > j > made", declared)
        told: str = find(made, "j").status
    except UsageError as refused:
        told = refused.message
    assert told in ("planned", "skipped") or "outside the years 1 to 9999" in told


@pytest.mark.parametrize(("grain", "running"), [("day", "2024-04-01"), ("hour", "2024-04-01T12")])
def test_a_negative_data_lag_makes_the_running_period_a_key(grain: str, running: str) -> None:
    lagging = f'{{ name = "raw", grain = "{grain}", data_lag = -1 }}'
    declared = f'dataset = [{lagging}, {{ name = "made", grain = "{grain}", data_lag = -1 }}]'
    made = plan(request({"raw": running}), "raw > j > made", declared)
    assert summary(made) == {"j": running}
    declared = f'dataset = [{lagging}, {{ name = "made", grain = "{grain}" }}]'
    assert summary(plan(request({"raw": running}), "raw > j > made", declared)) == {"j": "skipped"}
