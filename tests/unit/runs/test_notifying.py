"""Which notices hooks get, and that no hook delays or fails a backfill."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill import redaction
from lineage_backfill.errors import ConfigError, StoreError
from lineage_backfill.model import RunState
from lineage_backfill.notify.courier import Courier
from lineage_backfill.ports import Notice, Reporter, RunStore
from lineage_backfill.project.notify import NotifyDeclaration
from lineage_backfill.runs.notifying import NotifyingReporter
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from tests.fakes import NOW, plan_of, planned_run


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> Any:
        return self.at


@pytest.fixture
def store() -> Iterator[SqlRunStore]:
    made = SqlRunStore(IN_MEMORY)
    yield made
    made.close()


ALL = NotifyDeclaration(
    on=("started", "failed", "finished", "needs_approval", "stalled"), command=("tell",)
)


def told(store: RunStore, hook: NotifyDeclaration = ALL) -> list[dict[str, Any]]:
    """Take what waits in the outbox for a hook."""
    found = []
    while notice := store.take_notice([hook.id], now=NOW + timedelta(days=9), until=NOW):
        found.append(dict(notice.body))
        store.drop_notice(notice)
    return sorted(found, key=lambda one: (one["at"], one["event"] != "started", one["event"]))


def test_a_backfill_tells_its_start_its_first_failure_and_its_end(store: SqlRunStore) -> None:
    redaction.remember(["hunter22"])
    only = NotifyDeclaration(on=("finished",), command=("other",))
    reporter = NotifyingReporter(Reporter(), store, [ALL, only], clock=Clock(), project="shop")
    one, two = planned_run("a"), planned_run("b")
    reporter.backfill_started("b-1", plan_of(one, two))
    for run in (one, two):
        reporter.run_finished(run, RunState.FAILED, "no login as hunter22")
    reporter.backfill_finished("b-1", "failed")
    started, failed, finished = told(store)
    assert [one["event"] for one in (started, failed, finished)] == [
        "started",
        "failed",
        "finished",
    ]
    assert failed["text"] == "Backfill b-1 of shop has a failed run of a: no login as ***"
    assert (failed["run"]["id"], failed["run"]["error"]) == ("a", "no login as ***")
    assert (finished["state"], started["runs"]) == ("failed", 2)
    assert len({one["id"] for one in (started, failed, finished)}) == 3
    assert [one["event"] for one in told(store, only)] == ["finished"]
    redaction.forget()


def test_what_stalls_is_told_once_until_it_goes_on(store: SqlRunStore) -> None:
    clock = Clock()
    reporter = NotifyingReporter(Reporter(), store, [ALL], clock=clock)
    reporter.look()  # no backfill is driven
    reporter.backfill_started("b-1", plan_of(planned_run("a")))
    told(store)
    reporter.waiting("a lock")
    for minutes in (59, 60, 61, 120):
        clock.at = NOW + timedelta(minutes=minutes)
        reporter.look()
    (stalled,) = told(store)
    assert stalled["text"].endswith("no run has begun or ended for 60 min (a lock)")
    reporter.run_started(planned_run("a"), 1)
    clock.at += timedelta(minutes=61)
    reporter.look()
    assert [one["event"] for one in told(store)] == ["stalled"]
    reporter.backfill_finished("b-1", "succeeded")
    told(store)
    clock.at += timedelta(days=1)
    reporter.look()
    assert told(store) == []


def test_a_drive_that_breaks_off_and_a_plan_that_waits_are_told(store: SqlRunStore) -> None:
    reporter = NotifyingReporter(Reporter(), store, [ALL], clock=Clock())
    reporter.broke_off(StoreError("before it began"))
    reporter.backfill_started("b-1", plan_of(planned_run("a")))
    reporter.broke_off(StoreError("no room"))
    assert [(one["event"], one.get("error")) for one in told(store)] == [
        ("started", None),
        ("failed", "no room"),
    ]
    reporter.needs_approval(plan_of(planned_run("a")))
    (asked,) = told(store)
    assert (asked["event"], asked["runs"], asked["backfill"]) == ("needs_approval", 1, None)


def test_a_store_that_refuses_a_notice_fails_nothing(
    store: SqlRunStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(SqlRunStore):
        def add_notices(self, notices: Any, *, now: Any) -> None:
            raise StoreError("the disk is full")

    full = Full(IN_MEMORY)
    NotifyingReporter(Reporter(), full, [ALL], clock=Clock()).backfill_finished("b-1", "failed")
    full.close()
    assert "could not be kept: the disk is full" in caplog.text


# --- delivery -------------------------------------------------------------------------------------


def courier(store: RunStore, hook: NotifyDeclaration, clock: Clock, folder: Path) -> Courier:
    def reveal(text: str) -> str:
        if text == "env:NONE":
            raise ConfigError("NONE is not set")
        return {"env:KEY": "the key"}.get(text, text)

    return Courier(store, [hook], clock=clock, reveal=reveal, hosts=["127.0.0.1"], folder=folder)


def put(store: RunStore, hook: NotifyDeclaration, id_: str = "n-1") -> None:
    body = {"id": id_, "at": "now", "event": "failed", "text": "it failed"}
    store.add_notices([Notice(id=id_, hook=hook.id, body=body)], now=NOW)


@contextmanager
def web(answers: Callable[[int], int]) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Serve; each request, by its number, is answered with a status. Gives address and requests."""
    got: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((dict(self.headers), body))
            self.send_response(answers(len(got)))
            self.send_header("Location", "http://127.0.0.1:1/other")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook", got
        server.shutdown()
        thread.join()


def test_a_command_gets_the_notice_on_stdin(store: SqlRunStore, tmp_path: Path) -> None:
    script = "import sys; open('got', 'w').write(sys.stdin.read())"
    hook = NotifyDeclaration(on=("failed",), command=(sys.executable, "-c", script))
    put(store, hook)
    assert courier(store, hook, Clock(), tmp_path).deliver_one()
    assert json.loads((tmp_path / "got").read_text())["id"] == "n-1"
    assert told(store, hook) == []


def test_a_webhook_gets_a_signed_body_with_its_id(store: SqlRunStore, tmp_path: Path) -> None:
    with web(lambda _: 204) as (address, got):
        hook = NotifyDeclaration(on=("failed",), webhook=address, secret="env:KEY")
        put(store, hook)
        assert courier(store, hook, Clock(), tmp_path).deliver_one()
    ((headers, body),) = got
    assert json.loads(body) == {"id": "n-1", "at": "now", "event": "failed", "text": "it failed"}
    assert headers["X-Lineage-Backfill-Id"] == "n-1"
    signed = headers["X-Lineage-Backfill-Timestamp"].encode() + b"." + body
    digest = hmac.new(b"the key", signed, hashlib.sha256).hexdigest()
    assert headers["X-Lineage-Backfill-Signature"] == f"sha256={digest}"


def test_slack_gets_a_text(store: SqlRunStore, tmp_path: Path) -> None:
    with web(lambda _: 200) as (address, got):
        hook = NotifyDeclaration(on=("failed",), webhook=address, shape="slack")
        put(store, hook)
        courier(store, hook, Clock(), tmp_path).deliver_one()
    assert json.loads(got[0][1]) == {"text": "it failed"}


@pytest.mark.parametrize("status", [302, 404, 500])
def test_what_is_not_taken_is_sent_again_later_with_the_same_id(
    store: SqlRunStore, tmp_path: Path, status: int
) -> None:
    clock = Clock()
    with web(lambda number: status if number < 3 else 200) as (address, got):
        hook = NotifyDeclaration(on=("failed",), webhook=address)
        put(store, hook)
        post = courier(store, hook, clock, tmp_path)
        assert post.deliver_one()
        assert not post.deliver_one()  # not at once
        clock.at = NOW + timedelta(seconds=10)
        assert post.deliver_one()
        clock.at += timedelta(seconds=19)
        assert not post.deliver_one()  # the wait has doubled
        clock.at += timedelta(seconds=1)
        assert post.deliver_one()
    assert [headers["X-Lineage-Backfill-Id"] for headers, _ in got] == ["n-1"] * 3
    assert told(store, hook) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"webhook": "http://10.0.0.1/hook"}, "goes to 10.0.0.1, which is not among"),
        ({"webhook": "env:NONE"}, "NONE is not set"),
        ({"webhook": "http://127.0.0.1:1/token-in-path"}, "cannot be reached: ConnectionError"),
        ({"command": ("/no/such/program",)}, "No such file"),
        ({"command": (sys.executable, "-c", "import sys; sys.exit('no')")}, "exit code 1: no"),
    ],
)
def test_what_cannot_be_delivered_stays_in_the_outbox(
    store: SqlRunStore,
    tmp_path: Path,
    given: dict[str, Any],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook = NotifyDeclaration(on=("failed",), **given)
    put(store, hook)
    assert courier(store, hook, Clock(), tmp_path).deliver_one()
    assert said in caplog.text
    assert "token-in-path" not in caplog.text
    assert [one["id"] for one in told(store, hook)] == ["n-1"]


def test_what_never_arrives_is_given_up_after_a_day_or_more(
    store: SqlRunStore, tmp_path: Path
) -> None:
    clock = Clock()
    hook = NotifyDeclaration(on=("failed",), webhook="http://10.0.0.1/")
    put(store, hook)
    post = courier(store, hook, clock, tmp_path)
    while post.deliver_one():
        clock.at += timedelta(hours=1)
    assert NOW + timedelta(days=1) < clock.at < NOW + timedelta(days=2)
    assert told(store, hook) == []


def test_two_couriers_share_an_outbox_and_leave_notices_of_others(
    store: SqlRunStore, tmp_path: Path
) -> None:
    put(store, ALL)
    taken = store.take_notice([ALL.id], now=NOW, until=NOW + timedelta(minutes=2))
    assert taken is not None
    assert store.take_notice([ALL.id], now=NOW, until=NOW) is None
    # The courier that took it died: another one delivers it again.
    assert store.take_notice([ALL.id], now=NOW + timedelta(minutes=2), until=NOW) is not None
    other = NotifyDeclaration(on=("failed",), command=("other",))
    assert not courier(store, other, Clock(), tmp_path).deliver_one()


def test_a_hook_that_hangs_keeps_no_one_from_ending(store: SqlRunStore, tmp_path: Path) -> None:
    hook = NotifyDeclaration(
        on=("failed",), command=(sys.executable, "-c", "import time; time.sleep(3)")
    )
    put(store, hook)
    post = courier(store, hook, Clock(), tmp_path)
    post.start()
    post.stop(0.2)
    assert threading.active_count() > 1  # it goes on by itself, and the drive has gone on
    post.stop(10)
