"""Which declaration holds for a name."""

from __future__ import annotations

import tomllib

import pytest

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project.declarations import DatasetDeclaration, ReadDeclaration
from lineage_backfill.project.matching import Matcher, heading, names


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


@pytest.mark.parametrize("home", [None, "ops", "shop"])
@pytest.mark.parametrize("namespace", ["ops", "postgres://[::1]:5432", "it's", "a\\b"])
@pytest.mark.parametrize("name", ["orders", "t[1]", "what*", "it's", 'a "b"', "a\\b", "a\nb", "é"])
def test_a_hint_shows_the_table_that_declares_exactly_this_name(
    name: str, namespace: str, home: str | None
) -> None:
    ref = DatasetRef(namespace, name)
    place, _, shown = heading(ref, home).partition(": ")
    kind, _, table = shown.partition(" ")
    assert place == "in the project file"
    declared = DatasetDeclaration(**tomllib.loads(f"one = {{ {table} }}")["one"])
    matcher = Matcher([declared], home, lambda one: one.name)
    assert (kind, matcher.find(ref)) == ("[[dataset]]", declared)
    assert (declared.namespace is None) == (home in (None, namespace))
    assert matcher.find(DatasetRef(namespace, "other")) is None
    assert heading(JobRef(namespace, name), home) == f"{place}: [[job]] {table}"
