"""Datasets whose keys are values of a column: as declared, merged, sent and told to a run."""

from __future__ import annotations

from typing import Any

import pytest

from lineage_backfill.errors import DeclarationError, UsageError
from lineage_backfill.model import DatasetRef
from lineage_backfill.project import facets
from lineage_backfill.project.declarations import DatasetDeclaration
from lineage_backfill.project.merge import merged
from lineage_backfill.project.resolve.physical_columns import physical_columns
from lineage_backfill.typed import read
from spark_runtime.job.datasets import Dataset

REF = DatasetRef("n", "events")


def declared(**values: Any) -> DatasetDeclaration:
    return read(DatasetDeclaration, {"name": "events", **values}, "it", fault=DeclarationError)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"time_column": "ts", "column": "ds"}, "has `time_column` and other columns"),
        ({"time_column": "ts", "key_column": "k"}, "has `time_column` and other columns"),
        ({"key_column": "k", "dimensions": [{"name": "d", "grain": "day"}]}, "and `dimensions`"),
        ({"time_column": "ts", "keys": ["eu"]}, "its keys have no time"),
        ({"time_column": "ts", "grain": "none"}, "its keys have no time"),
        ({"key_column": "k", "grain": "day"}, "does not list its keys"),
        ({"key_column": "k", "keys": "runtime"}, "does not list its keys"),
        ({"time_format": "%Y-%m-%d"}, "needs the `time_column`"),
        ({"time_column": "ts", "time_format": "%d.%m.%Y"}, "must sort like time"),
        ({"time_column": "ts", "time_format": "%Y-%m"}, "must sort like time"),
        ({"time_column": "ts", "format": "parquet"}, "is a Parquet table"),
    ],
)
def test_what_contradicts_a_column_of_values_is_refused(
    values: dict[str, Any], message: str
) -> None:
    """In words that say what to keep."""
    with pytest.raises(UsageError, match=message):
        declared(**values)


def test_a_place_that_states_columns_wins_over_the_facet() -> None:
    """Columns of partitions and of values are one group."""
    file, sent = declared(grain="day", column="ds"), declared(time_column="ts")
    assert merged((file, sent)).value_column is None
    assert physical_columns(merged((declared(grain="day"), sent))) == {"ts": (None, None)}
    assert merged((declared(keys=["eu"]), sent)).value_column is None


def test_the_facet_carries_the_column() -> None:
    """As the project file has it."""
    own = declared(grain="hour", time_column="ts", time_format="%Y-%m-%dT%H:%M")
    sent = facets.dataset_facet(own, "Asia/Tokyo")
    assert facets.read_dataset(sent, "it").time_format == "%Y-%m-%dT%H:%M"
    assert sent["time_column"] == "ts"
    assert not sent.get("columns")


def test_code_declares_the_column() -> None:
    """With the same names."""
    own = Dataset("events", keys=["eu", "us"], key_column="region", location="/events")
    assert own.declaration(REF).key_column == "region"
