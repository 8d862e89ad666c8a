"""DAGs for tests against a real Airflow; each task writes a line into a journal when it starts.

A task of a DAG named `slow…` waits for the file `go`. All fail where `fails` is there.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow.providers.standard.operators.python import BranchPythonOperator, PythonOperator
from airflow.sdk import (
    DAG,
    Asset,
    BaseOperator,
    CronPartitionTimetable,
    DayWindow,
    IdentityMapper,
    MonthWindow,
    Param,
    PartitionedAssetTimetable,
    PartitionedAtRuntime,
    ResumableJobMixin,
    RollupMapper,
    StartOfDayMapper,
    StartOfMonthMapper,
    TaskGroup,
)
from airflow.sdk import task as task_function
from airflow.timetables.interval import CronDataIntervalTimetable

FOLDER = Path(__file__).parents[1]
START = datetime(2024, 1, 1, tzinfo=UTC)


def write_down(*, rows: int | None = None, **context: Any) -> None:
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
        **({} if rows is None else {"rows": rows}),
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
    if task.dag_id == "day_failing" and task.try_number == 1:
        raise ValueError("the first try")


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
both = dag("both", [Asset("file:///lake/b"), Asset("file:///lake/never")])
task(both, "read")
slow = dag("slow")
task(slow, "build")
retrying = dag("retrying")
task(retrying, "build", retries=3, retry_delay=timedelta(seconds=1))
scheduled = dag(
    "scheduled",
    catchup=True,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    end_date=datetime(2026, 1, 1, 1, tzinfo=UTC),
)
task(scheduled, "build")
plain = dag("plain", "0 * * * *")
task(plain, "build")
LOCAL = datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
berlin = dag("berlin", "0 0 * * *", start_date=LOCAL)
task(berlin, "build")
two_am = dag("two_am", CronDataIntervalTimetable("0 2 * * *", "Europe/Berlin"), start_date=LOCAL)
task(two_am, "build")
two_plain = dag("two_plain", "0 2 * * *", start_date=LOCAL)
task(two_plain, "build")
param = DAG("param", schedule=None, start_date=START, params={"day": Param(type="string")})
param.is_paused_upon_creation = False
task(param, "build")


def hand_over() -> None:
    """Make the tasks of a DAG that hand over rows."""

    @task_function
    def extract(**context: Any) -> list[int]:
        """Hand over three rows."""
        write_down(**context)
        return [1, 2, 3]

    @task_function
    def load(rows: list[int], **context: Any) -> int:
        """Write them."""
        write_down(rows=len(rows or ()), **context)
        return len(rows)

    @task_function
    def notify(number: int, **context: Any) -> None:
        """Tell their number."""
        write_down(**context)

    notify(load(extract()))


with dag("taskflow"):
    hand_over()
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
single = dag("single", max_active_runs=1)
task(single, "build")
durable = dag("durable")
Durable(task_id="build", dag=durable)
hourly = dag("hourly", CronPartitionTimetable("0 * * * *", timezone="UTC"))
task(hourly, "build", outlets=[Asset("file:///lake/hourly")])
reader = dag(
    "reader",
    PartitionedAssetTimetable(
        assets=Asset("file:///lake/hourly"), default_partition_mapper=IdentityMapper()
    ),
)
task(reader, "build")
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
monthly = dag(
    "monthly", of_hours(RollupMapper(upstream_mapper=StartOfMonthMapper(), window=MonthWindow()))
)
task(monthly, "build")


def day(name: str, schedule: Any = None, **settings: Any) -> DAG:
    """Make a DAG of days in Berlin, with data intervals where nothing else is given."""
    midnights = CronDataIntervalTimetable("0 0 * * *", "Europe/Berlin")
    return dag(name, schedule or midnights, **{"start_date": LOCAL, **settings})


with day("day_taskflow"):
    hand_over()
day_mapped = day("day_mapped")
PythonOperator.partial(task_id="build", dag=day_mapped, python_callable=work).expand(
    op_kwargs=[{"n": 1}, {"n": 2}]
)
day_chained = day("day_chained", default_args={"depends_on_past": True}, max_active_runs=1)
task(day_chained, "build")
day_failing = day("day_failing")
task(day_failing, "build", retries=1, retry_delay=timedelta(seconds=1))
day_param = DAG("day_param", schedule=None, start_date=LOCAL, params={"day": Param(type="string")})
day_param.is_paused_upon_creation = False
task(day_param, "build")
day_later = day("day_later", start_date=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")))
task(day_later, "build")
day_three = day("day_three")
task(day_three, "a") >> task(day_three, "b", outlets=[Asset("file:///lake/day_b")])
day_reader = day("day_reader", [Asset("file:///lake/day_b")])
task(day_reader, "read")
slow_day = day("slow_day", end_date=datetime(2026, 11, 1, tzinfo=UTC))  # none is scheduled
task(slow_day, "build")
versioned = day("day_versioned")
task(versioned, "built" if (FOLDER / "renamed").exists() else "build")
if (FOLDER / "newer").exists():
    task(versioned, "check")
OF_DAYS = {"timezone": "Europe/Berlin", "key_format": "%Y-%m-%d"}
day_keys = day("day_keys", CronPartitionTimetable("0 0 * * *", **OF_DAYS))
task(day_keys, "build", outlets=[Asset("file:///lake/day_keys")])
MONTHS = StartOfMonthMapper(input_format="%Y-%m-%d", timezone="Europe/Berlin")
month_keys = day(
    "month_keys",
    PartitionedAssetTimetable(
        assets=Asset("file:///lake/day_keys"),
        default_partition_mapper=RollupMapper(upstream_mapper=MONTHS, window=MonthWindow()),
    ),
)
task(month_keys, "build")
