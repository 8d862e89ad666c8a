"""Scopes: the partitions that a run reads or writes, listed or with open columns.

An open pattern omits the value of a column: it means every partition with the other values,
including those that appear later. `*` as a value of a column is a normal string.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lineage_backfill.runspec.values import (
    NULL_DIRECTORY,
    InputSpec,
    Key,
    Partition,
    ProductKey,
    Target,
)
from spark_runtime.errors import PartitionValueError, TableError
from spark_runtime.tables.by_value import ValueColumn, overlap
from spark_runtime.tables.state import TableState
from spark_runtime.tables.values import (
    ANY,
    Open,
    PartitionColumn,
    Pattern,
    Values,
    is_exact,
    quoted,
    refuse_inexact,
)


@dataclass(frozen=True, slots=True)
class Member:
    """One partition of a scope.

    `within` are the keys of the open patterns that it matches, None if the scope has none; `values`
    are its column values by declared name, if the scope does not list it.
    """

    key: Key
    values: Mapping[str, str | None] | None = None
    within: tuple[Key, ...] | None = None


class Scope(Collection[Pattern]):
    """The patterns of one table, each with its key; values are in canonical form."""

    def __init__(
        self,
        columns: Sequence[PartitionColumn],
        keys: Mapping[Pattern, Key],
        names: Sequence[str] = (),
    ) -> None:
        self.columns = tuple(columns)
        self.keys = keys
        self._names = tuple(names) or tuple(column.name for column in columns)
        self._is_by_value = any(isinstance(column, ValueColumn) for column in columns)
        masks = {tuple(value is ANY for value in pattern) for pattern in keys}
        self._open = [mask for mask in masks if any(mask)]

    @classmethod
    def of(cls, state: TableState, target: Target, partitions: Sequence[Partition]) -> Scope:
        """Return the partitions of a table that a run spec names.

        Raises PartitionValueError, and TableError if the table is partitioned differently.
        """
        keys: dict[Pattern, Key] = {}
        for partition, pattern in zip(
            partitions, patterns_of(state, target, partitions), strict=True
        ):
            other = keys.setdefault(pattern, partition.key)
            # Reading both is exact; replacing one of them would clear the other.
            if other != partition.key and not isinstance(target, InputSpec):
                raise PartitionValueError(
                    f"keys '{other}' and '{partition.key}' are both stored as "
                    f"{describe(state.columns, pattern)}",
                    hint="Set a format in the dataset's `columns` that distinguishes them.",
                )
        return cls(state.columns, keys, declared_names(target, state.columns))

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.keys)

    def __contains__(self, values: object) -> bool:
        return values in self.keys or (isinstance(values, tuple) and any(self._fitted(values)))

    @property
    def digest(self) -> str:
        """What two scopes of a table have in common that name the same partitions."""
        text = json.dumps(sorted(self, key=repr), default=str)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    @property
    def is_open(self) -> bool:
        """Whether some partitions are not listed one by one."""
        return bool(self._open)

    @property
    def is_single(self) -> bool:
        """Whether it is one partition."""
        return len(self) == 1 and not self._open

    @property
    def types(self) -> Mapping[str, str] | None:
        """The types of the columns by declared name; None if all values are listed."""
        if not self._open:
            return None
        return {name: c.type for name, c in zip(self._names, self.columns, strict=True)}

    def members(self, *states: TableState, also: Iterable[Values] = ()) -> dict[Pattern, Member]:
        """Return the listed partitions, and those of `states` and `also` that match.

        The listed ones come first, then the others sorted by value. An open pattern without a match
        is included itself. Raises TableError if the partitions of a table are unknown.
        """
        if not self._open:
            return {pattern: Member(key) for pattern, key in self.keys.items()}
        there = {*also}.union(*(state.listed() for state in states)).difference(self.keys)
        found = sorted((values for values in there if any(self._fitted(values))), key=str)
        members: dict[Pattern, Member] = {}
        fitted: set[Pattern] = set()
        for values in (*filter(is_exact, self.keys), *found):
            patterns = list(self._fitted(values))
            fitted.update(patterns)
            members[values] = self._member(values, patterns)
        for pattern in self.keys:
            if not is_exact(pattern) and pattern not in fitted:
                members[pattern] = self._member(pattern, [pattern])
        return members

    def fitted(self, partitions: Iterable[Values]) -> set[Pattern]:
        """Return the patterns of the scope that match any of these partitions."""
        found: set[Pattern] = set()
        for values in partitions:
            if values in self.keys:
                found.add(values)
            found.update(self._fitted(values))
        return found

    def _fitted(self, values: Pattern) -> Iterator[Pattern]:
        if self._is_by_value:
            yield from (key for key in self.keys if overlap(key, values))
            return
        for mask in self._open:
            if len(mask) != len(values):
                continue  # of a table that was partitioned differently
            pattern = tuple(
                ANY if is_open else value for value, is_open in zip(values, mask, strict=True)
            )
            if pattern in self.keys:
                yield pattern

    def _member(self, values: Pattern, patterns: Sequence[Pattern]) -> Member:
        within = tuple(self.keys[pattern] for pattern in patterns)
        if values in self.keys and is_exact(values):
            return Member(self.keys[values], within=within)
        by_name = {
            n: v for n, v in zip(self._names, values, strict=True) if not isinstance(v, Open)
        }
        is_left_out = [value is ANY for value in patterns[0]]
        texts = {
            name: NULL_DIRECTORY if by_name[name] is None else str(by_name[name])
            for name, left_out in zip(self._names, is_left_out, strict=True)
            if left_out and name in by_name
        }
        return Member(_labelled(within[0], texts), by_name, within)


def patterns_of(
    state: TableState, target: Target, partitions: Iterable[Partition]
) -> list[Pattern]:
    """Return the partitions of a table that a run spec names, in its order.

    Raises PartitionValueError, and TableError if the table is partitioned differently.
    """
    columns = state.columns
    if {c.name.lower() for c in columns} != {name.lower() for name in target.columns}:
        if state.clustered:
            raise TableError(
                f"{target.dataset} is clustered, not partitioned: it has no partitions that "
                "could be replaced exactly",
                hint="Declare `time_column` or `key_column` instead of `columns`, partition the "
                'table by its keys, or declare it with grain = "none".',
            )
        raise TableError(
            f"{target.dataset} is partitioned by "
            f"{[column.name for column in columns] or 'nothing'}, the run spec says "
            f"{list(target.columns) or 'nothing'}",
            hint="Correct `columns` in the project file"
            + (
                "."
                if columns
                else ", or declare `time_column` or `key_column`: the column whose value says "
                "which key a row has."
            ),
        )
    refuse_inexact(columns)
    _refuse_unreadable(columns, target)
    names = declared_names(target, columns)
    for column in columns:
        if isinstance(column, ValueColumn):
            column.refuse_unfit(target.dataset, target.mixed)
            return [column.span(told.values.get(names[0])) for told in partitions]
    return [
        tuple(
            column.canonical(told.values[name]) if name in told.values else ANY
            for column, name in zip(columns, names, strict=True)
        )
        for told in partitions
    ]


def _refuse_unreadable(columns: Iterable[PartitionColumn], target: Target) -> None:
    """Raise TableError for a name that Delta strips of a backtick: it then finds no files."""
    for column in columns:
        if target.format == "delta" and column.name.strip("`") != column.name:
            raise TableError(
                f"partition column {column.name!r} of {target.dataset} begins or ends with a "
                "backtick: Delta reads no rows by such a name",
                hint="Rename the column.",
            )


def declared_names(target: Target, columns: Iterable[PartitionColumn]) -> list[str]:
    """Return the declared names of the columns, ignoring their case in the table."""
    declared = {name.lower(): name for name in target.columns}
    return [declared.get(column.name.lower(), column.name) for column in columns]


def _labelled(key: Key, texts: Mapping[str, str]) -> Key:
    """Return a key with `*` with the values of these columns in its open dimensions.

    A dimension takes the column of its own name, else the columns in order.

    >>> str(_labelled(ProductKey({"day": "2024-06-15", "area": "*"}), {"region": "eu"}))
    'day=2024-06-15/area=eu'
    """
    if not isinstance(key, ProductKey):
        return next(iter(texts.values()), key)
    lower = {name.lower(): name for name in texts}
    free = [dimension for dimension, label in key.items() if label == "*"]
    taken = {
        dimension: lower[dimension.lower()] for dimension in free if dimension.lower() in lower
    }
    rest = (name for name in texts if name not in taken.values())
    taken |= dict(zip((one for one in free if one not in taken), rest, strict=False))
    return ProductKey({**key, **{dimension: texts[name] for dimension, name in taken.items()}})


def describe(columns: Sequence[PartitionColumn], values: Pattern) -> str:
    """Return partitions for a message: `day=2024-01-01/region=NULL`, `region=any value`."""
    for column in columns:
        if isinstance(column, ValueColumn):
            return column.shown(values)
    texts = ["NULL" if v is None else v.value if isinstance(v, Open) else v for v in values]
    return "/".join(f"{c.name}={text}" for c, text in zip(columns, texts, strict=True)) or "*"


def predicate(
    columns: Sequence[PartitionColumn], patterns: Iterable[Pattern], table: str = ""
) -> str:
    """Return SQL that is true for exactly these partitions (of `table`), including NULL keys.

    They are grouped by all columns except the one with the most values, so that thousands of keys
    become a few IN lists (measured: an OR of 3,000 tuples costs four times as much).
    """
    tuples = list(patterns)
    if not tuples:
        raise ValueError("a predicate needs at least one partition")
    if not columns:
        return "true"
    if isinstance(columns[0], ValueColumn):
        return columns[0].condition(tuples, table)
    distinct = [len({values[i] for values in tuples}) for i in range(len(columns))]
    widest = distinct.index(max(distinct))
    groups: dict[Pattern, list[str | Open | None]] = {}
    for values in tuples:
        rest = (*values[:widest], *values[widest + 1 :])
        groups.setdefault(rest, []).append(values[widest])
    others = [column for i, column in enumerate(columns) if i != widest]
    found = []
    for rest, members in groups.items():
        terms = [_is_in(column, [value], table) for column, value in zip(others, rest, strict=True)]
        terms = [term for term in (*terms, _is_in(columns[widest], members, table)) if term]
        if not terms:
            return "true"
        found.append(f"({' AND '.join(terms)})")
    return " OR ".join(found)


def _is_in(column: PartitionColumn, values: Collection[str | Open | None], table: str) -> str:
    """Return SQL for a column with one of the values; empty if it may have any."""
    if ANY in values:
        return ""
    name = f"{table}.{quoted(column.name)}" if table else quoted(column.name)
    literals = [column.literal(value) for value in values if isinstance(value, str)]
    terms = []
    if len(literals) == 1:
        terms.append(f"{name} = {literals[0]}")
    elif literals:
        terms.append(f"{name} IN ({', '.join(literals)})")
    if None in values:
        terms.append(f"{name} IS NULL")
    return terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})"
