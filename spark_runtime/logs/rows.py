"""Compares the rows of partitions in two versions of a Delta table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from lineage_backfill.model import DatasetRef
from lineage_backfill.redaction import MASK
from lineage_backfill.runspec.values import Partition, Target
from spark_runtime.errors import TableError
from spark_runtime.tables.scope import Scope
from spark_runtime.tables.tables import Tables
from spark_runtime.tables.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS = 50  # how many columns have sums and are in a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRequest:
    """The partitions to compare, by their column values, in two versions of a table.

    `before` is None if there was no table. `scoped_by` and `time_format` are those of the run spec.
    Rows are matched by the columns `row_key`, or whole. Samples have at most `most` rows of each
    kind; the values of columns in `mask` are hidden.
    """

    location: str
    before: int | None
    after: int
    partitions: Sequence[Mapping[str, str | None]]
    scoped_by: Literal["time", "key"] | None = None
    time_format: str | None = None
    row_key: Sequence[str] = ()
    mask: Sequence[str] = ()
    most: int = 10


def difference(spark: SparkSession, asked: RowsRequest) -> dict[str, Any]:
    """Return the numbers of added, removed and changed rows, with samples and sums.

    Without a unique key, a changed row counts as removed and added. Raises TableError for columns
    that the table lacks.
    """
    after = _read(spark, asked, asked.after)
    before = after.limit(0) if asked.before is None else _read(spark, asked, asked.before)
    names = [name for name in after.columns if name in before.columns]
    for name in (*asked.row_key, *asked.mask):
        if name not in after.columns:
            raise TableError(
                f"{asked.location} has no column {name}",
                hint="Correct `row_key` and `mask` of its [[dataset]].",
            )
    shared = [quoted(name) for name in names]
    sides = _Sides(before.select(*shared), after.select(*shared), asked)
    key = list(asked.row_key) if sides.has_unique(asked.row_key) else []
    return {
        "rows_before": before.count(),
        "rows_after": after.count(),
        "row_key": key,
        "key_is_unique": bool(key) or not asked.row_key,
        **(sides.by_key(key) if key else sides.whole()),
        "sums": sides.sums(key),
        "new_columns": [name for name in after.columns if name not in names],
        "lost_columns": [name for name in before.columns if name not in names],
    }


def _read(spark: SparkSession, asked: RowsRequest, version: int) -> DataFrame:
    from pyspark.sql import functions as F

    if asked.scoped_by is not None:
        return _read_by_value(spark, asked, version)
    frame = spark.read.format("delta").option("versionAsOf", version).load(asked.location)
    wanted = [
        reduce(
            lambda one, other: one & other,
            (
                F.col(quoted(name)).cast("string").eqNullSafe(F.lit(value))
                for name, value in values.items()
            ),
            F.lit(True),
        )
        for values in asked.partitions
    ]
    return frame.where(reduce(lambda one, other: one | other, wanted, F.lit(False)))


def _read_by_value(spark: SparkSession, asked: RowsRequest, version: int) -> DataFrame:
    target = Target(
        dataset=DatasetRef("", asked.location),
        columns=tuple(dict.fromkeys(chain(*asked.partitions))),
        location=asked.location,
        scoped_by=asked.scoped_by,
        time_format=asked.time_format,
    )
    tables = Tables(spark)
    wanted = [Partition(key=str(n), values=values) for n, values in enumerate(asked.partitions)]
    scope = Scope.of(tables.log(target).state(version), target, wanted)
    return tables.storage(target).held(version, scope)


class _Sides:
    """The rows before and after; maps, which cannot be compared, are JSON."""

    def __init__(self, before: DataFrame, after: DataFrame, asked: RowsRequest) -> None:
        self._before, self._after, self._asked = before, after, asked
        self._names = before.columns

    def has_unique(self, key: Sequence[str]) -> bool:
        """Whether there is a key, and it is unique on both sides."""
        return bool(key) and not any(
            side.groupBy(*(quoted(name) for name in key))
            .count()
            .where("count > 1")
            .limit(1)
            .count()
            for side in (self._before, self._after)
        )

    def whole(self) -> dict[str, Any]:
        """Compare whole rows, counting duplicates."""
        before, after = (self._comparable(side) for side in (self._before, self._after))
        added, removed = after.exceptAll(before), before.exceptAll(after)
        return {
            "added": _unwrapped(self._sample(added, self._names)),
            "removed": _unwrapped(self._sample(removed, self._names)),
            "changed": {"count": 0, "rows": []},
        }

    def by_key(self, key: Sequence[str]) -> dict[str, Any]:
        """Compare the rows that have the same key."""
        from pyspark.sql import functions as F

        before, after = self._before.alias("b"), self._after.alias("a")
        same = reduce(
            lambda one, other: one & other,
            (F.col(_of("b", name)).eqNullSafe(F.col(_of("a", name))) for name in key),
        )
        others = [name for name in self._names if name not in key]
        differ = [~_json(_of("b", name)).eqNullSafe(_json(_of("a", name))) for name in others]
        both = before.join(after, same, "inner")
        pairs = both.where(reduce(lambda one, other: one | other, differ, F.lit(False)))
        shown = [F.col(_of("a", name)).alias(name) for name in key]
        sides = [
            F.when(
                differs,
                F.struct(F.col(_of("b", name)).alias("b"), F.col(_of("a", name)).alias("a")),
            )
            for name, differs in zip(others, differ, strict=True)
        ]
        changed = pairs.select(*shown, *(s.alias(n) for s, n in zip(sides, others, strict=True)))
        return {
            "added": self._sample(after.join(before, same, "left_anti"), self._names),
            "removed": self._sample(before.join(after, same, "left_anti"), self._names),
            "changed": self._sample(changed, [*key, *others]),
        }

    def sums(self, key: Sequence[str]) -> list[dict[str, Any]]:
        """Return the sums of numeric columns on both sides, except keys and masked ones."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import NumericType

        hidden = {*key, *self._asked.mask, *chain(*self._asked.partitions)}
        names = [
            field.name
            for field in self._after.schema
            if isinstance(field.dataType, NumericType) and field.name not in hidden
        ][:_COLUMNS]
        if not names:
            return []
        found = [
            side.agg(*(F.sum(quoted(name)).alias(name) for name in names)).first()
            for side in (self._before, self._after)
        ]
        before, after = (row.asDict() if row is not None else {} for row in found)
        return [
            {"column": name, "before": _text(before.get(name)), "after": _text(after.get(name))}
            for name in names
        ]

    def _comparable(self, frame: DataFrame) -> DataFrame:
        return frame.select(*(_json(quoted(name)).alias(name) for name in self._names))

    def _sample(self, rows: DataFrame, names: Sequence[str]) -> dict[str, Any]:
        rows = rows.cache()
        try:
            ordered = rows.orderBy(*(_json(quoted(name)) for name in names))
            ordered = ordered.limit(self._asked.most)
            return {
                "count": rows.count(),
                "rows": [self._shown(row.asDict(), names) for row in ordered.collect()],
            }
        finally:
            rows.unpersist()

    def _shown(self, row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name in names[:_COLUMNS]:
            value = row[name]
            is_pair = hasattr(value, "asDict") and set(value.asDict()) == {"a", "b"}
            if name in self._asked.mask:
                if value is not None:
                    shown[name] = {"before": MASK, "after": MASK} if is_pair else MASK
            elif is_pair:
                shown[name] = {"before": _text(value["b"]), "after": _text(value["a"])}
            elif value is not None:
                shown[name] = _text(value)
        return shown


def _json(name: str) -> Column:
    """Return a column as text that is equal if the values are, including maps."""
    from pyspark.sql import functions as F

    return F.to_json(F.struct(F.col(name).alias("v")))


def _of(side: str, name: str) -> str:
    return f"{side}.{quoted(name)}"


def _unwrapped(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample of rows with their JSON values parsed; NULL is left out."""
    rows = [
        {
            name: value if value == MASK else str(json.loads(value)["v"])
            for name, value in row.items()
            if value != "{}"
        }
        for row in sample["rows"]
    ]
    return {**sample, "rows": rows}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
