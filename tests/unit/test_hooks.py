"""Which notices hooks get of a run store's events; no hook delays or fails a backfill."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill import hooks as module
from lineage_backfill import redaction
from lineage_backfill.errors import ConfigError, StoreError, StoreUnreachableError
from lineage_backfill.hooks import Hooks
from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.ports import AttemptState, Lease, Move
from lineage_backfill.project.notify import NotifyDeclaration
from lineage_backfill.runs.drive.store_outage import RetryingStore
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from tests.fakes import NOW, backfill_record, planned_run


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


ALL = NotifyDeclaration(on=("started", "failed", "finished"), command=("page",))


class Sent(Hooks):
    """Keeps the documents that it would send; `fails` while that is set."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.documents: list[dict[str, Any]] = []
        self.fails = False

    def _send(self, hook: NotifyDeclaration, id_: str, body: Any) -> None:
        if self.fails:
            raise OSError("no route")
        self.documents.append(redaction.document({**body, "id": id_, "hook": hook.command}))


class Bench:
    """A backfill of two runs with its lease, and the hooks that its events are for."""

    def __init__(self, store: SqlRunStore, *hooks: NotifyDeclaration, project: str = "") -> None:
        self.clock = Clock()
        self.store, self.declared, self.project = store, hooks, project
        self.hooks = self.process()
        runs = [planned_run("a"), planned_run("b")]
        store.create(backfill_record(state=BackfillState.RUNNING, title="VAT fix"), {}, runs)
        self.lease = self.acquire()

    def process(self) -> Sent:
        """Return the hooks of another process."""
        given = {"reveal": str, "hosts": (), "folder": Path(), "project": self.project}
        return Sent(self.store, self.declared, clock=self.clock, **given)

    def acquire(self) -> Lease:
        ids = [one.id for one in self.declared]
        return self.store.acquire("b-1", "me", now=NOW, ttl=timedelta(0), hooks=ids)

    def enter(self, state: BackfillState, **more: Any) -> None:
        self.store.enter(self.lease, state, now=NOW, **more)

    def begin(self, run_id: str) -> None:
        begun = Move(run_id=run_id, state=RunState.SUBMITTED, attempt=1, token=run_id)
        self.store.record(self.lease, [begun], now=self.clock.at)

    def fail(self, run_id: str, error: str) -> None:
        self.begin(run_id)
        ended = Move(
            run_id=run_id,
            state=RunState.FAILED,
            attempt=1,
            attempt_state=AttemptState.FAILED,
            error=error,
        )
        self.store.record(self.lease, [ended], now=NOW)

    def sent(self, process: Sent | None = None) -> list[dict[str, Any]]:
        """Return what the hooks of a process send now."""
        process = process or self.hooks
        process.documents.clear()
        for hook in self.declared:
            while process.deliver_one(hook):
                pass
        return list(process.documents)

    def events(self, process: Sent | None = None) -> list[str]:
        return [one["event"] for one in self.sent(process)]


def test_start_first_failure_and_end_are_notified_once_a_drive(store: SqlRunStore) -> None:
    redaction.remember(["hunter22"])
    bench = Bench(store, ALL, project="shop")
    for _ in range(2):  # a tail enters it again
        bench.enter(BackfillState.RUNNING)
    for run_id in ("a", "b"):
        bench.fail(run_id, "no login as hunter22")
    bench.enter(BackfillState.FAILED)
    started, failed, finished = documents = bench.sent()
    assert [one["event"] for one in documents] == ["started", "failed", "finished"]
    assert failed["text"] == "Backfill b-1 (VAT fix) of shop has a failed run of a: no login as ***"
    assert {one["title"] for one in documents} == {"VAT fix"}
    assert (failed["run"]["id"], failed["run"]["error"]) == ("a", "no login as ***")
    assert (finished["state"], started["runs"]) == ("failed", 2)
    assert len({one["id"] for one in documents}) == 3
    bench.lease = bench.acquire()  # `retry`
    bench.enter(BackfillState.RUNNING)
    (again,) = bench.sent()
    assert again["event"] == "started"
    assert again["id"] != started["id"]
    redaction.forget()


def test_each_hook_gets_its_events_and_none_from_before_its_first_drive(
    store: SqlRunStore,
) -> None:
    bench = Bench(store, NotifyDeclaration(on=("finished",), command=("first",)))
    bench.enter(BackfillState.RUNNING)
    bench.fail("a", "boom")
    bench.enter(BackfillState.FAILED)
    assert bench.events() == ["finished"]
    bench.declared = (*bench.declared, ALL)  # declared since
    bench.lease = bench.acquire()
    bench.enter(BackfillState.RUNNING)
    bench.enter(BackfillState.SUCCEEDED)
    sent = bench.sent(bench.process())
    assert [(one["hook"][0], one["event"]) for one in sent] == [
        ("first", "finished"),
        ("page", "started"),
        ("page", "finished"),
    ]
    for hook in bench.declared:
        assert store.hook_cursors(hook.id, now=NOW + timedelta(days=9)) == (), "nothing is left"


def test_another_process_delivers_what_one_has_left(store: SqlRunStore) -> None:
    bench = Bench(store, ALL)
    bench.enter(BackfillState.RUNNING)
    assert bench.events() == ["started"]
    bench.fail("a", "no disk")
    bench.enter(BackfillState.INTERRUPTED, error="no room")
    left = bench.sent(bench.process())
    assert [one["event"] for one in left] == ["failed", "failed"]
    assert [one.get("error") for one in left] == [None, "no room"]
    assert bench.events(bench.process()) == []


def test_a_change_that_was_not_written_is_no_notice(store: SqlRunStore) -> None:
    bench = Bench(store, ALL)
    bench.enter(BackfillState.RUNNING)
    bench.enter(BackfillState.FAILED)
    assert bench.events() == ["started", "finished"]
    with pytest.raises(StoreError):
        bench.enter(BackfillState.INTERRUPTED, error="too late")
    assert bench.events() == []


def test_a_change_whose_answer_was_lost_is_one_notice(
    store: SqlRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(store, ALL)
    entering, tries = store.enter, iter(range(2))

    def unanswered(*given: Any, **named: Any) -> None:
        entering(*given, **named)
        if next(tries) == 0:
            raise StoreUnreachableError("gone")

    monkeypatch.setattr(store, "enter", unanswered)
    retrying = RetryingStore(store, lambda _: None, threading.Event())
    retrying.enter(bench.lease, BackfillState.RUNNING, now=NOW)
    assert bench.events() == ["started"]


def test_a_delivery_that_may_have_failed_is_made_again_with_the_same_id(
    store: SqlRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after the delivery, before the cursor has moved."""
    bench = Bench(store, ALL)
    bench.enter(BackfillState.RUNNING)
    with monkeypatch.context() as patch:
        patch.setattr(Sent, "_delivered", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bench.hooks.deliver_one(ALL)
    second = bench.process()
    assert bench.events(second) == [], "the first process may still be at it"
    bench.clock.at += timedelta(minutes=2)
    (first,) = bench.sent(second)
    assert first["event"] == "started"


def test_a_drive_that_begins_while_its_last_end_is_cleared_away_is_notified(
    store: SqlRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(store, NotifyDeclaration(on=("started",), command=("page",)))
    bench.enter(BackfillState.RUNNING)
    assert bench.events() == ["started"]
    bench.enter(BackfillState.PAUSED)
    moving = store.move_cursor
    bench.clock.at += timedelta(seconds=1)

    def resumed_meanwhile(cursor: Any, to: Any) -> bool:
        monkeypatch.undo()
        ids = [one.id for one in bench.declared]
        bench.lease = store.acquire("b-1", "me", now=bench.clock.at, ttl=timedelta(0), hooks=ids)
        return moving(cursor, to)

    monkeypatch.setattr(store, "move_cursor", resumed_meanwhile)
    assert bench.events() == []
    bench.enter(BackfillState.RUNNING)
    assert bench.events() == ["started"]


def test_what_no_hook_accepts_is_given_up_after_a_day_or_more(store: SqlRunStore) -> None:
    bench = Bench(store, ALL)
    bench.enter(BackfillState.RUNNING)
    bench.hooks.fails = True
    last = NOW
    for _ in range(2 * 24 * 60):
        bench.clock.at += timedelta(minutes=1)
        last = bench.clock.at if bench.hooks.deliver_one(ALL) else last
        if not store.hook_cursors(ALL.id, now=NOW + timedelta(days=9))[0].tries:
            break
    assert NOW + timedelta(days=1) < last < NOW + timedelta(days=2)
    bench.hooks.fails = False
    bench.enter(BackfillState.FAILED)
    assert bench.events() == ["finished"]


# --- delivery -------------------------------------------------------------------------------------


def hooks_of(
    store: SqlRunStore, folder: Path, *declared: NotifyDeclaration, clock: Clock | None = None
) -> Hooks:
    """Return hooks that are to be notified of a failed run."""

    def reveal(text: str) -> str:
        if text == "env:NONE":
            raise ConfigError("NONE is not set")
        return {"env:KEY": "the key"}.get(text, text)

    Bench(store, *declared).fail("a", "no disk")
    clock = clock or Clock()
    hosts = ["127.0.0.1"]
    return Hooks(store, declared, clock=clock, reveal=reveal, hosts=hosts, folder=folder)


def is_delivered(store: SqlRunStore, hook: NotifyDeclaration) -> bool:
    """Whether the notice of the last event is delivered; if not, it is tried again."""
    (cursor,) = store.hook_cursors(hook.id, now=NOW + timedelta(days=9))
    last = store.events("b-1")[-1].id
    assert cursor.tries > 0 or cursor.event == last
    return cursor.event == last


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
    assert hooks_of(store, tmp_path, hook).deliver_one(hook)
    assert json.loads((tmp_path / "got").read_text())["run"]["error"] == "no disk"
    assert is_delivered(store, hook)


def test_a_command_that_leaves_something_running_has_taken_its_notice(
    store: SqlRunStore, tmp_path: Path
) -> None:
    hook = NotifyDeclaration(on=("failed",), command=("/bin/sh", "-c", "sleep 20 &"))
    assert hooks_of(store, tmp_path, hook).deliver_one(hook)
    assert is_delivered(store, hook)


def test_a_command_that_signals_its_process_group_does_not_reach_the_driver(
    store: SqlRunStore, tmp_path: Path
) -> None:
    script = "import os; open('group', 'w').write(str(os.getpgrp()))"
    hook = NotifyDeclaration(on=("failed",), command=(sys.executable, "-c", script))
    assert hooks_of(store, tmp_path, hook).deliver_one(hook)
    assert int((tmp_path / "group").read_text()) != os.getpgrp()


def test_a_webhook_gets_a_body_with_its_id(store: SqlRunStore, tmp_path: Path) -> None:
    with web(lambda _: 204) as (address, got):
        hook = NotifyDeclaration(on=("failed",), webhook=address)
        assert hooks_of(store, tmp_path, hook).deliver_one(hook)
    ((headers, body),) = got
    assert json.loads(body)["text"] == "Backfill b-1 (VAT fix) has a failed run of a: no disk"
    assert headers["X-Lineage-Backfill-Id"] == json.loads(body)["id"]


def test_slack_gets_a_text(store: SqlRunStore, tmp_path: Path) -> None:
    with web(lambda _: 200) as (address, got):
        hook = NotifyDeclaration(on=("failed",), webhook=address, shape="slack")
        hooks_of(store, tmp_path, hook).deliver_one(hook)
    assert json.loads(got[0][1]) == {
        "text": "Backfill b-1 (VAT fix) has a failed run of a: no disk"
    }


@pytest.mark.parametrize("status", [302, 404, 500])
def test_what_is_not_taken_is_sent_again_later_with_the_same_id(
    store: SqlRunStore, tmp_path: Path, status: int
) -> None:
    clock = Clock()
    with web(lambda number: status if number < 3 else 200) as (address, got):
        hook = NotifyDeclaration(on=("failed",), webhook=address)
        post = hooks_of(store, tmp_path, hook, clock=clock)
        assert post.deliver_one(hook)
        assert not post.deliver_one(hook)  # not at once
        clock.at = NOW + timedelta(seconds=10)
        assert post.deliver_one(hook)
        clock.at += timedelta(seconds=19)
        assert not post.deliver_one(hook)  # the wait has doubled
        clock.at += timedelta(seconds=1)
        assert post.deliver_one(hook)
    assert len(got) == 3
    assert len({headers["X-Lineage-Backfill-Id"] for headers, _ in got}) == 1
    assert is_delivered(store, hook)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"webhook": "http://10.0.0.1/hook"}, "goes to 10.0.0.1, which is not among"),
        ({"webhook": "env:NONE"}, "NONE is not set"),
        ({"webhook": "http://127.0.0.1:1/T0K3N/x7Yw2Qz81bD0aP5"}, "cannot be reached: "),
        ({"command": ("/no/such/program",)}, "No such file"),
        ({"command": (sys.executable, "-c", "import sys; sys.exit('no')")}, "exit code 1: no"),
    ],
)
def test_what_cannot_be_delivered_is_tried_again(
    store: SqlRunStore,
    tmp_path: Path,
    given: dict[str, Any],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook = NotifyDeclaration(on=("failed",), **given)
    assert hooks_of(store, tmp_path, hook).deliver_one(hook)
    assert said in caplog.text
    assert "T0K3N/x7Yw2Qz81bD0aP5" not in caplog.text
    assert not is_delivered(store, hook)


def test_a_hook_that_hangs_keeps_no_one_from_ending(store: SqlRunStore, tmp_path: Path) -> None:
    hook = NotifyDeclaration(
        on=("failed",), command=(sys.executable, "-c", "import time; time.sleep(3)")
    )
    with hooks_of(store, tmp_path, hook).delivering(last=0.2):
        pass
    (left,) = (one for one in threading.enumerate() if one.name == "notify")
    left.join(20)  # it continues by itself, and the drive has ended


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
    with hooks_of(store, tmp_path, hangs, takes).delivering(last=5):
        pass
    assert json.loads((tmp_path / "got").read_text())["event"] == "failed"
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_a_command_that_takes_too_long_is_stopped_with_all_it_started(
    store: SqlRunStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "_LIMIT", 3.0)  # and its file is there before that
    hook = NotifyDeclaration(on=("failed",), command=("/bin/sh", "-c", HANGS))
    assert hooks_of(store, tmp_path, hook).deliver_one(hook)
    assert "/bin/sh took too long, and was stopped" in caplog.text
    assert ends(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("stream", [1, 2])
def test_a_command_that_floods_a_stream_fills_no_disk(
    store: SqlRunStore, tmp_path: Path, stream: int, caplog: pytest.LogCaptureFixture
) -> None:
    command = ("/bin/sh", "-c", f"head -c 500000000 /dev/zero >&{stream}; exec yes >&2")
    hook = NotifyDeclaration(on=("failed",), command=command)
    assert hooks_of(store, tmp_path, hook).deliver_one(hook)
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
        assert hooks_of(store, tmp_path, hook).deliver_one(hook)
    assert "took longer than 1 s" in caplog.text


def test_a_hook_that_cannot_even_be_called_ends_no_thread(
    store: SqlRunStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = NotifyDeclaration(on=("failed",), command=("a\0b",))
    assert hooks_of(store, tmp_path, hook).deliver_one(hook)
    assert "not delivered" in caplog.text
