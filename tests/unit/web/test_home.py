"""The first page says in one look how things are; pages that are watched are answered cheaply."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from lineage_backfill.errors import LineageError
from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.web.cache import Looker
from lineage_backfill.web.pages import make_pages
from tests.unit.cli.documents import fits
from tests.unit.web.shop import HOSTILE, Shop
from tests.unit.web.test_pages import Text
from tests.unit.web.test_partitions import DAYS, Tables


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.of(tmp_path)


@pytest.fixture
def pages(shop: Shop) -> FlaskClient:
    return make_pages(shop.project).test_client()


def read(pages: FlaskClient, address: str) -> str:
    return str(Text(pages.get(address).text))


def test_the_first_page_says_what_is_stale(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.table("raw", (1, DAYS), (5, DAYS[1:2]))
    tables.table("tidy", (3, DAYS[:3]))
    pages = tables.pages()
    shown = Text(pages.get("/").text)
    assert ("main", {"id": "main", "data-live": "yes"}) in shown.tags
    assert "http-equiv" not in {name for _, given in shown.tags for name in given}
    assert "13 stale partitions" in str(shown)
    assert f"looked at {datetime.now(UTC):%H}:" in str(shown)
    assert "tidy 3, 2 missing" in str(shown)
    assert "/new?stale=" in shown.links
    found = json.loads(pages.get("/stale.json").text)
    assert fits(found, "stale")
    assert found["stale"] == 13


def test_the_first_page_counts_what_runs_failed_and_waits(shop: Shop, pages: FlaskClient) -> None:
    states = ("RUNNING", "RUNNING", "FAILED", "PAUSED", "SCHEDULED")
    for number, state in enumerate(states):
        shop.backfill(f"b-{number}", "2024-01-02T22", state=BackfillState[state])
    runs = shop.backfill("b-5", "2024-01-02T20")
    shop.drive(runs[:1], RunState.RUNNING, backfill_id="b-5")
    shown = read(pages, "/")
    assert "1 running 1 run at work" in shown, "two have no driver: they are interrupted"
    assert "1 failed and not undone" in shown
    assert 'http-equiv="refresh"' in pages.get("/").text
    assert "4 waiting 1 paused, 3 interrupted" in shown


def test_backfills_are_found_by_words_and_state(shop: Shop, pages: FlaskClient) -> None:
    shop.backfill("b-1", title="VAT fix", submitted_by="ann", state=BackfillState.FAILED)
    shop.backfill("b-2", reason=f"{HOSTILE} hours", state=BackfillState.PAUSED)

    def found(query: str) -> list[str]:
        document = json.loads(pages.get(f"/history.json?{query}").text)
        assert fits(document, "history")
        shown = pages.get(f"/?{query}").text
        ids = [one["id"] for one in document["backfills"]]
        assert [id_ for id_ in ("b-2", "b-1") if f"/backfills/{id_}" in shown] == ids
        return ids

    assert found("q=vat") == ["b-1"]
    assert found("q=ANN&state=failed") == ["b-1"]
    assert found("q=%3Cscript%3E") == ["b-2"]
    assert found("state=waiting") == ["b-2"]
    assert found("q=nothing") == []
    assert found("state=") == ["b-2", "b-1"]


def test_a_page_that_has_not_changed_is_not_sent_again(shop: Shop, pages: FlaskClient) -> None:
    runs = shop.backfill()
    shop.drive(runs[:1], RunState.RUNNING)
    for address in ("/backfills/b-1", "/backfills/b-1?state=running"):
        first = pages.get(address)
        again = pages.get(address, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.data) == (304, b""), address
    shop.drive(runs[1:3], RunState.SUCCEEDED)
    fresh = pages.get("/backfills/b-1")
    assert fresh.headers["ETag"] != first.headers["ETag"]
    assert "2 succeeded" in str(Text(fresh.text))


def test_what_moved_on_is_shown_as_if_all_was_read_again(shop: Shop, pages: FlaskClient) -> None:
    runs = shop.backfill()
    pages.get("/backfills/b-1")
    for at, state in enumerate((RunState.SUCCEEDED, RunState.FAILED, RunState.RUNNING)):
        shop.drive(runs[at : at + 1], state, error="no such column" if at == 1 else None)
        new = make_pages(shop.project).test_client()
        assert pages.get("/backfills/b-1").text == new.get("/backfills/b-1").text


def test_what_is_stale_is_found_beside_the_page() -> None:
    now, looks = [0.0], [0]

    def find() -> None:
        looks[0] += 1
        raise LineageError("the events are torn")

    looker = Looker(find, lambda: now[0])  # type: ignore[arg-type]
    first = looker.newest(wait=True)
    assert first is not None
    assert first.error is not None
    now[0] = 59
    assert looker.newest() is first
    now[0] = 61
    assert looker.newest() is first, "no page waits for the next one"
    for thread in threading.enumerate():
        if thread.daemon and thread.name.endswith("(_look)"):
            thread.join()
    assert looker.newest() is not first
    assert looks[0] == 2
