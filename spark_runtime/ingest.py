"""Self-healing ingestion: continue from the newest row that arrived, however old it is.

A watermark finds new rows, but not that an old slice was rewritten. Declare such a job with mode
append or merge, and re-read a fixed slice by naming its keys.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from spark_runtime import classic, connect
from spark_runtime.errors import EntrypointError, SchemaMismatchError, first_line
from spark_runtime.tables.merge import has_null, newest_of_each, ordered_columns
from spark_runtime.tables.values import quoted

_log = logging.getLogger(__name__)

_NullKeys = Literal["keep", "fail", "drop"]
_New = Literal["keep", "drop", "fail"]
_Missing = Literal["null", "fail"]
_Changed = Literal["cast", "fail"]
_Types = Literal["own", "string"]

#: Instants in JSON, with all their digits: by default Spark writes no microseconds.
_INSTANTS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def infer_watermark(
    table: DataFrame | None,
    column: str,
    *,
    partition: str | None,
    days: int = 7,
    now: datetime,
) -> datetime | None:
    """Return the greatest value of a column in the partitions of the last days, or None.

    `partition` is the DATE column, or the STRING column of `2024-06-15`, that the table is
    partitioned by; None for a table without one, which is looked at whole. Several days are looked
    at, not the newest partition alone: after a failure or a backfill the newest row may lie in an
    older one. Rows at the watermark itself may be missing some that arrived in the same instant:
    read on from it with `>=`, and keep the latest by key. `table` None, a table that does not
    exist, means a first run. A TIMESTAMP is returned in UTC. Raises EntrypointError for a column
    that does not exist or cannot be compared.
    """
    if table is None:
        _log.warning("there is no table yet: everything is read")
        return None
    (column,) = ordered_columns(table.schema, column, "column")
    recent, looked_at = table, "the table"
    if partition is not None:
        (partition,) = ordered_columns(table.schema, partition, "partition")
        since = (now - timedelta(days=days)).date().isoformat()
        # The literal is of the column's own type: files are passed over only for such a filter.
        kind = table.schema[partition].dataType
        if not isinstance(kind, DateType | StringType | TimestampType | TimestampNTZType):
            raise EntrypointError(
                f"partition names {partition!r}, whose type {kind.simpleString()} holds no dates",
                hint="Name a column of dates, or of texts such as 2024-06-15; or give None.",
            )
        recent = table.where(F.col(quoted(partition)) >= F.lit(since).cast(kind))
        looked_at = f"{partition} since {since}"
    row = recent.agg(F.max(quoted(column)).alias("newest")).first()
    newest: datetime | None = row["newest"] if row is not None else None
    if newest is None:
        _log.warning("no %s in %s: everything is read", column, looked_at)
    elif isinstance(table.schema[column].dataType, TimestampType):
        # PySpark returns it without a zone, in that of the machine rather than of the session.
        return newest.astimezone(UTC)
    return newest


def latest_by_key(
    frame: DataFrame,
    keys: str | Sequence[str],
    *,
    newest_by: str | Column | Sequence[str | Column],
    null_keys: _NullKeys = "keep",
) -> DataFrame:
    """Return one row per key: the one with the greatest `newest_by`.

    Values are compared in the order of their type (a text that holds numbers as text: cast it);
    where the first of several are equal or both NULL, by the next, and NULL is older than any
    value. Of rows that are equally new it is always the same one: that with the greatest value in
    the first of the other columns in which they differ. Rows with a NULL in their key are not known
    to be the same thing: all of them are kept, unless they are to be dropped or to fail the run.
    Raises EntrypointError for a column that is not there or has no order.
    """
    _check("null_keys", null_keys, _NullKeys)
    named = [newest_by] if isinstance(newest_by, str | Column) else newest_by
    on = ordered_columns(frame.schema, keys, "keys")
    if not on:
        raise EntrypointError("keys names no column", hint="Name those that identify a row.")
    names = [one for one in named if isinstance(one, str)]
    ordered_columns(frame.schema, names, "newest_by")
    if null_keys == "drop":
        frame = frame.where(~has_null(on))
    elif null_keys == "fail":
        refused = F.raise_error(
            F.lit(
                f"NULL in the key {', '.join(on)}: correct these rows, or keep or drop them by "
                "null_keys"
            )
        )
        frame = frame.where(F.when(has_null(on), refused.cast("boolean")).otherwise(F.lit(True)))
    order = [F.col(quoted(one)) if isinstance(one, str) else one for one in named]
    here = connect if connect.is_connect(frame.sparkSession) else classic
    if any(map(here.is_direction, order)):
        raise EntrypointError(
            "newest_by holds a direction, and the greatest value is the newest",
            hint="Name the column without asc() or desc(); negate a number that counts down.",
        )
    try:
        return newest_of_each(frame, on, order)
    except AnalysisException as error:
        raise EntrypointError(
            f"newest_by does not fit the rows: {first_line(error)}",
            hint="Name columns of the rows, or expressions of them that have an order.",
        ) from error


def surrogate_key(*columns: str) -> Column:
    """Return a key made of several columns: 64 hexadecimal digits.

    NULL, the empty text and the text `null` differ, and so do ("a", "bc") and ("ab", "c"). Raises
    EntrypointError without columns.
    """
    if not columns:
        raise EntrypointError(
            "surrogate_key names no column", hint="Name those that identify a row."
        )
    texts = [F.col(quoted(name)).cast("string") for name in columns]
    # JSON replaces bytes that are not UTF-8, so these are added as hexadecimal digits.
    others = [F.when(~F.is_valid_utf8(text), F.hex(text.cast("binary"))) for text in texts]
    added = F.when(F.coalesce(*others).isNotNull(), F.to_json(F.array(*others)))
    return F.sha2(F.concat(F.to_json(F.array(*texts)), F.coalesce(added, F.lit(""))), 256)


@dataclass(frozen=True, slots=True)
class Aligned:
    """Rows in the shape of a table, and the changes that this needed."""

    frame: DataFrame
    new: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def align_schema(
    frame: DataFrame,
    table: StructType | None,
    *,
    new: _New = "keep",
    missing: _Missing = "null",
    changed: _Changed = "fail",
    types: _Types = "own",
) -> Aligned:
    """Return rows with a table's columns, in its order; `table` None leaves them as they are.

    With `types="string"`, for a bronze table, every column becomes a text before anything else,
    except where the table has another type: binary as base64, what has several parts as JSON.

    A column that the table lacks is kept behind the others (the output's `on_drift = "add"` then
    adds it), dropped or refused; one that the rows lack is NULL of the table's type or refused; of
    one that has another type the values are cast, an error where one does not fit, or refused.
    Names are compared without case, and types without what may be NULL in them: the write sees to
    that. Raises SchemaMismatchError for what is refused, for a column that occurs twice, and for
    one that cannot be cast.
    """
    _check("new", new, _New)
    _check("missing", missing, _Missing)
    _check("changed", changed, _Changed)
    _check("types", types, _Types)
    theirs = {field.name.lower(): field for field in table or ()}
    _refuse_same_names(frame.columns)
    if types == "string":
        frame = frame.select(
            *[
                _text(f).alias(f.name) if _may_be_text(f, theirs) else F.col(quoted(f.name))
                for f in frame.schema
            ]
        )
    if table is None:
        return Aligned(frame)
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
    _heed(new, "new", found.new)
    _heed(missing, "missing", found.missing)
    _heed(changed, "of another type", found.changed)
    columns: list[Column] = []
    for name, field in theirs.items():
        value = F.col(quoted(ours[name].name)) if name in ours else F.lit(None)
        if field.name in (*found.missing, *found.changed):
            value = value.cast(field.dataType)
        columns.append(value.alias(field.name))
    if new == "keep":
        columns += [F.col(quoted(name)) for name in found.new]
    return Aligned(_cast(frame, columns), found.new, found.missing, found.changed)


def _cast(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    try:
        return frame.select(*columns)
    except AnalysisException as error:
        raise SchemaMismatchError(
            f"a column cannot be cast to its type in the table: {first_line(error)}",
            hint="Convert it before, or change the table.",
        ) from error


def _refuse_same_names(names: Sequence[str]) -> None:
    if len({name.lower() for name in names}) < len(names):
        raise SchemaMismatchError(
            f"a column occurs twice among {', '.join(names)}", hint="Drop or rename one of them."
        )


def _check(argument: str, value: str, policy: Any) -> None:
    allowed = get_args(policy)
    if value not in allowed:
        raise EntrypointError(
            f"{argument} is {value!r}", hint=f"Use one of {', '.join(map(repr, allowed))}."
        )


def _heed(policy: str, what: str, names: Sequence[str]) -> None:
    if not names:
        return
    if policy == "fail":
        raise SchemaMismatchError(
            f"columns {what}: {', '.join(names)}",
            hint="Change the table, or name a policy for such columns.",
        )
    _log.warning("columns %s: %s (%s)", what, ", ".join(names), policy)


def _may_be_text(field: StructField, table: Mapping[str, StructField]) -> bool:
    theirs = table.get(field.name.lower())
    return theirs is None or isinstance(theirs.dataType, StringType)


def _text(field: StructField) -> Column:
    column = F.col(quoted(field.name))
    if isinstance(field.dataType, BinaryType):
        return F.base64(column)
    if _has_binary_keys(field.dataType):
        raise SchemaMismatchError(
            f"column {field.name} holds a map with binary keys, which JSON cannot hold",
            hint="Convert the keys before, by transform_keys and base64.",
        )
    if isinstance(field.dataType, StructType | ArrayType | MapType | VariantType):
        return F.to_json(column, _INSTANTS)
    return column.cast("string")


def _has_binary_keys(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_binary_keys(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_binary_keys(kind.elementType)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, BinaryType) or _has_binary_keys(kind.valueType)
    return False


def _kind(field: StructField) -> str:
    return field.dataType.simpleString()
