"""What may be asked: roots, keys, columns, selectors, and what a plan says of each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lineage_backfill.errors import (
    AmbiguousKeyError,
    DeclarationError,
    KeyFormatError,
    MissingKeyError,
    RangeError,
    UnknownNameError,
    UsageError,
    ZoneError,
)
from lineage_backfill.lineage.snapshot import ColumnEdge, DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.planning.planner import Planner, build_plan
from lineage_backfill.plans.request import ChangedDataset, LogRange, Request, request_from_dict
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
)
from tests.unit.planning.world import (
    NOW,
    dataset,
    declarations,
    find,
    job,
    left,
    lineage,
    plan,
    request,
    runs_of,
    shown,
    summary,
    waits,
)

DAYS = """dataset = [
  { name = "hours", grain = "hour" }, { name = "days", grain = "day" },
  { name = "a", grain = "day" }, { name = "b", grain = "day" }, { name = "c", grain = "day" },
  { name = "weeks", grain = "week" }, { name = "whole", grain = "none" },
  { name = "lagging", grain = "day", data_lag = 2 },
  { name = "bounded", grain = "day", start = "2024-03-01", end = "2024-03-10" },
  { name = "future", grain = "day", start = "2030-01-01" },
  { name = "regions", keys = ["eu", "us"], column = "region" },
  { name = "sales", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
  { name = "local", grain = "hour", zone = "America/New_York" },
  { name = "regions2", keys = ["eu", "us"] },
  { name = "sales2", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
]
"""


# --- roots ------------------------------------------------------------------------------------


STRANGE = "dataset w:a: these changed partitions do not exist: ds=NULL"
NOTHING_CHANGED = "dataset w:a: no change in its table after version 3"


@pytest.mark.parametrize(
    ("found", "ignored", "said"),
    [
        (["2024-03-10"], (), []),
        (["2024-03-10"], ("ds=NULL",), [STRANGE]),
        ([], ("ds=NULL",), [STRANGE]),
        ([], (), [NOTHING_CHANGED]),
    ],
)
def test_what_a_log_tells_and_is_no_key_is_said(
    found: list[str], ignored: tuple[str, ...], said: list[str]
) -> None:
    log = LogRange(after=3, until=5, ignored=ignored)
    asked = Request(changed=(ChangedDataset(dataset=dataset("a"), keys=tuple(found), log=log),))
    warnings = plan(asked, "a > j > b", DAYS).warnings
    assert [warning for warning in warnings if "w:a" in warning] == said


def test_several_roots_with_different_keys_come_together() -> None:
    made = plan(request({"a": "2024-03-10", "b": "2024-03-12..2024-03-13"}), "a, b > j > c", DAYS)
    assert summary(made) == {"j": "2024-03-10, 2024-03-12..2024-03-13"}
    assert [(part.dataset.name, part.keys) for part in made.changed] == [
        ("a", ("2024-03-10",)),
        ("b", ("2024-03-12..2024-03-13",)),
    ]


def test_a_root_named_twice_is_one_root() -> None:
    once = request({"a": "2024-03-10"})
    twice = type(once)(changed=(*once.changed, *request({"a": "2024-03-12"}).changed))
    made = plan(twice, "a > j > b", DAYS)
    assert summary(made) == {"j": "2024-03-10, 2024-03-12"}
    assert len(made.changed) == 1


def test_a_root_is_already_right_and_its_producer_is_not_run() -> None:
    made = plan(request({"a": "2024-03-10"}), "days > ja > a\na > jb > b", DAYS)
    assert summary(made) == {"jb": "2024-03-10"}


def test_a_root_never_cancels_planned_runs_of_its_producer() -> None:
    made = plan(
        request({"days": "2024-03-10", "a": "2024-03-10"}), "days > ja > a\na > jb > b", DAYS
    )
    assert summary(made) == {"ja": "2024-03-10", "jb": "2024-03-10"}
    assert waits(made, "jb") == {"2024-03-10": ["ja[2024-03-10]"]}


def test_a_job_root_runs_as_if_its_inputs_were_stale_and_all_below_it() -> None:
    made = plan(request(jobs={"ja": "2024-03-10"}), "days > ja > a\na > jb > b", DAYS)
    assert summary(made) == {"ja": "2024-03-10", "jb": "2024-03-10"}
    reason = find(made, "ja").reason
    assert reason["kind"] == "asked"
    assert reason["asked"] is True
    assert made.changed == ()


def test_job_keys_are_widened_by_lookback() -> None:
    toml = DAYS + 'job = [{ name = "ja", writes = [{ dataset = "a", lookback = 2 }] }]'
    assert summary(plan(request(jobs={"ja": "2024-03-10"}), "days > ja > a", toml)) == {
        "ja": "2024-03-08..2024-03-10"
    }


def test_job_keys_run_on_by_self_dependence() -> None:
    toml = DAYS + (
        'job = [{ name = "ja", reads = [{ dataset = "a", mapping = "offset", by = -1 }] }]'
    )
    assert summary(plan(request(jobs={"ja": "2024-03-29"}), "days, a > ja > a", toml)) == {
        "ja": "2024-03-29..2024-03-31"
    }


def test_job_keys_join_what_other_roots_make_stale() -> None:
    made = plan(request({"days": "2024-03-05"}, jobs={"ja": "2024-03-10"}), "days > ja > a", DAYS)
    assert summary(made) == {"ja": "2024-03-05, 2024-03-10"}


def test_a_job_root_below_another_root_is_reached_once_and_in_order() -> None:
    made = plan(
        request({"days": "2024-03-05"}, jobs={"jb": "2024-03-10"}),
        "days > ja > a\na > jb > b",
        DAYS,
    )
    assert [(one.job.name, shown(one.partitions)) for one in made.jobs] == [
        ("ja", "2024-03-05"),
        ("jb", "2024-03-05, 2024-03-10"),
    ]


def test_no_keys_are_for_unpartitioned_roots() -> None:
    made = plan(request({"whole": None}), "whole > j > bounded", DAYS)
    assert summary(made) == {"j": "2024-03-01..2024-03-10"}
    with pytest.raises(
        KeyFormatError, match=r"w:days: .*no changed partitions are named"
    ) as caught:
        plan(request({"days": None}), "days > j > a", DAYS)
    assert "--from" in caught.value.hint
    with pytest.raises(KeyFormatError, match="it is not partitioned and has no keys"):
        plan(request({"whole": "2024-03-10"}), "whole > j > bounded", DAYS)
    made = plan(request({"whole": "2024-03-10..2024-03-11"}), "whole > j > bounded", DAYS)
    assert summary(made) == {"j": "2024-03-01..2024-03-10"}
    assert "dataset w:whole is not partitioned: all of it counts as changed" in made.warnings


# --- declared edges and jobs --------------------------------------------------------------------


def test_a_declared_edge_is_followed_and_shown_as_declared() -> None:
    toml = DAYS + 'job = [{ name = "j", reads = [{ dataset = "a" }] }]'
    made = plan(request({"a": "2024-03-10"}), "b > j > c", toml)
    assert summary(made) == {"j": "2024-03-10"}
    (edge,) = find(made, "j").reason["inputs"]
    assert edge["declared"] is True
    made = plan(request({"b": "2024-03-10"}), "b > j > c", toml)
    assert "declared" not in find(made, "j").reason["inputs"][0]


def test_a_job_only_in_the_project_file_is_planned() -> None:
    toml = DAYS + (
        'job = [{ name = "extra", reads = [{ dataset = "b" }], writes = [{ dataset = "c" }] }]'
    )
    made = plan(request({"a": "2024-03-10"}), "a > j > b", toml)
    assert summary(made) == {"j": "2024-03-10", "extra": "2024-03-10"}
    assert waits(made, "extra") == {"2024-03-10": ["j[2024-03-10]"]}


def test_former_edges_are_followed_only_on_demand() -> None:
    held = LineageSnapshot.of(
        [JobNode(ref=job("j"), writes=(dataset("b"),), former_reads=(dataset("a"),))],
        [DatasetNode(ref=dataset("a"))],
    )
    assert plan(request({"a": "2024-03-10"}), held, DAYS).jobs == ()
    made = plan(request({"a": "2024-03-10"}, include_former=True), held, DAYS)
    assert summary(made) == {"j": "2024-03-10"}


def test_a_former_edge_that_is_declared_too_is_one_edge() -> None:
    held = LineageSnapshot.of(
        [JobNode(ref=job("j"), writes=(dataset("b"),), former_reads=(dataset("a"),))],
        [DatasetNode(ref=dataset("a"))],
    )
    toml = DAYS + 'job = [{ name = "j", reads = [{ dataset = "a" }] }]'
    made = plan(request({"a": "2024-03-10"}, include_former=True), held, toml)
    (run,) = runs_of(made, "j")
    assert [part.dataset.name for part in run.reads] == ["a"]


# --- time -------------------------------------------------------------------------------------


def test_a_root_key_counts_as_soon_as_its_interval_has_begun() -> None:
    made = plan(request({"hours": "2024-04-01T12"}), "hours > j > days", DAYS)
    assert summary(made) == {"j": "skipped"}
    assert any("2024-04-01T12 is not complete yet" in text for text in made.warnings)
    assert any("j 2024-04-01" in text and "not planned" in text for text in made.warnings)


def test_incomplete_and_future_keys_are_not_planned_and_said_aloud() -> None:
    toml = DAYS + (
        'job = [{ name = "j", reads = [{ dataset = "a", mapping = "window", before = 6 }] }]'
    )
    made = plan(request({"a": "2024-03-30"}), "a > j > b\na > k > c", toml)
    assert summary(made) == {"j": "2024-03-30..2024-03-31", "k": "2024-03-30"}
    (said,) = [text for text in made.warnings if "not complete or do not exist yet" in text]
    assert said.endswith(": j 2024-04-01..2024-04-05")
    assert "k " not in said


def test_one_job_is_not_blamed_for_the_future_keys_of_another() -> None:
    """Both edges relate the same two calendars; only one carries a change of today."""
    made = plan(
        request({"a": "2024-04-01", "b": "2024-03-10"}),
        "a > ja > c\nb > jb > days",
        DAYS,
    )
    (said,) = [text for text in made.warnings if "not complete or do not exist yet" in text]
    assert "ja 2024-04-01" in said
    assert "jb" not in said


def test_keys_past_a_declared_end_are_not_said_to_come() -> None:
    made = plan(request({"days": "2024-03-09..2024-03-20"}), "days > j > bounded", DAYS)
    assert summary(made) == {"j": "2024-03-09..2024-03-10"}
    assert not any("exist yet" in text for text in made.warnings)


def test_data_lag_holds_the_newest_keys_back() -> None:
    made = plan(request({"days": "2024-03-28..2024-03-31"}), "days > j > lagging", DAYS)
    assert summary(made) == {"j": "2024-03-28..2024-03-29"}
    assert any("j 2024-03-30..2024-03-31" in text for text in made.warnings)


def test_a_changed_key_within_the_data_lag_is_read_by_the_runs_it_makes_stale() -> None:
    made = plan(request({"lagging": "2024-03-31"}), "lagging > j > a", DAYS)
    (run,) = runs_of(made, "j")
    assert shown(run.partitions) == "2024-03-31"
    assert run.reads[0].keys == ("2024-03-31",)


@pytest.mark.parametrize(
    ("declared", "keys", "planned", "early"),
    [
        ('grain = "day"\ndata_lag = 2', "2024-03-31", "", "2024-03-31"),
        (
            'grain = "day"\ndata_lag = 2',
            "2024-03-28..2024-03-31",
            "2024-03-28..2024-03-29",
            "2024-03-30..2024-03-31",
        ),
        ('grain = "day"', "2024-04-01", "", "2024-04-01"),  # it has begun
        ('grain = "day"\ndata_lag = -1', "2024-04-01", "2024-04-01", ""),
        ('grain = "day"', "2024-03-31", "2024-03-31", ""),
    ],
)
def test_run_keys_that_a_calendar_does_not_hold_yet_are_not_planned_and_told(
    declared: str, keys: str, planned: str, early: str
) -> None:
    toml = f'[[dataset]]\nname = "*"\n{declared}\n'
    made = plan(request(jobs={"copy": keys}), "a > copy > b", toml)
    assert summary(made) == {"copy": planned or "skipped"}
    told = [text for text in made.warnings if "not planned" in text]
    said = f"job w:copy: not planned, not in its calendar yet: {early}"
    assert told == ([said] if early else [])


def test_a_calendar_that_has_not_begun_has_no_keys_and_that_is_no_error() -> None:
    made = plan(request({"days": "2024-03-10"}), "days > j > future", DAYS)
    assert summary(made) == {"j": "skipped"}


def test_the_newest_key_is_that_of_the_calendars_zone() -> None:
    now = datetime(2024, 4, 1, 2, tzinfo=UTC)  # 22:00 on 03-31 in New York
    toml = (
        'dataset = [{ name = "x", grain = "day", zone = "America/New_York" },'
        '{ name = "y", grain = "day", zone = "America/New_York" }]'
    )
    made = plan(request({"x": "2024-03-29.."}), "x > j > y", toml, now=now)
    assert summary(made) == {"j": "2024-03-29..2024-03-30"}


def test_an_open_range_ends_at_the_newest_key() -> None:
    made = plan(request({"days": "2024-03-29.."}), "days > j > a", DAYS)
    assert shown(made.changed[0].keys or ()) == "2024-03-29..2024-03-31"


def test_a_range_is_clipped_with_a_warning() -> None:
    made = plan(request({"bounded": "2024-02-01..2024-03-02"}), "bounded > j > a", DAYS)
    assert summary(made) == {"j": "2024-03-01..2024-03-02"}
    assert any("was clipped" in text and "w:bounded" in text for text in made.warnings)


def test_a_naive_now_is_refused() -> None:
    with pytest.raises(UsageError, match="no time zone"):
        plan(request({"days": "2024-03-10"}), "days > j > a", DAYS, now=NOW.replace(tzinfo=None))


# --- product and runtime keys -------------------------------------------------------------------


def test_a_range_over_a_product_takes_every_static_key() -> None:
    made = plan(request({"sales": "2024-03-10..2024-03-11"}), "sales > j > a", DAYS)
    assert shown(made.changed[0].keys or ()) == "day=2024-03-10..2024-03-11/region=eu+us"


RUNTIME = """dataset = [
  { name = "in", dimensions = [
    { name = "day", grain = "day" }, { name = "shop", keys = "runtime" } ] },
  { name = "out", dimensions = [
    { name = "day", grain = "day" }, { name = "shop", keys = "runtime" } ] },
  { name = "days", grain = "day" },
]
"""


def test_a_runtime_key_that_is_named_stays_itself() -> None:
    made = plan(request({"in": "day=2024-03-10/shop=s1"}), "in > j > out", RUNTIME)
    assert summary(made) == {"j": "day=2024-03-10/shop=s1"}
    (run,) = runs_of(made, "j")
    assert run.writes[0].keys == ({"day": ["2024-03-10"], "shop": ["s1"]},)


SHOPS = {"dimensions": [{"name": "day", "grain": "day"}, {"name": "shop", "keys": "runtime"}]}
OF_JOB = """[[dataset]]
name = "in"
grain = "day"
[[dataset]]
name = "out"
grain = "day"
[[job]]
name = "j"
dimensions = [{ name = "day", grain = "day" }, { name = "shop", keys = "runtime" }]
[[job.writes]]
dataset = "out"
mode = "merge"
"""


@pytest.mark.parametrize(
    ("sent", "toml", "of_job", "key"),
    [
        (SHOPS, "", False, "day=2024-03-10/shop=s1"),
        (SHOPS, "", True, "day=2024-03-10/shop=s1"),
        ({"keys": "runtime"}, "", False, "s1"),
        ({"keys": "runtime"}, "", True, "s1"),
        (None, OF_JOB, True, "day=2024-03-10/shop=s1"),
    ],
)
def test_a_runtime_key_counts_whoever_declares_its_dimension(
    sent: dict[str, object] | None, toml: str, of_job: bool, key: str
) -> None:
    """The facet of a dataset and the run calendar of a job count as the project file does."""
    nodes = [DatasetNode(ref=dataset(name), partitioning=sent) for name in ("in", "out")]
    edges = LineageSnapshot.of(
        [JobNode(ref=job("j"), reads=(dataset("in"),), writes=(dataset("out"),))], nodes
    )
    asked = request(jobs={"j": key}) if of_job else request({"in": key})
    assert summary(plan(asked, edges, toml)) == {"j": key}


KNOWN = RUNTIME.replace(
    "]\n",
    """  { name = "shops", dimensions = [
    { name = "day", grain = "day" }, { name = "shop", keys = ["s1", "s2"] } ] },
  { name = "plain", keys = ["s2", "s3"], column = "shop" },
  { name = "open", keys = "runtime", column = "shop" },
]
""",
)


@pytest.mark.parametrize("batch", ['"key"', "1", "7", '"range"'])
def test_a_run_of_every_runtime_key_stands_beside_no_run_of_one(batch: str) -> None:
    """`*` is present and future keys: its run rewrites what a run of s1 writes."""
    toml = f'{KNOWN}job = [{{ name = "j", batch = {batch} }}]'
    made = plan(request({"days": "2024-03-10"}), "days > j > out\nout > k > shops", toml)
    (run,) = runs_of(made, "j")
    assert run.writes[0].keys == ({"day": ["2024-03-10"], "shop": ["*"]},)
    assert [made_by.upstream for made_by in runs_of(made, "k")] == [(run.id,), (run.id,)]
    assert made.totals["runs"] == 3
    both = request({"days": "2024-03-10", "in": "day=2024-03-10..2024-03-11/shop=s1"})
    made = plan(both, "days, in > j > out", toml)
    assert sorted(shown(run.partitions) for run in runs_of(made, "j")) == [
        "day=2024-03-10/shop=*",
        "day=2024-03-11/shop=s1",
    ]


ANY_SHOP = '[[dataset]]\nname = "*"\nkeys = "runtime"\ncolumn = "shop"\n'
SHOPS_BY_DAY = """
[[dataset]]
name = "*"
dimensions = [
  { name = "day", grain = "day", start = "2024-03-01" }, { name = "shop", keys = "runtime" },
]
"""
OF_SHOPS = {"mapping": "map", "map": {"all": ["eu", "us"], "asia": ["jp"]}}


@pytest.mark.parametrize("edge", ["extra", "w:extra"])
def test_the_edges_of_a_glob_are_those_of_each_job_that_it_matches(edge: str) -> None:
    space, _, name = edge.rpartition(":")
    named = f'namespace = "{space}"' if space else ""
    toml = f"""
    [[dataset]]
    name = "*"
    grain = "day"
    [[job]]
    name = "load_*"
    [[job.reads]]
    dataset = "{name}"
    {named}
    mapping = "window"
    before = 1
    [[job]]
    name = "load_own"
    reads = [{{ dataset = "c", mapping = "window", before = 0 }}]
    writes = [{{ dataset = "o3" }}]
    [[job]]
    name = "load_old"
    retired = true
    """
    edges = "a > load_a > o1\n b > load_b > o2\n d > load_old > o4\n extra > other > o5"
    made = plan(request({"extra": "2024-03-10"}), edges, toml)
    two = "2024-03-10..2024-03-11"
    assert summary(made) == {
        **dict.fromkeys(("load_a", "load_b", "load_own"), two),
        "other": "2024-03-10",
    }


@pytest.mark.parametrize("is_sent", [True, False])
@pytest.mark.parametrize(
    ("toml", "how", "changed", "wanted"),
    [
        (ANY_SHOP, OF_SHOPS, "us", "all"),
        (ANY_SHOP, OF_SHOPS, "br", "skipped"),
        (ANY_SHOP, OF_SHOPS, "*", "all, asia"),
        (
            SHOPS_BY_DAY,
            {"dimensions": {"shop": OF_SHOPS}},
            "day=2024-03-10/shop=us",
            "day=2024-03-10/shop=all",
        ),
        (SHOPS_BY_DAY, OF_SHOPS, "day=2024-03-10/shop=jp", "day=2024-03-10/shop=asia"),
    ],
)
def test_a_map_may_name_runtime_keys(
    toml: str, how: dict[str, Any], changed: str, wanted: str, is_sent: bool
) -> None:
    read = {"dataset": "raw", **how}
    facet = {"reads": [read]} if is_sent else None
    node = JobNode(
        ref=job("j"), reads=(dataset("raw"),), writes=(dataset("out"),), partitioning=facet
    )
    declared = "" if is_sent else f"job = [{{ name = 'j', reads = [{inline(read)}] }}]\n"
    made = plan(request({"raw": changed}), LineageSnapshot.of([node]), declared + toml)
    assert summary(made) == {"j": wanted}


def inline(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {inline(one)}' for name, one in value.items())} }}"
    return repr(value)


def test_the_keys_of_a_static_dataset_are_known_by_its_column() -> None:
    made = plan(request({"plain": "s3"}), "plain > j > open", KNOWN)
    assert summary(made) == {"j": "s3"}


def test_a_run_of_every_runtime_key_is_left_with_any_of_them() -> None:
    edges = "in > a > shops\ndays, shops > j > out"
    asked = request({"days": "2024-03-10", "in": "day=2024-03-10/shop=s1"}, exclude=("a",))
    made = plan(asked, edges, KNOWN)
    assert left(made) == {"a": "day=2024-03-10/shop=s1", "j": "day=2024-03-10/shop=*"}
    assert not runs_of(made, "j")


def test_unknown_runtime_keys_are_all_of_them() -> None:
    made = plan(request({"days": "2024-03-10"}), "days > j > out", RUNTIME)
    assert summary(made) == {"j": "day=2024-03-10/shop=*"}
    assert len(runs_of(made, "j")) == 1


# --- columns ------------------------------------------------------------------------------------


def column(by: str, source: str, target: str, *, direct: bool = True) -> ColumnEdge:
    """Return the edge `input.column` → `output.column` of a job."""
    (up, up_column), (down, down_column) = source.split("."), target.split(".")
    return ColumnEdge(
        job=job(by),
        input=dataset(up),
        input_column=up_column,
        output=dataset(down),
        output_column=down_column,
        direct=direct,
    )


def lines(*jobs: tuple[str, str, str]) -> list[JobNode]:
    return [
        JobNode(
            ref=job(name),
            reads=tuple(sorted(dataset(one) for one in reads.split())),
            writes=tuple(sorted(dataset(one) for one in writes.split())),
        )
        for name, reads, writes in jobs
    ]


def test_readers_of_none_of_the_changed_columns_are_skipped_and_say_so() -> None:
    held = LineageSnapshot.of(
        lines(("price", "a", "b"), ("size", "a", "c"), ("below", "c", "days")),
        column_edges=(
            column("price", "a.price", "b.cost"),
            column("size", "a.size", "c.size"),
        ),
    )
    made = plan(request({"a": "2024-03-10"}, columns=("price",)), held, DAYS)
    assert summary(made) == {"price": "2024-03-10", "size": "skipped", "below": "skipped"}
    assert find(made, "size").reason == {
        "kind": "columns",
        "text": "it reads none of the changed columns",
        "pruned": [{"namespace": "w", "name": "a"}],
    }


def test_a_renamed_column_is_followed() -> None:
    held = LineageSnapshot.of(
        lines(("one", "a", "b"), ("two", "b", "c"), ("three", "b", "days")),
        column_edges=(
            column("one", "a.price", "b.cost"),
            column("one", "a.size", "b.size"),
            column("two", "b.cost", "c.total"),
            column("three", "b.size", "days.size"),
        ),
    )
    made = plan(request({"a": "2024-03-10"}, columns=("price",)), held, DAYS)
    assert summary(made) == {"one": "2024-03-10", "two": "2024-03-10", "three": "skipped"}


def test_a_column_that_decides_which_rows_there_are_changes_the_whole_output() -> None:
    held = LineageSnapshot.of(
        lines(("one", "a", "b"), ("two", "b", "c")),
        column_edges=(
            column("one", "a.size", "b.size"),
            column("one", "a.active", "b.*", direct=False),
            column("two", "b.size", "c.size"),
        ),
    )
    made = plan(request({"a": "2024-03-10"}, columns=("active",)), held, DAYS)
    assert summary(made) == {"one": "2024-03-10", "two": "2024-03-10"}


def test_a_reader_without_column_lineage_is_kept_with_a_warning() -> None:
    held = LineageSnapshot.of(lines(("j", "a", "b")))
    made = plan(request({"a": "2024-03-10"}, columns=("price",)), held, DAYS)
    assert summary(made) == {"j": "2024-03-10"}
    assert any(
        "planned despite --columns, because their column lineage is unknown: w:j" in text
        for text in made.warnings
    )


WIDE = DAYS.replace('"days"', '"[def]", grain = "day" }, { name = "days"')
TWO_OUTPUTS = (
    column("j", "a.price", "b.price"),
    column("j", "a.size", "c.size"),
)


def test_of_several_outputs_only_those_that_the_columns_reach_are_stale() -> None:
    held = LineageSnapshot.of(
        lines(("j", "a", "b c"), ("k", "b", "d"), ("l", "c", "e")), column_edges=TWO_OUTPUTS
    )
    for column_of_a, *below in (
        ("price", "2024-03-10", "skipped"),
        ("size", "skipped", "2024-03-10"),
    ):
        made = plan(request({"a": "2024-03-10"}, columns=(column_of_a,)), held, WIDE)
        assert list(summary(made).values()) == ["2024-03-10", *below]


def test_each_output_is_stale_where_an_input_whose_columns_reach_it_changed() -> None:
    """The price of day 10 makes b stale, that of day 12 makes c stale."""
    held = LineageSnapshot.of(
        lines(("j", "a days", "b c"), ("k", "b", "d"), ("l", "c", "e")),
        column_edges=(
            *TWO_OUTPUTS,
            column("j", "days.price", "c.cost"),
        ),
    )
    asked = request({"a": "2024-03-10", "days": "2024-03-12"}, columns=("price",))
    made = plan(asked, held, WIDE)
    assert summary(made) == {
        "j": "2024-03-10, 2024-03-12",
        "k": "2024-03-10",
        "l": "2024-03-12",
    }


def test_an_output_that_the_columns_miss_carries_nothing_on_through_itself() -> None:
    """Key 29 is stale through b alone, which nothing reads: c of day 29 is as it was."""
    held = LineageSnapshot.of(
        lines(("j", "a c", "b c")),
        column_edges=(*TWO_OUTPUTS, column("j", "c.size", "c.size")),
    )
    toml = DAYS + (
        'job = [{ name = "j", reads = [{ dataset = "c", mapping = "offset", by = -1 }] }]'
    )
    for column_of_a, planned in (("price", "2024-03-29"), ("size", "2024-03-29..2024-03-31")):
        made = plan(request({"a": "2024-03-29"}, columns=(column_of_a,)), held, toml)
        assert summary(made) == {"j": planned}


def test_an_input_without_column_lineage_is_kept_though_another_has_it() -> None:
    held = LineageSnapshot.of(
        lines(("j", "a days", "b")), column_edges=(column("j", "a.price", "b.price"),)
    )
    made = plan(request({"days": "2024-03-10"}, columns=("price",)), held, WIDE)
    assert summary(made) == {"j": "2024-03-10"}
    assert any(
        "planned despite --columns, because their column lineage is unknown: w:j" in text
        for text in made.warnings
    )


def test_columns_do_not_travel_along_a_reference() -> None:
    held = LineageSnapshot.of(
        lines(("i", "a", "days"), ("j", "a days", "b"), ("k", "b", "c")),
        column_edges=(
            column("i", "a.price", "days.price"),
            column("j", "a.size", "b.size"),
            column("j", "days.price", "b.price"),
            column("k", "b.price", "c.price"),
        ),
    )
    toml = DAYS + 'job = [{ name = "j", reads = [{ dataset = "days", mapping = "none" }] }]'
    asked = request({"a": "2024-03-10"}, columns=("price",))
    assert summary(plan(asked, held, toml))["j"] == "skipped"


def test_a_stale_input_whose_changed_columns_are_not_read_keeps_no_reader_back() -> None:
    """b stays stale, but in a column that `reader` does not read."""
    held = LineageSnapshot.of(
        lines(("maker", "a", "b"), ("reader", "a b", "c")),
        column_edges=(
            column("maker", "a.price", "b.price"),
            column("reader", "a.price", "c.price"),
            column("reader", "b.size", "c.size"),
        ),
    )
    asked = request({"a": "2024-03-10"}, columns=("price",), exclude=("maker",))
    assert summary(plan(asked, held, DAYS)) == {"maker": "left_stale", "reader": "2024-03-10"}


def test_a_job_root_changes_every_column_of_its_outputs() -> None:
    """Only `price` of a changed, which `reader` does not read; but all of b is made again."""
    held = LineageSnapshot.of(
        lines(("maker", "a", "b"), ("reader", "b", "c")),
        column_edges=(
            column("maker", "a.price", "b.price"),
            column("reader", "b.size", "c.size"),
        ),
    )
    asked = request({"a": "2024-03-10"}, jobs={"maker": "2024-03-12"}, columns=("price",))
    assert summary(plan(asked, held, DAYS))["reader"] != "skipped"


def test_a_pruned_edge_to_the_own_output_carries_nothing_on() -> None:
    """The running total adds up sizes: a changed price stays in its own day."""
    held = LineageSnapshot.of(
        lines(("j", "a b", "b")),
        column_edges=(
            column("j", "a.price", "b.price"),
            column("j", "a.size", "b.total"),
            column("j", "b.total", "b.total"),
        ),
    )
    toml = DAYS + (
        'job = [{ name = "j", reads = [{ dataset = "b", mapping = "offset", by = -1 }] }]'
    )
    assert summary(plan(request({"a": "2024-03-29"}, columns=("size",)), held, toml)) == {
        "j": "2024-03-29..2024-03-31"
    }
    assert summary(plan(request({"a": "2024-03-29"}, columns=("price",)), held, toml)) == {
        "j": "2024-03-29"
    }


def test_an_unknown_column_is_refused_with_those_there_are() -> None:
    held = LineageSnapshot.of(
        lines(("j", "a", "b")), [DatasetNode(ref=dataset("a"), fields=("price", "size"))]
    )
    assert plan(request({"a": "2024-03-10"}, columns=("Price", "size.unit")), held, DAYS).runs
    with pytest.raises(UnknownNameError, match="no known column prize") as caught:
        plan(request({"a": "2024-03-10"}, columns=("prize",)), held, DAYS)
    assert "price, size" in caught.value.hint


def test_a_column_that_neither_the_dataset_nor_a_reader_has_is_refused() -> None:
    edge = ColumnEdge(
        job=job("j"),
        input=dataset("a"),
        input_column="Price",
        output=dataset("b"),
        output_column="sum",
    )
    held = LineageSnapshot.of(lines(("j", "a", "b")), column_edges=[edge])
    for column in ("price", "price.net"):
        assert plan(request({"a": "2024-03-10"}, columns=(column,)), held, DAYS).runs
    with pytest.raises(UnknownNameError, match="no known column prize") as caught:
        plan(request({"a": "2024-03-10"}, columns=("prize",)), held, DAYS)
    assert "are Price." in caught.value.hint


def test_months_quarters_and_years_may_be_named_by_their_short_forms() -> None:
    for grain, short, first in (
        ("month", "2023-10", "2023-10-01"),
        ("quarter", "2023-Q4", "2023-10-01"),
        ("year", "2022", "2022-01-01"),
    ):
        toml = f'dataset = [{{ name = "*", grain = "{grain}" }}]'
        made = plan(request({"a": f"{short}..{short}"}), "a > j > b", toml)
        assert summary(made) == {"j": first}


def test_a_range_of_runtime_keys_is_refused() -> None:
    toml = 'dataset = [{ name = "*", keys = "runtime", column = "shop" }]'
    with pytest.raises(KeyFormatError, match=r"acme\.\. is a range"):
        plan(request({"a": "acme.."}), "a > j > b", toml)


# --- errors -----------------------------------------------------------------------------------

WRONG = [
    ("an end before its start", {"days": "2024-03-10..2024-03-01"}, RangeError),
    ("an hour for a day", {"days": "2024-03-10T05"}, KeyFormatError),
    ("a day for an hour", {"hours": "2024-03-10"}, KeyFormatError),
    ("a day for a week", {"weeks": "2024-03-10"}, KeyFormatError),
    ("no date at all", {"days": "yesterday"}, KeyFormatError),
    ("a day that no calendar has", {"days": "2024-02-30"}, KeyFormatError),
    ("a key in the future", {"days": "2024-05-01"}, MissingKeyError),
    ("a key before the start", {"bounded": "2024-02-01"}, MissingKeyError),
    ("a key after the end", {"bounded": "2024-03-11"}, MissingKeyError),
    ("an hour that the clocks skip", {"local": "2024-03-10T02"}, MissingKeyError),
    ("an hour that happens twice", {"local": "2023-11-05T01"}, AmbiguousKeyError),
    ("a static key that does not exist", {"regions": "asia"}, MissingKeyError),
    ("a plain key for a product", {"sales": "2024-03-10"}, KeyFormatError),
    ("a product key that lacks a dimension", {"sales": "day=2024-03-10"}, KeyFormatError),
    ("a product key for a plain calendar", {"days": "day=2024-03-10/region=eu"}, KeyFormatError),
]


@pytest.mark.parametrize(("says", "changed", "error"), WRONG, ids=[case[0] for case in WRONG])
def test_keys_that_do_not_fit_are_refused(
    says: str, changed: dict[str, str | None], error: type[UsageError]
) -> None:
    (name,) = changed
    with pytest.raises(error, match=f"^dataset w:{name}: ") as caught:
        plan(request(changed), f"{name} > j > a", DAYS)
    assert type(caught.value) is error
    assert caught.value.hint
    assert caught.value.exit_code == 64


def test_both_readings_of_a_repeated_hour_are_offered() -> None:
    with pytest.raises(AmbiguousKeyError) as caught:
        plan(request({"local": "2023-11-05T01"}), "local > j > days", DAYS)
    assert "2023-11-05T01-0400 or 2023-11-05T01-0500" in caught.value.hint
    made = plan(request({"local": "2023-11-05T01-0500"}), "local > j > days", DAYS)
    assert summary(made) == {"j": "2023-11-05"}


def test_an_unknown_dataset_is_refused_with_near_misses() -> None:
    with pytest.raises(UnknownNameError, match="dayz") as caught:
        plan(request({"dayz": "2024-03-10"}), "days > j > a", DAYS)
    assert "Did you mean days" in caught.value.hint


def test_an_unknown_job_is_refused_with_near_misses() -> None:
    with pytest.raises(UnknownNameError, match="reportt") as caught:
        plan(request(jobs={"reportt": "2024-03-10"}), "days > report > a", DAYS)
    assert "Did you mean report" in caught.value.hint


def test_an_empty_request_is_refused() -> None:
    with pytest.raises(UsageError, match="no change is named") as caught:
        plan(request(), "days > j > a", DAYS)
    assert "--job" in caught.value.hint


BAD = [
    ("an unknown zone", CalendarDeclaration(grain="day", zone="Mars/Olympus"), ZoneError),
    ("a length that is none", CalendarDeclaration(every="soon", start="2024-01-01T00"), UsageError),
    ("every without a start", CalendarDeclaration(every="8h"), DeclarationError),
    (
        "an end before the start",
        CalendarDeclaration(grain="day", start="2024-03-10", end="2024-03-01"),
        DeclarationError,
    ),
    (
        "a start of another grain",
        CalendarDeclaration(grain="day", start="2024-03-10T05"),
        KeyFormatError,
    ),
]


@pytest.mark.parametrize(("says", "calendar", "error"), BAD, ids=[case[0] for case in BAD])
def test_a_calendar_that_cannot_be_is_refused_by_name(
    says: str, calendar: CalendarDeclaration, error: type[UsageError]
) -> None:
    declared = Declarations(
        namespace="w", datasets=(DatasetDeclaration(name="days", calendar=calendar),)
    )
    with pytest.raises(error, match="dataset w:days") as caught:
        plan(request({"days": "2024-03-10"}), "days > j > a", declared)
    assert caught.value.hint


CONTRADICTIONS = [
    ("identity between grains", 'mapping = "identity"', "hours", "days", "one grain"),
    (
        "a window over an unpartitioned input",
        'mapping = "window", before = 1',
        "whole",
        "a",
        "time",
    ),
    ("an offset of static keys", 'mapping = "offset", by = -1', "regions", "regions2", "time"),
    (
        "a map of keys that do not exist",
        'mapping = "map", map = { asia = ["eu"] }',
        "regions",
        "regions2",
        "asia",
    ),
    (
        "a dimension that neither side has",
        'dimensions.shop = { mapping = "all" }',
        "sales",
        "a",
        "shop",
    ),
    (
        "a window over static keys",
        'dimensions.region = { mapping = "window", before = 1 }',
        "sales",
        "sales2",
        "static keys",
    ),
    ("a function that nobody loaded", 'mapping = "python", function = "m:f"', "days", "a", "m:f"),
]


@pytest.mark.parametrize(
    ("says", "read", "input_", "output", "text"), CONTRADICTIONS, ids=[c[0] for c in CONTRADICTIONS]
)
def test_a_mapping_that_does_not_fit_is_refused_by_job_and_input(
    says: str, read: str, input_: str, output: str, text: str
) -> None:
    toml = DAYS + f'job = [{{ name = "j", reads = [{{ dataset = "{input_}", {read} }}] }}]'
    keys = {"whole": None, "regions": "eu", "sales": "2024-03-10..2024-03-10"}.get(
        input_, "2024-03-10T05" if input_ == "hours" else "2024-03-10"
    )
    with pytest.raises(DeclarationError, match=f"job w:j, input w:{input_}: .*{text}") as caught:
        plan(request({input_: keys}), f"{input_} > j > {output}", toml)
    assert caught.value.hint


def test_declarations_that_contradict_each_other_are_refused() -> None:
    twice = DatasetDeclaration(name="days", calendar=CalendarDeclaration(grain="day"))
    declared = Declarations(namespace="w", datasets=(twice, twice))
    with pytest.raises(DeclarationError, match="declared twice"):
        plan(request({"days": "2024-03-10"}), "days > j > a", declared)


@pytest.mark.parametrize("side", ["reads", "writes"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"days"', '"days", namespace = "w"'),
        ('"d*"', '"d*", namespace = "w"'),
        ('"d*", namespace = "x"', '"d*", namespace = "x"'),
    ],
)
def test_two_edges_to_one_dataset_are_refused_with_their_job(
    side: str, one: str, other: str
) -> None:
    edges = f"{{ dataset = {one} }}, {{ dataset = {other} }}"
    toml = DAYS + f'job = [{{ name = "j", {side} = [{edges}] }}]'
    with pytest.raises(UsageError, match=r'j"?: declares its edge to `d.*` twice'):
        plan(request({"days": "2024-03-10"}), "days > j > days_too", toml)


# --- which declaration ----------------------------------------------------------------------------


def test_an_exact_name_beats_a_glob_and_of_two_globs_the_first_wins() -> None:
    toml = """dataset = [
      { name = "raw", grain = "hour" }, { name = "m*", grain = "week" },
      { name = "mart_*", grain = "month" }, { name = "mart_b", grain = "day" } ]"""
    edges = "raw > ja > mart_a\nraw > jb > mart_b\nraw > jc > mx"
    assert summary(plan(request({"raw": "2024-03-10T05"}), edges, toml)) == {
        "ja": "2024-W10",
        "jb": "2024-03-10",
        "jc": "2024-W10",
    }


def test_a_declaration_means_the_projects_namespace_unless_it_names_another() -> None:
    toml = """dataset = [
      { name = "raw", grain = "day" }, { name = "x", grain = "day" },
      { name = "x", namespace = "s3://other", grain = "week" } ]"""
    held = LineageSnapshot.of(
        [
            JobNode(ref=job("here"), reads=(dataset("raw"),), writes=(dataset("x"),)),
            JobNode(
                ref=job("there"),
                reads=(dataset("raw"),),
                writes=(dataset("x")._replace(namespace="s3://other"),),
            ),
        ]
    )
    assert summary(plan(request({"raw": "2024-03-10"}), held, toml)) == {
        "here": "2024-03-10",
        "there": "2024-W10",
    }


def test_a_python_mapping_is_inverted_over_the_existing_keys() -> None:
    toml = DAYS.replace(
        '{ name = "a", grain = "day" }', '{ name = "a", grain = "day", start = "2024-03-01" }'
    ) + (
        'job = [{ name = "j", reads = [{ dataset = "days", mapping = "python",'
        ' function = "m:f" }] }]'
    )

    def month_start(key: str) -> list[str]:
        return [key[:8] + "01"]

    made = build_plan(
        request({"days": "2024-03-01"}),
        LineageSnapshot.of(lines(("j", "days", "a"))),
        declarations(toml),
        now=NOW,
        functions={"m:f": month_start},
    )
    assert summary(made) == {"j": "2024-03-01..2024-03-31"}
    assert left(made) == {}


# --- the request as a document ----------------------------------------------------------------


def test_the_request_in_a_plan_can_be_asked_again() -> None:
    asked = request(
        {"sales": "day=2024-03-10/region=eu", "whole": None},
        jobs={"j": "2024-03-10"},
        columns=("price",),
        exclude=("k",),
        depth=3,
        exact=True,
        reverse=True,
        allow=frozenset({"expired", "protected"}),
    )
    made = plan(asked, "sales, whole > j > a\na > k > b", DAYS)
    again = request_from_dict(made.request, "the plan")
    assert again == type(asked)(
        changed=tuple(
            type(one)(dataset=one.dataset, keys=None if one.keys is None else tuple(one.keys))
            for one in asked.changed
        ),
        jobs=asked.jobs,
        columns=asked.columns,
        exclude=asked.exclude,
        depth=3,
        exact=True,
        reverse=True,
        allow=asked.allow,
    )


def test_a_changed_key_within_the_data_lag_counts_for_a_python_mapping_too() -> None:
    toml = DAYS.replace(
        'name = "a", grain = "day"', 'name = "a", grain = "day", start = "2024-03-01"'
    )
    toml += (
        'job = [{ name = "j", reads = [{ dataset = "lagging", mapping = "python",'
        ' function = "m:f" }] }]'
    )
    made = plan(
        request({"lagging": "2024-03-31"}),
        "lagging > j > a",
        toml,
        functions={"m:f": lambda key: [key]},
    )
    assert summary(made) == {"j": "2024-03-31"}
    assert runs_of(made, "j")[0].reads[0].keys == ("2024-03-31",)


@pytest.mark.parametrize(
    ("keys", "toml", "planned"),
    [
        ("2024-03-01,eu", "", {"j": "2024-03-01, eu", "k": "blocked"}),
        ("eu", "[[dataset]]\nname = 'in'\ngrain = 'day'", {"j": "eu", "k": "blocked"}),
        ("eu", "[[dataset]]\nname = 'end'\ngrain = 'none'", {"j": "eu", "k": "blocked"}),
        # A range lists nothing without a calendar.
        ("2024-03-01..2024-03-02", "", {"j": "blocked", "k": "blocked"}),
        (None, "", {"j": "blocked", "k": "blocked"}),
    ],
)
def test_keys_of_a_job_without_a_definition_run_as_named(
    keys: str | None, toml: str, planned: dict[str, str]
) -> None:
    made = plan(request(jobs={"j": keys}), "in > j > out\nout > k > end", toml)
    found = {one.job.name: shown(one.partitions) or one.status for one in made.jobs}
    assert found == planned
    for run in runs_of(made, "j"):
        assert [(part.dataset.name, part.keys) for part in run.reads] == [("in", None)]
        assert run.writes == ()
    named = [text for text in made.warnings if text.startswith("keys run as named")]
    assert len(named) == (planned["j"] != "blocked")


def test_keys_as_named_say_nothing_of_how_another_change_reaches_the_job() -> None:
    days = "[[dataset]]\nname = 'in'\ngrain = 'day'\nstart = '2024-03-01'"
    made = plan(request({"in": "2024-03-01"}, jobs={"j": "eu"}), "in > j > out", days)
    assert find(made, "j").reason["text"] == "how its keys read w:in is unknown"


def test_keys_as_named_are_those_of_one_request() -> None:
    planner = Planner(lineage("in > j > out"), declarations(""), now=NOW)
    for key in ("eu", "us"):
        (one,) = planner.plan(request(jobs={"j": key})).jobs
        assert shown(one.partitions) == key
