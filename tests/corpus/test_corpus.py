"""Plans from lineage in the shapes of real producers, with answers that were counted by hand."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import create_engine, inspect, text

from lineage_backfill.cli.main import main
from lineage_backfill.sources.events import EventSource
from lineage_backfill.sources.snapshot import save_snapshot
from tests.contract import live_marquez
from tests.fake_marquez import FakeMarquez

#: That of the server which LINEAGE_BACKFILL_TEST_MARQUEZ_URL names; it is emptied.
DATABASE = os.environ.get("LINEAGE_BACKFILL_TEST_MARQUEZ_DATABASE", "")
FOLDERS = sorted(file.parent for file in Path(__file__).parent.rglob("expected.json"))


@pytest.fixture(params=FOLDERS, ids=lambda one: str(one.relative_to(Path(__file__).parent)))
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    found: Path = request.param
    return found


def test_a_plan_holds_what_the_lineage_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(folder, folder / "lineage-backfill.toml", capsys)


SEVERAL = {
    "two files": '{ source = "events", paths = ["first.ndjson"] }'
    ' , { source = "events", paths = ["second.ndjson"] }',
    "a server": '{ source = "marquez", url = "URL" }',
    "a file and a server": '{ source = "events", paths = ["second.ndjson"] }'
    ' , { source = "marquez", url = "URL" }',
    "a snapshot and a file": '{ source = "snapshot", path = "taken" }'
    ' , { source = "events", paths = ["first.ndjson", "second.ndjson"] }',
}


@pytest.mark.parametrize("sources", SEVERAL)
def test_several_sources_give_the_same_plan(
    folder: Path, sources: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (folder / "events.ndjson").read_text().splitlines(keepends=True)
    (tmp_path / "first.ndjson").write_text("".join(lines[::2]))
    (tmp_path / "second.ndjson").write_text("".join(lines[1::2]))
    save_snapshot(EventSource([folder / "events.ndjson"]).read(), tmp_path / "taken")
    # A half is on the server if the other one is in a file.
    server = FakeMarquez(json.loads(line) for line in lines[:: 1 + ("file" in sources)])
    toml = (folder / "lineage-backfill.toml").read_text()
    config = tmp_path / "lineage-backfill.toml"
    with server.serve() as url:
        several = f"sources = [{SEVERAL[sources].replace('URL', url)}]"
        config.write_text(re.sub(r"^events *=.*$", several, toml, flags=re.MULTILINE))
        check(folder, config, capsys)


@pytest.mark.skipif(not DATABASE, reason="LINEAGE_BACKFILL_TEST_MARQUEZ_DATABASE names none")
def test_a_real_server_gives_the_same_plan(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = create_engine(DATABASE)
    with engine.begin() as connection:  # what other folders sent may name the same tables
        tables = inspect(connection).get_table_names()
        emptied = ", ".join(name for name in tables if not name.startswith("flyway"))
        connection.execute(text(f"TRUNCATE {emptied} CASCADE"))
    engine.dispose()
    for line in (folder / "events.ndjson").read_text().splitlines():
        answer = requests.post(
            f"{live_marquez.ADDRESS}/api/v1/lineage", json=whole(json.loads(line)), timeout=60
        )
        assert answer.status_code == 201, answer.text
    toml = (folder / "lineage-backfill.toml").read_text()
    config = tmp_path / "lineage-backfill.toml"
    server = f'marquez = "{live_marquez.ADDRESS}"'
    config.write_text(re.sub(r"^events *=.*$", server, toml, flags=re.MULTILINE))
    check(folder, config, capsys)


def whole(value: Any) -> Any:
    """Return an event with what the server requires of each facet."""
    if isinstance(value, list):
        return [whole(one) for one in value]
    if not isinstance(value, dict):
        return value
    required = {
        "_producer": "https://producer.example/x",
        "_schemaURL": "https://producer.example/x",
    }
    found = {name: whole(one) for name, one in value.items()}
    for name in found.keys() & {"facets", "inputFacets", "outputFacets"}:
        found[name] = {facet: {**required, **one} for facet, one in found[name].items()}
    return found


def check(folder: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Compare the plan of a project file with the answer in the folder."""
    expected = json.loads((folder / "expected.json").read_text())
    code = main(["impact", *expected["arguments"], "--json", "--config", str(config)])
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
    if "edges" in expected:
        assert edges(config, capsys) == expected["edges"]
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


def edges(config: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return what jobs read and write, as "a b > c"; not those without any."""
    main(["lineage", "show", "--json", "--config", str(config)])
    found = {}
    for one in json.loads(capsys.readouterr().out)["jobs"]:
        sides = (" ".join(sorted(ref["name"] for ref in one[side])) for side in ("reads", "writes"))
        found[one["job"]["name"]] = " > ".join(sides)
    return {name: sides for name, sides in found.items() if sides != " > "}


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
