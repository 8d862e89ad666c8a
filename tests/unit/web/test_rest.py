"""REST answers with the documents of the command line, acts by a token, and describes itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from werkzeug.test import TestResponse

from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.ports import ControlRequest
from lineage_backfill.web.logins import Logins
from lineage_backfill.web.pages import make_pages
from lineage_backfill.workspace.actions import Process
from tests.unit.cli.documents import fits
from tests.unit.web.shop import Shop
from tests.unit.web.test_acts import Browser, audit, driven

__all__ = ["driven"]

TOKEN = "t0" * 16
KEYS = ["2024-01-02T00..2024-01-02T02"]
FEED = {"namespace": "shop", "name": "feed"}
ASK = {"request": {"changed": [{"dataset": FEED, "partitions": KEYS}]}}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.of(tmp_path)


@pytest.fixture
def pages(shop: Shop) -> Flask:
    return make_pages(shop.project, logins=Logins(Process(), lambda _: None, TOKEN))


@pytest.fixture
def client(pages: Flask) -> FlaskClient:
    return pages.test_client()


def post(
    client: FlaskClient, path: str, body: Any = None, token: str = TOKEN, **headers: str
) -> TestResponse:
    given = {"Authorization": f"Bearer {token}"} | headers
    return client.post(f"/api/v1{path}", json=body, headers=given)


def problem(answer: TestResponse, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.mimetype == "application/problem+json"
    assert answer.json
    assert answer.json["status"] == status
    return dict(answer.json)


@pytest.mark.usefixtures("driven")
def test_a_program_plans_starts_once_and_looks_on(shop: Shop, client: FlaskClient) -> None:
    planned = post(client, "/plans", ASK)
    assert planned.status_code == 200
    plan = planned.json
    assert plan
    assert fits(plan, "plan")
    body = ASK | {"id": plan["id"], "now": plan["now"], "title": "Three hours"}
    started = [post(client, "/backfills", body, **{"Idempotency-Key": "k-1"}) for _ in range(2)]
    assert [one.status_code for one in started] == [202, 202]
    assert started[0].json == started[1].json
    status = started[0].json
    assert status
    assert fits(status, "status")
    assert (status["title"], len(status["runs"])) == ("Three hours", 4)
    assert started[0].headers["Location"] == f"/api/v1/backfills/{status['id']}"
    with shop.store() as store:
        assert len(store.backfills()) == 1
    (act,) = audit(client)
    assert (act["door"], act["act"], act["backfill"]) == ("rest", "start", status["id"])
    again = post(client, "/backfills", body, **{"Idempotency-Key": "k-2"})
    assert again.status_code == 202
    assert again.json
    assert again.json["id"] != status["id"], "another key asks for another one"


@pytest.mark.usefixtures("driven")
def test_what_was_not_planned_is_not_started(shop: Shop, client: FlaskClient) -> None:
    plan = post(client, "/plans", ASK).json
    assert plan
    body = ASK | {"id": plan["id"], "now": plan["now"]}
    other = {"request": {"changed": [{"dataset": FEED, "partitions": ["2024-01-02T07"]}]}}
    assert "nothing was started" in problem(post(client, "/backfills", body | other), 409)["title"]
    assert problem(post(client, "/backfills", body | {"id": "sha256:0"}), 409)["detail"]
    with shop.store() as store:
        assert not store.backfills()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "request"),
        (ASK | {"since": 3}, "since"),
        ({"request": {"changed": [{"dataset": FEED, "partition": KEYS}]}}, "partition"),
        ({"request": {"changed": []}}, "no change is named"),
        ({"request": {"changed": [{"dataset": FEED, "partitions": ["2024"]}]}}, "2024"),
        ([], "the body"),
        (None, "the body is not JSON"),
    ],
)
def test_a_body_that_cannot_be_read_is_named(client: FlaskClient, body: Any, says: str) -> None:
    found = problem(post(client, "/plans", body), 400)
    assert says in f"{found['title']} {found.get('detail')}"


def test_only_the_token_lets_a_program_act(shop: Shop, pages: Flask) -> None:
    shop.backfill()
    browser = Browser(pages)
    without = make_pages(shop.project, logins=Logins(Process(), lambda _: None)).test_client()
    refused = [
        pages.test_client().post("/api/v1/backfills/b-1/pause"),
        browser.client.post("/api/v1/backfills/b-1/pause", data={"sent": browser.sent}),
        post(pages.test_client(), "/backfills/b-1/pause", token="t0" * 15),
        post(pages.test_client(), "/backfills/b-1/pause", token="é"),
        post(without, "/backfills/b-1/pause", token=""),
    ]
    for answer in refused:
        assert "--token-file" in problem(answer, 401)["title"]
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    reading = make_pages(shop.project).test_client()
    problem(post(reading, "/backfills/b-1/pause"), 405)
    answer = post(pages.test_client(), "/backfills/b-1/pause", Host="evil.example")
    assert answer.status_code == 421
    with shop.store() as store:
        assert store.backfill("b-1").control is None
        acts = store.acts(9)
    assert len(acts) == len(refused) + 1, "each refusal is one row, but where pages only read"
    assert all(one.refused and one.door == "rest" for one in acts)


def test_a_backfill_is_controlled(shop: Shop, client: FlaskClient) -> None:
    shop.drive(shop.backfill()[:1], RunState.SUCCEEDED)
    answer = post(client, "/backfills/b-1/pause")
    assert answer.status_code == 202
    assert fits(answer.json, "status")
    with shop.store() as store:
        assert store.backfill("b-1").control is ControlRequest.PAUSE
    assert "They are: pause," in problem(post(client, "/backfills/b-1/stop"), 400)["detail"]
    assert "b-9" in problem(post(client, "/backfills/b-9/pause"), 404)["title"]
    problem(post(client, "/backfills/b-1/delete"), 409)


def test_what_has_not_changed_is_not_sent_again(shop: Shop, client: FlaskClient) -> None:
    shop.backfill()
    first = client.get("/api/v1/backfills/b-1")
    known = {"If-None-Match": first.headers["ETag"]}
    assert client.get("/api/v1/backfills/b-1", headers=known).status_code == 304
    shop.end(BackfillState.CANCELLED)
    changed = client.get("/api/v1/backfills/b-1", headers=known)
    assert changed.status_code == 200
    assert changed.headers["ETag"] != first.headers["ETag"]


def test_a_long_list_is_read_in_parts(shop: Shop, client: FlaskClient) -> None:
    for number in range(5):
        shop.backfill(f"b-{number}", first="2024-01-02T23")
    address, seen = "/api/v1/backfills?limit=2", list[str]()
    while address:
        answer = client.get(address)
        assert fits(answer.json, "history")
        assert answer.json
        seen += [one["id"] for one in answer.json["backfills"]]
        address = answer.headers.get("Link", "").partition(">")[0].removeprefix("<")
    assert seen == ["b-4", "b-3", "b-2", "b-1", "b-0"]
    problem(client.get("/api/v1/backfills?limit=0"), 400)


def test_it_describes_each_of_its_operations(shop: Shop, pages: Flask, client: FlaskClient) -> None:
    run = shop.backfill()[0].id
    document = client.get("/api/v1/openapi.json").json
    assert document
    assert document["openapi"] == "3.1.0"
    routes = {
        (rule.rule.replace("<", "{").replace(">", "}"), method.lower())
        for rule in pages.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if rule.endpoint.startswith("rest.")
    }
    described = {(path, method) for path, one in document["paths"].items() for method in one}
    assert described == routes
    for path, operations in document["paths"].items():
        for method, one in operations.items():
            assert re.fullmatch(r"[A-Z].*[.;]", one["summary"])
            if method == "post":
                assert one["security"]
                continue
            address = path.replace("{backfill}", "b-1").replace("{run}", run)
            found = client.get(address)
            assert found.status_code == 200, found.text
            schema = one["responses"]["200"]["content"]["application/json"]["schema"]
            described_by(document, schema).validate(found.json)
            problem_ = one["responses"]["default"]["content"]["application/problem+json"]
            missing = problem(client.get("/api/v1/backfills/b-9"), 404)
            described_by(document, problem_["schema"]).validate(missing)
    body = document["paths"]["/api/v1/backfills"]["post"]["requestBody"]
    schema = described_by(document, body["content"]["application/json"]["schema"])
    schema.validate(ASK | {"id": "sha256:1", "now": "2024-01-01T00:00Z"})
    assert not schema.is_valid(ASK)
    assert not schema.is_valid(ASK | {"id": "sha256:1", "now": "x", "request": {"chan": []}})


def described_by(document: Any, schema: Any) -> Draft202012Validator:
    """Return the check by a schema of the description, whose references lead into it."""
    whole = {"components": document["components"], **schema}
    return Draft202012Validator(whole)
