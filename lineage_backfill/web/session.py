"""The session of a request, and what it may change."""

from __future__ import annotations

from hmac import compare_digest
from urllib.parse import urlsplit

from flask import abort, current_app, request

from lineage_backfill.web.logins import Logins, Session
from lineage_backfill.workspace.actions import Actor


def logins() -> Logins | None:
    """Return the logins of this application, None where pages are read-only."""
    found: Logins | None = current_app.extensions["logins"]
    return found


def session() -> Session | None:
    """Return the session of this request."""
    known = logins()
    return known.session(session_id()) if known else None


def session_id() -> str:
    """Return the session that the cookie of this request names."""
    known = logins()
    return request.cookies.get(known.cookie, "") if known else ""


def actor() -> Actor:
    """Return who acts by this request: the account that serves, whose login it is."""
    return Actor(
        door="pages", address=request.remote_addr or "", key=request.form.get("key") or None
    )


def refuse_foreign() -> None:
    """Abort a request to change something unless a page of this session has sent it."""
    found = session()
    if found is None:
        abort(403, "Log in first, with the address that `serve` prints in its terminal.")
    origin, sent = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    is_ours = origin is None or urlsplit(origin).netloc == request.host
    token = request.form.get("sent", "")
    if (
        not is_ours
        or sent not in (None, "same-origin")
        or not compare_digest(token.encode(), found.token.encode())
    ):
        abort(403, "This was not sent by a page of this login. Load the page again.")
