"""The project file as a run reads it that starts without a run spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_runtime.datasets import Dataset
from spark_runtime.errors import DeclarationError
from spark_runtime.project import load_project

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
    assert (project.root, project.namespace, project.zone) == (folder, "nyc", "America/New_York")
    assert (project.code, project.outbox) == (folder / "src", folder / "events")
    assert project.url == "http://localhost:5000"
    assert project.spark_conf() == {
        "spark.master": "local[4]",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "true",
    }


def test_datasets_are_found_by_name_and_by_glob(folder: Path) -> None:
    project = load_project(folder)
    days = project.dataset("nyc:days")
    assert (str(days), days.zone, days.start) == ("nyc:days", "America/New_York", "2024-06-01")
    assert days.location == str(folder / "data" / "days")
    raw = project.dataset("raw_orders")
    assert (str(raw), raw.zone, raw.start) == ("lake:raw_orders", "UTC", "2024-06-01T05")
    assert raw.location == "s3://bucket/raw"
    assert project.dataset("customers").keys == "runtime"
    # What the file says wins over what the job says; what only the job says holds.
    assert project.dataset(Dataset("days", grain="hour")).grain == "day"
    other = project.dataset(Dataset("other", grain="hour"))
    assert (str(other), other.grain) == ("nyc:other", "hour")


def test_a_job_is_found_by_name_or_entrypoint(folder: Path) -> None:
    project = load_project(folder)
    by_name, by_entrypoint = project.job("nyc:totals"), project.job("jobs:totals")
    assert by_name == by_entrypoint
    assert by_name is not None
    (read,), (write,) = by_name.reads, by_name.writes
    assert (read.dataset, read.how.mapping, read.how.before) == ("days", "window", 6)
    assert (write.dataset, write.mode, write.lookback) == ("mart:totals", "merge", 3)
    assert project.job("other") is None


def test_settings_come_from_the_environment_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINEAGE_BACKFILL_LINEAGE_OUTBOX", "/mnt/events")
    assert load_project(folder).outbox == Path("/mnt/events")


def test_without_a_file_there_are_only_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://marquez:5000")
    project = load_project(tmp_path)
    assert (project.namespace, project.zone, project.outbox) == ("default", "UTC", None)
    assert project.url == "http://marquez:5000"


def test_a_pyproject_counts_where_it_has_our_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert load_project(tmp_path).namespace == "default"
    (tmp_path / "pyproject.toml").write_text(
        '[tool.lineage-backfill.project]\nnamespace = "here"\n'
    )
    assert load_project(tmp_path).namespace == "here"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[dataset]\n", "cannot be read"),
        ('[[dataset]]\nname = "d"\ngrain = 3\n', r"\[\[dataset\]\] d: `grain` cannot be 3"),
        ('[[dataset]]\nname = "d"\ndata_lag = true\n', "`data_lag` cannot be True"),
        ('dataset = ["d"]\n', "a table is expected, not 'd'"),
        ('[[job]]\nname = "j"\nreads = ["d"]\n', "a table is expected"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "lineage-backfill.toml").write_text(text)

    def read() -> None:
        project = load_project(tmp_path)
        project.job("j")
        project.dataset("d")

    with pytest.raises(DeclarationError, match=complaint):
        read()
