"""Rows by key: the newest of each, and the contents of a table after a merge.

Keys compare as in SQL: a NULL equals nothing, so rows with a NULL in their key are not one row. Of
two rows with the same key the newer one counts: by the columns of `newest_by`, each in the order of
its type; where the first are equal or both NULL, by the next. A NULL is older than any value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StructType

from lineage_backfill.typed import near_misses
from spark_runtime.classic import HELD, NEW
from spark_runtime.errors import EntrypointError, first_line
from spark_runtime.tables.fingerprint import hashed
from spark_runtime.tables.values import quoted, unused

_GONE = "__gone"
_UNORDERED = (T.MapType, T.VariantType, T.CalendarIntervalType)


@dataclass(frozen=True, slots=True)
class Match:
    """The columns that identify a row, and those that decide which of two is newer.

    Rows for which the column `gone` is true delete the one with their key; `delete_missing` deletes
    those of the scope whose key is in no new row. `lacking` are the columns that the new rows do
    not have: held rows keep theirs.
    """

    on: tuple[str, ...]
    newest_by: tuple[str, ...] = ()
    gone: str | None = None
    delete_missing: bool = False
    lacking: frozenset[str] = frozenset()

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the columns of new rows that are stored."""
        return [name for name in columns if name != self.gone]

    @property
    def condition(self) -> str:
        """SQL that is true if a row of the table has the key of a new row."""
        return " AND ".join(f"{HELD}.{name} = {NEW}.{name}" for name in map(quoted, self.on))

    @property
    def replaces(self) -> str:
        """SQL that is true if a new row is at least as new as the one with its key."""
        if not self.newest_by:
            return "true"
        # Structs compare column by column, NULL before any value.
        held, new = (
            f"struct({', '.join(f'{side}.{quoted(name)}' for name in self.newest_by)})"
            for side in (HELD, NEW)
        )
        return f"{new} >= {held}"

    def newest(self, frame: DataFrame) -> DataFrame:
        """Return the newest row of each key, and every row with a NULL in its key."""
        return newest_of_each(frame, self.on, [F.col(quoted(name)) for name in self.newest_by])

    def merged(self, held: DataFrame, new: DataFrame) -> DataFrame:
        """Return the contents of a table after a MERGE of the newest rows.

        A column that only the new rows have is NULL in the others; one that only the table has is
        left out.
        """
        known = {name.lower() for name in held.columns}
        names = self.names(new.columns)
        columns = [
            (
                F.col(quoted(f.name)) if f.name.lower() in known else F.lit(None).cast(f.dataType)
            ).alias(f.name)
            for f in new.schema
            if f.name != self.gone
        ]
        gone = F.lit(False) if self.gone is None else F.col(quoted(self.gone))
        both = held.select(F.struct(*columns).alias(HELD)).join(
            new.select(F.struct(*map(quoted, names)).alias(NEW), gone.alias(_GONE)),
            F.expr(self.condition),
            "full_outer",
        )
        is_new = F.col(NEW).isNotNull()
        stays = ~is_new | (F.col(HELD).isNotNull() & ~F.expr(self.replaces))
        drops = (is_new & ~stays & F.col(_GONE)) | (~is_new & F.lit(self.delete_missing))
        rows = both.where(~drops)
        if self.lacking:
            rows = rows.withColumn(NEW, F.when(is_new, self._filled(names)))
        return rows.select(F.when(stays, F.col(HELD)).otherwise(F.col(NEW)).alias(NEW)).select(
            f"{NEW}.*"
        )

    def _filled(self, names: Sequence[str]) -> Column:
        """Return a new row with the held values of the columns that it lacks."""
        sides = {name: HELD if name in self.lacking else NEW for name in names}
        return F.struct(*(F.col(f"{side}.{quoted(name)}") for name, side in sides.items()))


def marked(frame: DataFrame, delete_when: str, stored: Iterable[str]) -> tuple[DataFrame, str]:
    """Return the rows with a column that says which delete, and its name.

    Columns that only the condition needs, and that are not `stored`, are dropped. Raises
    EntrypointError.
    """
    gone, known = unused("gone", frame.columns), {name.lower() for name in stored}
    try:
        rows = frame.withColumn(gone, F.coalesce(F.expr(delete_when), F.lit(False)))
        _ = rows.schema  # looked at here, also where only the server knows
    except AnalysisException as error:
        raise EntrypointError(
            f"delete_when does not fit the rows: {first_line(error)}",
            hint="Write a condition over the columns of the job's result.",
        ) from error
    only = [
        name
        for name in frame.columns
        if name.lower() not in known
        and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", delete_when, re.IGNORECASE)
    ]
    return rows.drop(*only), gone


def match_of(
    schema: StructType, merge_on: str | Sequence[str], newest_by: str | Sequence[str] | None
) -> Match:
    """Return the match by columns of this schema; raises EntrypointError if they do not fit."""
    if not merge_on:
        raise EntrypointError(
            "the output is written by merge, and its job names no key",
            hint='Declare it: @job(..., merge_on=("id",), newest_by="updated_at").',
        )
    return Match(
        ordered_columns(schema, merge_on, "merge_on"),
        ordered_columns(schema, newest_by or (), "newest_by"),
    )


def ordered_columns(
    schema: StructType, names: str | Iterable[str], argument: str
) -> tuple[str, ...]:
    """Return columns by their names in the schema; raises EntrypointError for unknown ones."""
    found = []
    for name in [names] if isinstance(names, str) else names:
        fields = [field for field in schema if field.name.lower() == name.lower()]
        if len(fields) > 1:
            raise EntrypointError(
                f"{argument} names {name!r}, and several columns have this name",
                hint="Drop or rename one of them.",
            )
        if not fields:
            raise EntrypointError(
                f"{argument} names {name!r}, but there is no such column",
                hint=near_misses(name, schema.names),
            )
        (field,) = fields
        if not _is_ordered(field.dataType):
            raise EntrypointError(
                f"{argument} names {name!r}, and values of type "
                f"{field.dataType.simpleString()} have no order",
                hint="Name a column that can be compared, or one made from it.",
            )
        found.append(field.name)
    return tuple(found)


def newest_of_each(frame: DataFrame, keys: Sequence[str], newest_by: Sequence[Column]) -> DataFrame:
    """Return the newest row of each key, and every row with a NULL in its key.

    Among equally new rows the choice is deterministic: the greatest value in the first of the other
    columns in which they differ.
    """
    rest = [field for field in frame.schema if field.name not in keys]
    ties = [
        F.col(quoted(field.name))
        if _is_ordered(field.dataType)
        else hashed([(F.col(quoted(field.name)), field.dataType)])
        for field in rest
    ]
    order = [column.desc_nulls_last() for column in (*newest_by, *ties)] or [F.lit(0)]
    window = Window.partitionBy(*map(quoted, keys)).orderBy(*order)
    rank = unused("rank", frame.columns)
    ranked = frame.withColumn(rank, F.row_number().over(window))
    return ranked.where((F.col(rank) == 1) | has_null(keys)).drop(rank)


def has_null(keys: Iterable[str]) -> Column:
    """Return whether one of these columns is NULL."""
    return reduce(or_, [F.col(quoted(key)).isNull() for key in keys])


def _is_ordered(kind: DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_is_ordered(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _is_ordered(kind.elementType)
    return not isinstance(kind, _UNORDERED)
