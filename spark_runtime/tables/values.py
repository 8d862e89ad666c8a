"""Partition values: converts the texts of a run spec to those of the log and to SQL literals.

SQL only contains values in forms that no parser setting can change: text as hexadecimal UTF-8,
everything else rendered from a parsed Python value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal, InvalidOperation
from enum import Enum
from typing import Final, TypeGuard

from lineage_backfill.runspec.values import NULL_DIRECTORY
from spark_runtime.errors import PartitionValueError, TableError

#: The values of one partition in the order of its columns, as Delta's log writes them.
Values = tuple[str | None, ...]


class Open(Enum):
    """The type of an open value in a pattern."""

    ANY = "any value"


#: Any value of a column, including NULL; the text `*` is a normal value.
ANY: Final = Open.ANY
#: Partitions that have the same values in some columns, and any in the others.
Pattern = tuple[str | Open | None, ...]

#: The metadata key with which Spark marks CHAR and VARCHAR columns.
CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
#: Twice the digits of Spark's longest decimal.
_ALL_DIGITS = Context(prec=76)
_SQL_TYPES = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """One partition column and its type as Delta's schema names it (`string`, `date`, `long`…).

    A table may be partitioned by any type. If a value has several texts (a TIMESTAMP in each time
    zone, a CHAR with and without padding), it cannot be a key: see `refuse_inexact`.
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
                f"{text!r} is not a value of partition column {self.name!r} ({self.type})",
                hint="Set the format of its keys in the dataset's `columns`.",
            ) from error

    def _is_key(self, text: str) -> bool:
        try:
            return self.canonical(text) == text
        except PartitionValueError:
            return False

    def found(self, text: str | None) -> str | None:
        """Return a stored value in canonical form, or unchanged if it is not a key.

        Raises TableError.
        """
        try:
            return self.canonical(text)
        except PartitionValueError:
            return text

    def _storable(self, text: str) -> str:
        """Return a text; raises PartitionValueError if it cannot be a folder name."""
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise PartitionValueError(
                f"{text!r} is not a value of partition column {self.name!r}: a NUL or half a "
                "character cannot be stored",
                hint="Correct the key.",
            )
        return text

    def literal(self, text: str) -> str:
        """Return a canonical value as a SQL literal of exactly this column's type."""
        refuse_inexact([self])
        as_text = f"CAST(X'{text.encode().hex()}' AS STRING)"
        if self.type == "string":
            return as_text
        if not self._is_key(text):
            return f"CAST({as_text} AS {_SQL_TYPES.get(self.type, self.type)})"
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
        rounded = number.quantize(Decimal(1).scaleb(-scale), context=_ALL_DIGITS)
        if rounded != number or number.copy_abs() >= Decimal(10) ** (precision - scale):
            raise ValueError(text)
        return f"{rounded:f}"


def refuse_inexact(columns: Iterable[PartitionColumn]) -> None:
    """Raise TableError for columns whose values cannot be keys."""
    for column in columns:
        if not column.is_exact:
            raise TableError(
                f"partition column {column.name!r} is of type {column.type}, whose values have "
                "more than one text",
                hint="Partition by a STRING, DATE or integer column.",
            )


def is_exact(pattern: Pattern) -> TypeGuard[Values]:
    """Whether a pattern is one partition."""
    return ANY not in pattern


def quoted(name: str) -> str:
    """Return a column name as SQL writes it.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def unused(name: str, columns: Iterable[str]) -> str:
    """Return a name that no column has, ignoring case.

    >>> unused("rank", ["n", "Rank"])
    'rank_'
    """
    taken = {column.lower() for column in columns}
    while name.lower() in taken:
        name += "_"
    return name


def is_storable(kind: object) -> bool:
    """Whether a type, as Spark writes it in JSON, has a file format: not `void`, nor no fields.

    >>> is_storable("date"), is_storable("void"), is_storable({"type": "struct", "fields": []})
    (True, False, False)
    """
    if not isinstance(kind, Mapping):
        return kind != "void"
    if kind["type"] == "struct":
        return bool(kind["fields"]) and all(is_storable(field["type"]) for field in kind["fields"])
    parts = (kind[name] for name in ("elementType", "keyType", "valueType") if name in kind)
    return all(map(is_storable, parts))


def logged(column: PartitionColumn, text: str | None) -> str | None:
    """Return a value of Delta's log in canonical form, with one form of NULL instead of three.

    One that cannot be a key (by its type, or a date in year 12024) is unchanged.
    """
    if text in (None, "", NULL_DIRECTORY):
        return None
    return column.found(text) if column.is_exact else text


def partition_columns(
    names: Sequence[str], types: Mapping[str, str]
) -> tuple[PartitionColumn, ...]:
    """Return the columns with their types (`types` is keyed by lower-case name)."""
    return tuple(PartitionColumn(name, types[name.lower()]) for name in names)
