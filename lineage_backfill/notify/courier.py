"""Delivers notices from the outbox to commands and webhooks while the backfill runs."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import Any

import requests

from lineage_backfill.errors import BackfillError, ConfigError
from lineage_backfill.ports import Clock, Notice, RunStore
from lineage_backfill.project.notify import NotifyDeclaration, wrong_address

_log = logging.getLogger(__name__)
_LOOK = 0.5  # seconds between two reads of the outbox
_TIMEOUT = 10.0  # seconds to connect, and for each answer
_LIMIT = 30.0  # seconds for one delivery
_MOST_SAID, _TAIL = 10_000_000, 400  # bytes that a command may print on stderr, and that are shown
_WAIT = 0.05  # seconds between two looks at a command
_HELD = timedelta(minutes=2)  # other couriers leave a notice alone this long after it was taken
_FIRST, _LONGEST, _MOST = timedelta(seconds=10), timedelta(hours=1), 34  # tries: more than a day


class Undelivered(Exception):
    """A hook did not accept a notice."""


class Courier:
    """Delivers notices, at least once, in a thread for each hook: one that hangs delays no other.

    `reveal` returns the secret for a reference, `look` is called regularly. Webhooks are sent only
    to `hosts`, and redirects are not followed.
    """

    def __init__(
        self,
        store: RunStore,
        hooks: Sequence[NotifyDeclaration],
        *,
        clock: Clock,
        reveal: Callable[[str], str],
        hosts: Collection[str],
        folder: Path,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._hooks = {one.id: one for one in hooks}
        self._clock = clock
        self._reveal = reveal
        self._hosts = hosts
        self._folder = folder
        self._look = look
        self._over = Event()
        works = [look, *(partial(self._deliver_due, one) for one in self._hooks)]
        self._threads = [
            Thread(target=self._repeat, args=(one,), name="notify", daemon=True) for one in works
        ]

    def start(self) -> None:
        """Start delivering."""
        for thread in self._threads:
            thread.start()

    def stop(self, patience: float) -> None:
        """Deliver due notices for at most `patience` seconds; the rest stays in the outbox."""
        self._over.set()
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._over.wait(_LOOK):
            work()
        work()

    def _deliver_due(self, hook: str) -> None:
        with suppress(BackfillError):  # the store does not answer: try later
            while self.deliver_one([hook]):
                pass

    def deliver_one(self, hooks: Collection[str] | None = None) -> bool:
        """Deliver the next due notice; return whether there was one. Raises StoreError."""
        now = self._clock.now()
        notice = self._store.take_notice(hooks or list(self._hooks), now=now, until=now + _HELD)
        if notice is None:
            return False
        hook = self._hooks[notice.hook]
        try:
            if hook.command:
                self._run(hook.command, notice)
            else:
                _within(_LIMIT, partial(self._post, hook, notice))
        except Exception as error:  # noqa: BLE001 - no hook must end the thread
            self._put_off(notice, error)
        else:
            self._store.drop_notice(notice)
            _log.info("notice %s (%s) delivered", notice.id, notice.body["event"])
        return True

    def _put_off(self, notice: Notice, error: Exception) -> None:
        if notice.tries + 1 >= _MOST:
            self._store.drop_notice(notice)
            _log.warning("notice %s dropped after the last try: %s", notice.id, error)
            return
        wait = min(_FIRST * 2 ** min(notice.tries, 20), _LONGEST)
        self._store.put_off(notice, until=self._clock.now() + wait)
        _log.warning("notice %s not delivered, next try in %s: %s", notice.id, wait, error)

    def _run(self, command: Sequence[str], notice: Notice) -> None:
        # Files, not pipes: what the command leaves behind may hold those open.
        with TemporaryFile() as told, TemporaryFile() as said:
            told.write(json.dumps(notice.body).encode())
            told.seek(0)
            try:
                process = subprocess.Popen(
                    command,
                    stdin=told,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    cwd=self._folder,
                    start_new_session=True,  # signals to its group reach no driver
                )
            except OSError as error:
                raise Undelivered(f"{command[0]}: {error}") from error
            deadline = time.monotonic() + _LIMIT
            size = 0
            while process.poll() is None and time.monotonic() < deadline and size < _MOST_SAID:
                time.sleep(_WAIT)
                size = os.fstat(said.fileno()).st_size
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                why = "printed too much on stderr" if size >= _MOST_SAID else "took too long"
                raise Undelivered(f"{command[0]} {why}, and was stopped")
            said.seek(-min(_TAIL, said.seek(0, os.SEEK_END)), os.SEEK_END)
            end = said.read().decode(errors="replace").strip()[-200:]
        if process.returncode:
            raise Undelivered(f"{command[0]} ended with exit code {process.returncode}: {end}")

    def _post(self, hook: NotifyDeclaration, notice: Notice) -> None:
        try:
            address = self._reveal(hook.webhook or "")
            key = self._reveal(hook.secret) if hook.secret else ""
        except ConfigError as error:
            raise Undelivered(str(error)) from error
        wrong = wrong_address(address, self._hosts)
        if wrong:
            raise Undelivered(f"the webhook {wrong}")
        slack = {"text": notice.body["text"]}
        body = json.dumps(slack if hook.shape == "slack" else notice.body).encode()
        headers = {"Content-Type": "application/json", "X-Lineage-Backfill-Id": notice.id}
        headers |= signed(body, key, int(self._clock.now().timestamp())) if key else {}
        try:
            with requests.post(
                address,
                data=body,
                headers=headers,
                timeout=_TIMEOUT,
                allow_redirects=False,
                stream=True,
            ) as answer:
                status = answer.status_code
        except requests.RequestException as error:
            raise Undelivered(f"the webhook cannot be reached: {type(error).__name__}") from error
        if not 200 <= status < 300:
            moved = "; redirects are not followed" if 300 <= status < 400 else ""
            raise Undelivered(f"the webhook answers {status}{moved}")


def _within(seconds: float, work: Callable[[], None]) -> None:
    """Do something in a thread, which is left alone if that takes too long; raises Undelivered."""
    ended: SimpleQueue[Exception | None] = SimpleQueue()

    def do() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again below
            ended.put(error)
        else:
            ended.put(None)

    Thread(target=do, name="webhook", daemon=True).start()
    try:
        error = ended.get(timeout=seconds)
    except Empty:
        raise Undelivered(f"the webhook gave no answer within {seconds:g} s") from None
    if error is not None:
        raise error


def signed(body: bytes, key: str, at: int) -> Mapping[str, Any]:
    """Return the headers that prove who sent a body at a second since 1970: HMAC-SHA256 of both."""
    digest = hmac.new(key.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return {
        "X-Lineage-Backfill-Timestamp": str(at),
        "X-Lineage-Backfill-Signature": f"sha256={digest}",
    }
