"""A plan on paper takes as long as its runs, dependencies and caps say."""

from __future__ import annotations

import pytest

from lineage_backfill.model import JobRef
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import PastRun
from lineage_backfill.runs.drive.scheduler import JobLimits
from lineage_backfill.runs.simulate import Estimate, Pace, Spread, estimate
from tests.fakes import planned_run


def past(job: str, *seconds: float, count: int | None = 1) -> list[PastRun]:
    return [PastRun(job=JobRef("n", job), count=count, seconds=one) for one in seconds]


def steps(found: Estimate) -> list[tuple[str, float, float]]:
    return [(step.run.id, step.waited, step.took) for step in found.critical_path]


PACES = [
    ("few past runs say nothing", [(1, 3.0), (1, 3.0)], 1, None),
    ("one size: time grows with the keys", [(2, 4.0), (2, 6.0), (2, 8.0)], 4, (12.0, 16.0)),
    ("two sizes: a start and a part per key", [(1, 12.0), (1, 12.0), (11, 32.0)], 6, (22.0, 22.0)),
    ("no time is saved by more keys", [(1, 9.0), (1, 9.0), (5, 6.0)], 9, (9.0, 9.0)),
    ("no start below zero", [(1, 1.0), (2, 2.0), (10, 30.0)], 10, (10.0, 30.0)),
    ("sizes not known: all take the same", [(None, 5.0), (None, 6.0), (None, 7.0)], 9, (6.0, 7.0)),
    ("nearest rank of ten", [(1, float(n)) for n in range(1, 11)], 1, (5.0, 9.0)),
    ("no time at all", [(1, 0.0), (2, 0.0), (3, 0.0)], 7, (0.0, 0.0)),
    ("only the newest fifty count", [(1, 1.0)] * 50 + [(1, 99.0)] * 50, 1, (1.0, 1.0)),
]


@pytest.mark.parametrize(
    ("runs", "count", "expected"), [case[1:] for case in PACES], ids=[case[0] for case in PACES]
)
def test_a_pace_is_learned_from_past_runs(
    runs: list[tuple[int | None, float]], count: int, expected: tuple[float, float] | None
) -> None:
    job = JobRef("n", "a")
    pace = Pace.of([PastRun(job=job, count=keys, seconds=seconds) for keys, seconds in runs])
    if expected is None:
        assert pace is None
    else:
        assert pace is not None
        seconds = pace.seconds(count)
        assert (seconds.p50, seconds.p90) == pytest.approx(expected, abs=0.001)


def test_what_waits_and_what_works_on_the_critical_path_adds_up_to_the_whole() -> None:
    runs = [
        planned_run("h1", job="hourly"),
        planned_run("h2", job="hourly"),
        planned_run("h3", job="hourly"),
        planned_run("day", "h1", "h2", "h3", job="daily", wave=2),
    ]
    known = [*past("hourly", 10, 10, 20), *past("daily", 5, 5, 5)]
    found = estimate(runs, known, max_parallel=2)
    assert found.makespan == Spread(p50=25, p90=45)
    assert steps(found) == [("h3", 10, 10), ("day", 0, 5)]
    assert [(one.job.name, one.runs, one.busy) for one in found.jobs] == [
        ("hourly", 3, Spread(p50=30, p90=60)),
        ("daily", 1, Spread(p50=5, p90=5)),
    ]
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 10),
        ({"pools": {"spark": 1}, "jobs": JobLimits(pool="spark")}, 30),
        ({"jobs": JobLimits(max_parallel=2)}, 20),
    ],
    ids=["room for all", "a pool of one", "two at once"],
)
def test_the_caps_are_those_of_the_scheduler(limits: dict[str, object], expected: int) -> None:
    runs = [planned_run(f"r{n}", job="a") for n in range(3)]
    given = {"pools": limits.get("pools"), "jobs": {JobRef("n", "a"): limits.get("jobs")}}
    if "jobs" not in limits:
        del given["jobs"]
    found = estimate(runs, past("a", 10, 10, 10), max_parallel=4, **given)  # type: ignore[arg-type]
    assert found.makespan == Spread(p50=expected, p90=expected)


def test_a_job_with_few_past_runs_is_unknown_and_takes_no_time() -> None:
    runs = [planned_run("a"), planned_run("b", "a", wave=2)]
    found = estimate(runs, [*past("a", 1, 1), *past("b", 4, 4, 4)], max_parallel=1)
    assert found.unknown == (JobRef("n", "a"),)
    assert found.makespan == Spread(p50=4, p90=4)
    assert [(one.job.name, one.busy, one.past) for one in found.jobs] == [
        ("b", Spread(p50=4, p90=4), 3),
        ("a", None, 2),
    ]


def test_where_nothing_is_known_no_time_is_named() -> None:
    for runs in ([planned_run("a")], []):
        found = estimate(runs, [], max_parallel=1)
        assert (found.makespan, found.critical_path) == (None, ())


def test_the_start_of_the_slowest_engine_counts_once() -> None:
    runs = [
        planned_run("a", engine="x"),
        planned_run("b", engine="y"),
        planned_run("c", engine="y"),
    ]
    starts = {"x": (1.0, 2.0), "y": (8.0, 20.0, 9.0)}
    found = estimate(
        runs, past("a", 4, 4, 4), max_parallel=1, starts=lambda one: starts.get(one, ())
    )
    assert found.start == Spread(p50=9, p90=20)
    assert found.makespan == Spread(p50=13, p90=24)
    assert found.to_dict()["start"] == {"p50": 9, "p90": 20}
    unknown = estimate(runs, [], max_parallel=1, starts=lambda one: starts.get(one, ()))
    assert unknown.makespan == Spread(p50=9, p90=20)
    assert "start" not in estimate(runs, [], max_parallel=1).to_dict()
    starts["x"] = (1.0, 1.0, 50.0)  # mostly fast, and sometimes the slowest
    either = estimate(runs, [], max_parallel=1, starts=lambda one: starts.get(one, ()))
    assert either.start == Spread(p50=9, p90=50)


def test_runs_outside_of_the_store_count_where_it_knows_few() -> None:
    runs = [planned_run("a"), planned_run("b")]
    own = [*past("a", 1, 1, 1), *past("b", 1)]
    outside = [*past("a", 50, 50, 50), *past("b", 8, 8, count=None)]
    found = estimate(runs, own, outside, max_parallel=1)
    assert [(one.job.name, one.busy) for one in found.jobs] == [
        ("b", Spread(p50=8, p90=8)),
        ("a", Spread(p50=1, p90=1)),
    ]


def test_the_document_names_everything() -> None:
    keys = ("2024-03-01..2024-03-02",)
    runs: list[PlannedRun] = [planned_run("a", keys=keys), planned_run("b", "a", wave=2)]
    found = estimate(runs, past("a", 1.23456, 2, 2), max_parallel=1)
    a, b = ({"namespace": "n", "name": name} for name in "ab")
    assert found.to_dict() == {
        "makespan": {"p50": 2.0, "p90": 2.0},
        "critical_path": [
            {"run": "a", "job": a, "partitions": list(keys), "waited": 0.0, "took": 2.0},
            {
                "run": "b",
                "job": b,
                "partitions": ["2024-03-01"],
                "waited": 0.0,
                "took": 0.0,
            },
        ],
        "jobs": [
            {
                "job": a,
                "runs": 1,
                "partitions": 1,
                "busy": {"p50": 2.0, "p90": 2.0},
                "past_runs": 3,
            },
            {"job": b, "runs": 1, "partitions": 1, "busy": None, "past_runs": 0},
        ],
        "unknown": [b],
    }
