"""Plans from lineage in the shapes of real producers, with answers that were counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main

FOLDERS = sorted(file.parent for file in Path(__file__).parent.rglob("expected.json"))


@pytest.fixture(params=FOLDERS, ids=lambda one: str(one.relative_to(Path(__file__).parent)))
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    found: Path = request.param
    return found


def test_a_plan_holds_what_the_lineage_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    config = str(folder / "lineage-backfill.toml")
    code = main(["impact", *expected["arguments"], "--json", "--config", config])
    told = capsys.readouterr()
    assert code == expected.get("exit", 0), told.err
    if code not in (0, 2):
        return
    plan = json.loads(told.out)
    assert names(plan["jobs"], "planned") == expected["planned"], plan["warnings"]
    assert names(plan["jobs"], "blocked") == expected.get("blocked", [])
    decisions = plan.get("decisions", ())
    assert sorted({one["kind"] for one in decisions}) == expected["needs"]
    refused = sorted({one["kind"] for one in decisions if one["refused"]})
    assert refused == expected.get("refused", [])
    if "waits" in expected:
        assert waits(plan["runs"]) == expected["waits"]
    columns = {
        job["job"]["name"]: [
            one["dataset"]["name"] for one in job["reason"]["inputs"] if one.get("from_columns")
        ]
        for job in plan["jobs"]
        if job["job"]["name"] in expected.get("from_columns", {})
    }
    assert columns == expected.get("from_columns", {})


def names(jobs: list[dict[str, Any]], status: str) -> list[str]:
    return sorted(job["job"]["name"] for job in jobs if job["status"] == status)


def waits(runs: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the jobs whose runs the runs of each job wait for."""
    job = {run["id"]: run["job"]["name"] for run in runs}
    found: dict[str, set[str]] = {}
    for run in runs:
        found.setdefault(job[run["id"]], set()).update(job[up] for up in run["upstream"])
    return {name: sorted(ups) for name, ups in found.items() if ups}


def test_run_refuses_two_declared_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(__file__).parent / "jobs" / "two_declared_overwrites"
    toml = (folder / "lineage-backfill.toml").read_text()
    toml = toml.replace("events.ndjson", str(folder / "events.ndjson"))
    engine = '[engines.c]\nkind = "command"\nargv = ["/bin/true"]\n'
    (tmp_path / "lineage-backfill.toml").write_text(toml + engine)
    monkeypatch.chdir(tmp_path)
    asked = ["run", "a", "--partitions", "2024-06-05", "--now", "2024-06-20T12:00:00Z", "--yes"]
    assert main(asked) == 9
    assert "old, new overwrite the same partitions of b" in capsys.readouterr().err
