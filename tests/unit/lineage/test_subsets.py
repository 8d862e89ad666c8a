"""Which partitions a subset facet tells."""

from __future__ import annotations

from typing import Any

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.events.subsets import subset_keys
from lineage_backfill.partitions.text import parse_partitions

Condition = dict[str, Any]


def partitions(*dimensions: Any) -> Condition:
    return {"type": "partition", "partitions": [{"dimensions": one} for one in dimensions]}


def locations(*paths: str) -> Condition:
    return {"type": "location", "locations": list(paths)}


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        (partitions({"dt": "2024-01-01"}, {"dt": "2024-01-02"}), "2024-01-01 2024-01-02"),
        (partitions({"dt": "20240101"}), "2024-01-01"),
        (partitions({"hour_utc": "2024-01-01T05"}), "2024-01-01T05"),
        (partitions({"year": 2024, "month": 1, "day": 5}), "2024-01-05"),
        (partitions({"year": "2024", "month": "01"}), "2024-01-01"),
        (partitions({"dt": "2024-01-01", "region": "eu"}), "dt=2024-01-01/region=eu"),
        (partitions({"dt": "2024-01-01", "r": "a/b,c=d%"}), "dt=2024-01-01/r=a%2Fb%2Cc%3Dd%25"),
        (partitions({"region": "eu"}), "eu"),
        (locations("s3://b/o/ds=2024-01-01", "s3://b/o/ds=2024-01-02"), "2024-01-01 2024-01-02"),
        (locations("/o/ds=2024-01-01/hour=05"), "2024-01-01T05"),
        (locations("/o/2024/01/01"), "2024-01-01"),
        (locations("/o/region=eu%2Fwest"), ""),  # a plain key that cannot be written
        (locations("/o/part-000.parquet"), ""),
        (locations("/o/ds=2024-01-01", "/o/other"), ""),
        (partitions(*({"dt": str(number)} for number in range(2000))), ""),
        ({"type": "compare", "left": {"type": "field", "field": "ds"}}, ""),
    ],
)
def test_the_keys_that_a_condition_tells(condition: Condition, keys: str) -> None:
    found = subset_keys({"inputCondition": condition})
    assert found == subset_keys({"outputCondition": condition}) == frozenset(keys.split())
    for key in found:
        parse_partitions(key)


@pytest.mark.parametrize(
    "facet",
    [
        {"inputCondition": 3},
        {"inputCondition": {"type": "partition"}},
        {"inputCondition": {"type": "partition", "partitions": [{"dimensions": {}}]}},
        {"inputCondition": {"type": "partition", "partitions": [{"dimensions": {"a": "x" * 999}}]}},
        {"inputCondition": {"type": "location", "locations": 5}},
        [],
    ],
)
def test_a_facet_of_another_shape_raises_what_the_builder_expects(facet: Any) -> None:
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        subset_keys(facet)


def test_nothing_told_is_nothing_known() -> None:
    assert subset_keys({}) == subset_keys({"inputCondition": None}) == frozenset()
    with pytest.raises(UsageError):
        parse_partitions("")
