"""Tables by the names of a Hive metastore: a name and its path are one table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).parents[1] / "name_driver.py"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What came of tables by name; a process of its own, whose session has the metastore."""
    folder = tmp_path_factory.mktemp("names")
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_name_of_a_table_and_its_path_write_to_it(told: Any) -> None:
    """Created, replaced, merged into, appended to and undone, by other names each time."""
    found = told["spellings"]
    assert found["versions"] == [3, 4, 5, 6]
    assert found["written"] == [["d1", 9], ["d2", 2]]
    undone = [["d1", n] for n in (3, 4, 5, 6)]
    assert found["undone"] == [*undone, ["d2", 2]]
    assert found["undone by its path"] == [*undone[:-1], ["d2", 2]]
    assert found["changed"] == [["d1"]]
    assert found["made"] == [[["d2"]], [["d1"]]]
    assert found["created"] == [["d1", 1]]


def test_a_table_outside_of_the_warehouse_is_one_by_name_and_by_path(told: Any) -> None:
    assert told["elsewhere"] == {"rows": [["d1", 2]], "version": 2}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop.hive", "not a Delta table"),
        ("shop.csv", "not a Delta table"),
        ("shop.view", "is a view"),
        ("other.s.t", "not a Delta table"),
        ("other.s.none", "does not exist in the catalog"),
        ("shop.none", "does not exist in the catalog"),
        ("none.shop.t", "cannot be looked up"),
        ("a.b.c.d", "cannot be looked up"),
        ("write none.t", "cannot be created: [SCHEMA_NOT_FOUND]"),
        ("write other.s.new", "its catalog creates no Delta tables"),
    ],
)
def test_what_is_no_delta_table_gets_a_sentence(told: Any, name: str, said: str) -> None:
    assert said in told["refusals"][name]
