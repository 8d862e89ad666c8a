"""Notifies commands and webhooks of a project about its backfills, from the run store's events."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from lineage_backfill import redaction
from lineage_backfill.errors import BackfillError, ConfigError
from lineage_backfill.http import HttpClient, HttpSettings
from lineage_backfill.model import BackfillState, RunState, named
from lineage_backfill.ports import Clock, EventRecord, HookCursor, RunStore
from lineage_backfill.project.notify import Event as Kind
from lineage_backfill.project.notify import NotifyDeclaration, wrong_address

_log = logging.getLogger(__name__)
_POLL = 0.5  # seconds between two reads of the store
_LAST = 5.0  # seconds at the end for open deliveries; the rest is left to the next process
_LIMIT = 30.0  # seconds for one delivery
_MAX_STDERR, _TAIL = 10_000_000, 400  # bytes that a command may print on stderr, and that are shown
_WAIT = 0.05  # seconds between two checks of a command
_HELD = timedelta(minutes=2)  # for so long no other process delivers what this one has begun to
_FIRST, _LONGEST, _MOST = timedelta(seconds=10), timedelta(hours=1), 34  # tries: more than a day


class UndeliveredError(Exception):
    """A hook did not accept a notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What hooks get about a backfill; `place` is the id of the event that it is about."""

    event: Kind
    place: int
    at: datetime
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    run_id: str | None = None


class History:
    """The events of one backfill so far, as notices: each kind once a drive."""

    def __init__(self) -> None:
        self.read = 0  # the id of the last event
        self.notices: list[Notice] = []
        self.has_ended = False  # the last drive
        self._sent: set[tuple[str, ...]] = set()

    def add(self, events: Sequence[EventRecord]) -> None:
        """Add events, oldest first."""
        for event in events:
            self.read = event.id
            if event.kind == "leased":
                self._sent.clear()
                self.has_ended = False
            elif event.kind == "deleted":
                self.has_ended = True
            elif event.run_id is None and event.kind in _STATES:
                self.has_ended = not BackfillState(event.kind).is_under_way
            notice = _notice(event)
            if notice is not None and (notice.event, *notice.facts) not in self._sent:
                self._sent.add((notice.event, *notice.facts))
                self.notices.append(notice)

    def next(self, hook: NotifyDeclaration, cursor: HookCursor) -> Notice | None:
        """Return the first notice for a hook after its cursor, None if there is none."""
        due = (one for one in self.notices if one.place > cursor.event and one.event in hook.on)
        return next(due, None)


_STATES = frozenset(BackfillState)


def _notice(event: EventRecord) -> Notice | None:
    """Return the notice of an event, None if no hook gets one."""
    error = event.detail.get("error", "")

    def notice(kind: Kind, text: str, **facts: Any) -> Notice:
        return Notice(event=kind, place=event.id, at=event.at, text=text, facts=facts)

    if event.run_id is not None:
        failed = notice("failed", error)
        return replace(failed, run_id=event.run_id) if event.kind == RunState.FAILED else None
    if event.kind not in _STATES:
        return None
    state = BackfillState(event.kind)
    if error:
        return notice("failed", f"stopped: {error}", error=error)
    if not state.is_under_way:
        return notice("finished", f"has ended: {state}", state=state)
    return notice("started", "has started") if state is BackfillState.RUNNING else None


class Hooks:
    """Delivers to the hooks of a project, at least once; one that hangs delays no other.

    The store keeps for each hook and backfill up to which event it is served. `reveal` returns the
    secret for a reference. Webhooks are sent only to `hosts`, and redirects are not followed.
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
        project: str = "",
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._clock = clock
        self._reveal = reveal
        self._hosts = hosts
        self._folder = folder
        self._project = project
        self._histories: dict[tuple[str, str], History] = {}
        self._over = Event()

    @contextmanager
    def delivering(self, last: float = _LAST) -> Iterator[None]:
        """Deliver meanwhile, in a thread for each hook, and for `last` seconds at the end."""
        threads = [
            Thread(target=self._repeat, args=(hook,), name="notify", daemon=True)
            for hook in self._hooks
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            deadline = time.monotonic() + last
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _repeat(self, hook: NotifyDeclaration) -> None:
        is_last = False
        while not is_last:
            is_last = self._over.wait(_POLL)
            with suppress(BackfillError):  # the store does not answer: try later
                while self.deliver_one(hook):
                    pass

    def deliver_one(self, hook: NotifyDeclaration) -> bool:
        """Deliver the next due notice to a hook; return whether there was one."""
        now = self._clock.now()
        for cursor in self._store.hook_cursors(hook.id, now=now):
            key = hook.id, cursor.backfill_id
            history = self._histories.setdefault(key, History())
            history.add(self._store.events(cursor.backfill_id, after=history.read))
            notice = history.next(hook, cursor)
            if notice is not None:
                held = replace(cursor, due_at=now + _HELD)
                if self._store.move_cursor(cursor, held):
                    self._store.move_cursor(held, self._delivered(hook, held, notice, history))
                    return True
            elif history.has_ended and self._store.move_cursor(cursor, None):
                del self._histories[key]
        return False

    def _delivered(
        self, hook: NotifyDeclaration, cursor: HookCursor, notice: Notice, history: History
    ) -> HookCursor:
        """Deliver a notice, and return the cursor after it, or of the next try."""
        id_ = _id(hook, f"{cursor.backfill_id} {notice.event} {notice.place}")
        try:
            self._send(hook, id_, self._body(cursor.backfill_id, notice))
        except Exception as error:  # noqa: BLE001 - no hook must end the thread
            tries = cursor.tries + 1
            if tries < _MOST:
                wait = min(_FIRST * 2 ** min(cursor.tries, 20), _LONGEST)
                _log.warning("notice %s not delivered, next try in %s: %s", id_, wait, error)
                return replace(cursor, due_at=self._clock.now() + wait, tries=tries)
            _log.warning("notice %s dropped after the last try: %s", id_, error)
        else:
            _log.info("notice %s (%s) delivered", id_, notice.event)
        return replace(cursor, due_at=self._clock.now(), tries=0, event=notice.place)

    def _body(self, backfill: str, notice: Notice) -> dict[str, Any]:
        text, facts = notice.text, dict(notice.facts)
        if notice.run_id is not None:
            (run,) = (one for one in self._store.runs(backfill) if one.run_id == notice.run_id)
            text = f"has a failed run of {run.job.name}: {notice.text}"
            keys = list(run.partitions)
            facts["run"] = {"id": run.run_id, "job": named(run.job), "partitions": keys}
            facts["run"]["error"] = notice.text
        elif notice.event == "started":
            facts["runs"] = sum(self._store.tallies([backfill])[backfill].values())
        title = self._store.backfill(backfill).title
        what = f"Backfill {backfill}" + (f" ({title})" if title else "")
        what += f" of {self._project}" if self._project else ""
        return {
            "schema_version": 1,
            "kind": "notification",
            "event": notice.event,
            "at": f"{notice.at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "project": self._project,
            "backfill": backfill,
            "text": f"{what} {text}",
            "title": title,
            **facts,
        }

    def _send(self, hook: NotifyDeclaration, id_: str, body: Mapping[str, Any]) -> None:
        body = redaction.document({**body, "id": id_})
        if hook.command:
            self._run(hook.command, json.dumps(body).encode())
        else:
            self._post(hook, id_, body)

    def _run(self, command: Sequence[str], body: bytes) -> None:
        # Files, not pipes: what the command leaves behind may hold those open.
        with TemporaryFile() as stdin, TemporaryFile() as stderr:
            stdin.write(body)
            stdin.seek(0)
            try:
                process = subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    cwd=self._folder,
                    start_new_session=True,  # signals to its group reach no driver
                )
            except OSError as error:
                raise UndeliveredError(f"{command[0]}: {error}") from error
            deadline = time.monotonic() + _LIMIT
            size = 0
            while process.poll() is None and time.monotonic() < deadline and size < _MAX_STDERR:
                time.sleep(_WAIT)
                size = os.fstat(stderr.fileno()).st_size
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                why = "printed too much on stderr" if size >= _MAX_STDERR else "took too long"
                raise UndeliveredError(f"{command[0]} {why}, and was stopped")
            stderr.seek(-min(_TAIL, stderr.seek(0, os.SEEK_END)), os.SEEK_END)
            end = stderr.read().decode(errors="replace").strip()[-200:]
        if process.returncode:
            raise UndeliveredError(f"{command[0]} ended with exit code {process.returncode}: {end}")

    def _post(self, hook: NotifyDeclaration, id_: str, document: Mapping[str, Any]) -> None:
        try:
            address = self._reveal(hook.webhook or "")
        except ConfigError as error:
            raise UndeliveredError(str(error)) from error
        wrong = wrong_address(address, self._hosts)
        if wrong:
            raise UndeliveredError(f"the webhook {wrong}")
        slack = {"text": document["text"]}
        body = json.dumps(slack if hook.shape == "slack" else document).encode()
        headers = {"Content-Type": "application/json", "X-Lineage-Backfill-Id": id_}
        parts = urlsplit(address)
        redaction.remember(redaction.secrets_in_path(parts.path))
        origin = f"{parts.scheme}://{parts.netloc}"
        client = HttpClient(origin, HttpSettings(timeout=_LIMIT, retries=0))
        try:
            answer = client.send("POST", address[len(origin) :], body=body, headers=headers)
        finally:
            client.close()
        if not answer.ok:
            moved = "; redirects are not followed" if 300 <= answer.status < 400 else ""
            raise UndeliveredError(f"the webhook answers {answer.status}{moved}")


def _id(hook: NotifyDeclaration, seed: str) -> str:
    return f"n-{hashlib.sha256(f'{seed} {hook.id}'.encode()).hexdigest()[:24]}"
