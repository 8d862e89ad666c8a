"""Partition values become literals that mean exactly themselves."""

from __future__ import annotations

import pytest

from spark_runtime.errors import PartitionValueError, TableError
from spark_runtime.tables.values import (
    PartitionColumn,
    logged,
    refuse_inexact,
)

DAY, HOUR, TEXT = (
    PartitionColumn("day", "date"),
    PartitionColumn("hour", "integer"),
    PartitionColumn("te`xt", "string"),
)


@pytest.mark.parametrize(
    ("column", "text", "canonical", "literal"),
    [
        (DAY, "2024-01-05", "2024-01-05", "DATE'2024-01-05'"),
        (DAY, "20240105", "2024-01-05", "DATE'2024-01-05'"),
        (HOUR, "+07", "7", "CAST('7' AS INT)"),
        (PartitionColumn("x", "long"), "-5", "-5", "CAST('-5' AS BIGINT)"),
        (PartitionColumn("x", "boolean"), "TRUE", "true", "true"),
        (PartitionColumn("x", "decimal(6,2)"), "1.5", "1.50", "CAST('1.50' AS decimal(6,2))"),
        (TEXT, "'${x}\\", "'${x}\\", "CAST(X'27247b787d5c' AS STRING)"),
        (TEXT, "é😀", "é😀", "CAST(X'c3a9f09f9880' AS STRING)"),
    ],
)
def test_a_text_has_one_canonical_form_and_one_literal(
    column: PartitionColumn, text: str, canonical: str, literal: str
) -> None:
    assert column.canonical(text) == canonical
    assert column.literal(canonical) == literal


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (DAY, "2024-01"),
        (DAY, "2024-02-30"),
        (HOUR, "1.0"),
        (HOUR, "1_0"),
        (HOUR, "٣"),
        (HOUR, "2147483648"),
        (PartitionColumn("x", "byte"), "128"),
        (PartitionColumn("x", "boolean"), "yes"),
        (PartitionColumn("x", "decimal(6,2)"), "1.234"),
        (PartitionColumn("x", "decimal(6,2)"), "12345.00"),
        (PartitionColumn("x", "decimal(6,2)"), "NaN"),
    ],
)
def test_a_text_that_is_no_value_of_its_column_is_refused(
    column: PartitionColumn, text: str
) -> None:
    with pytest.raises(PartitionValueError, match=r"is not a value of partition column"):
        column.canonical(text)


@pytest.mark.parametrize(
    "kind", ["timestamp", "timestamp_ntz", "double", "float", "binary", "map", "char5"]
)
def test_types_without_one_text_cannot_partition(kind: str) -> None:
    column = PartitionColumn("x", kind)
    for use in (column.canonical, column.literal, lambda text: refuse_inexact([DAY, column])):
        with pytest.raises(TableError, match=f"'x' is of type {kind}, whose values have more"):
            use("1")
    # A table may be partitioned by it all the same: what its log says is taken as it stands.
    assert [logged(column, text) for text in ("1.50", "", None)] == ["1.50", None, None]
