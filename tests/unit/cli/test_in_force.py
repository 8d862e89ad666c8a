"""`config show NAME` prints what is in force, and the place that states it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lineage_backfill.cli.main import main
from tests.unit.cli.documents import fits

FILE = """
[project]
namespace = "w"
[[dataset]]
name = "*"
grain = "day"
zone = "Europe/Berlin"
[[dataset]]
name = "out"
start = "2024-03-01"
[[job]]
name = "jx"
priority = 5
[[job.writes]]
dataset = "out"
lookback = 2
[[job]]
name = "j*"
[[job.reads]]
dataset = "src"
mapping = "window"
before = 6
[[job.writes]]
dataset = "out"
mode = "merge"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lineage-backfill.toml").write_text(FILE + '[lineage]\nevents = "e.ndjson"\n')
    event = {
        "eventType": "COMPLETE",
        "eventTime": "2024-03-10T00:00:00Z",
        "run": {"runId": "0190a000-0000-7000-8000-000000000001"},
        "job": {"namespace": "w", "name": "jx"},
        "inputs": [{"namespace": "w", "name": "src"}],
        "outputs": [{"namespace": "w", "name": "out"}],
        "producer": "https://example.org",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }
    (tmp_path / "e.ndjson").write_text(json.dumps(event) + "\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("project")
def test_every_attribute_of_a_job_has_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "jx", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert fits(document, "config_in_force")
    found = {
        (one["edge"], one["name"]): (one["value"], one["place"]) for one in document["attributes"]
    }
    assert found["", "priority"] == (5, '[[job]] "jx"')
    assert found["reads w:src", "mapping"] == ("window, before = 6", '[[job]] "j*"')
    assert found["reads w:src", "on_missing"] == ("guard", "default")
    assert found["writes w:out", "mode"] == ("merge", '[[job]] "j*"')
    assert found["writes w:out", "lookback"] == (2, '[[job]] "jx"')
    assert found["writes w:out", "on_empty"] == ("clear", "default")


@pytest.mark.usefixtures("project")
def test_every_attribute_of_a_dataset_has_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "out", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = {one["name"]: (one["value"], one["place"]) for one in document["attributes"]}
    assert found == {
        "grain": ("day", '[[dataset]] "*"'),
        "zone": ("Europe/Berlin", '[[dataset]] "*"'),
        "start": ("2024-03-01", '[[dataset]] "out"'),
    }
    assert main(["config", "show", "out"]) == 0
    assert "[[dataset]]" in capsys.readouterr().out


@pytest.mark.usefixtures("project")
def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "outt"]) == 64
    assert "Did you mean out?" in capsys.readouterr().err
