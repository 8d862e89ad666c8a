"""Which declaration holds for a name."""

from __future__ import annotations

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.project.declarations import ReadDeclaration
from lineage_backfill.project.matching import Matcher, names


@pytest.mark.parametrize(
    ("namespace", "space", "found"),
    [
        ("postgres://[::1]:5432", "postgres://[::1]:5432", True),  # a namespace may have brackets
        ("postgres://[::1]:5432", "postgres://[::1]:5433", False),
        ("postgres://[::1]:*", "postgres://[::1]:5432", False),  # as a glob they are a choice
        ("a[12]", "a2", True),
        ("a[12]", "a[12]", True),
        ("a*", "abc", True),
        ("a.c", "abc", False),
        (None, "abc", True),
    ],
)
@pytest.mark.parametrize("home", [False, True])
def test_beside_a_glob_a_namespace_means_itself_or_is_one(
    namespace: str | None, space: str, found: bool, home: bool
) -> None:
    edge = ReadDeclaration(dataset="o*", namespace=None if home else namespace)
    project = namespace if home else "elsewhere" if namespace else None
    ref = DatasetRef(space, "orders")
    matcher = Matcher([edge], project, lambda one: one.dataset)
    assert (matcher.find(ref) is not None, names(edge, ref, project)) == (found, found)
