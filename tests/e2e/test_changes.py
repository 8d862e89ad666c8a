"""`impact` asks the log of a table what changed, so that nobody types dates."""

from __future__ import annotations

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
