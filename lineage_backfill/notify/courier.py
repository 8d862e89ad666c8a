"""Delivers notices from the outbox to commands and webhooks while the backfill runs."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import Any

import requests

from lineage_backfill.errors import BackfillError, ConfigError
from lineage_backfill.ports import Clock, Notice, RunStore
from lineage_backfill.project.notify import NotifyDeclaration, wrong_address

_log = logging.getLogger(__name__)
_LOOK = 0.5  # seconds between two reads of the outbox
_TIMEOUT = (5.0, 10.0)  # seconds to connect, and for each answer
_COMMAND_TIMEOUT = 30.0
_HELD = timedelta(minutes=2)  # other couriers leave a notice alone this long after it was taken
_FIRST, _LONGEST, _MOST = timedelta(seconds=10), timedelta(hours=1), 30  # tries: more than a day


class Undelivered(Exception):
    """A hook did not accept a notice."""


class Courier:
    """Delivers notices in a separate thread, at least once.

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
        self._thread = Thread(target=self._work, name="notify", daemon=True)

    def start(self) -> None:
        """Start delivering."""
        self._thread.start()

    def stop(self, patience: float) -> None:
        """Deliver due notices for at most `seconds`; the rest stays in the outbox."""
        self._over.set()
        self._thread.join(patience)

    def _work(self) -> None:
        while not self._over.wait(_LOOK):
            self._look()
            self._deliver_due()
        self._deliver_due()

    def _deliver_due(self) -> None:
        with suppress(BackfillError):  # the store does not answer: try later
            while self.deliver_one():
                pass

    def deliver_one(self) -> bool:
        """Deliver the next due notice; return whether there was one. Raises StoreError."""
        now = self._clock.now()
        notice = self._store.take_notice(list(self._hooks), now=now, until=now + _HELD)
        if notice is None:
            return False
        hook = self._hooks[notice.hook]
        try:
            if hook.command:
                self._run(hook.command, notice)
            else:
                self._post(hook, notice)
        except Undelivered as error:
            self._put_off(notice, error)
        else:
            self._store.drop_notice(notice)
            _log.info("notice %s (%s) delivered", notice.id, notice.body["event"])
        return True

    def _put_off(self, notice: Notice, error: Undelivered) -> None:
        if notice.tries + 1 >= _MOST:
            self._store.drop_notice(notice)
            _log.warning("notice %s dropped after the last try: %s", notice.id, error)
            return
        wait = min(_FIRST * 2 ** min(notice.tries, 20), _LONGEST)
        self._store.put_off(notice, until=self._clock.now() + wait)
        _log.warning("notice %s not delivered, next try in %s: %s", notice.id, wait, error)

    def _run(self, command: Sequence[str], notice: Notice) -> None:
        body = json.dumps(notice.body).encode()
        with (
            TemporaryFile() as said
        ):  # not a pipe: what the command leaves behind may hold that open
            try:
                done = subprocess.run(
                    command,
                    input=body,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    timeout=_COMMAND_TIMEOUT,
                    cwd=self._folder,
                    check=False,
                    start_new_session=True,  # signals to its group reach no driver
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise Undelivered(f"{command[0]}: {error}") from error
            said.seek(0)
            end = said.read().decode(errors="replace").strip()[-200:]
        if done.returncode:
            raise Undelivered(f"{command[0]} ended with exit code {done.returncode}: {end}")

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
        headers |= signed(body, key, int(time.time())) if key else {}
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


def signed(body: bytes, key: str, at: int) -> Mapping[str, Any]:
    """Return the headers that prove who sent a body at a second since 1970: HMAC-SHA256 of both."""
    digest = hmac.new(key.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return {
        "X-Lineage-Backfill-Timestamp": str(at),
        "X-Lineage-Backfill-Signature": f"sha256={digest}",
    }
