"""What a job that leaves no result has touched, by the log of its table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from tests.unit.cli.documents import fits
from tests.unit.cli.test_stale import Shop

#: A job that commits the keys of its run to its output table.
COMMITS = """
import json, sys
from pathlib import Path
spec = json.loads(Path(sys.argv[1]).read_text())
log = Path(spec["outputs"][0]["location"], "_delta_log")
number = len(list(log.glob("*.json")))
actions = [{"commitInfo": {"operation": "WRITE"}}] + [
    {"add": {"path": f"{number}-{day}", "partitionValues": {"day": day}, "dataChange": True}}
    for day in (one["values"]["day"] for one in spec["outputs"][0]["scope"])
]
(log / f"{number:020}.json").write_text("\\n".join(map(json.dumps, actions)))
"""


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Any]:
    monkeypatch.chdir(tmp_path)
    shop = Shop(tmp_path)
    for name in ("raw", "tidy", "sums"):
        shop.table(name)

    def run(program: str) -> Any:
        (tmp_path / "program.py").write_text(program)
        asked = ["run", "raw", "--from", "2024-01-02", "--to", "2024-01-03", "--yes"]
        assert main([*asked, "--now", "2024-01-06T00:00:00Z"]) == 0
        capsys.readouterr()
        assert main(["report", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert fits(document, "report")
        return document

    return run


def test_commits_of_its_time_are_what_it_rewrote(run: Callable[[str], Any]) -> None:
    document = run(COMMITS)
    assert document["touched_is_planned"] is True
    told = {one["dataset"]["name"]: one for one in document["outputs"]}
    for name in ("tidy", "sums"):
        assert told[name]["touched"]["partitions"] == ["2024-01-02..2024-01-03"]
        assert told[name]["by_log"]


def test_without_a_commit_it_is_unknown(
    run: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("")["touched_is_planned"] is None
    assert main(["report"]) == 0
    assert "Rewritten partitions are unknown" in capsys.readouterr().out
