"""What the pages do: only for who has logged in, what was shown, and each act in the audit."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.ports import ControlRequest, Driver
from lineage_backfill.web.logins import Logins
from lineage_backfill.web.pages import make_pages
from lineage_backfill.workspace.actions import Process
from lineage_backfill.workspace.environment import account
from tests.events import event, write_events
from tests.unit.cli.documents import fits
from tests.unit.web.shop import Shop
from tests.unit.web.test_pages import Text

FIX = {"changed": "feed", "keys": "2024-01-02T00..2024-01-02T02"}
ACTS = ("pause", "resume", "cancel", "kill", "retry", "undo", "delete")
POSTS = ("/new", "/logout", *(f"/backfills/b-1/{act}" for act in ACTS))
HERE = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}


class Browser:
    """A browser that has logged in, and sends what its pages would send."""

    def __init__(self, pages: Flask) -> None:
        self.client = pages.test_client()
        logins: Logins = pages.extensions["logins"]
        self.entered = self.client.get(f"/login?code={logins.code}")
        self.cookie = logins.cookie
        self.sent = self.value("sent", self.client.get("/").text)

    def value(self, name: str, page: str) -> str:
        found = re.search(f'name="{name}" value="([^"]*)"', page)
        assert found, f"no {name}"
        return found[1]

    def post(self, address: str, **fields: str) -> TestResponse:
        return self.client.post(address, data={"sent": self.sent} | fields, headers=HERE)

    def shown(self, **fields: str) -> dict[str, str]:
        """Return the fields of a new backfill with those of its preview."""
        page = self.client.get("/new", query_string=fields).text
        hidden = {name: self.value(name, page) for name in ("plan", "now", "key")}
        return fields | hidden


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.of(tmp_path)


@pytest.fixture
def codes() -> list[str]:
    """The codes that `serve` would print."""
    return []


@pytest.fixture
def pages(shop: Shop, codes: list[str]) -> Flask:
    process = Process(arguments=[f"--config={shop.folder}/lineage-backfill.toml"])
    return make_pages(shop.project, logins=Logins(process, codes.append))


@pytest.fixture
def browser(pages: Flask) -> Browser:
    return Browser(pages)


@pytest.fixture
def driven(shop: Shop) -> None:
    """A live `drive` service, so that nothing here starts a process."""
    until = datetime.now(UTC) + timedelta(hours=1)
    with shop.store() as store:
        store.keep_to("")
        store.announce(
            Driver(owner="somewhere:1:x", until=until, project=shop.project.name, target="")
        )


def audit(client: FlaskClient) -> list[dict[str, Any]]:
    document = json.loads(client.get("/audit.json").text)
    assert fits(document, "audit")
    return list(document["acts"])


def test_a_code_logs_one_browser_in(pages: Flask, codes: list[str]) -> None:
    logins: Logins = pages.extensions["logins"]
    code = logins.code
    entered = Browser(pages).entered
    assert entered.status_code == 200
    assert "url=/" in entered.text
    cookie = entered.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert codes == [logins.code] != [code], "the terminal shows the next one"
    for used in (code, "", "é"):
        refused = pages.test_client().get("/login", query_string={"code": used})
        assert refused.status_code == 403
        assert "Set-Cookie" not in refused.headers


def test_a_login_ends_when_it_is_not_used(shop: Shop) -> None:
    now = [0.0]
    logins = Logins(Process(), lambda _: None, clock=lambda: now[0])
    browser = Browser(make_pages(shop.project, logins=logins))
    now[0] = 11 * 3600
    assert "Log out" in browser.client.get("/").text
    now[0] += 11 * 3600
    assert "Log out" in browser.client.get("/").text, "it was used in between"
    now[0] += 13 * 3600
    assert "Log out" not in browser.client.get("/").text
    assert browser.post("/logout").status_code == 403


@pytest.mark.parametrize("address", POSTS)
def test_only_a_page_of_a_login_changes_something(
    shop: Shop, pages: Flask, browser: Browser, address: str
) -> None:
    shop.backfill()
    shop.backfill("b-2", state=BackfillState.PAUSED)
    form, other = {"sent": browser.sent}, Browser(pages)
    refused = [
        pages.test_client().post(address, data=form, headers=HERE),
        browser.client.post(address, data={}, headers=HERE),
        browser.client.post(address, data={"sent": other.sent}, headers=HERE),
        browser.client.post(address, data=form, headers=HERE | {"Origin": "http://evil.example"}),
        browser.client.post(address, data=form, headers=HERE | {"Origin": "null"}),
        browser.client.post(address, data=form, headers=HERE | {"Sec-Fetch-Site": "same-site"}),
        browser.client.post(address, data=form, headers=HERE | {"Host": "evil.example"}),
    ]
    stranger = pages.test_client()
    stranger.set_cookie(browser.cookie, "chosen-beforehand")
    refused.append(stranger.post(address, data=form, headers=HERE))
    left = Browser(pages)
    assert left.post("/logout").status_code == 303
    refused.append(left.post(address))
    assert {one.status_code for one in refused} <= {403, 421}
    assert browser.client.get(address).status_code in (200, 404, 405), "reading does nothing"
    with shop.store() as store:
        assert [one.control for one in store.backfills(deleted=True)] == [None, None]
        acts = store.acts(99)
        assert len(acts) == len(refused), "each refusal is one row of the audit"
        assert all(one.refused and one.address for one in acts)
        assert not any(one.deleted for one in store.backfills(deleted=True))


def test_a_preview_is_what_impact_prints_and_writes_nothing(shop: Shop, pages: Flask) -> None:
    reader = pages.test_client()
    page = Text(reader.get("/new", query_string=FIX).text)
    assert "2 jobs, 4 partitions, 4 runs in 2 waves" in str(page)
    assert "log in" in str(page)
    assert "Start" not in str(page)
    document = json.loads(reader.get("/new.json", query_string=FIX).text)
    assert fits(document, "plan")
    assert document["totals"]["runs"] == 4
    assert not (shop.folder / ".lineage-backfill").exists()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"changed": "fed"}, "Did you mean"),
        ({"changed": "feed", "keys": "2024-01-02"}, "2024-01-02"),
        ({"changed": "feed", "version": "x"}, "Write a whole number"),
        ({**FIX, "version": "3"}, "a version finds the changed keys of a dataset itself"),
        ({"changed": "clean", "keys": "2030-01-01T00"}, "2030-01-01T00"),
    ],
)
def test_what_is_wrong_with_a_form_is_said_beside_it(
    browser: Browser, fields: dict[str, str], says: str
) -> None:
    answer = browser.client.get("/new", query_string=fields)
    assert answer.status_code == 200
    page = Text(answer.text)
    assert says in str(page)
    assert "Start" not in str(page)
    typed = [given["value"] for tag, given in page.tags if given.get("id") == "changed"]
    assert typed == [fields["changed"]], "nothing that was typed is lost"
    assert browser.client.get("/new.json", query_string=fields).status_code in (400, 404)


def test_the_links_of_a_preview_keep_its_fields_and_nothing_else(tmp_path: Path) -> None:
    shop = Shop.of(tmp_path, [(f"clean_{n}", "feed", f"clean_{n}") for n in range(60)])
    browser = Browser(make_pages(shop.project, logins=Logins(Process(), lambda _: None)))
    fields = FIX | {"allow-protected": "on"}
    strange = {"_scheme": "javascript", "_external": "1", "endpoint": "x", "sent": browser.sent}
    page = Text(browser.client.get("/new", query_string=fields | strange).text)
    (more,) = [link for link in page.links if "page=2" in link]
    (as_json,) = [link for link in page.links if link.startswith("/new.json")]
    for link in (more, as_json):
        assert all(f"{name}=" in link for name in fields)
        assert not any(f"{name}=" in link for name in strange)
        assert browser.client.get(link).status_code == 200
    assert "clean_59" in browser.client.get(more).text


@pytest.mark.usefixtures("driven")
def test_what_was_shown_is_started_once(shop: Shop, browser: Browser) -> None:
    fields = browser.shown(**FIX) | {"title": "Three hours", "reason": "bad <feed>"}
    answers = [browser.post("/new", **fields) for _ in range(2)]
    assert [one.status_code for one in answers] == [303, 303]
    assert answers[0].location == answers[1].location, "sent twice, done once"
    with shop.store() as store:
        (record,) = store.backfills()
        assert (record.title, record.reason, record.submitted_by) == (
            *("Three hours", "bad <feed>"),
            account(),
        )
        assert len(store.runs(record.id)) == 4
    assert answers[0].location == f"/backfills/{record.id}"
    (act,) = audit(browser.client)
    assert act == act | {"act": "start", "backfill": record.id, "reason": "bad <feed>"}
    assert act == act | {"who": account(), "door": "pages", "address": "127.0.0.1", "refused": ""}
    assert "bad <feed>" in str(Text(browser.client.get("/audit").text))


@pytest.mark.usefixtures("driven")
def test_what_was_not_shown_is_not_started(shop: Shop, browser: Browser) -> None:
    shown = browser.shown(**FIX)
    forged = [
        shown | {"keys": "2024-01-02T00..2024-01-02T05"},
        shown | {"plan": "sha256:0"},
        shown | {"exact": "on"},
        {name: text for name, text in shown.items() if name != "plan"},
    ]
    answers = [browser.post("/new", **fields) for fields in forged]
    write_events(
        shop.folder / "events.ndjson",
        *(event(one, ["feed"], [to]) for one, to in (("clean", "clean"), ("more", "clean_b"))),
    )
    answers.append(browser.post("/new", **shown))
    for answer in answers:
        assert answer.status_code == 409
        assert "nothing was started" in answer.text
        assert 'name="plan"' in answer.text, "the plan as it is now can be started"
    assert browser.post("/new", **shown | {"now": "2024-01-01T00:00:00+00:00"}).status_code == 400
    assert browser.post("/new", **shown | {"now": "2999-01-01T00:00:00+00:00"}).status_code == 400
    with shop.store() as store:
        assert not store.backfills()
        acts = store.acts(9)
    assert [(one.verb, bool(one.refused)) for one in acts] == [("start", True)] * 7


@pytest.mark.usefixtures("driven")
def test_many_runs_are_started_by_their_number(shop: Shop, browser: Browser) -> None:
    keys = {"changed": "feed", "keys": "2024-01-02T00..2024-01-09T00"}
    fields = browser.shown(**keys)
    page = Text(browser.client.get("/new", query_string=keys).text)
    assert "Type the number of runs" in str(page)
    assert browser.post("/new", **fields).status_code == 400
    assert browser.post("/new", **fields, typed="17").status_code == 400
    number = re.findall(r"Start (\d+) runs", str(page))
    assert browser.post("/new", **fields, typed=number[0]).status_code == 303


def test_a_backfill_is_paused_cancelled_and_hidden(shop: Shop, browser: Browser) -> None:
    runs = shop.backfill()
    shop.drive(runs[:1], RunState.SUCCEEDED)
    page = browser.client.get("/backfills/b-1").text
    for verb in ("pause", "cancel", "kill"):
        assert f"/backfills/b-1/{verb}" in page
    for verb, control in (
        ("pause", ControlRequest.PAUSE),
        ("cancel", ControlRequest.CANCEL),
        ("kill", ControlRequest.KILL),
    ):
        assert browser.post(f"/backfills/b-1/{verb}").status_code == 303
        with shop.store() as store:
            assert store.backfill("b-1").control is control
    refused = browser.post("/backfills/b-1/delete")
    assert refused.status_code == 409
    shop.end(BackfillState.CANCELLED)
    assert "/backfills/b-1/retry" in browser.client.get("/backfills/b-1").text
    assert browser.post("/backfills/b-1/delete").status_code == 303
    assert browser.post("/backfills/b-9/pause").status_code == 404
    acts = audit(browser.client)
    assert [(one["act"], bool(one["refused"])) for one in reversed(acts)] == [
        *(("pause", False), ("cancel", False), ("kill", False), ("delete", True)),
        *(("delete", False), ("pause", True)),
    ]
    assert {one["backfill"] for one in acts} == {"b-1", "b-9"}


@pytest.mark.parametrize("verb", ["resume", "retry", "undo"])
def test_what_is_driven_is_not_driven_twice(shop: Shop, browser: Browser, verb: str) -> None:
    shop.drive(shop.backfill()[:1], RunState.SUCCEEDED)  # this process holds it
    refused = browser.post(f"/backfills/b-1/{verb}")
    assert refused.status_code == 409
    assert "b-1 is driven already" in str(Text(refused.text))
    (act,) = audit(browser.client)
    assert (act["act"], act["backfill"]) == (verb, "b-1")
    assert "is driven already" in act["refused"]


def test_what_the_process_that_drives_refuses_is_said(shop: Shop, browser: Browser) -> None:
    shop.backfill()
    shop.end(BackfillState.SUCCEEDED)
    refused = browser.post("/backfills/b-1/undo")
    assert refused.status_code == 503
    assert "has written nothing" in str(Text(refused.text)), "the end of its log"
    assert "ended with exit code 64" in audit(browser.client)[0]["refused"]


def test_a_reader_sees_no_buttons(shop: Shop, pages: Flask) -> None:
    shop.backfill()
    for client in (pages.test_client(), make_pages(shop.project).test_client()):
        page = Text(client.get("/backfills/b-1").text)
        assert not [tag for tag, _ in page.tags if tag in ("form", "button")]
        assert "read-only" in str(page)
