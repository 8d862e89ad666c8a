"""The script of a plan for Airflow: what stands in it, as bash reads it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from msgspec import structs

from lineage_backfill.engines.airflow.script import plan_script
from lineage_backfill.errors import EngineError, GuardRailError
from lineage_backfill.plans.plan import Listed, Plan
from lineage_backfill.project.declarations import DagTasks
from tests.airflow_suite import planned
from tests.unit.partitions.support import calendar

DAYS = calendar(datetime(2026, 6, 1, tzinfo=UTC), grain="day", start="2026-01-01")
EVIL = "a'b$(touch evil)\n`touch evil`; é"


def plan(*jobs: str) -> Plan:
    """Return a plan of one run each, each after the one before it."""
    runs = [
        structs.replace(
            planned(job),
            id=f"r-{number}",
            partitions=("2026-05-01..2026-05-02",),
            wave=number + 1,
            upstream=(f"r-{number - 1}",) if number else (),
        )
        for number, job in enumerate(jobs)
    ]
    return Plan(
        now="2026-06-01T00:00:00Z",
        request={},
        changed=(),
        totals={"runs": len(runs)},
        details=Listed(jobs=(), lineage={}, runs=tuple(runs)),
    )


def script(made: Plan, task: DagTasks | None) -> str:
    """Return the script of a plan whose jobs are one task."""
    return "\n".join(plan_script(made, lambda _job: DAYS, lambda _job: task))


def calls(text: str) -> list[list[str]]:
    """Return the steps of a script as bash calls them, without running them."""
    head, _, steps = text.partition("# Wave 1")
    assert "step() {" in head
    shown = "show() { printf '%s\\0' \"$@\"; printf '\\n\\0'; }; step() { show step \"$@\"; };"
    shown += 'other() { show other "$@"; }; echo() { :; };'
    said = subprocess.check_output(["bash", "-c", f"{shown}\n{steps}"], text=True)
    return [one.strip("\0").split("\0") for one in said.split("\n\0") if one]


def test_each_key_is_a_step_with_its_slice_in_the_order_of_the_plan() -> None:
    text = script(plan("up", "down"), DagTasks(dag="d.x", tasks=("t.y",), slice="interval"))
    found = calls(text)
    names = ["up 2026-05-01", "up 2026-05-02", "down 2026-05-01", "down 2026-05-02"]
    assert [one[1] for one in found] == names
    assert [one[2:4] for one in found] == [["d.x", '["t.y"]']] * 4
    assert found[0][4] == (
        "logical_date_gte=2026-05-01T00%3A00%3A00%2B00%3A00"
        "&logical_date_lte=2026-05-01T00%3A00%3A00%2B00%3A00"
    )
    assert '"data_interval_end": "2026-05-02T00:00:00+00:00"' in found[0][6]
    assert len({one[5] for one in found}) == 4
    assert "# after up 2026-05-01..2026-05-02\n" in text


@pytest.mark.parametrize(
    ("kind", "query", "told"),
    [
        ("partition_key %Y%m%d", "partition_key_prefix_pattern=20260501&", '"20260501"'),
        ("logical_date + 26h", "logical_date_gte=2026-05-02T02", "2026-05-02T02:00:00+00:00"),
        ("conf", "run_id_prefix_pattern=lb__", '"key": "2026-05-01"'),
    ],
)
def test_a_slice_is_told_as_the_job_says(kind: str, query: str, told: str) -> None:
    step = calls(script(plan("up"), DagTasks(dag="d", tasks=("t",), slice=kind)))[0]
    assert step[4].startswith(query)
    assert told in step[6]


def test_names_from_lineage_are_no_commands() -> None:
    task = DagTasks(dag=EVIL, tasks=(EVIL,), slice="interval")
    found = calls(script(plan(EVIL, EVIL), task))
    assert [one[2] for one in found] == [EVIL] * 4
    assert {one[0] for one in calls(script(plan(EVIL), None))} == {"other"}


def test_a_job_that_airflow_does_not_run_is_left_to_the_person() -> None:
    assert calls(script(plan("spark"), None)) == [["other", "spark 2026-05-01..2026-05-02"]]


def test_a_slice_that_nothing_tells_is_refused() -> None:
    with pytest.raises(EngineError, match="nor the lineage of DAG d says which slice") as refused:
        script(plan("up"), DagTasks(dag="d", tasks=("t",)))
    assert 'slice = "interval"' in refused.value.hint
    with pytest.raises(GuardRailError, match="more than `max_runs`"):
        script(replace(plan(), details=Listed(jobs=(), lineage={}, runs=None)), None)
