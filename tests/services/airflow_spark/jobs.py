"""Jobs that tasks of Airflow do; `daily` fails where the file `fails` is beside it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_runtime import job


@job(inputs={"raw": "raw"}, output="clean")
def clean(raw: DataFrame) -> DataFrame:
    """Keep the rows that have a price."""
    return raw.where("price IS NOT NULL")


@job(inputs={"clean": "clean"}, output="daily")
def daily(clean: DataFrame) -> DataFrame:
    """Sum the prices of a day."""
    if Path(__file__).with_name("fails").exists():
        raise ValueError("no such column")
    day = F.substring("hour", 1, 10).alias("day")
    return clean.groupBy(day).agg(F.sum("price").alias("revenue"))


@job(inputs={"daily": "daily"}, output="monthly")
def monthly(daily: DataFrame) -> DataFrame:
    """Sum the revenue of a month."""
    month = F.substring("day", 1, 7).alias("month")
    return daily.groupBy(month).agg(F.sum("revenue").alias("revenue"))
