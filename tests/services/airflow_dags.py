"""DAGs for tests against a real Airflow; each task writes a line into a journal when it starts.

A task of a DAG named `slow…` waits for the file `go`. All fail where `fails` is there.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.python import BranchPythonOperator, PythonOperator
from airflow.sdk import (
    DAG,
    Asset,
    BaseOperator,
    CronPartitionTimetable,
    DayWindow,
    IdentityMapper,
    MinimumCount,
    MonthWindow,
    PartitionedAssetTimetable,
    PartitionedAtRuntime,
    ResumableJobMixin,
    RollupMapper,
    StartOfDayMapper,
    StartOfMonthMapper,
    TaskGroup,
)
from airflow.timetables.interval import CronDataIntervalTimetable

FOLDER = Path(__file__).parents[1]
START = datetime(2026, 1, 1, tzinfo=UTC)


def write_down(**context: Any) -> None:
    """Write a line about what runs into the journal."""
    run, task = context["dag_run"], context["ti"]
    line = {
        "task": f"{task.dag_id}.{task.task_id}",
        "run": run.run_id,
        "try": task.try_number,
        "start": str(context.get("data_interval_start")),
        "end": str(context.get("data_interval_end")),
        "key": run.partition_key,
        "conf": run.conf,
        "at": datetime.now(UTC).isoformat(),
    }
    with (FOLDER / "journal").open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(line) + "\n")


def work(**context: Any) -> None:
    """Write down what runs, and end as the files in the folder say."""
    write_down(**context)
    task = context["ti"]
    print("a line of", task.task_id)  # noqa: T201 - it stands in the log
    if task.dag_id.startswith("slow"):
        for _ in range(600):
            if (FOLDER / "go").exists():
                break
            time.sleep(0.1)
    fail_if_told()


def fail_if_told() -> None:
    """Fail where the file says so."""
    if (FOLDER / "fails").exists():
        raise ValueError("no such column")


class Durable(ResumableJobMixin, BaseOperator):  # type: ignore[misc]
    """Stores its job, as `SparkSubmitOperator` does in cluster mode: a later try follows it."""

    def execute(self, context: Any) -> None:
        self.execute_resumable(context)

    def submit_job(self, context: Any) -> str:
        write_down(**context)
        return "job"

    def get_job_status(self, *_: Any) -> str:
        return "SUCCEEDED"

    def is_job_active(self, _: str) -> bool:
        return False

    def is_job_succeeded(self, _: str) -> bool:
        return True

    def poll_until_complete(self, *_: Any) -> None:
        fail_if_told()

    def get_job_result(self, *_: Any) -> None: ...


def task(dag: DAG, name: str, **settings: Any) -> Any:
    """Make a task."""
    return PythonOperator(task_id=name, python_callable=work, dag=dag, **settings)


def dag(name: str, schedule: Any = None, **settings: Any) -> DAG:
    """Make a DAG, hourly with data intervals where nothing else is given."""
    schedule = CronDataIntervalTimetable("0 * * * *", "UTC") if schedule is None else schedule
    known = {"start_date": START, "catchup": False, "is_paused_upon_creation": False}
    return DAG(name, schedule=schedule, **{**known, **settings})


one = dag("one", max_active_runs=2)
task(one, "build")
three = dag("three")
task(three, "a") >> task(three, "b", outlets=[Asset("file:///lake/b")]) >> task(three, "c")
follower = dag("follower", [Asset("file:///lake/b")])
task(follower, "read")
slow = dag("slow")
task(slow, "build")
retrying = dag("retrying")
task(retrying, "build", retries=3, retry_delay=timedelta(seconds=1))
scheduled = dag("scheduled", catchup=True, end_date=START + timedelta(hours=1))
task(scheduled, "build")
plain = dag("plain", "0 * * * *")
task(plain, "build")
paused = dag("paused", is_paused_upon_creation=True)
task(paused, "build")
only_scheduled = dag("only_scheduled", allowed_run_types=["scheduled"])
task(only_scheduled, "build")
mapped = dag("mapped")
PythonOperator.partial(task_id="build", dag=mapped, python_callable=work).expand(
    op_kwargs=[{"n": 1}, {"n": 2}]
)
grouped = dag("grouped")
with TaskGroup("g", dag=grouped):
    task(grouped, "a") >> task(grouped, "b") >> task(grouped, "c")
branching = dag("branching")


def choose_left(**context: Any) -> str:
    """Write down that it runs, and let only the left side run."""
    work(**context)
    return "left"


sides = [task(branching, "left"), task(branching, "right")]
choice = BranchPythonOperator(task_id="choice", dag=branching, python_callable=choose_left)
choice >> sides >> task(branching, "join", trigger_rule="none_failed_min_one_success")
late = dag("late")
task(late, "a") >> task(late, "b", trigger_rule="all_done") >> task(late, "c")
framed = dag("framed")
begin, end = task(framed, "begin").as_setup(), task(framed, "end").as_teardown()
task(framed, "before") >> begin >> task(framed, "build") >> end
begin >> end
single = dag("single", max_active_runs=1)
task(single, "build")
chained = dag("chained", default_args={"depends_on_past": True})
task(chained, "build")
durable = dag("durable")
Durable(task_id="build", dag=durable)
versioned = dag("versioned")
task(versioned, "build")
if (FOLDER / "newer").exists():
    task(versioned, "check")
parted = dag("parted", CronPartitionTimetable("0 0 * * *", timezone="UTC", key_format="%Y-%m-%d"))
task(parted, "build", outlets=[Asset("file:///lake/parted")])
reader = dag(
    "reader",
    PartitionedAssetTimetable(
        assets=Asset("file:///lake/parted"), default_partition_mapper=IdentityMapper()
    ),
)
task(reader, "build")
hourly = dag("hourly", CronPartitionTimetable("0 * * * *", timezone="UTC"))
task(hourly, "build", outlets=[Asset("file:///lake/hourly")])
slow_key = dag(
    "slow_key", CronPartitionTimetable("0 * * * *", timezone="UTC", key_format="%Y-%m-%dT%H")
)
task(slow_key, "build")
by_hand = dag("by_hand", PartitionedAtRuntime())
task(by_hand, "build")


def of_hours(mapper: Any) -> PartitionedAssetTimetable:
    """Return the timetable of a DAG that starts with the hours of a longer period."""
    hours = Asset("file:///lake/hourly")
    return PartitionedAssetTimetable(assets=hours, default_partition_mapper=mapper)


DAYS = {"upstream_mapper": StartOfDayMapper(), "window": DayWindow()}
rollup = dag("rollup", of_hours(RollupMapper(**DAYS)))
task(rollup, "build")
eager = dag("eager", of_hours(RollupMapper(**DAYS, wait_policy=MinimumCount(2))))
task(eager, "build")
monthly = dag(
    "monthly", of_hours(RollupMapper(upstream_mapper=StartOfMonthMapper(), window=MonthWindow()))
)
task(monthly, "build")
