"""Fits a job's rows to the table: columns by name, differences by policy.

`fail` requires the same columns and types; `add` adds new columns to the table; `relax` also writes
NULL for missing columns, and casts if nothing can be lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from lineage_backfill.project.declarations import OnDrift
from lineage_backfill.runspec.values import NULL_DIRECTORY
from spark_runtime.errors import SchemaMismatchError
from spark_runtime.tables.state import IDENTITY, TableState, is_numbered
from spark_runtime.tables.values import CHAR_TYPE, is_storable, quoted

#: The metadata of a column that the table computes.
GENERATED = "delta.generationExpression"

#: The maximum number of digits of each integer type.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def columns_of(schema: Mapping[str, Any]) -> StructType:
    """Return the columns of a schema in Spark's JSON; Spark's reader changes what it reads."""
    return StructType.fromJson(deepcopy(dict(schema)))


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return an empty DataFrame; unlike one from a list, reading it starts no Python process."""
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    return spark.range(0).select(*columns)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    source: str | None
    type: DataType | None = None
    width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The table's columns from the rows, and the changes that this needed.

    `columns` has name, source and type of each: the source is a column of the rows, an SQL
    expression, or None to write NULL; the type is None if it already matches. The width of a CHAR
    is the length to which it is padded with blanks, as Spark's own INSERT does.
    """

    columns: tuple[_Column, ...]
    added: tuple[str, ...]
    drift: tuple[str, ...]

    @property
    def lacking(self) -> frozenset[str]:
        """The table's columns that the rows do not have."""
        return frozenset(column.name for column in self.columns if column.source is None)

    def apply(
        self, frame: DataFrame, texts: frozenset[str], *, also: str | None = None
    ) -> DataFrame:
        """Return the rows in the table's shape; `texts` are the partition columns of type STRING.

        The column `also` is kept as it is.

        An empty string there is stored as NULL: converted now, so that checks see the stored
        values.
        """
        made: list[Column] = []
        for column in self.columns:
            value = F.lit(None) if column.source is None else F.expr(column.source)
            if column.type is not None:
                value = value.cast(column.type)
            if column.width is not None:
                filled = F.rpad(value, column.width, " ")
                value = F.when(F.length(value) < column.width, filled).otherwise(value)
            if column.name in texts:
                value = F.when(~value.isin("", NULL_DIRECTORY), value)
            made.append(value.alias(column.name))
        return frame.select(*made, *([] if also is None else [quoted(also)]))


def fit(schema: StructType, state: TableState, on_drift: OnDrift) -> Fit:
    """Return how rows of this schema fit the table; raises SchemaMismatchError."""
    table = columns_of(state.schema)
    ours = {field.name.lower(): field for field in schema}
    columns: list[_Column] = []
    problems = [] if len(ours) == len(schema) else ["a column occurs twice"]
    drift: list[str] = []
    for field in table:
        column = ours.get(field.name.lower())
        if column is None:
            columns += _missing(field, on_drift, problems, drift)
            continue
        columns.append(_present(field, column, on_drift, problems, drift))
    known = {field.name.lower() for field in table}
    new = [field for field in schema if field.name.lower() not in known]
    if on_drift == "fail":
        problems += [f"{field.name} is not in the table" for field in new]
    problems += [f"{f.name} has no type" for f in new if not is_storable(f.dataType.jsonValue())]
    if problems:
        raise SchemaMismatchError(
            f"the job's columns are not those of the table: {'; '.join(problems)}; "
            "nothing was written",
            hint="Cast or select them in the job, ALTER the table first, or allow more by "
            "`on_drift`.",
        )
    drift += [f"{field.name} was added" for field in new]
    return Fit(
        columns=(*columns, *[_Column(field.name, quoted(field.name)) for field in new]),
        added=tuple(field.name for field in new),
        drift=tuple(drift),
    )


def _present(
    field: StructField,
    column: StructField,
    on_drift: OnDrift,
    problems: list[str],
    drift: list[str],
) -> _Column:
    if is_numbered(field.metadata):
        problems.append(f"{field.name} is an identity column, numbered by the table")
    cast = None
    kind, wanted = column.dataType.simpleString(), field.dataType.simpleString()
    if kind != wanted:
        if on_drift != "relax" or not is_lossless(kind, wanted):
            problems.append(f"{field.name} is {kind}, in the table {wanted}")
        cast = field.dataType
        drift.append(f"{field.name} was cast from {kind} to {wanted}")
    return _Column(field.name, quoted(column.name), cast, _width(field))


def _width(field: StructField) -> int | None:
    match = re.fullmatch(r"char\((\d+)\)", str(field.metadata.get(CHAR_TYPE)))
    return int(match[1]) if match else None


def _missing(
    field: StructField, on_drift: OnDrift, problems: list[str], drift: list[str]
) -> list[_Column]:
    metadata: Mapping[str, Any] = field.metadata
    if IDENTITY in metadata:
        return []  # the table numbers the rows
    if GENERATED in metadata:
        return [_Column(field.name, str(metadata[GENERATED]), field.dataType)]
    if on_drift != "relax" or not field.nullable:
        problems.append(f"{field.name} is missing")
    drift.append(f"{field.name} is missing: NULL was written")
    return [_Column(field.name, None, field.dataType)]


def is_lossless(kind: str, wanted: str) -> bool:
    """Whether the second type can represent every value of the first.

    >>> is_lossless("int", "bigint"), is_lossless("bigint", "int"), is_lossless("void", "date")
    (True, False, True)
    >>> is_lossless("int", "decimal(10,0)"), is_lossless("decimal(5,2)", "decimal(6,3)")
    (True, True)
    """
    if kind == "void" or (kind, wanted) == ("float", "double"):
        return True
    if kind in _DIGITS and wanted in _DIGITS:
        return _DIGITS[kind] <= _DIGITS[wanted]
    ours, theirs = _decimal(kind), _decimal(wanted)
    if ours is None or theirs is None or wanted in _DIGITS:
        return False
    return ours[0] <= theirs[0] and ours[1] <= theirs[1]


def _decimal(kind: str) -> tuple[int, int] | None:
    """Return the number of digits before and after the decimal point."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    match = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    return (int(match[1]) - int(match[2]), int(match[2])) if match else None
