"""Ingestion that heals itself: read on from the newest row that arrived, however long ago that was.

A watermark finds what is new, and never notices that an old slice was written again. Such a job is
declared to append or to merge, and a fixed slice is read again by naming its keys.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spark_runtime.errors import SchemaMismatchError, TableError
from spark_runtime.values import quoted, unused

_log = logging.getLogger(__name__)


def table_exists(spark: SparkSession, name: str, *, database: str | None = None) -> bool:
    """Whether the catalog has a table: `table`, `database.table` or `catalog.database.table`.

    `database` stands before a name without one. Raises TableError for any other name.
    """
    parts = name.split(".")
    if database is not None:
        if len(parts) > 1:
            raise TableError(
                f"{name!r} names its database itself", hint="leave `database` out, or the prefix"
            )
        parts = [*database.split("."), *parts]
    if not 1 <= len(parts) <= 3 or not all(part.strip() for part in parts):
        raise TableError(f"{name!r} is no table name", hint="write it as database.table")
    return bool(spark.catalog.tableExists(".".join(quoted(part) for part in parts)))


def infer_watermark(
    table: DataFrame | None, column: str, *, partition: str, days: int = 7, now: datetime
) -> datetime | None:
    """Return the greatest value of a column in the partitions of the last days, None for none.

    `partition` is the DATE column, or the STRING column of `2024-06-15`, that the table is
    partitioned by. Several days are looked at, not the newest partition alone: after a failure or a
    backfill the newest row may lie in an older one. Rows at the watermark itself may be missing
    some that arrived in the same instant: read on from it with `>=`, and keep the latest by key.
    `table` None, a table that does not exist, means a first run.
    """
    if table is None:
        _log.warning("there is no table yet: everything is read")
        return None
    since = (now - timedelta(days=days)).date().isoformat()
    # The literal is of the column's own type: files are passed over only for such a filter.
    kind = table.schema[partition].dataType
    recent = table.where(F.col(quoted(partition)) >= F.lit(since).cast(kind))
    row = recent.agg(F.max(quoted(column)).alias("newest")).first()
    newest: datetime | None = row["newest"] if row is not None else None
    if newest is None:
        _log.warning("no %s since %s in %s: everything is read", column, since, partition)
    return newest


def latest_by_key(
    frame: DataFrame,
    keys: Sequence[str],
    *,
    newest_by: str,
    null_keys: Literal["keep", "fail", "drop"] = "keep",
) -> DataFrame:
    """Return one row of each key: the one with the greatest `newest_by`.

    Of rows that are equally new always the same one is taken, whatever their order. Rows with a
    NULL in their key are not known to be the same thing: all of them are kept, unless they are to
    be dropped or to fail the run.
    """
    unknown = F.lit(False)
    for key in keys:
        unknown = unknown | F.col(quoted(key)).isNull()
    known = frame.where(~unknown)
    latest = first_of_each(known, keys, [F.col(quoted(newest_by)).desc_nulls_last()], frame.columns)
    if null_keys == "drop":
        return latest
    if null_keys == "fail":
        refused = F.raise_error(F.lit(f"NULL in the key {', '.join(keys)}")).cast("boolean")
        return latest.unionByName(frame.where(F.when(unknown, refused).otherwise(F.lit(False))))
    return latest.unionByName(frame.where(unknown))


def first_of_each(
    frame: DataFrame, keys: Sequence[str], order: Sequence[Column], rest: Sequence[str]
) -> DataFrame:
    """Return the first row of each key; of equals always the same one, by the columns in `rest`."""
    last = F.to_json(F.struct(*[F.col(quoted(name)) for name in rest]))
    window = Window.partitionBy(*[F.col(quoted(key)) for key in keys]).orderBy(*order, last)
    rank = unused("rank", frame.columns)
    return frame.withColumn(rank, F.row_number().over(window)).where(F.col(rank) == 1).drop(rank)


def surrogate_key(*columns: str) -> Column:
    """Return a key made of several columns: 64 hexadecimal digits.

    NULL, the empty text and the text `null` differ, and so do ("a", "bc") and ("ab", "c").
    """
    texts = F.array(*[F.col(quoted(name)).cast("string") for name in columns])
    return F.sha2(F.to_json(texts), 256)


@dataclass(frozen=True, slots=True)
class Aligned:
    """Rows in the shape of a table, and what had to be done for that."""

    frame: DataFrame
    new: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def align_schema(
    frame: DataFrame,
    table: StructType | None,
    *,
    new: Literal["keep", "drop", "fail"] = "keep",
    missing: Literal["null", "fail"] = "null",
    changed: Literal["cast", "fail"] = "fail",
) -> Aligned:
    """Return rows with a table's columns, in its order; `table` None leaves them as they are.

    A column that the table lacks is kept behind the others (the output's `on_drift = "add"` then
    adds it), dropped or refused; one that the rows lack is NULL of the table's type or refused; of
    one that has another type the values are cast, an error where one does not fit, or refused.
    Names are compared without case, and types without what may be NULL in them: the write sees to
    that. Raises SchemaMismatchError for what is refused.
    """
    if table is None:
        return Aligned(frame)
    theirs = {field.name.lower(): field for field in table}
    ours = {field.name.lower(): field for field in frame.schema}
    found = Aligned(
        frame,
        new=tuple(field.name for name, field in ours.items() if name not in theirs),
        missing=tuple(field.name for name, field in theirs.items() if name not in ours),
        changed=tuple(
            field.name
            for name, field in theirs.items()
            if name in ours and _kind(ours[name]) != _kind(field)
        ),
    )
    for what, names, policy in (
        ("new", found.new, new),
        ("missing", found.missing, missing),
        ("of another type", found.changed, changed),
    ):
        if names and policy == "fail":
            raise SchemaMismatchError(
                f"columns {what}: {', '.join(names)}",
                hint="change the table, or name a policy for such columns",
            )
        if names:
            _log.warning("columns %s: %s (%s)", what, ", ".join(names), policy)
    columns = []
    for name, field in theirs.items():
        value = F.col(quoted(ours[name].name)) if name in ours else F.lit(None)
        if field.name in (*found.missing, *found.changed):
            value = value.cast(field.dataType)
        columns.append(value.alias(field.name))
    if new == "keep":
        columns += [F.col(quoted(name)) for name in found.new]
    return Aligned(frame.select(*columns), found.new, found.missing, found.changed)


def _kind(field: StructField) -> str:
    return field.dataType.simpleString()
