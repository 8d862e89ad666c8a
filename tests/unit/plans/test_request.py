"""A request as a document: what `--request FILE` may hold."""

from __future__ import annotations

from typing import Any

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.plans.request import LogRange, request_from_dict
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
        ({"changed": [{"partitions": ["2024-03-10"]}]}, r"changed\[0\]: `dataset` is missing"),
        ({"changed": [{"dataset": "orders"}]}, r"changed\[0\]: `dataset` must be an object"),
        ({"changed": [{"dataset": {"name": "orders"}}]}, r"\[0\].dataset: `namespace` is missing"),
        ({"changed": [{"dataset": ORDERS | {"nam": "x"}}]}, r"dataset: unknown key `nam`"),
        (
            {"changed": [{"dataset": {"namespace": "w", "name": 3}}]},
            r"changed\[0\].dataset: `name` must be a string, not 3",
        ),
        ({"changed": "orders"}, "`changed` must be a list"),
        ({"changed": ["orders"]}, r"`changed\[0\]` must be an object, not 'orders'"),
        ({"changed": {"dataset": ORDERS}}, "`changed` must be a list"),
        ({"jobs": [{"dataset": ORDERS}]}, r"jobs\[0\]: unknown key `dataset`"),
        ({"jobs": [{"job": ORDERS, "exact": "yes"}]}, r"jobs\[0\]: `exact` must be true or false"),
        ({"changed": [{"dataset": ORDERS, "exact": True}]}, r"changed\[0\]: unknown key `exact`"),
        ({"changed": [{"dataset": ORDERS, "partitions": "2024-03-10"}]}, "is not a list of keys"),
        ({"changed": [{"dataset": ORDERS, "partitions": [20240310]}]}, "is not a list of keys"),
        ({"changed": [{"dataset": ORDERS, "partitions": [{"day": 3}]}]}, "is not a list of keys"),
        ({"changed": [{"dataset": ORDERS, "log": {"after": 1}}]}, r"log: `until` is missing"),
        ({"changed": [{"dataset": ORDERS, "log": {"after": "1"}}]}, "`after` must be a whole"),
        ({"changed": [{"dataset": ORDERS, "log": 3}]}, "`log` must be an object, not 3"),
        *(
            ({"changed": [{"dataset": ORDERS, "log": log}]}, f"log: {says}")
            for log, says in (
                ({"after": 5, "until": 2}, "`until` is 2, but must be at least 5, as `after` is"),
                ({"after": -2, "until": 2}, "`after` is -2, but must be at least -1"),
                ({"after": -(10**30), "until": 2}, "`after` is -1.*, but must be at least -1"),
                ({"after": 1, "until": 10**30}, "`until` is 1.*, but must be at most 9"),
                ({"after": 10**30, "until": 10**30}, "`after` is 1.*, but must be at most 9"),
                ({"after": 1.5, "until": 2}, "`after` must be a whole number"),
            )
        ),
        *(
            ({name: [value]}, rf"`{name}\[0\]` is empty")
            for name in ("columns", "select", "exclude", "ignored_runs")
            for value in ("", "  ")
        ),
        ({"columns": "price"}, "`columns` must be a list"),
        ({"columns": [1]}, r"`columns\[0\]` must be a string, not 1"),
        ({"depth": 0}, "`depth` is 0, but must be at least 1"),
        ({"depth": True}, "`depth` must be a whole number"),
        ({"exact": 1}, "`exact` must be true or false"),
        ({"author": 1}, "`author` must be a string"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(document: Any, says: str) -> None:
    with pytest.raises(UsageError, match=f"request.json.*{says}") as caught:
        request_from_dict(document, "request.json")
    assert caught.value.hint


@pytest.mark.parametrize(("after", "until"), [(-1, -1), (-1, 0), (3, 3), (3, 2**63 - 1)])
def test_versions_of_a_log(after: int, until: int) -> None:
    entry = {"dataset": ORDERS, "log": {"after": after, "until": until}}
    (changed,) = request_from_dict({"changed": [entry]}, "it").changed
    assert changed.log == LogRange(after=after, until=until)


@pytest.mark.parametrize(
    ("document", "says", "meant"),
    [
        ({"column": ["price"]}, "unknown key `column`", "columns"),
        (
            {"changed": [{"dataset": ORDERS, "partition": []}]},
            "unknown key `partition`",
            "partitions",
        ),
        ({"jobs": [{"job": ORDERS, "exakt": True}]}, "unknown key `exakt`", "exact"),
        ({"allow": ["protect"]}, "unknown guard rail 'protect'", "protected"),
        ({"allow": ["max_runs"]}, "unknown guard rail 'max_runs'", "max-runs"),
    ],
)
def test_what_is_misspelt_is_refused_with_what_was_meant(
    document: Any, says: str, meant: str
) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        request_from_dict(document, "request.json")
    assert f"Did you mean `{meant}`?" in caught.value.hint
    assert caught.value.code == "LB-100"
