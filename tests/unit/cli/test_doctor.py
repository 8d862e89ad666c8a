"""`doctor`: each failure is named with what mends it; it never fails by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import responses

from lineage_backfill.cli.main import main
from lineage_backfill.errors import ServiceUnreachableError
from lineage_backfill.workspace.lineage import ProjectLineage
from tests import fake_airflow
from tests.delta_logs import METADATA, Log, add
from tests.unit.cli.documents import fits
from tests.unit.cli.test_stale import Shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    made = Shop(tmp_path)
    for name in ("raw", "tidy", "sums"):
        log = Log(tmp_path / name)
        log.commit(METADATA, add("a", "2024-01-01"), {"commitInfo": {"operation": "WRITE"}})
    return made


@pytest.fixture
def checks(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def look(*plan: str) -> dict[str, Any]:
        code = main(["doctor", *plan, "--json"])
        document = json.loads(capsys.readouterr().out)
        assert fits(document, "doctor")
        assert code == int(not all(one["ok"] for one in document["checks"]))
        assert all(one["fix"] for one in document["checks"] if not one["ok"])
        return {one["name"]: one for one in document["checks"]}

    return look


def test_what_is_well_is_said(shop: Shop, checks: Callable[..., dict[str, Any]]) -> None:
    found = checks()
    for name in ("project", "lineage", "store", "tables"):
        assert found[name]["ok"], found[name]
    assert found["tables"]["detail"] == "3 tables can be read"


def test_a_table_by_time_whose_writes_copy_many_rows_is_named(
    shop: Shop, checks: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    text = shop.project.read_text()
    head, table, rest = text.rpartition('name = "tidy"\n')
    rest = rest.replace(
        'column = "day"\nlocation = "tidy"', 'time_column = "ts"\nlocation = "late"'
    )
    shop.project.write_text(f"{head}{table}{rest}")
    field = {"name": "ts", "type": "timestamp", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    held = {"schemaString": schema, "partitionColumns": [], "configuration": {}}
    ends = {"minValues": {"ts": "2024-01-01T00:00:00.000Z"}}
    ends["maxValues"] = {"ts": "2024-01-28T23:59:59.999Z"}
    stats = json.dumps({"numRecords": 9, **ends})
    file = {"path": "a", "partitionValues": {}, "modificationTime": 1, "stats": stats}
    log = Log(tmp_path / "late")
    log.commit({"metaData": held}, {"add": file}, {"commitInfo": {"operation": "WRITE"}})
    tables = checks()["tables"]
    assert tables["ok"]
    assert "to replace a key of " in tables["detail"]
    assert "tidy, about 28 times its rows are copied: set delta.enable" in tables["detail"]


def test_spark_is_not_needed_where_no_job_runs_on_it(
    shop: Shop, checks: Callable[..., dict[str, Any]]
) -> None:
    shop.project.write_text(
        """
[engines.print]
kind = "command"
argv = ["echo"]

[[dataset]]
name = "*"
grain = "day"

[[job]]
name = "copy"
engine = "print"
reads = [{ dataset = "a" }]
writes = [{ dataset = "b" }]
"""
    )
    found = checks()
    assert all(one["ok"] for one in found.values()), found
    assert found.keys().isdisjoint({"java", "jars"})
    assert found["spark"]["detail"] == "no declared job runs on Spark from here"
    rest = "0 tables can be read; 2 without a declared location were not checked"
    assert found["tables"]["detail"] == rest
    assert "no lineage is named" in found["lineage"]["detail"]


def test_a_job_on_spark_needs_java_and_the_places_of_its_tables(
    shop: Shop, checks: Callable[..., dict[str, Any]]
) -> None:
    shop.project.write_text(
        """
[[dataset]]
name = "*"
grain = "day"

[[job]]
name = "copy"
entrypoint = "jobs:copy"
reads = [{ dataset = "a" }]
writes = [{ dataset = "b" }]
"""
    )
    found = checks()
    assert {"java", "spark", "jars"} <= found.keys()
    assert "no location is declared for dataset" in found["tables"]["detail"]


def test_a_table_that_tells_nothing(shop: Shop, checks: Callable[..., dict[str, Any]]) -> None:
    for path in (shop.folder / "raw" / "_delta_log").iterdir():
        path.unlink()
    (shop.folder / "raw" / "_delta_log").rmdir()
    (shop.folder / "raw" / "data.csv").touch()
    found = checks()["tables"]
    assert not found["ok"]
    assert "is not a Delta table" in found["detail"]


PLAN = ["impact", "raw", "--from", "2024-01-03", "--to", "2024-01-03", "--out", "plan.json"]


def test_a_saved_plan_is_looked_at_table_by_table(
    shop: Shop, checks: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    (shop.folder / "other").mkdir()
    shop.declare('[[dataset]]\nname = "other"\ngrain = "day"\nlocation = "other"\n')
    assert main([*PLAN, "--exclude", "totals"]) == 0
    capsys.readouterr()
    found = checks("plan.json")
    for name in ("plan", "retention", "tables"):
        assert found[name]["ok"], found[name]
    assert found["tables"]["detail"] == "2 tables can be read"  # raw and tidy
    tidy = 'name = "tidy"\n'
    shop.project.write_text(shop.project.read_text().replace(tidy, f'{tidy}zone = "Asia/Tokyo"\n'))
    stale = checks("plan.json")["plan"]
    assert not stale["ok"]
    assert "impact" in stale["fix"]


def test_what_a_plan_reads_may_have_gone_meanwhile(
    shop: Shop, checks: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    text = shop.project.read_text()
    kept = 'name = "raw"\nretention = 5\n'
    shop.project.write_text(text.replace('name = "raw"\n', kept, 1))
    assert main([*PLAN, "--now", "2024-01-06T00:00:00Z"]) == 0  # then it was there
    capsys.readouterr()
    found = checks("plan.json")["retention"]
    assert not found["ok"]
    assert found["detail"] == "read by the plan, but past retention: s:raw 2024-01-03"
    assert main(["doctor", "nowhere.json"]) == 64


def test_lineage_is_read_once_though_it_fails(
    shop: Shop, checks: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fails(lineage: ProjectLineage) -> None:
        asked.append(lineage)
        raise ServiceUnreachableError("no answer", hint="start it")

    monkeypatch.setattr(ProjectLineage, "read", fails)
    found = checks()
    assert len(asked) == 1
    for name in ("lineage", "tables"):
        assert found[name]["detail"] == "no answer"


def test_an_airflow_that_is_too_old_is_named(
    shop: Shop, checks: Callable[..., dict[str, Any]]
) -> None:
    url, file = "http://127.0.0.1:1", shop.folder / "lineage-backfill.toml"
    engine = f'[engines.old]\nkind = "airflow"\nurl = "{url}"\ntoken = "t"\n'
    file.write_text(engine + file.read_text())
    with responses.RequestsMock() as server:
        server.get(f"{url}/api/v2/version", status=404)
        found = checks()["engine old"]
    assert found["detail"].startswith(f"{url} is not an api-server of Airflow 3")
    assert "Jobs of an older Airflow run with the engine command" in found["fix"]


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    ("dag", "task", "said"),
    [
        ("three", "b", "answers and accepts this account; it has 1 task"),
        ("three", "none", "DAG three has no task none (any more)"),
        ("none", "b", "has no DAG none"),
        ("paused", "build", "DAG paused is paused"),
    ],
)
def test_airflow_is_asked_about_each_dag_and_task(
    shop: Shop, checks: Callable[..., dict[str, Any]], dag: str, task: str, said: str
) -> None:
    with fake_airflow.serve(shop.folder) as url:
        login = 'username = "op"\npassword = "op"'
        engine = f'[engines.flow]\nkind = "airflow"\nurl = "{url}"\n{login}\n'
        named = f'engine = "flow"\ndag = "{dag}"\ntask = "{task}"\nbatch = "key"'
        shop.declare(f'{engine}[[job]]\nname = "totals"\n{named}\n')
        found = checks()["engine flow"]
    assert said in found["detail"]
