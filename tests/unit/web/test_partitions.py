"""The page of a dataset: the state of its partitions by logs written by hand, and its form."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from lineage_backfill.web.pages import make_pages
from lineage_backfill.workspace.environment import open_project
from tests.delta_logs import METADATA, Log, add
from tests.events import event, write_events
from tests.unit.cli.documents import fits
from tests.unit.web.shop import HOSTILE
from tests.unit.web.test_pages import Text

YESTERDAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(1)
START = YESTERDAY - timedelta(4)  # of five days that are complete
DAYS = [f"{START + timedelta(day):%Y-%m-%d}" for day in range(5)]
PROJECT = """
[project]
namespace = "s"
[lineage]
events = ["events.ndjson"]
[engines.here]
kind = "command"
argv = ["true"]
[[job]]
name = "*"
engine = "here"
entrypoint = "a:b"
"""


class Tables:
    """A project whose tables have the logs that a test writes."""

    def __init__(self, folder: Path, *, grain: str = "day", start: str = DAYS[0]) -> None:
        self.folder = folder
        jobs = (("clean", "raw", "tidy"), ("totals", "tidy", "sums"), (HOSTILE, "raw", HOSTILE))
        events = (event(job, [reads], [to], namespace="s") for job, reads, to in jobs)
        write_events(folder / "events.ndjson", *events)
        names = ("raw", "tidy", "sums", HOSTILE)
        self.declared = {
            name: f"[[dataset]]\nname = {json.dumps(name)}\ngrain = '{grain}'\nstart = '{start}'\n"
            f"column = 'day'\nlocation = {json.dumps(name[:4])}\n"
            for name in names
        }

    def pages(self) -> FlaskClient:
        file = self.folder / "lineage-backfill.toml"
        file.write_text(PROJECT + "".join(self.declared.values()))
        pages = make_pages(open_project(file)).test_client()
        pages.get("/lineage/dataset/partitions.json?namespace=s&name=raw")  # waits for the look
        return pages

    def table(self, name: str, *commits: tuple[int, list[str]]) -> None:
        """Write the log of a table: in each commit, so many minutes after midnight, these keys."""
        log = Log(self.folder / name)
        log.commit(METADATA, {"commitInfo": {"operation": "CREATE TABLE"}})
        for number, (_, keys) in enumerate(commits):
            adds = [add(f"{number}-{key}", key) for key in keys]
            log.commit(*adds, {"commitInfo": {"operation": "WRITE"}})
        for version, minute in enumerate([0, *(minute for minute, _ in commits)]):
            at = (YESTERDAY + timedelta(1, 60 * minute)).timestamp()
            os.utime(log.path(version), (at, at))


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def document(pages: FlaskClient, name: str) -> dict[str, list[str]]:
    """Return the partitions of a dataset by state, as the document has them."""
    where = {"namespace": "s", "name": name}
    answer = pages.get("/lineage/dataset/partitions.json", query_string=where)
    found = json.loads(answer.text)
    assert fits(found, "partitions")
    return {one["state"]: one["partitions"] for one in found["states"]}


def page(pages: FlaskClient, name: str, **query: str) -> Text:
    answer = pages.get("/lineage/dataset", query_string={"namespace": "s", "name": name} | query)
    assert answer.status_code == 200, answer.text
    return Text(answer.text)


def cells(page: Text) -> dict[str, str]:
    """Return the state of each cell by the keys that it ticks."""
    found, state = {}, ""
    for tag, given in page.tags:
        if tag == "li" and (given.get("class") or "").startswith("cell"):
            state = (given["class"] or "").removeprefix("cell ")
        if given.get("name") == "keys" and given.get("type") == "checkbox":
            found[given["value"] or ""] = state
    return found


def test_each_partition_of_a_dataset_has_its_state(tables: Tables) -> None:
    tables.table("raw", (1, DAYS), (5, DAYS[1:2]))
    tables.table("tidy", (3, DAYS[:3]))
    pages = tables.pages()
    assert document(pages, "raw") == {"fresh": [f"{DAYS[0]}..{DAYS[4]}"]}
    assert document(pages, "tidy") == {
        "missing": [f"{DAYS[3]}..{DAYS[4]}"],
        "stale": [DAYS[1]],
        "fresh": [DAYS[0], DAYS[2]],
    }
    shown = page(pages, "tidy")
    states = ["fresh", "stale", "fresh", "missing", "missing"]
    assert cells(shown) == dict(zip(DAYS, states, strict=True))
    assert "raw changed" in str(shown)
    assert "version 2" in str(shown)


def test_ticked_cells_lead_to_a_new_backfill(tables: Tables) -> None:
    tables.table("raw", (1, DAYS))
    query = [("changed", "dataset:s:raw"), ("keys", DAYS[0]), ("keys", DAYS[2]), ("select", "")]
    answer = tables.pages().get("/new", query_string=query)
    shown = Text(answer.text)
    assert "Nothing" not in str(shown)
    fields = {given.get("name"): given.get("value") for tag, given in shown.tags if tag == "input"}
    assert fields["changed"] == "dataset:s:raw"
    assert fields["keys"] == f"{DAYS[0]},{DAYS[2]}"
    assert f"{DAYS[0]} +1" in str(shown)


def test_names_are_proposed_once_and_not_with_each_preview(tables: Tables) -> None:
    pages = tables.pages()
    assert '<option value="raw">' in pages.get("/new?changed=raw").text
    preview = pages.get(f"/new?changed=raw&keys={DAYS[0]}&bare=").text
    assert "<option" not in preview
    assert f"{DAYS[0]}" in preview
    assert "bare" not in "".join(Text(preview).links)


def test_what_is_unknown_says_so(tables: Tables) -> None:
    pages = tables.pages()
    assert set(document(pages, "raw")) == {"unknown"}
    assert "Unknown: there is no table" in str(page(pages, "raw"))
    assert set(document(pages, "sums")) == {"missing"}, "as `stale` says"


def test_a_partition_past_its_retention_is_expired(tables: Tables) -> None:
    tables.declared["tidy"] += "retention = 2\n"
    tables.table("raw", (1, DAYS))
    tables.table("tidy", (3, DAYS))
    assert document(tables.pages(), "tidy") == {
        "expired": [f"{DAYS[0]}..{DAYS[2]}"],
        "fresh": [f"{DAYS[3]}..{DAYS[4]}"],
    }


def test_ten_years_of_hours_are_few_cells(tmp_path: Path) -> None:
    tables = Tables(tmp_path, grain="hour", start="2014-01-01T00")
    tables.table("raw", (1, ["2014-01-01T00", "2014-02-03T05"]))
    pages = tables.pages()
    shown = page(pages, "raw")
    found = cells(shown)
    assert 12 <= len(found) <= 60
    quarter = "2014-01-01T00..2014-03-31T23"
    assert found.get(quarter, found.get("2014-01-01T00..2014-12-31T23")) == "missing"
    assert len(shown.tags) < 600
    hours = cells(page(pages, "raw", within="2014-02-03T00..2014-02-03T23"))
    assert len(hours) == 24
    assert [keys for keys, state in hours.items() if state == "fresh"] == ["2014-02-03T05"]
    refused = pages.get("/lineage/dataset?namespace=s&name=raw&within=nonsense")
    assert refused.status_code == 400


def test_keys_without_time_have_a_cell_each(tables: Tables) -> None:
    tables.declared["raw"] = (
        "[[dataset]]\nname = 'raw'\nkeys = ['eu', 'us']\ncolumn = 'day'\nlocation = 'raw'\n"
    )
    tables.table("raw", (1, ["eu"]))
    assert cells(page(tables.pages(), "raw")) == {"us": "missing", "eu": "fresh"}


def test_hostile_names_stay_text(tables: Tables) -> None:
    tables.table("raw", (1, DAYS))
    shown = page(tables.pages(), HOSTILE)
    assert [given.get("src") for tag, given in shown.tags if tag == "script"] == ["/static/live.js"]
    hidden = [given["value"] for _, given in shown.tags if given.get("name") == "changed"]
    assert hidden == [f"dataset:s:{HOSTILE}"]
