"""DAGs whose tasks do the jobs beside this file, as docs/airflow.md shows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import ExternalPythonOperator
from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

PROJECT = Path(__file__).parents[1] / "spark"
#: The interpreter that has Spark.
PYTHON = Path((PROJECT / "python").read_text())
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
    python=str(PYTHON),
    python_callable=clean,
    op_args=["{{ dag_run.model_dump_json() }}", str(PROJECT)],
    expect_airflow=False,
    dag=hourly,
)
daily = DAG("spark_daily", schedule=None, is_paused_upon_creation=False, **KNOWN)
BashOperator(
    task_id="daily",
    bash_command=(
        f"{PYTHON.parent}/spark-submit --master local[1] --jars $({PYTHON} -m spark_runtime jars |"
        " paste -sd,) --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension --conf"
        " spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
        f' {PROJECT}/main.py run --job daily --project {PROJECT} --airflow-run "$DAG_RUN"'
    ),
    env={"DAG_RUN": "{{ dag_run.model_dump_json() }}", "PYSPARK_PYTHON": str(PYTHON)},
    append_env=True,
    dag=daily,
)
