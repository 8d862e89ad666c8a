"""Runs attempts as tasks of DAG runs in Airflow 3."""
