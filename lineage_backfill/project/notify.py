"""`[[notify]]` tables: which events of a backfill go to which hooks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from lineage_backfill.errors import ConfigError, DeclarationError
from lineage_backfill.project.forms import Texts
from lineage_backfill.typed import ONE_OR_MORE, Text, member, read, tables

#: Driving began, the first run failed, the backfill ended.
Event = Literal["started", "failed", "finished"]
Shape = Literal["json", "slack"]
_REFERENCES = ("env:", "file:")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyDeclaration:
    """The events for one hook: a `command`, with JSON on stdin, or a `webhook`.

    `webhook` may be a reference.
    """

    on: Annotated[tuple[Event, ...], ONE_OR_MORE] = ()
    command: Texts = ()
    webhook: Text | None = None
    shape: Shape = member("json", key="format")

    def __post_init__(self) -> None:
        if not self.on:
            raise DeclarationError(
                "`on` is missing", hint='Write it as on = ["failed", "finished"].'
            )
        if bool(self.command) == bool(self.webhook):
            raise DeclarationError("needs a `command` or a `webhook`, and not both")
        if self.command and self.shape != "json":
            raise DeclarationError("`format` applies to webhooks only", hint="Leave it out.")

    @property
    def id(self) -> str:
        """Its id in the run store, the same in all processes."""
        target = self.webhook or "\0".join(self.command)
        return hashlib.sha256(target.encode()).hexdigest()[:16]


def read_notify(values: Any, place: str, hosts: Collection[str]) -> tuple[NotifyDeclaration, ...]:
    """Read the `[[notify]]` tables; webhooks are allowed only for these hosts."""
    found = []
    for table, at in tables(values, "notify", place):
        hook = read(NotifyDeclaration, table, at)
        found.append(hook)
        if hook.webhook is not None and not hook.webhook.startswith(_REFERENCES):
            wrong = wrong_address(hook.webhook, hosts)
            if wrong:
                raise ConfigError(f"{at}: `webhook` {wrong}", hint=HOSTS_HINT)
    return tuple(found)


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
