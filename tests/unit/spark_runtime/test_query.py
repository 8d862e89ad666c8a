"""What the head of a file of SQL says of the job that it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lineage_backfill.errors import ConfigError
from spark_runtime.job.query import load_query

HEAD = """\
-- The orders of each day.
--@ inputs = { o = "orders", before = { dataset = "totals", mapping = "offset", by = -1 } }
--@ output = "totals"
--@ batch = "range"
--@ mode = "merge"
--@ merge_on = ["id"]
SELECT * FROM o
"""


def test_the_head_says_what_a_decorator_says(tmp_path: Path) -> None:
    path = tmp_path / "totals.sql"
    path.write_text(HEAD)
    query = load_query(path)
    assert query.text.splitlines() == ["-- The orders of each day.", *[""] * 5, "SELECT * FROM o"]
    orders, before = query.reads
    assert (orders.dataset, orders.how.mapping) == ("orders", None)
    assert (before.dataset, before.how.mapping, before.how.by) == ("totals", "offset", -1)
    (write,) = query.writes
    assert (write.dataset, write.mode) == ("totals", "merge")
    assert (query.batch, query.options) == ("range", {"merge_on": ("id",)})


def test_a_query_may_end_in_a_semicolon(tmp_path: Path) -> None:
    path = tmp_path / "totals.sql"
    path.write_text("SELECT 1 AS n;\n\n")
    asked: list[str] = []
    spark = SimpleNamespace(sql=lambda text, args: asked.append(text))
    context: Any = SimpleNamespace(spark=spark, parameters={}, keys=())
    load_query(path)._result(context)
    assert asked == ["SELECT * FROM (\nSELECT 1 AS n\n)"]


def test_without_a_head_all_is_left_to_the_project_file(tmp_path: Path) -> None:
    path = tmp_path / "totals.sql"
    path.write_text("SELECT 1")
    query = load_query(path)
    assert (query.inputs, query.reads, query.writes, query.batch) == (None, (), (), "key")


@pytest.mark.parametrize(
    ("head", "complaint"),
    [
        ("inputs = {", "the lines --@ of q.sql are not TOML"),
        ("input = 3", "q.sql: unknown key `input`"),
        ("inputs = 3", "`inputs` must be a table, not 3"),
        ("batch = 3", "`batch` must be one of key, range, not 3"),
        ('mode = "apend"', "`mode` is 'apend', but must be one of"),
        ("lookback = -1", "`lookback` is -1"),
        ("inputs = { o = { dataset = 'o', befor = 1 } }", "unknown key `befor`"),
        ("inputs = { o = 3 }", "`inputs.o` must be a string or a table, not 3"),
    ],
)
def test_a_head_that_cannot_be_meant(tmp_path: Path, head: str, complaint: str) -> None:
    path = tmp_path / "q.sql"
    path.write_text(f"--@ {head}\nSELECT 1\n")
    with pytest.raises(ConfigError, match=complaint):
        load_query(path)
