"""The one way in which rows of a Delta table are replaced: whole partitions, in one commit."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from spark_runtime.deltalog import METADATA_KEY, DeltaLog
from spark_runtime.errors import TableError
from spark_runtime.values import PartitionColumn, Values, describe, predicate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Beside the data, where neither readers nor VACUUM look.
LOCK_FILE = ".lineage-backfill.lock"

#: More rows than this are written faster by compiled code.
_WORTH_COMPILING = 1_000_000

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


@contextmanager
def interpreted(spark: SparkSession, rows: int) -> Iterator[None]:
    """Let a write of few rows interpret its expressions instead of compiling them.

    Most of such a write is Delta reading its own log; compiling for that costs more than it saves
    (measured: a third of the whole write).
    """
    if rows > _WORTH_COMPILING:
        yield
        return
    with _setting(spark, "spark.sql.codegen.factoryMode", "NO_CODEGEN"):
        yield


@contextmanager
def exclusively(root: Path) -> Iterator[None]:
    """Let no other process of this library commit to the table meanwhile.

    On a local disk two processes may otherwise rename their commits onto the same version, and
    the first one's is lost.
    """
    with contextlib.ExitStack() as stack:
        # Where files cannot be locked, commits are the store's own business.
        with contextlib.suppress(OSError):
            import fcntl

            lock = stack.enter_context((root / LOCK_FILE).open("w", encoding="utf-8"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
    # Delta refuses versions older than a week even where, as checked above, all files are there.
    with _setting(spark, name, "false"), exclusively(log.root):
        frame = spark.read.format("delta").option("versionAsOf", version).load(log.location)
        if state.columns:
            frame = frame.where(predicate(state.columns, scope))
        replace(frame, log.location, state.columns, scope, transaction)


def is_conflict(error: BaseException) -> bool:
    """Whether somebody else's commit made ours fail (nothing of it is visible then)."""
    return _CONFLICT.search(f"{type(error).__name__}: {error}") is not None


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def _with(writer: Any, transaction: Transaction) -> Any:
    return (
        writer.option("txnAppId", transaction.app_id)
        .option("txnVersion", str(transaction.version))
        .option(
            "userMetadata",
            json.dumps({METADATA_KEY: dict(transaction.metadata)}, ensure_ascii=False),
        )
    )
