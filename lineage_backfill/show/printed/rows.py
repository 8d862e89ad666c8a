"""The document of changed rows: `report --rows` and `impact --dry-run-diff`."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from lineage_backfill.show.printed.common import Count, Keys, Name


class BeforeAfter(TypedDict):
    """A value before and after."""

    before: str | None
    after: str | None


class RowSample(TypedDict):
    """Rows of one kind: their number and a sample, without NULLs; masked values are ***."""

    count: Count
    rows: list[dict[str, str | BeforeAfter]]


class ColumnSum(TypedDict):
    """The sum of a column before and after."""

    column: str
    before: str | None
    after: str | None


class RowsDifference(TypedDict):
    """How the rows of partitions differ in two versions of a table."""

    dataset: Name
    partitions: Keys
    version_before: Annotated[int | None, "Null if there was no table, and for a dry run."]
    version: Annotated[int | None, "Null for a dry run."]
    rows_before: Count
    rows_after: Count
    row_key: Annotated[list[str], "The columns that match rows; empty: rows compared whole."]
    key_is_unique: Annotated[bool, "False: the declared row_key is not unique."]
    added: RowSample
    removed: RowSample
    changed: RowSample
    sums: list[ColumnSum]
    new_columns: list[str]
    lost_columns: list[str]
    masked: list[str]


class DryRun(TypedDict):
    """A run on clones of the tables of a job, whose inputs are read as they are now."""

    job: Name
    partitions: Keys
    rewritten_first: Annotated[list[Name], "Inputs that the plan writes first."]


class Rows(TypedDict):
    """Changed rows: what `report --rows` and `impact --dry-run-diff` print with `--json`."""

    schema_version: Literal[1]
    kind: Literal["rows"]
    backfill: str | None
    dry_run: DryRun | None
    outputs: list[RowsDifference]
