"""Fingerprints of partitions: the same for the same rows, whatever their order or their files.

Per row two 64-bit hashes over all columns in the order of their names, each value with a flag that
tells NULL (Spark's hash skips NULLs); per partition the number of rows and the sums of the hashes'
halves, together with the names and types of the columns. -0.0 counts as 0.0, every NaN as the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from spark_runtime.session import is_on
from spark_runtime.state import EMPTY_FINGERPRINT
from spark_runtime.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType, StructType

#: Part of every fingerprint: those of another way to compute them never compare equal.
ALGORITHM = "lb1"
ROWS = "__rows"
SETTING = "spark.lineageBackfill.fingerprints"
_SUMS = tuple(f"__{half}{seed}" for seed in (1, 2) for half in ("low", "high"))


def is_wanted(spark: SparkSession) -> bool:
    """Whether the session's setting asks for fingerprints; raises SessionError.

    Without them a write costs no more than Delta's own, and no reader is cut off by it.
    """
    return is_on(SETTING, spark.conf.get(SETTING, "true") or "")


class Fingerprint:
    """How the rows of one schema are fingerprinted; columns named in `ignore` do not count."""

    def __init__(self, schema: StructType, *, ignore: Collection[str] = ()) -> None:
        ignored = {name.lower() for name in ignore}
        self._fields = sorted(
            (field for field in schema.fields if field.name.lower() not in ignored),
            key=lambda field: field.name.lower(),
        )
        self._schema = [[f.name.lower(), f.dataType.simpleString()] for f in self._fields]

    def aggregates(self) -> list[Column]:
        """Return the aggregate columns from which `text` makes the fingerprint."""
        from pyspark.sql import functions as F

        values = [
            part
            for field in self._fields
            for part in _parts(F.col(quoted(field.name)), field.dataType)
        ]
        aggregates = [F.count(F.lit(1)).alias(ROWS)]
        for seed in (1, 2):
            row = F.xxhash64(F.lit(seed), *values)
            low, high = row.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(row, 32)
            # More rows than a sum can hold have no fingerprint, which is better than an error.
            aggregates += [
                F.try_sum(low).alias(f"__low{seed}"),
                F.try_sum(high).alias(f"__high{seed}"),
            ]
        return aggregates

    def text(self, row: Mapping[str, Any]) -> str | None:
        """Return the fingerprint of an aggregated row; None if it has none."""
        if row[ROWS] == 0:
            return EMPTY_FINGERPRINT
        sums = [row[name] for name in _SUMS]
        if None in sums:
            return None
        document = json.dumps([ALGORITHM, self._schema, row[ROWS], sums])
        return f"{ALGORITHM}:{hashlib.sha256(document.encode()).hexdigest()[:32]}"


def _parts(column: Column, kind: DataType) -> list[Column]:
    """Return what stands for a value in the hash: a NULL flag, then the value in plain types."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    null = column.isNull()
    if isinstance(kind, T.StructType):
        members = [
            part for f in kind.fields for part in _parts(column.getField(f.name), f.dataType)
        ]
        return [null, *members]
    if isinstance(kind, T.ArrayType):
        hashes = F.transform(column, lambda item: F.xxhash64(*_parts(item, kind.elementType)))
        return [null, F.size(column), hashes]
    if isinstance(kind, T.MapType):
        entries = F.transform(
            F.map_entries(column),
            lambda entry: F.xxhash64(
                *_parts(entry.getField("key"), kind.keyType),
                *_parts(entry.getField("value"), kind.valueType),
            ),
        )
        return [null, F.size(column), F.array_sort(entries)]
    if isinstance(kind, T.VariantType):
        return [null, F.to_json(column)]
    if isinstance(kind, T.DayTimeIntervalType | T.YearMonthIntervalType | T.CalendarIntervalType):
        return [null, column.cast("string")]
    return [null, column]
