"""Is every table what its job makes of the feed? Recomputes them all, in memory and in one piece.

Nothing is read but the feed's tables, and no partition is picked: what the tables hold came there
piece by piece, and must be the same. In the project's folder: python -m pipeline.check
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline import jobs
from spark_runtime import RunContext, RunKey


@dataclass(frozen=True)
class _Asked:
    """As much of a RunContext as the jobs look at."""

    keys: tuple[RunKey, ...]


def differences(spark: SparkSession, *, root: str) -> dict[str, int]:
    """Return the number of rows, by table, that are in one of table and recomputation only."""
    project = tomllib.loads((Path(root) / "lineage-backfill.toml").read_text(encoding="utf-8"))
    tables = {table["name"]: table for table in project["dataset"]}

    def stored(name: str) -> DataFrame:
        return spark.read.format("delta").load(str(Path(root) / tables[name]["location"]))

    feed = {name: stored(name) for name in ("flights_hourly", "weather_hourly", "airlines")}
    return {
        name: _count_differences(stored(name), _existing(expected, tables[name]))
        for name, expected in recompute(feed, tables).items()
    }


def recompute(
    feed: Mapping[str, DataFrame], tables: Mapping[str, Mapping[str, Any]]
) -> dict[str, DataFrame]:
    """Return every table that the jobs make of the feed; `tables` says which keys exist."""
    made: dict[str, DataFrame] = {}
    made["flights"] = jobs.ingest_flights(feed["flights_hourly"])
    made["weather"] = jobs.ingest_weather(feed["weather_hourly"])
    made["flights_clean"] = jobs.clean_flights(made["flights"]).persist()
    made["weather_clean"] = jobs.clean_weather(made["weather"]).persist()
    made["flights_weather"] = jobs.join_weather(made["flights_clean"], made["weather_clean"])
    daily = made["flights_daily"] = (
        jobs.flights_daily(made["flights_weather"]).coalesce(1).persist()
    )
    made["weather_daily"] = jobs.weather_daily(made["weather_clean"])
    made["rolling_week"] = jobs.rolling_week(daily, _asking(*_days(tables["rolling_week"])))
    weekly = made["flights_weekly"] = jobs.flights_weekly(daily).persist()
    made["flights_monthly"] = jobs.flights_monthly(daily)
    made["running_total"] = _running_total(weekly, tables["running_total"])
    made["carriers"] = jobs.carriers(made["flights_clean"], feed["airlines"]).persist()
    made["carrier_daily"] = jobs.carrier_daily(daily, made["carriers"])
    return made


def _running_total(weekly: DataFrame, table: Mapping[str, Any]) -> DataFrame:
    totals: list[DataFrame] = []
    before: DataFrame | None = None
    for week in _weeks(table):
        # Computed here and now: a plan that holds every week before it would grow without end.
        this = weekly.where(F.col("week") == week)
        before = jobs.running_total(this, before, _asking(week)).localCheckpoint()
        totals.append(before)
    return reduce(lambda some, more: some.unionByName(more), totals)


def _asking(*keys: str) -> RunContext:
    return cast(RunContext, _Asked(tuple(RunKey(key=key) for key in keys)))


def _days(table: Mapping[str, Any]) -> Iterator[str]:
    day = date.fromisoformat(table["start"])
    while day <= date.fromisoformat(table["end"]):
        yield day.isoformat()
        day += timedelta(days=1)


def _weeks(table: Mapping[str, Any]) -> Iterator[str]:
    monday = _monday(table["start"])
    while monday <= _monday(table["end"]):
        yield f"{monday:%G-W%V}"
        monday += timedelta(days=7)


def _monday(week: str) -> date:
    return date.fromisoformat(f"{week}-1")


def _existing(rows: DataFrame, table: Mapping[str, Any]) -> DataFrame:
    """Keep the partitions that exist: the half weeks at the edges of a month do not."""
    if "start" not in table:
        return rows
    column = table.get("column") or next(iter(table["columns"]))
    return rows.where(F.col(column).cast("string").between(table["start"], table["end"]))


def _count_differences(stored: DataFrame, expected: DataFrame) -> int:
    """Count the rows that one side has more often than the other, whatever their order."""
    signed = stored.withColumn("_sign", F.lit(1)).unionByName(
        expected.withColumn("_sign", F.lit(-1))
    )
    surplus = signed.groupBy(stored.columns).agg(F.sum("_sign").alias("_surplus"))
    return int(surplus.agg(F.coalesce(F.sum(F.abs("_surplus")), F.lit(0))).collect()[0][0])


def main() -> None:
    """Check the project in the working directory; exit 1 if a table differs."""
    from spark_runtime.session import get_session

    found = differences(get_session(), root=str(Path.cwd()))
    for name, rows in found.items():
        verdict = f"{rows} rows differ" if rows else "as recomputed"
        sys.stdout.write(f"{name}: {verdict}\n")
    sys.exit(1 if any(found.values()) else 0)


if __name__ == "__main__":
    main()
