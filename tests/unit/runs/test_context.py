"""What runs are told beside their partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lineage_backfill.runs.context import ExecutionContext
from lineage_backfill.store.sql import SqlRunStore
from tests.unit.planning.world import declarations, lineage, plan, request

EDGES = lineage("raw > copy > mart")
DECLARED = declarations("""
    dataset = [
      { name = "raw", grain = "day", column = "ds", location = "raw" },
      { name = "mart", grain = "day", column = "ds", location = "mart" },
    ]
    job = [{ name = "copy", engine = "local", entrypoint = "jobs:copy" }]
""")


@pytest.mark.parametrize("url", ["http://marquez:5000", None])
def test_runs_send_their_lineage_to_where_it_is_read_from(
    url: str | None, tmp_path: Path, new_store: Callable[[], SqlRunStore]
) -> None:
    made = plan(request({"raw": "2024-03-10"}), EDGES, DECLARED)
    context = ExecutionContext(
        EDGES,
        DECLARED,
        [made],
        store=new_store(),
        functions={},
        root=tmp_path,
        outbox=tmp_path / "outbox",
        lineage_url=url,
        is_ours=lambda _: True,
        logs=lambda _catalog, _datasets: {},
    )
    assert made.runs
    spec = context.spec(made.runs[0], 1, "token", tmp_path / "result.json")
    assert spec["lineage"]["url"] == url
    assert spec["lineage"]["outbox"] == str(tmp_path / "outbox")
