"""A plan's document written piece by piece: the same bytes, and memory that runs hardly add to."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from lineage_backfill.plans import plan as plans
from lineage_backfill.plans.document import (
    plan_members,
    plan_to_dict,
)
from lineage_backfill.plans.plan import Plan
from lineage_backfill.show import documents
from tests.unit.planning.world import declarations, plan, request

TOML = """dataset = [
  { name = "h*", grain = "hour" }, { name = "d*", grain = "day" },
  { name = "s*", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
]
"""


@pytest.fixture(autouse=True)
def _holds_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "HELD_RUNS", 0)


EDGES = "h0 > a > h1\nh1 > b > h2\nh2 > c > d1\nd1 > d > s1\nh0, h2 > e > h3"


def made(first: str) -> Plan:
    declared = declarations(TOML, max_runs=100_000)
    return plan(request({"h0": f"{first}..2024-03-29T23"}), EDGES, declared)


def written(made: Plan) -> str:
    return documents.dump(plan_members(made))


@pytest.mark.parametrize("first", ["2024-03-25T00", "2024-03-29T22"])
def test_a_streamed_plan_has_the_bytes_of_a_whole_one(first: str, tmp_path: Path) -> None:
    found = made(first)
    text = written(found)
    assert "runs" not in vars(found)
    assert text == documents.dump(plan_to_dict(made(first)))
    assert json.loads(text) == plan_to_dict(found)
    assert json.loads(text)["id"] == made(first).id
    documents.save(plan_members(found), tmp_path / "plan.json")
    assert (tmp_path / "plan.json").read_text() == text


def test_runs_come_in_the_same_order_however_often_they_are_gone_through() -> None:
    found = made("2024-03-28T00")
    assert found.details.runs is not None
    assert tuple(found.details.runs) == tuple(found.details.runs) == found.runs


@pytest.mark.slow
def test_memory_hardly_grows_with_the_runs(tmp_path: Path) -> None:
    few, many = (_peak(made(first), tmp_path) for first in ("2024-03-27T00", "2024-01-10T00"))
    assert many[0] > 20 * few[0]  # 8,000 runs
    assert many[1] < 2 * few[1], "what writing takes does not grow with the runs"
    assert many[2] < 600 * 8_000, "of a run a few numbers are held"


def _peak(found: Plan, folder: Path) -> tuple[int, int, int]:
    """Return the size of the document, what writing it took, and what was held before."""
    tracemalloc.start()
    try:
        assert found.id
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        documents.save(plan_members(found), folder / "plan.json")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (folder / "plan.json").stat().st_size, peak - held, held
