"""Each transport of the installed openlineage-python gives the same lineage."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.sources.events import EventSource

SCRIPT = Path(__file__).parents[2] / "scripts" / "producers" / "record_python.py"
RECORDED = Path(__file__).parent / "recorded" / "openlineage_python" / "events.ndjson"


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sent")
    runpy.run_path(str(SCRIPT))["main"](folder)
    return folder


def edges(snapshot: LineageSnapshot) -> list[tuple[object, ...]]:
    return [(ref, node.reads, node.writes) for ref, node in snapshot.jobs.items()]


@pytest.mark.parametrize(
    "name",
    [
        *("file", "single", "http.ndjson", "async.ndjson", "composite.ndjson", "composite_file"),
        *("console.log", "kafka.ndjson"),
    ],
)
def test_a_transport_gives_the_recorded_lineage(sent: Path, name: str) -> None:
    found, recorded = EventSource([sent / name]).read(), EventSource([RECORDED]).read()
    assert edges(found) == edges(recorded)
    assert found.history == recorded.history
