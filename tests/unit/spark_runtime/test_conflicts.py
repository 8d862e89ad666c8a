"""What somebody else's commit raises is told from every other error, by class and by words."""

from __future__ import annotations

import inspect
import json
import re
import zipfile
from typing import Any

import pytest

from spark_runtime.session import find_jars
from spark_runtime.tables.delta.format import is_conflict


def conditions() -> list[str]:
    """All conditions of errors that this Delta knows."""
    for jar in find_jars():
        with zipfile.ZipFile(jar) as archive:
            name = "error/delta-error-classes.json"
            if name in archive.namelist():
                return sorted(json.loads(archive.read(name)))
    raise AssertionError("Delta's jar holds no list of its errors")


def test_every_class_of_deltas_conflicts_is_one() -> None:
    from delta import exceptions

    classes: list[Any] = [one for _, one in inspect.getmembers(exceptions, inspect.isclass)]
    assert len(classes) >= 8
    for one in classes:
        assert is_conflict(one("someone else was faster")), one.__name__
    assert not is_conflict(ValueError("Concurrent appends are not my business"))


def test_every_condition_of_a_conflict_is_one_and_no_other() -> None:
    known = conditions()
    found = [name for name in known if is_conflict(RuntimeError(f"[{name}.WITH_HINT] somebody"))]
    assert found == [
        name
        for name in known
        if re.fullmatch(r"DELTA_(CONCURRENT_.*|METADATA_CHANGED|PROTOCOL_CHANGED)", name)
    ]
    assert {"DELTA_CONCURRENT_APPEND", "DELTA_CONCURRENT_DELETE_READ"} < set(found)
    assert len(found) < len(known) / 10


@pytest.mark.parametrize(
    "text", ["[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]", "[DELTA_SCHEMA_CHANGED]"]
)
def test_other_errors_of_delta_are_no_conflicts(text: str) -> None:
    assert not is_conflict(RuntimeError(text))
