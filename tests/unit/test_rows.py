"""Which partition `report --rows` means, by dataset and key."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from lineage_backfill.errors import AmbiguousNameError, UnknownNameError
from lineage_backfill.ports import AttemptState
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.sources.table_logs import DeltaTableLogs
from lineage_backfill.workspace import rows
from lineage_backfill.workspace.backfills import Backfills

SALES = {"namespace": "s", "name": "sales"}
KEYS = [{"day": "2024-06-15", "region": region} for region in ("eu/west", "us")]


def attempt() -> Any:
    parts = [{"key": key, "rows": 2} for key in KEYS]
    output = {"dataset": SALES, "version_before": 3, "version": 4, "partitions": parts}
    return SimpleNamespace(
        submitted_at=1,
        state=AttemptState.SUCCEEDED,
        result={"outputs": [output]},
        run_id="r",
        attempt=1,
    )


def compared(named: str) -> tuple[Any, Any]:
    """Return the document, and what was asked of the table."""
    store = SimpleNamespace(attempts=lambda _: [attempt()])
    project = SimpleNamespace(declarations=Declarations(namespace="s"), spark={}, root=Path())
    workspace: Any = SimpleNamespace(open_store=lambda: nullcontext(store), project=project)
    scope = [{"key": key, "values": {**key, "day": "d"}} for key in KEYS]
    output = {"dataset": SALES, "format": "delta", "location": "sales", "scope": scope}
    with (
        patch.object(rows, "find", lambda *_: SimpleNamespace(id="b-1")),
        patch.object(Backfills, "__init__", lambda *_: None),
        patch.object(Backfills, "attempt_spec", lambda *_: {"outputs": [output]}),
        patch.object(DeltaTableLogs, "rows", return_value={"rows_after": 2}) as asked,
    ):
        document = rows.compare_rows(workspace, None, named)
    return document, asked.call_args.args[0]


def test_a_key_of_several_dimensions_is_written_as_paths_write_it() -> None:
    document, asked = compared("sales@day=2024-06-15/region=eu%2Fwest")
    assert document["outputs"][0]["partitions"] == ["day=2024-06-15/region=eu%2Fwest"]
    assert asked["partitions"] == [{"day": "d", "region": "eu/west"}]
    assert (asked["before"], asked["after"]) == (3, 4)


def test_a_dataset_with_several_partitions_needs_a_key() -> None:
    with pytest.raises(AmbiguousNameError) as refused:
        compared("sales")
    assert "sales@day=2024-06-15/region=eu%2Fwest" in refused.value.hint
    with pytest.raises(UnknownNameError):
        compared("sales@day=2024-06-16/region=us")
