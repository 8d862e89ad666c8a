"""Partitioning facets that jobs send with their lineage: read, written, and given way to."""

from __future__ import annotations

from typing import Any

import pytest

from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.project import facets
from lineage_backfill.project.declarations import JobPartitioning
from tests.unit.planning.world import dataset, declarations, find, job, plan, request, summary

DAY = {"grain": "day"}
EMPTY: tuple[Any, ...] = ([], "", {}, False)


def snapshot(jobs: list[JobNode], **sent: dict[str, Any]) -> LineageSnapshot:
    """Return lineage whose datasets sent these facets."""
    return LineageSnapshot.of(
        jobs, [DatasetNode(ref=dataset(name), partitioning=facet) for name, facet in sent.items()]
    )


def node(name: str, reads: str, writes: str, facet: dict[str, Any] | None = None) -> JobNode:
    return JobNode(
        ref=job(name), reads=(dataset(reads),), writes=(dataset(writes),), partitioning=facet
    )


def test_a_dataset_facet_tells_the_calendar() -> None:
    held = snapshot([node("j", "raw", "days")], raw={"grain": "hour", "zone": "UTC"}, days=DAY)
    assert summary(plan(request({"raw": "2024-03-10T05"}), held, "")) == {"j": "2024-03-10"}


def test_the_project_file_wins_over_the_facet() -> None:
    held = snapshot([node("j", "raw", "days")], raw=DAY, days=DAY)
    toml = 'dataset = [{ name = "days", grain = "week" }]'
    assert summary(plan(request({"raw": "2024-03-10"}), held, toml)) == {"j": "2024-W10"}


def test_a_declaration_that_says_no_calendar_leaves_it_to_the_facet() -> None:
    held = snapshot([node("j", "raw", "days")], raw=DAY, days=DAY)
    toml = 'dataset = [{ name = "days", format = "delta" }]'
    assert summary(plan(request({"raw": "2024-03-10"}), held, toml)) == {"j": "2024-03-10"}


def test_a_job_facet_tells_run_calendar_mapping_and_lookback() -> None:
    facet = {
        "reads": [{"dataset": "raw", "mapping": "window", "before": 1}],
        "writes": [{"dataset": {"namespace": "w", "name": "days"}, "lookback": 1}],
    }
    held = snapshot([node("j", "raw", "days", facet)], raw=DAY, days=DAY)
    assert summary(plan(request({"raw": "2024-03-10"}), held, "")) == {
        "j": "2024-03-09..2024-03-11"
    }
    weekly = snapshot([node("j", "raw", "days", {"grain": "week"})], raw=DAY, days=DAY)
    assert summary(plan(request({"raw": "2024-03-10"}), weekly, "")) == {"j": "2024-W10"}


def test_the_project_file_wins_edge_by_edge_over_a_job_facet() -> None:
    facet = {"reads": [{"dataset": "raw", "mapping": "window", "before": 6}]}
    held = snapshot([node("j", "raw", "days", facet)], raw=DAY, days=DAY)
    toml = 'job = [{ name = "j", reads = [{ dataset = "raw", mapping = "offset", by = -1 }] }]'
    assert summary(plan(request({"raw": "2024-03-10"}), held, toml)) == {"j": "2024-03-11"}


def test_every_job_has_the_mapping_of_its_own_facet() -> None:
    jobs = [
        node(
            f"j{number:02}",
            "raw",
            f"d{number}",
            {"reads": [{"dataset": "raw", "mapping": "offset", "by": -number}]},
        )
        for number in range(1, 20)
    ]
    held = snapshot(jobs, raw=DAY, **{f"d{number}": DAY for number in range(1, 20)})
    made = plan(request({"raw": "2024-03-01"}), held, "")
    assert summary(made) == {f"j{number:02}": f"2024-03-{number + 1:02}" for number in range(1, 20)}


@pytest.mark.parametrize(
    "facet",
    [
        {"grain": "fortnight"},
        {"grain": "day", "cron": "0 0 * * *"},
        {"keys": 5},
        {"dimensions": [{"name": "day"}]},
        {"dimensions": "day"},
        {"grain": "day", "data_lag": "two"},
        {"grain": "day", "data_lag": 1_000_000},
        {"grain": "day", "data_lag": -2},
        {"cron": "0 0 6 * * 1-5"},
        {"cron": "61 * * * *"},
        {"dimensions": [{"name": "day", "cron": "0 0 31 2 *"}]},
        {"grain": "day", "dimensions": [{"name": "day", "grain": "day"}]},
        {"keys": {"a": 1}},
        {"keys": [None]},
        {"keys": ["a", ""]},
        {"keys": ["a", "a"]},
        {"keys": [["a"]]},
        {"keys": ["a", "b"], "start": "2024-01-01"},
        {"grain": "day", "satrt": "2024-04-01"},
        {"grain": "day", "columns": 5},
        {"grain": "day", "column": ["ds", None]},
        {"grain": "day", "dimensions": ""},
    ],
)
def test_a_dataset_whose_facet_cannot_be_read_is_unknown_and_said_aloud(
    facet: dict[str, Any],
) -> None:
    held = snapshot([node("j", "raw", "days")], raw=DAY, days=facet)
    made = plan(request({"raw": "2024-03-10"}), held, "")
    assert find(made, "j").status == "blocked"
    assert any("ignored: the facet of dataset w:days" in text for text in made.warnings)
    declared = 'dataset = [{ name = "days", grain = "day" }]'
    assert summary(plan(request({"raw": "2024-03-10"}), held, declared)) == {"j": "2024-03-10"}


def test_a_number_that_is_null_is_not_given() -> None:
    facet = {
        "reads": [{"dataset": "raw", "mapping": "window", "before": 1, "after": None, "by": None}],
        "writes": [{"dataset": "days", "lookback": None}],
    }
    held = snapshot([node("j", "raw", "days", facet)], raw=DAY | {"data_lag": None}, days=DAY)
    assert summary(plan(request({"raw": "2024-03-10"}), held, "")) == {
        "j": "2024-03-10..2024-03-11"
    }


def test_one_key_of_a_map_need_not_be_a_list() -> None:
    facet = {"reads": [{"dataset": "raw", "mapping": "map", "map": {"eu": "berlin"}}]}
    held = snapshot(
        [node("j", "raw", "out", facet)], raw={"keys": ["berlin"]}, out={"keys": ["eu"]}
    )
    assert summary(plan(request({"raw": "berlin"}), held, "")) == {"j": "eu"}


def test_a_word_that_is_null_is_not_given() -> None:
    words = {"mode": None, "on_empty": None, "on_drift": None}
    facet = {
        "batch": 1.0,
        "reads": [{"dataset": "raw", "mapping": None, "map": None, "on_missing": None}],
        "writes": [{"dataset": "days", **words}],
    }
    held = snapshot([node("j", "raw", "days", facet)], raw=DAY, days=DAY)
    assert summary(plan(request({"raw": "2024-03-10"}), held, "")) == {"j": "2024-03-10"}


@pytest.mark.parametrize(
    ("facet", "said"),
    [
        ({"reads": [{"dataset": "row", "mapping": "window", "before": 6}]}, "the edge to 'row'"),
        ({"reads": [{"dataset": "ro*", "mapping": "window", "before": 6}]}, "the edge to 'ro*'"),
        (
            {"reads": [{"dataset": {"namespace": "v", "name": "raw"}, "mapping": "all"}]},
            "the edge to 'raw'",
        ),
        ({"writes": [{"dataset": "day", "lookback": 6}]}, "the edge to 'day'"),
        ({"writes": [{"dataset": "days"}], "reads": [{"dataset": "r*"}]}, ""),
        ({"reads": [{"dataset": {"namespace": "w", "name": "raw"}}]}, ""),
    ],
)
def test_what_a_job_facet_says_of_nothing_is_told(facet: dict[str, Any], said: str) -> None:
    held = snapshot([node("j", "raw", "days", facet)], raw=DAY, days=DAY)
    made = plan(request({"raw": "2024-03-10"}), held, "")
    assert summary(made) == {"j": "2024-03-10"}
    told = [text for text in made.warnings if text.startswith("ignored: ")]
    assert [text.startswith(f"ignored: {said} in the facet of job w:j") for text in told] == (
        [True] if said else []
    )


@pytest.mark.parametrize(
    "facet",
    [
        {"reads": [{"mapping": "all"}]},
        {"reads": [{"dataset": "raw", "befor": 6}]},
        {"reads": [{"dataset": "raw", "mapping": "sideways"}]},
        {"reads": 3},
        {"writes": [{"dataset": "days", "mode": "sometimes"}]},
        {"writes": [{"dataset": "days", "lookback": "x"}]},
        {"writes": [{"dataset": "days", "lookback": 1_000_000_000}]},
        {"writes": [{"dataset": "days", "lookback": -1}]},
        {"reads": [{"dataset": "raw", "mapping": "window", "before": 1_000_000}]},
        {"reads": [{"dataset": "raw", "mapping": "window", "after": -1}]},
        {"reads": [{"dataset": "raw", "mapping": "offset", "by": -1_000_000_000}]},
        {"reads": [{"dataset": "raw", "dimensions": {"day": {"mapping": "offset", "by": 10**9}}}]},
        {"reads": [{"dataset": "raw", "mapping": "offset"}]},
        {"reads": [{"dataset": "raw"}, {"dataset": "raw", "mapping": "all"}]},
        {"reads": [{"dataset": "raw"}, {"dataset": {"namespace": "w", "name": "raw"}}]},
        {"writes": [{"dataset": "days"}, {"dataset": "days", "mode": "merge"}]},
        {"reads": [{"dataset": "raw", "mapping": "offset", "by": 0}]},
        {"reads": [{"dataset": "raw", "mapping": "map"}]},
        {"reads": [{"dataset": "raw", "mapping": "all", "before": 1}]},
        {"reads": [{"dataset": "raw", "by": -1}]},
        {"reads": [{"dataset": "raw", "mapping": "window", "before": 1.5}]},
        {"reads": [{"dataset": "raw", "mapping": "window", "before": True}]},
        {"writes": [{"dataset": "days", "lookback": "1"}]},
        {"reads": ""},
        {"reads": {}},
        {"writes": False},
        {"dimensions": 0},
        {"reads": [{"dataset": "raw", "dimensions": []}]},
        {"reads": [{"dataset": "raw", "mapping": "map", "map": ["2024-03-10"]}]},
        {"reads": [{"dataset": "raw", "mapping": "map", "map": {"2024-03-10": {"a": 1}}}]},
        {"reads": [{"dataset": "raw", "mapping": "map", "map": {"2024-03-10": [None]}}]},
        {"writes": [{"dataset": "days", "mode": ""}]},
        {"writes": [{"dataset": "days", "on_empty": False}]},
        *(
            facet
            for wrong in EMPTY
            for facet in (
                {"reads": [{"dataset": "raw", "mapping": "window", "before": wrong, "after": 1}]},
                {"reads": [{"dataset": "raw", "mapping": "window", "before": 1, "after": wrong}]},
                {"reads": [{"dataset": "raw", "mapping": "offset", "by": wrong}]},
                {"writes": [{"dataset": "days", "lookback": wrong}]},
            )
        ),
    ],
)
def test_a_job_whose_facet_cannot_be_read_is_blocked_not_guessed_at(facet: dict[str, Any]) -> None:
    held = snapshot([node("j", "raw", "days", facet)], raw=DAY, days=DAY)
    made = plan(request({"raw": "2024-03-10"}), held, "")
    assert find(made, "j").status == "blocked"
    assert any("ignored: the facet of job w:j" in text for text in made.warnings)
    declared = 'job = [{ name = "j", reads = [{ dataset = "raw" }] }]'
    assert summary(plan(request({"raw": "2024-03-10"}), held, declared)) == {"j": "2024-03-10"}


@pytest.mark.parametrize(
    ("read", "raw", "named"),
    [
        ({"mapping": "identity"}, {"grain": "hour"}, "identity needs one grain on both sides"),
        ({"mapping": "map", "map": {"a": ["b"]}}, DAY, "the map names a wrong key"),
        (
            {"mapping": "map", "map": {"2024-03-10": ["x"]}},
            {"keys": ["a"]},
            "a key that does not exist",
        ),
        ({"mapping": "window", "before": 1}, {"keys": ["a"]}, "needs a time dimension"),
        ({"mapping": "offset", "by": -1}, {"grain": "none"}, "needs a time dimension"),
        ({"dimensions": {"x": {"mapping": "all"}}}, DAY, "which neither side has"),
    ],
)
def test_a_job_whose_facet_does_not_fit_is_blocked_and_no_plan_fails(
    read: dict[str, Any], raw: dict[str, Any], named: str
) -> None:
    facet = {"reads": [{"dataset": "raw", **read}]}
    jobs = [node("j", "raw", "days", facet), node("k", "raw", "copy")]
    held = snapshot(jobs, raw=raw, days={**DAY, "start": "2024-03-10"}, copy=raw)
    key = {"hour": "2024-03-10T05", "day": "2024-03-10", "none": None, "": "a"}
    changed = {"raw": key[raw.get("grain", "")]}
    made = plan(request(changed), held, "")
    assert find(made, "k").status == "planned"
    assert find(made, "j").status == "blocked"
    assert find(made, "j").reason["text"].startswith("the facet of job w:j, input w:raw: ")
    assert named in find(made, "j").reason["text"]
    mapping = "overlap" if raw.get("grain") in ("hour", "day") else "all"
    declared = f'job = [{{ name = "j", reads = [{{ dataset = "raw", mapping = "{mapping}" }}] }}]'
    assert find(plan(request(changed), held, declared), "j").status == "planned"


def test_facets_that_are_equal_make_equal_plans_whatever_the_order_of_their_members() -> None:
    one = {"grain": "day", "zone": "UTC", "start": "2024-01-01"}
    other = dict(reversed(one.items()))
    made = [
        plan(request({"raw": "2024-03-10"}), snapshot([node("j", "raw", "d")], raw=f, d=DAY), "")
        for f in (one, other)
    ]
    assert made[0].id == made[1].id


ROUND_TRIP = """
dataset = [
  { name = "hours", grain = "hour", zone = "Asia/Tokyo", start = "2013-01-01T05", data_lag = 2 },
  { name = "slots", every = "8m", start = "2024-01-01T00:00" },
  { name = "cron", cron = "30 * * * *", end = "2024-01-01T00:30" },
  { name = "static", keys = ["eu", "us"] },
  { name = "runtime", keys = "runtime", column = "customer" },
  { name = "none", grain = "none" },
  { name = "sales", dimensions = [
    { name = "day", grain = "day", column = "ds" }, { name = "region", keys = ["eu"] } ] },
]
job = [
  { name = "j", grain = "day", reads = [
      { dataset = "a", mapping = "window", before = 6, after = 1 },
      { dataset = "b", mapping = "offset", by = -1, namespace = "other" },
      { dataset = "c", mapping = "map", map = { eu = ["de", "fr"] } },
    ], writes = [{ dataset = "d", mode = "merge", lookback = 3 }] },
]
"""


def test_what_a_project_file_declares_survives_being_sent_as_a_facet() -> None:
    declared = declarations(ROUND_TRIP)
    for one in declared.datasets:
        facet = facets.dataset_facet(one, "UTC")
        assert facets.dataset_facet(facets.read_dataset(facet, "it"), "UTC") == facet
    (one_job,) = declared.jobs
    sent = facets.read_job(facets.job_facet(one_job, "UTC"), "it")
    assert (sent.calendar, sent.reads) == (
        facets.read_job({"grain": "day", "zone": "UTC"}, "it").calendar,
        one_job.reads,
    )
    assert [(w.dataset, w.mode, w.lookback) for w in sent.writes] == [("d", "merge", 3)]


def test_a_plain_column_is_sent_so_that_marquez_keeps_it() -> None:
    (one,) = declarations('dataset = [{ name = "a", grain = "day", column = "ds" }]').datasets
    facet = facets.dataset_facet(one, "UTC")
    assert facet == {"grain": "day", "zone": "UTC", "column": "ds"}
    for sent in (facet, {"grain": "day", "columns": {"ds": None}}):
        assert facets.read_dataset(sent, "it").columns == {"ds": None}


def test_a_facet_without_a_calendar_says_nothing() -> None:
    assert not facets.read_dataset({"columns": {"day": None}}, "it").has_kind
    assert facets.read_job({}, "it") == JobPartitioning()


def test_find_reports_the_job() -> None:
    held = snapshot([node("j", "raw", "days")], raw=DAY, days=DAY)
    assert find(plan(request({"raw": "2024-03-10"}), held, ""), "j").count == 1


def test_a_facet_that_cannot_be_read_makes_the_dataset_unknown_and_is_told() -> None:
    held = snapshot(
        [node("j", "raw", "days")], raw=DAY, days={"grain": "day", "zone": "Mars/Rover"}
    )
    made = plan(request({"raw": "2024-03-10"}), held, "")
    assert find(made, "j").status == "blocked"
    assert any("ignored" in text and "Mars/Rover" in text for text in made.warnings)
