"""DAGs whose tasks do the jobs beside this file, as docs/airflow.md shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import ExternalPythonOperator
from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

PROJECT = Path(__file__).parents[1] / "spark"
#: Of this machine: `python` has Spark; and where `runtime` and Delta's `jars` are.
PLACES = json.loads((PROJECT / "places.json").read_text())
KNOWN = {"start_date": datetime(2026, 1, 1, tzinfo=UTC), "catchup": False}


def clean(dag_run: str, project: str) -> None:
    """Do the job in another interpreter than Airflow's."""
    from spark_runtime.__main__ import main

    if main(["run", "--job", "clean", "--project", project, "--airflow-run", dag_run]) != 0:
        raise RuntimeError("the job failed, see above")


hourly = DAG(
    "spark_hourly",
    schedule=CronDataIntervalTimetable("0 * * * *", "UTC"),
    is_paused_upon_creation=False,
    **KNOWN,
)
ExternalPythonOperator(
    task_id="clean",
    python=PLACES["python"],
    python_callable=clean,
    op_args=["{{ dag_run.model_dump_json() }}", str(PROJECT)],
    expect_airflow=False,
    dag=hourly,
)
daily = DAG("spark_daily", schedule=None, is_paused_upon_creation=False, **KNOWN)
SparkSubmitOperator(
    task_id="daily",
    application=PLACES["runtime"],
    application_args=[
        *("run", "--job", "daily", "--project", str(PROJECT)),
        *("--airflow-run", "{{ dag_run.model_dump_json() }}"),
    ],
    jars=PLACES["jars"],
    conf={
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",  # 50 for a few files take the time
        "spark.ui.enabled": "false",
    },
    env_vars={"PYSPARK_PYTHON": PLACES["python"]},
    dag=daily,
)
monthly = DAG("spark_monthly", schedule=None, is_paused_upon_creation=False, **KNOWN)
BashOperator(
    task_id="monthly",
    bash_command=f'"{PLACES["python"]}" "{PLACES["runtime"]}" run --job monthly'
    f' --project "{PROJECT}" --airflow-run "$DAG_RUN"',
    env={"DAG_RUN": "{{ dag_run.model_dump_json() }}"},
    append_env=True,
    dag=monthly,
)
