"""The plan as a document: its members, its round trip, and what was changed by hand."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import (
    ColumnEdge,
    DatasetNode,
    JobNode,
    LineageSnapshot,
    ObservedRun,
)
from lineage_backfill.plans.document import plan_from_dict, plan_to_dict
from lineage_backfill.plans.plan import Plan
from tests.unit.planning.world import NOW, dataset, declarations, job, lineage, plan, request

TOML = """dataset = [
  { name = "raw", grain = "hour" }, { name = "days", grain = "day" },
  { name = "ref", grain = "none" }, { name = "weeks", grain = "week" },
  { name = "sales", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
]
job = [
  { name = "daily", engine = "local" },
  { name = "kept", protected = true },
]
"""
EDGES = """
raw, ref > daily > days
days > weekly > weeks
days > split > sales
days > kept > gone
raw > lost > mystery
"""


def example(**rest: Any) -> Plan:
    asked = request({"raw": "2024-03-10T05..2024-03-11T01"}, **rest)
    return plan(asked, lineage(EDGES, source="events", taken_at=NOW), TOML)


def test_the_members_of_a_plan() -> None:
    document = plan_to_dict(example())
    assert list(document) == [
        "schema_version",
        "kind",
        "id",
        "now",
        "request",
        "lineage",
        "changed",
        "jobs",
        "runs",
        "totals",
        "limits",
        "warnings",
    ]
    assert (document["schema_version"], document["kind"]) == (1, "plan")
    assert document["id"].startswith("sha256:")
    assert document["now"] == "2024-04-01T12:00:00Z"
    assert document["lineage"]["source"] == "events"
    assert document["lineage"]["hash"].startswith("sha256:")
    assert document["lineage"]["taken_at"] == "2024-04-01T12:00:00Z"
    assert document["changed"] == [
        {
            "dataset": {"namespace": "w", "name": "raw"},
            "partitions": ["2024-03-10T05..2024-03-11T01"],
        }
    ]
    assert document["totals"] == {"jobs": 3, "runs": 8, "partitions": 8}


def test_a_planned_job_in_the_document() -> None:
    jobs = {one["job"]["name"]: one for one in plan_to_dict(example())["jobs"]}
    assert jobs["weekly"] == {
        "job": {"namespace": "w", "name": "weekly"},
        "status": "planned",
        "level": 2,
        "partitions": ["2024-W10..2024-W11"],
        "count": 2,
        "left_stale": [],
        "reason": {
            "kind": "stale",
            "path": [
                {
                    "dataset": {"namespace": "w", "name": "raw"},
                    "mapping": "overlap",
                    "job": {"namespace": "w", "name": "daily"},
                },
                {
                    "dataset": {"namespace": "w", "name": "days"},
                    "mapping": "overlap",
                    "job": {"namespace": "w", "name": "weekly"},
                },
            ],
            "inputs": [{"dataset": {"namespace": "w", "name": "days"}, "mapping": "overlap"}],
        },
    }
    assert {name: one["status"] for name, one in jobs.items()} == {
        "daily": "planned",
        "weekly": "planned",
        "split": "planned",
        "kept": "blocked",
        "lost": "blocked",
    }
    assert jobs["split"]["partitions"] == [
        {"day": ["2024-03-10..2024-03-11"], "region": ["eu", "us"]}
    ]


def test_a_run_in_the_document() -> None:
    runs = plan_to_dict(example())["runs"]
    (first,) = [r for r in runs if r["partitions"] == ["2024-03-10"]]
    assert {**first, "id": "r"} == {
        "id": "r",
        "job": {"namespace": "w", "name": "daily"},
        "partitions": ["2024-03-10"],
        "count": 1,
        "wave": 1,
        "upstream": [],
        "engine": "local",
        "reads": [
            {
                "dataset": {"namespace": "w", "name": "raw"},
                "partitions": ["2024-03-10T00..2024-03-10T23"],
            },
            {"dataset": {"namespace": "w", "name": "ref"}, "partitions": "*"},
        ],
        "writes": [{"dataset": {"namespace": "w", "name": "days"}, "partitions": ["2024-03-10"]}],
    }
    ids = {run["id"] for run in runs}
    assert len(ids) == len(runs)
    assert all(set(run["upstream"]) <= ids for run in runs)


def test_a_plan_survives_being_written_and_read() -> None:
    made = example()
    text = json.dumps(plan_to_dict(made))
    again = plan_from_dict(json.loads(text))
    assert json.dumps(plan_to_dict(again)) == text
    assert again.id == made.id


def test_a_plan_of_too_many_runs_has_no_member_runs() -> None:
    made = plan(
        request({"raw": "2024-03-10T05..2024-03-11T01"}), EDGES, declarations(TOML, max_runs=2)
    )
    document = plan_to_dict(made)
    assert "runs" not in document
    assert document["totals"]["runs"] == 8
    assert plan_from_dict(document).runs is None


def _set(document: dict[str, Any], path: str, value: Any) -> None:
    *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    at: Any = document
    for step in steps:
        at = at[step]
    at[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("now", "2024-04-02T12:00:00Z"),
        ("runs/0/partitions/0", "2024-03-12"),
        ("runs/0/writes/0/partitions", ["2024-03-12"]),
        ("runs/0/engine", "command"),
        ("runs/3/upstream", []),
        ("runs", []),
        ("jobs/0/status", "skipped"),
        ("lineage/hash", "sha256:0"),
        ("request/allow", ["protected"]),
        ("warnings", []),
        ("totals/runs", 1),
        ("id", "sha256:0"),
    ],
)
def test_a_plan_that_was_changed_by_hand_is_refused(path: str, value: Any) -> None:
    document = copy.deepcopy(plan_to_dict(example()))
    assert plan_from_dict(document, only_shown=True) == plan_from_dict(document)
    _set(document, path, value)
    with pytest.raises(UsageError, match="it was edited") as caught:
        plan_from_dict(document)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("jobs", 5),
        ("jobs", [5]),
        ("runs", [{}]),
        ("changed", None),
        ("jobs/0/job", "w:daily"),
        ("runs/0/reads", [{"dataset": {"namespace": "w"}}]),
    ],
)
def test_a_plan_that_is_malformed_is_refused(path: str, value: Any) -> None:
    document = copy.deepcopy(plan_to_dict(example()))
    _set(document, path, value)
    with pytest.raises(UsageError, match="cannot be read"):
        plan_from_dict(document)


@pytest.mark.parametrize("document", [{}, {"kind": "explanation"}, [], "plan", None, 3])
def test_what_is_no_plan_is_refused(document: Any) -> None:
    with pytest.raises(UsageError, match="not a plan"):
        plan_from_dict(document)


def test_a_plan_of_another_schema_version_is_refused() -> None:
    with pytest.raises(UsageError, match="schema version 2"):
        plan_from_dict({**plan_to_dict(example()), "schema_version": 2})


# --- same in, same out ------------------------------------------------------------------------


def shuffled(rng: random.Random) -> LineageSnapshot:
    """Return one lineage, given in any order."""
    ordered = lineage(EDGES)
    nodes = list(ordered.jobs.values())
    columns = [
        ColumnEdge(
            job=job("daily"),
            input=dataset("raw"),
            input_column=name,
            output=dataset("days"),
            output_column=name,
        )
        for name in ("a", "b", "c")
    ]
    history = [ObservedRun(job=job("weekly"), run_id=str(n), state="COMPLETE") for n in range(5)]
    held = [DatasetNode(ref=ref) for ref in ordered.datasets]
    for part in (nodes, columns, history, held):
        rng.shuffle(part)
    return LineageSnapshot.of(
        nodes, held, column_edges=tuple(columns), history=tuple(history), source="events"
    )


def test_the_order_in_which_lineage_is_given_does_not_matter() -> None:
    asked = request({"raw": "2024-03-10T05"}, columns=("a",))
    texts = {
        json.dumps(plan_to_dict(plan(asked, shuffled(random.Random(seed)), TOML)))
        for seed in range(6)
    }
    assert len(texts) == 1


SCRIPT = """
import json, sys
from datetime import datetime, UTC
from lineage_backfill.plans.document import plan_to_dict
from lineage_backfill.planning.planner import build_plan
from tests.oracle.worlds import NOW, make_world, planner_input
for seed in (3, 11, 42, 77, 1234):
    print(json.dumps(plan_to_dict(build_plan(*planner_input(make_world(seed)), now=NOW))))
"""


@pytest.mark.slow
def test_the_same_bytes_whatever_the_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1
    assert outputs.pop().count(b'"kind": "plan"') == 5


# --- the lineage hash ---------------------------------------------------------------------------


def fingerprint(snapshot: LineageSnapshot, toml: str = TOML, now: datetime = NOW) -> str:
    made = plan(request({"raw": "2024-03-10T05"}), snapshot, toml, now=now)
    return str(made.lineage["hash"])


def test_the_lineage_hash_covers_the_closure_and_not_run_history() -> None:
    base = lineage(EDGES)
    elsewhere = lineage(EDGES + "other > x > elsewhere")
    finished = lineage(
        EDGES,
        history=(ObservedRun(job=job("daily"), run_id="1", state="COMPLETE", started_at=NOW),),
    )
    assert fingerprint(elsewhere) == fingerprint(base)
    assert fingerprint(finished) == fingerprint(base)
    assert fingerprint(base, now=NOW.replace(hour=13)) == fingerprint(base)
    reader = lineage(EDGES + "days > newcomer > weeks")
    assert fingerprint(reader) != fingerprint(base)
    declared = TOML.replace('name = "weeks", grain = "week"', 'name = "weeks", grain = "month"')
    assert fingerprint(base, declared) != fingerprint(base)
    daily = 'name = "daily", engine = "local"'
    scheduled = TOML.replace(daily, f'{daily}, schedule = "0 6 * * *", schedule_zone = "UTC"')
    assert fingerprint(base, scheduled) == fingerprint(base)
    columns = LineageSnapshot.of(
        base.jobs.values(),
        column_edges=(
            ColumnEdge(
                job=job("daily"),
                input=dataset("raw"),
                input_column="a",
                output=dataset("days"),
                output_column="a",
            ),
        ),
    )
    assert fingerprint(columns) != fingerprint(base)


def test_names_that_text_could_confuse_are_kept_apart() -> None:
    odd = ["a:b", "a/b", "a#b", "a b", "ünïcode", "quote'\"", "new\nline"]
    nodes = [
        JobNode(ref=job(f"j {name}"), reads=(dataset("raw"),), writes=(job_output(name),))
        for name in odd
    ]
    held = LineageSnapshot.of(nodes)
    toml = 'dataset = [{ name = "raw", grain = "hour" }, { name = "out*", grain = "day" }]'
    made = plan(request({"raw": "2024-03-10T05"}), held, toml)
    assert {one.job.name for one in made.jobs} == {f"j {name}" for name in odd}
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(made)))).id == made.id


def job_output(name: str) -> Any:
    return dataset("raw")._replace(name=f"out {name}")
