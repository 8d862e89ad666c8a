"""Which notices hooks get, and that no hook delays or fails a backfill."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from inspect import signature
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from lineage_backfill import redaction
from lineage_backfill.errors import (
    ConfigError,
    ConflictError,
    StoreError,
    StoreUnreachableError,
)
from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.notify import courier as module
from lineage_backfill.notify.courier import Courier
from lineage_backfill.ports import AttemptState, Lease, Move, Notice, Reporter, RunStore
from lineage_backfill.project.notify import NotifyDeclaration
from lineage_backfill.runs.drive.store_outage import RetryingStore
from lineage_backfill.runs.notifying import Notices, NotifyingStore, StallReporter, keep
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from tests.fakes import NOW, backfill_record, plan_of, planned_run


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


class Bench:
    """A store that writes notices, with a backfill of two runs and its lease."""

    def __init__(self, store: RunStore, *hooks: NotifyDeclaration, project: str = "") -> None:
        self.clock = Clock()
        self.notices = Notices(hooks, clock=self.clock, project=project)
        self.raw = store
        self.store = cast(RunStore, NotifyingStore(store, self.notices))
        runs = [planned_run("a"), planned_run("b")]
        store.create(backfill_record(state=BackfillState.RUNNING, title="VAT fix"), {}, runs)
        self.lease = self.acquire()

    def acquire(self) -> Lease:
        return self.raw.acquire("b-1", "me", now=NOW, ttl=timedelta(0))

    def enter(self, state: BackfillState, **more: Any) -> None:
        self.store.enter(self.lease, state, now=NOW, **more)

    def fail(self, run_id: str, error: str) -> None:
        begun = Move(run_id=run_id, state=RunState.SUBMITTED, attempt=1, token=run_id)
        ended = Move(
            run_id=run_id,
            state=RunState.FAILED,
            attempt=1,
            attempt_state=AttemptState.FAILED,
            error=error,
        )
        self.store.record(self.lease, [begun], now=NOW)
        self.store.record(self.lease, [ended], now=NOW)


def test_start_first_failure_and_end_are_notified_once_a_drive(store: SqlRunStore) -> None:
    redaction.remember(["hunter22"])
    only = NotifyDeclaration(on=("finished",), command=("other",))
    bench = Bench(store, ALL, only, project="shop")
    for _ in range(2):  # a tail enters it again
        bench.enter(BackfillState.RUNNING)
    for run_id in ("a", "b"):
        bench.fail(run_id, "no login as hunter22")
    bench.enter(BackfillState.FAILED)
    started, failed, finished = told(store)
    assert [one["event"] for one in (started, failed, finished)] == [
        "started",
        "failed",
        "finished",
    ]
    assert failed["text"] == "Backfill b-1 (VAT fix) of shop has a failed run of a: no login as ***"
    assert {one["title"] for one in (started, failed, finished)} == {"VAT fix"}
    assert (failed["run"]["id"], failed["run"]["error"]) == ("a", "no login as ***")
    assert (finished["state"], started["runs"]) == ("failed", 2)
    assert len({one["id"] for one in (started, failed, finished)}) == 3
    assert [one["event"] for one in told(store, only)] == ["finished"]
    bench.lease = bench.acquire()  # `retry`
    bench.enter(BackfillState.RUNNING)
    (again,) = told(store)
    assert again["event"] == "started"
    assert again["id"] != started["id"]
    redaction.forget()


@pytest.mark.parametrize("change", ["started", "failed", "finished", "stopped"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_loses_no_notice_of_a_change_that_was_written(
    store: SqlRunStore, monkeypatch: pytest.MonkeyPatch, change: str, moment: str
) -> None:
    """The notice is there exactly where the change is: in one transaction."""
    bench = Bench(store, ALL)
    if change != "started":
        bench.enter(BackfillState.RUNNING)
        told(store)

    def crashing(call: Callable[..., None]) -> Callable[..., None]:
        def crash(*given: Any, **named: Any) -> None:
            writes = named.get("notices", ())
            if writes and moment == "before":
                raise SystemExit
            call(*given, **named)
            if writes:
                raise SystemExit

        return crash

    monkeypatch.setattr(store, "record", crashing(store.record))
    monkeypatch.setattr(store, "enter", crashing(store.enter))
    changes: dict[str, Callable[[], None]] = {
        "started": lambda: bench.enter(BackfillState.RUNNING),
        "failed": lambda: bench.fail("a", "no disk"),
        "finished": lambda: bench.enter(BackfillState.SUCCEEDED),
        "stopped": lambda: bench.enter(BackfillState.INTERRUPTED, error="no disk"),
    }
    with pytest.raises(SystemExit):
        changes[change]()
    found = [one["event"] for one in told(store)]
    event = "failed" if change == "stopped" else change
    assert found == ([event] if moment == "after" else [])


def test_a_refused_change_writes_no_notice(store: SqlRunStore) -> None:
    bench = Bench(store, ALL)
    bench.enter(BackfillState.RUNNING)
    bench.enter(BackfillState.FAILED)
    assert len(told(store)) == 2
    with pytest.raises(StoreError):
        bench.enter(BackfillState.INTERRUPTED, error="too late")
    bench.acquire()  # another driver has taken over
    with pytest.raises(ConflictError):
        bench.enter(BackfillState.RUNNING)
    assert told(store) == []


def test_a_change_whose_answer_was_lost_is_one_notice(store: SqlRunStore) -> None:
    bench = Bench(store, ALL)
    entering, tries = store.enter, iter(range(2))

    def unanswered(*given: Any, **named: Any) -> None:
        entering(*given, **named)
        if next(tries) == 0:
            raise StoreUnreachableError("gone")

    store.enter = unanswered  # type: ignore[method-assign]
    retrying = RetryingStore(bench.store, lambda _: None, threading.Event())
    retrying.enter(bench.lease, BackfillState.RUNNING, now=NOW)
    assert [one["event"] for one in told(store)] == ["started"]


def test_a_backfill_that_stops_with_an_error_keeps_it(store: SqlRunStore) -> None:
    bench = Bench(store, ALL)
    bench.enter(BackfillState.INTERRUPTED, error="no room")
    (failed,) = told(store)
    assert (failed["event"], failed["error"]) == ("failed", "no room")
    assert store.events("b-1")[-1].detail == {"error": "no room"}


def test_what_stalls_is_told_once_until_it_goes_on(store: SqlRunStore) -> None:
    clock = Clock()
    reporter = StallReporter(Reporter(), store, Notices([ALL], clock=clock))
    reporter.look()  # no backfill is driven
    reporter.backfill_started("b-1", plan_of(planned_run("a")), "VAT fix")
    reporter.waiting("a lock")
    for minutes in (59, 60, 61, 120):
        clock.at = NOW + timedelta(minutes=minutes)
        reporter.look()
    (stalled,) = told(store)
    assert stalled["text"].startswith("Backfill b-1 (VAT fix) is stalled: ")
    assert stalled["text"].endswith("no run has begun or ended for 60 min (a lock)")
    reporter.run_started(planned_run("a"), 1)
    clock.at += timedelta(minutes=61)
    reporter.look()
    assert [one["event"] for one in told(store)] == ["stalled"]
    reporter.backfill_finished("b-1", "succeeded")
    clock.at += timedelta(days=1)
    reporter.look()
    assert told(store) == []


def test_the_reporter_behind_it_hears_everything(store: SqlRunStore) -> None:
    reporter = Mock(Reporter)
    stall = StallReporter(reporter, store, Notices([ALL], clock=Clock()))
    hooks = [name for name in vars(Reporter) if not name.startswith("_")]
    for name in hooks:
        count = len(signature(getattr(Reporter, name)).parameters) - 1
        hard = {"hard": True} if name == "stopping" else {}
        getattr(stall, name)(*map(str, range(count - len(hard))), **hard)
    assert [one[0] for one in reporter.method_calls] == hooks


def test_a_store_that_refuses_a_notice_of_no_change_fails_nothing(
    store: SqlRunStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "add_notices", full)
    keep(store, Notices([ALL], clock=Clock()).of("needs_approval", "of 1 run"), now=NOW)
    assert "a notification is lost: the disk is full" in caplog.text


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


def test_a_command_that_leaves_something_running_has_taken_its_notice(
    store: SqlRunStore, tmp_path: Path
) -> None:
    hook = NotifyDeclaration(on=("failed",), command=("/bin/sh", "-c", "sleep 20 &"))
    put(store, hook)
    assert courier(store, hook, Clock(), tmp_path).deliver_one()
    assert told(store, hook) == []


def test_a_command_that_signals_its_process_group_does_not_reach_the_driver(
    store: SqlRunStore, tmp_path: Path
) -> None:
    script = "import os; open('group', 'w').write(str(os.getpgrp()))"
    hook = NotifyDeclaration(on=("failed",), command=(sys.executable, "-c", script))
    put(store, hook)
    assert courier(store, hook, Clock(), tmp_path).deliver_one()
    assert int((tmp_path / "group").read_text()) != os.getpgrp()


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
    last = NOW
    for _ in range(3 * 24 * 60):
        clock.at += timedelta(minutes=1)
        last = clock.at if post.deliver_one() else last
    assert NOW + timedelta(days=1) < last < NOW + timedelta(days=2)
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


HANGS = "sleep 60 & echo $! > pid; wait"


def ends(pid: int) -> bool:
    """Whether a process ends, which takes a moment after its signal."""
    status = Path(f"/proc/{pid}/stat")
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            if status.read_text().split()[2] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_a_hook_that_hangs_delays_no_other(store: SqlRunStore, tmp_path: Path) -> None:
    hangs = NotifyDeclaration(on=("failed",), command=("/bin/sh", "-c", HANGS))
    takes = NotifyDeclaration(on=("failed",), command=("/bin/sh", "-c", "cat > got"))
    put(store, hangs)
    put(store, takes, "n-2")
    hooks, hosts = [hangs, takes], ["127.0.0.1"]
    post = Courier(store, hooks, clock=Clock(), reveal=str, hosts=hosts, folder=tmp_path)
    post.start()
    post.stop(5)
    assert json.loads((tmp_path / "got").read_text())["id"] == "n-2"
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_a_command_that_takes_too_long_is_stopped_with_all_it_started(
    store: SqlRunStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "_LIMIT", 3.0)  # and its file is there before that
    hook = NotifyDeclaration(on=("failed",), command=("/bin/sh", "-c", HANGS))
    put(store, hook)
    assert courier(store, hook, Clock(), tmp_path).deliver_one()
    assert "/bin/sh took too long, and was stopped" in caplog.text
    assert ends(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("stream", [1, 2])
def test_a_command_that_floods_a_stream_fills_no_disk(
    store: SqlRunStore, tmp_path: Path, stream: int, caplog: pytest.LogCaptureFixture
) -> None:
    command = ("/bin/sh", "-c", f"head -c 500000000 /dev/zero >&{stream}; exec yes >&2")
    hook = NotifyDeclaration(on=("failed",), command=command)
    put(store, hook)
    assert courier(store, hook, Clock(), tmp_path).deliver_one()
    assert "/bin/sh printed too much on stderr, and was stopped" in caplog.text


def test_a_webhook_that_answers_byte_by_byte_is_given_up(
    store: SqlRunStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "_LIMIT", 1.0)

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            for byte in b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200:
                connection.send(bytes([byte]))
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: drip(server.accept()[0]), daemon=True).start()
        hook = NotifyDeclaration(
            on=("failed",), webhook=f"http://127.0.0.1:{server.getsockname()[1]}/"
        )
        put(store, hook)
        assert courier(store, hook, Clock(), tmp_path).deliver_one()
    assert "the webhook gave no answer within 1 s" in caplog.text


def test_a_hook_that_cannot_even_be_called_ends_no_thread(
    store: SqlRunStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = NotifyDeclaration(on=("failed",), command=("a\0b",))
    put(store, hook)
    assert courier(store, hook, Clock(), tmp_path).deliver_one()
    assert "not delivered" in caplog.text
