"""What is not run, and all below it: unknown partitioning, cuts, guard rails, cycles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.planning.world import (
    declarations,
    find,
    left,
    plan,
    request,
    runs_of,
    shown,
    summary,
)

DAYS = """dataset = [
  { name = "raw", grain = "hour" }, { name = "a", grain = "day" }, { name = "b", grain = "day" },
  { name = "c", grain = "day" }, { name = "d", grain = "day" }, { name = "e", grain = "week" },
  { name = "kept", grain = "day", retention = 10 },
]
"""
HOURS = {"raw": "2024-03-10T05"}
CHAIN = """
raw > ja > a
a > jb > b
raw, b > jc > c
"""


# --- unknown partitioning ---------------------------------------------------------------------


def test_a_stale_input_of_unknown_partitioning_blocks_and_says_what_to_declare() -> None:
    made = plan(request({"mystery": "2024-03-10"}), "mystery > j > a\na > k > b", DAYS)
    assert summary(made) == {"j": "blocked", "k": "left_stale"}
    reason = find(made, "j").reason
    assert "partitioning of w:mystery is unknown" in reason["text"]
    assert "[[dataset]] name = 'mystery'" in reason["hint"]
    assert any("mystery is unknown: its readers are blocked" in text for text in made.warnings)


def test_an_unaffected_unknown_input_is_read_whole_with_a_warning() -> None:
    made = plan(request(HOURS), "raw, mystery > j > a", DAYS)
    assert summary(made) == {"j": "2024-03-10"}
    (run,) = runs_of(made, "j")
    assert {part.dataset.name: part.keys for part in run.reads}["mystery"] is None
    assert any(
        "w:mystery is unknown: w:j is assumed to read all of it" in text for text in made.warnings
    )


def test_readers_of_one_unknown_input_share_a_warning() -> None:
    made = plan(request(HOURS), "\n".join(f"raw, mystery > j{one} > {one}" for one in "abc"), DAYS)
    (shared,) = [text for text in made.warnings if "assumed to read all" in text]
    assert shared.endswith("w:mystery is unknown: w:ja, w:jb, w:jc are assumed to read all of it")


def test_a_hint_names_the_namespace_of_a_dataset_elsewhere() -> None:
    declared = replace(declarations("[[dataset]]\nname = '*'\nnamespace = 'x'"), namespace="shop")
    blocked = find(plan(request({"raw": None}), "raw > j > mystery", declared), "j")
    assert blocked.reason["hint"].startswith("Declare it in the project file: [[dataset]] name = ")
    assert ", namespace = 'w' and its grain" in blocked.reason["hint"]


def test_an_output_of_unknown_partitioning_blocks_and_so_do_its_readers() -> None:
    made = plan(request(HOURS), "raw > j > mystery\nmystery > k > b", DAYS)
    assert summary(made) == {"j": "blocked", "k": "blocked"}
    assert "partitioning of w:mystery is unknown" in find(made, "j").reason["text"]


def test_a_declaration_lifts_the_block() -> None:
    toml = DAYS.replace("]\n", '  { name = "mystery", grain = "day" },\n]\n', 1)
    made = plan(request(HOURS), "raw > j > mystery\nmystery > k > b", toml)
    assert summary(made) == {"j": "2024-03-10", "k": "2024-03-10"}


def test_a_none_edge_to_an_unknown_dataset_needs_no_declaration() -> None:
    toml = DAYS + 'job = [{ name = "j", reads = [{ dataset = "mystery", mapping = "none" }] }]'
    made = plan(request(HOURS), "raw, mystery > j > a", toml)
    assert summary(made) == {"j": "2024-03-10"}
    assert not any("mystery" in text for text in made.warnings)


@pytest.mark.parametrize(
    "problem",
    [
        'job = [{ name = "j", grain = "hour" }]',
        'job = [{ name = "j", writes = [{ dataset = "a", mode = "full" }] }]',
    ],
)
def test_below_a_blocked_job_whose_keys_are_known_only_those_are_left_stale(problem: str) -> None:
    edges = "raw > j > a\na > k > b\nraw, b > l > c"
    made = plan(request(HOURS), edges, DAYS + problem)
    assert summary(made) == {"j": "blocked", "k": "left_stale", "l": "left_stale"}
    assert left(made) == {
        "j": "2024-03-10T05" if "hour" in problem else "2024-03-10",
        "k": "2024-03-10",
        "l": "2024-03-10",
    }
    both = request({**HOURS, "b": "2024-03-12"})
    assert summary(plan(both, edges, DAYS + problem))["l"] == "2024-03-12"


def test_a_blocked_job_that_the_change_does_not_reach_leaves_nothing_stale() -> None:
    toml = DAYS + 'job = [{ name = "j", grain = "hour", start = "2024-03-20T00" }]'
    made = plan(request(HOURS), "raw > j > a\na > k > b", toml)
    assert summary(made) == {"j": "skipped", "k": "skipped"}


def test_where_a_blocked_job_may_read_more_than_is_known_all_below_is_left_stale() -> None:
    edges, asked = "b, a > j > a\na > k > e", request({"b": "2024-03-10"})
    whole = 'job = [{ name = "j", reads = [{ dataset = "a", mapping = "all" }] }]'
    assert left(plan(asked, edges, DAYS + whole))["k"] == "1970-W01..2024-W13"
    # What it may be declared to read of its own output are earlier keys.
    assert left(plan(asked, edges, DAYS))["k"] == "2024-W10..2024-W13"


def test_a_blocked_job_stops_only_what_reads_it() -> None:
    made = plan(request(HOURS), "raw > j > mystery\nmystery > k > b\nraw > l > c", DAYS)
    assert summary(made) == {"j": "blocked", "k": "blocked", "l": "2024-03-10"}


# --- cuts -------------------------------------------------------------------------------------

CUTS: list[tuple[str, dict[str, Any], str, dict[str, str]]] = [
    (
        "an excluded job and what needs it",
        {"exclude": ("jb",)},
        "",
        {"ja": "2024-03-10", "jb": "left_stale", "jc": "left_stale"},
    ),
    (
        "a job that is not selected and what needs it",
        {"select": ("ja",)},
        "",
        {"ja": "2024-03-10", "jb": "left_stale", "jc": "left_stale"},
    ),
    (
        "depth counts jobs from the change",
        {"depth": 1},
        "",
        {"ja": "2024-03-10", "jb": "left_stale", "jc": "left_stale"},
    ),
    (
        "a protected job",
        {},
        'job = [{ name = "jb", protected = true }]',
        {"ja": "2024-03-10", "jb": "blocked", "jc": "left_stale"},
    ),
    (
        "a protected job with its override",
        {"allow": frozenset({"protected"})},
        'job = [{ name = "jb", protected = true }]',
        {"ja": "2024-03-10", "jb": "2024-03-10", "jc": "2024-03-10"},
    ),
    (
        "a job that is not idempotent",
        {},
        'job = [{ name = "jb", idempotent = false }]',
        {"ja": "2024-03-10", "jb": "blocked", "jc": "left_stale"},
    ),
    (
        "a job that is not idempotent with its override",
        {"allow": frozenset({"not-idempotent"})},
        'job = [{ name = "jb", idempotent = false }]',
        {"ja": "2024-03-10", "jb": "2024-03-10", "jc": "2024-03-10"},
    ),
    (
        "one override does not lift the other",
        {"allow": frozenset({"protected"})},
        'job = [{ name = "jb", idempotent = false }]',
        {"ja": "2024-03-10", "jb": "blocked", "jc": "left_stale"},
    ),
]


@pytest.mark.parametrize(("says", "options", "job", "wanted"), CUTS, ids=[c[0] for c in CUTS])
def test_cut_jobs_leave_what_needs_them_stale(
    says: str, options: dict[str, Any], job: str, wanted: dict[str, str]
) -> None:
    made = plan(request(HOURS, **options), CHAIN, DAYS + job)
    assert summary(made) == wanted
    stale = {name for name, status in wanted.items() if status in ("left_stale", "blocked")}
    assert left(made) == dict.fromkeys(stale, "2024-03-10")


@pytest.mark.parametrize(
    ("asked", "toml", "by_choice"),
    [
        ({"exclude": ("jb",)}, "", {"jb", "jc"}),
        ({"select": ("ja",)}, "", {"jb", "jc"}),
        ({"depth": 1}, "", {"jb", "jc"}),
        ({}, 'job = [{ name = "jb", protected = true }]', set()),
        ({"exclude": ("jb",)}, 'job = [{ name = "jb", protected = true }]', {"jb", "jc"}),
        ({"exclude": ("jb",)}, 'job = [{ name = "jb", grain = "hour" }]', {"jb", "jc"}),
        ({"exclude": ("jc",)}, 'job = [{ name = "jb", protected = true }]', {"jc"}),
    ],
)
def test_a_plan_tells_what_was_left_out_by_choice(
    asked: dict[str, Any], toml: str, by_choice: set[str]
) -> None:
    made = plan(request(HOURS, **asked), CHAIN, DAYS + toml)
    assert {one.job.name for one in made.jobs if one.reason.get("by_choice")} == by_choice


def test_the_hint_of_a_guard_rail_names_its_override() -> None:
    made = plan(request(HOURS), CHAIN, DAYS + 'job = [{ name = "jb", protected = true }]')
    assert "--allow-protected" in find(made, "jb").reason["hint"]
    made = plan(request(HOURS), CHAIN, DAYS + 'job = [{ name = "jb", idempotent = false }]')
    assert "--allow-not-idempotent" in find(made, "jb").reason["hint"]


def test_only_the_keys_that_need_the_unrepaired_partition_are_left() -> None:
    """jc reads raw itself: the day that only raw made stale is run, the other is not."""
    toml = DAYS + (
        'job = [{ name = "jb", protected = true },'
        ' { name = "jc", reads = [{ dataset = "b", mapping = "offset", by = -1 }] }]'
    )
    made = plan(request(HOURS), CHAIN, toml)
    assert summary(made)["jc"] == "2024-03-10"
    assert left(made) == {"jb": "2024-03-10", "jc": "2024-03-11"}
    assert find(made, "jc").status == "planned"


def test_a_coarse_key_is_left_where_one_of_its_fine_keys_is() -> None:
    toml = DAYS + (
        'job = [{ name = "late", protected = true }, { name = "late", namespace = "x" }]'
    )
    edges = "raw > ja > a\nraw > late > b\na, b > weekly > e"
    made = plan(request(HOURS), edges, toml)
    assert summary(made) == {"ja": "2024-03-10", "late": "blocked", "weekly": "left_stale"}
    assert left(made)["weekly"] == "2024-W10"


def test_lookback_needs_what_later_keys_read() -> None:
    """Partition 9 depends on what keys 9 and 10 read; 10's input is not repaired."""
    toml = DAYS + (
        'job = [{ name = "jb", protected = true },'
        ' { name = "jc", writes = [{ dataset = "c", lookback = 1 }] }]'
    )
    made = plan(request(HOURS), CHAIN, toml)
    assert left(made)["jc"] == "2024-03-09..2024-03-10"


def test_a_cut_job_that_nothing_makes_stale_is_skipped_for_that_reason() -> None:
    toml = (
        DAYS.replace("]\n", '  { name = "old", grain = "day", end = "2023-01-01" },\n]\n', 1)
        + 'job = [{ name = "j", protected = true }]'
    )
    made = plan(request(HOURS), "raw > j > old", toml)
    assert summary(made) == {"j": "skipped"}
    assert find(made, "j").reason == {
        "kind": "up_to_date",
        "text": "no existing key reads a changed partition",
    }


# --- retention --------------------------------------------------------------------------------


def test_a_run_that_needs_an_expired_partition_is_blocked() -> None:
    """The newest ten keys are 03-22 .. 03-31."""
    edges = "raw > jk > kept\nkept > j > a\na > k > b"
    made = plan(request({"kept": "2024-03-21..2024-03-22"}), edges, DAYS)
    assert summary(made) == {"j": "2024-03-22", "k": "2024-03-22"}
    assert left(made) == {"j": "2024-03-21", "k": "2024-03-21"}
    assert not any(
        "by_choice" in one.reason for one in made.jobs
    )  # the request did not leave them out
    made = plan(request({"kept": "2024-03-21"}), edges, DAYS)
    assert summary(made) == {"j": "blocked", "k": "left_stale"}
    assert "--allow-expired" in find(made, "j").reason["left"][0]
    allowed = plan(request({"kept": "2024-03-21"}, allow=frozenset({"expired"})), edges, DAYS)
    assert summary(allowed) == {"j": "2024-03-21", "k": "2024-03-21"}


def test_retention_of_another_input_blocks_as_well() -> None:
    made = plan(request({"raw": "2024-03-21T01,2024-03-22T01"}), "raw, kept > j > a", DAYS)
    assert summary(made) == {"j": "2024-03-22"}
    assert left(made) == {"j": "2024-03-21"}


def test_a_run_of_a_partition_that_its_output_no_longer_keeps_is_left() -> None:
    edges = "raw > j > kept\nkept > k > a"
    made = plan(request({"raw": "2024-03-21T01,2024-03-22T01"}), edges, DAYS)
    assert summary(made) == {"j": "2024-03-22", "k": "2024-03-22"}
    assert left(made) == {"j": "2024-03-21", "k": "2024-03-21"}
    assert "past the retention" in find(made, "j").reason["left"][0]
    both = plan(request({"raw": "2024-03-21T01"}), "raw > j > kept, b", DAYS)
    assert summary(both) == {"j": "2024-03-21"}  # its other output keeps that partition


def test_what_lookback_adds_to_the_reads_of_a_run_must_be_held_as_well() -> None:
    """Key 24 is corrected by what 25 reads, and 25 reads a partition that is gone."""
    toml = DAYS + (
        'job = [{ name = "j", reads = [{ dataset = "kept", mapping = "map",'
        ' map = { "2024-03-25" = ["2024-03-10"] } }],'
        ' writes = [{ dataset = "a", lookback = 1 }] }]'
    )
    made = plan(request({"raw": "2024-03-24T05"}), "raw, kept > j > a", toml)
    assert summary(made) == {"j": "2024-03-23"}
    assert left(made) == {"j": "2024-03-24"}


def test_an_expired_own_partition_leaves_all_that_runs_on_from_it() -> None:
    """The newest ten keys of `kept` are 03-22 .. 03-31: key 22 needs 21, which is gone."""
    toml = DAYS + (
        'job = [{ name = "j", reads = [{ dataset = "kept", mapping = "offset", by = -1 }] }]'
    )
    made = plan(request({"raw": "2024-03-23T01"}), "raw, kept > j > kept", toml)
    assert summary(made) == {"j": "2024-03-23..2024-03-31"}
    made = plan(request({"raw": "2024-03-22T01"}), "raw, kept > j > kept", toml)
    assert left(made) == {"j": "2024-03-22..2024-03-31"}


# --- max_runs ---------------------------------------------------------------------------------


def test_above_max_runs_totals_are_counted_and_runs_left_out() -> None:
    declared = declarations(DAYS, max_runs=3)
    asked = request({"raw": "2024-03-10T05..2024-03-12T05"})
    made = plan(asked, "raw > ja > a\na > jb > b", declared)
    assert made.runs is None
    assert dict(made.totals) == {"jobs": 2, "runs": 6, "partitions": 6}
    assert any("6 runs exceed max_runs = 3" in text for text in made.warnings)
    allowed = request({"raw": "2024-03-10T05..2024-03-12T05"}, allow=frozenset({"max-runs"}))
    assert len(plan(allowed, "raw > ja > a\na > jb > b", declared).runs or ()) == 6


def test_exactly_max_runs_are_listed() -> None:
    made = plan(request(HOURS), CHAIN, declarations(DAYS, max_runs=3))
    assert len(made.runs or ()) == 3


# --- cycles -----------------------------------------------------------------------------------


def test_a_cycle_of_datasets_that_is_none_on_keys_is_planned_in_order() -> None:
    toml = DAYS + (
        'job = [{ name = "ja", reads = [{ dataset = "b", mapping = "offset", by = -1 }] }]'
    )
    edges = "raw, b > ja > a\na > jb > b"
    made = plan(request({"raw": "2024-03-30T05"}), edges, toml)
    assert summary(made) == {"ja": "2024-03-30..2024-03-31", "jb": "2024-03-30..2024-03-31"}
    assert [(run.job.name, shown(run.partitions)) for run in made.runs or ()] == [
        ("ja", "2024-03-30"),
        ("jb", "2024-03-30"),
        ("ja", "2024-03-31"),
        ("jb", "2024-03-31"),
    ]
    assert [run.wave for run in made.runs or ()] == [1, 2, 3, 4]


def test_a_true_cycle_is_blocked_and_named_edge_by_edge() -> None:
    edges = "raw, b > ja > a\na > jb > b\nb > jc > c"
    made = plan(request(HOURS), edges, DAYS)
    assert summary(made) == {"ja": "blocked", "jb": "blocked", "jc": "left_stale"}
    for name in ("ja", "jb"):
        reason = find(made, name).reason
        assert reason["kind"] == "cycle"
        assert reason["text"] == (
            "a cycle: w:ja[2024-03-10] needs w:jb[2024-03-10] needs w:ja[2024-03-10]"
        )
    assert left(made) == dict.fromkeys(("ja", "jb", "jc"), "2024-03-10")


def test_jobs_in_a_cycle_are_listed_by_name_at_one_level() -> None:
    edges = "raw, b > z > a\na > y > b\nb > x > c"
    made = plan(request(HOURS), edges, DAYS)
    assert [(one.job.name, one.level) for one in made.jobs] == [("y", 1), ("z", 1), ("x", 2)]


def test_a_cycle_of_coarse_and_fine_keys_is_true_only_within_the_coarse_key() -> None:
    """Days read last week: Monday's read of the week before makes no cycle."""
    toml = DAYS + (
        'job = [{ name = "ja", reads = [{ dataset = "e", mapping = "offset", by = -7 }] }]'
    )
    made = plan(request({"raw": "2024-03-18T05"}), "raw, e > ja > a\na > je > e", toml)
    assert find(made, "ja").status == "planned"
    assert find(made, "je").status == "planned"
    assert left(made) == {}


def test_a_year_of_a_lagged_cycle_is_planned_at_once() -> None:
    toml = DAYS + (
        'job = [{ name = "ja", reads = [{ dataset = "b", mapping = "offset", by = -1 }] }]'
    )
    made = plan(request({"raw": "2023-04-01T05"}), "raw, b > ja > a\na > jb > b", toml)
    assert summary(made) == {"ja": "2023-04-01..2024-03-31", "jb": "2023-04-01..2024-03-31"}


def test_a_none_edge_breaks_a_cycle() -> None:
    toml = DAYS + 'job = [{ name = "ja", reads = [{ dataset = "b", mapping = "none" }] }]'
    made = plan(request(HOURS), "raw, b > ja > a\na > jb > b", toml)
    assert summary(made) == {"ja": "2024-03-10", "jb": "2024-03-10"}
    assert [one.level for one in made.jobs] == [1, 2]


def test_a_cycle_of_static_keys_is_named_alike_each_time() -> None:
    names = [f"k{number:02}" for number in range(30)]
    tables = ", ".join(f'{{ name = "{name}", keys = {names} }}' for name in ("raw", "a", "b"))
    toml = f"dataset = [{tables}]".replace("'", '"')
    made = [
        plan(request({"raw": ",".join(names)}), "raw, b > ja > a\na > jb > b", toml)
        for _ in range(3)
    ]
    assert {find(one, "ja").reason["text"] for one in made} == {
        "a cycle: w:ja[k00] needs w:jb[k00] needs w:ja[k00]"
    }


# --- runtime keys -----------------------------------------------------------------------------

BY_REGION = """dataset = [
  { name = "src", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["apac", "eu", "us"] } ] },
  { name = "mid", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["apac", "eu", "us"] } ] },
  { name = "other", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = "runtime" } ] },
  { name = "open", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = "runtime" } ] },
]
[[job]]
name = "jm"
protected = true
"""
MARCH_10 = "day=2024-03-10/region=eu"


@pytest.mark.parametrize(
    ("changed", "planned", "kept"),
    [
        # Named keys are judged one by one.
        ("day=2024-03-10/region=us", "day=2024-03-10/region=us", "day=2024-03-10/region=eu"),
        (
            "day=2024-03-10/region=apac,day=2024-03-10/region=us",
            "day=2024-03-10/region=apac+us",
            "day=2024-03-10/region=eu",
        ),
        # A run of `*` rewrites them all: what it may not write leaves it.
        ("day=2024-03-10/region=*", "", "day=2024-03-10/region=*"),
        # So it is on that day, and on no other.
        ("day=2024-03-11/region=*", "day=2024-03-11/region=*", "day=2024-03-10/region=eu"),
    ],
)
def test_a_left_runtime_key_leaves_the_run_of_all_keys_and_no_named_one(
    changed: str, planned: str, kept: str
) -> None:
    edges = "src > jm > mid\nmid, other > jo > open"
    made = plan(request({"src": MARCH_10, "other": changed}), edges, BY_REGION)
    assert (shown(find(made, "jo").partitions), left(made)["jo"]) == (planned, kept)


def test_what_a_left_run_of_all_keys_would_have_written_leaves_the_later_keys_too() -> None:
    """Each day reads the day before: with eu of one day left, no later day of any key is right."""
    edges = "src > jm > mid\nmid, other, open > jo > open"
    toml = BY_REGION + (
        '[[job]]\nname = "jo"\nreads = [{ dataset = "open", mapping = "offset", by = -1 }]'
    )
    every = {"src": MARCH_10, "other": "day=2024-03-10/region=*"}
    assert left(plan(request(every), edges, toml))["jo"] == ("day=2024-03-10..2024-03-31/region=*")
    named = {"src": MARCH_10, "other": "day=2024-03-10/region=us"}
    made = plan(request(named), edges, toml)
    assert shown(find(made, "jo").partitions) == "day=2024-03-10..2024-03-31/region=us"
    assert left(made)["jo"] == "day=2024-03-10..2024-03-31/region=eu"
