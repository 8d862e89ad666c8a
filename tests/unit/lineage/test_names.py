"""Names as people type them, against what the lineage knows."""

from __future__ import annotations

import pytest

from lineage_backfill.errors import AmbiguousNameError, UnknownNameError
from lineage_backfill.lineage.names import resolve, unknown
from lineage_backfill.model import DatasetRef, JobRef

KNOWN = [
    DatasetRef("w", "orders"),
    DatasetRef("w", "days"),
    DatasetRef("postgres://db:5432", "public.orders"),
    DatasetRef("s3://bucket", "orders"),
    DatasetRef("w", "a:b"),
    DatasetRef("w:a", "b"),
    DatasetRef("w", "with / and # and space"),
]


@pytest.mark.parametrize(
    ("text", "namespace", "wanted"),
    [
        ("days", None, DatasetRef("w", "days")),
        ("w:days", None, DatasetRef("w", "days")),
        (
            "postgres://db:5432:public.orders",
            None,
            DatasetRef("postgres://db:5432", "public.orders"),
        ),
        ("orders", "w", DatasetRef("w", "orders")),
        ("w:orders", None, DatasetRef("w", "orders")),
        ("s3://bucket:orders", None, DatasetRef("s3://bucket", "orders")),
        ("a:b", None, DatasetRef("w", "a:b")),
        ("with / and # and space", None, DatasetRef("w", "with / and # and space")),
    ],
)
def test_a_name_is_matched_and_never_split(
    text: str, namespace: str | None, wanted: DatasetRef
) -> None:
    assert resolve(text, KNOWN, kind="dataset", namespace=namespace) == wanted


@pytest.mark.parametrize("text", ["orders", "w:a:b"])
def test_a_name_that_several_bear_is_refused_with_all_of_them(text: str) -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        resolve(text, KNOWN, kind="dataset")
    assert caught.value.hint.count(" or ") == 1
    assert caught.value.exit_code == 64


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("dayz", "days"),
        ("Days", "days"),
        ("w:dayz", "w:days"),
        ("public.order", "public.orders"),
    ],
)
def test_an_unknown_name_comes_with_near_misses(text: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match="no dataset is named") as caught:
        resolve(text, KNOWN, kind="dataset")
    assert near.removeprefix("w:") in caught.value.hint


def test_keys_behind_a_name_are_to_be_written_apart() -> None:
    hint = unknown("days@2024-01-01", KNOWN, kind="dataset").hint
    assert hint == "Write the partitions apart: days --partitions 2024-01-01"


def test_without_a_near_miss_the_hint_says_where_to_look() -> None:
    assert "lists all names" in unknown("zzzzzz", KNOWN, kind="dataset").hint
    assert "where it is read from" in unknown("x", list[JobRef](), kind="job").hint


@pytest.mark.parametrize(
    ("namespace", "hint"),
    [
        ("W", "Did you mean w?"),
        ("zzz", "Known here: "),
        ("s3://bucke", "Did you mean s3://bucket?"),
    ],
)
def test_a_namespace_without_any_is_refused_as_such(namespace: str, hint: str) -> None:
    with pytest.raises(UnknownNameError, match="no dataset is in the namespace") as caught:
        resolve("days", KNOWN, kind="dataset", namespace=namespace)
    assert caught.value.hint.startswith(hint)


def test_a_namespace_narrows_the_search() -> None:
    with pytest.raises(UnknownNameError):
        resolve("days", KNOWN, kind="dataset", namespace="s3://bucket")
