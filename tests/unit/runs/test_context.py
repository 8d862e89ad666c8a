"""What runs are told beside their partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lineage_backfill.plans.plan import Plan
from lineage_backfill.ports import Submission
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.runs.context import ExecutionContext
from lineage_backfill.runs.drive.executor import Executor
from lineage_backfill.store.sql import SqlRunStore
from tests.fakes import NOW, FakeEngine, spec_of
from tests.unit.planning.world import declarations, lineage, plan, request

EDGES = lineage("raw > copy > mart")
DECLARED = declarations("""
    dataset = [
      { name = "raw", grain = "day", column = "ds", location = "raw" },
      { name = "mart", grain = "day", column = "ds", location = "mart" },
    ]
    job = [{ name = "copy", engine = "local", entrypoint = "jobs:copy" }]
""")


def context_of(
    made: Plan, declared: Declarations, folder: Path, store: SqlRunStore, url: str | None = None
) -> ExecutionContext:
    return ExecutionContext(
        EDGES,
        declared,
        [made],
        store=store,
        functions={},
        root=folder,
        outbox=folder / "outbox",
        lineage_url=url,
        is_ours=lambda _: True,
        logs=lambda _catalog, _datasets: {},
    )


@pytest.mark.parametrize("url", ["http://marquez:5000", None])
def test_runs_send_their_lineage_to_where_it_is_read_from(
    url: str | None, tmp_path: Path, new_store: Callable[[], SqlRunStore]
) -> None:
    made = plan(request({"raw": "2024-03-10"}), EDGES, DECLARED)
    context = context_of(made, DECLARED, tmp_path, new_store(), url)
    assert made.runs
    spec = context.spec(made.runs[0], 1, "token", tmp_path / "result.json")
    assert spec["lineage"]["url"] == url
    assert spec["lineage"]["outbox"] == str(tmp_path / "outbox")


def test_a_run_that_appends_names_the_keys_of_recorded_runs_that_stand(
    tmp_path: Path, new_store: Callable[[], SqlRunStore]
) -> None:
    declared = declarations("""
        [[dataset]]
        name = "*"
        grain = "day"
        start = "2024-03-01"
        column = "ds"
        location = "x"
        [[job]]
        name = "copy"
        engine = "local"
        entrypoint = "jobs:copy"
        writes = [{ dataset = "mart", mode = "append" }]
    """)
    store = new_store()
    first = plan(request({"raw": "2024-03-10"}), EDGES, declared, now=NOW)
    engine = FakeEngine({})
    engine.can_undo = True
    executor = Executor(
        store=store,
        engines={"local": engine},
        spec_builder=spec_of,
        state_dir=tmp_path,
        cutoff=context_of(first, declared, tmp_path, store).cutoff,
    )
    executor.drive(backfill := executor.start(first))
    made = plan(request({"raw": "2024-03-09..2024-03-10"}), EDGES, declared, now=NOW)

    def places() -> list[object]:
        context = context_of(made, declared, tmp_path, store)
        specs = [context.spec(run, 1, "token", tmp_path / "r.json") for run in made.runs or ()]
        return [spec["outputs"][0].get("appended") for spec in specs]

    assert places() == [None, [[0, 0]]]
    executor.start(first, Submission(undo_of=backfill))
    assert places() == [None, None]
    store.delete(backfill, now=NOW)  # hidden only: it stays undone
    assert places() == [None, None]
