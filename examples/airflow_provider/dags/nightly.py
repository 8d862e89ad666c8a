"""Repairs each night what is stale, and drives the backfills of a project meanwhile.

The Airflow variable `lineage_backfill_project` names the folder of the project file.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from lineage_backfill_airflow.operators import LineageBackfillOperator, LineageFreshSensor

TOOL = "lineage-backfill"  # or its path in another environment
PROJECT = "{{ var.value.lineage_backfill_project }}"
START = datetime(2026, 1, 1, tzinfo=UTC)

with DAG(
    "lineage_backfill_nightly",
    schedule="0 3 * * *",
    start_date=START,
    catchup=False,
    max_active_runs=1,
):
    stale = BashOperator(
        task_id="stale",
        bash_command=f"cd '{PROJECT}' && {TOOL} stale",
    )
    known = {"project": PROJECT, "command": [TOOL]}
    repair = LineageBackfillOperator(task_id="catchup", retries=2, **known)
    fresh = LineageFreshSensor(task_id="fresh", mode="reschedule", timeout=3600, **known)
    stale >> repair >> fresh

# A service such as systemd does it without a worker's slot.
with DAG(
    "lineage_backfill_drive",
    schedule="@continuous",
    start_date=START,
    catchup=False,
    max_active_runs=1,
):
    BashOperator(
        task_id="drive",
        bash_command=f"cd '{PROJECT}' && exec {TOOL} drive",
        execution_timeout=timedelta(hours=12),
        retries=3,
    )
