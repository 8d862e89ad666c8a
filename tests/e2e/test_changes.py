"""`impact` asks the log of a table what changed, so that nobody types dates."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.delta_logs import Log, add, metadata, remove
from tests.e2e.test_cli import Shop

pytestmark = pytest.mark.e2e

NOW = ("--now", "2024-01-05T00:00:00Z")


def info(operation: str) -> dict[str, Any]:
    return {"commitInfo": {"operation": operation}}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A project whose table `feed` has three commits, of 10:00, 11:00 and 12:00."""
    made = Shop(tmp_path)
    log = Log(tmp_path / "data" / "feed")
    log.commit(metadata("key"), info("CREATE TABLE"))
    log.commit(
        add("a", "2024-01-02T00", column="key"),
        add("b", "2024-01-02T05", column="key"),
        add("c", None, column="key"),
        info("WRITE"),
    )
    log.commit(
        remove("a", "2024-01-02T00", column="key"),
        add("d", "2024-01-02T00", column="key"),
        add("e", "2023-12-31T23", column="key"),
        info("WRITE"),
    )
    log.checksum(column="key")
    for version, hour in enumerate((10, 11, 12)):
        at = datetime(2024, 1, 4, hour, tzinfo=UTC).timestamp()
        os.utime(log.path(version), (at, at))
    return made


def planned(document: dict[str, Any]) -> dict[str, list[str]]:
    return {one["job"]["name"]: one["partitions"] for one in document["jobs"]}


@pytest.mark.core
@pytest.mark.parametrize(
    ("asked", "hours", "after"),
    [
        (("--since-version", "0"), ["2024-01-02T00", "2024-01-02T05"], 0),
        (("--since-version", "1"), ["2024-01-02T00"], 1),
        (("--changed-since", "12h"), ["2024-01-02T00"], 1),
        (("--changed-since", "2024-01-04T10:30:00Z"), ["2024-01-02T00", "2024-01-02T05"], 0),
    ],
)
def test_what_changed_in_the_table_is_what_is_planned(
    shop: Shop, asked: tuple[str, ...], hours: list[str], after: int
) -> None:
    document = shop.document("impact", "feed", *asked, *NOW, schema="plan")
    assert planned(document) == {"clean": hours, "daily": ["2024-01-02"]}
    (changed,) = document["request"]["changed"]
    assert changed["partitions"] == hours
    assert (changed["log"]["after"], changed["log"]["until"]) == (after, 2)
    # A key before the first one and the rows without a key are no secret.
    assert "key=2023-12-31T23" in changed["log"]["ignored"]
    assert any("key=2023-12-31T23" in warning for warning in document["warnings"])


def test_the_plan_runs_as_saved_whatever_the_table_has_become(shop: Shop) -> None:
    out = str(shop.folder / "plan.json")
    shop("impact", "feed", "--since-version", "1", *NOW, "--out", out)
    status = shop.document("run", out, "--yes", schema="status")
    assert status["state"] == "succeeded"
    assert shop.journal() == ["clean 2024-01-02T00", "daily 2024-01-02"]


def test_nothing_changed_is_nothing_to_do(shop: Shop) -> None:
    document = shop.document("impact", "feed", "--since-version", "2", *NOW, schema="plan")
    assert document["totals"]["runs"] == 0
    assert any("no change in its table" in warning for warning in document["warnings"])
    shop("impact", "feed", "--changed-since", "1h", *NOW, "--detailed-exitcode")


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("feed", "--since-version", "9"), 1, "has no version 9: it is at 2"),
        (("clean", "--since-version", "0"), 1, "there is no Delta table at"),
        (("feed", "--since-version", "0", "--from", "2024-01-02T00"), 64, "find the keys"),
        (("feed", "--since-version", "0", "--changed-since", "2h"), 64, "find the keys"),
        (("--job", "daily", "--since-version", "0"), 64, "find the keys"),
        (("--since-version", "0"), 64, "no changed dataset or job is named"),
        (("feed", "--changed-since", "soon"), 64, "'soon' is not a time"),
        (("elsewhere", "--since-version", "0"), 64, "no location is declared for"),
    ],
)
def test_what_a_log_cannot_tell_is_said(
    shop: Shop, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    done = shop("impact", *arguments, *NOW, code=code)
    assert complaint in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.fixture
def by_value(tmp_path: Path) -> Shop:
    """A project whose table `feed` is not partitioned by its hours: another writer's two files."""
    made = Shop(tmp_path)
    project = made.folder / "lineage-backfill.toml"
    hours = 'columns = { key = "%Y-%m-%dT%H" }\nlocation = "data/feed"'
    by = 'time_column = "ts"\nlocation = "data/feed"'
    project.write_text(project.read_text().replace(hours, by, 1))
    log = Log(tmp_path / "data" / "feed")
    log.commit(by_time(), info("CREATE TABLE"))
    log.commit(rows("a", "02T00:10", "02T00:20"), rows("b", "02T01:00", "02T03:00"), info("WRITE"))
    log.commit({"remove": {"path": "a", "partitionValues": {}}}, info("DELETE"))
    return made


def by_time() -> dict[str, Any]:
    field = {"name": "ts", "type": "timestamp", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    return {"metaData": {"schemaString": schema, "partitionColumns": [], "configuration": {}}}


def rows(path: str, first: str, last: str) -> dict[str, Any]:
    ends = {"minValues": first, "maxValues": last}
    stats = {side: {"ts": f"2024-01-{end}:00.000Z"} for side, end in ends.items()}
    held = json.dumps({"numRecords": 2, **stats})
    return {"add": {"path": path, "partitionValues": {}, "modificationTime": 1, "stats": held}}


@pytest.mark.parametrize(
    ("after", "hours", "is_exact"),
    [("0", ["2024-01-02T00..2024-01-02T03"], False), ("1", ["2024-01-02T00"], True)],
)
def test_the_files_of_a_table_by_value_tell_which_keys_changed_at_most(
    by_value: Shop, after: str, hours: list[str], is_exact: bool
) -> None:
    """A document that may name too many keys says so."""
    document = by_value.document("impact", "feed", "--since-version", after, *NOW, schema="plan")
    assert planned(document)["clean"] == hours
    (changed,) = document["request"]["changed"]
    assert changed["log"].get("by_files", False) is not is_exact
    warned = [text for text in document["warnings"] if "perhaps not all of them changed" in text]
    assert bool(warned) is not is_exact


def test_what_is_stale_after_changes_of_a_table_by_value(by_value: Shop) -> None:
    """A key that is older than a file that may hold its rows is stale, with a word of doubt."""
    table = Log(by_value.folder / "data" / "c")
    table.commit(metadata("key"), info("CREATE TABLE"))
    table.commit(*(add(h, f"2024-01-02T{h}", column="key") for h in ("00", "02", "05")), info("W"))
    for version in (0, 1):
        os.utime(table.path(version), (0, 0))
    document = by_value.document("stale", *NOW, schema="stale")
    clean = next(one for one in document["jobs"] if one["job"]["name"] == "clean")
    (older,) = clean["older"]
    assert older["partitions"] == ["2024-01-02T00", "2024-01-02T02"]
    assert any("others wrote hold rows of several keys" in text for text in clean["why"])
