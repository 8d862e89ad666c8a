"""The pages only read, answer by their own names alone, and tell browsers to be strict."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from lineage_backfill.web.guard import is_trusted, own_names
from lineage_backfill.web.pages import make_pages
from tests.unit.web.shop import Shop

PATHS = ("/", "/lineage.json", "/static/pages.css", "/nowhere")


@pytest.fixture
def pages(tmp_path: Path) -> FlaskClient:
    return make_pages(Shop.of(tmp_path).project, names=("backfills.example",)).test_client()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", PATHS)
def test_only_reading_is_allowed(pages: FlaskClient, path: str, method: str) -> None:
    answer = pages.open(path, method=method)
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_bears_the_headers_that_protect_it(pages: FlaskClient, path: str) -> None:
    for answer in (
        pages.get(path, buffered=True),
        pages.head(path, buffered=True),
        pages.post(path),
    ):
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_only_pages_that_are_named_show_these_in_a_frame(tmp_path: Path) -> None:
    airflow = "http://airflow.example:8080"
    pages = make_pages(Shop.of(tmp_path).project, frames=(airflow,)).test_client()
    headers = pages.get("/").headers
    assert f"frame-ancestors {airflow}" in headers["Content-Security-Policy"]
    assert "X-Frame-Options" not in headers


@pytest.mark.parametrize(
    ("host", "trusted"),
    [
        ("localhost", True),
        ("LOCALHOST.:8085", True),
        ("127.0.0.1:8085", True),
        ("[::1]:8085", True),
        ("192.168.0.7:8085", True),  # an address cannot come to mean another one
        ("backfills.example:443", True),
        ("evil.example", False),
        ("evil.example:8085", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        (":8085", False),
    ],
)
def test_who_is_asked_for(host: str, trusted: bool) -> None:
    assert is_trusted(host, {"localhost", "backfills.example"}) is trusted


def test_a_page_that_was_meant_for_another_host_is_refused(pages: FlaskClient) -> None:
    refused = pages.get("/settings", headers={"Host": "evil.example"})
    assert refused.status_code == 421
    assert "--allow-host" in refused.text
    assert "shop" not in refused.text.partition("<main")[2]
    for name in ("localhost:1", "backfills.example", own_names()[0]):
        assert pages.get("/settings", headers={"Host": name}).status_code == 200
