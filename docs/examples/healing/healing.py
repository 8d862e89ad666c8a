"""Ingestion that heals itself: see the page "With and without a backfill"."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_runtime import RunContext, job, new_partitions
from spark_runtime.ingest import align_schema


@job(inputs={"feed": "feed"}, output="bronze", on_drift="relax", ignore=["loaded_at"])
def to_bronze(feed: DataFrame) -> DataFrame:
    """Keep a slice as it came, as text: no change of a type can stop it, a new column comes in."""
    texts = align_schema(feed, None, types="string").frame
    return texts.withColumn("loaded_at", F.current_timestamp())


@job(
    inputs={"bronze": new_partitions("bronze")},
    output="silver",
    mode="merge",
    on_drift="add",
    merge_on=["id"],
    # A slice that is extracted again holds the same updated_at: then the later load is right.
    newest_by=["updated_at", "loaded_at"],
)
def to_silver(bronze: DataFrame) -> DataFrame:
    """Merge the slices that were written since the last run, whichever days they are of."""
    types = {"id": "int", "day": "date", "amount": "int", "updated_at": "timestamp"}
    return bronze.drop("extracted").withColumns({n: F.col(n).cast(t) for n, t in types.items()})


@job(inputs={"silver": "silver"}, output="gold", batch="range")
def to_gold(silver: DataFrame, run: RunContext) -> DataFrame:
    """Sum the orders of the days of the run."""
    days = [key.key for key in run.keys]
    return silver.where(F.col("day").isin(days)).groupBy("day").agg(F.sum("amount").alias("amount"))
