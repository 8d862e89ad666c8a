"""A request as a document: what `--request FILE` may hold."""

from __future__ import annotations

from typing import Any

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.planning.request_json import request_from_dict
from tests.unit.planning.world import request

ORDERS = {"namespace": "w", "name": "orders"}


def test_roots_with_different_keys() -> None:
    document = {
        "changed": [
            {"dataset": ORDERS, "partitions": ["2024-03-10", "2024-03-12..2024-03-13"]},
            {"dataset": {"namespace": "w", "name": "ref"}},
        ],
        "jobs": [{"job": {"namespace": "w", "name": "daily"}, "partitions": ["2024-03-20"]}],
        "columns": ["price"],
        "exact": True,
        "depth": 2,
        "allow": ["protected"],
    }
    assert request_from_dict(document, "it") == request(
        {"orders": "2024-03-10,2024-03-12..2024-03-13", "ref": None},
        jobs={"daily": "2024-03-20"},
        columns=("price",),
        exact=True,
        depth=2,
        allow=frozenset({"protected"}),
    )


def test_product_keys_are_boxes() -> None:
    box = {"day": ["2024-03-10..2024-03-12"], "region": ["eu"]}
    asked = request_from_dict({"changed": [{"dataset": ORDERS, "partitions": [box]}]}, "it")
    assert asked.changed[0].keys == (box,)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "is not a request"),
        ("orders", "is not a request"),
        ({"changed": [{"partitions": ["2024-03-10"]}]}, r"changed\[0\] names no dataset"),
        ({"changed": [{"dataset": "orders"}]}, r"changed\[0\] names no dataset"),
        ({"changed": [{"dataset": {"name": "orders"}}]}, r"changed\[0\] names no dataset"),
        ({"changed": "orders"}, r"changed\[0\] names no dataset"),
        ({"jobs": [{"dataset": ORDERS}]}, r"jobs\[0\] names no job"),
        ({"changed": [{"dataset": ORDERS, "partitions": "2024-03-10"}]}, "is not a list of keys"),
        ({"changed": [{"dataset": ORDERS, "partitions": [20240310]}]}, "is not a list of keys"),
        ({"column": ["price"]}, "'column' is no setting"),
        ({"columns": "price"}, "'columns' is no setting"),
        ({"depth": 0}, "'depth' is no setting"),
        ({"depth": True}, "'depth' is no setting"),
        ({"exact": 1}, "'exact' is no setting"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(document: Any, says: str) -> None:
    with pytest.raises(UsageError, match=f"request.json.*{says}") as caught:
        request_from_dict(document, "request.json")
    assert caught.value.hint
