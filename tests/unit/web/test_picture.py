"""The picture of the lineage: what it shows of the graph, its links and its states."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from flask.testing import FlaskClient

from lineage_backfill.web.pages import make_pages
from tests.unit.web.shop import HOSTILE, Shop
from tests.unit.web.test_pages import Text
from tests.unit.web.test_partitions import DAYS, Tables

CHAIN = [("clean", "feed", "tidy"), ("sum", "tidy", "sums"), ("mail", "sums", "sent")]
CHAIN += [("copy", "feed", "copied"), (HOSTILE, "tidy", HOSTILE)]


@pytest.fixture
def pages(tmp_path: Path) -> FlaskClient:
    return make_pages(Shop.of(tmp_path, CHAIN).project).test_client()


def drawn(pages: FlaskClient, query: str = "", status: int = 200) -> dict[str, str]:
    """Return the classes of each node of the picture, by its address."""
    answer = pages.get(f"/lineage?{query}")
    assert answer.status_code == status
    page = Text(answer.text[answer.text.find("<svg") : answer.text.find("</svg>")])
    return {given["href"] or "": given["class"] or "" for tag, given in page.tags if tag == "a"}


def names(nodes: dict[str, str]) -> set[str]:
    return {f"{one.rpartition('/')[2][:1]}:{one.rpartition('name=')[2]}" for one in nodes}


def test_each_node_is_a_link(pages: FlaskClient) -> None:
    nodes = drawn(pages)
    assert f"/lineage/job?namespace=shop&name={HOSTILE}" in map(unquote, nodes)
    assert "/lineage/dataset?namespace=shop&name=tidy" in nodes
    for address in nodes:
        assert pages.get(address).status_code == 200, address


def test_the_way_from_and_to_a_name(pages: FlaskClient) -> None:
    assert names(drawn(pages, "from=job:sum")) == {"j:sum", "d:sums", "j:mail", "d:sent"}
    assert names(drawn(pages, "to=sums")) == {"d:feed", "j:clean", "d:tidy", "j:sum", "d:sums"}
    assert names(drawn(pages, "to=sums&depth=1")) == {"d:tidy", "j:sum", "d:sums"}
    on_the_way = {"j:clean", "d:tidy", "j:sum", "d:sums"}
    assert names(drawn(pages, "from=job:clean&to=sums")) == on_the_way
    graph = json.loads(pages.get("/graph.json?from=job:clean&to=sums").text)
    assert {f"{one['kind'][0]}:{one['name']}" for one in graph["nodes"]} == on_the_way
    assert "no path leads" in pages.get("/lineage?from=copied&to=sums").text
    wrong = pages.get("/lineage?from=feeed")
    assert wrong.status_code == 200
    assert "feed" in str(Text(wrong.text)), "the near miss"


def test_what_is_searched_for_stands_out(pages: FlaskClient) -> None:
    found = {one for one, kind in drawn(pages, "q=SUM").items() if "found" in kind}
    assert names(dict.fromkeys(found, "")) == {"j:sum", "d:sums"}


def test_states_have_a_sign_and_a_row_in_the_table(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.table("raw", (1, DAYS), (5, DAYS[1:2]))
    tables.table("tidy", (3, DAYS))
    pages = tables.pages()
    nodes = drawn(pages)
    where = "/lineage/{}?namespace=s&name={}"
    assert nodes[where.format("job", "clean")] == "stale"
    assert nodes[where.format("dataset", "tidy")] == "stale"
    assert nodes[where.format("dataset", "sums")] == "missing"
    assert nodes[where.format("dataset", "raw")] == "", "no job writes it"
    page = str(Text(pages.get("/lineage").text))
    assert "~ tidy" in page
    assert "clean ~ stale day in UTC" in page


def test_hostile_names_are_text_in_the_picture(pages: FlaskClient) -> None:
    page = pages.get(f"/lineage?q={quote(HOSTILE)}&from={quote(HOSTILE)}").text
    text = Text(page)
    scripts = [given.get("src") for tag, given in text.tags if tag == "script"]
    assert scripts == ["/static/live.js", "/static/graph.js"]
    assert r"<script>alert('x')</script>\u202edlog" in str(text)
    assert "\u202e" not in str(text)


def test_a_picture_is_drawn_up_to_six_hundred_names(tmp_path: Path) -> None:
    shop = Shop.of(tmp_path, [(f"copy_{n}", "feed", f"clean_{n}") for n in range(300)])
    pages = make_pages(shop.project).test_client()
    page = pages.get("/lineage").text
    assert "<svg" not in page
    assert "too many to draw" in page
    assert len(drawn(pages, "to=clean_7")) == 3
