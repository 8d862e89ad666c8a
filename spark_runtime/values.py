"""Partition values: from a spec's texts by column type to the log's texts and to SQL literals.

A value reaches SQL only in a form that no parser setting can change: text as the hexadecimal of
its UTF-8 bytes, everything else rendered from a parsed Python value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation

from lineage_backfill.runspec.values import NULL_DIRECTORY, Key, Partition
from spark_runtime.errors import PartitionValueError, TableError

#: The values of one partition in the order of its columns, as Delta's log writes them.
Values = tuple[str | None, ...]

#: Where Spark keeps that a text is a CHAR or a VARCHAR: in the metadata of its column.
CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_SQL_TYPES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """One partition column and its type as Delta's schema names it (`string`, `date`, `long`…).

    A table may be partitioned by any type. Where a value has several texts (a TIMESTAMP in each
    time zone, a CHAR with and without its blanks), no text is a key: see `refuse_inexact`.
    """

    name: str
    type: str

    @property
    def is_exact(self) -> bool:
        """Whether every value has one text, so that a text can be a key."""
        known = self.type in ("string", "date", "boolean") or self.type in _INTEGER_BITS
        return known or self.type.startswith("decimal")

    def canonical(self, text: str | None) -> str | None:
        """Return the value as Delta's log writes it; raises PartitionValueError and TableError."""
        refuse_inexact([self])
        if text is None:
            return text
        if self.type == "string":
            return self._storable(text)
        try:
            if self.type == "date":
                return date.fromisoformat(text).isoformat()
            if self.type == "boolean":
                return {"true": "true", "false": "false"}[text.lower()]
            if self.type in _INTEGER_BITS:
                return str(self._integer(text))
            return self._decimal(text)
        except (ValueError, KeyError, InvalidOperation) as error:
            raise PartitionValueError(
                f"{text!r} is no value of partition column {self.name!r} ({self.type})",
                hint="say in the dataset's `columns` how its keys are written",
            ) from error

    def _storable(self, text: str) -> str:
        """Return a text; raises PartitionValueError for one that no folder can be named by."""
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise PartitionValueError(
                f"{text!r} is no value of partition column {self.name!r}: a NUL or half a "
                "character cannot be stored",
                hint="correct the key",
            )
        return text

    def literal(self, text: str) -> str:
        """Return a canonical value as a SQL literal of exactly this column's type."""
        refuse_inexact([self])
        if self.type == "string":
            return f"CAST(X'{text.encode().hex()}' AS STRING)"
        if self.type == "date":
            return f"DATE'{text}'"
        if self.type == "boolean":
            return text
        return f"CAST('{text}' AS {_SQL_TYPES.get(self.type, self.type)})"

    def _integer(self, text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ValueError(text)
        number = int(text)
        bits = _INTEGER_BITS[self.type]
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError(text)
        return number

    def _decimal(self, text: str) -> str:
        match = re.fullmatch(r"decimal\((\d+),(\d+)\)", self.type)
        if match is None or not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", text):
            raise ValueError(text)
        precision, scale = int(match[1]), int(match[2])
        number = Decimal(text)
        rounded = number.quantize(Decimal(1).scaleb(-scale))
        if rounded != number or abs(number) >= Decimal(10) ** (precision - scale):
            raise ValueError(text)
        return f"{rounded:f}"


def refuse_inexact(columns: Iterable[PartitionColumn]) -> None:
    """Raise TableError for columns whose values cannot be keys."""
    for column in columns:
        if not column.is_exact:
            raise TableError(
                f"partition column {column.name!r} is of type {column.type}, whose values have no "
                "one text",
                hint="partition by a STRING, DATE or integer column",
            )


def quoted(name: str) -> str:
    """Return a column name as SQL writes it.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def unused(name: str, columns: Iterable[str]) -> str:
    """Return a name that no column has, in any case of letters.

    >>> unused("rank", ["n", "Rank"])
    'rank_'
    """
    taken = {column.lower() for column in columns}
    while name.lower() in taken:
        name += "_"
    return name


def scope_values(
    columns: Sequence[PartitionColumn], partitions: Iterable[Partition]
) -> dict[Values, Key]:
    """Return the key of each partition by its canonical values.

    Raises PartitionValueError, and TableError where the columns are not those of the partitions.
    """
    scope: dict[Values, Key] = {}
    for partition in partitions:
        by_name = {name.lower(): text for name, text in partition.values.items()}
        if by_name.keys() != {column.name.lower() for column in columns}:
            raise TableError(
                f"the table is partitioned by {[column.name for column in columns]}, the run spec "
                f"says {list(partition.values)}",
                hint="correct `columns` in the project file",
            )
        values = tuple(column.canonical(by_name[column.name.lower()]) for column in columns)
        other = scope.setdefault(values, partition.key)
        if other != partition.key:
            raise PartitionValueError(
                f"keys '{other}' and '{partition.key}' are both stored as "
                f"{describe(columns, values)}",
                hint="say in the dataset's `columns` a form that tells them apart",
            )
    return scope


def describe(columns: Sequence[PartitionColumn], values: Values) -> str:
    """Return a partition's values for a message: `day=2024-01-01/region=NULL`."""
    pairs = zip(columns, values, strict=True)
    return "/".join(f"{c.name}={'NULL' if v is None else v}" for c, v in pairs) or "*"


def predicate(columns: Sequence[PartitionColumn], scope: Iterable[Values]) -> str:
    """Return SQL that is true for exactly these partitions, NULL keys included.

    Tuples are grouped by all columns but the one with most values, so that thousands of keys stay
    a few IN lists (measured: an OR of 3,000 tuples costs four times as much).
    """
    tuples = list(scope)
    if not tuples:
        raise ValueError("a predicate needs at least one partition")
    if not columns:
        return "true"
    distinct = [len({values[i] for values in tuples}) for i in range(len(columns))]
    widest = distinct.index(max(distinct))
    groups: dict[Values, list[str | None]] = {}
    for values in tuples:
        rest = (*values[:widest], *values[widest + 1 :])
        groups.setdefault(rest, []).append(values[widest])
    others = [column for i, column in enumerate(columns) if i != widest]
    terms = []
    for rest, members in groups.items():
        equalities = [_is_in(column, [value]) for column, value in zip(others, rest, strict=True)]
        terms.append(" AND ".join([*equalities, _is_in(columns[widest], members)]))
    return " OR ".join(f"({term})" for term in terms)


def _is_in(column: PartitionColumn, values: Sequence[str | None]) -> str:
    name = quoted(column.name)
    literals = [column.literal(value) for value in values if value is not None]
    terms = []
    if len(literals) == 1:
        terms.append(f"{name} = {literals[0]}")
    elif literals:
        terms.append(f"{name} IN ({', '.join(literals)})")
    if None in values:
        terms.append(f"{name} IS NULL")
    return terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})"


def logged(column: PartitionColumn, text: str | None) -> str | None:
    """Return a value of Delta's log in canonical form; its three ways to say NULL become one.

    One that cannot be a key stays the text that it is.
    """
    if text in (None, "", NULL_DIRECTORY):
        return None
    return column.canonical(text) if column.is_exact else text


def partition_columns(
    names: Sequence[str], types: Mapping[str, str]
) -> tuple[PartitionColumn, ...]:
    """Return the columns with their types (`types` is keyed by lower-case name)."""
    return tuple(PartitionColumn(name, types[name.lower()]) for name in names)
