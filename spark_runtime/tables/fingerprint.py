"""Fingerprints of partitions: equal for equal rows, in any order and any files.

Per row one 64-bit hash over all columns in the order of their names, and over which of them are
NULL (Spark's hash skips NULLs); per partition the number of rows and the sums of the hashes'
halves, together with the names and types of the columns. -0.0 counts as 0.0, every NaN as the same,
except within a VARIANT, where the type and the value of each part count as they are stored. Two
different contents have the same fingerprint with a probability of about 2 ** -64; against someone
who looks for such contents the hash does not protect.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StructType

from spark_runtime import classic, connect
from spark_runtime.session import is_on
from spark_runtime.tables.state import EMPTY_FINGERPRINT
from spark_runtime.tables.values import quoted

#: Part of every fingerprint: those of different algorithms never compare equal.
ALGORITHM = "lb2"
ROWS = "__rows"
SETTING = "spark.lineageBackfill.fingerprints"
_SUMS = ("__low", "__high")
#: The number of NULL flags in a positive 64-bit number.
_FLAGS = 62


def is_wanted(spark: SparkSession) -> bool:
    """Whether the session's settings enable fingerprints; raises SessionError.

    Without them a write costs no more than Delta's own, but readers always run.
    """
    return is_on(SETTING, spark.conf.get(SETTING, "true") or "")


class Fingerprint:
    """How the rows of one schema are fingerprinted; columns named in `ignore` do not count."""

    def __init__(self, schema: StructType, *, ignore: str | Collection[str] = ()) -> None:
        ignored = {name.lower() for name in ([ignore] if isinstance(ignore, str) else ignore)}
        self._fields = sorted(
            (field for field in schema.fields if field.name.lower() not in ignored),
            key=lambda field: field.name.lower(),
        )
        self._schema = [[f.name.lower(), f.dataType.simpleString()] for f in self._fields]

    def aggregates(self) -> list[Column]:
        """Return the aggregate columns from which `text` makes the fingerprint."""
        row = hashed([(F.col(quoted(field.name)), field.dataType) for field in self._fields])
        halves = (row.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(row, 32))
        # If the sums overflow there is no fingerprint, rather than an error.
        sums = [F.try_sum(half).alias(name) for half, name in zip(halves, _SUMS, strict=True)]
        return [F.count(F.lit(1)).alias(ROWS), *sums]

    def text(self, row: Mapping[str, Any]) -> str | None:
        """Return the fingerprint of an aggregated row; None if it has none."""
        if row[ROWS] == 0:
            return EMPTY_FINGERPRINT
        sums = [row[name] for name in _SUMS]
        if None in sums:
            return None
        document = json.dumps([ALGORITHM, self._schema, row[ROWS], sums])
        return f"{ALGORITHM}:{hashlib.sha256(document.encode()).hexdigest()[:32]}"


def hashed(values: Sequence[tuple[Column, DataType]]) -> Column:
    """Return the hash of values of these types; each may be NULL."""
    parts = [part for column, kind in values for part in _parts(column, kind)]
    flags = [column.isNull() for column, _ in parts]
    # One number has all NULL flags: a flag before each value would double the input of the hash.
    masks = [_mask(flags[i : i + _FLAGS]) for i in range(0, len(flags), _FLAGS)]
    return F.xxhash64(*[value for _, values in parts for value in values], *masks)


def _mask(flags: Sequence[Column]) -> Column:
    none = F.lit(0).cast("long")
    bits = [
        F.when(flag, F.lit(1 << i).cast("long")).otherwise(none) for i, flag in enumerate(flags)
    ]
    return reduce(lambda mask, bit: mask.bitwiseOR(bit), bits)


def _parts(column: Column, kind: DataType) -> list[tuple[Column, list[Column]]]:
    """Return the nullable parts of a value, each with its hashed values in plain types."""
    if isinstance(kind, T.StructType):
        members = [
            part for f in kind.fields for part in _parts(column.getField(f.name), f.dataType)
        ]
        return [(column, []), *members]
    if isinstance(kind, T.ArrayType):
        hashes = F.transform(column, lambda item: hashed([(item, kind.elementType)]))
        return [(column, [F.size(column), hashes])]
    if isinstance(kind, T.MapType):
        entries = F.transform(
            F.map_entries(column),
            lambda entry: hashed(
                [
                    (entry.getField("key"), kind.keyType),
                    (entry.getField("value"), kind.valueType),
                ]
            ),
        )
        return [(column, [F.size(column), F.array_sort(entries)])]
    if isinstance(kind, T.VariantType):
        return [(column, _encoded(column))]
    if isinstance(kind, T.DayTimeIntervalType | T.YearMonthIntervalType | T.CalendarIntervalType):
        return [(column, [column.cast("string")])]
    return [(column, [column])]


def _encoded(variant: Column) -> list[Column]:
    """Return the bytes of a VARIANT, in which 1.0 and 1.00, or a date and its text, differ.

    It is re-encoded by extracting its root path, so that neither the order of an object's members
    counts nor unused names.
    """
    value = F.variant_get(variant, "$", "variant")
    is_classic = hasattr(value, "_jc")
    return classic.variant_bytes(value) if is_classic else connect.variant_bytes(value)
