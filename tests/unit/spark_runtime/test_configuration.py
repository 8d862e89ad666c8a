"""The project file as a run reads it that starts without a run spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage_backfill.errors import AmbiguousNameError, ConfigError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project.matching import named_dataset
from spark_runtime.configuration import address_of, load_project, outbox_of
from spark_runtime.job.scheduled import find_job

FILE = """
[project]
namespace = "nyc"
zone = "America/New_York"
code = "src"

[lineage]
marquez = "http://localhost:5000"
outbox = "events"

[spark]
master = "local[4]"
sql.shuffle.partitions = 4
sql.adaptive.enabled = true

[[dataset]]
name = "days"
grain = "day"
start = 2024-06-01
column = "day"
location = "data/days"

[[dataset]]
name = "raw_*"
namespace = "lake"
grain = "hour"
start = 2024-06-01T05:00:00
zone = "UTC"
column = "h"
location = "s3://bucket/raw"

[[dataset]]
name = "customers"
keys = ["runtime"]
column = "customer"
table = "db.customers"

[[job]]
name = "totals"
entrypoint = "jobs:totals"

[[job.reads]]
dataset = "days"
mapping = "window"
before = 6

[[job.writes]]
dataset = "totals"
namespace = "mart"
mode = "merge"
lookback = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENLINEAGE_URL", "LINEAGE_BACKFILL_LINEAGE_OUTBOX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lineage-backfill.toml").write_text(FILE)
    (tmp_path / "src" / "deep").mkdir(parents=True)
    return tmp_path


def test_the_file_is_found_from_below(folder: Path) -> None:
    project = load_project(folder / "src" / "deep")
    declared = project.declarations
    assert (project.root, declared.namespace, declared.zone) == (folder, "nyc", "America/New_York")
    assert (project.code, outbox_of(project)) == (folder / "src", folder / "events")
    assert address_of(project) == "http://localhost:5000"
    assert project.spark == {
        "spark.master": "local[4]",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "true",
    }


def test_a_dataset_without_lineage_has_the_namespace_of_its_declaration(folder: Path) -> None:
    declared = load_project(folder).declarations
    for text in ("days", "nyc:days"):
        assert named_dataset(declared, text) == DatasetRef("nyc", "days")
    for text in ("raw_orders", "lake:raw_orders"):
        assert named_dataset(declared, text) == DatasetRef("lake", "raw_orders")
    assert named_dataset(declared, "other:x") == DatasetRef("nyc", "other:x")


def test_a_job_is_found_by_name_or_entrypoint(folder: Path) -> None:
    project = load_project(folder)
    found = find_job(project, "nyc:totals")
    assert found == find_job(project, "jobs:totals") == find_job(project, "totals")
    assert found[0] == JobRef("nyc", "totals")
    assert found[1] is not None
    assert find_job(project, "jobs:other") == (JobRef("nyc", "other"), None)
    assert find_job(project, "sql/other.sql") == (JobRef("nyc", "other"), None)


def test_a_name_of_several_jobs_has_to_be_written_whole(tmp_path: Path) -> None:
    tables = [f'[[job]]\nname = "j"\nnamespace = "{space}"\n' for space in ("a", "b")]
    (tmp_path / "lineage-backfill.toml").write_text("\n".join(tables))
    project = load_project(tmp_path)
    assert find_job(project, "b:j")[0] == JobRef("b", "j")
    with pytest.raises(AmbiguousNameError, match="several jobs"):
        find_job(project, "j")


def test_settings_come_from_the_environment_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINEAGE_BACKFILL_LINEAGE_OUTBOX", "/mnt/events")
    assert outbox_of(load_project(folder)) == Path("/mnt/events")


def test_without_a_file_there_are_only_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://marquez:5000")
    project = load_project(tmp_path)
    assert (project.declarations.namespace, project.declarations.zone) == (None, "UTC")
    assert (outbox_of(project), address_of(project)) == (None, "http://marquez:5000")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.toml: cannot be read: No such file"):
        load_project(tmp_path, tmp_path / "gone.toml")
