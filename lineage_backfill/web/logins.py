"""Who may act on the pages: a code in the address that `serve` prints, tokens, a proxy's word."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from hmac import new as hmac
from threading import Lock

from lineage_backfill.workspace.actions import Process

_LASTS = 12 * 3600.0  # seconds of a session without a request
_FAILURES, _WITHIN = 20, 60.0  # most wrong logins and forms of one address in these seconds
_ADDRESSES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A user who has logged in, as a subject of [access] and the groups that a proxy names.

    `prefix` is that of their token. The owner has opened the address that `serve` has printed.
    """

    name: str
    subjects: frozenset[str] = frozenset()
    is_owner: bool = False
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has logged in; its forms send the token."""

    token: str
    until: float
    caller: Caller


@dataclass
class Logins:
    """Codes that each log in one browser, and the sessions of browsers; all end with the process.

    `told` is called with the new code after one was used. An empty `code` is none. `token`
    is that of programs of the owner, who need no session. `process` is how a driver is started.
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
    _failures: dict[str, list[float]] = field(default_factory=dict)
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _lock: Lock = field(default_factory=Lock)

    def enter(self, code: str, owner: Caller) -> str | None:
        """Return the id of a new session, None for a wrong code; a right one is used up."""
        with self._lock:
            if not self.code or not compare_digest(code.encode(), self.code.encode()):
                return None
            self.code = secrets.token_urlsafe(24)
        self.told(self.code)
        return self.begin(owner)

    def begin(self, caller: Caller) -> str:
        """Return the id of a new session, which no request can have chosen."""
        id_ = secrets.token_urlsafe(24)
        with self._lock:
            self._sessions[id_] = Session(secrets.token_urlsafe(24), self.clock() + _LASTS, caller)
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
            known = Session(known.token, self.clock() + _LASTS, known.caller)
            self._sessions[id_] = known
            return known

    def of_proxy(self, caller: Caller) -> Session:
        """Return what stands for a session where a proxy names the user in each request."""
        token = hmac(self._secret, caller.name.encode(), sha256).hexdigest()
        return Session(token, self.clock() + _LASTS, caller)

    def is_slowed(self, address: str, *, by: int = 0) -> bool:
        """Whether an address has failed too often just now, `by` more than the most."""
        with self._lock:
            failed = self._failures.get(address, [])
            return len([at for at in failed if self.clock() - at < _WITHIN]) >= _FAILURES + by

    def fail(self, address: str) -> None:
        """Note a wrong login, or a form of another page."""
        with self._lock:
            if len(self._failures) > _ADDRESSES:
                self._failures.clear()
            self._failures[address] = [*self._failures.get(address, [])[-_FAILURES:], self.clock()]
