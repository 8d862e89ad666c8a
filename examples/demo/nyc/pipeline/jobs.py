"""Thirteen jobs over the departures from New York: functions from DataFrames to a DataFrame.

A job is given the partitions that it needs and returns those that it was asked for. It neither
reads nor writes a table itself, so that the same function serves one hour, a year, and a test.
`batch="range"`: it can do many partitions at once.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_runtime import RunContext, job

ZONE = "America/New_York"
LATE = 15  # minutes after which a departure counts as late


@job(inputs={"feed": "flights_hourly"}, output="flights", batch="range")
def ingest_flights(feed: DataFrame) -> DataFrame:
    """Give the feed's text its types; `NA` becomes NULL."""
    return feed.select(
        "hour_utc",
        "carrier",
        F.col("flight").cast("int"),
        "origin",
        "dest",
        F.col("sched_dep_time").cast("int"),
        F.col("dep_delay").try_cast("int"),
        F.col("distance").cast("int"),
    )


@job(inputs={"feed": "weather_hourly"}, output="weather", batch="range")
def ingest_weather(feed: DataFrame) -> DataFrame:
    """Give the feed's text its types; `NA` becomes NULL."""
    return feed.select(
        "hour_utc",
        "origin",
        F.col("temp").try_cast("decimal(5,2)"),
        F.col("precip").try_cast("decimal(5,2)"),
        F.col("visib").try_cast("decimal(5,2)"),
    )


@job(inputs={"flights": "flights"}, output="flights_clean", batch="range")
def clean_flights(flights: DataFrame) -> DataFrame:
    """Keep each departure once; who left early is zero minutes late, who never left has NULL."""
    return flights.distinct().select(
        "hour_utc",
        "carrier",
        "flight",
        "origin",
        "dest",
        "distance",
        F.col("dep_delay").isNull().alias("cancelled"),
        F.when(F.col("dep_delay") < 0, 0).otherwise(F.col("dep_delay")).alias("late_minutes"),
    )


@job(inputs={"weather": "weather"}, output="weather_clean", batch="range")
def clean_weather(weather: DataFrame) -> DataFrame:
    """Keep the observations that have a temperature, and say in words what they mean for flying."""
    return weather.dropna(subset=["temp"]).select(
        "*",
        F.when(F.col("visib") < 3, "poor")
        .when(F.col("precip") > 0, "wet")
        .otherwise("fair")
        .alias("conditions"),
    )


@job(
    inputs={"flights": "flights_clean", "weather": "weather_clean"},
    output="flights_weather",
    batch="range",
)
def join_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Put the weather at its airport beside each departure."""
    observed = weather.select("hour_utc", "origin", "temp", "conditions")
    return flights.join(observed, ["hour_utc", "origin"], "left")


@job(inputs={"flights": "flights_weather"}, output="flights_daily", batch="range")
def flights_daily(flights: DataFrame) -> DataFrame:
    """Count a day's departures by carrier; a day begins and ends at midnight in New York."""
    foul = F.coalesce(F.col("conditions") != "fair", F.lit(False))
    return flights.groupBy(local_day("hour_utc").alias("day"), "carrier").agg(
        F.count("*").alias("flights"),
        F.count_if("cancelled").alias("cancelled"),
        F.count_if(F.col("late_minutes") >= LATE).alias("late"),
        F.coalesce(F.sum("late_minutes"), F.lit(0)).alias("late_minutes"),
        F.count_if(foul).alias("foul_weather"),
        F.sum("distance").alias("distance"),
    )


@job(inputs={"days": "flights_daily"}, output="rolling_week", batch="range")
def rolling_week(days: DataFrame, run: RunContext) -> DataFrame:
    """Sum the seven days that end with each day asked for."""
    # A day counts towards its own week and towards those of the six days after it.
    weeks = days.withColumn("day", F.explode(F.sequence("day", F.date_add("day", 6))))
    asked_for = F.col("day").isin([key.key for key in run.keys])
    return weeks.where(asked_for).groupBy("day", "carrier").agg(*totals())


@job(inputs={"days": "flights_daily"}, output="flights_weekly", batch="range")
def flights_weekly(days: DataFrame) -> DataFrame:
    """Sum the days of each ISO week, Monday to Sunday."""
    year = F.extract(F.lit("YEAROFWEEK"), "day").cast("string")
    number = F.lpad(F.weekofyear("day").cast("string"), 2, "0")
    return days.groupBy(F.concat(year, F.lit("-W"), number).alias("week"), "carrier").agg(*totals())


@job(inputs={"days": "flights_daily"}, output="flights_monthly", batch="range")
def flights_monthly(days: DataFrame) -> DataFrame:
    """Sum the days of each month."""
    month = F.trunc("day", "month").alias("month")
    return days.groupBy(month, "carrier").agg(*totals())


@job(inputs={"week": "flights_weekly", "before": "running_total"}, output="running_total")
def running_total(week: DataFrame, before: DataFrame | None, run: RunContext) -> DataFrame:
    """Add a week to the totals of the week before it; the first week has none before it."""
    columns = ["carrier", "flights", "cancelled", "late", "late_minutes"]
    so_far = week.select(columns)
    if before is not None:
        so_far = so_far.unionByName(before.select(columns))
    (this,) = run.keys  # one after the other: each needs what the one before has written
    return so_far.groupBy(F.lit(this.key).alias("week"), "carrier").agg(*totals())


@job(inputs={"flights": "flights_clean", "airlines": "airlines"}, output="carriers", batch="range")
def carriers(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Describe each carrier by all its departures so far."""
    left = F.count("late_minutes")
    late = F.count_if(F.col("late_minutes") >= LATE)
    known = flights.groupBy("carrier").agg(
        F.min("hour_utc").alias("first_seen"),
        F.max("hour_utc").alias("last_seen"),
        F.countDistinct("dest").alias("destinations"),
        F.count("*").alias("flights"),
        share(late, left).alias("late_share"),
    )
    return known.join(airlines, "carrier", "left")


@job(
    inputs={"days": "flights_daily", "carriers": "carriers"}, output="carrier_daily", batch="range"
)
def carrier_daily(days: DataFrame, carriers: DataFrame) -> DataFrame:
    """Hold each carrier's day against what is usual for it."""
    usual = carriers.select("carrier", "name", F.col("late_share").alias("usual_late_share"))
    today = share(F.col("late"), F.col("flights") - F.col("cancelled"))
    return days.join(usual, "carrier").select(
        "day", "carrier", "name", "flights", today.alias("late_share"), "usual_late_share"
    )


@job(inputs={"weather": "weather_clean"}, output="weather_daily", batch="range")
def weather_daily(weather: DataFrame) -> DataFrame:
    """Sum up a New York day's weather at each airport."""
    return weather.groupBy(local_day("hour_utc").alias("day"), "origin").agg(
        F.min("temp").alias("coldest"),
        F.max("temp").alias("warmest"),
        F.sum("precip").alias("rain"),
        F.count_if(F.col("conditions") == "poor").alias("hours_of_poor_sight"),
    )


def local_day(hour_utc: str) -> Column:
    """Return the day in New York on which the UTC hour in this column lies."""
    utc = F.to_timestamp_ntz(hour_utc, F.lit("yyyy-MM-dd'T'HH"))
    return F.to_date(F.convert_timezone(F.lit("UTC"), F.lit(ZONE), utc))


def share(part: Column, whole: Column) -> Column:
    """Return part of whole, exact to four places; NULL where the whole is nothing."""
    return F.try_divide(part.cast("decimal(18,0)"), whole).cast("decimal(5,4)")


def totals() -> list[Column]:
    """Return the sums that weeks, months and running totals have in common."""
    return [F.sum(name).alias(name) for name in ("flights", "cancelled", "late", "late_minutes")]
