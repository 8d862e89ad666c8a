"""Five DAGs of a food delivery service: hourly, daily, a rolling week, weekly, and by an asset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import (
    DAG,
    Asset,
    CronPartitionTimetable,
    IdentityMapper,
    PartitionedAssetTimetable,
)
from airflow.timetables.interval import CronDataIntervalTimetable
from food_delivery_tables import build

LAKE = Path(__file__).resolve().parents[1] / "lake"
ASSETS = {
    name: Asset(name=name, uri=f"file://{LAKE}/{name}")
    for name in (
        "raw_orders",
        "clean_orders",
        "daily_revenue",
        "city_report",
        "rolling_week",
        "weekly_report",
    )
}


def work(table: str, form: str | None, **context: Any) -> None:
    """Build the partition that a DAG run is for."""
    run = context["dag_run"]
    key = run.partition_key if form is None else run.data_interval_start.strftime(form)
    build(LAKE, table, key)
    with (LAKE / "journal").open("a") as journal:
        journal.write(f"{table} {key} {run.run_id}\n")


def dag(table: str, source: str, schedule: Any, form: str | None = None) -> None:
    """Make the DAG that builds a table; `form` is how its keys are written, None if by Airflow."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with DAG(
        table,
        schedule=schedule,
        start_date=today - timedelta(days=60),
        catchup=False,
        max_active_runs=3,
        is_paused_upon_creation=False,
    ):
        PythonOperator(
            task_id="build",
            python_callable=work,
            op_kwargs={"table": table, "form": form},
            inlets=[ASSETS[source]],
            outlets=[ASSETS[table]],
        )


def every(cron: str) -> CronDataIntervalTimetable:
    """Return a timetable with data intervals, in UTC."""
    return CronDataIntervalTimetable(cron, "UTC")


dag("clean_orders", "raw_orders", every("0 * * * *"), "%Y-%m-%dT%H")
dag(
    "daily_revenue",
    "clean_orders",
    CronPartitionTimetable("0 0 * * *", timezone="UTC", key_format="%Y-%m-%d", run_offset=-1),
)
dag("rolling_week", "daily_revenue", every("0 0 * * *"), "%Y-%m-%d")
dag("weekly_report", "daily_revenue", every("0 0 * * 1"), "%G-W%V")
dag(
    "city_report",
    "daily_revenue",
    PartitionedAssetTimetable(
        assets=ASSETS["daily_revenue"], default_partition_mapper=IdentityMapper()
    ),
)
