"""Runs: batches, what each waits for, waves and their order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planning.world import plan, request, runs_of, shown, summary, waits

DAYS = """dataset = [
  { name = "hours", grain = "hour" }, { name = "hours2", grain = "hour" },
  { name = "days", grain = "day" }, { name = "days2", grain = "day" },
  { name = "weeks", grain = "week" }, { name = "months", grain = "month" },
  { name = "whole", grain = "none" }, { name = "start", grain = "day", start = "2024-03-29" },
  { name = "regions", keys = ["eu", "fr", "us"], column = "region" },
  { name = "sales", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["a", "b", "c"] } ] },
]
"""


def batched(name: str, batch: str, more: str = "") -> str:
    return DAYS + f'job = [{{ name = "{name}", batch = {batch}{more} }}]'


BATCHES = [
    ("one run for each key", '"key"', ["2024-03-10", "2024-03-11", "2024-03-12", "2024-03-20"]),
    ("one run for each range", '"range"', ["2024-03-10..2024-03-12", "2024-03-20"]),
    ("at most two keys", "2", ["2024-03-10..2024-03-11", "2024-03-12, 2024-03-20"]),
    ("at most as many as there are", "9", ["2024-03-10..2024-03-12, 2024-03-20"]),
]


@pytest.mark.parametrize(("says", "batch", "wanted"), BATCHES, ids=[case[0] for case in BATCHES])
def test_batches(says: str, batch: str, wanted: list[str]) -> None:
    made = plan(
        request({"days": "2024-03-10..2024-03-12,2024-03-20"}),
        "days > j > days2",
        batched("j", batch),
    )
    assert [shown(run.partitions) for run in runs_of(made, "j")] == wanted
    assert sum(run.count for run in runs_of(made, "j")) == 4
    assert made.totals["runs"] == len(wanted)
    assert made.totals["partitions"] == 4


def test_a_key_is_the_batch_where_nothing_is_declared() -> None:
    made = plan(request({"days": "2024-03-10..2024-03-12"}), "days > j > days2", DAYS)
    assert [run.count for run in runs_of(made, "j")] == [1, 1, 1]


@pytest.mark.parametrize("lag", ["", ", data_lag = 2"])
def test_a_run_of_the_running_day_writes_every_hour_that_has_begun(lag: str) -> None:
    """Rows of an hour that is not complete are the run's too: out of its scope they would fail."""
    toml = f"""dataset = [
      {{ name = "raw", grain = "day", data_lag = -1 }}, {{ name = "hours", grain = "hour"{lag} }} ]
    job = [{{ name = "j", grain = "day", data_lag = -1 }}]"""
    (run,) = runs_of(plan(request({"raw": "2024-04-01"}), "raw > j > hours", toml), "j")
    assert [shown(part.keys or ()) for part in run.writes] == ["2024-04-01T00..2024-04-01T12"]


def test_ranges_of_product_keys_are_ranges_of_boxes() -> None:
    made = plan(
        request({"sales": "day=2024-03-10..2024-03-12/region=a,day=2024-03-12/region=b"}),
        "sales > j > sales2",
        batched("j", '"range"').replace('name = "sales"', 'name = "sales*"'),
    )
    assert [shown(run.partitions) for run in runs_of(made, "j")] == [
        "day=2024-03-10..2024-03-12/region=a",
        "day=2024-03-12/region=b",
    ]


@pytest.mark.parametrize(
    ("batch", "counts"), [("1", [1] * 6), ("2", [2, 1, 2, 1]), ("3", [3, 3]), ("6", [6])]
)
def test_at_most_n_keys_of_a_product(batch: str, counts: list[int]) -> None:
    made = plan(
        request({"days": "2024-03-10..2024-03-11"}), "days > j > sales", batched("j", batch)
    )
    assert [run.count for run in runs_of(made, "j")] == counts
    keys = {
        (day, region)
        for run in runs_of(made, "j")
        for box in run.partitions
        if not isinstance(box, str)
        for days in box["day"]
        for day in ({days} if ".." not in days else {"2024-03-10", "2024-03-11"})
        for region in box["region"]
    }
    assert len(keys) == 6


def test_a_range_of_static_keys_is_one_run() -> None:
    made = plan(
        request({"regions": "eu,us"}),
        "regions > j > regions2",
        batched("j", '"range"').replace('name = "regions"', 'name = "regions*"'),
    )
    assert [shown(run.partitions) for run in runs_of(made, "j")] == ["eu, us"]


def test_a_day_waits_for_its_24_hours_and_no_others() -> None:
    made = plan(
        request({"hours": "2024-03-10T00..2024-03-12T23"}),
        "hours > clean > hours2\nhours2 > daily > days",
        DAYS,
    )
    for day in ("2024-03-10", "2024-03-11", "2024-03-12"):
        assert waits(made, "daily")[day] == [f"clean[{day}T{hour:02}]" for hour in range(24)]


def test_a_run_waits_only_for_what_is_planned() -> None:
    made = plan(
        request({"hours": "2024-03-10T05"}), "hours > clean > hours2\nhours2 > daily > days", DAYS
    )
    assert waits(made, "daily") == {"2024-03-10": ["clean[2024-03-10T05]"]}


def test_a_batch_waits_for_every_run_that_makes_a_part_of_what_it_reads() -> None:
    made = plan(
        request({"days": "2024-03-04..2024-03-17"}),
        "days > j > days2\ndays2 > k > weeks",
        batched("k", '"range"'),
    )
    (names,) = waits(made, "k").values()
    assert names == [f"j[2024-03-{day:02}]" for day in range(4, 18)]


def test_a_window_waits_for_the_days_before_too() -> None:
    toml = DAYS + (
        'job = [{ name = "k", reads = [{ dataset = "days2", mapping = "window", before = 2 }] }]'
    )
    made = plan(
        request({"days": "2024-03-28..2024-03-29"}),
        "days > j > days2\ndays2 > k > start",
        toml,
    )
    assert waits(made, "k") == {
        "2024-03-29": ["j[2024-03-28]", "j[2024-03-29]"],
        "2024-03-30": ["j[2024-03-28]", "j[2024-03-29]"],
        "2024-03-31": ["j[2024-03-29]"],
    }


def test_lookback_waits_for_what_later_keys_read() -> None:
    toml = DAYS + 'job = [{ name = "k", writes = [{ dataset = "start", lookback = 1 }] }]'
    made = plan(request({"days": "2024-03-30"}), "days > j > days2\ndays2 > k > start", toml)
    assert waits(made, "k") == {"2024-03-29": ["j[2024-03-30]"], "2024-03-30": ["j[2024-03-30]"]}
    run = runs_of(made, "k")[0]
    assert run.reads[0].keys == ("2024-03-29..2024-03-30",)
    assert run.writes[0].keys == ("2024-03-29",)


def test_a_run_reads_all_that_it_needs_not_only_what_is_stale() -> None:
    made = plan(request({"hours": "2024-03-10T05"}), "hours > daily > days", DAYS)
    (run,) = runs_of(made, "daily")
    assert run.reads[0].keys == ("2024-03-10T00..2024-03-10T23",)


def test_a_none_edge_orders_nothing() -> None:
    toml = DAYS + 'job = [{ name = "k", reads = [{ dataset = "days2", mapping = "none" }] }]'
    made = plan(request({"days": "2024-03-30"}), "days > j > days2\ndays, days2 > k > start", toml)
    assert waits(made, "k") == {"2024-03-30": []}


def test_an_unpartitioned_reader_runs_once_after_everything_it_reads() -> None:
    made = plan(
        request({"start": "2024-03-29..2024-03-31"}),
        "start > j > start2\nstart2 > k > whole",
        DAYS.replace('name = "start"', 'name = "start*"'),
    )
    assert waits(made, "k") == {"*": [f"j[2024-03-{day}]" for day in (29, 30, 31)]}
    (run,) = runs_of(made, "k")
    assert run.reads[0].keys is None
    assert run.writes[0].keys == ("*",)
    assert run.wave == 2


def test_two_writers_of_one_dataset_are_both_waited_for() -> None:
    made = plan(
        request({"days": "2024-03-10"}),
        "days > j1 > days2\ndays > j2 > days2\ndays2 > k > weeks",
        DAYS,
    )
    assert waits(made, "k") == {"2024-W10": ["j1[2024-03-10]", "j2[2024-03-10]"]}


def test_waves_are_counted_on_runs_and_every_run_comes_after_what_it_waits_for() -> None:
    edges = "hours > a > hours2\nhours2 > b > days\nhours > c > days2\ndays, days2 > d > weeks"
    made = plan(request({"hours": "2024-03-10T05"}), edges, DAYS)
    assert {run.job.name: run.wave for run in made.runs or ()} == {"a": 1, "b": 2, "c": 1, "d": 3}
    place = {run.id: number for number, run in enumerate(made.runs or ())}
    assert all(place[up] < place[run.id] for run in made.runs or () for up in run.upstream)


def test_reverse_runs_the_newest_keys_of_a_wave_first() -> None:
    edges = "days > j > days2\ndays2 > k > start"
    asked = {"days": "2024-03-29..2024-03-31"}
    forward, back = (plan(request(asked, reverse=r), edges, DAYS) for r in (False, True))
    assert [shown(run.partitions) for run in forward.runs or ()] == 2 * [
        "2024-03-29",
        "2024-03-30",
        "2024-03-31",
    ]
    assert [shown(run.partitions) for run in back.runs or ()] == 2 * [
        "2024-03-31",
        "2024-03-30",
        "2024-03-29",
    ]
    assert {run.id for run in forward.runs or ()} == {run.id for run in back.runs or ()}


def test_reverse_does_not_turn_self_dependent_runs_around() -> None:
    toml = DAYS + (
        'job = [{ name = "j", reads = [{ dataset = "start", mapping = "offset", by = -1 }] }]'
    )
    made = plan(request({"days": "2024-03-29"}, reverse=True), "days, start > j > start", toml)
    assert [shown(run.partitions) for run in made.runs or ()] == [
        "2024-03-29",
        "2024-03-30",
        "2024-03-31",
    ]


def test_the_id_of_a_run_is_that_of_its_job_and_keys() -> None:
    one = plan(request({"days": "2024-03-10"}), "days > j > days2", DAYS)
    other = plan(request({"days": "2024-03-09..2024-03-10"}), "days > j > days2", DAYS)
    assert runs_of(one, "j")[0].id == runs_of(other, "j")[1].id
    assert runs_of(other, "j")[0].id != runs_of(other, "j")[1].id


def test_the_engine_is_what_the_project_file_names_and_its_lack_changes_no_plan() -> None:
    with_engine = plan(
        request({"days": "2024-03-10"}),
        "days > j > days2",
        DAYS + 'job = [{ name = "j", engine = "local" }]',
    )
    without = plan(request({"days": "2024-03-10"}), "days > j > days2", DAYS)
    assert runs_of(with_engine, "j")[0].engine == "local"
    assert runs_of(without, "j")[0].engine is None
    assert any("no engine declared" in text and "w:j" in text for text in without.warnings)
    assert not any("no engine" in text for text in with_engine.warnings)


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_ingestion_by_a_watermark_reads_again_what_is_named(mode: str) -> None:
    toml = DAYS + (
        'job = [{ name = "ingest", batch = "range",'
        ' reads = [{ dataset = "whole", mapping = "none" }],'
        f' writes = [{{ dataset = "days", mode = "{mode}" }}] }}]'
    )
    edges = "whole > ingest > days\ndays > j > weeks"
    # What is new it finds by itself; that an old slice changed at its source it never notices.
    assert summary(plan(request({"whole": None}), edges, toml)) == {}
    again = plan(request(jobs={"ingest": "2024-03-10..2024-03-12"}), edges, toml)
    (run,) = runs_of(again, "ingest")
    assert [shown(write.keys or ()) for write in run.writes] == ["2024-03-10..2024-03-12"]
    assert [shown(one.partitions) for one in runs_of(again, "j")] == ["2024-W10", "2024-W11"]


@pytest.mark.parametrize("reverse", [False, True])
def test_keys_that_merge_into_a_partition_which_they_read_run_in_order(reverse: bool) -> None:
    edge = '{ dataset = "days", mapping = "window", before = 2 }'
    made = plan(
        request({"hours": "2024-03-31T20..2024-03-31T21"}, reverse=reverse),
        "hours, days > j > days",
        DAYS
        + 'job = [{ name = "j", grain = "hour", start = "2024-03-31T18", end = "2024-03-31T23", '
        + f'reads = [{edge}], writes = [{{ dataset = "days", mode = "merge" }}] }}]',
    )
    runs = sorted(runs_of(made, "j"), key=lambda run: run.wave)
    keys = [shown(run.partitions) for run in runs]
    assert keys == sorted(keys)
    for run, before in zip(runs[1:], runs[:-1], strict=True):
        assert before.id in run.upstream
        assert run.wave == before.wave + 1


LATE = """dataset = [
  { name = "raw", grain = "day" }, { name = "a", grain = "day" }, { name = "c", grain = "day" },
  { name = "b", grain = "day", data_lag = 2 }, { name = "year", grain = "year" },
  { name = "d", grain = "day" },
]
"""
OWN = '{ name = "j", reads = [{ dataset = "b", mapping = "offset", by = -1 }] }'
MERGED = '{ name = "m", grain = "day", writes = [{ dataset = "year", mode = "merge" }] }'


@pytest.mark.parametrize(
    ("edges", "declared", "days", "name", "wanted"),
    [
        # The newest key of `b` is 2024-03-29, but later rows are in it already.
        ("raw > j > a, b\nraw, b > k > c", "", (31, 31), "k", ["j[2024-03-31]"]),
        # 2024 is not complete.
        ("raw > m > year\nraw, year > k > c", MERGED, (31, 31), "k", ["m[2024-03-31]"]),
        ("raw, b > j > a, b", OWN, (30, 31), "j", [[], ["j[2024-03-30]"]]),
        # A circle, but for the year that does not exist yet.
        ("raw, d > m > year\nraw, year > k > d", MERGED, (31, 31), "m", ["k[2024-03-31]"]),
        ("raw, d > m > year\nraw, year > k > d", MERGED, (31, 31), "k", []),
    ],
)
def test_a_run_waits_for_what_is_written_into_a_partition_that_does_not_exist_yet(
    edges: str, declared: str, days: tuple[int, int], name: str, wanted: list[Any]
) -> None:
    changed = {"raw": f"2024-03-{days[0]}..2024-03-{days[1]}"}
    found = waits(plan(request(changed), edges, LATE + f"job = [{declared}]"), name)
    assert [*found.values()] == (wanted if days[0] < days[1] else [wanted])


def test_a_reader_by_all_waits_for_what_is_written_into_a_period_that_has_begun() -> None:
    hourly = "".join(
        f'[[job]]\nname = "{name}"\ngrain = "hour"\nstart = "2024-03-31T00"\n'
        f'writes = [{{ dataset = "days", mode = "merge" }}]\n'
        for name in ("one", "two", "three")
    )
    made = plan(
        request({"raw": "2024-03-31T23..2024-04-01T10"}),
        "raw > one > days\nraw > two > days\nraw > three > days\ndays > sum > total",
        '[[dataset]]\nname = "raw"\ngrain = "hour"\nstart = "2024-03-31T00"\n'
        '[[dataset]]\nname = "days"\ngrain = "day"\nstart = "2024-03-31"\n'
        '[[dataset]]\nname = "total"\ngrain = "none"\n' + hourly,
    )
    (last,) = runs_of(made, "sum")
    writers = {run.id for name in ("one", "two", "three") for run in runs_of(made, name)}
    assert len(writers) == 36
    assert set(last.upstream) == writers
