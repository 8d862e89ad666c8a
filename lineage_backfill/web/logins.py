"""Who may act on the pages: a code in the address that `serve` prints becomes a session."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest
from threading import Lock

from lineage_backfill.workspace.actions import Process

_LASTS = 12 * 3600.0  # seconds of a session without a request


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has logged in; its forms send the token."""

    token: str
    until: float


@dataclass
class Logins:
    """Codes that each log in one browser, and the sessions of these; all end with the process.

    `told` is called with the new code after one was used. `token` is that of programs, who need no
    session; without it they only read. `process` is how a driver is started.
    `clock` is monotonic, in seconds.
    """

    process: Process
    told: Callable[[str], None]
    token: str = ""
    clock: Callable[[], float] = time.monotonic
    #: Cookies hold for all ports of a host, so each server has a name of its own.
    cookie: str = field(default_factory=lambda: f"lineage-backfill-{secrets.token_hex(4)}")
    code: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _sessions: dict[str, Session] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def enter(self, code: str) -> str | None:
        """Return the id of a new session, None for a wrong code; a right one is used up."""
        with self._lock:
            if not compare_digest(code.encode(), self.code.encode()):
                return None
            self.code, id_ = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
            self._sessions[id_] = Session(secrets.token_urlsafe(24), self.clock() + _LASTS)
        self.told(self.code)
        return id_

    def leave(self, id_: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(id_, None)

    def session(self, id_: str) -> Session | None:
        """Return the session of an id, None if there is none; it lasts from now on."""
        with self._lock:
            known = self._sessions.get(id_)
            if known is None or known.until < self.clock():
                self._sessions.pop(id_, None)
                return None
            self._sessions[id_] = known = Session(known.token, self.clock() + _LASTS)
            return known
