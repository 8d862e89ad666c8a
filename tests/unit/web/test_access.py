"""Who may do what: by role, whose it is and what is hidden, the same through every door."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from lineage_backfill.errors import BackfillError
from lineage_backfill.model import DatasetRef, RunState
from lineage_backfill.plans.document import plan_to_dict
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.ports import Driver, SavedPlan, Submission
from lineage_backfill.project.access import Role
from lineage_backfill.store.sql import SqlRunStore
from lineage_backfill.web.answers import error_status
from lineage_backfill.web.logins import Logins
from lineage_backfill.web.pages import make_pages
from lineage_backfill.workspace.actions import Actions, Actor, Process
from lineage_backfill.workspace.planning import Planning
from lineage_backfill.workspace.workspace import Workspace
from tests.events import event, write_events
from tests.unit.cli.documents import fits
from tests.unit.web.shop import NOW, Shop
from tests.unit.web.test_acts import FIX, HERE, Browser
from tests.unit.web.test_pages import Text

JOBS = (
    ("clean", "feed", "clean"),
    ("salaries", "clean", "daily_salaries"),
    ("total", "daily_salaries", "daily_total"),
)
#: What `ann` may not see is between what she may run.
ACCESS = """
[access]
four_eyes_runs = 3
proxy = { header = "X-User", groups = "X-Groups", from = "10.1.0.0/16" }
[[access.grant]]
to = ["token:viewer", "group:readers"]
role = "viewer"
[[access.grant]]
to = ["token:operator", "token:other", "user:op"]
role = "operator"
[[access.grant]]
to = ["token:approver", "user:boss"]
role = "approver"
[[access.grant]]
to = "token:admin"
role = "admin"
[[access.grant]]
to = "token:ann"
role = "approver"
on = ["shop:feed", "shop:clean", "shop:total", "shop:daily_total"]
[[access.grant]]
to = "token:far"
role = "approver"
on = "elsewhere:*"
[[access.grant]]
to = "token:mixed"
role = "operator"
on = "shop:clean"
[[access.grant]]
to = "token:mixed"
role = "viewer"
"""
NAMES = ("viewer", "operator", "other", "approver", "admin", "ann", "mixed", "far", "stranger")
ASK = {
    "request": {
        "changed": [
            {
                "dataset": {"namespace": "shop", "name": "feed"},
                "partitions": [FIX["keys"]],
            }
        ]
    }
}
HIDDEN = ("salaries", "daily_salaries")


@dataclass
class Team:
    """A project that people share, with a token for each of them."""

    shop: Shop
    pages: Flask
    tokens: dict[str, str]

    def rest(self, who: str, verb: str, path: str, body: Any = None, **headers: str) -> Any:
        bearer = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        client = self.pages.test_client()
        return client.open(f"/api/v1{path}", method=verb, json=body, headers=bearer | headers)

    def browser(self, who: str) -> Browser:
        return LoggedIn(self.pages, self.tokens[who])

    def actions(self, who: str) -> Actions:
        access = self.shop.project.access
        assert access is not None
        actor = Actor(door="rest", name=who, reach=access.reach([f"token:{who}"]))
        return Actions(Workspace(self.shop.project), actor)

    def store(self) -> closing[SqlRunStore]:
        return self.shop.store()

    def plan(self, keys: str = FIX["keys"]) -> Plan:
        asked = Request(changed=(ChangedDataset(dataset=DatasetRef("shop", "feed"), keys=(keys,)),))
        return Planning(Workspace(self.shop.project)).plan(asked)


class LoggedIn(Browser):
    """A browser that has logged in by a token."""

    def __init__(self, pages: Flask, token: str) -> None:
        self.client = pages.test_client()
        logins: Logins = pages.extensions["logins"]
        self.cookie = logins.cookie
        self.entered = self.client.post("/login", data={"token": token}, headers=HERE)
        assert self.entered.status_code == 200, self.entered.text
        self.sent = self.value("sent", self.client.get("/new").text)


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return team_of(tmp_path)


def team_of(folder: Path) -> Team:
    shop = Shop.of(folder, JOBS, more=ACCESS)
    acting = Actions(Workspace(shop.project), Actor(door="command line"))
    tokens = {name: acting.make_token(name)[0] for name in NAMES}
    until = datetime.now(UTC) + timedelta(hours=1)
    with shop.store() as store:  # a live driver, so that nothing here starts a process
        store.keep_to("")
        store.announce(Driver(owner="a:1:x", until=until, project=shop.project.name, target=""))
    process = Process(arguments=[f"--config={folder}/lineage-backfill.toml"])
    pages = make_pages(shop.project, logins=Logins(process, lambda _: None))
    return Team(shop, pages, tokens)


# --- the table ----------------------------------------------------------------------------------

ON_BACKFILLS = ("pause", "resume", "cancel", "kill", "retry", "undo", "delete")
ROLES = {"stranger": 0, "viewer": 1, "operator": 2, "approver": 3, "admin": 4}
#: Each act, and the least role that may do it to one's own, and to that of others.
ACTS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(ON_BACKFILLS, (2, 2)),
    "start": (2, 2),
    "save": (2, 2),
    "approve": (9, 3),
    "discard": (2, 3),
    "run": (2, 2),
}
FORBIDDEN = (401, 403, 404)


@dataclass
class Case:
    """An act by one door on something that another test has not touched."""

    team: Team
    act: str
    who: str
    on: str
    plan: Plan

    def by_rest(self) -> int:
        if self.act in ("start", "save"):
            body = ASK | {"id": self.plan.id, "now": self.plan.now}
            path = "/backfills" if self.act == "start" else "/saved-plans"
            return int(self.team.rest(self.who, "POST", path, body).status_code)
        kind = "backfills" if self.act in ON_BACKFILLS else "saved-plans"
        return int(self.team.rest(self.who, "POST", f"/{kind}/{self.on}/{self.act}").status_code)

    def by_page(self) -> int:
        browser = self.team.browser(self.who)
        if self.act in ("start", "save"):
            fields = FIX | {"plan": self.plan.id, "now": self.plan.now}
            return browser.post("/new" if self.act == "start" else "/plans", **fields).status_code
        kind = "backfills" if self.act in ON_BACKFILLS else "plans"
        return browser.post(f"/{kind}/{self.on}/{self.act}").status_code

    def by_actions(self) -> int:
        actions, process, on = self.team.actions(self.who), Process(), self.on
        calls: dict[str, Callable[[], object]] = {
            "start": lambda: actions.submit(self.plan, Submission(), process),
            "save": lambda: actions.save(self.plan, {}),
            "approve": lambda: actions.approve(on),
            "discard": lambda: actions.discard(on),
            "run": lambda: actions.run_saved(on, process),
            "pause": lambda: actions.pause(on),
            "cancel": lambda: actions.cancel(on),
            "kill": lambda: actions.cancel(on, kill=True),
            "delete": lambda: actions.delete(on),
        }
        try:
            calls.get(self.act, lambda: actions.hand_over(self.act, on, process))()  # type: ignore[arg-type]
        except BackfillError as error:
            return error_status(error)
        return 200


def saved_by(team: Team, author: str, number: int) -> str:
    with team.store() as store:
        one = SavedPlan(
            id=f"sha256:{number}",
            plan=plan_to_dict(team.plan()),
            submission={},
            author=author,
            saved_at=NOW,
        )
        store.save_plan(one)
    return one.id


@pytest.mark.parametrize("whose", ["own", "other's", "hidden"])
@pytest.mark.parametrize("door", [Case.by_actions, Case.by_rest, Case.by_page])
def test_the_roles(team: Team, whose: str, door: Callable[[Case], int]) -> None:
    jobs = {}
    for number, who in enumerate(("far", *ROLES)):
        jobs[who] = f"b-{number}"
        team.shop.backfill(jobs[who], submitted_by=who if whose == "own" else "other")
        team.shop.hold(jobs[who])
    plan, done = team.plan(), 0
    for act, needed in ACTS.items():
        for who in ("far",) if whose == "hidden" else ROLES:
            on = jobs[who]
            if act in ("approve", "discard", "run"):
                author = who if whose == "own" else "other"
                on = saved_by(team, author, done)
            status = door(Case(team, act, who, on, plan))
            done += 1
            what = f"{who} {act} {whose}: {status}"
            if whose == "hidden":
                assert status in ((404, 403) if act in ("start", "save") else (404,)), what
            elif needed[whose != "own"] > max(ROLES.values()):
                assert status in (*FORBIDDEN, 409), what
            else:
                assert (status in FORBIDDEN) == (ROLES[who] < needed[whose != "own"]), what
                assert status < 500, what
    with team.store() as store:
        acts = [one for one in store.acts(999) if one.verb != "create token"]
        assert len(acts) == done, "each act and each refusal is one row"
        if whose == "hidden":
            assert all(one.refused for one in acts)
            assert all(one.control is None for one in store.backfills())


# --- what is hidden -----------------------------------------------------------------------------


def test_what_is_hidden_is_nowhere(team: Team) -> None:
    """The name of a hidden job or dataset is in no answer, and its own addresses do not exist."""
    runs = team.shop.backfill("b-1", title="salaries", reason="daily_salaries are wrong")
    hidden, *_ = [one for one in runs if one.job.name == "salaries"]
    shown, *_ = [one for one in runs if one.job.name == "clean"]
    team.shop.drive([shown, hidden], RunState.SUCCEEDED)
    team.shop.log(shown).write_text("reads daily_salaries and feed")
    saved_by(team, "other", 1)
    ann, boss = team.browser("ann"), team.browser("admin")
    paths = [
        *("/", "/history.json", "/backfills/b-1", "/backfills/b-1.json", "/backfills/b-1/plan"),
        *("/backfills/b-1/plan.json", "/backfills/b-1/plan.svg", "/backfills/b-1/report"),
        *("/backfills/b-1/report.json", f"/backfills/b-1/runs/{shown.id}"),
        *(f"/backfills/b-1/runs/{shown.id}.json", f"/backfills/b-1/runs/{shown.id}/1.txt"),
        *("/lineage", "/lineage?q=sal", "/lineage?kind=dataset", "/lineage.json", "/graph.json"),
        *("/graph.svg", "/lineage/job?namespace=shop&name=total", "/audit", "/audit.json", "/new"),
        *("/lineage/job.json?namespace=shop&name=clean", "/plans", "/plans.json"),
        *("/plans/sha256:1", "/new?stale=", "/new?changed=salarie", "/settings"),
        *(f"/new?changed=feed&keys={FIX['keys']}", f"/new.json?changed=feed&keys={FIX['keys']}"),
        *("/api/v1/backfills", "/api/v1/backfills/b-1", "/api/v1/backfills/b-1/report"),
        *("/api/v1/stale", "/api/v1/audit", "/api/v1/saved-plans", "/stale.json"),
        *("/lineage/dataset?namespace=shop&name=daily_total", "/?q=total"),
        *("/lineage/dataset/partitions.json?namespace=shop&name=daily_total",),
    ]
    leaks = set()
    for path in paths:
        assert boss.client.get(path).status_code == 200, "what is kept of it is not shown to ann"
        answer = ann.client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        text = answer.text.replace("name=salarie", "")
        if any(name in text for name in HIDDEN):
            leaks.add(path)
    assert not leaks
    gone = [
        *(f"/backfills/b-1/runs/{hidden.id}", f"/backfills/b-1/runs/{hidden.id}.json"),
        *(f"/backfills/b-1/runs/{hidden.id}/1.txt", "/lineage/job?namespace=shop&name=salaries"),
        *("/lineage/dataset.json?namespace=shop&name=daily_salaries",),
        *("/graph.svg?kind=job&namespace=shop&name=salaries",),
        *("/new.json?changed=salaries&keys=2024-01-02",),
        *("/new.json?changed=daily_salaries&keys=2024-01-02",),
        *(f"/new.json?changed=feed&keys={FIX['keys']}&select=salaries",),
    ]
    for path in gone:
        assert boss.client.get(path).status_code == 200, "it exists"
        assert ann.client.get(path).status_code in (400, 404), path
    assert "2 hidden jobs" in str(Text(ann.client.get("/").text))


def test_a_plan_shows_what_is_beyond_a_role_and_counts_what_is_hidden(team: Team) -> None:
    plan = team.rest("ann", "POST", "/plans", ASK).json
    assert fits(plan, "plan")
    jobs = {one["job"]["name"]: one for one in plan["jobs"]}
    assert jobs.keys() == {"clean", "total"}
    assert jobs["clean"]["status"] == "planned"
    assert jobs["total"]["status"] != "planned", "what it reads is not repaired"
    assert {run["job"]["name"] for run in plan["runs"]} == {"clean"}
    assert "2 hidden jobs" in plan["warnings"]
    mixed = team.rest("mixed", "POST", "/plans", ASK).json
    blocked = {one["job"]["name"]: one for one in mixed["jobs"]}
    assert blocked["salaries"]["status"] == "blocked"
    assert blocked["salaries"]["reason"]["text"] == "you may not run the job"
    started = ASK | {"id": plan["id"], "now": plan["now"]}
    answer = team.rest("ann", "POST", "/backfills", started)
    assert answer.status_code == 202, answer.text
    with team.store() as store:
        (record,) = store.backfills()
        assert {run.job.name for run in store.runs(record.id)} == {"clean"}
        assert record.submitted_by == "ann"


def test_a_plan_of_another_is_not_ones_own(team: Team) -> None:
    """The hash of a plan with jobs beyond one's role starts nothing."""
    whole = team.rest("operator", "POST", "/plans", ASK).json
    for who in ("ann", "mixed"):
        forged = ASK | {"id": whole["id"], "now": whole["now"]}
        assert team.rest(who, "POST", "/backfills", forged).status_code == 409
    with pytest.raises(BackfillError, match="you are not operator of"):
        team.actions("mixed").submit(team.plan(), Submission(), Process())
    with pytest.raises(BackfillError, match="of 1 hidden job"):
        team.actions("ann").submit(team.plan(), Submission(), Process())


# --- saved plans --------------------------------------------------------------------------------


def test_a_saved_plan_is_approved_by_another_and_run_once(team: Team) -> None:
    author, boss = team.browser("operator"), team.browser("approver")
    shown = author.shown(**FIX) | {"title": "Two hours", "reason": "bad feed"}
    refused = author.post("/new", **shown)
    assert refused.status_code == 409
    assert "another user has to approve these" in str(Text(refused.text))
    saved = author.post("/plans", **(shown | {"key": "k2"})).location
    assert saved == f"/plans/{shown['plan']}"
    page = str(Text(author.client.get(saved).text))
    assert "not yet" in page
    assert "nothing has moved" in page
    assert author.post(f"{saved}/run").status_code == 409, "it is not approved"
    assert author.post(f"{saved}/approve").status_code == 403, "no approver"
    path = f"/saved-plans/{shown['plan']}"
    own = team.rest("approver", "POST", f"{path}/approve")
    assert own.json["plans"][0]["approved_by"] == "approver"
    assert fits(own.json, "saved_plans")
    again = team.rest("admin", "POST", f"{path}/approve")
    assert again.status_code == 409, "one approval"
    assert boss.post(f"{saved}/approve").status_code == 409
    ran = author.post(f"{saved}/run")
    assert ran.status_code == 303
    assert author.post(f"{saved}/run").status_code == 404, "it ran"
    with team.store() as store:
        (record,) = store.backfills()
        assert (record.title, record.reason) == ("Two hours", "bad feed")
        assert ran.location == f"/backfills/{record.id}"
        acts = [(one.verb, one.who, bool(one.refused)) for one in reversed(store.acts(99))]
    assert [one for one in acts if one[0] != "create token"] == [
        ("start", "operator", True),
        ("save plan", "operator", False),
        ("run plan", "operator", True),
        ("approve", "operator", True),
        ("approve", "approver", False),
        ("approve", "admin", True),
        ("approve", "approver", True),
        ("run plan", "operator", False),
        ("run plan", "operator", True),
    ]


def test_users_do_not_approve_their_own_plans(team: Team) -> None:
    plan = saved_by(team, "admin", 1)
    answer = team.rest("admin", "POST", f"/saved-plans/{plan}/approve")
    assert answer.status_code == 409
    assert "you saved this plan yourself" in answer.json["title"]


def test_two_approvers_at_once_leave_one_approval(team: Team) -> None:
    plan = saved_by(team, "other", 1)
    with team.store() as store:
        (before,) = store.saved_plans()
        store.change_plan(before, replace(before, approved_by="one"))
        with pytest.raises(BackfillError, match="just now"):
            store.change_plan(before, replace(before, approved_by="two"))
        assert [one.approved_by for one in store.saved_plans()] == ["one"]
    assert plan == before.id


def test_a_saved_plan_that_has_moved_is_not_run(team: Team) -> None:
    keys = {"changed": "feed", "keys": "2024-01-02T00"}
    author = team.browser("operator")
    shown = author.shown(**keys)
    saved = author.post("/plans", **shown).location
    write_events(
        team.shop.folder / "events.ndjson",
        *(event(one, ["feed"], [to]) for one, to in (("clean", "clean"), ("more", "clean_b"))),
    )
    fresh = team_pages(team)
    author = LoggedIn(fresh, team.tokens["operator"])
    assert "nothing has moved" not in str(Text(author.client.get(saved).text))
    refused = author.post(f"{saved}/run")
    assert refused.status_code == 409
    assert "nothing was started" in refused.text
    with team.store() as store:
        assert not store.backfills()
    assert author.post(f"{saved}/discard").status_code == 303
    assert "No plan waits" in author.client.get("/plans").text


# --- attacks ------------------------------------------------------------------------------------


def proxied(team: Team, path: str, *, by: str = "10.1.2.3", **headers: str) -> TestResponse:
    client = team.pages.test_client()
    environ = {"REMOTE_ADDR": by}
    return client.get(path, headers={"X-Groups": "readers, x"} | headers, environ_overrides=environ)


def test_a_proxy_is_believed_from_its_own_address_alone(team: Team) -> None:
    assert "eve: viewer" in str(Text(proxied(team, "/", **{"X-User": "eve"}).text))
    assert "boss: approver" in str(Text(proxied(team, "/", **{"X-User": "boss"}).text))
    for headers, by in (
        ({"X-User": "boss"}, "10.2.0.1"),
        ({"X-User": "boss"}, "127.0.0.1"),
        ({"X-User": "boss, eve"}, "10.1.2.3"),
        ({"X-User": "b" * 101}, "10.1.2.3"),
    ):
        for path in ("/", "/backfills/b-1", "/api/v1/backfills"):
            assert proxied(team, path, by=by, **headers).status_code == 403
    assert proxied(team, "/").status_code == 303, "without a name there is no login"
    with team.store() as store:
        acts = [one for one in store.acts(99) if one.refused]
    assert len(acts) == 12
    assert {one.address for one in acts} == {"10.1.2.3", "10.2.0.1", "127.0.0.1"}


def test_a_form_of_a_proxied_user_is_sent_by_a_page_of_theirs(team: Team) -> None:
    team.shop.backfill()
    page = proxied(team, "/new", **{"X-User": "op"}).text
    sent = Browser.value(None, "sent", page)  # type: ignore[arg-type]
    other = Browser.value(None, "sent", proxied(team, "/new", **{"X-User": "boss"}).text)  # type: ignore[arg-type]
    client, environ = team.pages.test_client(), {"REMOTE_ADDR": "10.1.2.3"}

    def post(token: str, **headers: str) -> int:
        return client.post(
            "/backfills/b-1/pause",
            data={"sent": token},
            headers=HERE | {"X-User": "op"} | headers,
            environ_overrides=environ,
        ).status_code

    assert post(other) == post("") == 403
    assert post(sent, Origin="http://evil.example") == 403
    rest = client.post(
        "/api/v1/backfills/b-1/pause", headers={"X-User": "op"}, environ_overrides=environ
    )
    assert rest.status_code == 401, "a program sends a token"
    assert post(sent) == 303


def test_a_revoked_token_ends_its_logins(team: Team) -> None:
    browser = team.browser("operator")
    team.shop.backfill()
    acting = Actions(Workspace(team.shop.project), Actor(door="command line"))
    acting.revoke_token("operator")
    assert browser.client.get("/").status_code == 303
    assert browser.post("/backfills/b-1/pause").status_code == 403
    assert team.rest("operator", "GET", "/backfills").status_code == 401
    client = team.pages.test_client()
    answer = client.post("/login", data={"token": team.tokens["operator"]}, headers=HERE)
    assert answer.status_code == 403
    assert "Set-Cookie" not in answer.headers
    again, _ = acting.make_token("operator")
    assert LoggedIn(team.pages, again).client.get("/").status_code == 200


def test_a_token_expires_and_is_kept_as_a_hash(team: Team) -> None:
    acting = Actions(Workspace(team.shop.project), Actor(door="command line"))
    text, _ = acting.make_token("late", lasts=timedelta(seconds=-1))
    client = team.pages.test_client()
    assert client.post("/login", data={"token": text}, headers=HERE).status_code == 403
    secret = text.rpartition("_")[2]
    with team.store() as store:
        assert secret not in str(store.tokens())
        assert secret not in str(store.acts(99))
    assert not [
        one
        for one in team.shop.folder.rglob("*")
        if one.is_file() and secret.encode() in one.read_bytes()
    ]
    with pytest.raises(BackfillError, match="there is a token admin"):
        acting.make_token("admin")
    with pytest.raises(BackfillError, match="only an admin"):
        team.actions("approver").make_token("mine")


def test_a_session_is_a_new_one_at_each_login(team: Team) -> None:
    client = team.pages.test_client()
    logins: Logins = team.pages.extensions["logins"]
    client.set_cookie(logins.cookie, "chosen-beforehand")
    ids = []
    for who in ("viewer", "operator"):
        answer = client.post("/login", data={"token": team.tokens[who]}, headers=HERE)
        ids.append(answer.headers["Set-Cookie"].partition(";")[0])
        assert {"HttpOnly", "SameSite=Strict"} <= set(answer.headers["Set-Cookie"].split("; "))
        assert "Secure" not in answer.headers["Set-Cookie"]
    assert len({*ids, f"{logins.cookie}=chosen-beforehand"}) == 3
    old = team.pages.test_client()
    old.set_cookie(*ids[0].split("=", 1))
    assert old.get("/").status_code == 303, "the session before has ended"
    for by, secure in (("10.1.2.3", True), ("10.9.9.9", False)):
        answer = client.post(
            "/login",
            data={"token": team.tokens["viewer"]},
            headers=HERE | {"X-Forwarded-Proto": "https"},
            environ_overrides={"REMOTE_ADDR": by},
        )
        assert ("Secure" in answer.headers["Set-Cookie"]) == secure
    foreign = HERE | {"Origin": "http://evil.example"}
    answer = client.post("/login", data={"token": team.tokens["viewer"]}, headers=foreign)
    assert answer.status_code == 403, "no page logs a browser in behind its back"


def test_wrong_logins_are_slowed(team: Team) -> None:
    client = team.pages.test_client()
    answers = [
        client.post("/login", data={"token": f"lbt_{n:08x}_{'x' * 43}"}, headers=HERE)
        for n in range(25)
    ]
    assert [one.status_code for one in answers] == [403] * 20 + [429] * 5
    right = {"token": team.tokens["viewer"]}
    assert client.post("/login", data=right, headers=HERE).status_code == 429
    elsewhere = {"REMOTE_ADDR": "10.3.0.1"}
    found = client.post("/login", data=right, headers=HERE, environ_overrides=elsewhere)
    assert found.status_code == 200
    with team.store() as store:
        assert len([one for one in store.acts(99) if one.refused]) == 20


def test_a_key_is_that_of_one_request_of_one_person(team: Team) -> None:
    team.shop.backfill()
    team.shop.backfill("b-2")
    key = {"Idempotency-Key": "once"}
    assert team.rest("operator", "POST", "/backfills/b-1/pause", {}, **key).status_code == 202
    assert team.rest("operator", "POST", "/backfills/b-1/pause", {}, **key).status_code == 202
    for path, body in (("/backfills/b-2/pause", {}), ("/backfills/b-1/pause", {"x": 1})):
        other = team.rest("operator", "POST", path, body, **key)
        assert other.status_code == 422
        assert other.json["code"] == "LB-304"
    theirs = team.rest("other", "POST", "/backfills/b-2/pause", {}, **key)
    assert theirs.status_code == 202
    with team.store() as store:
        acts = [one for one in store.acts(99) if one.verb == "pause"]
    assert len([one for one in acts if one.refused]) == 2
    assert len(acts) == 4


def test_without_a_login_nothing_is_read(team: Team) -> None:
    team.shop.backfill()
    client: FlaskClient = team.pages.test_client()
    for rule in team.pages.url_map.iter_rules():
        if "GET" not in (rule.methods or ()) or rule.endpoint in ("static", "pages.login"):
            continue
        path = rule.rule.replace("<backfill>", "b-1")
        for part in ("<run>", "<plan>", "<int:attempt>", "<any(job, dataset):kind>"):
            path = path.replace(part, {"<int:attempt>": "1"}.get(part, "job"))
        assert "<" not in path
        answer = client.get(path)
        assert answer.status_code in (303, 401), path
        assert "b-1" not in answer.text.replace(path, "")
    assert team.browser("viewer").client.get("/").status_code == 200


def test_a_token_without_a_grant_reads_nothing(team: Team) -> None:
    answer = team.rest("stranger", "GET", "/backfills")
    assert answer.status_code == 403
    assert "stranger is not viewer of anything here" in answer.json["title"]


def test_a_refusal_stands_while_the_store_is_locked(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.shop.backfill()
    monkeypatch.setattr("lineage_backfill.store.sql.BUSY_TIMEOUT", 0.1)
    monkeypatch.setattr("lineage_backfill.workspace.tokens._USED", timedelta(0))
    browser = team.browser("operator")
    with closing(sqlite3.connect(team.shop.folder / ".lineage-backfill" / "runs.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = browser.client.post("/backfills/b-1/pause", data={}, headers=HERE)
        assert refused.status_code == 403
        assert browser.post("/backfills/b-1/pause").status_code == 503
    with team.store() as store:
        assert store.backfill("b-1").control is None


# --- each page says what it needs ---------------------------------------------------------------


def test_every_route_declares_its_role(team: Team) -> None:
    undeclared = {
        rule.rule
        for rule in team.pages.url_map.iter_rules()
        if rule.endpoint != "static"
        and not isinstance(getattr(team.pages.view_functions[rule.endpoint], "needs", None), Role)
    }
    assert not undeclared
    changing = {
        rule.rule: team.pages.view_functions[rule.endpoint].needs  # type: ignore[union-attr]
        for rule in team.pages.url_map.iter_rules()
        if "POST" in (rule.methods or ())
    }
    less = {path for path, role in changing.items() if role < Role.OPERATOR}
    assert less == {"/login", "/logout", "/api/v1/plans"}


def team_pages(team: Team) -> Flask:
    process = Process(arguments=[f"--config={team.shop.folder}/lineage-backfill.toml"])
    return make_pages(team.shop.project, logins=Logins(process, lambda _: None))
