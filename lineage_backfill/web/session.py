"""The session of a request, and what it may change."""

from __future__ import annotations

from hmac import compare_digest
from urllib.parse import urlsplit

from flask import abort, current_app, request
from werkzeug.datastructures import WWWAuthenticate

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
    """Return who acts by this request: the account that serves, whose login or token it is."""
    address = request.remote_addr or ""
    if is_program():
        return Actor(door="rest", address=address, key=request.headers.get("Idempotency-Key"))
    return Actor(door="pages", address=address, key=request.form.get("key") or None)


def is_program() -> bool:
    """Whether a program sends this request, to the addresses of REST."""
    return request.path.startswith("/api/")


def refuse_strangers() -> None:
    """Abort a request of a program to change something unless it has the token.

    A browser sends this token for no page, as it does with cookies.
    """
    known = logins()
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    right = known.token if known else ""
    is_right = right and compare_digest(token.encode(), right.encode())
    if scheme.lower() != "bearer" or not is_right:
        text = "Send `Authorization: Bearer TOKEN` with the token of `serve --token-file`."
        abort(401, text, www_authenticate=WWWAuthenticate("bearer"))


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
