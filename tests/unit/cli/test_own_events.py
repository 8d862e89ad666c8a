"""The events of a project's own runs: read where no lineage is named, else counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.project.locations import sent_mark
from tests.events import event, write_events
from tests.fake_marquez import FakeMarquez

PROJECT = """
[project]
namespace = "shop"
[[dataset]]
name = "*"
grain = "day"
start = "2024-01-01"
[[job]]
name = "daily"
engine = "local"
batch = "range"
[[job.reads]]
dataset = "raw"
mapping = "window"
before = 1
[[job.writes]]
dataset = "days"
"""
CHANGE = ("raw", "--partitions", "2024-03-01", "--now", "2024-04-01T00:00:00Z")


@pytest.fixture
def outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("lineage-backfill.toml").write_text(PROJECT)
    folder = Path(".lineage-backfill", "lineage")
    folder.mkdir(parents=True)
    return folder


def impact(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["impact", *CHANGE, "--json", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def warning(capsys: pytest.CaptureFixture[str], *lineage: str) -> str:
    capsys.readouterr()
    assert main(["impact", *CHANGE, *lineage]) == 0
    return " ".join(capsys.readouterr().out.partition("warning: ")[2].split())


def names(plan: dict[str, Any]) -> list[str]:
    return [job["job"]["name"] for job in plan["jobs"]]


def with_facet(**facet: Any) -> dict[str, Any]:
    sent = event("daily", ["raw"], ["days"])
    sent["job"]["facets"] = {"lineageBackfill_partitioning": facet}
    return sent


def test_own_runs_are_the_lineage_where_none_is_named(
    outbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert names(impact(capsys)) == ["daily"]
    write_events(outbox / "1.ndjson", event("weekly", ["days"], ["weeks"]))
    plan = impact(capsys)
    assert (names(plan), plan["lineage"]["source"]) == (["daily", "weekly"], "project")
    assert main(["impact", *CHANGE]) == 0
    assert "from the project and its own runs: no lineage is named" in capsys.readouterr().out


def test_a_job_that_ran_may_leave_its_writes_to_its_events(
    outbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("lineage-backfill.toml").write_text(PROJECT + '[[job]]\nname = "weekly"\n')
    assert main(["impact", *CHANGE]) == 64
    assert "job weekly declares no `writes`" in capsys.readouterr().err
    write_events(outbox / "1.ndjson", event("weekly", ["days"], ["weeks"]))
    assert names(impact(capsys)) == ["daily", "weekly"]


def test_a_facet_that_repeats_the_declarations_makes_no_saved_plan_stale(
    outbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = impact(capsys)["lineage"]["hash"]
    read = {"dataset": {"namespace": "shop", "name": "raw"}, "mapping": "window", "before": 1}
    sent = with_facet(batch="range", reads=[read])
    sent["outputs"][0]["facets"] = {
        "lineageBackfill_partitioning": {"grain": "day", "zone": "UTC", "start": "2024-01-01"}
    }
    write_events(Path("events.ndjson"), sent)
    assert impact(capsys, "--events", "events.ndjson")["lineage"]["hash"] == before
    more = with_facet(depends_on_past=True)
    write_events(Path("events.ndjson"), more)
    assert impact(capsys, "--events", "events.ndjson")["lineage"]["hash"] != before


def test_what_is_deleted_in_the_project_does_not_hold_on_by_its_own_runs(
    outbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = {"namespace": "shop", "name": "days"}
    write_events(outbox / "1.ndjson", with_facet(writes=[{"dataset": days, "lookback": 3}]))
    (job,) = impact(capsys)["jobs"]
    assert job["partitions"] == ["2024-03-01..2024-03-02"]


def test_own_runs_that_the_lineage_lacks_are_counted(
    outbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [event("daily", ["raw"], ["days"]), event("weekly", ["days"], ["weeks"])]
    write_events(Path("events.ndjson"), own[0])
    write_events(outbox / "1.ndjson", *own)
    counted = "runs of this project that the lineage does not hold: 1; name their events"
    assert counted in warning(capsys, "--events", "events.ndjson")
    assert "this project" not in warning(capsys, "--events", str(outbox))


def test_own_events_that_were_not_sent_are_counted(
    outbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = outbox / "1.ndjson"
    own = [event("daily", ["raw"], ["days"]), event("weekly", ["days"], ["weeks"])]
    write_events(file, *own)
    first = len(file.read_bytes().splitlines(keepends=True)[0])
    with FakeMarquez(own[:1]).serve() as address:
        sent_mark(file).write_text(json.dumps({address: first}))
        counted = f"events of this project's runs that {address} does not have: 1; send them with"
        assert counted in warning(capsys, "--marquez", address)
        sent_mark(file).write_text(json.dumps({address: file.stat().st_size}))
        assert "this project" not in warning(capsys, "--marquez", address)
