"""The one way in which rows of a Delta table are replaced: whole partitions, in one commit."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from spark_runtime.deltalog import METADATA_KEY, DeltaLog
from spark_runtime.errors import TableError
from spark_runtime.values import PartitionColumn, Values, describe, predicate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Delta's conflicts have no common Python class; this is what their messages have in common.
_CONFLICT = re.compile(
    r"\[?DELTA_(CONCURRENT_[A-Z_.]+|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|Concurrent(Append|DeleteRead|DeleteDelete|Write|Transaction)Exception"
    r"|(Metadata|Protocol)ChangedException"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What makes a commit ours, and one that Delta does not make twice."""

    app_id: str
    version: int
    metadata: Mapping[str, Any]


def replace(
    frame: DataFrame,
    location: str,
    columns: tuple[PartitionColumn, ...],
    scope: Collection[Values],
    transaction: Transaction,
) -> None:
    """Replace the partitions in `scope`, or the whole table if it has no partition columns."""
    writer = frame.write.format("delta").mode("overwrite")
    if columns:
        writer = writer.option("replaceWhere", predicate(columns, scope))
    _with(writer, transaction).option("partitionOverwriteMode", "static").save(location)


def append(frame: DataFrame, location: str, transaction: Transaction) -> None:
    """Add rows, once for a transaction however often it is asked for."""
    _with(frame.write.format("delta").mode("append"), transaction).save(location)


def put_back(
    spark: SparkSession,
    log: DeltaLog,
    scope: Collection[Values],
    version: int,
    transaction: Transaction,
) -> None:
    """Make partitions what they were at a version; raises TableError if its files are gone."""
    state = log.state(version)
    for values in scope:
        held = state.contents(values)
        if held.files is None:
            raise TableError(
                f"version {version} of {log.location} cannot be read from its log any more"
            )
        for path, _vector in held.files:
            if not (log.root / unquote(path)).exists():
                raise TableError(
                    f"a file of {describe(state.columns, values)} at version {version} of "
                    f"{log.location} is gone",
                    hint="it was vacuumed; restore it from a backup",
                )
    name = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
    before = spark.conf.get(name, None)
    # Delta refuses versions older than a week even where, as checked above, all files are there.
    spark.conf.set(name, "false")
    try:
        frame = spark.read.format("delta").option("versionAsOf", version).load(log.location)
        if state.columns:
            frame = frame.where(predicate(state.columns, scope))
        replace(frame, log.location, state.columns, scope, transaction)
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def is_conflict(error: BaseException) -> bool:
    """Whether somebody else's commit made ours fail (nothing of it is visible then)."""
    return _CONFLICT.search(f"{type(error).__name__}: {error}") is not None


def _with(writer: Any, transaction: Transaction) -> Any:
    return (
        writer.option("txnAppId", transaction.app_id)
        .option("txnVersion", str(transaction.version))
        .option(
            "userMetadata",
            json.dumps({METADATA_KEY: dict(transaction.metadata)}, ensure_ascii=False),
        )
    )
