"""`[[notify]]` tables: which events of a backfill go to which hooks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args
from urllib.parse import urlsplit

from lineage_backfill.project.reader import length
from lineage_backfill.project.table import Table

#: Driving began, the first run failed, the backfill ended, a plan needs confirmation, no run
#: began or ended for long.
Event = Literal["started", "failed", "finished", "needs_approval", "stalled"]
Shape = Literal["json", "slack"]
_REFERENCES = ("env:", "file:")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyDeclaration:
    """The events for one hook: a `command`, with JSON on stdin, or a `webhook`.

    `webhook` and `secret`, the key of its signature, may be references. After `stalled_after`
    without a run that begins or ends, a backfill is stalled.
    """

    on: tuple[Event, ...]
    command: tuple[str, ...] = ()
    webhook: str | None = None
    shape: Shape = "json"
    secret: str | None = None
    stalled_after: timedelta = timedelta(hours=1)

    @property
    def id(self) -> str:
        """Its id in the run store, the same in all processes."""
        target = self.webhook or "\0".join(self.command)
        return hashlib.sha256(target.encode()).hexdigest()[:16]


def read_notify(tables: Iterable[Table], hosts: Collection[str]) -> tuple[NotifyDeclaration, ...]:
    """Read the `[[notify]]` tables; webhooks are allowed only for these hosts."""
    return tuple(_read(table, hosts) for table in tables)


def _read(table: Table, hosts: Collection[str]) -> NotifyDeclaration:
    events = table.choices("on", get_args(Event))
    if not events:
        raise table.error("`on` is missing", hint='Write it as on = ["failed", "finished"].')
    command, webhook = table.texts("command") or (), table.text("webhook")
    if bool(command) == bool(webhook):
        raise table.error("needs a `command` or a `webhook`, and not both")
    if webhook is not None and not webhook.startswith(_REFERENCES):
        wrong = wrong_address(webhook, hosts)
        if wrong:
            raise table.error(f"`webhook` {wrong}", hint=HOSTS_HINT)
    for key in ("format", "secret"):
        if command and key in table:
            raise table.error(f"`{key}` applies to webhooks only", hint="Leave it out.")
    found = NotifyDeclaration(
        on=events,
        command=command,
        webhook=webhook,
        shape=table.choice("format", get_args(Shape)) or "json",
        secret=table.text("secret"),
        stalled_after=length(table, "stalled_after") or timedelta(hours=1),
    )
    table.done()
    return found


HOSTS_HINT = 'Name its host in [run] notify_hosts = ["hooks.slack.com"], and use https.'


def wrong_address(address: str, hosts: Collection[str]) -> str:
    """Return why an address is not allowed, or an empty text.

    >>> wrong_address("https://hooks.example.com/x", ["hooks.example.com"])
    ''
    """
    try:
        parts = urlsplit(address)
    except ValueError:  # as of a host in square brackets that are not closed
        return "is not an https address"
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "is not an https address"
    if parts.hostname not in hosts:
        return f"goes to {parts.hostname}, which is not among `notify_hosts`"
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        return "is not https"
    return ""
