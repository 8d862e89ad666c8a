"""What differs between two plans, and what moved in the lineage below them."""

from __future__ import annotations

from lineage_backfill.plans.diff import diff, moved
from lineage_backfill.plans.document import plan_from_dict, plan_to_dict
from tests.unit.planning.world import job, plan, request

DAYS = """dataset = [
  { name = "raw", grain = "day" }, { name = "a", grain = "day" }, { name = "b", grain = "day" },
  { name = "sales", dimensions = [
    { name = "day", grain = "day" }, { name = "region", keys = ["eu", "us"] } ] },
]
"""
EDGES = "raw > ja > a\na > jb > b\na > js > sales"


def test_equal_plans_do_not_differ() -> None:
    one, other = (plan(request({"raw": "2024-03-10"}), EDGES, DAYS) for _ in range(2))
    assert not diff(one, other)
    assert not diff(one, plan_from_dict(plan_to_dict(other)))


def test_other_keys_are_named_job_by_job() -> None:
    before = plan(request({"raw": "2024-03-10"}), EDGES, DAYS)
    after = plan(request({"raw": "2024-03-10..2024-03-11"}), EDGES, DAYS)
    found = diff(before, after)
    assert [(one.job.name, one.changes) for one in found.jobs] == [
        ("ja", ("partitions",)),
        ("jb", ("partitions",)),
        ("js", ("partitions",)),
    ]
    assert not found.lineage_moved


def test_a_new_job_and_a_gone_one() -> None:
    before = plan(request({"raw": "2024-03-10"}), EDGES, DAYS)
    after = plan(request({"raw": "2024-03-10"}), "raw > ja > a\na > jn > b", DAYS)
    found = diff(before, after)
    assert [(one.job.name, one.changes) for one in found.jobs] == [
        ("jb", ("removed",)),
        ("jn", ("added",)),
        ("js", ("removed",)),
    ]
    assert found.jobs[0].after is None
    assert found.jobs[1].before is None
    assert found.lineage_moved
    assert found.moved == ("dataset w:sales", "job w:jb", "job w:jn", "job w:js")


def test_a_job_that_is_no_longer_run() -> None:
    before = plan(request({"raw": "2024-03-10"}), EDGES, DAYS)
    after = plan(
        request({"raw": "2024-03-10"}), EDGES, DAYS + 'job = [{ name = "jb", protected = true }]'
    )
    (found,) = diff(before, after).jobs
    assert found.job == job("jb")
    assert found.changes == ("status", "partitions", "left_stale")
    assert diff(before, after).moved == ("job w:jb",)


def test_a_job_that_runs_the_same_keys_for_another_reason() -> None:
    edges = "raw, b > ja > a"
    before = plan(request({"raw": "2024-03-10"}), edges, DAYS)
    after = plan(request({"b": "2024-03-10"}), edges, DAYS)
    assert [one.changes for one in diff(before, after).jobs] == [("reason",)]


def test_what_moved_is_told_from_the_lineage_of_two_plans() -> None:
    before = plan(request({"raw": "2024-03-10"}), EDGES, DAYS)
    after = plan(request({"raw": "2024-03-10"}), EDGES, 'zone = "Asia/Tokyo"\n' + DAYS)
    assert moved(before.lineage, after.lineage) == ("zone",)
    assert moved({}, before.lineage) == tuple(sorted(before.lineage["parts"]))
