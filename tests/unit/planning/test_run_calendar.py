"""The run calendar of a job: that of its outputs, of its inputs, or declared."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.unit.planning.world import find, left, plan, request, runs_of, shown, summary

DAYS = """dataset = [
  { name = "raw", grain = "day" }, { name = "hours", grain = "hour" },
  { name = "a", grain = "day" }, { name = "b", grain = "day" },
  { name = "early", grain = "day", start = "2024-03-01", end = "2024-03-20" },
  { name = "late", grain = "day", start = "2024-03-10", end = "2024-03-25" },
  { name = "local", grain = "day", zone = "Asia/Tokyo" }, { name = "weeks", grain = "week" },
  { name = "months", grain = "month" }, { name = "whole", grain = "none" },
  { name = "eu_us", keys = ["eu", "us"], column = "region" },
  { name = "us_eu", keys = ["us", "eu"], column = "region" },
  { name = "de_fr", keys = ["de", "fr"], column = "region" },
  { name = "sales", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
  { name = "m1", cron = "0 6 * * *" }, { name = "m2", cron = "0 6 * * *" },
  { name = "m3", cron = "0 7 * * *" },
]
"""


def test_outputs_that_share_a_calendar_give_it() -> None:
    made = plan(request({"hours": "2024-03-10T05"}), "hours > j > a, b", DAYS)
    assert summary(made) == {"j": "2024-03-10"}
    (run,) = runs_of(made, "j")
    assert [(part.dataset.name, part.keys) for part in run.writes] == [
        ("a", ("2024-03-10",)),
        ("b", ("2024-03-10",)),
    ]


def test_the_shared_calendar_has_the_earliest_start_and_the_newest_last_key() -> None:
    edges = "raw > j > early, late"
    made = plan(request({"raw": "2024-02-25..2024-03-31"}), edges, DAYS)
    assert summary(made) == {"j": "2024-03-01..2024-03-25"}
    by_key = {shown(run.partitions): run for run in runs_of(made, "j")}
    written = {
        key: {part.dataset.name: part.keys for part in run.writes if part.keys}
        for key, run in by_key.items()
    }
    assert written["2024-03-05"] == {"early": ("2024-03-05",)}
    assert written["2024-03-15"] == {"early": ("2024-03-15",), "late": ("2024-03-15",)}
    assert written["2024-03-25"] == {"late": ("2024-03-25",)}


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ("a, weeks", "grain"),
        ("a, local", "zone"),
        ("m1, m3", "cron"),
        ("a, whole", "partitioned or not"),
        ("a, sales", "dimensions"),
        ("eu_us, de_fr", "static keys"),
    ],
)
def test_outputs_that_differ_block_the_job_and_say_so(outputs: str, says: str) -> None:
    made = plan(request({"raw": "2024-03-10"}), f"raw > j > {outputs}", DAYS)
    assert summary(made) == {"j": "blocked"}
    reason = find(made, "j").reason
    assert reason["text"] == "its outputs have different calendars"
    assert "[[job]]" in reason["hint"]


def test_equal_calendars_are_shared_whatever_the_order_of_their_keys() -> None:
    made = plan(
        request({"eu_us": "eu"}),
        "eu_us > j > us_eu, eu_us2",
        DAYS.replace(
            '{ name = "de_fr"',
            '{ name = "eu_us2", keys = ["eu", "us"], column = "region" }, { name = "de_fr"',
        ),
    )
    assert summary(made) == {"j": "eu"}


def test_equal_cron_expressions_are_one_calendar() -> None:
    made = plan(request({"raw": "2024-03-10"}), "raw > j > m1, m2", DAYS)
    assert summary(made) == {"j": "2024-03-09T06:00..2024-03-10T06:00"}


def test_a_declared_run_calendar_settles_outputs_that_differ() -> None:
    toml = DAYS + 'job = [{ name = "j", grain = "week" }]'
    made = plan(request({"raw": "2024-03-10"}), "raw > j > a, weeks", toml)
    assert summary(made) == {"j": "2024-W10"}
    (run,) = runs_of(made, "j")
    assert {part.dataset.name: shown(part.keys or ()) for part in run.writes} == {
        "a": "2024-03-04..2024-03-10",
        "weeks": "2024-W10",
    }


def test_a_job_without_outputs_takes_the_calendar_of_its_inputs() -> None:
    made = plan(request({"a": "2024-03-10"}), "a, b > export > ", DAYS)
    assert summary(made) == {"export": "2024-03-10"}
    (run,) = runs_of(made, "export")
    assert run.writes == ()


def test_a_none_edge_has_no_say_in_the_calendar_of_a_job_without_outputs() -> None:
    toml = DAYS + 'job = [{ name = "export", reads = [{ dataset = "weeks", mapping = "none" }] }]'
    made = plan(request({"a": "2024-03-10"}), "a, weeks > export > ", toml)
    assert summary(made) == {"export": "2024-03-10"}


def test_inputs_that_differ_block_a_job_without_outputs() -> None:
    made = plan(request({"a": "2024-03-10"}), "a, weeks > export > ", DAYS)
    assert find(made, "export").reason["text"] == "its inputs have different calendars"
    toml = DAYS + 'job = [{ name = "export", grain = "day" }]'
    assert summary(plan(request({"a": "2024-03-10"}), "a, weeks > export > ", toml)) == {
        "export": "2024-03-10"
    }


COARSER = [
    ("days into a month", 'grain = "day"', "months"),
    ("days into a week", 'grain = "day"', "weeks"),
    ("days into an unpartitioned dataset", 'grain = "day"', "whole"),
    ("UTC days into local days", 'grain = "day"', "local"),
    (
        "one region into a day of all regions",
        'dimensions = [{ name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] }]',
        "a",
    ),
]


@pytest.mark.parametrize(("says", "run", "output"), COARSER, ids=[case[0] for case in COARSER])
def test_an_output_coarser_than_the_run_calendar_is_blocked_unless_merged(
    says: str, run: str, output: str
) -> None:
    toml = DAYS + f'job = [{{ name = "j", {run} }}]'
    made = plan(request({"raw": "2024-03-10"}), f"raw > j > {output}", toml)
    assert summary(made) == {"j": "blocked"}
    assert "coarser than its run calendar" in find(made, "j").reason["text"]
    assert 'mode = "merge"' in find(made, "j").reason["hint"]
    # A part that is appended cannot be replaced by a later run of its key.
    for mode, status in (("merge", "planned"), ("append", "blocked")):
        writes = f'writes = [{{ dataset = "{output}", mode = "{mode}" }}]'
        kept = toml.replace('name = "j",', f'name = "j", {writes},')
        made = plan(request({"raw": "2024-03-10"}), f"raw > j > {output}", kept)
        assert find(made, "j").status == status


def test_an_output_whose_table_holds_several_keys_in_a_partition_is_blocked_unless_merged() -> None:
    toml = """
    [[dataset]]
    name = "*"
    grain = "day"
    columns = { month = "%Y-%m" }
    [[job]]
    name = "j"
    """
    made = plan(request({"raw": "2024-03-10"}), "raw > j > days", toml)
    assert summary(made) == {"j": "blocked"}
    said = find(made, "j").reason["text"]
    assert "2024-03-30 and 2024-03-31 of its output w:days are one partition of its table" in said
    merged = toml + 'writes = [{ dataset = "days", mode = "merge" }]'
    made = plan(request({"raw": "2024-03-10"}), "raw > j > days", merged)
    assert find(made, "j").status == "planned"


@pytest.mark.parametrize("every", ["grain = 'hour'", "every = '15m'"])
def test_a_plan_over_an_hour_that_the_clock_shows_twice_names_what_run_refuses(every: str) -> None:
    toml = f"""
    [[dataset]]
    name = "raw"
    grain = "day"
    [[dataset]]
    name = "slots"
    {every}
    zone = "America/New_York"
    start = "2024-01-01T00{":00" if "15m" in every else ""}"
    columns = {{ slot = "%Y-%m-%dT%H:%M" }}
    [[job]]
    name = "j"
    engine = "local"
    """
    late = request({"raw": "2024-11-03"})
    made = plan(late, "raw > j > slots", toml, now=datetime(2024, 12, 1, tzinfo=UTC))
    (one,) = made.decisions
    assert one.kind == "one-partition"
    assert "2024-11-03T01" in one.text
    assert "-0400 and 2024-11-03T01" in one.text
    assert one.text.endswith("Store the key itself, with its offset: column = 'slot'.")
    others = plan(request({"raw": "2024-03-10"}), "raw > j > slots", toml)
    assert others.decisions == ()


def test_an_output_finer_than_the_run_calendar_is_written_in_full() -> None:
    toml = DAYS + 'job = [{ name = "j", grain = "week" }]'
    made = plan(request({"raw": "2024-03-10"}), "raw > j > hours", toml)
    (run,) = runs_of(made, "j")
    assert run.writes[0].keys == ("2024-03-04T00..2024-03-10T23",)


def test_a_declared_run_calendar_leaves_an_unknown_output_unknown() -> None:
    """It blocks: nobody knows which partitions the run may replace."""
    toml = DAYS + 'job = [{ name = "j", grain = "day" }]'
    made = plan(request({"raw": "2024-03-10"}), "raw > j > mystery\nmystery > k > b", toml)
    assert summary(made) == {"j": "blocked", "k": "blocked"}
    assert "w:mystery" in find(made, "j").reason["text"]
    assert "mystery" in find(made, "j").reason["hint"]


def test_all_over_a_calendar_without_a_start_blocks() -> None:
    made = plan(request({"raw": "2024-03-10"}), "raw > j > whole", DAYS)
    assert summary(made) == {"j": "blocked"}
    assert "has no first key" in find(made, "j").reason["text"]
    assert "'raw'" in find(made, "j").reason["hint"]


def test_a_whole_run_that_writes_a_calendar_without_a_start_blocks() -> None:
    toml = DAYS + 'job = [{ name = "j", grain = "none", reads = [{ dataset = "early" }] }]'
    made = plan(request({"early": "2024-03-10"}), "early > j > a", toml)
    assert summary(made) == {"j": "blocked"}
    assert "no first key" in find(made, "j").reason["text"]


def test_blocked_jobs_leave_their_readers_stale() -> None:
    made = plan(request({"raw": "2024-03-10"}), "raw > j > a, weeks\na > k > late", DAYS)
    assert summary(made) == {"j": "blocked", "k": "left_stale"}
    assert left(made) == {"k": "2024-03-10..2024-03-25"}


def test_a_job_that_replaces_a_whole_table_with_each_key_is_blocked() -> None:
    full = 'job = [{ name = "j", writes = [{ dataset = "a", mode = "full" }] }]\n'
    made = plan(request({"raw": "2024-03-10"}), "raw > j > a", full + DAYS)
    assert find(made, "j").status == "blocked"
    assert "mode full" in find(made, "j").reason["text"]
    whole = 'job = [{ name = "j", writes = [{ dataset = "whole", mode = "full" }] }]\n'
    made = plan(
        request({"raw": "2024-03-10"}),
        "raw > j > whole",
        whole
        + DAYS.replace(
            '{ name = "raw", grain = "day" }',
            '{ name = "raw", grain = "day", start = "2024-01-01" }',
        ),
    )
    assert summary(made) == {"j": "*"}


def test_self_dependence_may_be_declared_for_the_time_dimension_of_a_product() -> None:
    toml = """job = [{ name = "j", reads = [
      { dataset = "sales", dimensions = { day = { mapping = "offset", by = -1 } } } ] }]
    dataset = [
      { name = "sales", dimensions = [
        { name = "day", grain = "day", start = "2024-03-01", end = "2024-03-05" },
        { name = "region", keys = ["eu", "us"] } ] } ]
    """
    made = plan(request({"sales": "day=2024-03-03/region=eu"}), "sales > j > sales", toml)
    assert find(made, "j").partitions == ({"day": ["2024-03-04..2024-03-05"], "region": ["eu"]},)


BOUNDED = """dataset = [
  { name = "raw", grain = "day", start = "2024-01-01" },
  { name = "out", grain = "day", start = "2024-01-03", end = "2024-01-05" },
]
[[job]]
name = "j"
grain = "day"
start = "2024-01-01"
end = "2024-01-07"
writes = [{ dataset = "out", lookback = %d }]
"""


@pytest.mark.parametrize(
    ("lookback", "changed", "planned"),
    [
        (2, "2024-01-06", "2024-01-04..2024-01-05"),
        (2, "2024-01-07", "2024-01-05"),
        (2, "2024-01-03", "2024-01-03"),
        (2, "2024-01-02", "skipped"),
        (1, "2024-01-07", "skipped"),
        (0, "2024-01-02..2024-01-07", "2024-01-03..2024-01-05"),
    ],
)
def test_a_run_key_that_writes_no_partition_is_not_planned(
    lookback: int, changed: str, planned: str
) -> None:
    made = plan(request({"raw": changed}), "raw > j > out", BOUNDED % lookback)
    assert summary(made) == {"j": planned}
    for run in runs_of(made, "j"):
        (read,) = run.reads
        first = shown(run.partitions)
        last = f"2024-01-{min(7, int(first[-2:]) + lookback):02}"
        assert shown(read.keys or ()) == (first if first == last else f"{first}..{last}")
