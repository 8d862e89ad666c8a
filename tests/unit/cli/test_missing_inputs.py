"""`run` where an input was never written, by the logs of tables: no engine is given such keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lineage_backfill.cli.main import main
from tests.unit.cli.test_stale import NOW, Shop


def test_a_key_whose_input_was_never_written_is_not_submitted_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shop = Shop(tmp_path)
    shop.table("raw", (1, "13"))
    words = ["run", "raw", "--from", "2024-01-01", "--to", "2024-01-03", "--yes", *NOW, "--json"]
    assert main(words) == 3
    assert shop.journal == ["clean 2024-01-01 2024-01-03", "totals 2024-01-01 2024-01-03"]
    shown = capsys.readouterr()
    assert "raw 2024-01-02 never written; s:clean fails for 2024-01-02" in shown.err
    runs = json.loads(shown.out)["runs"]
    states = {(run["job"]["name"], *run["partitions"]): run["state"] for run in runs}
    assert states == {
        ("clean", "2024-01-01", "2024-01-03"): "succeeded",
        ("clean", "2024-01-02"): "failed",
        ("totals", "2024-01-01", "2024-01-03"): "succeeded",
        ("totals", "2024-01-02"): "blocked",
    }
