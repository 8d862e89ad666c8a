"""Why one key is planned, left or not reached, back to what changed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from lineage_backfill.critic.explain import Explanation, explain, explanation_to_dict
from lineage_backfill.errors import KeyFormatError, MissingKeyError, UnknownNameError
from tests.unit.planning.world import dataset, job, keys, lineage, request, session, shown

DAYS = """dataset = [
  { name = "hours", grain = "hour" }, { name = "days", grain = "day" },
  { name = "a", grain = "day" }, { name = "b", grain = "day" }, { name = "c", grain = "day" },
  { name = "weeks", grain = "week" }, { name = "old", grain = "day", end = "2024-03-01" },
  { name = "young", grain = "day", start = "2024-03-05" },
  { name = "sales", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
  { name = "sums", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
]
"""
CHAIN = "hours > daily > a\na > weekly > weeks\nb > other > c"


def ask(found: Explanation) -> tuple[str, list[str]]:
    """Return the verdict and the hops as `job[keys] <- mapping dataset[stale]`."""
    return found.verdict, [
        f"{hop.job.name}[{shown(hop.keys)}] <- {hop.mapping}"
        + (f" {hop.dataset.name}[{shown(hop.stale)}]" if hop.dataset else "")
        for hop in found.hops
    ]


def changed(found: Explanation) -> dict[str, str]:
    return {ref.name: shown(stale) for ref, stale in (found.changed or {}).items()}


def test_a_planned_key_leads_hop_by_hop_to_what_changed() -> None:
    planning = session(request({"hours": "2024-03-10T05,2024-03-12T01"}), CHAIN, DAYS)
    found = explain(planning, job("weekly"), keys("2024-W10"))
    assert ask(found) == (
        "planned",
        [
            "weekly[2024-W10] <- overlap a[2024-03-10]",
            "daily[2024-03-10] <- overlap hours[2024-03-10T05]",
        ],
    )
    assert changed(found) == {"hours": "2024-03-10T05"}
    assert "changed" in found.sentence


def test_without_keys_the_first_stale_one_is_explained() -> None:
    planning = session(request({"hours": "2024-03-10T05,2024-03-12T01"}), CHAIN, DAYS)
    assert shown(explain(planning, job("daily")).keys) == "2024-03-10"


def test_a_key_that_reads_nothing_stale_is_up_to_date() -> None:
    planning = session(request({"hours": "2024-03-10T05"}), CHAIN, DAYS)
    found = explain(planning, job("daily"), keys("2024-03-11"))
    assert ask(found) == ("up_to_date", [])
    assert found.sentence == "it reads no changed partition"


def test_a_key_that_is_not_complete_is_said_to_be() -> None:
    planning = session(request({"hours": "2024-04-01T05"}), CHAIN, DAYS)
    found = explain(planning, job("daily"), keys("2024-04-01"))
    assert found.verdict == "up_to_date"
    assert "not complete" in found.sentence


def test_a_job_that_nothing_leads_to_is_not_reached() -> None:
    planning = session(request({"hours": "2024-03-10T05"}), CHAIN, DAYS)
    found = explain(planning, job("other"), keys("2024-03-10"))
    assert (found.verdict, found.hops) == ("not_reached", ())


def test_a_job_root_ends_at_the_keys_that_were_asked_for() -> None:
    planning = session(request(jobs={"daily": "2024-03-10"}), CHAIN, DAYS)
    found = explain(planning, job("weekly"), keys("2024-W10"))
    assert ask(found) == (
        "planned",
        ["weekly[2024-W10] <- overlap a[2024-03-10]", "daily[2024-03-10] <- asked"],
    )
    assert changed(found) == {}


def test_lookback_shows_what_the_later_key_reads() -> None:
    toml = DAYS + 'job = [{ name = "daily", writes = [{ dataset = "a", lookback = 2 }] }]'
    planning = session(request({"hours": "2024-03-10T05"}), CHAIN, toml)
    found = explain(planning, job("daily"), keys("2024-03-08"))
    assert ask(found) == (
        "planned",
        ["daily[2024-03-08] <- overlap hours[2024-03-10T05]"],
    )


OWN = 'job = [{ name = "sum", reads = [{ dataset = "b", mapping = "offset", by = -1 }] }]'


def test_self_dependence_leads_back_to_the_first_key_that_something_else_made_stale() -> None:
    planning = session(request({"a": "2024-03-12,2024-03-20"}), "a, b > sum > b", DAYS + OWN)
    found = explain(planning, job("sum"), keys("2024-03-15"))
    assert ask(found)[1][-1] == "sum[2024-03-12] <- identity a[2024-03-12]"
    assert changed(found) == {"a": "2024-03-12"}


def test_self_dependence_by_two_goes_back_by_two() -> None:
    toml = DAYS + OWN.replace("by = -1", "by = -2")
    planning = session(request({"a": "2024-03-11,2024-03-12"}), "a, b > sum > b", toml)
    assert changed(explain(planning, job("sum"), keys("2024-03-15"))) == {"a": "2024-03-11"}
    assert changed(explain(planning, job("sum"), keys("2024-03-16"))) == {"a": "2024-03-12"}


def test_self_dependence_stays_in_its_own_static_key() -> None:
    toml = DAYS + (
        'job = [{ name = "sum", reads = [{ dataset = "sums", mapping = "offset", by = -1 }] }]'
    )
    asked = request({"sales": "day=2024-03-11/region=eu,day=2024-03-12/region=us"})
    planning = session(asked, "sales, sums > sum > sums", toml)
    found = explain(planning, job("sum"), keys("day=2024-03-14/region=us"))
    assert changed(found) == {"sales": "day=2024-03-12/region=us"}


def test_a_fixed_own_partition_is_the_change() -> None:
    planning = session(request({"b": "2024-03-20"}), "a, b > sum > b", DAYS + OWN)
    found = explain(planning, job("sum"), keys("2024-03-23"))
    assert found.verdict == "planned"
    assert changed(found) == {"b": "2024-03-20"}


def test_a_left_key_says_why_and_from_what() -> None:
    toml = DAYS + 'job = [{ name = "daily", protected = true }]'
    planning = session(request({"hours": "2024-03-10T05"}), CHAIN, toml)
    blocked = explain(planning, job("daily"), keys("2024-03-10"))
    assert (blocked.verdict, blocked.sentence) == ("blocked", "the job is protected")
    below = explain(planning, job("weekly"), keys("2024-W10"))
    assert below.verdict == "left_stale"
    assert below.sentence == "no run repairs the stale partitions of w:a"
    assert changed(below) == {"hours": "2024-03-10T05"}


def test_a_blocked_job_says_what_to_declare() -> None:
    planning = session(request({"hours": "2024-03-10T05"}), "hours > j > mystery", DAYS)
    found = explain(planning, job("j"))
    assert found.verdict == "blocked"
    assert "w:mystery is unknown" in found.sentence


def test_a_pruned_job_says_that_it_reads_none_of_the_columns() -> None:
    from lineage_backfill.lineage.snapshot import ColumnEdge, DatasetNode, JobNode, LineageSnapshot
    from tests.unit.planning.world import dataset

    held = LineageSnapshot.of(
        [JobNode(ref=job("j"), reads=(dataset("a"),), writes=(dataset("b"),))],
        column_edges=(
            ColumnEdge(
                job=job("j"),
                input=dataset("a"),
                input_column="size",
                output=dataset("b"),
                output_column="size",
            ),
        ),
    )
    fields = DatasetNode(ref=dataset("a"), fields=("size", "price"))
    known = replace(held, datasets={**held.datasets, dataset("a"): fields})
    planning = session(request({"a": "2024-03-10"}, columns=("price",)), known, DAYS)
    assert explain(planning, job("j"), keys("2024-03-10")).sentence == (
        "it reads none of the changed columns"
    )


ENDS: list[tuple[str, str, dict[str, Any], str, str, tuple[str, str]]] = [
    (
        "a key that reads other partitions says which",
        CHAIN,
        {"changed": {"hours": "2024-03-10T05"}},
        "",
        "daily@2024-03-11",
        (
            "it reads no changed partition",
            (
                "keys daily < hours[2024-03-10T05]: this key reads no changed partition of it;"
                " needs 2024-03-11T00..2024-03-11T23"
            ),
        ),
    ),
    (
        "a mapping that yields no key ends the way, and what is below is told where",
        "a > sum > b\nb > last > c",
        {"changed": {"a": "2024-03-31"}},
        'job = [{ name = "sum", reads = [{ dataset = "a", mapping = "offset", by = -1 }] }]',
        "last",
        (
            "it reads no changed partition",
            (
                "calendar sum < a[2024-03-31]: its run keys that read it, as 2024-04-01,"
                " are not complete yet"
            ),
        ),
    ),
    (
        "a calendar that has ended",
        "a > sum > old",
        {"changed": {"a": "2024-03-31"}},
        "",
        "sum",
        (
            "it reads no changed partition",
            (
                "calendar sum < a[2024-03-31]: its run keys that read it, as 2024-03-31,"
                " are after its last one"
            ),
        ),
    ),
    (
        "a calendar that begins later",
        "a > sum > young",
        {"changed": {"a": "2024-03-01"}},
        "",
        "sum",
        (
            "it reads no changed partition",
            (
                "calendar sum < a[2024-03-01]: its run keys that read it, as 2024-03-01,"
                " are before its first one"
            ),
        ),
    ),
    (
        "a reference lets nothing pass",
        "a, b > sum > c",
        {"changed": {"a": "2024-03-01"}},
        'job = [{ name = "sum", reads = [{ dataset = "a", mapping = "none" }] }]',
        "sum",
        (
            "no path leads from the change to this job",
            "reference sum < a[2024-03-01]: it reads this only as a reference (mapping none)",
        ),
    ),
    (
        "what is above the job that is kept from running",
        CHAIN,
        {"changed": {"hours": "2024-03-10T05"}, "exclude": ("daily",)},
        "",
        "weekly@2024-W10",
        ("no run repairs the stale partitions of w:a", "cut daily: excluded by --exclude"),
    ),
    (
        "depth, with what it leaves",
        CHAIN,
        {"changed": {"hours": "2024-03-10T05"}, "depth": 1},
        "",
        "weekly",
        ("more than 1 job away from the change", ""),
    ),
    (
        "a job above the change",
        CHAIN,
        {"changed": {"a": "2024-03-10"}},
        "",
        "daily",
        ("no path leads from the change to this job; it reads nothing that the change reaches", ""),
    ),
]


@pytest.mark.parametrize(
    ("what", "edges", "asked", "toml", "target", "said"), ENDS, ids=[case[0] for case in ENDS]
)
def test_where_the_ways_from_the_change_end(
    what: str,
    edges: str,
    asked: dict[str, Any],
    toml: str,
    target: str,
    said: tuple[str, str],
) -> None:
    name, _, key = target.partition("@")
    planning = session(request(**asked), edges, f"{DAYS}\n{toml}")
    found = explain(planning, job(name), keys(key or None), why_not=True)
    sentence, ends = said
    assert sentence in found.sentence
    assert found.verdict != "planned"
    told = []
    for end in found.ends:
        through = f" < {end.dataset.name}[{shown(end.stale)}]" if end.dataset else ""
        needs = f"; needs {shown(end.needs)}" if end.needs else ""
        told.append(f"{end.kind} {end.job.name}{through}: {end.sentence}{needs}")
    assert told == ([ends] if ends else [])


def test_why_not_names_edges_that_only_older_runs_had_or_that_lie_within_the_job() -> None:
    hours = dataset("hours")
    snapshot = lineage("hours > daily > a\nb > other > c")
    for change, word in (
        ({"former_reads": (hours,)}, "--include-former follows them"),
        ({"inner": (hours,)}, "pass --job"),
        ({"inner": (dataset("a"),)}, "reads w:a only where its own parts wrote"),
    ):
        other = structs.replace(snapshot.jobs[job("other")], **change)
        changed = replace(snapshot, jobs={**snapshot.jobs, other.ref: other})
        planning = session(request({"hours": "2024-03-10T05"}), changed, DAYS)
        found = explain(planning, job("other"), why_not=True)
        assert found.verdict == "not_reached"
        assert word in found.sentence


def test_why_not_explains_a_key_that_is_left_before_one_that_is_planned() -> None:
    toml = DAYS.replace('{ name = "hours", grain', '{ name = "hours", retention = 100, grain')
    planning = session(request({"hours": "2024-03-20T05,2024-03-31T05"}), CHAIN, toml)
    assert explain(planning, job("daily")).verdict == "planned"
    found = explain(planning, job("daily"), why_not=True)
    assert (found.verdict, shown(found.keys)) == ("left_stale", "2024-03-20")
    assert "past its retention" in found.sentence


def test_wrong_questions_are_refused() -> None:
    planning = session(request({"hours": "2024-03-10T05"}), CHAIN, DAYS)
    with pytest.raises(UnknownNameError) as caught:
        explain(planning, job("dayly"))
    assert "Did you mean daily" in caught.value.hint
    with pytest.raises(KeyFormatError):
        explain(planning, job("daily"), keys("2024-W10"))
    with pytest.raises(MissingKeyError):
        explain(planning, job("daily"), keys("2025-03-10"))


def test_an_explanation_as_a_document() -> None:
    planning = session(request({"hours": "2024-03-10T05"}), CHAIN, DAYS)
    document = explanation_to_dict(explain(planning, job("daily"), keys("2024-03-10")))
    assert json.loads(json.dumps(document)) == {
        "schema_version": 1,
        "kind": "explanation",
        "job": {"namespace": "w", "name": "daily"},
        "partitions": ["2024-03-10"],
        "verdict": "planned",
        "sentence": "it reads partitions that changed or that a planned run rewrites",
        "hint": "",
        "hops": [
            {
                "job": {"namespace": "w", "name": "daily"},
                "partitions": ["2024-03-10"],
                "dataset": {"namespace": "w", "name": "hours"},
                "mapping": "overlap",
                "stale": ["2024-03-10T05"],
                "lookback": 0,
            }
        ],
        "changed": [
            {"dataset": {"namespace": "w", "name": "hours"}, "partitions": ["2024-03-10T05"]}
        ],
        "planned": [],
        "ends": [],
    }


@pytest.mark.parametrize(
    ("changed_key", "key", "lookback"),
    [("2024-03-06", "2024-03-04", 2), ("2024-03-06", "2024-03-06", 0)],
)
def test_lookback_is_named_where_only_it_relates_a_key_to_the_change(
    changed_key: str, key: str, lookback: int
) -> None:
    toml = DAYS + 'job = [{ name = "j", writes = [{ dataset = "b", lookback = 2 }] }]'
    planning = session(request({"a": changed_key}), "a > j > b", toml)
    (hop,) = explain(planning, job("j"), keys(key)).hops
    assert (shown(hop.stale), hop.lookback) == (changed_key, lookback)
    asked = session(request(jobs={"j": changed_key}), "a > j > b", toml)
    (hop,) = explain(asked, job("j"), keys(key)).hops
    assert hop.lookback == lookback
